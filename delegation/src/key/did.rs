//! Keys as `did:key` identifiers (W3C CCG, The did:key Method v0.9): the issuer's URI contains its key.

use super::{KeyError, KeyType, Point, PublicKey};

/// Why a `did:key` is not a usable key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DidKeyError {
    /// It does not have the prefix.
    #[error("not a did:key; it begins with \"did:key:z\" and has no path, query or fragment")]
    Prefix,
    /// Longer than the longest supported key.
    #[error("a did:key of a supported key has at most {limit} characters; this one has {found}", limit = MAX_LENGTH)]
    TooLong {
        /// Its length in bytes.
        found: usize,
    },
    /// Not base58btc.
    #[error("what follows \"did:key:z\" is not base58btc")]
    Encoding,
    /// A kind of key that is not implemented, or of the wrong length.
    #[error("its multicodec is not that of an Ed25519, P-256 or secp256k1 public key, or its length is wrong")]
    Unsupported,
    /// Not a usable point.
    #[error("{0}")]
    Key(#[from] KeyError),
}

impl PublicKey {
    /// Reads the key of a `did:key`.
    ///
    /// A key has exactly one `did:key`. Other texts that decode to the same key are refused.
    ///
    /// # Errors
    /// See [`DidKeyError`].
    pub fn from_did_key(did: &str) -> Result<Self, DidKeyError> {
        // The cost of base58 is quadratic in its length.
        if did.len() > MAX_LENGTH {
            return Err(DidKeyError::TooLong { found: did.len() });
        }
        let encoded = did.strip_prefix(PREFIX).ok_or(DidKeyError::Prefix)?;
        let bytes = bs58::decode(encoded).into_vec().map_err(|_| DidKeyError::Encoding)?;
        let (kind, key) = KeyType::ALL
            .into_iter()
            .find_map(|kind| Some((kind, bytes.strip_prefix(&multicodec(kind))?)))
            .ok_or(DidKeyError::Unsupported)?;
        let key = match (kind, key) {
            (KeyType::Ed25519, key) => {
                let key = key.try_into().map_err(|_| DidKeyError::Unsupported)?;
                Self::from_ed25519(key)?
            }
            // Compressed points only (SEC 1, section 2.3.3).
            (KeyType::P256 | KeyType::Secp256k1, [sign @ (2 | 3), x @ ..]) => {
                let x = x.try_into().map_err(|_| DidKeyError::Unsupported)?;
                Self::decompressed(kind, x, *sign == 3)?
            }
            (KeyType::P256 | KeyType::Secp256k1 | KeyType::Rsa, _) => return Err(DidKeyError::Unsupported),
        };
        Ok(key)
    }

    /// The key's `did:key`.
    pub fn to_did_key(&self) -> String {
        let mut bytes = multicodec(self.key_type()).to_vec();
        match &self.point {
            Point::Ed25519(key) => bytes.extend_from_slice(key.as_bytes()),
            Point::P256(key) => bytes.extend_from_slice(key.as_library().to_sec1_point(true).as_bytes()),
            Point::Secp256k1(key) => bytes.extend_from_slice(key.to_sec1_point(true).as_bytes()),
            Point::Rsa(key) => bytes.extend_from_slice(&key.to_pkcs1_der()),
        }
        format!("{PREFIX}{}", bs58::encode(bytes).into_string())
    }
}

/// `z` is multibase for base58btc.
const PREFIX: &str = "did:key:z";

/// Characters of the longest supported `did:key`, rounded up: 9 before at most 48 of base58.
const MAX_LENGTH: usize = 64;

/// The multicodec of a public key, as an unsigned varint: `ed25519-pub`, `p256-pub`, `secp256k1-pub`, `rsa-pub`.
fn multicodec(kind: KeyType) -> [u8; 2] {
    match kind {
        KeyType::Ed25519 => [0xed, 0x01],
        KeyType::P256 => [0x80, 0x24],
        KeyType::Secp256k1 => [0xe7, 0x01],
        KeyType::Rsa => [0x85, 0x24],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Examples of the did:key specification, one of each kind.
    const EXAMPLES: [(KeyType, &str); 3] = [
        (
            KeyType::Ed25519,
            "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK",
        ),
        (
            KeyType::P256,
            "did:key:zDnaerDaTF5BXEavCrfRZEk316dpbLsfPDZ3WJ5hRTPFU2169",
        ),
        (
            KeyType::Secp256k1,
            "did:key:zQ3shokFTS3brHcDQrn82RUDfCZESWL1ZdCEJwekUDPQiYBme",
        ),
    ];

    #[test]
    fn a_did_key_round_trips() {
        for (kind, did) in EXAMPLES {
            let key = PublicKey::from_did_key(did).unwrap();
            assert_eq!((key.key_type(), key.to_did_key().as_str()), (kind, did));
            assert_eq!(PublicKey::from_jwk_text(key.to_jwk().as_bytes()).unwrap(), key);
        }
    }

    #[test]
    fn other_texts_are_refused() {
        let (_, did) = EXAMPLES[0];
        let encoded = |bytes: &[u8]| format!("{PREFIX}{}", bs58::encode(bytes).into_string());
        for (did, error) in [
            (did.replace("did:", "DID:"), DidKeyError::Prefix),
            (did.replace(":z6", ":6"), DidKeyError::Prefix),
            (format!("{did}#key-1"), DidKeyError::Encoding),
            (did.replace('Z', "0"), DidKeyError::Encoding),
            (PREFIX.to_owned(), DidKeyError::Unsupported),
            (encoded(&[0xec, 0x01, 1, 2, 3]), DidKeyError::Unsupported),
            (
                encoded(&[[0xed, 0x01].as_slice(), &[1; 31]].concat()),
                DidKeyError::Unsupported,
            ),
            // A leading zero byte is a leading "1" in base58: not the same multicodec.
            (did.replace(":z", ":z1"), DidKeyError::Unsupported),
            // A point in other than the two compressed forms: an uncompressed one, a "compact" one.
            (
                encoded(&[[0x80, 0x24, 4].as_slice(), &[1; 64]].concat()),
                DidKeyError::TooLong { found: 101 },
            ),
            (
                encoded(&[[0x80, 0x24, 5].as_slice(), &[1; 32]].concat()),
                DidKeyError::Unsupported,
            ),
            (
                encoded(&[[0xed, 0x01].as_slice(), &[0; 32]].concat()),
                DidKeyError::Key(KeyError::Unusable(KeyType::Ed25519)),
            ),
            (
                encoded(&[[0xe7, 0x01, 2].as_slice(), &[0xff; 32]].concat()),
                DidKeyError::Key(KeyError::Unusable(KeyType::Secp256k1)),
            ),
            ("z".repeat(65), DidKeyError::TooLong { found: 65 }),
        ] {
            assert_eq!(PublicKey::from_did_key(&did).unwrap_err(), error, "{did}");
        }
    }
}
