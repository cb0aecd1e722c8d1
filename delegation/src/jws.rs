//! JWS compact serialisation (RFC 7515), the part that signatures need.

use std::convert::Infallible;

use sha2::{Digest, Sha256};

use crate::base64url;
use crate::batch::{Batch, Signed};
use crate::denial::{Cause, Denial, Step};
use crate::json::{Json, Object};
use crate::key::{Algorithm, Algorithms, HotKeys, PublicKey, SigningKey};
use crate::token;
use crate::value::Value;

/// Verifies a JWS that is neither a token nor a proof with a known key, and returns its payload.
///
/// `typ` is the media type that the header must have. Without it any is accepted, which is only safe if the key signs
/// nothing else (RFC 8725, section 3.11). The key comes from the caller, never from the header.
///
/// # Errors
/// An invalid form or header, an algorithm that is not listed or does not fit the key, or an invalid signature.
pub fn verify(
    compact: &str,
    typ: Option<&'static str>,
    key: &PublicKey,
    algorithms: &Algorithms,
) -> Result<Vec<u8>, Cause> {
    let jws = Jws::parse(compact)?;
    let header = jws.header_of(typ)?;
    if !algorithms.allow(header.algorithm) || !key.fits(header.algorithm) {
        return Err(Cause::AlgorithmNotAllowed);
    }
    let payload = jws.payload()?;
    if jws.verifies(key, None) {
        Ok(payload)
    } else {
        Err(Cause::SignatureInvalid)
    }
}

/// A key that signs, and its name among the keys of its issuer.
#[derive(Debug, Clone, Copy)]
pub struct Signer<'k> {
    /// The key.
    pub key: &'k SigningKey,
    /// `kid` of the JWS header (RFC 7515, section 4.1.4).
    pub key_id: Option<&'k str>,
}

impl<'k> From<&'k SigningKey> for Signer<'k> {
    /// Without a `kid`.
    fn from(key: &'k SigningKey) -> Self {
        Self { key, key_id: None }
    }
}

/// The media type of access tokens (RFC 9068, section 2.1).
pub(crate) const ACCESS_TOKEN_TYP: &str = "at+jwt";

/// A JWS with an unverified signature.
#[derive(Debug, Clone)]
pub(crate) struct Jws<'a> {
    /// The signed bytes: the encoded header and payload with the dot between them (RFC 7515, section 5.1).
    signing_input: &'a str,
    header: &'a str,
    payload: &'a str,
    signature: &'a str,
}

/// The protected header, which determines how to verify the signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) algorithm: Algorithm,
    /// `kid`: only selects among configured keys.
    pub(crate) key_id: Option<String>,
}

/// What the media type of a header says about a token that may begin a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenType {
    /// `aat+jwt` (draft section 3.5).
    Delegation,
    /// `at+jwt` (RFC 9068, section 2.1).
    AccessToken,
    /// `JWT`, or none: what some issuers write for access tokens, and for other tokens too.
    Untyped,
}

impl TokenType {
    /// Media types ignore case, and may leave out `application/` (RFC 7515, section 4.1.9); the draft's does neither.
    fn of(typ: Option<&Json<'_>>) -> Option<Self> {
        let Some(typ) = typ else {
            return Some(Self::Untyped);
        };
        match typ.as_str()? {
            token::TYP => Some(Self::Delegation),
            typ if [ACCESS_TOKEN_TYP, "application/at+jwt"]
                .iter()
                .any(|known| typ.eq_ignore_ascii_case(known)) =>
            {
                Some(Self::AccessToken)
            }
            typ if ["JWT", "application/jwt"]
                .iter()
                .any(|known| typ.eq_ignore_ascii_case(known)) =>
            {
                Some(Self::Untyped)
            }
            _ => None,
        }
    }
}

impl<'a> Jws<'a> {
    /// Splits the three parts of the compact form.
    pub(crate) fn parse(compact: &'a str) -> Result<Self, Cause> {
        compact
            .rsplit_once('.')
            .and_then(|(signing_input, signature)| Some((signing_input, signature, signing_input.split_once('.')?)))
            .filter(|(_, _, (_, payload))| !payload.contains('.'))
            .map(|(signing_input, signature, (header, payload))| Self {
                signing_input,
                header,
                payload,
                signature,
            })
            .ok_or_else(|| malformed("a JWS is three parts joined by dots (RFC 7515)"))
    }

    /// The decoded header, as untrusted as the payload.
    pub(crate) fn decoded_header(&self) -> Option<Vec<u8>> {
        base64url::decode(self.header)
    }

    /// The decoded payload: untrusted until [`Jws::verifies`] returns true.
    pub(crate) fn payload(&self) -> Result<Vec<u8>, Cause> {
        base64url::decode(self.payload).ok_or_else(|| malformed("the payload is not base64url"))
    }

