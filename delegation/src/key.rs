//! Keys and algorithms.
//!
//! Signatures are verified strictly (`verify_strict` of ed25519-dalek): a signature has one encoding, and neither the
//! key nor the commitment may be of small order.

use std::fmt;

use ed25519_dalek::Signer;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::base64url;
use crate::json::{Json, Object};

/// A signature algorithm that we implement, by its JWS `alg` value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// `Ed25519` (RFC 9864).
    Ed25519,
    /// `EdDSA` (RFC 8037): the deprecated polymorphic name that many libraries still write. With our keys it means
    /// Ed25519. The draft forbids it (section 9.12), so it is only accepted where a configuration names it.
    EdDsa,
}

impl Algorithm {
    /// The algorithm that a JWS header names. Names are exact; `none` and MAC algorithms are not known here at all.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "Ed25519" => Some(Self::Ed25519),
            "EdDSA" => Some(Self::EdDsa),
            _ => None,
        }
    }

    /// The JWS `alg` value.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ed25519 => "Ed25519",
            Self::EdDsa => "EdDSA",
        }
    }

    /// Every algorithm that can be named in a configuration.
    pub const ALL: [Self; 2] = [Self::Ed25519, Self::EdDsa];
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An allowlist of algorithms (draft section 9.12). The default allows Ed25519 only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Algorithms(Vec<Algorithm>);

impl Algorithms {
    /// Allows exactly these.
    #[must_use]
    pub fn new(allowed: impl IntoIterator<Item = Algorithm>) -> Self {
        Self(allowed.into_iter().collect())
    }

    /// Whether the list has `algorithm`.
    #[must_use]
    pub fn allow(&self, algorithm: Algorithm) -> bool {
        self.0.contains(&algorithm)
    }

    /// The algorithms, in the order they were listed.
    pub fn iter(&self) -> impl Iterator<Item = Algorithm> {
        self.0.iter().copied()
    }
}

impl Default for Algorithms {
    fn default() -> Self {
        Self(vec![Algorithm::Ed25519])
    }
}

/// A public key that signatures can be verified with, and its thumbprint.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey {
    key: ed25519_dalek::VerifyingKey,
    thumbprint: Thumbprint,
}

/// Why a JWK is not a public key that we can use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The text is not strict JSON.
    #[error("{0}")]
    Json(#[from] crate::json::JsonError),
    /// Not a JSON object.
    #[error("a JWK is a JSON object (RFC 7517)")]
    NotAnObject,
    /// A required member is missing or not a string.
    #[error("the JWK needs a string member \"{0}\"")]
    Missing(&'static str),
    /// Private key material (draft section 3.2).
    #[error("the JWK has the private member \"{0}\"; give the public key only")]
    Private(&'static str),
    /// A key type or curve that is not implemented.
    #[error("unsupported key: kty \"{kty}\", crv \"{crv}\"; use kty \"OKP\" with crv \"Ed25519\" (RFC 8037)")]
    Unsupported {
        /// The JWK's `kty`.
        kty: String,
        /// The JWK's `crv`, empty if it has none.
        crv: String,
    },
    /// The coordinate has the wrong encoding or length.
    #[error("\"x\" must be 32 bytes in base64url without padding (43 characters)")]
    Encoding,
    /// Not a point of the curve, or one of small order, for which anybody can make signatures.
    #[error("\"x\" is not a usable Ed25519 public key")]
    Unusable,
}

/// JWK members that only a private or symmetric key has (RFC 7518, section 6; RFC 8037, section 2).
const PRIVATE_MEMBERS: [&str; 8] = ["d", "p", "q", "dp", "dq", "qi", "oth", "k"];

impl PublicKey {
    /// Reads a JWK (RFC 7517, RFC 8037) from its JSON text.
    ///
    /// # Errors
    /// See [`KeyError`].
    pub fn from_jwk_text(text: &[u8]) -> Result<Self, KeyError> {
        Self::from_jwk(&Json::parse(text)?)
    }

    /// Reads a JWK (RFC 7517, RFC 8037). Members that we do not know are ignored.
    ///
    /// # Errors
    /// See [`KeyError`].
    pub fn from_jwk(jwk: &Json<'_>) -> Result<Self, KeyError> {
        let jwk = jwk.as_object().ok_or(KeyError::NotAnObject)?;
        if let Some(name) = PRIVATE_MEMBERS.into_iter().find(|name| jwk.member(name).is_some()) {
            return Err(KeyError::Private(name));
        }
        let kty = string_member(jwk, "kty")?;
        let crv = string_member(jwk, "crv").unwrap_or_default();
        if (kty, crv) != ("OKP", "Ed25519") {
            return Err(KeyError::Unsupported {
                kty: kty.to_owned(),
                crv: crv.to_owned(),
            });
        }
        let x = string_member(jwk, "x")?;
        let bytes = base64url::decode_array::<32>(x).ok_or(KeyError::Encoding)?;
        Self::from_ed25519(&bytes)
    }

    /// Takes an Ed25519 public key of RFC 8032.
    ///
    /// # Errors
    /// [`KeyError::Unusable`] if it is not a point of the curve or one of small order.
    pub fn from_ed25519(bytes: &[u8; 32]) -> Result<Self, KeyError> {
        let key = ed25519_dalek::VerifyingKey::from_bytes(bytes).map_err(|_| KeyError::Unusable)?;
        if key.is_weak() {
            return Err(KeyError::Unusable);
        }
        Ok(Self {
            thumbprint: Thumbprint::of_ed25519(bytes),
            key,
        })
    }

    /// The public JWK, in canonical form.
    #[must_use]
    pub fn to_jwk(&self) -> String {
        ed25519_jwk(self.key.as_bytes())
    }

    /// The RFC 7638 thumbprint.
    #[must_use]
    pub fn thumbprint(&self) -> Thumbprint {
        self.thumbprint
    }

    /// Whether signatures of `algorithm` can be made with this kind of key.
    #[must_use]
    pub fn fits(&self, algorithm: Algorithm) -> bool {
        match algorithm {
            Algorithm::Ed25519 | Algorithm::EdDsa => true,
        }
    }

    /// Whether `signature` is this key's over `message`.
    #[must_use]
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        ed25519_dalek::Signature::from_slice(signature)
            .is_ok_and(|signature| self.key.verify_strict(message, &signature).is_ok())
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", self.thumbprint)
    }
}

/// The SHA-256 thumbprint of a key (RFC 7638): the name under which a key is an issuer, an agent, or revoked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Thumbprint([u8; 32]);

impl Thumbprint {
    fn of_ed25519(key: &[u8; 32]) -> Self {
        Self(Sha256::digest(ed25519_jwk(key)).into())
    }

    /// Reads the base64url form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        base64url::decode_array(text).map(Self)
    }

    /// The digest itself.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The thumbprint URI (RFC 9278) that a derived token has as its `iss` (draft section 3.2).
    #[must_use]
    pub fn uri(&self) -> String {
        format!("urn:ietf:params:oauth:jwk-thumbprint:sha-256:{self}")
    }
}

