//! `credence config describe`

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;

use credence_decision::arguments::ArgumentKind;
use credence_decision::config::{
    ArgumentDescription, Asked, AskedOfToken, Description, Mode, Place, ProofKind, RuleDescription, Unmatched,
    for_agents,
};
use credence_decision::route::{HeaderTest, QueryTest};

use serde_json::value::RawValue;

use super::check::Report;
use super::documents;
use crate::failure::{Failure, Outcome};
use crate::{columns, terminal};

/// Describe which request needs which tool, arguments and proof, for authors of agents.
///
/// Reads the same files as `config check`. Describes every filter in the file.
#[derive(Debug, clap::Args)]
pub(crate) struct Describe {
    /// The configuration.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print JSON: a list with one element for each filter (docs/reference/configuration.md documents it).
    #[arg(long)]
    json: bool,
    /// Print the metadata of the protected resources that the filters serve (RFC 9728): a JSON object with a member for
    /// each URL.
    #[arg(long, conflicts_with = "json")]
    resource_metadata: bool,
    /// Print the rules for the programs of agents, such as `credence proxy`: JSON to publish at
    /// /.well-known/credence-agent-rules of the service.
    #[arg(long, conflicts_with_all = ["json", "resource_metadata"])]
    for_agents: bool,
}

impl Describe {
    pub(super) fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        let configurations = self.configurations()?;
        if self.for_agents {
            let [configuration] = configurations.as_slice() else {
                return Err(Failure::input(format!(
                    "the file configures {} filters; give a file with the one filter of the service",
                    configurations.len()
                )));
            };
            let rules = for_agents(configuration.as_bytes()).map_err(|error| Failure::operation(error.to_string()))?;
            writeln!(out, "{rules}")?;
            return Ok(Outcome::Done);
        }
        let described = configurations.iter().map(|json| Description::of(json.as_bytes()));
        let descriptions = described
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| Failure::operation(error.to_string()))?;
        if self.resource_metadata {
            let resources = descriptions.iter().flat_map(|description| &description.resources);
            let members = resources.map(|(url, metadata)| (url, RawValue::from_string(metadata.clone()).ok()));
            let members: BTreeMap<_, _> = members.collect();
            let json = serde_json::to_string_pretty(&members)
                .map_err(|error| Failure::operation(format!("the metadata cannot be written as JSON: {error}")))?;
            writeln!(out, "{json}")?;
            return Ok(Outcome::Done);
        }
        if self.json {
            let json = serde_json::to_string_pretty(&descriptions)
                .map_err(|error| Failure::operation(format!("the description cannot be written as JSON: {error}")))?;
            writeln!(out, "{json}")?;
            return Ok(Outcome::Done);
        }
        let mut separator = "";
        for description in &descriptions {
            out.write_all(separator.as_bytes())?;
            separator = "\n";
            print(description, out)?;
        }
        Ok(Outcome::Done)
    }

    /// The configurations of the filters in the file, as JSON. All of them would load.
    fn configurations(&self) -> Result<Vec<String>, Failure> {
        let would_not_load = || Failure::operation("the file would not load; fix the errors above");
        let documents = documents::read(&self.file)?.map_err(|finding| {
            finding.print(&self.file, "");
            would_not_load()
        })?;
        let plugins = documents.iter().flat_map(|document| &document.plugins);
        let configurations = plugins.filter_map(|plugin| plugin.configuration.as_ref());
        let configurations = configurations.map(|configuration| configuration.json.clone());
        let report = Report::of(&documents);
        // The surrounding configuration may be invalid too. An agent's author must not rely on a filter that would not run.
        if !report.errors.is_empty() {
            report.print(&self.file);
            return Err(would_not_load());
        }
        Ok(configurations.collect())
    }
}

fn print(description: &Description, out: &mut impl Write) -> io::Result<()> {
    let Description {
        default,
        delegation_header,
        proof_header,
        proof_window_seconds,
        holder_algorithms,
        rules,
        resources: _,
    } = description;
    writeln!(
        out,
        "Send the delegation in the header {delegation_header}, and the proof in {proof_header}."
    )?;
    writeln!(
        out,
        "Proofs and derived tokens are signed with {}; a proof's iat may be {proof_window_seconds}s off.",
        holder_algorithms.join(" or ")
    )?;
    let unmatched = match default {
        Unmatched::Deny => "denied",
        Unmatched::Allow => "allowed without any check",
    };
    writeln!(
        out,
        "The first rule that matches decides. A request that matches no rule is {unmatched}."
    )?;
    for rule in rules {
        writeln!(out, "\n{}", terminal::printable(&rule.name))?;
        columns::print(&rows(rule), out)?;
    }
    Ok(())
}

