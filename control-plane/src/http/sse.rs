//! Shared code of server-sent event streams (WHATWG HTML section 9.2): limits, writing events, and why a stream ends.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderName, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;

use super::api::Api;
use super::problem::Problem;
use crate::access::{Refusal, Session};
use credence_runtime::client_limits::{Client, Places};
use credence_runtime::lifecycle::PhaseWatch;
use credence_runtime::metrics::{Counted, count};

/// Why a stream ends.
#[derive(Debug, Clone, Copy, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum Ended {
    /// The client has gone.
    Closed,
    /// The control plane is stopping.
    Drained,
    /// The client reads too slowly.
    Slow,
    /// The credential has expired.
    Expired,
    /// The credential lost the permission for the stream.
    Withdrawn,
    /// Data for the stream could not be read.
    Failed,
}

/// The writing end of a stream of events.
pub(crate) struct Events {
    outbox: mpsc::Sender<Bytes>,
    phase: PhaseWatch,
    send_timeout: Duration,
    /// Events that were written but not sent yet.
    text: String,
}

/// Answers with a stream of the events that `follow` writes, while the client could still open it.
pub(crate) fn answer<F>(
    api: &Arc<Api>,
    places: &Places,
    session: Session,
    client: &Client,
    follow: impl FnOnce(Events) -> F,
) -> Result<Response, Problem>
where
    F: Future<Output = Result<std::convert::Infallible, Ended>> + Send + 'static,
{
    let place = places
        .take(client)
        .map_err(|refused| Problem::unavailable(refused.to_string(), RETRY_WHEN_FULL))?;
    let (caller, permission) = (session.caller.clone(), session.permission);
    let (outbox, events) = mpsc::channel(CHUNKS_IN_FLIGHT);
    let following = follow(Events {
        outbox,
        phase: api.phase.clone(),
        send_timeout: api.timeouts.send,
        text: format!("retry: {}\n\n", RETRY.as_millis()),
    });
    let metrics = Arc::clone(&api.metrics);
    tokio::spawn(async move {
        let _place = place;
        let _counted = Counted::new(&metrics.http_subscribers);
        let outcome: &str = while_open(session, following).await.into();
        let caller = caller.as_ref().map(|caller| caller.name.as_str());
        tracing::info!(caller, permission = ?permission, outcome, "an event stream ended");
        count(&metrics.http_streams_ended, [("outcome", outcome)]);
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        // Reverse proxies that buffer answers would delay events.
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    let body = ReceiverStream::new(events).map(Ok::<Bytes, std::convert::Infallible>);
    Ok((headers, Body::from_stream(body)).into_response())
}

/// Follows while the client could still open the stream.
async fn while_open(session: Session, follow: impl Future<Output = Result<std::convert::Infallible, Ended>>) -> Ended {
    tokio::select! {
        // Checked first, so that a busy stream, or one whose client does not read, ends too.
        biased;
        end = session.ended() => match end {
            Refusal::Expired { .. } => Ended::Expired,
            _ => Ended::Withdrawn,
        },
        followed = follow => match followed {
            Ok(never) => match never {},
            Err(ended) => ended,
        },
    }
}

/// The event after which the client wants to continue: from `Last-Event-ID` or, for clients that cannot set headers,
/// from the query. None if there is none; an error if it is ambiguous.
pub(crate) fn last_event_id(headers: &HeaderMap, asked: Option<String>) -> Result<Option<String>, UnreadableId> {
    // The URL of an EventSource does not change, so the header is newer than the query.
    let mut sent = headers.get_all("last-event-id").iter();
    let id = match (sent.next(), sent.next()) {
        (None, _) => asked,
        (Some(id), None) => Some(id.to_str().map_err(|_| UnreadableId)?.to_owned()),
        (Some(_), Some(_)) => return Err(UnreadableId),
    };
    Ok(id.filter(|id| !id.is_empty()))
}

/// `Last-Event-ID` occurs twice, or is not text.
#[derive(Debug)]
pub(crate) struct UnreadableId;

// === impl Events ===

impl Events {
    /// JSON text has no line breaks outside of its escapes, so it fits one `data` line.
    pub(crate) fn event(&mut self, name: &str, id: Option<&str>, data: &impl Serialize) {
        if let Some(id) = id {
            let _ = writeln!(self.text, "id: {id}");
        }
        let data = serde_json::to_string(data).unwrap_or_default();
        let _ = write!(self.text, "event: {name}\ndata: {data}\n\n");
    }

    /// Resolves once the stream must end. Returns the drain promise of a planned stop, or an error if the client has
    /// gone.
    pub(crate) async fn draining(&mut self) -> Result<Duration, Ended> {
        tokio::select! {
            promise = self.phase.draining() => promise.ok_or(Ended::Closed),
            () = self.outbox.closed() => Err(Ended::Closed),
        }
    }

    pub(crate) async fn flush_if_full(&mut self) -> Result<(), Ended> {
        if self.text.len() < CHUNK_BYTES {
            return Ok(());
        }
        self.flush().await
    }

    pub(crate) async fn flush(&mut self) -> Result<(), Ended> {
        if self.text.is_empty() {
            return Ok(());
        }
        let chunk = Bytes::from(std::mem::take(&mut self.text));
        tokio::select! {
            biased;
            sent = self.outbox.send(chunk) => sent.map_err(|_| Ended::Closed),
            () = self.phase.stopped() => Err(Ended::Closed),
            () = tokio::time::sleep(self.send_timeout) => Err(Ended::Slow),
        }
    }
}

/// The present time in milliseconds since the Unix epoch, so that a client can detect a delayed line.
pub(crate) fn unix_ms() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)
}

/// How long an EventSource waits before it reconnects.
const RETRY: Duration = Duration::from_secs(1);
/// How long a client should wait if the limit of open streams is reached.
pub(crate) const RETRY_WHEN_FULL: Duration = Duration::from_secs(10);
/// How often a stream sends a sign of life.
pub(crate) const ALIVE_INTERVAL: Duration = Duration::from_secs(1);
/// The size at which written events are sent to the connection. With the largest event, there are about 100 KiB more.
const CHUNK_BYTES: usize = 16 << 10;
/// Chunks between a stream's task and its connection.
const CHUNKS_IN_FLIGHT: usize = 4;
