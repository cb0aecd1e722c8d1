//! Opens SCIM and security events as configured, after the revocation log, which they change.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::metrics::Metrics;
use crate::scim::provisioning::Provisioning;
use crate::scim::store::Store;
use crate::security_events::keys::KeySource;
use crate::security_events::receiver::Receiver;
use crate::security_events::seen::Seen;
use crate::settings::{ScimSettings, TransmitterSettings};
use credence_revocation::RevocationLog;
use credence_runtime::supervision::BackgroundTask;
use credence_storage::folder_lock::FolderWatch;

/// SCIM and security events, if configured.
pub struct Identity {
    pub provisioning: Option<Arc<Provisioning>>,
    pub receiver: Option<Arc<Receiver>>,
    /// Tasks that run as long as the control plane.
    pub tasks: Vec<BackgroundTask>,
}

/// Limits of identity providers in memory, disk and time.
#[derive(Debug, Clone, Copy)]
pub struct IdentityLimits {
    /// The number of users in all SCIM realms together. Creating another one gets 507.
    pub users: u64,
    /// The size of one SCIM user on disk, in bytes. A larger one gets 413.
    pub user_bytes: usize,
    /// How long a search may take. Half of the request timeout, so that the client gets an answer that says so.
    pub search_timeout: Duration,
    /// The number of security event tokens that are remembered, so that none counts twice. Beyond it, further tokens
    /// get 503.
    pub event_ids: u64,
}

// === impl IdentityLimits ===

impl Default for IdentityLimits {
    fn default() -> Self {
        Self {
            users: 200_000,
            user_bytes: 32 << 10,
            search_timeout: Duration::from_secs(15),
            event_ids: 1_000_000,
        }
    }
}

/// Why identity providers cannot be served, and the fix.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct IdentityError(String);

// === impl Identity ===

impl Identity {
    /// `folder` is the data folder's `identity`, and locked with it.
    pub async fn open(
        folder: &Path,
        watch: &FolderWatch,
        scim: &[ScimSettings],
        security_events: &[TransmitterSettings],
        limits: IdentityLimits,
        log: &RevocationLog,
        metrics: &Arc<Metrics>,
    ) -> Result<Self, IdentityError> {
        let mut identity = Self {
            provisioning: None,
            receiver: None,
            tasks: Vec::new(),
        };
        if !scim.is_empty() {
            let IdentityLimits { users, user_bytes, .. } = limits;
            let watch = watch.clone();
            let store = opened(folder.join(USERS), move |path| {
                Store::open(path, watch.clone(), users, user_bytes)
            })
            .await?;
            identity.provisioning = Some(Arc::new(Provisioning::new(
                scim,
                store,
                log.clone(),
                Arc::clone(metrics),
                limits.search_timeout,
            )));
        }
        if !security_events.is_empty() {
            let limit = limits.event_ids;
            let watch = watch.clone();
            let seen = opened(folder.join(EVENTS), move |path| Seen::open(path, watch.clone(), limit)).await?;
            let mut sources = Vec::new();
            for transmitter in security_events {
                let source = KeySource::open(&transmitter.name, &transmitter.jwks, Arc::clone(metrics))
                    .await
                    .map_err(|error| {
                        IdentityError(format!("security_events: the keys of {:?}: {error}", transmitter.name))
                    })?;
                let source = Arc::new(source);
                let keeping = Box::pin(Arc::clone(&source).keep());
                identity.tasks.push(("the keys of security events", keeping));
                sources.push(source);
            }
            let receiver = Receiver::new(security_events, sources, seen, log.clone(), Arc::clone(metrics));
            let receiver = Arc::new(receiver);
            let forgetting = Box::pin(Arc::clone(&receiver).forget_old_ids());
            identity.tasks.push(("the ids of security events", forgetting));
            identity.receiver = Some(receiver);
        }
        Ok(identity)
    }
}

/// Opens a file in the data folder. If a control plane that has just ended in this process still holds the file's lock,
/// this waits for it.
async fn opened<T: Send + 'static>(
    path: PathBuf,
    open: impl Fn(&Path) -> Result<T, redb::Error> + Send + 'static,
) -> Result<T, IdentityError> {
    let opening = tokio::task::spawn_blocking(move || {
        let until = Instant::now() + LOCK_TIMEOUT;
        loop {
            match open(&path) {
                Err(redb::Error::DatabaseAlreadyOpen) if Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                result => {
                    return result.map_err(|error| {
                        IdentityError(format!(
                            "{}: {error}. Restore it from a backup, or remove it: what was revoked stays revoked, but \
                             users must be provisioned again, and events that were received count again if they are \
                             sent once more",
                            path.display()
                        ))
                    });
                }
            }
        }
    });
    opening
        .await
        .map_err(|_| IdentityError("opening the identity folder failed unexpectedly".to_owned()))?
}

const USERS: &str = "users";
const EVENTS: &str = "security-events";
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