impl fmt::Display for Thumbprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&base64url::encode(self.0))
    }
}

impl fmt::Debug for Thumbprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Thumbprint({self})")
    }
}

/// A private key. It is erased from memory when dropped, and its `Debug` form shows the public half only.
pub struct SigningKey {
    key: ed25519_dalek::SigningKey,
}

impl SigningKey {
    /// The key of this RFC 8032 seed.
    #[must_use]
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self {
            key: ed25519_dalek::SigningKey::from_bytes(seed),
        }
    }

    /// Reads a private JWK: `kty` OKP, `crv` Ed25519, `d` the seed, `x` the public half that must belong to it
    /// (RFC 8037).
    ///
    /// # Errors
    /// See [`KeyError`].
    pub fn from_jwk_text(text: &[u8]) -> Result<Self, KeyError> {
        let json = Json::parse(text)?;
        let jwk = json.as_object().ok_or(KeyError::NotAnObject)?;
        let (kty, crv) = (
            string_member(jwk, "kty")?,
            string_member(jwk, "crv").unwrap_or_default(),
        );
        if (kty, crv) != ("OKP", "Ed25519") {
            return Err(KeyError::Unsupported {
                kty: kty.to_owned(),
                crv: crv.to_owned(),
            });
        }
        let seed = Zeroizing::new(base64url::decode_array::<32>(string_member(jwk, "d")?).ok_or(KeyError::Encoding)?);
        let key = Self::from_seed(&seed);
        let x = base64url::decode_array::<32>(string_member(jwk, "x")?).ok_or(KeyError::Encoding)?;
        if &x != key.key.verifying_key().as_bytes() {
            return Err(KeyError::Unusable);
        }
        Ok(key)
    }

    /// The private JWK. Whoever reads it can sign.
    #[must_use]
    pub fn to_private_jwk(&self) -> Zeroizing<String> {
        let d = Zeroizing::new(base64url::encode(self.key.as_bytes()));
        let x = base64url::encode(self.key.verifying_key().as_bytes());
        Zeroizing::new(format!(r#"{{"crv":"Ed25519","d":"{}","kty":"OKP","x":"{x}"}}"#, *d))
    }

    /// The public half.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        let key = self.key.verifying_key();
        PublicKey {
            thumbprint: Thumbprint::of_ed25519(key.as_bytes()),
            key,
        }
    }

    /// The JWS `alg` of the signatures this key makes.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        Algorithm::Ed25519
    }

    /// Signs `message`.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.key.sign(message).to_bytes().to_vec()
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.public().thumbprint())
    }
}

