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

/// Reads a public key: a JWK itself, or the file of one. Of a private key's file the public half is taken.
pub(crate) fn public_key(jwk_or_file: &str) -> Result<PublicKey, Failure> {
    if jwk_or_file.trim_start().starts_with('{') {
        return PublicKey::from_jwk_text(jwk_or_file.as_bytes())
            .map_err(|error| Failure::input(format!("the JWK on the command line: {error}")));
    }
    // A chain's file is given as @FILE, so that a key's may be too.
    let path = jwk_or_file.strip_prefix('@').unwrap_or(jwk_or_file);
    let text = files::read(Path::new(path), "a JWK")?;
    let key = match PublicKey::from_jwk_text(&text) {
        Err(KeyError::Private(_)) => SigningKey::from_jwk_text(&text).map(|key| key.public()),
        public => public,
    };
    key.map_err(|error| {
        Failure::input(format!(
            "the key file {path}: {error}; give a file with one Ed25519 JWK"
        ))
    })
}
