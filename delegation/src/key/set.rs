//! JWK sets (RFC 7517, section 5): the keys of one issuer, as at its `jwks_uri`.

use super::{KeyError, PublicKey};
use crate::json::{Json, JsonError};

/// The keys of a JWK set that can verify signatures; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JwkSet {
    keys: Vec<IdentifiedKey>,
    skipped: Vec<SkippedKey>,
}

/// A key, and the name by which tokens may select it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentifiedKey {
    /// `kid` (RFC 7517, section 4.5).
    pub id: Option<String>,
    /// The key itself.
    pub key: PublicKey,
}

/// A key of the set that is not used: of an unsupported kind, or for another purpose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedKey {
    /// Its place in the array `keys`, from 0.
    pub index: usize,
    /// Why it is not used.
    pub why: KeyError,
}

/// Why a JWK set cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JwkSetError {
    /// The text is not strict JSON.
    #[error("{0}")]
    Json(#[from] JsonError),
    /// Not a JWK set.
    #[error("a JWK set is a JSON object whose \"keys\" is an array (RFC 7517, section 5)")]
    Shape,
    /// A key for signatures is invalid. A set with a typing error must not silently lose a key.
    #[error("keys[{index}]: {error}")]
    Key {
        /// Its place in the array `keys`, from 0.
        index: usize,
        /// What is wrong with it.
        error: KeyError,
    },
    /// `kid` is not a string, or empty.
    #[error("keys[{index}]: \"kid\" must be a string that is not empty, or absent")]
    KeyId {
        /// The key's place in the array `keys`, from 0.
        index: usize,
    },
    /// Two keys with one name, or one key twice.
    #[error("keys[{index}]: its \"kid\" or the key itself is in the set twice; remove one")]
    Repeated {
        /// The place of the second one in the array `keys`, from 0.
        index: usize,
    },
    /// Every key was skipped.
    #[error(
        "none of its {skipped} keys can be used here: it needs an Ed25519, P-256 or secp256k1 key for verifying \
         signatures, or for access tokens an RSA key"
    )]
    Empty {
        /// Keys skipped.
        skipped: usize,
    },
}

impl JwkSet {
    /// Reads a JWK set from its JSON text.
    ///
    /// Keys of unsupported kinds, and those for encryption, are skipped, as RFC 7517, section 5, recommends:
    /// [`JwkSet::skipped`] lists them. Any other error in a key refuses the set.
    ///
    /// # Errors
    /// See [`JwkSetError`].
    pub fn parse(text: &[u8]) -> Result<Self, JwkSetError> {
        Self::from_json(&Json::parse(text)?)
    }

    /// Reads the JWK set of an issuer of access tokens, whose RSA keys count too.
    ///
    /// # Errors
    /// See [`JwkSetError`].
    pub fn parse_of_issuer(text: &[u8]) -> Result<Self, JwkSetError> {
        Self::read(&Json::parse(text)?, PublicKey::from_issuer_jwk)
    }

    /// Reads a JWK set.
    ///
    /// # Errors
    /// See [`JwkSetError`].
    pub fn from_json(json: &Json<'_>) -> Result<Self, JwkSetError> {
        Self::read(json, PublicKey::from_jwk)
    }

