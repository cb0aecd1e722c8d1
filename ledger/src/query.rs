//! Reading the ledger back, newest first.

use credence_wire::v1;
use credence_wire::v1::entry::Entry as Kind;

use crate::reader::{LedgerReader, ReadError};
use crate::record::{LedgerRecord, RecordBody};

/// What to look for, and where to go on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    /// Only records with a smaller index; the newest ones if absent.
    pub before: Option<u64>,
    /// Most records on a page.
    pub limit: usize,
    /// What to look for.
    pub filter: Filter,
    /// Of principals of these issuers only, whose decisions alone are then shown; everything if absent.
    pub issuers: Option<Vec<String>>,
}

/// Every condition that is present has to hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// The principal's issuer.
    pub principal_issuer: Option<String>,
    /// The principal's name at the issuer.
    pub principal_subject: Option<String>,
    /// Anywhere in the chain.
    pub delegation_id: Option<String>,
    /// The tool that was called.
    pub tool: Option<String>,
    /// What was decided.
    pub decision: Option<v1::Decision>,
    /// The thumbprint that was proven.
    pub agent: Option<String>,
    /// The reason code.
    pub reason: Option<String>,
    /// The W3C trace id.
    pub trace_id: Option<String>,
    /// Decided at this instant or later, in nanoseconds since the Unix epoch.
    pub from_unix_nano: Option<u64>,
    /// Decided before this instant.
    pub until_unix_nano: Option<u64>,
}

/// Part of the answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// What was found.
    pub records: Vec<LedgerRecord>,
    /// The `before` of the next page; absent if the ledger's beginning was reached.
    pub next: Option<u64>,
}

/// Reads a page. Looks at a bounded number of records, so a page may hold fewer than it could, and still have a
/// `next`. Blocks on the disk.
pub fn read(reader: &LedgerReader, query: &Query) -> Result<Page, ReadError> {
    let mut records = Vec::new();
    let mut before = query.before.unwrap_or(u64::MAX);
    let mut looked_at = 0;
    while looked_at < MAX_LOOKED_AT {
        let block = reader.block_before(before)?;
        if block.is_empty() {
            return Ok(Page { records, next: None });
        }
        looked_at += block.len();
        for record in block.into_iter().rev() {
            before = record.index;
            if query.admits(&record.body) {
                records.push(record);
                if records.len() >= query.limit {
                    return Ok(Page {
                        records,
                        next: (before > 0).then_some(before),
                    });
                }
            }
        }
    }
    Ok(Page {
        records,
        next: (before > 0).then_some(before),
    })
}

// === impl Query ===

impl Query {
    fn admits(&self, body: &RecordBody) -> bool {
        self.issuers
            .as_ref()
            .is_none_or(|issuers| issuer_of(body).is_some_and(|issuer| issuers.iter().any(|known| known == issuer)))
            && self.filter.admits(body)
    }
}

/// Whose principal it is that was decided about. Aggregates, gaps and sources are about no principal.
fn issuer_of(body: &RecordBody) -> Option<&str> {
    match body {
        RecordBody::Entry {
            entry: v1::Entry {
                entry: Some(Kind::Event(event)),
            },
            ..
        } => event.principal.as_ref().map(|principal| principal.issuer.as_str()),
        RecordBody::Entry { .. } | RecordBody::Source(_) | RecordBody::Note(_) | RecordBody::Erased => None,
    }
}

// === impl Filter ===

impl Filter {
    fn admits(&self, body: &RecordBody) -> bool {
        match body {
            RecordBody::Entry {
                entry: v1::Entry {
                    entry: Some(Kind::Event(event)),
                },
                ..
            } => self.admits_event(event),
            // Denials before any signature verified: they have no principal, tool or delegation.
            RecordBody::Entry {
                entry: v1::Entry {
                    entry: Some(Kind::Aggregate(_)),
                },
                ..
            } => {
                let decision = self.decision.filter(|decision| *decision == v1::Decision::Deny);
                *self
                    == Self {
                        decision,
                        ..Self::default()
                    }
            }
            RecordBody::Entry { .. } | RecordBody::Source(_) | RecordBody::Note(_) | RecordBody::Erased => {
                *self == Self::default()
            }
        }
    }

    fn admits_event(&self, event: &v1::Event) -> bool {
        let principal = event.principal.as_ref();
        let issuer = principal.map(|principal| principal.issuer.as_str());
        let subject = principal.and_then(|principal| principal.subject.as_deref());
        self.principal_issuer
            .as_deref()
            .is_none_or(|wanted| issuer == Some(wanted))
            && self
                .principal_subject
                .as_deref()
                .is_none_or(|wanted| subject == Some(wanted))
            && self
                .delegation_id
                .as_ref()
                .is_none_or(|wanted| event.delegation_ids.contains(wanted))
            && self.tool.as_ref().is_none_or(|wanted| event.tool == *wanted)
            && self.decision.is_none_or(|wanted| event.decision() == wanted)
            && self.agent.as_ref().is_none_or(|wanted| event.agent == *wanted)
            && self.reason.as_ref().is_none_or(|wanted| event.reason == *wanted)
            && self.trace_id.as_ref().is_none_or(|wanted| event.trace_id == *wanted)
            && self.from_unix_nano.is_none_or(|from| event.time_unix_nano >= from)
            && self.until_unix_nano.is_none_or(|until| event.time_unix_nano < until)
    }
}

