//! `credence config`

mod check;
mod describe;
mod documents;
mod envoy;
mod envoy_gateway;
mod examples;
mod istio;
mod plugin;
mod routes;
mod search;

use std::io::Write;

use crate::failure::{Failure, Outcome};

/// Check and describe configurations of the filter and of the control plane.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Config {
    Check(check::Check),
    Describe(describe::Describe),
    /// Print the JSON Schema (draft 2020-12) of a configuration: the plugin's, or the control plane's.
    ///
    /// Editors use it to complete and explain fields. `config check` checks more than a schema can express.
    Schema {
        /// The schema of the file that `credence serve --config` reads.
        #[arg(long)]
        control_plane: bool,
    },
}

impl Config {
    pub(crate) fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        match self {
            Self::Check(check) => check.run(out),
            Self::Describe(describe) => describe.run(out),
            Self::Schema { control_plane } => {
                let schema = match control_plane {
                    true => credence_control_plane::settings_schema(),
                    false => credence_decision::config::json_schema(),
                };
                out.write_all(schema.as_bytes())?;
                Ok(Outcome::Done)
            }
        }
    }
}
