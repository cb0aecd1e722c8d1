//! Signed revocation statements: the issuer's key is the only credential.

use std::path::PathBuf;
use std::time::Duration;

use credence_delegation::mint::{self, RevocationOrder};
use credence_delegation::{Limits, Revocation, SigningKey};

use crate::failure::Failure;
use crate::principal_name::PrincipalName;
use crate::{clock, keys, random};

/// The options of a statement, which replaces an operator's token.
#[derive(Debug, clap::Args)]
pub(crate) struct StatementOptions {
    /// Sign a revocation statement with this private JWK file of the issuer, instead of using an operator's token.
    #[arg(long, value_name = "FILE", requires = "audience")]
    pub(crate) sign_with: Option<PathBuf>,

    /// The audience of the statement: a name in the control plane's audience.
    #[arg(long, value_name = "URI", requires = "sign_with")]
    audience: Vec<String>,

    /// How long the statement can be sent: up to 24h.
    #[arg(long, value_name = "SPAN", default_value = "5m", value_parser = clock::span)]
    statement_lifetime: Duration,

    /// Print the statement without sending it.
    #[arg(long, requires = "sign_with")]
    pub(crate) print: bool,
}

impl StatementOptions {
    /// The did:key of the signing key: the default issuer.
    pub(crate) fn own_issuer(&self) -> Result<String, Failure> {
        Ok(self.key()?.public().to_did_key())
    }

    fn key(&self) -> Result<SigningKey, Failure> {
        let file = self.sign_with.as_deref();
        keys::signing_key(file.ok_or_else(|| Failure::input("a statement needs a signature: give --sign-with"))?)
    }

    /// A signed statement of this revocation.
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
            .map_err(|error| Failure::input(format!("the control plane would refuse the statement: {error}")))
    }
}
