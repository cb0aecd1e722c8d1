//! A service that clients may call.

use std::sync::{Arc, Mutex, PoisonError};

use credence_agent::service::{Origin, Service, ServiceError};

use crate::outbound::{ConnectError, Connections, connections};
use crate::rules::{Rules, RulesError};
use crate::settings::ServiceSettings;

/// A service: its connections, its rules, and its latest nonce.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) origin: Origin,
    pub(crate) connections: Connections,
    rules: Rules,
    nonce: Mutex<Option<Arc<str>>>,
}

// === impl Upstream ===

impl Upstream {
    pub(crate) fn new(settings: &ServiceSettings) -> Result<Self, UpstreamError> {
        let origin = Origin::parse(&settings.url)?;
        Ok(Self {
            connections: connections(settings)?,
            rules: Rules::new(origin.clone(), settings),
            origin,
            nonce: Mutex::default(),
        })
    }

    pub(crate) async fn service(&self) -> Result<Arc<Service>, Arc<RulesError>> {
        self.rules.current().await
    }

    /// The nonce that the service gave last.
    pub(crate) fn nonce(&self) -> Option<Arc<str>> {
        self.nonce.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn remember_nonce(&self, nonce: &str) {
        *self.nonce.lock().unwrap_or_else(PoisonError::into_inner) = Some(nonce.into());
    }
}

/// Why a service cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    #[error(transparent)]
    Origin(#[from] ServiceError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
}
