//! An answer as it is printed.

use credence_delegation::Denial;

/// One decision. A stable interface: scripts read it.
#[derive(Debug, serde::Serialize)]
pub(super) struct Answer<'a> {
    /// The case's name, where cases have names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<&'a str>,
    /// `allow` or `deny`.
    pub(super) decision: &'static str,
    /// The draft's step that denied, such as `4p1`.
    pub(super) step: Option<&'static str>,
    /// What was wrong, for people.
    pub(super) reason: Option<String>,
}

impl<'a> Answer<'a> {
    pub(super) fn new(id: Option<&'a str>, decision: &Result<(), Denial>) -> Self {
        match decision {
            Ok(()) => Self {
                id,
                decision: "allow",
                step: None,
                reason: None,
            },
            Err(denial) => Self {
                id,
                decision: "deny",
                step: Some(denial.step.name()),
                reason: Some(denial.cause.to_string()),
            },
        }
    }

    /// One line of JSON, without its end.
    pub(super) fn to_json(&self) -> std::io::Result<String> {
        serde_json::to_string(self).map_err(std::io::Error::from)
    }
}
