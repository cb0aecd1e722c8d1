//! A principal, as in options, requests and messages.

use std::fmt;

use crate::terminal;

/// A principal.
#[derive(Debug, Clone, serde::Serialize, clap::Args)]
pub(crate) struct PrincipalName {
    /// The issuer of the principal's root tokens.
    #[arg(long, value_name = "URI")]
    pub(crate) issuer: String,

    /// The principal's name at the issuer; absent if the issuer itself is the principal.
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) subject: Option<String>,
}

/// For messages.
impl fmt::Display for PrincipalName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(subject) = &self.subject {
            write!(formatter, "{} at ", terminal::printable(subject))?;
        }
        formatter.write_str(&terminal::printable(&self.issuer))
    }
}
