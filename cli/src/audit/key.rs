//! `credence audit key`

use std::io::Write;
use std::path::PathBuf;

use credence_ledger::log_identity::verifier_key_of;

use super::prove::published_key;
use crate::control_plane::ControlPlaneOptions;
use crate::failure::{Failure, Outcome};

/// Print the key that verifies the ledger's checkpoints: a vkey of C2SP signed-note, which tools for transparency logs
/// accept.
#[derive(Debug, clap::Args)]
pub(crate) struct Key {
    #[command(flatten)]
    control_plane: ControlPlaneOptions,

    /// Read the key from the ledger in this data folder, without asking a control plane.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl Key {
    pub(super) fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        let key = match &self.data {
            Some(folder) => {
                verifier_key_of(&folder.join("ledger")).map_err(|error| Failure::input(error.to_string()))?
            }
            None => published_key(&self.control_plane.client_or_anonymous()?)?,
        };
        writeln!(out, "{key}")?;
        Ok(Outcome::Done)
    }
}
