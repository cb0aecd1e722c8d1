//! A principal, as options, requests and messages name it.

use std::fmt;

use crate::terminal;

/// Whose authority it is.
#[derive(Debug, Clone, serde::Serialize, clap::Args)]
pub(crate) struct PrincipalName {
    /// The issuer of the principal's root tokens.
    #[arg(long, value_name = "URI")]
    pub(crate) issuer: String,

    /// The principal's name at the issuer; none for an issuer that is the principal itself.
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) subject: Option<String>,
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
