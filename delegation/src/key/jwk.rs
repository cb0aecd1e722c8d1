//! Keys as JSON Web Keys (RFC 7517).

use super::{Algorithm, KeyError, KeyType, PublicKey};
use crate::base64url;
use crate::json::{Json, Object};

impl PublicKey {
    /// Reads a JWK (RFC 7517) from its JSON text.
    ///
    /// # Errors
    /// See [`KeyError`].
    pub fn from_jwk_text(text: &[u8]) -> Result<Self, KeyError> {
        Self::from_jwk(&Json::parse(text)?)
    }

    /// Reads a JWK (RFC 7517): Ed25519 (RFC 8037), P-256 (RFC 7518) or secp256k1 (RFC 8812). If it has a purpose
    /// (`use`, `key_ops`, `alg`), that must be verifying signatures of its kind. Unknown members are ignored.
    ///
    /// # Errors
    /// See [`KeyError`].
    pub fn from_jwk(jwk: &Json<'_>) -> Result<Self, KeyError> {
        Self::from_jwk_by(jwk, PublicKey::from_ed25519)
    }

    /// The same with another decoder of Ed25519 keys, such as a caching one.
    pub(crate) fn from_jwk_by(
        jwk: &Json<'_>,
        decode_ed25519: impl FnOnce(&[u8; 32]) -> Result<Self, KeyError>,
    ) -> Result<Self, KeyError> {
        let jwk = jwk.as_object().ok_or(KeyError::NotAnObject)?;
        if let Some(name) = jwk.iter().find_map(|(name, _)| private_member(name)) {
            return Err(KeyError::Private(name));
        }
        let key = public_half_by(jwk, decode_ed25519)?;
        check_purpose(jwk, &key)?;
        Ok(key)
    }

    /// Reads the JWK of an issuer of access tokens: as [`PublicKey::from_jwk`], or RSA (RFC 7518, section 6.3).
    ///
    /// # Errors
    /// See [`KeyError`].
    pub fn from_issuer_jwk(jwk: &Json<'_>) -> Result<Self, KeyError> {
        let Some(rsa) = jwk.as_object().filter(|jwk| jwk.text("kty") == Some("RSA")) else {
            return Self::from_jwk(jwk);
        };
        if let Some(name) = rsa.iter().find_map(|(name, _)| private_member(name)) {
            return Err(KeyError::Private(name));
        }
        let number = |name| base64url::decode(string_member(rsa, name)?).ok_or(KeyError::RsaEncoding(name));
        let key = Self::from_rsa(&number("n")?, &number("e")?)?;
        check_purpose(rsa, &key)?;
        Ok(key)
    }

    /// The public JWK, in canonical form (RFC 8785) and with only the required members.
    pub fn to_jwk(&self) -> String {
        self.point.to_jwk("")
    }
}

/// The name, if only private or symmetric keys have this member (RFC 7518, section 6; RFC 8037, section 2).
fn private_member(name: &str) -> Option<&'static str> {
    let private = ["d", "p", "q", "dp", "dq", "qi", "oth", "k"];
    private.into_iter().find(|private| *private == name)
}

/// Reads the public members of a JWK, public or private.
pub(super) fn public_half(jwk: &Object<'_>) -> Result<PublicKey, KeyError> {
    public_half_by(jwk, PublicKey::from_ed25519)
}

fn public_half_by(
    jwk: &Object<'_>,
    decode_ed25519: impl FnOnce(&[u8; 32]) -> Result<PublicKey, KeyError>,
) -> Result<PublicKey, KeyError> {
    let kty = string_member(jwk, "kty")?;
    let crv = string_member(jwk, "crv").unwrap_or_default();
    let kind = KeyType::from_jwk_names(kty, crv).ok_or_else(|| KeyError::Unsupported {
        kty: kty.to_owned(),
        crv: crv.to_owned(),
    })?;
    let x = coordinate(jwk, "x")?;
    match kind {
        KeyType::Ed25519 => decode_ed25519(&x),
        KeyType::Rsa => Err(KeyError::Unusable(kind)),
        KeyType::P256 | KeyType::Secp256k1 => {
            let y = coordinate(jwk, "y")?;
            PublicKey::from_coordinates(kind, &x, &y)
        }
    }
}

/// A coordinate or a secret: 32 bytes, leading zeros included (RFC 7518, section 6.2.1.2).
pub(super) fn coordinate(jwk: &Object<'_>, name: &'static str) -> Result<[u8; 32], KeyError> {
    base64url::decode_array(string_member(jwk, name)?).ok_or(KeyError::Encoding(name))
}

/// RFC 7517, sections 4.2 to 4.4.
fn check_purpose(jwk: &Object<'_>, key: &PublicKey) -> Result<(), KeyError> {
    let wrong = |member, expected| Err(KeyError::Purpose { member, expected });
    if jwk.member("use").is_some_and(|purpose| purpose.as_str() != Some("sig")) {
        return wrong("use", "\"sig\"");
    }
    let verifies = |operations: &Json<'_>| {
        operations
            .as_array()
            .is_some_and(|operations| operations.iter().any(|operation| operation.as_str() == Some("verify")))
    };
    if jwk.member("key_ops").is_some_and(|operations| !verifies(operations)) {
        return wrong("key_ops", "an array with \"verify\"");
    }
    let fits = |name: &Json<'_>| {
        name.as_str()
            .and_then(Algorithm::from_name)
            .is_some_and(|algorithm| key.fits(algorithm))
    };
    if jwk.member("alg").is_some_and(|name| !fits(name)) {
        return wrong(
            "alg",
            match key.key_type() {
                KeyType::Ed25519 => "\"Ed25519\" or \"EdDSA\"",
                KeyType::P256 => "\"ES256\"",
                KeyType::Secp256k1 => "\"ES256K\"",
                KeyType::Rsa => "\"RS256\" or \"PS256\"",
            },
        );
    }
    Ok(())
}

fn string_member<'a>(jwk: &'a Object<'_>, name: &'static str) -> Result<&'a str, KeyError> {
    jwk.text(name).ok_or(KeyError::Missing(name))
}