    /// Passes the claims to `read`; they are equally untrusted. A payload that is not an object is denied at this step.
    pub(crate) fn read_claims<R>(
        &self,
        step: Step,
        read: impl FnOnce(&Object<'_>) -> Result<R, Denial>,
    ) -> Result<R, Denial> {
        let payload = self.payload().map_err(|cause| step.deny(cause))?;
        let json = Json::parse(&payload).map_err(|error| step.deny(error))?;
        read(claims(&json).map_err(|cause| step.deny(cause))?)
    }

    /// Reads the protected header, which must have the media type `typ` (draft section 3.5). Keys in the header are
    /// ignored.
    pub(crate) fn header(&self, typ: &'static str) -> Result<Header, Cause> {
        self.header_of(Some(typ))
    }

    /// Reads the protected header of a token that may begin a chain: a delegation or an access token.
    pub(crate) fn header_of_token(&self) -> Result<(Header, TokenType), Cause> {
        self.read_header(|header| TokenType::of(header.member("typ")).ok_or(Cause::WrongType { expected: token::TYP }))
    }

    /// Reads the protected header of a DPoP proof, and the public key in it (RFC 9449, section 4.2).
    pub(crate) fn header_with_key(
        &self,
        typ: &'static str,
        hot_keys: Option<&HotKeys>,
    ) -> Result<(Header, PublicKey), Cause> {
        self.read_header(|header| {
            check_type(header, Some(typ))?;
            let jwk = header.member("jwk").ok_or_else(|| malformed("JWS header: no jwk"))?;
            Ok(match hot_keys {
                Some(hot_keys) => PublicKey::from_jwk_by(jwk, |bytes| hot_keys.decode(bytes))?,
                None => PublicKey::from_jwk(jwk)?,
            })
        })
    }

    fn header_of(&self, typ: Option<&'static str>) -> Result<Header, Cause> {
        self.read_header(|header| check_type(header, typ))
            .map(|(header, ())| header)
    }

    /// Reads the protected header, and what else `read` takes from it.
    fn read_header<R>(&self, read: impl FnOnce(&Object<'_>) -> Result<R, Cause>) -> Result<(Header, R), Cause> {
        let malformed = |what: &str| Cause::Malformed(format!("JWS header: {what}"));
        if self.header.len() > HEADER_BYTES {
            let (size, limit) = (self.header.len(), HEADER_BYTES);
            return Err(Cause::TooLarge {
                what: "a JWS header",
                size,
                limit,
            });
        }
        let bytes = self.decoded_header().ok_or_else(|| malformed("not base64url"))?;
        let json = Json::parse(&bytes).map_err(|e| malformed(&e.to_string()))?;
        let header = json.as_object().ok_or_else(|| malformed("not a JSON object"))?;
        let more = read(header)?;
        if header.member("crit").is_some() {
            // No extension in `crit` is implemented, and RFC 7515, section 4.1.11, forbids an empty list.
            return Err(Cause::CriticalHeader);
        }
        let algorithm = header.text("alg").ok_or_else(|| malformed("no alg"))?;
        let algorithm = Algorithm::from_name(algorithm).ok_or(Cause::AlgorithmNotAllowed)?;
        let key_id = match header.member("kid") {
            None => None,
            Some(Json::String(key_id)) => Some(key_id.clone().into_owned()),
            Some(_) => return Err(malformed("kid is not a string (RFC 7515, section 4.1.4)")),
        };
        Ok((Header { algorithm, key_id }, more))
    }

    /// The hash that names a token: base64url(SHA-256(JWS Signing Input)) (draft section 4.6).
    pub(crate) fn hash(&self) -> String {
        base64url::encode(Sha256::digest(self.signing_input))
    }

    /// The same hash, and SHA-256 of the whole token with its signature.
    pub(crate) fn hash_and_digest(&self) -> (String, [u8; 32]) {
        let mut hasher = Sha256::new_with_prefix(self.signing_input);
        let hash = base64url::encode(hasher.clone().finalize());
        hasher.update(b".");
        hasher.update(self.signature);
        (hash, hasher.finalize().into())
    }

    /// Whether `key` made the signature; it may be a hot key.
    pub(crate) fn verifies(&self, key: &PublicKey, hot_keys: Option<&HotKeys>) -> bool {
        #[cfg(test)]
        checks::count();
        let message = self.signing_input.as_bytes();
        base64url::decode(self.signature).is_some_and(|signature| match hot_keys {
            Some(hot_keys) => hot_keys.verifies(key, message, &signature),
            None => key.verifies(message, &signature),
        })
    }

    /// Whether `key` made the signature, of a kind that signs the SHA-256 of the signing input. `hash` is that SHA-256
    /// ([`Jws::hash`], decoded).
    pub(crate) fn verifies_hash_with(&self, key: &PublicKey, hash: &[u8; 32]) -> bool {
        #[cfg(test)]
        checks::count();
        base64url::decode(self.signature).is_some_and(|signature| key.verifies_sha256(hash, &signature))
    }

    /// Whether `key` made the signature by this algorithm.
    pub(crate) fn verifies_by(&self, key: &PublicKey, algorithm: Algorithm) -> bool {
        #[cfg(test)]
        checks::count();
        let message = self.signing_input.as_bytes();
        base64url::decode(self.signature).is_some_and(|signature| key.verifies_by(algorithm, message, &signature))
    }

    /// Adds the signature to the batch. False if it is not even a well-formed signature.
    pub(crate) fn is_deferred(&self, key: &PublicKey, batch: &mut Batch) -> bool {
        let mut signature = [0; SIGNATURE_BYTES];
        base64url::decode_into(self.signature, &mut signature)
            && batch.add(&Signed {
                key,
                message: self.signing_input.as_bytes(),
                signature: &signature,
            })
    }
}

/// How many signatures this thread has checked. Tests bound this number, since signature checks dominate the cost.
#[cfg(test)]
pub(crate) mod checks {
    use std::cell::Cell;

    thread_local! {
        static CHECKS: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn count() {
        CHECKS.set(CHECKS.get() + 1);
    }

    /// The number since the last call of this function.
    pub(crate) fn take() -> usize {
        CHECKS.take()
    }
}

fn check_type(header: &Object<'_>, typ: Option<&'static str>) -> Result<(), Cause> {
    match typ {
        Some(expected) if header.text("typ") != typ => Err(Cause::WrongType { expected }),
        Some(_) | None => Ok(()),
    }
}

/// The members of a payload.
pub(crate) fn claims<'j, 'a>(json: &'j Json<'a>) -> Result<&'j Object<'a>, Cause> {
    json.as_object()
        .ok_or_else(|| malformed("the claims are not a JSON object"))
}

fn malformed(what: &str) -> Cause {
    Cause::Malformed(what.to_owned())
}

/// SHA-256 of a whole JWS, signature included.
pub(crate) fn digest(compact: impl AsRef<[u8]>) -> [u8; 32] {
    Sha256::digest(compact).into()
}

/// Bytes of a signature, for every known algorithm.
const SIGNATURE_BYTES: usize = 64;

/// Encoded bytes of a header. It is read before any signature is verified, and only `alg`, `typ`, `crit` and `kid` are
/// used.
const HEADER_BYTES: usize = 4096;

/// Signs `payload` as a JWS of media type `typ`.
pub(crate) fn sign<'k>(signer: impl Into<Signer<'k>>, typ: &str, payload: String) -> String {
    let Signer { key, key_id } = signer.into();
    let key_id = key_id.map(|key_id| ("kid".to_owned(), key_id.into()));
    Unsigned::new(key.algorithm(), typ, key_id, payload).sign(key)
}

/// A JWS without its signature, for a key that is elsewhere, such as in a hardware module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsigned {
    header: String,
    payload: String,
}

impl Unsigned {
    pub(crate) fn new(
        algorithm: Algorithm,
        typ: &str,
        more: impl IntoIterator<Item = (String, Value)>,
        payload: String,
    ) -> Self {
        let members = [("alg", algorithm.name()), ("typ", typ)];
        let members = members.map(|(name, text)| (name.to_owned(), text.into()));
        Self {
            header: Value::object(members.into_iter().chain(more)).canonical(),
            payload,
        }
    }

