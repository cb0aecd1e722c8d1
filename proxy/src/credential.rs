//! What the proxy holds: a delegation or an access token, from a file or from an issuer.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use credence_delegation::{Denial, HeldChain, Limits, UnixTime};
use tokio::sync::{Notify, watch};

use crate::clock::now;
use crate::consent::Consent;
use crate::issuer::{Issuer, Tokens};
use crate::kept::Kept;
use crate::outbound::ConnectError;
use crate::settings::{CredentialSettings, TokenKind};
use crate::signer::{Signer, SignerError};

/// A credential by its name in the settings.
#[derive(Debug)]
pub(crate) struct Credential {
    pub(crate) name: String,
    signer: Signer,
    source: Source,
    state: watch::Sender<State>,
    /// A service says that it counts no longer.
    doubted: Notify,
}

#[derive(Debug)]
enum Source {
    File(PathBuf),
    Issuer(Issuer, Option<Kept>),
}

/// What it is now.
pub(crate) type State = Result<Arc<Held>, Arc<CredentialError>>;

/// A credential and the key that proves it.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) authority: Authority,
    pub(crate) signer: Signer,
}

/// What a request presents.
#[derive(Debug)]
pub(crate) enum Authority {
    Delegation(Box<HeldChain>),
    AccessToken {
        text: String,
        expires_at: UnixTime,
        /// The services that it is for.
        audience: Vec<String>,
    },
}

