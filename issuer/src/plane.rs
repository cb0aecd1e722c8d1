//! The control plane, as the issuer asks it: the state of principals, revocations, the ledger.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use credence_runtime::outbound::{self, OutboundError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::Semaphore;
use ureq::Body;
use ureq::http::Response;

use crate::settings::ControlPlaneSettings;

/// A client of the control plane's HTTP API. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Plane {
    link: Arc<Link>,
    calls: Arc<Semaphore>,
}

#[derive(Debug)]
struct Link {
    agent: ureq::Agent,
    url: String,
    settings: ControlPlaneSettings,
}

/// Why the control plane gave no answer that can be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlaneError {
    #[error("too many calls to the control plane are under way")]
    Busy,
    #[error("the control plane: {0}")]
    Request(#[from] Box<ureq::Error>),
    #[error("the control plane answers {status}: {detail}")]
    Status { status: u16, detail: String },
    #[error("the control plane's answer cannot be read: {0}")]
    Answer(String),
    #[error("{path}: {error}", path = .0.display(), error = .1)]
    Token(std::path::PathBuf, std::io::Error),
}

/// A principal's state in the revocation log.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct PrincipalState {
    pub(crate) epoch: u64,
    pub(crate) disabled: bool,
}

/// A person's epochs as this issuer's principal, and as the identity provider's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Epochs {
    pub(crate) own: u64,
    pub(crate) provider: u64,
}

/// How far a revocation has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// No filter allows what it forbids.
    Confirmed,
    /// It is durable, but a filter may not have applied it yet.
    Committed,
}

/// The facts about a grant that its state depends on.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub(crate) issuer: String,
    pub(crate) subject: String,
    pub(crate) epoch: u64,
    pub(crate) issued_at: u64,
    pub(crate) ids: Vec<String>,
    /// Thumbprints: the issuer's key, then the holder's if there is one.
    pub(crate) keys: Vec<String>,
}

/// A decision that a filter recorded.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Use {
    pub(crate) time: String,
    pub(crate) decision: String,
    #[serde(default)]
    pub(crate) tool: String,
    #[serde(default)]
    pub(crate) delegation_ids: Vec<String>,
}

/// What the ledger has of a source.
#[derive(Debug, Deserialize)]
pub(crate) struct Position {
    #[serde(default)]
    pub(crate) ticket: String,
    pub(crate) acknowledged: u64,
}

// === impl Plane ===

impl Plane {
    pub(crate) fn new(settings: &ControlPlaneSettings) -> Result<Self, OutboundError> {
        let link = Link {
            agent: outbound::agent(&settings.url, settings.ca.as_deref(), TIMEOUT)?,
            url: settings.url.trim_end_matches('/').to_owned(),
            settings: settings.clone(),
        };
        Ok(Self {
            link: Arc::new(link),
            calls: Arc::new(Semaphore::new(MAX_CALLS)),
        })
    }

    pub(crate) async fn principal(&self, issuer: &str, subject: &str) -> Result<PrincipalState, PlaneError> {
        let query = [("issuer", issuer.to_owned()), ("subject", subject.to_owned())];
        self.get("/v1/principals", query.into()).await
    }

    /// Revokes tokens, and those derived from them. Returns once filters have applied it, or after some seconds.
    pub(crate) async fn revoke(&self, issuer: &str, subject: &str, ids: &[String]) -> Result<Progress, PlaneError> {
        let mut progress = Progress::Confirmed;
        for (index, id) in ids.iter().enumerate() {
            let body = json!({
                "delegation": {"issuer": issuer, "subject": subject, "id": id},
                "reason": "the grant has ended",
            });
            // The log is ordered: a filter that has applied the last one has applied all.
            let is_last = index + 1 == ids.len();
            let path = match is_last {
                true => "/v1/revocations",
                false => "/v1/revocations?wait=committed",
            };
            let status = self
                .call(move |link| Ok(link.post(path, &body.to_string())?.status().as_u16()))
                .await?;
            if is_last && status == 202 {
                progress = Progress::Committed;
            }
        }
        Ok(progress)
    }

    /// Whether a grant is revoked.
    pub(crate) async fn is_revoked(&self, grant: Facts) -> Result<bool, PlaneError> {
        #[derive(Deserialize)]
        struct Answer {
            status: String,
        }
        let ids = grant.ids.into_iter().map(|id| ("id", id));
        let keys = grant.keys.into_iter().map(|key| ("key", key));
        let query = [
            ("issuer", grant.issuer),
            ("subject", grant.subject),
            ("epoch", grant.epoch.to_string()),
            ("issued_at", grant.issued_at.to_string()),
        ];
        let query = query.into_iter().chain(ids).chain(keys).collect();
        let answer: Answer = self.get("/v1/delegations/status", query).await?;
        Ok(answer.status != "active")
    }

