//! `GET /v1/revocations/stream`: revocations as they are made, as server-sent events (WHATWG HTML section 9.2).
//!
//! Without a position the stream starts with the whole present state. With one (`Last-Event-ID`, which every
//! EventSource sends when it reconnects, or `last_event_id` in the query) it starts after that position, and with
//! `from=now` with the next revocation. docs/reference/api.md has the events. Only events after which the client's
//! state is complete carry an `id`, so that an interrupted snapshot starts again.

use std::sync::Arc;
use std::time::Instant;

use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use credence_wire::v1;
use serde::Serialize;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::api::Api;
use super::problem::Problem;
use super::query;
use super::record::{RecordView, concerns};
use super::sse::{self, ALIVE_INTERVAL, Ended, Events};
use crate::access::Session;
use credence_revocation::{FellBehind, ForeignPosition, RevocationLog, Start};
use credence_runtime::caller::Caller;
use credence_runtime::client_limits::Client;

/// Handles the request.
pub(crate) async fn follow(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Arc<Caller>>,
    Extension(client): Extension<Client>,
    Extension(session): Extension<Session>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let from = From::read(&headers, query.as_deref())?;
    let start = from.check(&api, &client)?;
    let (head, log) = (api.log.watch_head(), api.log.clone());
    sse::answer(&api, &api.stream_places, session, &client, |events| async move {
        let mut following = Following {
            log,
            head,
            caller,
            events,
        };
        following.follow(start).await
    })
}

/// Where the stream starts.
#[derive(Debug, PartialEq, Eq)]
enum From {
    TheBeginning,
    Now,
    After {
        log_id: String,
        seq: u64,
        /// The proof of the position; empty if the id has none.
        proof: Vec<u8>,
    },
}

/// One client's stream.
struct Following {
    log: RevocationLog,
    head: watch::Receiver<u64>,
    caller: Arc<Caller>,
    events: Events,
}

// === impl From ===

impl From {
    fn read(headers: &HeaderMap, query: Option<&str>) -> Result<Self, Problem> {
        let (mut asked, mut from) = (None, None);
        for (name, value) in query::members(query)? {
            match name.as_str() {
                "last_event_id" => query::once(&mut asked, &name, value)?,
                "from" => query::once(&mut from, &name, value)?,
                _ => return Err(Problem::bad_request(EXPECTED_PARAMETERS)),
            }
        }
        let from = match from.as_deref() {
            None => Self::TheBeginning,
            Some("now") if asked.is_none() => Self::Now,
            Some(_) => return Err(Problem::bad_request(EXPECTED_PARAMETERS)),
        };
        let id = sse::last_event_id(headers, asked).map_err(|_| unreadable_id())?;
        match id {
            None => Ok(from),
            Some(id) => Self::after(&id).ok_or_else(unreadable_id),
        }
    }

    fn after(id: &str) -> Option<Self> {
        let mut parts = id.split(':');
        let (log_id, seq, proof) = (parts.next()?, parts.next()?, parts.next());
        let plain = !log_id.is_empty() && !seq.is_empty() && seq.bytes().all(|byte| byte.is_ascii_digit());
        if parts.next().is_some() || !plain {
            return None;
        }
        let proof = match proof {
            Some(proof) => URL_SAFE_NO_PAD.decode(proof).ok().filter(|proof| !proof.is_empty())?,
            None => Vec::new(),
        };
        Some(Self::After {
            log_id: log_id.to_owned(),
            seq: seq.parse().ok()?,
            proof,
        })
    }

    /// Where the stream starts; with the next revocation, if nothing is given.
    ///
    /// A position that does not belong to this log is refused: its client has seen revocations that this log does not
    /// have.
    fn check(self, api: &Api, client: &Client) -> Result<Option<Start>, Problem> {
        let log = &api.log;
        let conflict = |detail| Problem::new(StatusCode::CONFLICT, detail);
        let (seq, proof) = match self {
            Self::TheBeginning => return Ok(Some(Start::Snapshot)),
            Self::Now => return Ok(None),
            Self::After { log_id, .. } if log_id != log.log_id().as_str() => {
                return Err(conflict(format!(
                    "that event is from another log than {}, the only one here; if this is the right control plane and \
                     the old log is permanently lost, discard your state and connect without Last-Event-ID",
                    log.log_id()
                )));
            }
            Self::After { seq, proof, .. } => (seq, proof),
        };
        match log.resume_at_proof(seq, &proof) {
            Ok(start) => Ok(Some(start)),
            Err(ForeignPosition::Ahead { .. }) => Err(foreign(api, client, seq, "does not reach it")),
            Err(ForeignPosition::Diverged { .. }) => Err(foreign(api, client, seq, "has another history up to it")),
            Err(ForeignPosition::TooOld { .. }) => Err(conflict(format!(
                "entry {seq} is so old that this log can no longer tell whether it was one of its own: discard your \
                 state and connect without Last-Event-ID"
            ))),
        }
    }
}

