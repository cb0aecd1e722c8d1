//! Names and bytes, as they go into logs and the ledger.

use credence_ledger::SourceChange;
use credence_wire::v1;

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn decision_name(decision: v1::Decision) -> &'static str {
    match decision {
        v1::Decision::Allow => "allow",
        v1::Decision::Deny => "deny",
        v1::Decision::Unspecified => "unspecified",
    }
}

pub(crate) fn change_name(change: SourceChange) -> &'static str {
    match change {
        SourceChange::Started => "started",
        SourceChange::Ended => "ended",
        SourceChange::Lost => "ended, tail unknown",
        SourceChange::Returned => "returned",
        SourceChange::Unspecified => "unspecified",
    }
}

/// A name that a client chose is for the operator's eyes; a longer one than 256 bytes is cut.
pub(crate) fn shorten(mut name: String) -> String {
    name.truncate(name.floor_char_boundary(MAX_NAME_BYTES));
    name
}

const MAX_NAME_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_is_cut_between_two_characters() {
        assert_eq!(shorten("é".repeat(200)).len(), 256);
        assert_eq!(shorten(format!("x{}", "é".repeat(200))).len(), 255);
        assert_eq!(shorten("node".to_owned()), "node");
    }
}
