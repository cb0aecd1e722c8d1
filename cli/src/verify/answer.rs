//! An answer as it is printed.

use credence_delegation::Denial;

use super::id::CaseId;
use crate::terminal;

/// One decision. A stable interface: scripts read it.
#[derive(Debug, serde::Serialize)]
pub(super) struct Answer {
    /// The case's name, where cases have names.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<CaseId>,
    /// `allow` or `deny`.
    pub(super) decision: &'static str,
    /// The draft's step that denied, such as `4p1`; none where the question itself could not be put.
    pub(super) step: Option<&'static str>,
    /// What was wrong, for people. What it quotes is cut where it is long.
    pub(super) reason: Option<String>,
}

impl Answer {
    /// What was decided.
    pub(super) fn decided(id: Option<CaseId>, decision: &Result<(), Denial>) -> Self {
        let denial = decision.as_ref().err();
        Self {
            id,
            decision: if denial.is_none() { "allow" } else { "deny" },
            step: denial.map(|denial| denial.step.name()),
            reason: denial.map(|denial| terminal::shortened(&denial.cause.to_string())),
        }
    }

    /// The denial of what is no question that we understand.
    pub(super) fn refused(id: CaseId, reason: String) -> Self {
        Self {
            id: Some(id),
            decision: "deny",
            step: None,
            reason: Some(terminal::shortened(&reason)),
        }
    }

    /// One line of JSON, without its end.
    pub(super) fn to_json(&self) -> std::io::Result<String> {
        let line = serde_json::to_string(self).map_err(std::io::Error::from)?;
        // Some readers of lines would end one at U+2028, say, which JSON may have in strings.
        Ok(terminal::printable_json(&line).into_owned())
    }
}