/// The client's events may have revoked something that is not revoked here.
fn foreign(api: &Api, client: &Client, seq: u64, why: &str) -> Problem {
    api.metrics.revocation.count_foreign_position(false);
    let head = api.log.head();
    if let Some(clients) = api.foreign_positions.count(Instant::now()) {
        tracing::warn!(
            attempts = clients,
            credential = client.credential,
            address = ?client.network,
            seq,
            head,
            why,
            "clients of the event stream claim positions that this log does not know"
        );
    }
    let detail = format!(
        "you have seen entry {seq}, but this log {why} (it ends at {head}): check the position. If the log was restored \
         from an old copy, restore the newest one; or, if it is lost, discard your state and connect without \
         Last-Event-ID"
    );
    Problem::new(StatusCode::CONFLICT, detail)
}

// === impl Following ===

impl Following {
    async fn follow(&mut self, start: Option<Start>) -> Result<std::convert::Infallible, Ended> {
        let mut sent = match start {
            Some(Start::After(seq)) => seq,
            Some(Start::Snapshot) => self.give_snapshot().await?,
            None => {
                let seq = self.log.head();
                self.position("position", seq);
                seq
            }
        };
        let mut ticks = tokio::time::interval(ALIVE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                drained = self.events.draining() => {
                    drained?;
                    self.catch_up(sent).await?;
                    // Filters get a drain promise. It is unknown what other followers rely on, and confirmations do not
                    // wait for them.
                    self.event("drain", None, &json!({ "promise_ms": 0 }));
                    self.events.flush().await?;
                    return Err(Ended::Drained);
                }
                _ = ticks.tick() => {
                    sent = self.catch_up(sent).await?;
                    self.alive(sent);
                    self.events.flush().await?;
                }
                changed = self.head.changed() => {
                    changed.map_err(|_| Ended::Closed)?;
                    sent = self.catch_up(sent).await?;
                }
            }
        }
    }

    /// Writes every record after `sent`, or a snapshot if they are no longer in memory. Returns the head.
    async fn catch_up(&mut self, mut sent: u64) -> Result<u64, Ended> {
        loop {
            let (updates, head) = match self.log.updates_after(sent, UPDATES_AT_A_TIME) {
                Ok(found) => found,
                Err(FellBehind) => {
                    sent = self.give_snapshot().await?;
                    continue;
                }
            };
            let mut skipped = false;
            for update in updates {
                sent += 1;
                skipped = !self.record(sent, Some(sent), update.record.as_ref());
                self.events.flush_if_full().await?;
            }
            if skipped {
                // The position moves for hidden records too. Otherwise the client would get them again.
                self.position("position", sent);
            }
            if sent == head {
                self.events.flush().await?;
                return Ok(sent);
            }
        }
    }

    /// Writes the whole state, and returns its entry.
    async fn give_snapshot(&mut self) -> Result<u64, Ended> {
        let unreadable = |error| {
            tracing::error!(%error, "a snapshot of our own cannot be read; this is a bug");
            Ended::Failed
        };
        let snapshot = self.log.snapshot().await.map_err(|error| {
            tracing::error!(%error, "no snapshot could be made");
            Ended::Failed
        })?;
        let mut records = 0;
        for chunk in snapshot.records() {
            let chunk = chunk.map_err(unreadable)?;
            records += chunk.iter().filter(|record| concerns(record, &self.caller)).count();
            tokio::task::yield_now().await;
        }
        let log_id = self.log.log_id().as_str();
        let begin = json!({ "log_id": log_id, "seq": snapshot.seq, "records": records });
        self.events.event("snapshot_begin", None, &begin);
        for chunk in snapshot.records() {
            for record in chunk.map_err(unreadable)? {
                self.record(snapshot.seq, None, Some(&record));
                self.events.flush_if_full().await?;
            }
        }
        self.position("snapshot_end", snapshot.seq);
        self.events.flush().await?;
        Ok(snapshot.seq)
    }

    /// Writes a record, if the caller may see it. Returns whether it was written.
    fn record(&mut self, seq: u64, id: Option<u64>, record: Option<&v1::Record>) -> bool {
        let visible = record.filter(|record| concerns(record, &self.caller));
        let Some(view) = visible.and_then(|record| RecordView::new(seq, record)) else {
            return false;
        };
        self.event("record", id, &view);
        true
    }

    fn position(&mut self, name: &str, seq: u64) {
        let id = self.event_id(seq);
        let log_id = self.log.log_id().as_str();
        self.events
            .event(name, id.as_deref(), &json!({ "log_id": log_id, "seq": seq }));
    }

    fn alive(&mut self, seq: u64) {
        let log_id = self.log.log_id().as_str();
        let view = json!({ "log_id": log_id, "seq": seq, "unix_ms": sse::unix_ms() });
        self.events.event("alive", None, &view);
    }

    fn event(&mut self, name: &str, seq: Option<u64>, data: &impl Serialize) {
        let id = seq.and_then(|seq| self.event_id(seq));
        self.events.event(name, id.as_deref(), data);
    }

    /// As in the filters' protocol, a position identifies its history. Here it carries only a proof: with a digest, a
    /// client that is bound to issuers could guess revocations of others. None for a position that the log no longer
    /// knows; a running stream never reaches such a position.
    fn event_id(&self, seq: u64) -> Option<String> {
        let proof = URL_SAFE_NO_PAD.encode(self.log.proof_of(seq)?);
        Some(format!("{}:{seq}:{proof}", self.log.log_id()))
    }
}

