//! Names that clients chose, as they go into logs and the ledger.

/// Such a name is for the operator's eyes; a longer one than 256 bytes is cut.
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
