//! `credence audit export`

mod file;
mod parquet;
mod windows;

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use self::parquet::ParquetExport;
use super::conditions::Conditions;
use super::ledger_record::Record;
use crate::control_plane::ControlPlaneOptions;
use crate::failure::{Failure, Outcome};
use crate::stderr;

/// Write the records, oldest first, as JSON Lines or Parquet.
///
/// Records that arrive during the export are left for the next one: the command prints the index to continue from.
#[derive(Debug, clap::Args)]
pub(crate) struct Export {
    #[command(flatten)]
    control_plane: ControlPlaneOptions,

    #[command(flatten)]
    conditions: Conditions,

    /// The format.
    #[arg(long, value_enum, default_value_t = Format::Jsonl)]
    format: Format,

    /// The new file, which appears only once it is complete. Default: standard output (JSON Lines only).
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Only records from this index.
    #[arg(long, value_name = "INDEX", default_value_t = 0)]
    from_index: u64,

    /// Only records before this index. Default: up to the newest.
    #[arg(long, value_name = "INDEX")]
    before: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// One JSON object a line, as the control plane's API returns it.
    Jsonl,
    /// Apache Parquet; docs/reference/evidence.md has the columns.
    Parquet,
}

impl Export {
    pub(super) fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        if self.format == Format::Parquet && self.out.is_none() {
            return Err(Failure::input(
                "--format parquet needs --out FILE: the table of contents of a Parquet file comes last",
            ));
        }
        let client = self.control_plane.client()?;
        let file = self
            .out
            .as_deref()
            .map(|path| Ok::<_, Failure>((path, file::create(path)?)))
            .transpose()?;
        let (conditions, from) = (&self.conditions, self.from_index);
        let end = windows::end(&client, conditions, from, self.before)?;
        let export = |write: &mut dyn FnMut(&Record) -> Result<(), Failure>| {
            windows::visit(&client, conditions, from, end, write)
        };
        let exported = match (self.format, file) {
            (_, None) => export(&mut |record| Ok(writeln!(out, "{}", record.text)?))?,
            (Format::Jsonl, Some((path, file))) => {
                let failed = |error: io::Error| file::failed(path, &error);
                let mut lines = BufWriter::new(file);
                let exported = export(&mut |record| writeln!(lines, "{}", record.text).map_err(failed))?;
                let file = lines.into_inner().map_err(|error| failed(error.into_error()))?;
                file::publish(file, path)?;
                exported
            }
            (Format::Parquet, Some((path, file))) => {
                let mut parquet = ParquetExport::begin(file)?;
                let exported = export(&mut |record| parquet.write(&record.text))?;
                file::publish(parquet.finish()?, path)?;
                exported
            }
        };
        out.flush()?;
        stderr::print(format_args!(
            "exported {exported} records before index {end}; continue later with --from-index {end}"
        ));
        Ok(Outcome::Done)
    }
}
