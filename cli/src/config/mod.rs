//! `credence config`

mod check;
mod describe;
mod documents;
mod envoy;
mod envoy_gateway;
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

/// The log id in Credence's own files, which a user replaces.
const EXAMPLE_LOG_ID: &str = "0123456789abcdef0123456789abcdef";

const IS_EXAMPLE_LOG_ID: &str = "the log id of Credence's own files: requests that need a delegation are denied; set your \
                                 control plane's, from GET /v1/log";

/// The digest in Credence's own files, which a user replaces.
const EXAMPLE_DIGEST: &str = "0000000000000000000000000000000000000000000000000000000000000000";

const IS_EXAMPLE_DIGEST: &str = "the digest of Credence's own files: the module is not loaded, and every request is \
                                 denied, in shadow mode too; set the one that `make oci` prints";

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
