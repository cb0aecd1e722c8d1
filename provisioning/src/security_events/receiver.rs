//! Receives tokens: verifies, revokes, remembers, and only then acknowledges.
//!
//! | the token | what is done | the answer |
//! |---|---|---|
//! | is new | its operations, durable and broadcast; then it is remembered, durably | 202 |
//! | was received before, with the same bytes | nothing | 202: its transmitter may have missed the answer |
//! | has the `jti` of another received one | nothing | 400 |
//! | has no event of a known type | nothing, but it is remembered | 202 |
//! | cannot be applied now | it is not remembered, so that it can be sent again | 503 or another error |
//!
//! After a crash between revoking and remembering, the transmitter has had no answer, and sends the token again. Then a
//! raise is made twice, which revokes no more than a single one.

use std::sync::Arc;
use std::time::Duration;

use credence_delegation::json::{Json, Object};
use sha2::{Digest as _, Sha256};
use tokio::sync::Mutex;

use super::event::{self, Consequence};
use super::keys::{KeySet, KeySource};
use super::refusal::Refusal;
use super::seen::{Memory, Seen};
use super::subject;
use super::token::{self, NotVerified, Unverified};
use crate::metrics::Metrics;
use crate::settings::TransmitterSettings;
use credence_revocation::{Operation, Order, PrincipalName, Requester, RevocationLog, RevokeError, Source};
use credence_runtime::caller::Caller;
use credence_runtime::metrics::count;
use credence_runtime::time::unix_seconds;

/// The state behind the route.
#[derive(Debug)]
pub struct Receiver {
    transmitters: Vec<Arc<Transmitter>>,
    seen: Arc<Seen>,
    log: RevocationLog,
    metrics: Arc<Metrics>,
}

#[derive(Debug)]
pub struct Transmitter {
    settings: TransmitterSettings,
    keys: Arc<KeySource>,
    /// No other transmitter reports about the same principals.
    is_alone: bool,
    /// Held while a token is applied: two equal tokens must not both be new.
    receiving: Arc<Mutex<()>>,
}

/// Why a token was not applied.
#[derive(Debug)]
pub enum NotTaken {
    /// Permanently: sending it again will not help.
    Refused(Refusal),
    /// The revocation was refused, temporarily or permanently.
    Revocation(RevokeError),
    /// It should be sent again later.
    Unavailable(String),
}

/// The changes that a token requests.
#[derive(Debug)]
struct Plan {
    operations: Vec<(Consequence, PrincipalName, String)>,
    outcome: &'static str,
    memory: Memory,
}

// === impl Receiver ===

impl Receiver {
    /// `sources` are the transmitters' keys, in the same order.
    pub(crate) fn new(
        settings: &[TransmitterSettings],
        sources: Vec<Arc<KeySource>>,
        seen: Seen,
        log: RevocationLog,
        metrics: Arc<Metrics>,
    ) -> Self {
        let all = settings;
        let transmitters = all.iter().zip(sources).map(|(settings, keys)| {
            Arc::new(Transmitter {
                settings: settings.clone(),
                keys,
                is_alone: !settings.shares_principals_with_any(all),
                receiving: Arc::default(),
            })
        });
        Self {
            transmitters: transmitters.collect(),
            seen: Arc::new(seen),
            log,
            metrics,
        }
    }

    /// The transmitter of the credential.
    pub fn transmitter_of(&self, caller: &Caller) -> Result<&Arc<Transmitter>, Refusal> {
        let transmitter = self
            .transmitters
            .iter()
            .find(|transmitter| transmitter.settings.credentials.contains(&caller.name));
        match transmitter {
            None => Err(Refusal::access_denied(format!(
                "the credential {:?} belongs to no transmitter; name it in security_events: credentials",
                caller.name
            ))),
            Some(transmitter) if !caller.covers(&transmitter.settings.principal_issuer) => {
                Err(Refusal::access_denied(format!(
                    "the credential {:?} is bound to other issuers than the transmitter's principals' (access: \
                     issuers)",
                    caller.name
                )))
            }
            Some(transmitter) => Ok(transmitter),
        }
    }

    /// Applies a token. On success it was applied, now or before.
    pub async fn receive(self: &Arc<Self>, transmitter: &Arc<Transmitter>, text: &str) -> Result<(), NotTaken> {
        let outcome = self.take(transmitter, text).await;
        let counted = match &outcome {
            Ok(outcome) => outcome,
            Err(NotTaken::Refused(refusal)) => refusal.err,
            Err(NotTaken::Revocation(_) | NotTaken::Unavailable(_)) => "unavailable",
        };
        let pairs = [("transmitter", &*transmitter.settings.name), ("outcome", counted)];
        count(&self.metrics.security_events, pairs);
        outcome.map(drop)
    }

