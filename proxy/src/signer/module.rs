//! A key in a PKCS #11 module, such as a hardware security module.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use credence_delegation::{KeyType, PublicKey};
use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::error::{Error, RvError};
use cryptoki::mechanism::Mechanism;
use cryptoki::mechanism::eddsa::{EddsaParams, EddsaSignatureScheme};
use cryptoki::object::{Attribute, AttributeType, ObjectClass, ObjectHandle};
use cryptoki::session::{Session, UserType};
use cryptoki::types::AuthPin;
use sha2::{Digest as _, Sha256};

use super::error::{SignError, SignerError};
use super::secret_file::read_secret;
use crate::settings::Pkcs11Settings;

/// A key that a module signs with.
pub(crate) struct ModuleKey {
    session: Mutex<Session>,
    key: ObjectHandle,
    public: PublicKey,
    // Last: the session is closed first.
    _module: Pkcs11,
}

// === impl ModuleKey ===

impl ModuleKey {
    pub(super) fn open(settings: &Pkcs11Settings) -> Result<Self, SignerError> {
        let failed = |problem: String| SignerError::Unusable {
            path: settings.module.clone(),
            problem,
        };
        let of_module = |error: Error| failed(error.to_string());
        let pin = read_secret(&settings.pin_file)?;
        let pin = String::from_utf8_lossy(pin.trim_ascii()).into_owned();
        let module = Pkcs11::new(&settings.module).map_err(of_module)?;
        let threads = CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK);
        match module.initialize(threads) {
            // Another credential uses the same module.
            Ok(()) | Err(Error::Pkcs11(RvError::CryptokiAlreadyInitialized, _)) => {}
            Err(error) => return Err(of_module(error)),
        }
        let slots = module.get_slots_with_token().map_err(of_module)?;
        let slot = slots.into_iter().find(|slot| {
            let token = module.get_token_info(*slot);
            token.is_ok_and(|token| token.label().trim_end() == settings.token)
        });
        let slot = slot.ok_or_else(|| failed(format!("it has no token `{}`; see `token`", settings.token)))?;
        let session = module.open_ro_session(slot).map_err(of_module)?;
        match session.login(UserType::User, Some(&AuthPin::new(pin.into_boxed_str()))) {
            Ok(()) => {}
            Err(Error::Pkcs11(RvError::UserAlreadyLoggedIn, _)) => {}
            Err(error) => return Err(of_module(error)),
        }
        let find = |class| {
            let wanted = [
                Attribute::Class(class),
                Attribute::Label(settings.label.as_bytes().to_vec()),
            ];
            let mut found = session.find_objects(&wanted).map_err(of_module)?;
            let key = found.pop().filter(|_| found.is_empty());
            key.ok_or_else(|| {
                failed(format!(
                    "not exactly one {class} has the label `{}`; see `label`",
                    settings.label
                ))
            })
        };
        let (key, public) = (find(ObjectClass::PRIVATE_KEY)?, find(ObjectClass::PUBLIC_KEY)?);
        let attributes = session
            .get_attributes(public, &[AttributeType::EcPoint])
            .map_err(of_module)?;
        let point = attributes.into_iter().find_map(|attribute| match attribute {
            Attribute::EcPoint(point) => Some(point),
            _ => None,
        });
        let public = point.as_deref().and_then(public_key);
        let public = public.ok_or_else(|| failed("the key is neither Ed25519 nor P-256".to_owned()))?;
        Ok(Self {
            session: Mutex::new(session),
            key,
            public,
            _module: module,
        })
    }

    pub(super) fn public(&self) -> &PublicKey {
        &self.public
    }

    pub(super) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, SignError> {
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        let signed = match self.public.key_type() {
            KeyType::Ed25519 => {
                let mechanism = Mechanism::Eddsa(EddsaParams::new(EddsaSignatureScheme::Ed25519));
                session.sign(&mechanism, self.key, message)
            }
            // R and S together, as JWS has them.
            _ => session.sign(&Mechanism::Ecdsa, self.key, &Sha256::digest(message)),
        };
        signed.map_err(|error| SignError::Module(error.to_string()))
    }
}

impl fmt::Debug for ModuleKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ModuleKey({:?})", self.public)
    }
}

/// The key of an EC point: DER's octet string with 32 bytes (Ed25519), or 65 (P-256, uncompressed). Some modules leave the
/// octet string out.
fn public_key(point: &[u8]) -> Option<PublicKey> {
    let bytes = match point {
        [0x04, 32, bytes @ ..] if bytes.len() == 32 => bytes,
        [0x04, 65, bytes @ ..] if bytes.len() == 65 => bytes,
        bytes => bytes,
    };
    match bytes {
        [0x04, coordinates @ ..] if coordinates.len() == 64 => {
            let (x, y) = coordinates.split_at(32);
            let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
            let jwk = format!(r#"{{"kty":"EC","crv":"P-256","x":"{x}","y":"{y}"}}"#);
            PublicKey::from_jwk_text(jwk.as_bytes()).ok()
        }
        bytes => PublicKey::from_ed25519(bytes.try_into().ok()?).ok(),
    }
}
