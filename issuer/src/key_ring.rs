//! The keys that count now: another process may rotate them while the issuer runs.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use crate::keys::Keys;

#[derive(Debug)]
pub(crate) struct KeyRing(RwLock<Arc<Keys>>);

// === impl KeyRing ===

impl KeyRing {
    pub(crate) fn new(keys: Keys) -> Self {
        Self(RwLock::new(Arc::new(keys)))
    }

    pub(crate) fn now(&self) -> Arc<Keys> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Opens the file again whenever it has changed. Until it can be read, the earlier keys count.
    pub(crate) async fn follow(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let keys = self.now();
            let reloaded = tokio::task::spawn_blocking(move || match keys.is_current()? {
                true => Ok(None),
                false => keys.reload().map(Some),
            });
            match reloaded.await {
                Ok(Ok(None)) => {}
                Ok(Ok(Some(keys))) => {
                    *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
                    tracing::info!("the signing keys were read again");
                }
                Ok(Err(error)) => tracing::error!(%error, "the signing keys cannot be read again"),
                Err(error) => tracing::error!(%error, "the signing keys cannot be read again"),
            }
        }
    }
}

const LOOK_EVERY: Duration = Duration::from_secs(1);
