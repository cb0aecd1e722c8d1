//! Why a key is not usable.

use super::KeyType;

/// Why a JWK is not a usable key.
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
    #[error(
        "unsupported key: kty \"{kty}\", crv \"{crv}\"; use kty \"OKP\" with crv \"Ed25519\" (RFC 8037), or kty \"EC\" \
         with crv \"P-256\" (RFC 7518) or \"secp256k1\" (RFC 8812)"
    )]
    Unsupported {
        /// The JWK's `kty`.
        kty: String,
        /// The JWK's `crv`, empty if it has none.
        crv: String,
    },
    /// A coordinate or a secret has the wrong encoding or length.
    #[error("\"{0}\" must be 32 bytes in base64url without padding (43 characters)")]
    Encoding(&'static str),
    /// A number of an RSA key has the wrong encoding.
    #[error("\"{0}\" must be a number in base64url without padding (RFC 7518, section 6.3.1)")]
    RsaEncoding(&'static str),
    /// Not a point of the curve, a point for which anyone can make signatures, or not a secret of the curve.
    #[error("it is not a usable {0} key")]
    Unusable(KeyType),
    /// The public half of a private JWK does not match its secret.
    #[error("the public half does not belong to the secret \"d\"")]
    HalvesDisagree,
    /// The JWK is for another purpose than signatures of its kind (RFC 7517, sections 4.2 to 4.4).
    #[error("the JWK is for another purpose: \"{member}\" must be {expected}, or absent")]
    Purpose {
        /// The member with the purpose.
        member: &'static str,
        /// The expected value.
        expected: &'static str,
    },
}
