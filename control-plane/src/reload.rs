//! Takes over, while everything runs, what may change without a restart: the credentials and the TLS files.

use std::path::PathBuf;

use crate::access::{Access, AccessControl, read_operator_token};
use crate::settings::Settings;
use crate::tls::{TlsMetrics, TlsPorts};
use crate::unusable::Unusable;
use credence_runtime::metrics::labels;

/// Replaces what is in force, all of it or nothing. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Reloader {
    pub(crate) operator_token_file: Option<PathBuf>,
    pub(crate) access: AccessControl,
    pub(crate) tls: TlsPorts,
    pub(crate) metrics: TlsMetrics,
}

// === impl Reloader ===

impl Reloader {
    /// Blocks for as long as the files take to be read.
    pub(crate) fn reload(&self, settings: &Settings) -> Result<(), Unusable> {
        settings.check().map_err(Unusable::new)?;
        let operator = self
            .operator_token_file
            .as_deref()
            .map(read_operator_token)
            .transpose()?;
        let access = Access::new(&settings.access, settings.grpc_access(), operator);
        self.tls.replace(&settings.tls)?;
        self.access.send_replace(access);
        Ok(())
    }

    /// Counts an attempt, wherever it failed.
    pub(crate) fn count(&self, succeeded: bool) {
        let outcome = if succeeded { "success" } else { "failure" };
        self.metrics
            .configuration_reloads
            .get_or_create(&labels([("outcome", outcome)]))
            .inc();
    }
}
