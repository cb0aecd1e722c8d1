//! `GET /v1/audit/stream`: new evidence as it is recorded, oldest first, as server-sent events.
//!
//! Takes the conditions of `/v1/audit/events`. Each record is an event `record` with its index as id. Every second, an
//! event `alive` has as id the index of the last checked record. So a client with narrow conditions does not have the
//! same records checked again. Without `Last-Event-ID`, the stream starts with the next new record.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use credence_ledger::Query;
use credence_ledger::record::LedgerRecord;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::super::api::Api;
use super::super::problem::Problem;
use super::super::query::{once, whole};
use super::super::sse::{self, ALIVE_INTERVAL, Ended, Events};
use super::conditions::Asked;
use super::events::{check_readable, reading};
use super::view::RecordView;
use crate::access::Session;
use credence_runtime::caller::Caller;
use credence_runtime::client_limits::Client;

/// Handles the request.
pub(crate) async fn follow(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Arc<Caller>>,
    Extension(client): Extension<Client>,
    Extension(session): Extension<Session>,
    headers: HeaderMap,
    RawQuery(text): RawQuery,
) -> Result<Response, Problem> {
    let asked = Asked::read(text.as_deref())?;
    asked.check_scope(&caller)?;
    check_readable(&api)?;
    // Subscribed first, so that records written in between are shown.
    let growth = api.reader.growth();
    let next = first_of(&headers, asked.rest, api.reader.size())?;
    let query = Arc::new(Query {
        filter: asked.filter,
        issuers: caller.issuers.clone(),
        ..Query::default()
    });
    let (this, asker) = (Arc::clone(&api), client.clone());
    sse::answer(&api, &api.audit_stream_places, session, &client, |events| async move {
        let mut following = Following {
            api: this,
            client: asker,
            query,
            growth,
            next,
            events,
        };
        following.follow().await
    })
}

/// The index of the first record to show.
fn first_of(headers: &HeaderMap, rest: Vec<(String, String)>, held: u64) -> Result<u64, Problem> {
    let mut asked = None;
    for (name, value) in rest {
        match name.as_str() {
            "last_event_id" => once(&mut asked, &name, value)?,
            _ => return Err(Problem::bad_request(EXPECTED_PARAMETERS)),
        }
    }
    let unreadable =
        || Problem::bad_request("Last-Event-ID occurs once, with the id of the last event: a record's index");
    let Some(id) = sse::last_event_id(headers, asked).map_err(|_| unreadable())? else {
        return Ok(held);
    };
    let index: u64 = whole("Last-Event-ID", &id).map_err(|_| unreadable())?;
    if index >= held {
        let detail = format!(
            "you have seen record {index}, but this ledger has {held} records: it was restored from an old copy, or is \
             another one. If that is intended, connect without Last-Event-ID"
        );
        return Err(Problem::new(StatusCode::CONFLICT, detail));
    }
    Ok(index + 1)
}

/// One client's stream.
struct Following {
    api: Arc<Api>,
    client: Client,
    query: Arc<Query>,
    /// Changes whenever the ledger has grown.
    growth: watch::Receiver<u64>,
    /// The first unchecked record.
    next: u64,
    events: Events,
}

// === impl Following ===

impl Following {
    async fn follow(&mut self) -> Result<std::convert::Infallible, Ended> {
        let mut ticks = tokio::time::interval(ALIVE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.growth.mark_unchanged();
            let held = self.api.reader.size();
            // Between two steps the stream sends signs of life and can end, however many records there are.
            if self.next < held {
                self.look_at_some(held).await?;
            }
            let behind = self.next < held;
            tokio::select! {
                biased;
                promise = self.events.draining() => {
                    let promise_ms = u64::try_from(promise?.as_millis()).unwrap_or(u64::MAX);
                    let held = self.api.reader.size();
                    while self.next < held {
                        self.look_at_some(held).await?;
                    }
                    self.events.event("drain", None, &json!({ "promise_ms": promise_ms }));
                    self.events.flush().await?;
                    return Err(Ended::Drained);
                }
                _ = ticks.tick() => {
                    self.alive();
                    self.events.flush().await?;
                }
                () = std::future::ready(()), if behind => {}
                changed = self.growth.changed() => changed.map_err(|_| Ended::Closed)?,
            }
        }
    }

    /// Checks some of the next records, and shows the matching ones.
    async fn look_at_some(&mut self, held: u64) -> Result<(), Ended> {
        let (from, until) = (self.next, held.min(self.next.saturating_add(RECORDS_AT_A_TIME)));
        let query = Arc::clone(&self.query);
        let records = reading(&self.api, &self.client, move |reader| {
            let mut records: Vec<LedgerRecord> = reader.held_records(from..until)?;
            records.retain(|record| query.admits(record));
            Ok(records)
        });
        for record in records.await.map_err(|_| Ended::Failed)? {
            let id = record.index.to_string();
            self.events.event("record", Some(&id), &RecordView(record));
            self.events.flush_if_full().await?;
        }
        self.next = until;
        self.events.flush().await
    }

    fn alive(&mut self) {
        // The first unchecked record.
        let view = json!({ "next": self.next, "unix_ms": sse::unix_ms() });
        let id = self.next.checked_sub(1).map(|last| last.to_string());
        self.events.event("alive", id.as_deref(), &view);
    }
}

const EXPECTED_PARAMETERS: &str = "the query has, each at most once: last_event_id, and the conditions of \
                                   /v1/audit/events, but neither limit nor before";
/// The number of records read at once, and held while the client reads slowly: at most about 5 MiB, most of it chains.
const RECORDS_AT_A_TIME: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn first(header: Option<&str>, rest: &[(&str, &str)]) -> Result<u64, Problem> {
        let mut headers = HeaderMap::new();
        if let Some(id) = header {
            headers.insert("last-event-id", id.parse().unwrap());
        }
        let rest = rest
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        first_of(&headers, rest.collect(), 10)
    }

    #[test]
    fn a_stream_begins_after_the_last_event_or_with_the_next_record() {
        assert_eq!(first(None, &[]).unwrap(), 10);
        assert_eq!(first(Some("9"), &[]).unwrap(), 10);
        assert_eq!(first(None, &[("last_event_id", "3")]).unwrap(), 4);
        assert_eq!(first(Some("5"), &[("last_event_id", "3")]).unwrap(), 6);
    }

    #[test]
    fn positions_outside_this_ledger_are_refused() {
        for header in ["10", "-1", "+1", "log:3", "18446744073709551615"] {
            assert!(first(Some(header), &[]).is_err(), "{header}");
        }
        assert!(first(None, &[("limit", "3")]).is_err());
    }
}
