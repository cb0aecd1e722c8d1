//! A private key in a file that a passphrase encrypts: PKCS #8 (RFC 5958) in PEM, as OpenSSL and most libraries read it.

use std::path::Path;

use credence_delegation::{KeyType, SigningKey};
use pkcs8::der::asn1::OctetStringRef;
use pkcs8::der::pem::LineEnding;
use pkcs8::der::{Decode as _, Encode as _, Reader as _, SecretDocument, SliceReader};
use pkcs8::{AlgorithmIdentifierRef, EncryptedPrivateKeyInfoRef, ObjectIdentifier, PrivateKeyInfoRef};
use zeroize::Zeroizing;

use super::error::SignerError;
use super::secret_file::read_secret;

/// Encrypts an Ed25519 key: scrypt and AES-256 (RFC 8018), with the library's parameters. Returns the PEM.
///
/// # Errors
/// What cannot be done.
pub fn encrypt(seed: &[u8; 32], passphrase: &[u8]) -> Result<Zeroizing<String>, String> {
    let failed = |error: &dyn std::fmt::Display| error.to_string();
    // RFC 8410, section 7: an octet string within one.
    let inner = OctetStringRef::new(seed).and_then(|inner| inner.to_der());
    let inner = Zeroizing::new(inner.map_err(|error| failed(&error))?);
    let algorithm = AlgorithmIdentifierRef {
        oid: ED25519,
        parameters: None,
    };
    let outer = OctetStringRef::new(&inner).map_err(|error| failed(&error))?;
    let key = PrivateKeyInfoRef::new(algorithm, outer);
    let encrypted = key.encrypt(passphrase).map_err(|error| failed(&error))?;
    encrypted
        .to_pem(ENCRYPTED, LineEnding::LF)
        .map_err(|error| failed(&error))
}

pub(super) fn decrypt(path: &Path, passphrase: &[u8]) -> Result<SigningKey, SignerError> {
    let wrong = |problem: &str| SignerError::Encrypted {
        path: path.to_owned(),
        problem: problem.to_owned(),
    };
    let text = read_secret(path)?;
    let text = std::str::from_utf8(&text).map_err(|_| wrong("it is no text"))?;
    let (label, document) = SecretDocument::from_pem(text).map_err(|_| wrong("it is no PEM"))?;
    if label != ENCRYPTED {
        return Err(wrong(
            "it is not encrypted; `openssl pkcs8 -topk8 -scrypt` encrypts a key",
        ));
    }
    let encrypted = EncryptedPrivateKeyInfoRef::from_der(document.as_bytes());
    let encrypted = encrypted.map_err(|_| wrong("it is no encrypted PKCS #8 key"))?;
    let key = encrypted
        .decrypt(passphrase)
        .map_err(|_| wrong("the passphrase is not this file's, or its encryption is not supported"))?;
    let info = PrivateKeyInfoRef::from_der(key.as_bytes()).map_err(|_| wrong("its contents are no key"))?;
    let contents = info.private_key.as_bytes();
    let (kind, secret) = match info.algorithm.oid {
        ED25519 => {
            let inner = <&OctetStringRef>::from_der(contents).map_err(|_| wrong("its contents are no Ed25519 key"))?;
            (KeyType::Ed25519, inner.as_bytes().to_vec())
        }
        EC if info.algorithm.parameters_oid().is_ok_and(|curve| curve == P256) => {
            let secret = ec_secret(contents).map_err(|_| wrong("its contents are no P-256 key"));
            (KeyType::P256, secret?)
        }
        _ => return Err(wrong("its key is neither Ed25519 nor P-256")),
    };
    let secret = Zeroizing::new(secret);
    let secret: &[u8; 32] = secret
        .as_slice()
        .try_into()
        .map_err(|_| wrong("its key has another length"))?;
    SigningKey::from_secret(kind, secret).map_err(|error| wrong(&error.to_string()))
}

/// The secret of an ECPrivateKey (RFC 5915): a sequence of its version, the secret, and more.
fn ec_secret(sequence: &[u8]) -> Result<Vec<u8>, pkcs8::der::Error> {
    SliceReader::new(sequence)?.sequence(|inner| {
        let _version = u8::decode(inner)?;
        let secret = <&OctetStringRef>::decode(inner)?.as_bytes().to_vec();
        inner.read_slice(inner.remaining_len())?;
        Ok(secret)
    })
}

const ENCRYPTED: &str = "ENCRYPTED PRIVATE KEY";
const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");
const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");

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
    }
}
