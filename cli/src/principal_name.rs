//! A principal, as options, requests and messages name it.

use std::fmt;

use serde_json::json;

use crate::terminal;

/// Whose authority it is.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct PrincipalName {
    /// The issuer of the principal's root tokens.
    #[arg(long, value_name = "URI")]
    pub(crate) issuer: String,

    /// The principal's name at the issuer; none for an issuer that is the principal itself.
    #[arg(long, value_name = "NAME")]
    pub(crate) subject: Option<String>,
}

impl PrincipalName {
    /// As requests have it.
    #[allow(clippy::disallowed_types)] // Made here from text that is our own, and only written.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        match &self.subject {
            Some(subject) => json!({"issuer": self.issuer, "subject": subject}),
            None => json!({"issuer": self.issuer}),
        }
    }
}

/// For people.
impl fmt::Display for PrincipalName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(subject) = &self.subject {
            write!(formatter, "{} at ", terminal::printable(subject))?;
        }
        formatter.write_str(&terminal::printable(&self.issuer))
    }
}
