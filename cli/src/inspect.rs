//! `credence inspect`

use std::io::Write;

use credence_agent::inspection::{Inspected, Token};
use credence_delegation::constraint::in_words;
use credence_delegation::json::{Json, Object};
use credence_delegation::{PublicKey, UnixTime};

use crate::chain_text::{self, ChainText};
use crate::failure::{Failure, Outcome};
use crate::terminal::unquoted;
use crate::{clock, terminal};

/// Show the claims of a chain's tokens. Verifies nothing.
#[derive(Debug, clap::Args)]
pub(crate) struct Inspect {
    #[arg(value_name = "CHAIN", help = chain_text::HELP)]
    chain: String,

    /// Print the tokens' headers and claims as JSON, unchanged.
    #[arg(long)]
    json: bool,
}

impl Inspect {
    pub(crate) fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        let chain = ChainText::read(&self.chain)?;
        let tokens = chain
            .tokens()
            .enumerate()
            .map(|(index, token)| {
                let number = index + 1;
                let unreadable = |problem| format!("token {number} of the chain cannot be read: {problem}");
                Token::read(token).map_err(|problem| Failure::input(unreadable(problem)))
            })
            .collect::<Result<Vec<_>, Failure>>()?;
        if self.json {
            let chain = serde_json::to_string(&Inspected::of(tokens)).map_err(std::io::Error::from)?;
            writeln!(out, "{chain}")?;
        } else {
            print_words(&tokens, out)?;
        }
        Ok(Outcome::Done)
    }
}

fn print_words(tokens: &[Token], out: &mut impl Write) -> Result<(), Failure> {
    writeln!(
        out,
        "NOT VERIFIED: no signature was checked, so anyone may have written this chain. To verify"
    )?;
    writeln!(out, "it, use `credence verify`.")?;
    for (index, token) in tokens.iter().enumerate() {
        let kind = if index == 0 { "root" } else { "derived" };
        writeln!(out, "\ntoken {} of {} ({kind})", index + 1, tokens.len())?;
        print_header(token.header.get(), out)?;
        let json = Json::parse(token.claims.get().as_bytes()).map_err(|error| Failure::input(error.to_string()))?;
        match json.as_object() {
            Some(claims) => print_claims(claims, index == 0, out)?,
            None => writeln!(out, "  its claims are not a JSON object: {}", terminal::value(&json))?,
        }
    }
    Ok(())
}

/// Prints how the token is signed.
fn print_header(header: &str, out: &mut impl Write) -> Result<(), Failure> {
    let json = Json::parse(header.as_bytes()).map_err(|error| Failure::input(error.to_string()))?;
    let member = |name: &str| json.as_object().and_then(|header| header.member(name)).map(unquoted);
    writeln!(out, "  signed with  {}", member("alg").as_deref().unwrap_or("(none)"))?;
    if let Some(key_id) = member("kid") {
        writeln!(out, "  by the key   {key_id}")?;
    }
    Ok(())
}

fn print_claims(claims: &Object<'_>, root: bool, out: &mut impl Write) -> Result<(), Failure> {
    let shown = |name: &str| claims.member(name).map_or_else(|| "(none)".to_owned(), unquoted);
    writeln!(out, "  id           {}", shown("jti"))?;
    writeln!(out, "  issued by    {}", shown("iss"))?;
    if root {
        for (label, name) in [
            ("on behalf of", "sub"),
            ("in epoch", "rev_epoch"),
            ("agent name", "agent_name"),
        ] {
            if let Some(claim) = claims.member(name) {
                writeln!(out, "  {label:<12} {}", unquoted(claim))?;
            }
        }
    }
    writeln!(out, "  held by      {}", holder(claims))?;
    writeln!(out, "  issued at    {}", time(claims.member("iat")))?;
    writeln!(out, "  expires at   {}", time(claims.member("exp")))?;
    writeln!(
        out,
        "  audience     {}",
        claims.member("aud").map_or_else(|| "(any)".to_owned(), unquoted)
    )?;
    writeln!(
        out,
        "  depth        {} of at most {}",
        shown("del_depth"),
        shown("del_max_depth")
    )?;
    print_tools(claims, out)
}

fn print_tools(claims: &Object<'_>, out: &mut impl Write) -> Result<(), Failure> {
    let Some(tools) = chain_text::tools(claims)
        .and_then(Json::as_object)
        .filter(|tools| !tools.is_empty())
    else {
        writeln!(out, "  grants       nothing")?;
        return Ok(());
    };
    writeln!(out, "  grants")?;
    for (tool, map) in tools.iter() {
        let tool = terminal::printable(tool);
        match map.as_object() {
            None => writeln!(out, "    {tool}: {}", in_words(map, &terminal::value))?,
            Some(map) if map.is_empty() => writeln!(out, "    {tool} with any arguments")?,
            Some(map) => {
                writeln!(out, "    {tool} where")?;
                // The entry for all other arguments comes last.
                let (rest, named): (Vec<_>, Vec<_>) = map.iter().partition(|(name, _)| *name == "*");
                for (name, constraint) in named.into_iter().chain(rest) {
                    let words = in_words(constraint, &terminal::value);
                    let optional = constraint.as_object().and_then(|object| object.member("optional"));
                    if name == "*" {
                        writeln!(out, "      any other argument {words}")?;
                    } else if optional.and_then(Json::as_bool) == Some(true) {
                        writeln!(out, "      {}, if it is there, {words}", terminal::printable(name))?;
                    } else {
                        writeln!(out, "      {} {words}", terminal::printable(name))?;
                    }
                }
            }
        }
    }
    Ok(())
}

fn holder(claims: &Object<'_>) -> String {
    let Some(cnf) = claims.object("cnf") else {
        return "(no holder)".to_owned();
    };
    let key = match cnf.member("jwk").map(PublicKey::from_jwk) {
        Some(Ok(key)) => format!("{} key {}", key.key_type(), key.thumbprint()),
        Some(Err(error)) => format!("an unusable key: {}", terminal::printable(&error.to_string())),
        None => "no key".to_owned(),
    };
    let named = |heading: &str, member| match cnf.member(member) {
        Some(value) => format!(", {heading} {}", unquoted(value)),
        None => String::new(),
    };
    let (certificate, spiffe_id) = (named("certificate", "x5t#S256"), named("SPIFFE ID", "spiffe"));
    format!("{key}{certificate}{spiffe_id}")
}

fn time(claim: Option<&Json<'_>>) -> String {
    match claim.map(|claim| (claim, claim.as_integer())) {
        None => "(none)".to_owned(),
        Some((claim, None)) => unquoted(claim),
        Some((_, Some(seconds))) => {
            let time = UnixTime(seconds);
            format!("{} ({})", clock::rfc3339(time), clock::relative(time, clock::now()))
        }
    }
}
