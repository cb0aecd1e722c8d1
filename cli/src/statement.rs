//! Signed revocation statements: revoking with nothing but the issuer's own key.

use std::path::PathBuf;
use std::time::Duration;

use credence_delegation::mint::{self, RevocationOrder};
use credence_delegation::{Limits, Revocation, SigningKey};

use crate::failure::Failure;
use crate::principal_name::PrincipalName;
use crate::{clock, keys, random};

/// How a statement is made, in place of an operator's token.
#[derive(Debug, clap::Args)]
pub(crate) struct StatementOptions {
    /// Revoke by a signed statement instead of an operator's token: the private JWK file of the issuer.
    #[arg(long, value_name = "FILE", requires = "audience")]
    pub(crate) sign_with: Option<PathBuf>,

    /// Whom the statement is addressed to: a name in the control plane's audience.
    #[arg(long, value_name = "URI", requires = "sign_with")]
    audience: Vec<String>,

    /// For how long the statement may be sent: up to 24h.
    #[arg(long, value_name = "SPAN", default_value = "5m", value_parser = clock::span)]
    statement_lifetime: Duration,

    /// Print the statement and send nothing.
    #[arg(long, requires = "sign_with")]
    pub(crate) print: bool,
}

impl StatementOptions {
    /// The did:key of the signing key: its issuer, if no other is named.
    pub(crate) fn own_issuer(&self) -> Result<String, Failure> {
        Ok(self.key()?.public().to_did_key())
    }

    fn key(&self) -> Result<SigningKey, Failure> {
        let file = self.sign_with.as_deref();
        keys::signing_key(file.ok_or_else(|| Failure::input("a statement is signed: give --sign-with"))?)
    }

    /// A statement that says this.
    pub(crate) fn sign(&self, by: &PrincipalName, revocation: Revocation) -> Result<String, Failure> {
        let now = clock::now();
        let order = RevocationOrder {
            id: random::id(now)?,
            issuer: by.issuer.clone(),
            subject: by.subject.clone(),
            audience: self.audience.clone(),
            issued_at: now,
            expires_at: now.plus(self.statement_lifetime.as_secs()),
            revocation,
        };
        mint::revocation(&order, &self.key()?, &Limits::default())
            .map_err(|error| Failure::input(format!("no such statement would be accepted: {error}")))
    }
}