    /// The protected header, as JSON: `alg`, `typ`, and for a DPoP proof `jwk`.
    pub fn header(&self) -> &str {
        &self.header
    }

    /// The payload, as canonical JSON.
    pub fn payload(&self) -> &str {
        &self.payload
    }

    /// What the key signs (RFC 7515, section 5.1).
    pub fn signing_input(&self) -> String {
        format!(
            "{}.{}",
            base64url::encode(&self.header),
            base64url::encode(&self.payload)
        )
    }

    /// The whole JWS. `sign` gets the signing input, and returns the signature as JWS has it: R and S of an ECDSA signature
    /// together (RFC 7518, section 3.4).
    ///
    /// # Errors
    /// That of `sign`.
    pub fn signed_by<E>(&self, sign: impl FnOnce(&[u8]) -> Result<Vec<u8>, E>) -> Result<String, E> {
        let signing_input = self.signing_input();
        let signature = base64url::encode(sign(signing_input.as_bytes())?);
        Ok(format!("{signing_input}.{signature}"))
    }

    pub(crate) fn sign(&self, key: &SigningKey) -> String {
        let Ok(signed) = self.signed_by(|message| Ok::<_, Infallible>(key.sign(message)));
        signed
    }

    /// The JWS with a signature that verifies with no key: what every check but that of the signature needs.
    pub(crate) fn unsigned(&self) -> String {
        let Ok(signed) = self.signed_by(|_| Ok::<_, Infallible>(vec![0; SIGNATURE_BYTES]));
        signed
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Encoded claims under this header, signed.
    pub(crate) fn signed(key: &SigningKey, header: &str, claims: &str) -> String {
        let signing_input = format!("{}.{claims}", base64url::encode(header));
        let signature = base64url::encode(key.sign(signing_input.as_bytes()));
        format!("{signing_input}.{signature}")
    }
}