/// Why a credential cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CredentialError {
    #[error(transparent)]
    Signer(#[from] SignerError),
    #[error("{path}: {error}", path = path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("every service would deny this delegation: {0}; get a new one")]
    Denied(Denial),
    #[error("the delegation is held by the key {holder}, not by the credential's key {key}")]
    OtherKey { holder: String, key: String },
    #[error(transparent)]
    Issuer(#[from] ConnectError),
    #[error("a person has to grant it: open {0} in a browser on this machine")]
    NotGranted(String),
    #[error("the issuer is being asked")]
    Asking,
    #[error("no person can be asked: {0}")]
    Unasked(String),
}

// === impl Credential ===

impl Credential {
    pub(crate) fn open(settings: &CredentialSettings) -> Result<Self, CredentialError> {
        let signer = Signer::open(&settings.key)?;
        let (source, state) = match (&settings.issuer, &settings.file) {
            (Some(own), _) => {
                let issuer = own.url.clone();
                let kept = own.state.clone().map(|path| Kept { path, issuer });
                let source = Source::Issuer(Issuer::new(own, signer.clone())?, kept);
                (source, Err(Arc::new(CredentialError::Asking)))
            }
            (None, file) => {
                let file = file.clone().unwrap_or_default();
                let state = match read(&file, &signer) {
                    Ok(held) => Ok(Arc::new(held)),
                    // A restart must not make it worse: a new one may come.
                    Err(error @ CredentialError::Denied(_)) => {
                        tracing::error!(credential = settings.name, file = %file.display(), %error, "nothing is proven");
                        Err(Arc::new(error))
                    }
                    Err(error) => return Err(error),
                };
                (Source::File(file), state)
            }
        };
        Ok(Self {
            name: settings.name.clone(),
            signer,
            source,
            state: watch::Sender::new(state),
            doubted: Notify::new(),
        })
    }

    /// Whether it can be used.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self.state() {
            Ok(held) if now() < held.expires_at() => Ok(()),
            Ok(_) => Err(format!("{}: it has expired", self.name)),
            Err(error) => Err(format!("{}: {error}", self.name)),
        }
    }

    pub(crate) fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// A service has denied it: it may have been revoked.
    pub(crate) fn doubt(&self) {
        self.doubted.notify_one();
    }

    /// Keeps it up to date. Never returns.
    pub(crate) async fn follow(self: Arc<Self>) {
        match &self.source {
            Source::File(path) => self.follow_file(path).await,
            Source::Issuer(issuer, kept) => self.follow_issuer(issuer, kept.as_ref()).await,
        }
    }

    fn set(&self, state: State) {
        let _earlier = self.state.send_replace(state);
    }

    // === From a file ===

    async fn follow_file(&self, path: &Path) {
        let mut seen = modified(path).await;
        loop {
            tokio::time::sleep(FILE_INTERVAL).await;
            let now = modified(path).await;
            if now == seen {
                continue;
            }
            seen = now;
            match read(path, &self.signer) {
                Ok(held) => {
                    tracing::info!(credential = self.name, "a new delegation is in use");
                    self.set(Ok(Arc::new(held)));
                }
                // Half a file, or a wrong one: the known one counts until it expires.
                Err(error) if now.is_some() => {
                    tracing::warn!(credential = self.name, %error, "the new delegation cannot be used; the known one stays");
                }
                Err(error) => {
                    tracing::warn!(credential = self.name, %error, "the delegation is gone; nothing is proven");
                    self.set(Err(Arc::new(error)));
                }
            }
        }
    }

    // === From an issuer ===

    async fn follow_issuer(&self, issuer: &Issuer, kept: Option<&Kept>) {
        let mut refresh_token = kept.and_then(|kept| kept.read(&self.name));
        loop {
            if let Some(known) = refresh_token.take() {
                refresh_token = self.refresh(issuer, kept, known).await;
                if refresh_token.is_some() {
                    self.until_old().await;
                    continue;
                }
            }
            match self.ask(issuer).await {
                Ok(tokens) => refresh_token = self.take(issuer, kept, tokens),
                Err(error) => {
                    tracing::error!(credential = self.name, %error);
                    self.set(Err(Arc::new(error)));
                    tokio::time::sleep(LONGEST_PAUSE).await;
                }
            }
            if self.state().is_ok() {
                self.until_old().await;
            }
        }
    }

    /// Gets the next token, again and again until the issuer answers. `None` if the grant has ended.
    async fn refresh(&self, issuer: &Issuer, kept: Option<&Kept>, refresh_token: String) -> Option<String> {
        let mut pause = SHORTEST_PAUSE;
        loop {
            match issuer.refresh(&refresh_token).await {
                Ok(mut tokens) => {
                    tokens.refresh_token.get_or_insert(refresh_token);
                    return self.take(issuer, kept, tokens);
                }
                // Any other error may pass.
                Err(error) if error.ends_grant() => {
                    tracing::warn!(credential = self.name, %error, "the grant has ended; a person has to grant it again");
                    if let Some(kept) = kept {
                        kept.remove();
                    }
                    return None;
                }
                // The present token counts until it expires.
                Err(error) => {
                    tracing::warn!(credential = self.name, %error, "the issuer gives no new token yet");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    /// Waits for a person.
    async fn ask(&self, issuer: &Issuer) -> Result<Tokens, CredentialError> {
        issuer.metadata().await.map_err(unasked)?;
        let mut consent = Consent::open(issuer.clone()).await.map_err(unasked)?;
        tracing::warn!(
            credential = self.name,
            page = consent.url(),
            "a person has to grant what the agent may do: open the page in a browser on this machine"
        );
        self.set(Err(Arc::new(CredentialError::NotGranted(consent.url()))));
        consent.granted().await.map_err(unasked)
    }

    /// Uses what the issuer gave. Returns the refresh token.
    fn take(&self, issuer: &Issuer, kept: Option<&Kept>, tokens: Tokens) -> Option<String> {
        let Tokens {
            access_token,
            refresh_token,
            expires_in,
            ..
        } = tokens;
        let held = match issuer.settings().token {
            TokenKind::Delegation => delegation(&access_token, &self.signer),
            TokenKind::AccessToken => Ok(Held {
                authority: Authority::AccessToken {
                    text: access_token,
                    expires_at: now().plus(expires_in.unwrap_or(DEFAULT_LIFE.as_secs())),
                    audience: issuer.settings().audience.clone(),
                },
                signer: self.signer.clone(),
            }),
        };
        match held {
            Ok(held) => {
                tracing::info!(
                    credential = self.name,
                    expires_at = held.expires_at().0,
                    "the issuer gave a new token"
                );
                self.set(Ok(Arc::new(held)));
            }
            Err(error) => {
                tracing::error!(credential = self.name, %error, "what the issuer gave cannot be used");
                self.set(Err(Arc::new(error)));
            }
        }
        if let (Some(kept), Some(refresh_token)) = (kept, &refresh_token) {
            kept.write(&self.name, refresh_token);
        }
        refresh_token
    }

    /// Waits until two thirds of its life are over, or a service denies it.
    async fn until_old(&self) {
        let left = match self.state() {
            Ok(held) => now().distance(held.expires_at()),
            Err(_) => 0,
        };
        tokio::time::sleep(DOUBT_INTERVAL).await;
        let old = Duration::from_secs(left / 3 * 2).saturating_sub(DOUBT_INTERVAL);
        tokio::select! {
            () = tokio::time::sleep(old) => {}
            () = self.doubted.notified() => {}
        }
    }
}

// === impl Held ===

impl Held {
    pub(crate) fn expires_at(&self) -> UnixTime {
        match &self.authority {
            Authority::Delegation(chain) => chain.expires_at(),
            Authority::AccessToken { expires_at, .. } => *expires_at,
        }
    }
}

fn unasked(error: impl ToString) -> CredentialError {
    CredentialError::Unasked(error.to_string())
}

async fn modified(path: &Path) -> Option<SystemTime> {
    tokio::fs::metadata(path).await.ok()?.modified().ok()
}

fn read(path: &Path, signer: &Signer) -> Result<Held, CredentialError> {
    let failed = |error| CredentialError::File {
        path: path.to_owned(),
        error,
    };
    let text = std::fs::read_to_string(path).map_err(failed)?;
    delegation(text.trim(), signer)
}

fn delegation(text: &str, signer: &Signer) -> Result<Held, CredentialError> {
    let chain = HeldChain::read(text, now(), &Limits::WIDEST).map_err(CredentialError::Denied)?;
    let (holder, key) = (chain.holder().map(|key| key.thumbprint()), signer.public().thumbprint());
    if holder != Some(key) {
        return Err(CredentialError::OtherKey {
            holder: holder.map(|holder| holder.to_string()).unwrap_or_default(),
            key: key.to_string(),
        });
    }
    Ok(Held {
        authority: Authority::Delegation(Box::new(chain)),
        signer: signer.clone(),
    })
}

/// A file is looked at so often.
const FILE_INTERVAL: Duration = Duration::from_secs(1);
/// Of an access token without `expires_in`.
const DEFAULT_LIFE: Duration = Duration::from_secs(300);
/// Between two questions to the issuer, whatever services say.
const DOUBT_INTERVAL: Duration = Duration::from_secs(5);
const SHORTEST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
