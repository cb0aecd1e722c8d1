//! By what each record can be found: in the index, and by who compares it with a question.

use crate::entry::{EntryKind, EntryView, PrincipalView};
use crate::index::IndexKey;
use crate::record::{RecordBody, RecordKind};

/// What a record says, as far as it can be asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Row<'a> {
    Entry(EntryView<'a>),
    /// A chain that the ledger already had: it is found where it is.
    KnownChain(EntryView<'a>),
    /// What happened to a source.
    Change,
    /// What the control plane had to say.
    Note,
    /// It cannot be read.
    Unreadable,
}

// === impl Row ===

impl<'a> Row<'a> {
    /// Of a record.
    pub(crate) fn of(body: &'a RecordBody) -> Self {
        match body {
            RecordBody::Entry(stored) => match stored.view() {
                Some(view) if stored.known_chain.is_empty() => Self::Entry(view),
                Some(view) => Self::KnownChain(view),
                None => Self::Unreadable,
            },
            RecordBody::Source(_) => Self::Change,
            RecordBody::Note(_) => Self::Note,
            RecordBody::Erased | RecordBody::Unreadable => Self::Unreadable,
        }
    }

    /// The earliest and the latest instant that the record, which was taken in at that one, is about: of a decision when it
    /// was made, of counts their second, of a gap when it began and when it ended.
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
            Self::KnownChain(_) | Self::Change | Self::Note | Self::Unreadable => (received, received),
        }
    }

    /// What it can be found by.
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
                    keys.extend(principal_keys(aggregate.principal));
                    keys.extend([
                        IndexKey::Decision(aggregate.decision),
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
            Self::Unreadable => {}
        }
        keys
    }
}

fn principal_keys<'a>(principal: Option<PrincipalView<'a>>) -> impl Iterator<Item = IndexKey<'a>> {
    principal.into_iter().flat_map(|principal| {
        let subject = principal.subject.map(IndexKey::Subject);
        [IndexKey::Issuer(principal.issuer)].into_iter().chain(subject)
    })
}

/// What an event with two tokens can be found by.
const EVENT_KEYS: usize = 10;
const NANOS: u64 = 1_000_000_000;
