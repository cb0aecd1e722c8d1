//! Who may use the proxy, and for what.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use credence_delegation::Capabilities;
use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderName, PROXY_AUTHORIZATION};
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;

use crate::credential::Credential;
use crate::derived::Derived;
use crate::settings::{ClientSettings, LimitSettings};
use crate::signer::{SignerError, read_secret};
use crate::upstream::Upstream;

/// A client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) name: String,
    /// SHA-256 of its secret.
    pub(crate) secret: Option<[u8; 32]>,
    pub(crate) uids: Vec<u32>,
    pub(crate) web_origins: Vec<String>,
    /// The service of a reverse proxy.
    pub(crate) service: Option<Arc<Upstream>>,
    pub(crate) credential: Arc<Credential>,
    /// What it may do at most, besides what the credential grants.
    pub(crate) tools: Option<Capabilities>,
    pub(crate) derived: Option<Derived>,
    /// A place for each of its requests.
    pub(crate) places: Arc<Semaphore>,
}

/// Why a client cannot be set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    #[error(transparent)]
    Signer(#[from] SignerError),
    #[error("{0}: the secret has less than {MIN_SECRET_BYTES} bytes; make one with `openssl rand -hex 32`")]
    ShortSecret(String),
    #[error("{0}")]
    Tools(String),
    #[error("it has no credential")]
    NoCredential,
}

// === impl Client ===

impl Client {
    pub(crate) fn new(
        settings: &ClientSettings,
        limits: &LimitSettings,
        credential: Arc<Credential>,
        service: Option<Arc<Upstream>>,
    ) -> Result<Self, ClientError> {
        let secret = settings.secret_file.as_deref().map(|path| {
            let secret = read_secret(path)?;
            let secret = secret.trim_ascii();
            match secret.len() >= MIN_SECRET_BYTES {
                true => Ok(Sha256::digest(secret).into()),
                false => Err(ClientError::ShortSecret(path.display().to_string())),
            }
        });
        let capabilities = settings.capabilities().map_err(ClientError::Tools)?;
        let (tools, written) = capabilities.unzip();
        Ok(Self {
            name: settings.name.clone(),
            secret: secret.transpose()?,
            uids: settings.uids.clone(),
            web_origins: settings.web_origins.clone(),
            service,
            credential,
            tools,
            derived: written.map(Derived::new).transpose()?,
            places: Arc::new(Semaphore::new(limits.requests)),
        })
    }
}

/// Finds the client of a request among those of its listener, and takes its secret out of the headers.
pub(crate) fn identify<'c>(clients: &'c [Arc<Client>], headers: &mut HeaderMap) -> Option<&'c Arc<Client>> {
    if let [only] = clients
        && only.secret.is_none()
    {
        // Its value is for no other server (RFC 9110, section 11.7.2).
        headers.remove(PROXY_AUTHORIZATION);
        return Some(only);
    }
    // In the proxy's own header first: then the other one is for the service.
    let (header, digest) = [PROXY_AUTHORIZATION, AUTHORIZATION]
        .into_iter()
        .find_map(|header| Some((header.clone(), presented(headers, &header)?)))?;
    let found = clients.iter().find(|client| client.secret == Some(digest))?;
    headers.remove(header);
    headers.remove(PROXY_AUTHORIZATION);
    if presented(headers, &AUTHORIZATION) == found.secret {
        headers.remove(AUTHORIZATION);
    }
    Some(found)
}

/// SHA-256 of the secret in a header. So comparing takes no longer for a better guess.
fn presented(headers: &HeaderMap, header: &HeaderName) -> Option<[u8; 32]> {
    let mut values = headers.get_all(header).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return None;
    };
    let (scheme, credentials) = value.to_str().ok()?.split_once(' ')?;
    let credentials = credentials.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(Sha256::digest(credentials).into());
    }
    // `http://NAME:SECRET@…` in HTTP_PROXY (RFC 7617).
    if scheme.eq_ignore_ascii_case("basic") && *header == PROXY_AUTHORIZATION {
        let decoded = STANDARD.decode(credentials).ok()?;
        let (_, secret) = std::str::from_utf8(&decoded).ok()?.split_once(':')?;
        return Some(Sha256::digest(secret).into());
    }
    None
}

const MIN_SECRET_BYTES: usize = 16;
