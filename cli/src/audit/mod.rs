//! `credence audit`: the evidence of decisions. Each subcommand is a file of its name.

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
#[derive(Debug, clap::Args)]
pub(crate) struct Audit {
    #[command(subcommand)]
    command: AuditCommand,
}

#[derive(Debug, clap::Subcommand)]
enum AuditCommand {
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
        match &self.command {
            AuditCommand::Query(query) => query.run(out),
            AuditCommand::Tail(tail) => tail.run(out),
            AuditCommand::Show(show) => show.run(out),
            AuditCommand::Erase(erase) => erase.run(out),
            AuditCommand::Key(key) => key.run(out),
            AuditCommand::Prove(prove) => prove.run(out),
            AuditCommand::Verify(verify) => verify.run(out),
            AuditCommand::Export(export) => export.run(out),
        }
    }
}
