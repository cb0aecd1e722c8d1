//! `/v1/audit/sources`: evidence from relying parties without Envoy.
//!
//! `POST /v1/audit/sources` opens a source (`node` and `plugin` are texts for display). The answer's `ticket` names it
//! in the other requests, together with the credential that opened it. `POST …/{ticket}/batches` takes
//! `{"first_sequence": n, "entries": [...]}`. The answer `{"acknowledged": m}` is sent when every entry up to `m` is
//! durable. Repeated entries are stored once. A gap is 409 with the `expected` number. `GET …/{ticket}` returns the
//! source's position, and `DELETE …/{ticket}` ends it. A source that is silent for longer than the grace period is
//! recorded as ended, with its last entries unknown; it may return. docs/reference/api.md has the entries, and
//! [`entry`] parses them.

mod entry;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use credence_wire::v1;
use prost::Message as _;
use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde_json::json;
use serde_json::value::RawValue;

use super::api::Api;
use super::json;
use super::problem::Problem;
use credence_evidence::{IngestError, NotTaken, ReportError, Reporter, TicketText};

pub(super) fn routes(max_evidence_body: usize) -> Router<Arc<Api>> {
    let batches = post(store).layer(DefaultBodyLimit::max(max_evidence_body));
    Router::new()
        .route("/v1/audit/sources", post(open))
        .route("/v1/audit/sources/{ticket}", get(position).delete(close))
        .route("/v1/audit/sources/{ticket}/batches", batches)
}

async fn open(
    State(api): State<Arc<Api>>,
    Extension(reporter): Extension<Reporter>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    let body = json::received(body, api.limits.max_request_body, FEWER, "it")?;
    json::check_media_type(&headers, "application/json")?;
    let Opening { node, plugin } = json::parse(&body)?;
    let opened = api
        .intake
        .open(node.unwrap_or_default(), plugin.unwrap_or_default(), &reporter);
    let (ticket, receipt) = opened.await?;
    let place = [(header::LOCATION, format!("/v1/audit/sources/{}", ticket.0))];
    let body = json!({
        "source": receipt.source,
        "ticket": ticket.0,
        "acknowledged": receipt.last_sequence,
        "max_batch_entries": api.evidence.batch.entries,
        "max_batch_bytes": api.limits.max_evidence_body,
        "grace_s": api.evidence.source_grace.as_secs(),
    });
    Ok((StatusCode::CREATED, place, Json(body)).into_response())
}

async fn position(
    State(api): State<Arc<Api>>,
    Extension(reporter): Extension<Reporter>,
    ticket: Result<Path<TicketText>, PathRejection>,
) -> Result<Response, Problem> {
    let receipt = api.intake.position(&named(ticket)?, &reporter).await?;
    let body = json!({ "source": receipt.source, "acknowledged": receipt.last_sequence });
    Ok(Json(body).into_response())
}

async fn store(
    State(api): State<Arc<Api>>,
    Extension(reporter): Extension<Reporter>,
    ticket: Result<Path<TicketText>, PathRejection>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    let body = json::received(body, api.limits.max_evidence_body, FEWER, "it")?;
    json::check_media_type(&headers, "application/json")?;
    let max_entries = api.evidence.batch.entries;
    // Parsing megabytes of text would block other requests of this thread.
    let reading = tokio::task::spawn_blocking(move || read(&body, max_entries));
    let batch = reading.await.map_err(|_| {
        Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "reading the batch failed unexpectedly; nothing was stored",
        )
    })??;
    let ticket = named(ticket)?;
    let acknowledged = if batch.entries.is_empty() {
        let known = api.intake.position(&ticket, &reporter).await?.last_sequence;
        if batch.first_sequence > known.saturating_add(1) {
            return Err(NotTaken::from(ReportError::SequenceGap {
                first: batch.first_sequence,
                expected: known.saturating_add(1),
            })
            .into());
        }
        known
    } else {
        let encoded = batch.encode_to_vec().into();
        api.intake.store(&ticket, &reporter, encoded).await?.last_sequence
    };
    Ok(Json(json!({ "acknowledged": acknowledged })).into_response())
}

