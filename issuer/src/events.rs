//! The evidence: each grant, refusal and withdrawal, kept until the ledger has it.
//!
//! An event is stored in the transaction of its change, so that none is lost or reported twice.

use credence_runtime::metrics::{Counters, count};
use redb::{Error, ReadableTable as _, ReadableTableMetadata as _, TableDefinition, WriteTransaction};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use uuid::Uuid;

use crate::store::{Store, StoreError};
use crate::words::rfc3339;

/// Why a grant ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ending {
    /// The person took it back.
    Person,
    /// The client gave it up (RFC 7009).
    Client,
    /// A code or a refresh token was used again, so someone else has it.
    Reuse,
    /// The revocation log has the person, the grant or one of its tokens.
    Revocation,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A person granted what a client asked for, or some of it.
    Granted,
    /// A person refused.
    Refused,
    /// No rule allows the person to grant it.
    NotAllowed,
    Withdrawn(Ending),
}

/// An entry for `POST /v1/audit/sources/{ticket}/batches`.
#[derive(Debug, Serialize)]
pub(crate) struct Event {
    kind: &'static str,
    time: String,
    decision: &'static str,
    reason: &'static str,
    pub(crate) rule: String,
    principal: Principal,
    client: String,
    pub(crate) delegation_ids: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    /// What was granted or asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<String>,
}

#[derive(Debug, Serialize)]
struct Principal {
    issuer: String,
    subject: String,
}

/// The source, if there is one.
const SOURCE: TableDefinition<'_, (), &[u8]> = TableDefinition::new("source");
const EVENTS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("events");

// === impl Kind ===

impl Kind {
    fn reason(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Refused => "refused_by_person",
            Self::NotAllowed => "refused_by_policy",
            Self::Withdrawn(Ending::Person) => "withdrawn_by_person",
            Self::Withdrawn(Ending::Client) => "withdrawn_by_client",
            Self::Withdrawn(Ending::Reuse) => "withdrawn_after_reuse",
            Self::Withdrawn(Ending::Revocation) => "withdrawn_by_revocation",
        }
    }
}

// === impl Event ===

impl Event {
    /// With the number of its grant, and the grant's end.
    pub(crate) fn of_grant(self, id: Uuid, expires_at: u64) -> Self {
        let arguments = self.arguments.unwrap_or_else(|| "{}".to_owned());
        let members = arguments.strip_prefix('{').unwrap_or_default();
        let separator = if members == "}" { "" } else { "," };
        Self {
            expires_at: Some(rfc3339(expires_at)),
            arguments: Some(format!(r#"{{"grant":"{id}"{separator}{members}"#)),
            ..self
        }
    }

    /// Something that happens now.
    pub(crate) fn about(kind: Kind, (issuer, subject): (&str, &str), client: &str, tools: Option<&RawValue>) -> Self {
        // More exact than the seconds in tokens, so that it is in order with the decisions of filters.
        let time = OffsetDateTime::now_utc();
        let tools = tools.map(RawValue::get).filter(|tools| tools.len() <= MAX_TOOLS_BYTES);
        Self {
            kind: "decision",
            time: time.format(&Rfc3339).unwrap_or_default(),
            decision: if kind == Kind::Granted { "allow" } else { "deny" },
            reason: kind.reason(),
            rule: String::new(),
            principal: Principal {
                issuer: issuer.to_owned(),
                subject: subject.to_owned(),
            },
            client: client.to_owned(),
            delegation_ids: Vec::new(),
            expires_at: None,
            arguments: tools.map(|tools| format!(r#"{{"tools":{tools}}}"#)),
        }
    }
}

pub(crate) fn prepare(transaction: &WriteTransaction) -> Result<(), Error> {
    transaction.open_table(EVENTS)?;
    transaction.open_table(SOURCE)?;
    Ok(())
}

/// Stores an event, and counts it.
pub(crate) fn note(transaction: &WriteTransaction, event: &Event, counted: &Counters<1>) -> Result<(), Error> {
    count(counted, [("reason", event.reason)]);
    let encoded = serde_json::to_vec(event).map_err(|error| Error::Corrupted(error.to_string()))?;
    let mut table = transaction.open_table(EVENTS)?;
    let last = table.last()?.map_or(0, |(number, _)| number.value());
    table.insert(last.saturating_add(1), encoded.as_slice())?;
    Ok(())
}

/// Stores an event about which nothing else changes. Any number of people could cause such events while the control plane
/// is away, so there is an end.
pub(crate) async fn record(store: &Store, event: Event, counted: &Counters<1>) -> Result<(), StoreError> {
    let counted = counted.clone();
    let stored = store.change(move |transaction| {
        let waiting = transaction.open_table(EVENTS)?.len()?;
        match waiting < MAX_WAITING {
            true => note(transaction, &event, &counted).map(|()| true),
            false => Ok(false),
        }
    });
    stored.await?.then_some(()).ok_or(StoreError::Full)
}

/// How many events wait for the ledger.
pub(crate) fn waiting(store: &Store) -> Result<u64, StoreError> {
    store.read(|transaction| Ok(transaction.open_table(EVENTS)?.len()?))
}

/// The oldest events, with their numbers.
pub(crate) fn oldest(store: &Store, most: usize) -> Result<Vec<(u64, Vec<u8>)>, StoreError> {
    store.read(|transaction| {
        let table = transaction.open_table(EVENTS)?;
        let oldest = table.iter()?.take(most);
        oldest
            .map(|entry| {
                entry
                    .map(|(number, event)| (number.value(), event.value().to_vec()))
                    .map_err(Error::from)
            })
            .collect()
    })
}

/// What the ledger knows the issuer by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Source {
    /// The ticket of `POST /v1/audit/sources`.
    pub(crate) ticket: String,
    /// How many events the ledger has from this source.
    pub(crate) acknowledged: u64,
}

/// The source under which earlier events were sent.
pub(crate) fn source(store: &Store) -> Result<Option<Source>, StoreError> {
    store.read(|transaction| {
        let table = transaction.open_table(SOURCE)?;
        let found = table.get(())?;
        found
            .map(|found| serde_json::from_slice(found.value()).map_err(|error| Error::Corrupted(error.to_string())))
            .transpose()
    })
}

/// The ledger has the events up to this number, from this source.
pub(crate) async fn acknowledge(store: &Store, up_to: u64, source: Source) -> Result<(), StoreError> {
    store
        .change(move |transaction| {
            let encoded = serde_json::to_vec(&source).map_err(|error| Error::Corrupted(error.to_string()))?;
            transaction.open_table(SOURCE)?.insert((), encoded.as_slice())?;
            transaction.open_table(EVENTS)?.retain_in(..=up_to, |_, _| false)?;
            Ok(())
        })
        .await
}

/// Events that wait for the ledger, from when on refusals are not answered any more.
pub(crate) const MAX_WAITING: u64 = 100_000;
/// Bytes of `tools` in an event; larger ones are left out. The ledger accepts 4 KiB of arguments, with the grant's id.
const MAX_TOOLS_BYTES: usize = 4_000;
