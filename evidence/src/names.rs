//! How decisions and changes of sources are called in answers and exports.

use credence_ledger::SourceChange;
use credence_wire::v1;

pub fn decision_name(decision: v1::Decision) -> &'static str {
    match decision {
        v1::Decision::Allow => "allow",
        v1::Decision::Deny => "deny",
        v1::Decision::Unspecified => "unspecified",
    }
}

pub fn change_name(change: SourceChange) -> &'static str {
    match change {
        SourceChange::Started => "started",
        SourceChange::Ended => "ended",
        SourceChange::Lost => "ended, tail unknown",
        SourceChange::Returned => "returned",
        SourceChange::Unspecified => "unspecified",
    }
}
