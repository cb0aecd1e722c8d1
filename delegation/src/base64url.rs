//! base64url without padding, as in JOSE (RFC 7515, section 2): no line breaks, no padding, no stray bits.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Encodes without padding.
pub(crate) fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Decodes strictly: padding, foreign characters and non-zero trailing bits are refused, so that every byte string
/// has exactly one encoding.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

/// Decodes exactly `N` bytes.
pub(crate) fn decode_array<const N: usize>(text: &str) -> Option<[u8; N]> {
    decode(text)?.try_into().ok()
}

/// Decodes exactly `bytes.len()` bytes, without allocating.
pub(crate) fn decode_into(text: &str, bytes: &mut [u8]) -> bool {
    // The encoding of n bytes always has this length.
    let length = bytes.len().saturating_mul(4).div_ceil(3);
    text.len() == length && URL_SAFE_NO_PAD.decode_slice(text, bytes) == Ok(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_padding_stray_bits_and_the_other_alphabet() {
        assert_eq!(decode("AQ"), Some(vec![1]));
        for text in ["AQ==", "AR", "A+", "A/", " AQ", "AQ\n", "A"] {
            assert_eq!(decode(text), None, "{text:?}");
        }
    }
}
