//! What happens without a request: revocations that have to be repeated, evidence on its way to the ledger, and
//! forgetting.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::app::{App, now};
use crate::events::{self, Source};
use crate::grants::Grant;
use crate::plane::{PlaneError, Progress};
use crate::store::StoreError;

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
        match report_some(&app, at_most).await {
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
async fn report_some(app: &App, at_most: usize) -> Result<Option<usize>, TaskError> {
    let waiting = events::oldest(&app.store, at_most)?;
    let known = match events::source(&app.store)? {
        None if waiting.is_empty() => return Ok(None),
        None => None,
        // To ask also keeps the source alive. What the ledger has beyond what is known here is the beginning of the
        // events that wait. Anything else means that one of the two was restored from a copy: then a new source begins,
        // so that no event is taken for one that was sent.
        Some(source) => app.plane.source(&source.ticket).await?.and_then(|position| {
            let sent = position.acknowledged.checked_sub(source.acknowledged)?;
            let sent = usize::try_from(sent).ok().filter(|sent| *sent <= waiting.len())?;
            Some((source, sent))
        }),
    };
    let (mut source, sent_before) = match known {
        Some(known) => known,
        None => {
            let position = app.plane.begin_source(&app.url).await?;
            let source = Source {
                ticket: position.ticket,
                acknowledged: 0,
            };
            events::acknowledge(&app.store, 0, source.clone()).await?;
            (source, 0)
        }
    };
    if waiting.is_empty() {
        return Ok(None);
    }
    let first = source.acknowledged.saturating_add(sent_before as u64 + 1);
    let mut sent = waiting.len();
    if sent_before < sent {
        match app
            .plane
            .report(&source.ticket, batch(first, &waiting[sent_before..]))
            .await
        {
            // One that the ledger refuses must not hold up the others.
            Err(PlaneError::Status { status: 400, detail }) if waiting.len() == 1 => {
                let event = String::from_utf8_lossy(&waiting[0].1);
                tracing::error!(%event, detail, "the ledger refuses an event, which is only in this log");
                app.metrics.events_refused.inc();
                sent = 0;
            }
            Err(PlaneError::Status { status: 400, .. }) if at_most > 1 => return Ok(Some(1)),
            reported => _ = reported?,
        }
    }
    source.acknowledged = source.acknowledged.saturating_add(sent as u64);
    let last = waiting.last().map_or(0, |(number, _)| *number);
    events::acknowledge(&app.store, last, source).await?;
    Ok((waiting.len() == at_most).then_some(MAX_TOGETHER))
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
