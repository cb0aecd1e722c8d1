//! A private key in a file that a passphrase encrypts: PKCS #8 (RFC 5958) in PEM, as OpenSSL and most libraries read it.

use std::path::Path;

use credence_delegation::{KeyType, SigningKey};
use ed25519::pkcs8::{DecodePrivateKey as _, EncodePrivateKey as _, KeypairBytes};
use pkcs8::der::Decode as _;
use pkcs8::der::pem::LineEnding;
use pkcs8::{EncryptedPrivateKeyInfoRef, SecretDocument};
use zeroize::Zeroizing;

use super::error::SignerError;
use super::secret_file::read_secret;

/// Encrypts an Ed25519 key: scrypt and AES-256 (RFC 8018), with the library's parameters. Returns the PEM.
///
/// # Errors
/// What cannot be done.
pub fn encrypt(seed: &[u8; 32], passphrase: &[u8]) -> Result<Zeroizing<String>, String> {
    if passphrase.is_empty() {
        return Err("the passphrase is empty".to_owned());
    }
    let key = KeypairBytes {
        secret_key: *seed,
        public_key: None,
    };
    let pem = key.to_pkcs8_encrypted_pem(passphrase, LineEnding::LF);
    pem.map_err(|error| error.to_string())
}

pub(super) fn decrypt(path: &Path, passphrase: &[u8]) -> Result<SigningKey, SignerError> {
    let wrong = |problem: &str| SignerError::Unusable {
        path: path.to_owned(),
        problem: problem.to_owned(),
    };
    let text = read_secret(path)?;
    let text = std::str::from_utf8(&text).map_err(|_| wrong("it is no text"))?;
    let (label, document) = SecretDocument::from_pem(text)
        .map_err(|_| wrong("it is no PEM; a private JWK is a `file`, not `encrypted`"))?;
    if label != "ENCRYPTED PRIVATE KEY" {
        return Err(wrong(
            "it is not encrypted; `openssl pkcs8 -topk8 -scrypt` encrypts a key",
        ));
    }
    let encrypted = EncryptedPrivateKeyInfoRef::from_der(document.as_bytes());
    let encrypted = encrypted.map_err(|_| wrong("it is no encrypted PKCS #8 key"))?;
    let key = encrypted
        .decrypt(passphrase)
        .map_err(|_| wrong("the passphrase is not this file's, or its encryption is not supported"))?;
    if let Ok(key) = KeypairBytes::from_pkcs8_der(key.as_bytes()) {
        return Ok(SigningKey::from_seed(&key.secret_key));
    }
    let key = p256::SecretKey::from_pkcs8_der(key.as_bytes());
    let key = key.map_err(|_| wrong("its key is neither Ed25519 nor P-256"))?;
    let secret = Zeroizing::new(key.to_bytes().into());
    SigningKey::from_secret(KeyType::P256, &secret).map_err(|error| wrong(&error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn file(folder: &tempfile::TempDir, contents: &str) -> std::path::PathBuf {
        let path = folder.path().join("key.pem");
        std::fs::write(&path, contents).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    #[test]
    fn an_encrypted_key_is_read_with_its_passphrase_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = file(&folder, &encrypt(&[7; 32], b"correct horse").unwrap());
        let key = decrypt(&path, b"correct horse").unwrap();
        assert_eq!(key.public(), SigningKey::from_seed(&[7; 32]).public());
        let error = decrypt(&path, b"battery staple").unwrap_err().to_string();
        assert!(error.contains("the passphrase is not this file's"), "{error}");
        let error = decrypt(&file(&folder, "no key"), b"a").unwrap_err().to_string();
        assert!(error.contains("it is no PEM"), "{error}");
        assert_eq!(encrypt(&[7; 32], b"").unwrap_err(), "the passphrase is empty");
    }
}
