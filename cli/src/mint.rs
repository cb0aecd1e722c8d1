//! `credence mint`

use std::io::Write;

use clap::builder::NonEmptyStringValueParser;
use credence_agent::cases::DID_KEY;
use credence_delegation::mint::{self, RootGrant};
use credence_delegation::{Limits, SigningKey};

use crate::failure::{Failure, Outcome};
use crate::grant::{self, GrantOptions};
use crate::keys;

/// Issue a root token to the holder of a key.
#[derive(Debug, clap::Args)]
pub(crate) struct Mint {
    #[command(flatten)]
    grant: GrantOptions,

    /// The issuer: the URI by which verifiers know the signing key. Default: the key's own did:key.
    #[arg(long, value_name = "URI", value_parser = NonEmptyStringValueParser::new())]
    issuer: Option<String>,

    /// The principal's name at the issuer, on whose behalf the token is issued.
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    subject: Option<String>,

    /// The principal's present revocation epoch: 0 until a grant of the principal is revoked.
    #[arg(long, value_name = "N", value_parser = epoch, allow_negative_numbers = true)]
    epoch: Option<u64>,

    /// A display name of the agent, for logs only.
    #[arg(long, value_name = "NAME")]
    agent_name: Option<String>,
}

impl Mint {
    pub(crate) fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        let tools = self.grant.tools()?.ok_or_else(|| {
            Failure::input("a token grants at least one tool: give --tool NAME[=CONSTRAINTS] or --tools FILE")
        })?;
        if let Some(subject) = &self.subject {
            grant::check_name("--subject", subject)?;
        }
        let key = keys::signing_key(&self.grant.key)?;
        let root = RootGrant {
            grant: self.grant.grant(tools, None)?,
            issuer: self.issuer_of(&key)?,
            subject: self.subject.clone(),
            epoch: self.epoch,
            agent_name: self.agent_name.clone(),
        };
        let token = mint::root(&root, &key, &Limits::default())?;
        writeln!(out, "{token}")?;
        Ok(Outcome::Done)
    }

    /// The issuer of tokens that `key` signs.
    fn issuer_of(&self, key: &SigningKey) -> Result<String, Failure> {
        let own = key.public().to_did_key();
        match &self.issuer {
            None => Ok(own),
            // Verifiers take the key from the name.
            Some(issuer) if issuer.starts_with(DID_KEY) && *issuer != own => Err(Failure::input(format!(
                "--issuer {issuer}: not the did:key of the signing key, which is {own}; give the key file of that \
                 issuer, or leave --issuer out"
            ))),
            Some(issuer) => Ok(issuer.clone()),
        }
    }
}

/// An epoch: an integer that every JSON parser preserves (RFC 8259, section 6).
fn epoch(text: &str) -> Result<u64, String> {
    let epoch = text.parse().ok().filter(|epoch| *epoch <= MAX_EPOCH);
    epoch.ok_or_else(|| {
        format!("write a whole number from 0 to {MAX_EPOCH}, the one that `credence revoke principal` printed last")
    })
}

/// 2^53-1.
const MAX_EPOCH: u64 = (1 << 53) - 1;
