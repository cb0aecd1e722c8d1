//! The rules that services publish: fetched from the service itself, and kept for as long as it says.

use std::sync::Arc;
use std::time::Duration;

use credence_agent::service::{Origin, Service};
use credence_agent::terminal::{printable, shortened};
use credence_runtime::outbound::max_age;
use http::header::{ACCEPT, CACHE_CONTROL};
use http::{Request, StatusCode};
use tokio::sync::watch;

use crate::outbound::{Connections, fetched, whole};
use crate::settings::ServiceSettings;

/// The rules of one service.
#[derive(Debug)]
pub(crate) struct Rules {
    origin: Origin,
    audience: Vec<String>,
    /// A file or a URL.
    place: String,
    is_file: bool,
    known: watch::Sender<Option<Known>>,
}

/// The service with its rules, or why there are none.
type Known = Result<Arc<Service>, Arc<str>>;

// === impl Rules ===

impl Rules {
    pub(crate) fn new(origin: Origin, settings: &ServiceSettings) -> Self {
        let published = || format!("{}{WELL_KNOWN}", origin.as_str());
        Self {
            place: settings.rules.clone().unwrap_or_else(published),
            is_file: settings.rules_file().is_some(),
            origin,
            audience: settings.audience.clone(),
            known: watch::Sender::default(),
        }
    }

    /// The service with its current rules. Waits for the first ones.
    pub(crate) async fn current(&self) -> Known {
        let mut known = self.known.subscribe();
        let found = known.wait_for(Option::is_some).await;
        let found = found.ok().and_then(|known| known.clone());
        found.unwrap_or_else(|| Err("they are not read any more".into()))
    }

    /// Keeps them up to date. If newer ones cannot be read, the known ones stay. Never returns.
    pub(crate) async fn follow(&self, connections: &Connections) {
        let origin = self.origin.as_str();
        let mut latest_error = String::new();
        loop {
            let age = match self.read(connections).await {
                Ok((service, age)) => {
                    latest_error.clear();
                    self.known.send_replace(Some(Ok(Arc::new(service))));
                    age
                }
                Err(error) => {
                    let error = printable(&shortened(&error));
                    if error != latest_error {
                        tracing::warn!(service = origin, error, "the rules of a service cannot be used");
                    }
                    let has_rules = matches!(*self.known.borrow(), Some(Ok(_)));
                    if !has_rules {
                        self.known.send_replace(Some(Err(error.as_str().into())));
                    }
                    latest_error = error;
                    RETRY
                }
            };
            tokio::time::sleep(age).await;
        }
    }

    async fn read(&self, connections: &Connections) -> Result<(Service, Duration), String> {
        let place = self.place.clone();
        let failed = |problem: String| format!("{place}: {problem}");
        let (bytes, age) = if self.is_file {
            let read = tokio::fs::read(&self.place).await;
            (read.map_err(|error| failed(error.to_string()))?.into(), FILE_AGE)
        } else {
            let request = Request::get(&self.place)
                .header(ACCEPT, "application/json")
                .body(whole(""));
            let request = request.map_err(|error| failed(error.to_string()))?;
            let answer = fetched(connections, request, (MAX_BYTES, FETCH_TIME))
                .await
                .map_err(failed)?;
            if answer.status() != StatusCode::OK {
                let hint = "publish there what `credence config describe --for-agents` prints";
                return Err(failed(format!("the answer is {}; {hint}", answer.status())));
            }
            let age = answer
                .headers()
                .get(CACHE_CONTROL)
                .and_then(|value| value.to_str().ok());
            let age = age.and_then(max_age).unwrap_or(DEFAULT_AGE);
            (answer.into_body(), age.clamp(LEAST_AGE, MOST_AGE))
        };
        // Thousands of rules take a while, and other services wait for none of them.
        let (origin, audience) = (self.origin.clone(), self.audience.clone());
        let compiling = move || Service::new(origin, &audience, &bytes).map_err(|error| format!("{place}: {error}"));
        let service = tokio::task::spawn_blocking(compiling).await;
        let service = service.unwrap_or_else(|_| Err("they could not be read".to_owned()))?;
        Ok((service, age))
    }
}

/// Where a service publishes its rules (RFC 8615).
const WELL_KNOWN: &str = "/.well-known/credence-agent-rules";
const MAX_BYTES: usize = 8 << 20;
const FETCH_TIME: Duration = Duration::from_secs(10);
/// How long rules count that say nothing about it.
const DEFAULT_AGE: Duration = Duration::from_secs(300);
const LEAST_AGE: Duration = Duration::from_secs(30);
const MOST_AGE: Duration = Duration::from_secs(24 * 3_600);
/// A file is read again so often.
const FILE_AGE: Duration = Duration::from_secs(5);
/// After a failure.
const RETRY: Duration = Duration::from_secs(2);
