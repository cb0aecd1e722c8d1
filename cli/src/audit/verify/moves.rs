//! Whether evidence of sources that moved between replicas is complete: where one ledger goes on, another one has ended,
//! or ends later.

use std::collections::BTreeMap;
use std::io::Write;

use serde::Deserialize;

use super::super::conditions::Conditions;
use super::super::query::newest;
use crate::control_plane::{Client, unreadable};
use crate::failure::Failure;

/// What one ledger has of a source: from after one sequence number up to another, which is absent as long as the source
/// has not left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Part {
    after: u64,
    last: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Change {
    source: String,
    change: String,
    last_sequence: u64,
}

/// Returns what is missing.
pub(super) fn check(ledgers: &[Client], out: &mut impl Write) -> Result<Vec<String>, Failure> {
    let mut sources: BTreeMap<String, Vec<Part>> = BTreeMap::new();
    for ledger in ledgers {
        let newest_first = newest(ledger, &Conditions::of_sources(), None, None, usize::MAX)?;
        let changes = newest_first.iter().rev();
        let changes: Result<Vec<Change>, _> = changes.map(|record| serde_json::from_str(&record.text)).collect();
        for (source, part) in parts(&changes.map_err(unreadable)?) {
            sources.entry(source.to_owned()).or_default().push(part);
        }
    }
    let moved = sources.values().filter(|parts| parts.len() > 1).count();
    writeln!(out, "sources: {}, of which {moved} have moved", sources.len())?;
    let mut problems = Vec::new();
    for (source, mut parts) in sources {
        parts.sort_unstable();
        for missing in missing(&parts) {
            match missing {
                Missing::Entries { first, last } => {
                    problems.push(format!(
                        "entries {first} to {last} of source {source} are in none of these ledgers"
                    ));
                }
                Missing::Departure { after } => writeln!(
                    out,
                    "not checked: source {source} goes on elsewhere after {after}; the ledger that it left does not \
                     say yet how far it has it"
                )?,
            }
        }
    }
    Ok(problems)
}

/// The parts that a ledger has, from its records of sources, oldest first.
fn parts(changes: &[Change]) -> Vec<(&str, Part)> {
    let mut begun: BTreeMap<&str, u64> = BTreeMap::new();
    let mut parts = Vec::new();
    for change in changes {
        let source = change.source.as_str();
        match change.change.as_str() {
            "started" | "returned" | "arrived from another replica" => _ = begun.insert(source, change.last_sequence),
            // Of a source without a beginning, the oldest records were removed.
            _ => parts.push((
                source,
                Part {
                    after: begun.remove(source).unwrap_or(0),
                    last: Some(change.last_sequence),
                },
            )),
        }
    }
    let present = begun.into_iter();
    parts.extend(present.map(|(source, after)| (source, Part { after, last: None })));
    parts
}

#[derive(Debug, PartialEq, Eq)]
enum Missing {
    Entries {
        first: u64,
        last: u64,
    },
    /// A part that has not ended comes before one that begins after this number.
    Departure {
        after: u64,
    },
}

/// What lies between the parts of one source, in their order.
fn missing(parts: &[Part]) -> Vec<Missing> {
    let (mut through, mut has_open) = (0, false);
    let mut missing = Vec::new();
    for part in parts {
        if part.after > through {
            missing.push(match has_open {
                true => Missing::Departure { after: part.after },
                false => Missing::Entries {
                    first: through + 1,
                    last: part.after,
                },
            });
        }
        has_open |= part.last.is_none();
        through = through.max(part.last.unwrap_or(part.after));
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(change: &str, last_sequence: u64) -> Change {
        Change {
            source: "s".to_owned(),
            change: change.to_owned(),
            last_sequence,
        }
    }

    fn missing_in(ledgers: &[&[Change]]) -> Vec<Missing> {
        let all = ledgers.iter().flat_map(|ledger| parts(ledger));
        let mut all: Vec<_> = all.map(|(_, part)| part).collect();
        all.sort_unstable();
        missing(&all)
    }

    #[test]
    fn a_source_that_moved_is_complete_if_the_parts_meet_or_overlap() {
        let first = [change("started", 0), change("moved to another replica", 9)];
        for after in [7, 9] {
            let second = [change("arrived from another replica", after), change("ended", 20)];
            assert_eq!(missing_in(&[&second, &first]), []);
        }
    }

    #[test]
    fn entries_that_no_ledger_has_are_named() {
        let first = [change("started", 0), change("ended, tail unknown", 9)];
        let second = [change("arrived from another replica", 12)];
        assert_eq!(
            missing_in(&[&first, &second]),
            [Missing::Entries { first: 10, last: 12 }]
        );
        assert_eq!(missing_in(&[&second]), [Missing::Entries { first: 1, last: 12 }]);
    }

    #[test]
    fn a_ledger_that_does_not_know_of_the_move_is_not_judged() {
        let first = [change("started", 0)];
        let second = [change("arrived from another replica", 12)];
        assert_eq!(missing_in(&[&first, &second]), [Missing::Departure { after: 12 }]);
    }

    #[test]
    fn a_source_may_come_back() {
        let first = [
            change("started", 0),
            change("moved to another replica", 5),
            change("arrived from another replica", 9),
            change("ended", 11),
        ];
        let second = [
            change("arrived from another replica", 4),
            change("moved to another replica", 9),
        ];
        assert_eq!(missing_in(&[&first, &second]), []);
        assert_eq!(missing_in(&[&first]), [Missing::Entries { first: 6, last: 9 }]);
    }
}