async fn close(
    State(api): State<Arc<Api>>,
    Extension(reporter): Extension<Reporter>,
    ticket: Result<Path<TicketText>, PathRejection>,
) -> Result<StatusCode, Problem> {
    api.intake.close(&named(ticket)?, &reporter).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A ticket that is not text names no source.
fn named(ticket: Result<Path<TicketText>, PathRejection>) -> Result<TicketText, NotTaken> {
    let Path(ticket) = ticket.map_err(|_| NotTaken::NoSuchSource)?;
    Ok(ticket)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Opening {
    #[serde(default, deserialize_with = "json::present")]
    node: Option<String>,
    #[serde(default, deserialize_with = "json::present")]
    plugin: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Batch<'a> {
    first_sequence: u64,
    #[serde(borrow)]
    entries: Entries<'a>,
}

/// Counts all entries, but keeps no more than a batch may have: four million bytes can be two million entries.
#[derive(Debug)]
struct Entries<'a> {
    kept: Vec<&'a RawValue>,
    count: usize,
}

impl<'de: 'a, 'a> Deserialize<'de> for Entries<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(EntriesVisitor)
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Entries<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an array of entries")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Entries<'de>, A::Error> {
        let (mut kept, mut count) = (Vec::new(), 0);
        while let Some(entry) = entries.next_element()? {
            count += 1;
            if count <= MOST_ENTRIES {
                kept.push(entry);
            }
        }
        Ok(Entries { kept, count })
    }
}

fn read(body: &[u8], max_entries: usize) -> Result<v1::Batch, Problem> {
    let Batch {
        first_sequence,
        entries,
    } = json::parse(body)?;
    if entries.count > max_entries {
        let detail = format!(
            "a batch has at most {max_entries} entries; this one has {}",
            entries.count
        );
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail));
    }
    if !(1..=MAX_SEQUENCE).contains(&first_sequence) {
        let detail = format!("at first_sequence: sequence numbers go from 1 to {MAX_SEQUENCE}");
        return Err(Problem::from(detail));
    }
    let entries = entries.kept.into_iter().enumerate().map(|(index, text)| {
        let place = format!("entries[{index}]");
        Ok(entry::read(text, &place)?)
    });
    Ok(v1::Batch {
        first_sequence,
        entries: entries.collect::<Result<_, Problem>>()?,
    })
}

impl From<NotTaken> for Problem {
    fn from(error: NotTaken) -> Self {
        let detail = error.to_string();
        match error {
            NotTaken::NoSuchSource => Self::new(StatusCode::NOT_FOUND, detail),
            NotTaken::TooManySources(_) => Self::unavailable(detail, WAIT_FOR_A_PLACE),
            NotTaken::NoRoom => Self::unavailable(detail, WAIT_FOR_ANOTHER_REQUEST),
            NotTaken::Batch(IngestError::OtherIssuer { index, .. }) => Self::new(StatusCode::FORBIDDEN, detail)
                .insufficient_scope()
                .within(&format!("entries[{}]", index.saturating_sub(1))),
            NotTaken::Batch(IngestError::TooLarge { .. }) => Self::new(StatusCode::PAYLOAD_TOO_LARGE, detail),
            NotTaken::Batch(_) => Self::new(StatusCode::BAD_REQUEST, detail),
            NotTaken::Report(error) => match error {
                ReportError::SequenceGap { expected, .. } => {
                    Self::new(StatusCode::CONFLICT, detail).with("expected", expected)
                }
                ReportError::Malformed => Self::new(StatusCode::BAD_REQUEST, detail),
                ReportError::UnknownSource => Self::new(StatusCode::NOT_FOUND, detail),
                ReportError::Superseded => Self::unavailable(
                    "another request of this source came in between; send this one again, and only one at a time",
                    WAIT_FOR_ANOTHER_REQUEST,
                ),
                ReportError::Storage(_)
                | ReportError::Damaged(_)
                | ReportError::Random(_)
                | ReportError::Stopping
                | ReportError::Died => Self::unavailable(detail, WAIT_FOR_THE_DISK),
            },
        }
    }
}

/// The fix for a body that is too large.
const FEWER: &str = "; send fewer entries at once";
/// The largest value of `max_batch_entries`.
const MOST_ENTRIES: usize = 100_000;
/// Beyond it, the next number could not be distinguished from an old one.
const MAX_SEQUENCE: u64 = 1 << 63;
const WAIT_FOR_ANOTHER_REQUEST: Duration = Duration::from_secs(1);
/// A full disk is not fixed in a second.
const WAIT_FOR_THE_DISK: Duration = Duration::from_secs(5);
const WAIT_FOR_A_PLACE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_more_entries_than_there_may_be_only_their_number_is_kept() {
        let body = format!(r#"{{"first_sequence": 1, "entries": [{}0]}}"#, "0,".repeat(2_000_000));
        let batch: Batch<'_> = json::parse(body.as_bytes()).unwrap();
        assert_eq!(
            (batch.entries.count, batch.entries.kept.len()),
            (2_000_001, MOST_ENTRIES)
        );
    }
}
