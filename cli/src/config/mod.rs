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

/// Check and describe configurations of the filter, the control plane and the issuer.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Config {
    Check(check::Check),
    Describe(describe::Describe),
    /// Print the JSON Schema (draft 2020-12) of a configuration: the plugin's, or a server's.
    ///
    /// Editors use it to complete and explain fields. `config check` checks more than a schema can express.
    Schema {
        /// The schema of the file that `credence serve --config` reads.
        #[arg(long)]
        control_plane: bool,

        /// The schema of the file that `credence issuer serve --config` reads.
        #[arg(long, conflicts_with = "control_plane")]
        issuer: bool,

        /// The schema of what `credence config describe --for-agents` prints.
        #[arg(long, conflicts_with_all = ["control_plane", "issuer"])]
        for_agents: bool,

        /// The schema of the file that `credence proxy --config` reads.
        #[arg(long, conflicts_with_all = ["control_plane", "issuer", "for_agents"])]
        proxy: bool,
    },
}

impl Config {
    pub(crate) fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        match self {
            Self::Check(check) => check.run(out),
            Self::Describe(describe) => describe.run(out),
            Self::Schema {
                control_plane,
                issuer,
                for_agents,
                proxy,
            } => {
                let schema = match (control_plane, issuer, for_agents, proxy) {
                    (true, ..) => credence_control_plane::settings_schema(),
                    (_, true, ..) => credence_issuer::settings_schema(),
                    (_, _, true, _) => credence_decision::config::agent_rules_schema(),
                    (.., true) => credence_proxy::settings_schema(),
                    _ => credence_decision::config::json_schema(),
                };
                out.write_all(schema.as_bytes())?;
                Ok(Outcome::Done)
            }
        }
    }
}