fn unreadable_id() -> Problem {
    Problem::bad_request(
        "Last-Event-ID occurs once, with the id of the last event, such as LOG_ID:42:PROOF; without it the stream \
         begins with the whole state",
    )
}

const EXPECTED_PARAMETERS: &str = "the query has, at most one of them and once: last_event_id, or from=now";
/// Updates read from the history under one lock.
const UPDATES_AT_A_TIME: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(header: Option<&str>, query: Option<&str>) -> Result<From, Problem> {
        let mut headers = HeaderMap::new();
        if let Some(id) = header {
            headers.insert("last-event-id", id.parse().unwrap());
        }
        From::read(&headers, query)
    }

    fn after(seq: u64) -> From {
        From::After {
            log_id: "log".to_owned(),
            seq,
            proof: vec![0, 0, 0],
        }
    }

    #[test]
    fn the_header_takes_precedence() {
        assert_eq!(read(None, None).unwrap(), From::TheBeginning);
        assert_eq!(read(Some(""), None).unwrap(), From::TheBeginning);
        assert_eq!(read(None, Some("from=now")).unwrap(), From::Now);
        assert_eq!(read(Some("log:7:AAAA"), Some("from=now")).unwrap(), after(7));
        assert_eq!(
            read(Some("log:7:AAAA"), Some("last_event_id=log:3:AAAA")).unwrap(),
            after(7)
        );
        assert_eq!(read(None, Some("last_event_id=log%3A3%3AAAAA")).unwrap(), after(3));
    }

    #[test]
    fn an_id_without_a_proof_is_read() {
        let old = From::After {
            log_id: "log".to_owned(),
            seq: 7,
            proof: Vec::new(),
        };
        assert_eq!(read(Some("log:7"), None).unwrap(), old);
    }

    #[test]
    fn invalid_positions_are_refused() {
        for id in [
            "7",
            "log:",
            ":7",
            "log:-1",
            "log:+1",
            "log: 7",
            "log:18446744073709551616",
            "log:7:",
            "log:7:?",
            "log:7:AAAA:8",
        ] {
            assert!(read(Some(id), None).is_err(), "{id}");
        }
        for query in [
            "from=then",
            "from=now&last_event_id=log:3",
            "since=3",
            "from=now&from=now",
        ] {
            assert!(read(None, Some(query)).is_err(), "{query}");
        }
    }
}
