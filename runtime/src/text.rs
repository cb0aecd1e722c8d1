//! Names and bytes as text, for logs and the ledger.

use std::io;

/// Lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// 128 random bits as 32 lower-case hexadecimal digits.
pub fn random_hex() -> io::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(hex(&bytes))
}

/// Cuts a name that a client chose to 256 bytes. It is for display only.
pub fn shorten(mut name: String) -> String {
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
