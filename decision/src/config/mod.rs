//! The plugin's configuration.
//!
//! [`Policy::parse`] is the only way in, for the filter and for `credence config check`. A configuration with any error
//! does not load. docs/reference/configuration.md describes every field.
//!
//! Large functions are kept apart (`inline(never)`): V8 compiles the whole filter before its first request, and the
//! memory for that, which the proxy keeps, grows with the largest function.

mod agents;
mod arguments;
mod authorization;
mod checks;
mod compile;
#[cfg(feature = "tools")]
mod describe;
mod duration;
mod envelope;
mod error;
mod file;
#[cfg(feature = "tools")]
mod keywords;
mod matching;
mod mcp;
mod place;
mod policy;
mod ranges;
mod read;
#[cfg(feature = "tools")]
mod schema;

pub use agents::{AgentRules, for_agents};
pub use credence_delegation::MAX_PROBLEMS;
#[cfg(feature = "tools")]
pub use describe::{
    ArgumentDescription, Asked, AskedOfToken, Condition, Description, Ignored, MatchDescription, McpDescription,
    RuleDescription,
};
pub use envelope::as_json;
pub use error::ConfigError;
pub use file::{Audit, Count, Hold, Mode, Overflow, Place, ProofKind, RecordedArguments, RecordedDecisions, Unmatched};
pub(crate) use policy::Matching;
pub use policy::{Authorization, Calls, ControlPlane, Limits, Origin, Policy, Requirement, Rule};
pub use read::MAX_CONFIG_BYTES;
#[cfg(feature = "tools")]
pub use schema::{agent_rules_schema, json_schema};

#[cfg(test)]
mod tests;
