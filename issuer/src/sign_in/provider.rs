//! Requests to the identity provider. Its metadata and keys are read when they are first needed, so that the issuer
//! starts without it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use credence_runtime::outbound::{self, OutboundError, is_local};
use openidconnect::core::{
    CoreAuthDisplay, CoreClaimName, CoreClaimType, CoreClientAuthMethod, CoreGrantType, CoreJsonWebKey,
    CoreJweContentEncryptionAlgorithm, CoreJweKeyManagementAlgorithm, CoreResponseMode, CoreResponseType,
    CoreSubjectIdentifierType,
};
use openidconnect::{
    AdditionalProviderMetadata, HttpRequest, HttpResponse, IssuerUrl, ProviderMetadata, SyncHttpClient,
};
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, Semaphore};
use tokio::time::Instant;
use ureq::http::{Method, Response};

use super::error::{SignInError, causes, shown};

/// The provider's metadata and keys.
pub(super) type Metadata = ProviderMetadata<
    IssParameter,
    CoreAuthDisplay,
    CoreClientAuthMethod,
    CoreClaimName,
    CoreClaimType,
    CoreGrantType,
    CoreJweContentEncryptionAlgorithm,
    CoreJweKeyManagementAlgorithm,
    CoreJsonWebKey,
    CoreResponseMode,
    CoreResponseType,
    CoreSubjectIdentifierType,
>;

type Discovered = Result<Arc<Metadata>, SignInError>;

/// RFC 9207, section 3.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct IssParameter {
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

/// The provider.
#[derive(Debug)]
pub(super) struct Provider {
    issuer: IssuerUrl,
    calls: Arc<Semaphore>,
    http: Arc<Http>,
    cache: Mutex<Option<(Discovered, Instant)>>,
}

/// Sends requests. Redirects are not followed.
#[derive(Debug)]
pub(super) struct Http {
    is_local: bool,
    agent: ureq::Agent,
}

/// Why the provider gave no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum HttpError {
    #[error("{0} is not an https URL")]
    NotHttps(String),
    #[error("{url}: {error}")]
    Request { url: String, error: Box<ureq::Error> },
}

// === impl IssParameter ===

impl AdditionalProviderMetadata for IssParameter {}

impl IssParameter {
    /// Whether each answer through the browser has `iss`.
    pub(super) fn sends_iss(&self) -> bool {
        self.authorization_response_iss_parameter_supported
    }
}

// === impl Provider ===

impl Provider {
    pub(super) fn new(issuer: IssuerUrl, ca: Option<&Path>, timeout: Duration) -> Result<Self, OutboundError> {
        Ok(Self {
            http: Arc::new(Http {
                is_local: is_local(&issuer),
                agent: outbound::agent(&issuer, ca, timeout)?,
            }),
            issuer,
            calls: Arc::new(Semaphore::new(MAX_CALLS)),
            cache: Mutex::default(),
        })
    }

    /// Metadata and keys that were read within this time. A failure is kept too, so that those who wait do not all wait
    /// for another timeout.
    pub(super) async fn metadata(&self, within: Duration) -> Discovered {
        let mut cache = self.cache.lock().await;
        if let Some((last, at)) = &*cache
            && at.elapsed() < if last.is_ok() { within } else { RETRY_INTERVAL }
        {
            return last.clone();
        }
        let mut discovered = self.discover().await?;
        // What was read before is better than nothing.
        if let (Err(error), Some((Ok(earlier), _))) = (&discovered, &*cache) {
            tracing::warn!(%error, "the identity provider's keys cannot be read again");
            discovered = Ok(Arc::clone(earlier));
        }
        *cache = Some((discovered.clone(), Instant::now()));
        discovered
    }

    #[cfg(test)]
    pub(super) fn hold_all_calls(&self) -> tokio::sync::OwnedSemaphorePermit {
        Arc::clone(&self.calls)
            .try_acquire_many_owned(MAX_CALLS as u32)
            .unwrap()
    }

    /// The outer error says that the provider was not asked.
    async fn discover(&self) -> Result<Discovered, SignInError> {
        let issuer = self.issuer.clone();
        let discovered = self.call(move |http| {
            let discovered = Metadata::discover(&issuer, http);
            let metadata = discovered.map_err(|error| SignInError::Metadata(shown(&causes(&error))))?;
            // This one is for the browser; the others are checked when they are asked.
            let endpoint = metadata.authorization_endpoint();
            match http.may_ask(endpoint) {
                true => Ok(Arc::new(metadata)),
                false => Err(SignInError::Metadata(shown(&format!("{endpoint} is not an https URL")))),
            }
        });
        discovered.await
    }

    /// Work that makes requests. Its permit lasts as long as the work, even if its caller goes away.
    pub(super) async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Http) -> T + Send + 'static,
    ) -> Result<T, SignInError> {
        let permit = Arc::clone(&self.calls)
            .try_acquire_owned()
            .map_err(|_| SignInError::Busy)?;
        let http = Arc::clone(&self.http);
        let done = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work(&http)
        });
        // It ends early only with the process.
        done.await.map_err(|_| SignInError::Busy)
    }
}

// === impl Http ===

impl SyncHttpClient for Http {
    type Error = HttpError;

    fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let url = request.uri().to_string();
        if !self.may_ask(&url) {
            return Err(HttpError::NotHttps(url));
        }
        let answer = match *request.method() {
            Method::GET => self.agent.run(request.map(drop)),
            _ => self.agent.run(request),
        };
        let failed = |error| HttpError::Request {
            url: url.clone(),
            error: Box::new(error),
        };
        let (head, mut body) = answer.map_err(failed)?.into_parts();
        let body = body
            .with_config()
            .limit(MAX_ANSWER_BYTES)
            .read_to_vec()
            .map_err(failed)?;
        Ok(Response::from_parts(head, body))
    }
}

impl Http {
    /// A provider on this machine has http; no other may change to it.
    fn may_ask(&self, url: &str) -> bool {
        match self.is_local {
            true => is_local(url),
            false => url.starts_with("https://"),
        }
    }
}

const MAX_CALLS: usize = 64;
const MAX_ANSWER_BYTES: u64 = 256 << 10;
/// Between two attempts while the provider is down.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
