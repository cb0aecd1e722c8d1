//! Hexadecimal digits, as Envoy and our own records write them.

use std::fmt::Write;

/// Lower-case hexadecimal.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().saturating_mul(2));
    for byte in bytes {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// A digest of 32 bytes; `None` if the text is anything else.
pub fn decode_digest(text: &[u8]) -> Option<[u8; 32]> {
    let (pairs, rest) = text.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let bytes: Option<Vec<u8>> = pairs
        .iter()
        .map(|pair| {
            std::str::from_utf8(pair)
                .ok()
                .and_then(|pair| u8::from_str_radix(pair, 16).ok())
        })
        .collect();
    bytes?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_as_it_is_written() {
        let digest: [u8; 32] = std::array::from_fn(|index| 0xf8_u8.wrapping_add(index as u8));
        let text = encode(&digest);
        assert!(text.starts_with("f8f9"), "{text}");
        assert_eq!(decode_digest(text.as_bytes()), Some(digest));
        assert_eq!(decode_digest(&text.as_bytes()[1..]), None);
        assert_eq!(decode_digest(&text.as_bytes()[2..]), None);
        assert_eq!(decode_digest(&[b'g'; 64]), None);
    }
}
