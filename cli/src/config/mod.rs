//! `credence config`

mod check;
mod describe;
mod documents;
mod envoy;
mod istio;
mod plugins;

use std::io::Write;

use crate::failure::{Failure, Outcome};

/// Work with the filter's configuration.
#[derive(Debug, clap::Args)]
pub(crate) struct Config {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ConfigCommand {
    Check(check::Check),
    Describe(describe::Describe),
    /// Print the JSON Schema (draft 2020-12) of the plugin's configuration.
    ///
    /// Editors use it to complete and explain fields. `config check` knows more than a schema can say.
    Schema,
}

impl Config {
    pub(crate) fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        match &self.command {
            ConfigCommand::Check(check) => check.run(out),
            ConfigCommand::Describe(describe) => describe.run(out),
            ConfigCommand::Schema => {
                out.write_all(credence_filter::config::json_schema().as_bytes())?;
                Ok(Outcome::Done)
            }
        }
    }
}
