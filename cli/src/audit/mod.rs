//! `credence audit`: the evidence of decisions. Each subcommand has a file of its name.

mod conditions;
mod erase;
mod export;
mod key;
mod ledger_record;
mod prove;
mod query;
mod show;
mod signatures;
mod tail;
mod verify;

use std::io::Write;

use crate::failure::{Failure, Outcome};

/// Read the evidence of decisions.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Audit {
    Query(query::Query),
    Tail(tail::Tail),
    Show(show::Show),
    Erase(erase::Erase),
    Key(key::Key),
    Prove(prove::Prove),
    Verify(Box<verify::Verify>),
    Export(export::Export),
}

impl Audit {
    pub(crate) fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        match self {
            Self::Query(query) => query.run(out),
            Self::Tail(tail) => tail.run(out),
            Self::Show(show) => show.run(out),
            Self::Erase(erase) => erase.run(out),
            Self::Key(key) => key.run(out),
            Self::Prove(prove) => prove.run(out),
            Self::Verify(verify) => verify.run(out),
            Self::Export(export) => export.run(out),
        }
    }
}
