//! Key files of one JWK each (RFC 7517), and issuers with their keys.

use std::path::Path;

use credence_agent::cases::{DID_KEY, IssuerKeys};
use credence_delegation::json::Json;
use credence_delegation::{JwkSet, KeyError, PublicKey, SigningKey, SkippedKey};
use zeroize::Zeroizing;

use crate::failure::Failure;
use crate::{files, stderr, terminal};

/// Reads a private key file.
pub(crate) fn signing_key(path: &Path) -> Result<SigningKey, Failure> {
    let text = files::read(path, "a private JWK")?;
    SigningKey::from_jwk_text(&text).map_err(|error| {
        let cure = match error {
            KeyError::Missing("d") => "it holds only a public key: give the file that `credence keygen` wrote",
            _ => "give the private JWK file that `credence keygen` wrote",
        };
        Failure::input(format!("the key file {}: {error}; {cure}", path.display()))
    })
}

/// Reads a public key: a JWK, a file with a JWK, or a `did:key`. Of a private key, the public half is used.
pub(crate) fn public_key(given: &str) -> Result<PublicKey, Failure> {
    if given.starts_with(DID_KEY) {
        return PublicKey::from_did_key(given)
            .map_err(|error| Failure::input(format!("{given}: {error}; write it as `credence keygen` prints it")));
    }
    JwkText::read(given, "a JWK")?.public_key()
}

/// Reads the keys of an issuer, a JWK or a JWK set: the text itself, or a file. Names the keys of a set that cannot verify
/// signatures on standard error.
pub(crate) fn issuer_keys(given: &str) -> Result<IssuerKeys, Failure> {
    let text = JwkText::read(given, "a JWK or a JWK set")?;
    let is_set = Json::parse(&text.text)
        .is_ok_and(|json| json.as_object().is_some_and(|object| object.member("keys").is_some()));
    if !is_set {
        return text.public_key().map(Box::new).map(IssuerKeys::One);
    }
    let set = JwkSet::parse(&text.text).map_err(|error| Failure::input(format!("{}: {error}", text.place)))?;
    for SkippedKey { index, why } in set.skipped() {
        stderr::print(format_args!(
            "credence: note: {}: keys[{index}] is not used: {}",
            text.place,
            terminal::printable(&why.to_string())
        ));
    }
    Ok(IssuerKeys::Set(set.keys().to_vec()))
}

/// Keys in JSON, from the command line or from a file.
struct JwkText {
    text: Zeroizing<Vec<u8>>,
    /// Its source, for errors.
    place: String,
    /// Whether the text is on the command line itself.
    inline: bool,
}

impl JwkText {
    fn read(given: &str, what: &str) -> Result<Self, Failure> {
        if given.trim_start().starts_with('{') {
            return Ok(Self {
                text: Zeroizing::new(given.as_bytes().to_vec()),
                place: "the JWK on the command line".to_owned(),
                inline: true,
            });
        }
        // A chain's file is given as @FILE. Accept that for a key's file too.
        let path = given.strip_prefix('@').unwrap_or(given);
        Ok(Self {
            text: files::read(Path::new(path), what)?,
            place: format!("the key file {path}"),
            inline: false,
        })
    }

    fn public_key(&self) -> Result<PublicKey, Failure> {
        let cure = if self.inline { "" } else { "; give a file with one JWK" };
        let (key, private) =
            public_half(&self.text).map_err(|error| Failure::input(format!("{}: {error}{cure}", self.place)))?;
        if private && self.inline {
            stderr::print(
                "credence: warning: the JWK on the command line is a private key. Only its public half is used. Other \
                 users of this machine can see command lines, and the shell's history keeps them: replace this key, \
                 and give a file next time",
            );
        }
        Ok(key)
    }
}

/// The public key of a JWK, and whether the JWK is private.
fn public_half(jwk: &[u8]) -> Result<(PublicKey, bool), KeyError> {
    match PublicKey::from_jwk_text(jwk) {
        Err(KeyError::Private(_)) => Ok((SigningKey::from_jwk_text(jwk)?.public(), true)),
        public => Ok((public?, false)),
    }
}
