//! By what each record can be found.

use credence_wire::v1;

use crate::index::{IndexBuilder, IndexError, IndexKey};
use crate::query::RecordKind;
use crate::view::{EntryKind, EntryView, MAX_DELEGATION_IDS, PrincipalView};

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

impl Row<'_> {
    /// Adds the record, which was taken in at that instant, and whose leaf begins at this offset of the segment's file.
    pub(crate) fn add(&self, builder: &mut IndexBuilder, offset: u32, received: u64) -> Result<(), IndexError> {
        self.index(received, |span, keys| builder.add(builder.places(), offset, span, keys))
    }

    /// The instants that the record, which was taken in at that one, is about, and what it can be found by.
    pub(crate) fn index<T>(&self, received: u64, with: impl FnOnce((u64, u64), &[IndexKey<'_>]) -> T) -> T {
        let mut span = (received, received);
        let mut keys = Keys::default();
        match self {
            Self::Entry(entry) => match &entry.kind {
                EntryKind::Event(event) => {
                    span = (event.time_unix_nano, event.time_unix_nano);
                    keys.push_principal(event.principal);
                    keys.push(IndexKey::Agent(event.agent));
                    event
                        .delegation_ids()
                        .iter()
                        .for_each(|id| keys.push(IndexKey::Delegation(id)));
                    keys.push(IndexKey::Tool(event.tool));
                    keys.push(IndexKey::Decision(event.decision));
                    keys.push(IndexKey::Reason(event.reason));
                    keys.push(IndexKey::Rule(event.rule));
                    keys.push(IndexKey::Trace(event.trace_id));
                }
                EntryKind::Aggregate(aggregate) => {
                    let second = u64::try_from(aggregate.second).unwrap_or(0).saturating_mul(NANOS);
                    span = (second, second.saturating_add(NANOS - 1));
                    let decision = match v1::Decision::try_from(aggregate.decision) {
                        // Clients of an older version count nothing but denials.
                        Ok(v1::Decision::Unspecified) => v1::Decision::Deny.into(),
                        _ => aggregate.decision,
                    };
                    keys.push_principal(aggregate.principal);
                    keys.push(IndexKey::Decision(decision));
                    keys.push(IndexKey::Reason(aggregate.reason));
                    keys.push(IndexKey::Rule(aggregate.rule));
                    keys.push(IndexKey::Kind(RecordKind::Aggregate as u8));
                }
                EntryKind::Gap(gap) => {
                    span = (gap.first_time_unix_nano, gap.last_time_unix_nano);
                    keys.push(IndexKey::Kind(RecordKind::Gap as u8));
                }
                EntryKind::Chain(chain) => {
                    keys.push_principal(chain.principal);
                    keys.push(IndexKey::Kind(RecordKind::Chain as u8));
                    let digest = chain.digest();
                    let mut all = keys.as_slice().to_vec();
                    all.push(IndexKey::Chain(&digest));
                    return with(span, &all);
                }
            },
            Self::KnownChain(entry) => {
                keys.push_principal(entry.principal());
                keys.push(IndexKey::Kind(RecordKind::Chain as u8));
            }
            Self::Change => keys.push(IndexKey::Kind(RecordKind::Source as u8)),
            Self::Note => keys.push(IndexKey::Kind(RecordKind::Note as u8)),
            Self::Erased => {}
        }
        with(span, keys.as_slice())
    }
}

/// As many as an event can have, without allocating.
struct Keys<'a> {
    keys: [IndexKey<'a>; MAX_KEYS],
    count: usize,
}

impl<'a> Keys<'a> {
    fn push(&mut self, key: IndexKey<'a>) {
        if let Some(place) = self.keys.get_mut(self.count) {
            *place = key;
            self.count += 1;
        }
    }

    fn push_principal(&mut self, principal: Option<PrincipalView<'a>>) {
        if let Some(principal) = principal {
            self.push(IndexKey::Issuer(principal.issuer));
            self.push(IndexKey::Subject(principal.subject.unwrap_or_default()));
        }
    }

    fn as_slice(&self) -> &[IndexKey<'a>] {
        self.keys.get(..self.count).unwrap_or_default()
    }
}

impl Default for Keys<'_> {
    fn default() -> Self {
        Self {
            keys: [IndexKey::Decision(0); MAX_KEYS],
            count: 0,
        }
    }
}

const MAX_KEYS: usize = 8 + MAX_DELEGATION_IDS;
const NANOS: u64 = 1_000_000_000;