/// The JWK with the required members only, in the order that RFC 7638 hashes and RFC 8785 writes them.
fn ed25519_jwk(key: &[u8; 32]) -> String {
    format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{}"}}"#, base64url::encode(key))
}

fn string_member<'a>(jwk: &'a Object<'_>, name: &'static str) -> Result<&'a str, KeyError> {
    jwk.member(name).and_then(Json::as_str).ok_or(KeyError::Missing(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key of RFC 8037, appendix A.
    const SEED: &str = "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A";
    const X: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";

    fn key() -> SigningKey {
        SigningKey::from_seed(&base64url::decode_array(SEED).unwrap())
    }

    #[test]
    fn thumbprint_and_signature_are_those_of_rfc_8037_appendix_a() {
        let public = key().public();
        assert_eq!(public.to_jwk(), format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{X}"}}"#));
        assert_eq!(
            public.thumbprint().to_string(),
            "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
        );
        let message = b"eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc";
        let signature = "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";
        assert_eq!(base64url::encode(key().sign(message)), signature);
        assert!(public.verifies(message, &base64url::decode(signature).unwrap()));
    }

    #[test]
    fn a_jwk_must_be_a_usable_public_ed25519_key() {
        let weak = base64url::encode([0u8; 32]);
        let off_curve = base64url::encode({
            let mut bytes = [0u8; 32];
            bytes[0] = 2;
            bytes
        });
        for (jwk, error) in [
            (r#"[]"#.to_owned(), KeyError::NotAnObject),
            (
                format!(r#"{{"kty":"OKP","crv":"Ed25519","x":"{X}","d":"{SEED}"}}"#),
                KeyError::Private("d"),
            ),
            (r#"{"kty":"oct","k":"AAAA"}"#.to_owned(), KeyError::Private("k")),
            (r#"{"crv":"Ed25519"}"#.to_owned(), KeyError::Missing("kty")),
            (
                r#"{"kty":"OKP","crv":"Ed25519","x":7}"#.to_owned(),
                KeyError::Missing("x"),
            ),
            (
                format!(r#"{{"kty":"OKP","crv":"X25519","x":"{X}"}}"#),
                KeyError::Unsupported {
                    kty: "OKP".into(),
                    crv: "X25519".into(),
                },
            ),
            (
                format!(r#"{{"kty":"OKP","crv":"Ed25519","x":"{X}="}}"#),
                KeyError::Encoding,
            ),
            (
                format!(r#"{{"kty":"OKP","crv":"Ed25519","x":"{}"}}"#, &X[1..]),
                KeyError::Encoding,
            ),
            (
                format!(r#"{{"kty":"OKP","crv":"Ed25519","x":"{weak}"}}"#),
                KeyError::Unusable,
            ),
            (
                format!(r#"{{"kty":"OKP","crv":"Ed25519","x":"{off_curve}"}}"#),
                KeyError::Unusable,
            ),
        ] {
            assert_eq!(PublicKey::from_jwk_text(jwk.as_bytes()).unwrap_err(), error, "{jwk}");
        }
    }

    #[test]
    fn a_private_jwk_comes_back_and_its_halves_must_agree() {
        let text = key().to_private_jwk();
        assert_eq!(
            SigningKey::from_jwk_text(text.as_bytes()).unwrap().public(),
            key().public()
        );
        let other = text.replace(
            X,
            &base64url::encode(SigningKey::from_seed(&[7; 32]).public().key.as_bytes()),
        );
        assert_eq!(
            SigningKey::from_jwk_text(other.as_bytes()).unwrap_err(),
            KeyError::Unusable
        );
    }

    #[test]
    fn a_signature_has_one_encoding() {
        let (public, message) = (key().public(), b"message");
        let mut signature = key().sign(message);
        assert!(public.verifies(message, &signature));
        assert!(!public.verifies(b"massage", &signature));
        assert!(!public.verifies(message, &signature[..63]));
        // s + L, L the order of the group: the same point equation, but not the same bytes (RFC 8032, section 5.1.7).
        const ORDER: [u8; 32] = [
            0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14, 0, 0, 0, 0,
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
        ];
        let mut carry = 0u16;
        for (byte, order) in signature[32..].iter_mut().zip(ORDER) {
            carry += u16::from(*byte) + u16::from(order);
            *byte = carry as u8;
            carry >>= 8;
        }
        assert!(!public.verifies(message, &signature));
    }
}
