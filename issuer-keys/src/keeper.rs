//! Fetches in time, and hands the keys to the log.
//!
//! Replicas share one log: a replica does not fetch what another one has fetched a moment ago. What a fetch changes is
//! decided by the log's writer, from the state that all of them see.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use credence_revocation::{FetchedKeys, Issuer, Operation, Order, Requester, RevocationLog, Source};
use credence_runtime::metrics::{count, labels};
use credence_runtime::supervision::BackgroundTask;

use crate::fetch::{Fetched, fetch};
use crate::metrics::Metrics;
use crate::settings::IssuerKeysSettings;

/// Keeps the keys of one issuer up to date.
struct Keeper {
    settings: IssuerKeysSettings,
    issuer: Issuer,
    log: RevocationLog,
    metrics: Arc<Metrics>,
}

/// A task for each issuer, for as long as the control plane runs.
pub fn tasks(issuers: &[IssuerKeysSettings], log: &RevocationLog, metrics: &Arc<Metrics>) -> Vec<BackgroundTask> {
    let keepers = issuers.iter().filter_map(|settings| {
        Some(Keeper {
            settings: settings.clone(),
            // The settings are checked.
            issuer: Issuer::parse(settings.issuer.clone()).ok()?,
            log: log.clone(),
            metrics: Arc::clone(metrics),
        })
    });
    keepers
        .map(|keeper| -> BackgroundTask { ("the keys of issuers", Box::pin(keeper.keep())) })
        .collect()
}

// === impl Keeper ===

impl Keeper {
    async fn keep(self) {
        let refresh = Duration::from_secs(self.settings.refresh_s.into());
        let (mut interval, mut failures) = (refresh, 0);
        loop {
            let pause = match self.until_due(interval) {
                Some(rest) => rest,
                None => match self.attempt().await {
                    Ok(max_age) => {
                        failures = 0;
                        interval = max_age.map_or(refresh, |max_age| max_age.clamp(refresh.min(SHORTEST), refresh));
                        interval
                    }
                    Err(error) => {
                        failures += 1;
                        tracing::warn!(
                            issuer = self.settings.issuer,
                            %error,
                            "the keys of an issuer could not be fetched; the last ones stay trusted until \
                             max_key_age_s is over"
                        );
                        FIRST_RETRY.saturating_mul(1 << failures.min(4)).min(refresh)
                    }
                },
            };
            self.note();
            tokio::time::sleep(pause).await;
        }
    }

    /// How long the last fetch of any replica stays recent.
    fn until_due(&self, interval: Duration) -> Option<Duration> {
        let fetched_at = self.log.issuer_keys(self.issuer.as_str())?.fetched_at;
        let age = u64::try_from(now().saturating_sub(fetched_at)).ok()?;
        // A replica's turn comes when nine tenths of the time are over, so that the first one to wake is the one.
        let recent = interval.mul_f32(0.9).checked_sub(Duration::from_secs(age))?;
        (!recent.is_zero()).then_some(recent)
    }

    async fn attempt(&self) -> Result<Option<Duration>, String> {
        let settings = self.settings.clone();
        let fetched = tokio::task::spawn_blocking(move || fetch(&settings)).await;
        let outcome = match fetched.map_err(|error| error.to_string()) {
            Ok(Ok(fetched)) => self.store(fetched).await,
            Ok(Err(error)) => Err(error.to_string()),
            Err(error) => Err(error),
        };
        let counted = if outcome.is_ok() { "fetched" } else { "failed" };
        let pairs = [("issuer", self.issuer.as_str()), ("outcome", counted)];
        count(&self.metrics.fetches, pairs);
        outcome
    }

    async fn store(&self, fetched: Fetched) -> Result<Option<Duration>, String> {
        let order = Order {
            operation: Operation::SetIssuerKeys(FetchedKeys {
                issuer: self.issuer.clone(),
                keys: fetched.keys,
                max_age: self.settings.max_key_age_s.into(),
                // Two fetches of one replica are as far apart; those of two replicas at the same time are not.
                apart: i64::from(self.settings.refresh_s / 2).max(1),
            }),
            by: Requester {
                source: Source::KeyFetch,
                name: self.settings.issuer.clone(),
            },
            reason: None,
        };
        let receipt = self.log.perform(order).await.map_err(|error| error.to_string())?;
        if receipt.changed {
            tracing::debug!(
                issuer = self.settings.issuer,
                seq = receipt.seq,
                "the keys of an issuer were recorded"
            );
        }
        Ok(fetched.max_age)
    }

    fn note(&self) {
        // Without a fetch yet, trust has ended at the beginning of time, which alerts.
        let keys = self.log.issuer_keys(self.issuer.as_str()).unwrap_or_default();
        let label = || labels([("issuer", self.issuer.as_str())]);
        let number = i64::try_from(keys.keys.len()).unwrap_or(i64::MAX);
        self.metrics.keys.get_or_create(&label()).set(number);
        self.metrics
            .trusted_until
            .get_or_create(&label())
            .set(keys.trusted_until);
    }
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// However short the issuer's caches: no issuer is asked more often, unless `refresh_s` says so.
const SHORTEST: Duration = Duration::from_secs(10);
/// After the first failure; each further one doubles it, up to `refresh_s`.
const FIRST_RETRY: Duration = Duration::from_secs(1);