    fn read(json: &Json<'_>, read_key: impl Fn(&Json<'_>) -> Result<PublicKey, KeyError>) -> Result<Self, JwkSetError> {
        let members = json
            .as_object()
            .and_then(|set| set.member("keys"))
            .and_then(Json::as_array)
            .ok_or(JwkSetError::Shape)?;
        let (mut keys, mut skipped) = (Vec::<IdentifiedKey>::new(), Vec::new());
        for (index, jwk) in members.iter().enumerate() {
            let key = match read_key(jwk) {
                Ok(key) => key,
                Err(why @ (KeyError::Unsupported { .. } | KeyError::Purpose { .. })) => {
                    skipped.push(SkippedKey { index, why });
                    continue;
                }
                // An RSA key has neither. A symmetric or private key must not be in a public set at all.
                Err(error) => return Err(JwkSetError::Key { index, error }),
            };
            let id = match jwk.as_object().and_then(|jwk| jwk.member("kid")) {
                None => None,
                Some(Json::String(id)) if !id.is_empty() => Some(id.clone().into_owned()),
                Some(_) => return Err(JwkSetError::KeyId { index }),
            };
            if keys
                .iter()
                .any(|earlier| earlier.key == key || (id.is_some() && earlier.id == id))
            {
                return Err(JwkSetError::Repeated { index });
            }
            keys.push(IdentifiedKey { id, key });
        }
        if keys.is_empty() {
            return Err(JwkSetError::Empty { skipped: skipped.len() });
        }
        Ok(Self { keys, skipped })
    }

    /// The keys, in the order of the set.
    pub fn keys(&self) -> &[IdentifiedKey] {
        &self.keys
    }

    /// The keys of the set that are not used.
    pub fn skipped(&self) -> &[SkippedKey] {
        &self.skipped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KeyType, SigningKey};

    fn jwk(number: u8, more: &str) -> String {
        let jwk = SigningKey::from_seed(&[number; 32]).public().to_jwk();
        format!("{}{more}}}", jwk.strip_suffix('}').unwrap())
    }

    fn set(keys: &[String]) -> Result<JwkSet, JwkSetError> {
        JwkSet::parse(format!(r#"{{"keys":[{}]}}"#, keys.join(",")).as_bytes())
    }

    #[test]
    fn keys_keep_their_order_and_names() {
        let p256 = SigningKey::from_secret(KeyType::P256, &[7; 32]).unwrap().public();
        let set = set(&[
            jwk(1, r#","kid":"a""#),
            p256.to_jwk(),
            jwk(2, r#","kid":"b","use":"sig""#),
        ])
        .unwrap();
        let ids: Vec<_> = set.keys().iter().map(|key| key.id.as_deref()).collect();
        assert_eq!(ids, [Some("a"), None, Some("b")]);
        assert_eq!(set.keys()[1].key, p256);
    }

    #[test]
    fn keys_of_other_kinds_and_purposes_are_skipped_and_named() {
        let rsa = r#"{"kty":"RSA","n":"AQAB","e":"AQAB","kid":"r"}"#.to_owned();
        let set = set(&[rsa, jwk(1, r#","use":"enc""#), jwk(2, "")]).unwrap();
        assert_eq!(set.keys().len(), 1);
        let skipped: Vec<_> = set.skipped().iter().map(|key| key.index).collect();
        assert_eq!(skipped, [0, 1]);
    }

    #[test]
    fn an_error_in_a_set_names_its_place() {
        let rsa = r#"{"kty":"RSA","n":"AQAB","e":"AQAB"}"#.to_owned();
        for (keys, error) in [
            (vec![], JwkSetError::Empty { skipped: 0 }),
            (vec![rsa], JwkSetError::Empty { skipped: 1 }),
            (
                vec![jwk(1, ""), jwk(1, r#","kid":"a""#)],
                JwkSetError::Repeated { index: 1 },
            ),
            (
                vec![jwk(1, r#","kid":"a""#), jwk(2, r#","kid":"a""#)],
                JwkSetError::Repeated { index: 1 },
            ),
            (vec![jwk(1, r#","kid":7"#)], JwkSetError::KeyId { index: 0 }),
            (vec![jwk(1, r#","kid":"""#)], JwkSetError::KeyId { index: 0 }),
            (
                vec![jwk(1, ""), jwk(2, r#","d":"AA""#)],
                JwkSetError::Key {
                    index: 1,
                    error: KeyError::Private("d"),
                },
            ),
        ] {
            assert_eq!(set(&keys).unwrap_err(), error, "{keys:?}");
        }
        for text in ["[]", r#"{"keys":{}}"#, r#"{"kty":"OKP"}"#] {
            assert_eq!(
                JwkSet::parse(text.as_bytes()).unwrap_err(),
                JwkSetError::Shape,
                "{text}"
            );
        }
    }
}
