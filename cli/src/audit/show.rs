//! `credence audit show`

use std::io::Write;

use super::ledger_record::Record;
use crate::control_plane::ControlPlaneOptions;
use crate::failure::{Failure, Outcome};
use crate::terminal;

/// Print one record, with all its members.
#[derive(Debug, clap::Args)]
pub(crate) struct Show {
    #[command(flatten)]
    control_plane: ControlPlaneOptions,

    /// The record's index: its place in the ledger.
    index: u64,

    /// Print the record as one line of JSON.
    #[arg(long)]
    json: bool,
}

impl Show {
    pub(super) fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        let client = self.control_plane.client()?;
        let text = client.get(&format!("/v1/audit/events/{}", self.index), &[])?;
        let record = Record::read(&text)?;
        if self.json {
            writeln!(out, "{}", terminal::printable_json(&record.text))?;
        } else {
            for (name, value) in record.members()? {
                writeln!(out, "{name:<18} {value}")?;
            }
        }
        Ok(Outcome::Done)
    }
}