    /// The last decisions about a principal's tokens, newest first.
    pub(crate) async fn uses(&self, issuer: &str, subject: &str) -> Result<Vec<Use>, PlaneError> {
        #[derive(Deserialize)]
        struct Answer {
            events: Vec<Use>,
        }
        let query = [
            ("principal_issuer", issuer.to_owned()),
            ("principal_subject", subject.to_owned()),
            ("kind", "decision".to_owned()),
            ("limit", MAX_USES.to_string()),
        ];
        let answer: Answer = self.get("/v1/audit/events", query.into()).await?;
        Ok(answer.events)
    }

    /// Begins to report as a new source.
    pub(crate) async fn begin_source(&self, node: &str) -> Result<Position, PlaneError> {
        let body = json!({ "node": node }).to_string();
        self.call(move |link| read(link.post("/v1/audit/sources", &body)?))
            .await
    }

    /// What the ledger has of this source; `None` if it knows no such source any more.
    pub(crate) async fn source(&self, ticket: &str) -> Result<Option<Position>, PlaneError> {
        let found = self.get(&format!("/v1/audit/sources/{ticket}"), Vec::new()).await;
        match found {
            Err(PlaneError::Status { status: 404, .. }) => Ok(None),
            found => found.map(Some),
        }
    }

    /// Reports entries. Returns how many of the source's the ledger has.
    pub(crate) async fn report(&self, ticket: &str, batch: String) -> Result<u64, PlaneError> {
        let path = format!("/v1/audit/sources/{ticket}/batches");
        let position: Position = self.call(move |link| read(link.post(&path, &batch)?)).await?;
        Ok(position.acknowledged)
    }

    async fn get<T: DeserializeOwned + Send + 'static>(
        &self,
        path: &str,
        query: Vec<(&'static str, String)>,
    ) -> Result<T, PlaneError> {
        let path = path.to_owned();
        self.call(move |link| read(link.get(&path, &query)?)).await
    }

    async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Link) -> Result<T, PlaneError> + Send + 'static,
    ) -> Result<T, PlaneError> {
        let permit = Arc::clone(&self.calls).try_acquire_owned();
        let permit = permit.map_err(|_| PlaneError::Busy)?;
        let link = Arc::clone(&self.link);
        let called = tokio::task::spawn_blocking(move || {
            let answer = work(&link);
            drop(permit);
            answer
        });
        called.await.map_err(|error| PlaneError::Answer(error.to_string()))?
    }
}

// === impl Link ===

impl Link {
    fn get(&self, path: &str, query: &[(&str, String)]) -> Result<Response<Body>, PlaneError> {
        let request = self.agent.get(format!("{}{path}", self.url));
        let request = request.query_pairs(query.iter().map(|(name, value)| (*name, value.as_str())));
        let request = request.config().timeout_global(Some(READ_TIMEOUT)).build();
        let response = request.header("authorization", &self.authorization()?).call();
        succeeded(response.map_err(Box::new)?)
    }

    fn post(&self, path: &str, body: &str) -> Result<Response<Body>, PlaneError> {
        let request = self.agent.post(format!("{}{path}", self.url));
        let request = request.header("authorization", &self.authorization()?);
        let response = request.content_type("application/json").send(body);
        succeeded(response.map_err(Box::new)?)
    }

    /// Read each time, since the operator may replace the token.
    fn authorization(&self) -> Result<String, PlaneError> {
        let path: &Path = &self.settings.token_file;
        let failed = |error| PlaneError::Token(path.to_owned(), error);
        let token = credence_storage::durable::read_small_file(path, MAX_TOKEN_BYTES).map_err(failed)?;
        let token = String::from_utf8_lossy(&token);
        let token = token.trim();
        let is_token = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
        match is_token {
            true => Ok(format!("Bearer {token}")),
            false => Err(failed(std::io::Error::other("it holds no token"))),
        }
    }
}

fn succeeded(mut response: Response<Body>) -> Result<Response<Body>, PlaneError> {
    #[derive(Deserialize)]
    struct Problem {
        detail: String,
    }
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let body = response.body_mut().with_config().limit(MAX_ANSWER_BYTES).read_to_vec();
    let detail = body.ok().and_then(|body| serde_json::from_slice::<Problem>(&body).ok());
    Err(PlaneError::Status {
        status: status.as_u16(),
        detail: detail.map(|problem| problem.detail).unwrap_or_default(),
    })
}

fn read<T: DeserializeOwned>(mut response: Response<Body>) -> Result<T, PlaneError> {
    let body = response.body_mut().with_config().limit(MAX_ANSWER_BYTES).read_to_vec();
    let body = body.map_err(Box::new)?;
    serde_json::from_slice(&body).map_err(|error| PlaneError::Answer(error.to_string()))
}

/// People wait for it, and can take back grants without it.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// A revocation waits up to 15 s for filters.
const TIMEOUT: Duration = Duration::from_secs(20);
const MAX_CALLS: usize = 256;
const MAX_ANSWER_BYTES: u64 = 4 << 20;
const MAX_TOKEN_BYTES: u64 = 4 << 10;
/// Decisions of a person that are searched for the last use of each grant.
const MAX_USES: usize = 500;
