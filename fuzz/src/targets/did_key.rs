//! Keys as `did:key`. An input is the identifier itself, or the bytes that it encodes, since a random text is hardly
//! ever base58 of the right length.

use credence_delegation::{KeyType, PublicKey};

use super::{Effort, Outcome};

/// Reads the identifier.
pub fn run(input: &[u8], _: Effort) -> Outcome {
    let did = match std::str::from_utf8(input) {
        Ok(text) if text.starts_with("did:") => text.to_owned(),
        // Longer than any key. Encoding base58 costs the square of the length, here too.
        _ if input.len() > 64 => String::from_utf8_lossy(input).into_owned(),
        _ => format!("did:key:z{}", bs58::encode(input).into_string()),
    };
    let Ok(key) = PublicKey::from_did_key(&did) else {
        return Outcome::Refused;
    };

    assert_eq!(key.to_did_key(), did, "one key has one did:key");
    assert!(
        did.len() <= 64,
        "base58 costs the square of its length, which must be bounded: {did}"
    );
    let encoded = did.trim_start_matches("did:key:z");
    let bytes = bs58::decode(encoded).into_vec().expect("base58, since it was accepted");
    assert!(
        bytes.len() == 34 || bytes.len() == 35,
        "two bytes of multicodec and a point: {bytes:?}"
    );
    if key.key_type() == KeyType::Ed25519 {
        check_canonical(&bytes[2..]);
    }
    for near in [
        format!("{did}#{encoded}"),
        format!("{did} "),
        did.replacen(":z", ":z1", 1),
    ] {
        assert!(
            PublicKey::from_did_key(&near).is_err(),
            "{near} is not exactly a did:key"
        );
    }

    let jwk = key.to_jwk();
    let same = PublicKey::from_jwk_text(jwk.as_bytes()).expect("what the crate writes it reads");
    assert_eq!(same, key, "the same key as a JWK: {jwk}");
    assert_eq!(same.thumbprint(), key.thumbprint());
    Outcome::Accepted
}

/// RFC 8032, section 5.1.2: the coordinate, without the sign bit, is below 2^255 - 19. A greater one would be another
/// encoding of the same point.
fn check_canonical(point: &[u8]) {
    let (last, rest) = point.split_last().expect("32 bytes");
    let is_greatest = *last & 0x7f == 0x7f && rest[1..].iter().all(|byte| *byte == 0xff);
    assert!(!is_greatest || rest[0] < 0xed, "{point:?}");
}
