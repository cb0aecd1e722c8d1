//! An answer, as printed.

use credence_delegation::Denial;

use super::id::CaseId;
use crate::terminal;

/// One decision. A stable interface: scripts read it.
#[derive(Debug, serde::Serialize)]
pub struct Answer {
    /// The case's name, where cases have names.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<CaseId>,
    /// `allow` or `deny`.
    pub decision: &'static str,
    /// The draft's step that denied, such as `4p1`; absent if the case could not be evaluated.
    pub step: Option<&'static str>,
    /// The reason, for people. Long quotes are cut.
    pub reason: Option<String>,
}

impl Answer {
    /// The answer to a decision about the case with this name.
    pub(super) fn of(id: CaseId, decision: &Result<(), Denial>) -> Self {
        Self {
            id: Some(id),
            ..Self::decided(decision)
        }
    }

    /// The answer to a decision about a case without a name.
    pub fn decided(decision: &Result<(), Denial>) -> Self {
        let denial = decision.as_ref().err();
        Self {
            id: None,
            decision: if denial.is_none() { "allow" } else { "deny" },
            step: denial.map(|denial| denial.step.name()),
            reason: denial.map(|denial| terminal::shortened(&denial.cause.to_string())),
        }
    }

    /// The denial of a case that cannot be evaluated.
    pub(super) fn refused(id: CaseId, reason: String) -> Self {
        Self {
            id: Some(id),
            decision: "deny",
            step: None,
            reason: Some(terminal::shortened(&reason)),
        }
    }

    /// One line of JSON, without the line end.
    pub fn to_json(&self) -> std::io::Result<String> {
        let line = serde_json::to_string(self).map_err(std::io::Error::from)?;
        // Some programs also end a line at U+2028, which JSON strings may contain.
        Ok(terminal::printable_json(&line).into_owned())
    }
}
