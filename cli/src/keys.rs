//! Keys as files of one JWK each (RFC 7517, RFC 8037).

use std::path::Path;

use credence_delegation::{KeyError, PublicKey, SigningKey};

use crate::failure::Failure;
use crate::files;

/// Reads a private key file.
pub(crate) fn signing_key(path: &Path) -> Result<SigningKey, Failure> {
    let text = files::read(path, "a private JWK")?;
    SigningKey::from_jwk_text(&text).map_err(|error| {
        let cure = match error {
            KeyError::Missing("d") => "it has a public key only: give the file that `credence keygen` wrote",
            _ => "give the private JWK file that `credence keygen` wrote",
        };
        Failure::input(format!("the key file {}: {error}; {cure}", path.display()))
    })
}

/// Reads a public key: a JWK itself, or the file of one. Of a private key the public half is taken.
pub(crate) fn public_key(jwk_or_file: &str) -> Result<PublicKey, Failure> {
    if jwk_or_file.trim_start().starts_with('{') {
        let (key, private) = public_half(jwk_or_file.as_bytes())
            .map_err(|error| Failure::input(format!("the JWK on the command line: {error}")))?;
        if private {
            eprintln!(
                "credence: warning: the JWK on the command line is a private key. Only its public half is used, but \
                 command lines are seen by other users of the machine and kept in the shell's history: give the key's \
                 file instead, and consider this key known to others"
            );
        }
        return Ok(key);
    }
    // A chain's file is given as @FILE, so that a key's may be too.
    let path = jwk_or_file.strip_prefix('@').unwrap_or(jwk_or_file);
    let text = files::read(Path::new(path), "a JWK")?;
    let (key, _) = public_half(&text).map_err(|error| {
        Failure::input(format!(
            "the key file {path}: {error}; give a file with one Ed25519 JWK"
        ))
    })?;
    Ok(key)
}

/// The public key of a JWK, and whether the JWK is a private one.
fn public_half(jwk: &[u8]) -> Result<(PublicKey, bool), KeyError> {
    match PublicKey::from_jwk_text(jwk) {
        Err(KeyError::Private(_)) => Ok((SigningKey::from_jwk_text(jwk)?.public(), true)),
        public => Ok((public?, false)),
    }
}
