//! The index keys of each record. Queries compare records with them too.

use crate::entry::{EntryKind, EntryView, PrincipalView};
use crate::index::IndexKey;
use crate::record::{RecordBody, RecordKind};

/// A record's contents, as far as they can be searched for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Row<'a> {
    Entry(EntryView<'a>),
    /// A chain that the ledger already had. It is found at its own record.
    KnownChain(EntryView<'a>),
    /// A change of a source.
    Change,
    /// A note of the control plane.
    Note,
    /// An unreadable record.
    Unreadable,
}

// === impl Row ===

impl<'a> Row<'a> {
    /// The row of a record.
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

    /// The earliest and the latest time of a record that was received at the given time: the time of a decision, the
    /// second of counts, the begin and end of a gap.
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

    /// The keys by which it can be found.
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

/// The number of keys of an event with two tokens.
const EVENT_KEYS: usize = 10;
const NANOS: u64 = 1_000_000_000;
