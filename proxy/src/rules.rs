//! The rules that services publish: fetched from the service itself, and kept for as long as it says.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use credence_agent::service::{Origin, Service, ServiceError};
use credence_agent::terminal::{printable, shortened};
use credence_runtime::outbound::{Guard, GuardedClient, GuardedError, Network};
use tokio::sync::Mutex;

use crate::settings::ServiceSettings;

/// The rules of one service.
#[derive(Debug)]
pub(crate) struct Rules {
    origin: Origin,
    audience: Vec<String>,
    source: Source,
    known: Mutex<Option<Known>>,
}

#[derive(Debug)]
enum Source {
    File(PathBuf),
    Url { url: String, client: Arc<GuardedClient> },
}

#[derive(Debug, Clone)]
struct Known {
    service: Result<Arc<Service>, Arc<RulesError>>,
    until: Instant,
}

/// Why there are no rules.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RulesError {
    #[error("{path}: {error}", path = path.display())]
    File { path: PathBuf, error: std::io::Error },
    #[error("{0}; publish there what `credence config describe --for-agents` prints")]
    Fetch(#[from] GuardedError),
    #[error("{0}")]
    Service(#[from] ServiceError),
    #[error("the task that read them has ended")]
    Cancelled,
}

// === impl Rules ===

impl Rules {
    pub(crate) fn new(origin: Origin, settings: &ServiceSettings) -> Self {
        let source = match settings.rules_file() {
            Some(path) => Source::File(path),
            None => Source::Url {
                url: settings
                    .rules
                    .clone()
                    .unwrap_or_else(|| format!("{}{WELL_KNOWN}", origin.as_str())),
                client: Arc::new(GuardedClient::new(Guard {
                    ca: settings.ca.clone(),
                    // The operator has named the service.
                    networks: ["0.0.0.0/0", "::/0"]
                        .iter()
                        .filter_map(|text| Network::parse(text))
                        .collect(),
                    local_http: true,
                    timeout: FETCH_TIMEOUT,
                    max_bytes: MAX_BYTES,
                })),
            },
        };
        Self {
            origin,
            audience: settings.audience.clone(),
            source,
            known: Mutex::default(),
        }
    }

    /// The service with its current rules. If newer ones cannot be read, the known ones stay.
    pub(crate) async fn current(&self) -> Result<Arc<Service>, Arc<RulesError>> {
        let mut known = self.known.lock().await;
        if let Some(known) = known.as_ref().filter(|known| Instant::now() < known.until) {
            return known.service.clone();
        }
        let (read, age) = match self.read().await {
            Ok((service, age)) => (Ok(Arc::new(service)), age),
            Err(error) => (Err(Arc::new(error)), RETRY),
        };
        let service = match (read, known.take()) {
            (
                Err(error),
                Some(Known {
                    service: Ok(service), ..
                }),
            ) => {
                let (origin, error) = (self.origin.as_str(), printable(&shortened(&error.to_string())));
                tracing::warn!(
                    service = origin,
                    error,
                    "newer rules of a service cannot be used; the known ones stay"
                );
                Ok(service)
            }
            (read, _) => read,
        };
        let until = Instant::now() + age;
        known.insert(Known { service, until }).service.clone()
    }

    async fn read(&self) -> Result<(Service, Duration), RulesError> {
        let (bytes, age) = match &self.source {
            Source::File(path) => {
                let failed = |error| RulesError::File {
                    path: path.clone(),
                    error,
                };
                (tokio::fs::read(path).await.map_err(failed)?, FILE_AGE)
            }
            Source::Url { url, client } => {
                let (url, client) = (url.clone(), Arc::clone(client));
                let document = tokio::task::spawn_blocking(move || client.get(&url)).await;
                let document = document.map_err(|_| RulesError::Cancelled)??;
                (
                    document.bytes,
                    document.max_age.unwrap_or(DEFAULT_AGE).clamp(LEAST_AGE, MOST_AGE),
                )
            }
        };
        // Thousands of rules take a while, and other services wait for none of them.
        let (origin, audience) = (self.origin.clone(), self.audience.clone());
        let compiling = move || Service::new(origin, &audience, &bytes);
        let service = tokio::task::spawn_blocking(compiling).await;
        let service = service.map_err(|_| RulesError::Cancelled)??;
        Ok((service, age))
    }
}

/// Where a service publishes its rules (RFC 8615).
const WELL_KNOWN: &str = "/.well-known/credence-agent-rules";
const MAX_BYTES: u64 = 8 << 20;
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// How long rules count that say nothing about it.
const DEFAULT_AGE: Duration = Duration::from_secs(300);
const LEAST_AGE: Duration = Duration::from_secs(30);
const MOST_AGE: Duration = Duration::from_secs(24 * 3_600);
/// A file is read again so often.
const FILE_AGE: Duration = Duration::from_secs(5);
/// After a failure.
const RETRY: Duration = Duration::from_secs(2);
