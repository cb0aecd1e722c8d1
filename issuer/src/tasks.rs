//! What happens without a request: revocations that have to be repeated, evidence on its way to the ledger, and
//! forgetting.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use uuid::Uuid;

use crate::app::{App, now};
use crate::events::{self, Source};
use crate::grants::Grant;
use crate::plane::{Plane, PlaneError, Progress};
use crate::store::{Store, StoreError};

/// Why something is tried again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TaskError {
    #[error(transparent)]
    Plane(#[from] PlaneError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Revokes the tokens of a grant that has ended.
pub(crate) async fn revoke(app: &App, id: Uuid) -> Result<Progress, TaskError> {
    let Some(grant) = app.grants.find(id)?.filter(|grant| grant.withdrawn.is_some()) else {
        return Ok(Progress::Confirmed);
    };
    let now = now();
    let live = grant.live.iter().filter(|token| token.expires_at > now);
    let tokens = live.map(|token| Grant::token_id(id, token.number));
    // The grant's own id, too: if this database is replaced by an older copy, the log still knows.
    let ids: Vec<String> = [id.to_string()].into_iter().chain(tokens).collect();
    let progress = app.plane.revoke(&app.url, &grant.subject, &ids).await?;
    app.grants.mark_revoked(id).await?;
    Ok(progress)
}

/// Revokes the tokens of all grants that have ended while the control plane did not answer.
pub(crate) async fn revoke_the_rest(app: Arc<App>) {
    let mut last = Uuid::nil();
    loop {
        let unrevoked = app.grants.unrevoked(last);
        let unrevoked = unrevoked.inspect_err(|error| tracing::error!(%error, "grants cannot be read"));
        let (ids, waiting) = unrevoked.unwrap_or_default();
        app.metrics.revocations_waiting.set(waiting.cast_signed());
        last = ids.last().copied().unwrap_or_default();
        for id in &ids {
            if let Err(error) = revoke(&app, *id).await {
                tracing::warn!(%error, grant = %id, "the tokens of a grant that has ended are not revoked yet");
            }
        }
        if ids.is_empty() {
            tokio::time::sleep(REVOKE_EVERY).await;
        }
    }
}

/// Sends events to the ledger.
pub(crate) async fn report(app: Arc<App>) {
    let mut at_most = MAX_TOGETHER;
    loop {
        if let Ok(waiting) = events::waiting(&app.store) {
            app.metrics.events_waiting.set(waiting.cast_signed());
        }
        let refused = &app.metrics.events_refused;
        match report_some(&app.store, &app.plane, &app.url, at_most, refused).await {
            Ok(Some(next)) => at_most = next,
            Ok(None) => tokio::time::sleep(REPORT_EVERY).await,
            Err(error) => {
                tracing::warn!(%error, "events did not reach the ledger yet");
                tokio::time::sleep(REPORT_AGAIN).await;
            }
        }
    }
}

/// Sends this many. Returns how many to send next, if there may be more.
async fn report_some(
    store: &Store,
    plane: &Plane,
    url: &str,
    at_most: usize,
    refused: &Counter,
) -> Result<Option<usize>, TaskError> {
    let waiting = events::oldest(store, MAX_TOGETHER)?;
    let known = match events::source(store)? {
        None if waiting.is_empty() => return Ok(None),
        None => None,
        // To ask also keeps the source alive. What the ledger has beyond what is known here is the beginning of the
        // events that wait. Anything else means that one of the two was restored from a copy: then a new source begins,
        // so that no event is taken for one that was sent.
        Some(source) => plane.source(&source.ticket).await?.and_then(|position| {
            let sent = position.acknowledged.checked_sub(source.acknowledged)?;
            let sent = usize::try_from(sent).ok().filter(|sent| *sent <= waiting.len())?;
            Some((source, sent))
        }),
    };
    let (mut source, sent_before) = match known {
        Some(known) => known,
        None => {
            let ticket = plane.begin_source(url).await?.ticket;
            let source = Source {
                ticket,
                acknowledged: 0,
            };
            events::acknowledge(store, 0, source.clone()).await?;
            (source, 0)
        }
    };
    let end = waiting.len().min(sent_before.saturating_add(at_most));
    let mut sent = end;
    if let [event, others @ ..] = &waiting[sent_before..end] {
        let first = source.acknowledged.saturating_add(sent_before as u64 + 1);
        match plane
            .report(&source.ticket, batch(first, &waiting[sent_before..end]))
            .await
        {
            // One that the ledger refuses must not hold up the others.
            Err(PlaneError::Status { status: 400, .. }) if !others.is_empty() => return Ok(Some(1)),
            Err(PlaneError::Status { status: 400, detail }) => {
                let event = String::from_utf8_lossy(&event.1);
                tracing::error!(%event, detail, "the ledger refuses an event, which is only in this log");
                refused.inc();
                sent = sent_before;
            }
            reported => _ = reported?,
        }
    }
    let Some((last, _)) = end.checked_sub(1).map(|last| &waiting[last]) else {
        return Ok(None);
    };
    source.acknowledged = source.acknowledged.saturating_add(sent as u64);
    events::acknowledge(store, *last, source).await?;
    let is_all = end == waiting.len() && end < MAX_TOGETHER;
    Ok((!is_all).then_some(MAX_TOGETHER))
}

/// The body of a batch.
fn batch(first: u64, events: &[(u64, Vec<u8>)]) -> String {
    let entries: Vec<_> = events.iter().map(|(_, event)| String::from_utf8_lossy(event)).collect();
    format!(r#"{{"first_sequence":{first},"entries":[{}]}}"#, entries.join(","))
}

/// Forgets grants a while after their end.
pub(crate) async fn forget(app: Arc<App>, kept_seconds: u64) {
    loop {
        match app.grants.forget(now().saturating_sub(kept_seconds)).await {
            Ok(0) => tokio::time::sleep(FORGET_EVERY).await,
            Ok(_) => {}
            Err(error) => {
                tracing::error!(%error, "old grants cannot be forgotten");
                tokio::time::sleep(FORGET_EVERY).await;
            }
        }
    }
}

const REVOKE_EVERY: Duration = Duration::from_secs(2);
const REPORT_EVERY: Duration = Duration::from_millis(500);
const REPORT_AGAIN: Duration = Duration::from_secs(2);
const FORGET_EVERY: Duration = Duration::from_secs(3_600);
/// Events in one batch; the ledger accepts 1,000.
const MAX_TOGETHER: usize = 256;

#[cfg(test)]
#[path = "tasks_tests.rs"]
mod tests;
