//! By what each record can be found.

use credence_wire::v1;

use crate::entry::{EntryKind, EntryView, PrincipalView};
use crate::index::IndexKey;
use crate::leaf::{StoredBody, StoredRecord};
use crate::record::RecordKind;

/// A record that is to be indexed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Row<'a> {
    Entry(EntryView<'a>),
    /// A chain that the ledger already had: it is found where it is.
    KnownChain(EntryView<'a>),
    /// What happened to a source.
    Change,
    /// What the control plane had to say.
    Note,
    /// It can not be opened any more.
    Erased,
}

// === impl Row ===

impl<'a> Row<'a> {
    /// Of what a leaf holds, if it can be opened.
    pub(crate) fn of(record: Option<&'a StoredRecord>) -> Self {
        match record.and_then(|record| record.body.as_ref()) {
            Some(StoredBody::Entry(stored)) => match EntryView::parse(&stored.entry) {
                Ok(view) if stored.known_chain.is_empty() => Self::Entry(view),
                Ok(view) => Self::KnownChain(view),
                Err(_) => Self::Erased,
            },
            Some(StoredBody::Change(_)) => Self::Change,
            Some(StoredBody::Note(_)) => Self::Note,
            None => Self::Erased,
        }
    }

    /// The earliest and the latest instant that the record, which was taken in at that one, is about.
    pub(crate) fn span(&self, received: u64) -> (u64, u64) {
        match self {
            Self::Entry(entry) => match &entry.kind {
                EntryKind::Event(event) => (event.time_unix_nano, event.time_unix_nano),
                EntryKind::Aggregate(aggregate) => {
                    let second = u64::try_from(aggregate.second).unwrap_or(0).saturating_mul(NANOS);
                    (second, second.saturating_add(NANOS - 1))
                }
                EntryKind::Gap(gap) => (gap.first_time_unix_nano, gap.last_time_unix_nano),
                EntryKind::Chain(_) => (received, received),
            },
            Self::KnownChain(_) | Self::Change | Self::Note | Self::Erased => (received, received),
        }
    }

    /// What it can be found by; what is not there (an event without a trace id, say) is not indexed.
    pub(crate) fn keys(&self) -> Vec<IndexKey<'a>> {
        let kind = |kind: RecordKind| IndexKey::Kind(kind as u8);
        let mut keys = Vec::with_capacity(EVENT_KEYS);
        match self {
            Self::Entry(entry) => match &entry.kind {
                EntryKind::Event(event) => {
                    keys.extend(principal_keys(event.principal));
                    keys.push(IndexKey::Agent(event.agent));
                    keys.extend(event.delegation_ids().iter().map(|id| IndexKey::Delegation(id)));
                    keys.extend([
                        IndexKey::Tool(event.tool),
                        IndexKey::Decision(event.decision),
                        IndexKey::Reason(event.reason),
                        IndexKey::Rule(event.rule),
                        IndexKey::Trace(event.trace_id),
                    ]);
                }
                EntryKind::Aggregate(aggregate) => {
                    let decision = match v1::Decision::try_from(aggregate.decision) {
                        // Clients that count nothing but denials do not say so.
                        Ok(v1::Decision::Unspecified) => v1::Decision::Deny.into(),
                        _ => aggregate.decision,
                    };
                    keys.extend(principal_keys(aggregate.principal));
                    keys.extend([
                        IndexKey::Decision(decision),
                        IndexKey::Reason(aggregate.reason),
                        IndexKey::Rule(aggregate.rule),
                        kind(RecordKind::Aggregate),
                    ]);
                }
                EntryKind::Gap(_) => keys.push(kind(RecordKind::Gap)),
                EntryKind::Chain(chain) => {
                    keys.extend(principal_keys(chain.principal));
                    keys.extend([kind(RecordKind::Chain), IndexKey::Chain(chain.digest())]);
                }
            },
            Self::KnownChain(entry) => {
                keys.extend(principal_keys(entry.principal()));
                keys.push(kind(RecordKind::Chain));
            }
            Self::Change => keys.push(kind(RecordKind::Source)),
            Self::Note => keys.push(kind(RecordKind::Note)),
            Self::Erased => {}
        }
        keys.retain(IndexKey::is_indexed);
        keys
    }
}

fn principal_keys<'a>(principal: Option<PrincipalView<'a>>) -> impl Iterator<Item = IndexKey<'a>> {
    principal.into_iter().flat_map(|principal| {
        let subject = principal.subject.unwrap_or_default();
        [IndexKey::Issuer(principal.issuer), IndexKey::Subject(subject)]
    })
}

/// What an event with two tokens can be found by.
const EVENT_KEYS: usize = 10;
const NANOS: u64 = 1_000_000_000;
