//! `credence audit verify`

use std::io::Write;
use std::path::PathBuf;

use super::signatures::SignatureOptions;
use crate::failure::{Failure, Outcome};

/// Check a ledger's files without the control plane that wrote them.
#[derive(Debug, clap::Args)]
pub(super) struct Verify {
    /// The data folder.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,

    #[command(flatten)]
    signatures: SignatureOptions,
}

impl Verify {
    pub(super) fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        self.signatures.run(&self.data, out)
    }
}