/// Records looked at for one page: about a tenth of a second of one core.
const MAX_LOOKED_AT: usize = 200_000;

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::record::{SourceChange, StoredSourceChange};
    use crate::{Ledger, LedgerBounds, LedgerOptions, NewItem, Retention, SourceName};

    fn event(subject: &str, tool: &str, decision: v1::Decision) -> Kind {
        let principal = v1::Principal {
            issuer: "https://id".to_owned(),
            subject: Some(subject.to_owned()),
        };
        Kind::Event(v1::Event {
            principal: Some(principal),
            tool: tool.to_owned(),
            decision: decision.into(),
            delegation_ids: vec![format!("root-{subject}"), "leaf".to_owned()],
            ..Default::default()
        })
    }

    /// Index 0 is a source's start, 1 to 3 events, 4 an aggregate, 5 a gap.
    fn ledger() -> (tempfile::TempDir, LedgerReader) {
        let folder = tempfile::tempdir().unwrap();
        let options = LedgerOptions {
            origin: "log.example".to_owned(),
            bounds: LedgerBounds {
                total: 1 << 30,
                segment: 1 << 30,
                keys: 100,
            },
            retention: Retention::default(),
            published: None,
        };
        let (mut ledger, _) = Ledger::open(folder.path(), options).unwrap();
        let source = SourceName([7; 16]);
        let started = StoredSourceChange {
            change: SourceChange::Started.into(),
            ..Default::default()
        };
        let kinds = [
            event("alice", "pay", v1::Decision::Allow),
            event("bob", "pay", v1::Decision::Deny),
            event("alice", "read", v1::Decision::Allow),
            Kind::Aggregate(v1::Aggregate {
                count: 9,
                ..Default::default()
            }),
            Kind::Gap(v1::Gap {
                shed: 1,
                ..Default::default()
            }),
        ];
        let entries = kinds.map(|kind| v1::Entry { entry: Some(kind) }).to_vec();
        let batch = v1::Batch {
            first_sequence: 1,
            entries,
        };
        let entries = NewItem::Entries {
            source,
            batch: batch.encode_to_vec().into(),
            skip: 0,
            first_sequence: 1,
        };
        let change = NewItem::Change {
            source,
            change: started,
        };
        ledger.append(&[change]).unwrap();
        ledger.append(&[entries]).unwrap();
        (folder, ledger.reader())
    }

    fn found(filter: Filter) -> Vec<u64> {
        let (_folder, reader) = ledger();
        let page = read(
            &reader,
            &Query {
                before: None,
                limit: 100,
                filter,
                issuers: None,
            },
        )
        .unwrap();
        assert_eq!(page.next, None);
        page.records.iter().map(|record| record.index).collect()
    }

    #[test]
    fn without_a_filter_everything_is_found_newest_first() {
        assert_eq!(found(Filter::default()), [5, 4, 3, 2, 1, 0]);
    }

    #[test]
    fn every_condition_has_to_hold() {
        let text = |text: &str| Some(text.to_owned());
        let cases = [
            (
                Filter {
                    principal_subject: text("alice"),
                    ..Filter::default()
                },
                vec![3, 1],
            ),
            (
                Filter {
                    principal_issuer: text("https://id"),
                    tool: text("pay"),
                    ..Filter::default()
                },
                vec![2, 1],
            ),
            (
                Filter {
                    delegation_id: text("root-bob"),
                    ..Filter::default()
                },
                vec![2],
            ),
            (
                Filter {
                    decision: Some(v1::Decision::Allow),
                    ..Filter::default()
                },
                vec![3, 1],
            ),
            (
                Filter {
                    decision: Some(v1::Decision::Deny),
                    ..Filter::default()
                },
                vec![4, 2],
            ),
            (
                Filter {
                    decision: Some(v1::Decision::Deny),
                    tool: text("read"),
                    ..Filter::default()
                },
                vec![],
            ),
        ];
        for (filter, expected) in cases {
            assert_eq!(found(filter.clone()), expected, "{filter:?}");
        }
    }

    #[test]
    fn pages_follow_one_another_without_overlap_or_gap() {
        let (_folder, reader) = ledger();
        let mut indexes = Vec::new();
        let mut before = None;
        loop {
            let page = read(
                &reader,
                &Query {
                    before,
                    limit: 4,
                    filter: Filter::default(),
                    issuers: None,
                },
            )
            .unwrap();
            indexes.push(page.records.iter().map(|record| record.index).collect::<Vec<_>>());
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        assert_eq!(indexes, [vec![5, 4, 3, 2], vec![1, 0]]);
    }
}
