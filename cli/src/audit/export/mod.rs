//! `credence audit export`

mod file;
mod parquet;
mod windows;

use std::io::Write;
use std::path::PathBuf;

use self::file::NewFile;
use self::parquet::ParquetExport;
use self::windows::Windows;
use super::conditions::Conditions;
use super::ledger_record::Record;
use crate::control_plane::ControlPlaneOptions;
use crate::failure::{Failure, Outcome};
use crate::stderr;

/// Write what was recorded, oldest first, as JSON Lines or Parquet. What is recorded meanwhile is left for the next time:
/// the command says from which index on.
#[derive(Debug, clap::Args)]
pub(crate) struct Export {
    #[command(flatten)]
    control_plane: ControlPlaneOptions,

    #[command(flatten)]
    conditions: Conditions,

    /// How it is written.
    #[arg(long, value_enum, default_value_t = Format::Jsonl)]
    format: Format,

    /// The new file, which is there only once it is whole; standard output if not given (JSON Lines only).
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Only records from this index on.
    #[arg(long, value_name = "INDEX", default_value_t = 0)]
    from_index: u64,

    /// Only records before this index; up to the newest if not given.
    #[arg(long, value_name = "INDEX")]
    before: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// A JSON object a line, as the control plane's API shows it.
    Jsonl,
    /// Apache Parquet; docs/export.md has the columns.
    Parquet,
}

impl Export {
    pub(super) fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        if self.format == Format::Parquet && self.out.is_none() {
            return Err(Failure::input(
                "--format parquet needs --out FILE: the format is written with its contents at the end",
            ));
        }
        let client = self.control_plane.client()?;
        let file = self.out.as_deref().map(NewFile::create).transpose()?;
        let windows = Windows::new(&client, &self.conditions, self.from_index, self.before)?;
        let end = windows.end();
        let exported = match (self.format, file) {
            (Format::Jsonl, None) => export(windows, |record| Ok(writeln!(out, "{}", record.text)?))?,
            (Format::Jsonl, Some(mut file)) => {
                let exported = export(windows, |record| file.write_line(&record.text))?;
                file.finish()?;
                exported
            }
            (Format::Parquet, Some(file)) => {
                let mut parquet = ParquetExport::begin(file)?;
                let exported = export(windows, |record| parquet.write(&record.text))?;
                parquet.finish()?;
                exported
            }
            // Refused above.
            (Format::Parquet, None) => 0,
        };
        out.flush()?;
        stderr::print(format_args!(
            "exported {exported} records before index {end}; go on later with --from-index {end}"
        ));
        Ok(Outcome::Done)
    }
}

fn export(mut windows: Windows<'_>, mut write: impl FnMut(&Record) -> Result<(), Failure>) -> Result<u64, Failure> {
    let mut exported = 0;
    while let Some(window) = windows.next()? {
        for record in window {
            write(&record)?;
            exported += 1;
        }
    }
    Ok(exported)
}
