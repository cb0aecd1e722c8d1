//! `credence audit prove`

use std::io::Write;

use credence_ledger::note::VerifierKey;
use credence_ledger::tlog_proof::TlogProof;

use crate::control_plane::{Client, ControlPlaneOptions};
use crate::failure::{Failure, Outcome};

/// Print a proof that a record is in the ledger: a C2SP tlog-proof that contains the sealed record.
///
/// `credence audit verify --proof` and other tools check it offline.
#[derive(Debug, clap::Args)]
pub(crate) struct Prove {
    #[command(flatten)]
    control_plane: ControlPlaneOptions,

    /// The record's index: its place in the ledger.
    index: u64,

    /// The ledger's key, from a source that you trust. Default: the control plane's answer.
    #[arg(long, value_name = "VKEY")]
    key: Option<VerifierKey>,
}

impl Prove {
    pub(super) fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        let client = self.control_plane.client_or_anonymous()?;
        let key = self.key.clone().map_or_else(|| published_key(&client), Ok)?;
        let text = client.get(&format!("/ledger/proof/{}", self.index), &[])?;
        let useless = |error: &dyn std::fmt::Display| {
            Failure::operation(format!("the control plane's answer is not a valid proof: {error}"))
        };
        let proof = TlogProof::parse(&text).map_err(|error| useless(&error))?;
        proof.verify(&key).map_err(|error| useless(&error))?;
        if proof.index != self.index {
            return Err(useless(&format!("it proves record {}", proof.index)));
        }
        write!(out, "{text}")?;
        Ok(Outcome::Done)
    }
}

/// The key that the control plane publishes.
pub(super) fn published_key(client: &Client) -> Result<VerifierKey, Failure> {
    client
        .get("/ledger/key", &[])?
        .trim_end()
        .parse()
        .map_err(|error| Failure::operation(format!("the control plane's key cannot be read: {error}")))
}