    async fn take(self: &Arc<Self>, transmitter: &Arc<Transmitter>, text: &str) -> Result<&'static str, NotTaken> {
        let claims = transmitter.verify(text).await?;
        let plan = transmitter.plan(&claims, text, unix_seconds())?;
        let receiving = Arc::clone(&transmitter.receiving).lock_owned().await;
        let this = Arc::clone(self);
        // Continues even if the caller no longer waits for the answer.
        let work = tokio::spawn(async move {
            let _receiving = receiving;
            this.carry_out(plan).await
        });
        work.await.unwrap_or_else(|_| {
            Err(NotTaken::Unavailable(
                "applying the token failed unexpectedly; send it again".to_owned(),
            ))
        })
    }

    async fn carry_out(&self, plan: Plan) -> Result<&'static str, NotTaken> {
        let Plan {
            operations,
            mut outcome,
            memory,
        } = plan;
        let (transmitter, id) = (memory.transmitter.clone(), memory.id.clone());
        match self.reading(move |seen| seen.digest(&transmitter, &id)).await? {
            Some(digest) if digest == memory.digest => return Ok("repeated"),
            Some(_) => {
                return Err(NotTaken::Refused(Refusal::invalid_request(
                    "another token with this jti was received before (RFC 8417 section 2.2: it is unique)",
                )));
            }
            None => {}
        }
        if !self.reading(Seen::has_room).await? {
            return Err(NotTaken::Unavailable(
                "the limit of remembered security events is reached; send the token again later, and raise \
                 --security-event-ids"
                    .to_owned(),
            ));
        }
        for (consequence, principal, subject) in operations {
            let operation = match consequence {
                Consequence::Acknowledge => continue,
                Consequence::Raise => Operation::Raise { principal, from: None },
                Consequence::Disable => Operation::Disable(principal),
                Consequence::Enable => {
                    let transmitter = memory.transmitter.clone();
                    let disabled_at = self
                        .reading(move |seen| seen.disabled_at(&transmitter, &subject))
                        .await?;
                    if disabled_at.is_some_and(|disabled_at| disabled_at > memory.issued_at) {
                        outcome = "outdated";
                        continue;
                    }
                    Operation::Enable(principal)
                }
            };
            let order = Order {
                operation,
                by: Requester {
                    source: Source::SecurityEvent,
                    name: memory.transmitter.clone(),
                },
                reason: None,
            };
            self.log.perform(order).await.map_err(NotTaken::Revocation)?;
        }
        self.reading(move |seen| seen.remember(&memory)).await?;
        self.report().await;
        Ok(outcome)
    }

    /// Forgets tokens that are too old to be accepted, once a minute, for as long as it is polled.
    pub(crate) async fn forget_old_ids(self: Arc<Self>) {
        loop {
            if let Err(NotTaken::Unavailable(error)) = self.reading(|seen| seen.forget(unix_seconds())).await {
                tracing::warn!(
                    error,
                    "old security events could not be forgotten; it will be tried again"
                );
            }
            self.report().await;
            tokio::time::sleep(FORGET_INTERVAL).await;
        }
    }

    async fn report(&self) {
        if let Ok(count) = self.reading(Seen::len).await {
            self.metrics
                .security_event_ids
                .set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// Runs on a thread that may wait for the disk.
    async fn reading<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Seen) -> Result<T, redb::Error> + Send + 'static,
    ) -> Result<T, NotTaken> {
        let seen = Arc::clone(&self.seen);
        match tokio::task::spawn_blocking(move || work(&seen)).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) => Err(NotTaken::Unavailable(format!(
                "the token cannot be remembered: {error}"
            ))),
            Err(_) => Err(NotTaken::Unavailable(
                "reading failed unexpectedly; send the token again".to_owned(),
            )),
        }
    }
}

// === impl Transmitter ===

impl Transmitter {
    /// The claims, if one of the transmitter's keys has signed them. For an unknown key, the keys are read again.
    async fn verify(&self, text: &str) -> Result<Vec<u8>, NotTaken> {
        let unverified = Unverified::parse(text, &self.settings.algorithms)?;
        let mut verified = unverified.verify(&*self.keys()?);
        if verified == Err(NotVerified::NoSuchKey) {
            self.keys.refresh().await;
            verified = unverified.verify(&*self.keys()?);
        }
        verified.map_err(|problem| match problem {
            NotVerified::WrongSignature => {
                Refusal::new("authentication_failed", "the signature is not that of the key").into()
            }
            NotVerified::NoSuchKey => Refusal::new(
                "invalid_key",
                "the transmitter's JWK set has no key of that kid that fits alg; it is read again at most once a \
                 minute",
            )
            .into(),
        })
    }

    fn keys(&self) -> Result<Arc<KeySet>, NotTaken> {
        self.keys.keys().ok_or_else(|| {
            NotTaken::Unavailable("the transmitter's keys could not be fetched yet; send the token again".to_owned())
        })
    }

    fn plan(&self, claims: &[u8], text: &str, now: i64) -> Result<Plan, Refusal> {
        let json = Json::parse(claims).map_err(|error| Refusal::invalid_request(format!("the claims: {error}")))?;
        let claims: &Object<'_> = json
            .as_object()
            .ok_or_else(|| Refusal::invalid_request("the claims are not an object"))?;
        let about = token::check(claims, &self.settings, now)?;
        let mut operations = Vec::new();
        let mut disabled = Vec::new();
        let mut outcome = "ignored";
        for event in event::known(claims)? {
            if event.consequence == Consequence::Acknowledge {
                if outcome == "ignored" {
                    outcome = "acknowledged";
                }
                continue;
            }
            if event.consequence == Consequence::Enable && !self.is_alone {
                // The log records that security events disabled the principal, but not which transmitter. One
                // transmitter must not enable what another one has disabled.
                if outcome != "performed" {
                    outcome = "withheld";
                }
                continue;
            }
            outcome = "performed";
            let principal = subject::principal(claims, event.payload, &self.settings)?;
            let subject = principal.to_wire().subject.unwrap_or_default();
            if event.consequence == Consequence::Disable {
                disabled.push(subject.clone());
            }
            operations.push((event.consequence, principal, subject));
        }
        // If one token has several events, the one that revokes most comes last.
        operations.sort_by_key(|(consequence, ..)| *consequence);
        Ok(Plan {
            operations,
            outcome,
            memory: Memory {
                transmitter: self.settings.name.clone(),
                id: about.id,
                digest: Sha256::digest(text).into(),
                issued_at: about.issued_at,
                until: token::worthless_after(about.issued_at, &self.settings),
                disabled,
            },
        })
    }
}

impl From<Refusal> for NotTaken {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

const FORGET_INTERVAL: Duration = Duration::from_secs(60);
