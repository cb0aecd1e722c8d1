//! `credence config describe`

use std::io::{self, Write};
use std::path::PathBuf;

use credence_decision::arguments::ArgumentKind;
use credence_decision::config::{
    ArgumentDescription, Asked, Description, Mode, Place, ProofKind, RuleDescription, Unmatched,
};
use credence_decision::route::{HeaderTest, QueryTest};

use super::check::Report;
use super::documents;
use crate::failure::{Failure, Outcome};
use crate::{columns, terminal};

/// Say which request asks for which tool, arguments and proof, for those who write agents.
///
/// Reads what `config check` reads. Every filter in the file is described, one after another.
#[derive(Debug, clap::Args)]
pub(crate) struct Describe {
    /// The configuration.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print JSON: a list with one element for each filter (docs/reference/configuration.md documents it).
    #[arg(long)]
    json: bool,
}

impl Describe {
    pub(super) fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        let descriptions = self.descriptions()?;
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

    fn descriptions(&self) -> Result<Vec<Description>, Failure> {
        let would_not_load = || Failure::operation("the file would not load; correct it as said above");
        let documents = documents::read(&self.file)?.map_err(|finding| {
            finding.print(&self.file, "");
            would_not_load()
        })?;
        let plugins = documents.iter().flat_map(|document| &document.plugins);
        let configurations = plugins.filter_map(|plugin| plugin.configuration.as_ref());
        let described: Result<Vec<_>, _> = configurations
            .map(|configuration| Description::of(configuration.json.as_bytes()))
            .collect();
        let report = Report::of(&documents);
        match described {
            // What surrounds the filter may be wrong too: an agent's author is not to rely on what would not run.
            Ok(descriptions) if report.errors.is_empty() => Ok(descriptions),
            Ok(_) | Err(_) => {
                report.print(&self.file);
                Err(would_not_load())
            }
        }
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
    } = description;
    writeln!(
        out,
        "A delegation goes into the header {delegation_header}, a proof into {proof_header}."
    )?;
    writeln!(
        out,
        "Proofs and derived tokens are signed with {}; a proof's iat is at most {proof_window_seconds}s off.",
        holder_algorithms.join(" or ")
    )?;
    let unmatched = match default {
        Unmatched::Deny => "denied",
        Unmatched::Allow => "let through, and nothing is asked of it",
    };
    writeln!(
        out,
        "The first rule that matches decides. A request that none matches is {unmatched}."
    )?;
    for rule in rules {
        writeln!(out, "\n{}", terminal::printable(&rule.name))?;
        columns::print(&rows(rule), out)?;
    }
    Ok(())
}

/// What there is to say about a rule, each with its heading.
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
        None => row("public", "nothing is asked".to_owned()),
        Some(asked) => {
            row("tool", asked.tool.clone());
            for argument in &asked.arguments {
                row("argument", argument_in_words(argument));
            }
            row("proof", proof_in_words(asked.proof).to_owned());
            if asked.peer_validated {
                row(
                    "or",
                    "the certificate's SPIFFE ID is the one that the delegation names".to_owned(),
                );
            }
            if asked.nonce {
                row(
                    "nonce",
                    "the proof carries the one in a refusal's delegation-nonce header".to_owned(),
                );
            }
            row("audience", asked.audience.join(" or "));
            row("ignored", ignored_in_words(asked));
            if asked.forward {
                row("forwarded", "the service gets to see the delegation".to_owned());
            }
        }
    }
    if rule.mode == Mode::Shadow {
        row("shadow", "decisions are recorded, not carried out".to_owned());
    }
    if rule.upgrade {
        row("upgrade", "let through, such as a WebSocket".to_owned());
    }
    rows
}

fn header_test_in_words(test: &HeaderTest) -> String {
    match test {
        HeaderTest::Exact(value) => format!("is \"{value}\""),
        HeaderTest::Prefix(value) => format!("starts with \"{value}\""),
        HeaderTest::Suffix(value) => format!("ends with \"{value}\""),
        HeaderTest::Present => "is there".to_owned(),
        HeaderTest::Absent => "is not there".to_owned(),
    }
}

fn query_test_in_words(test: &QueryTest) -> String {
    match test {
        QueryTest::Exact(value) => format!("is \"{value}\""),
        QueryTest::Present => "is there".to_owned(),
        QueryTest::Absent => "is not there".to_owned(),
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
    let optional = if argument.optional { ", may be left out" } else { "" };
    format!("{}: {kind}, {from}{optional}", argument.name)
}

fn proof_in_words(proof: ProofKind) -> &'static str {
    match proof {
        ProofKind::Pop => "pop: each request is signed with the key that the delegation names",
        ProofKind::Mtls => "mtls: the client certificate is the one that the delegation names",
        ProofKind::None => "none: every bearer of the delegation may use it",
    }
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
        "nothing: what is not named above denies the request".to_owned()
    } else {
        format!("{}; what is not named denies the request", ignored.join(", "))
    }
}
