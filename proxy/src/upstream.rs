//! A service that clients may call.

use std::sync::{Arc, Mutex, PoisonError};

use credence_agent::service::Origin;

use crate::outbound::{ConnectError, Connections, connections};
use crate::rules::Rules;
use crate::settings::ServiceSettings;

/// A service: its connections, its rules, and its latest nonce.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) origin: Origin,
    pub(crate) connections: Connections,
    pub(crate) rules: Rules,
    nonce: Mutex<Option<Arc<str>>>,
}

// === impl Upstream ===

impl Upstream {
    pub(crate) fn new(settings: &ServiceSettings) -> Result<Self, ConnectError> {
        let origin = Origin::parse(&settings.url)?;
        Ok(Self {
            connections: connections(
                &settings.url,
                settings.ca.as_deref(),
                settings.certificate.as_ref(),
                settings.http2,
            )?,
            rules: Rules::new(origin.clone(), settings),
            origin,
            nonce: Mutex::default(),
        })
    }

    /// Keeps its rules up to date. Never returns.
    pub(crate) async fn follow(self: Arc<Self>) {
        self.rules.follow(&self.connections).await;
    }

    /// The nonce that the service gave last.
    pub(crate) fn nonce(&self) -> Option<Arc<str>> {
        self.nonce.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn remember_nonce(&self, nonce: &str) {
        *self.nonce.lock().unwrap_or_else(PoisonError::into_inner) = Some(nonce.into());
    }
}
