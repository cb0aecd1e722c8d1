//! A delegation that the proxy holds, and the narrower ones that it derives for its clients.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use credence_delegation::mint::{Grant, MintError};
use credence_delegation::{Denial, HeldChain, Limits, UnixTime, Value};
use tokio::sync::watch;
use uuid::Uuid;

use crate::settings::CredentialSettings;
use crate::signer::{SignError, Signer, SignerError};

/// A credential by its name in the settings.
#[derive(Debug)]
pub(crate) struct Credential {
    pub(crate) name: String,
    signer: Signer,
    file: PathBuf,
    state: watch::Sender<State>,
}

/// What it is now.
pub(crate) type State = Result<Arc<Held>, Arc<CredentialError>>;

/// A delegation and the key that proves it.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) chain: HeldChain,
    pub(crate) signer: Signer,
}

/// Why a credential cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    #[error(transparent)]
    Signer(#[from] SignerError),
    #[error("{path}: {error}", path = path.display())]
    File { path: PathBuf, error: std::io::Error },
    #[error("{path}: every service would deny this delegation: {denial} (step {step} of the draft's section 8)",
        path = path.display(), step = denial.step.name())]
    Denied { path: PathBuf, denial: Denial },
    #[error("{path}: the delegation is held by the key {holder}, not by the credential's key {key}", path = path.display())]
    OtherKey { path: PathBuf, holder: String, key: String },
}

/// What is derived for one client.
#[derive(Debug)]
pub(crate) struct Derived {
    tools: Value,
    signer: Signer,
    latest: Mutex<Option<Latest>>,
}

#[derive(Debug, Clone)]
struct Latest {
    /// The id of the token that it was derived from.
    parent: String,
    renew_at: UnixTime,
    held: Arc<Held>,
}

/// Why nothing was derived.
#[derive(Debug, thiserror::Error)]
enum DeriveError {
    #[error("{0}")]
    Mint(#[from] MintError),
    #[error("{0}")]
    Denied(#[from] Denial),
    #[error("{0}")]
    Sign(#[from] SignError),
}

// === impl Credential ===

impl Credential {
    pub(crate) fn open(settings: &CredentialSettings) -> Result<Self, CredentialError> {
        let file = settings.file.clone().unwrap_or_default();
        let signer = Signer::open(&settings.key)?;
        let held = read(&file, &signer)?;
        Ok(Self {
            name: settings.name.clone(),
            signer,
            file,
            state: watch::Sender::new(Ok(Arc::new(held))),
        })
    }

    /// Whether it can be used.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self.state() {
            Ok(held) if now() < held.chain.expires_at() => Ok(()),
            Ok(_) => Err(format!("the delegation of {} has expired", self.name)),
            Err(error) => Err(format!("{}: {error}", self.name)),
        }
    }

    pub(crate) fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// Reads the file again whenever it changes. Never returns.
    pub(crate) async fn follow(self: Arc<Self>) {
        let mut seen = modified(&self.file).await;
        loop {
            tokio::time::sleep(FILE_INTERVAL).await;
            let now = modified(&self.file).await;
            if now == seen {
                continue;
            }
            seen = now;
            let (file, signer) = (self.file.clone(), self.signer.clone());
            let read = tokio::task::spawn_blocking(move || read(&file, &signer)).await;
            match read {
                Ok(Ok(held)) => {
                    tracing::info!(
                        credential = self.name,
                        id = held.chain.id(),
                        "a new delegation is in use"
                    );
                    let _earlier = self.state.send_replace(Ok(Arc::new(held)));
                }
                // Half a file, or a wrong one: the known one counts until it expires.
                Ok(Err(error)) => {
                    tracing::warn!(credential = self.name, %error, "the new delegation cannot be used; the known one stays");
                }
                Err(_) => return,
            }
        }
    }
}

async fn modified(path: &Path) -> Option<SystemTime> {
    tokio::fs::metadata(path).await.ok()?.modified().ok()
}

fn read(path: &Path, signer: &Signer) -> Result<Held, CredentialError> {
    let text = std::fs::read_to_string(path).map_err(|error| CredentialError::File {
        path: path.to_owned(),
        error,
    })?;
    let chain = HeldChain::read(text.trim(), now(), &Limits::WIDEST).map_err(|denial| CredentialError::Denied {
        path: path.to_owned(),
        denial,
    })?;
    let (holder, key) = (chain.holder().map(|key| key.thumbprint()), signer.public().thumbprint());
    if holder != Some(key) {
        return Err(CredentialError::OtherKey {
            path: path.to_owned(),
            holder: holder.map(|holder| holder.to_string()).unwrap_or_default(),
            key: key.to_string(),
        });
    }
    Ok(Held {
        chain,
        signer: signer.clone(),
    })
}

// === impl Derived ===

impl Derived {
    /// Narrower delegations with these tools, held by a key of their own.
    pub(crate) fn new(tools: Value) -> Result<Self, SignerError> {
        Ok(Self {
            tools,
            signer: Signer::generate()?,
            latest: Mutex::default(),
        })
    }

    /// A delegation below this one, or this one if nothing can be derived from it. The proxy checks the tools itself, too.
    pub(crate) async fn from(&self, parent: &Arc<Held>) -> Arc<Held> {
        let now = now();
        let known = self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(known) = known
            && known.parent == parent.chain.id()
            && now < known.renew_at
        {
            return known.held;
        }
        if parent.chain.depth_left() == 0 || parent.chain.expires_at() <= now {
            return Arc::clone(parent);
        }
        let held = match self.derive(parent, now).await {
            Ok(held) => Arc::new(held),
            Err(error) => {
                tracing::warn!(%error, "nothing can be derived for a client, which gets less than its `tools`");
                Arc::clone(parent)
            }
        };
        let left = now.distance(held.chain.expires_at());
        let latest = Latest {
            parent: parent.chain.id().to_owned(),
            renew_at: now.plus((left / 3 * 2).max(1)),
            held: Arc::clone(&held),
        };
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(latest);
        held
    }

    async fn derive(&self, parent: &Held, now: UnixTime) -> Result<Held, DeriveError> {
        let depth = parent.chain.depth().saturating_add(1);
        let grant = Grant {
            id: Uuid::now_v7().to_string(),
            issued_at: now.max(parent.chain.issued_at()),
            expires_at: now.plus(DERIVED_LIFE.as_secs()).min(parent.chain.expires_at()),
            holder: self.signer.public(),
            holder_certificate: None,
            holder_spiffe_id: None,
            audience: Vec::new(),
            max_depth: depth,
            tools: self.tools.clone(),
        };
        let unsigned = parent.chain.derivation(&grant, &Limits::WIDEST)?;
        let token = parent.signer.sign(&unsigned).await?;
        Ok(Held {
            chain: parent.chain.with(&token, now, &Limits::WIDEST)?,
            signer: self.signer.clone(),
        })
    }
}

/// The current time.
pub(crate) fn now() -> UnixTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixTime(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

/// A derived delegation lives for so long at most.
const DERIVED_LIFE: Duration = Duration::from_secs(600);
/// A file is looked at so often.
const FILE_INTERVAL: Duration = Duration::from_secs(1);