/// The rows of a rule, each with its heading.
fn rows(rule: &RuleDescription) -> Vec<[String; 2]> {
    let mut rows = Vec::new();
    let mut row = |heading: &str, text: String| rows.push([format!("  {heading}"), terminal::printable(&text)]);
    let or_every = |names: &[String], kind: &str| match names {
        [] => format!("every {kind}"),
        names => names.join(" or "),
    };
    let methods = or_every(&rule.matches.methods, "method");
    row("request", format!("{methods} {}", rule.matches.path));
    row("host", or_every(&rule.matches.hosts, "host"));
    for condition in &rule.matches.headers {
        let test = header_test_in_words(&condition.test);
        row("only if", format!("the header {} {test}", condition.name));
    }
    for condition in &rule.matches.query {
        let test = query_test_in_words(&condition.test);
        row("only if", format!("the query's {} {test}", condition.name));
    }
    match &rule.asks {
        None => row("public", "no delegation is needed".to_owned()),
        Some(asked) => {
            if let Some(tool) = &asked.tool {
                row("tool", tool.clone());
            }
            if let Some(mcp) = &asked.mcp {
                row("MCP", mcp.versions.join(" or "));
                match &mcp.tool_prefix {
                    Some(prefix) => row("tool", format!("{prefix}<name>, with the call's arguments")),
                    None => {
                        for (name, tool) in &mcp.tools {
                            row("tool", format!("{tool} for {name}, with the call's arguments"));
                        }
                    }
                }
                for (method, tool) in &mcp.methods {
                    row(
                        "method",
                        match tool {
                            Some(tool) => format!("{method} needs {tool}, with its parameters as arguments"),
                            None => format!("{method} needs any delegation"),
                        },
                    );
                }
                if mcp.delegation_in_meta {
                    row(
                        "or",
                        "aat_chain and aat_pop in params._meta, instead of headers".to_owned(),
                    );
                }
                row("ends", format!("after {} s, with its stream", mcp.max_stream_seconds));
            }
            for argument in &asked.arguments {
                row("argument", argument_in_words(argument));
            }
            row("proof", proof_in_words(asked.proof).to_owned());
            if asked.peer_validated {
                row(
                    "or",
                    "the certificate has the SPIFFE ID that the delegation names".to_owned(),
                );
            }
            if let Some(token) = &asked.authorization {
                row("or token", token_in_words(token));
            }
            if asked.nonce {
                row(
                    "nonce",
                    "the proof carries the nonce of a denial's delegation-nonce or dpop-nonce header".to_owned(),
                );
            }
            row("audience", asked.audience.join(" or "));
            row("ignored", ignored_in_words(asked));
            if asked.forward {
                row("forwarded", "the service receives the delegation".to_owned());
            }
        }
    }
    if rule.mode == Mode::Shadow {
        row("shadow", "decisions are recorded, but not enforced".to_owned());
    }
    if rule.upgrade {
        row("upgrade", "allowed, such as a WebSocket".to_owned());
    }
    rows
}

fn header_test_in_words(test: &HeaderTest) -> String {
    match test {
        HeaderTest::Exact(value) => format!("is \"{value}\""),
        HeaderTest::Prefix(value) => format!("starts with \"{value}\""),
        HeaderTest::Suffix(value) => format!("ends with \"{value}\""),
        HeaderTest::Present => "is there".to_owned(),
        HeaderTest::Absent => "is absent".to_owned(),
    }
}

fn query_test_in_words(test: &QueryTest) -> String {
    match test {
        QueryTest::Exact(value) => format!("is \"{value}\""),
        QueryTest::Present => "is there".to_owned(),
        QueryTest::Absent => "is absent".to_owned(),
    }
}

fn argument_in_words(argument: &ArgumentDescription) -> String {
    let from = match &argument.from {
        Place::Path(name) => format!("from {{{name}}} in the path"),
        Place::Query(name) => format!("from {name} in the query"),
        Place::Header(name) => format!("from the header {name}"),
        Place::Body(pointer) if pointer.is_empty() => "the JSON body".to_owned(),
        Place::Body(pointer) => format!("from {pointer} in the JSON body"),
        Place::Host => "the host".to_owned(),
        Place::Method => "the method".to_owned(),
    };
    let kind = match argument.kind {
        ArgumentKind::String => "text",
        ArgumentKind::Number => "number",
        ArgumentKind::Integer => "whole number",
        ArgumentKind::Boolean => "true or false",
        ArgumentKind::Json => "any JSON",
    };
    let optional = if argument.optional { ", optional" } else { "" };
    format!("{}: {kind}, {from}{optional}", argument.name)
}

fn proof_in_words(proof: ProofKind) -> &'static str {
    match proof {
        ProofKind::Pop => "pop: each request is signed with the key that the delegation names",
        ProofKind::Dpop => "dpop: each request is signed with the key that the token names (RFC 9449)",
        ProofKind::Mtls => "mtls: the client certificate is the one that the delegation names",
        ProofKind::None => "none: any client that has the delegation may use it",
    }
}

fn token_in_words(token: &AskedOfToken) -> String {
    let scope = token.scope.as_ref().map(|scope| format!(", with the scope {scope}"));
    let scope = scope.unwrap_or_default();
    let proof = match token.proof {
        ProofKind::Dpop => "Authorization: DPoP, and a proof in the header DPoP (RFC 9449)",
        ProofKind::Mtls => "Authorization: Bearer, with the client certificate that the token names (RFC 8705)",
        ProofKind::Pop | ProofKind::None => "Authorization: Bearer (RFC 6750)",
    };
    format!("{proof}{scope}")
}

fn ignored_in_words(asked: &Asked) -> String {
    let query = asked.ignored.query.iter().map(|name| format!("{name} in the query"));
    let members = asked
        .ignored
        .body_members
        .iter()
        .map(|pointer| format!("{pointer} in the JSON body"));
    let body = asked.ignored.body.then(|| "the body".to_owned());
    let ignored: Vec<_> = query.chain(members).chain(body).collect();
    if ignored.is_empty() {
        "nothing: any other member or parameter denies the request".to_owned()
    } else {
        format!(
            "{}; any other member or parameter denies the request",
            ignored.join(", ")
        )
    }
}
