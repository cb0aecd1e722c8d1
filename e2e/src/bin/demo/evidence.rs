//! The evidence that the control plane has recorded of the demo.

use std::collections::BTreeMap;
use std::io::Write;

use credence_e2e::audit::{Decision, Kind, Record};
use credence_e2e::{Failure, Stack, waiting};

use crate::screen::Screen;

/// The decisions that the demo has seen. The ledger must hold a record of each.
#[derive(Debug, Default)]
pub(crate) struct Expectations {
    /// Decisions on verified delegations: count by the leaf's id and the reason.
    decisions: BTreeMap<(String, String), u64>,
    /// Denials before any signature was verified: minimum count by the reason.
    aggregates: BTreeMap<String, u64>,
}

/// Waits until everything is recorded, and prints it.
pub(crate) fn show(stack: &Stack, screen: &mut Screen<impl Write>, expected: &Expectations) -> Result<(), Failure> {
    let mut records = Vec::new();
    let complete = waiting::until("every decision to be in the ledger", || {
        records = stack.records()?;
        Ok(expected.are_met_by(&records).then_some(()))
    });
    print(&records, screen)?;
    let count: u64 = expected.decisions.values().sum();
    match complete {
        Ok(()) => screen.check(
            true,
            format_args!("each of the {count} decisions on verified delegations and grants is there"),
        ),
        Err(_) => {
            for line in expected.differences(&records) {
                screen.check(false, line)?;
            }
            Ok(())
        }
    }
}

impl Expectations {
    /// Expects the record of a decision on a verified delegation whose last token has this id.
    pub(crate) fn decision(&mut self, leaf: &str, reason: &str) {
        *self.decisions.entry((leaf.to_owned(), reason.to_owned())).or_default() += 1;
    }

    /// Expects a denial before any signature was verified.
    pub(crate) fn aggregate(&mut self, reason: &str) {
        *self.aggregates.entry(reason.to_owned()).or_default() += 1;
    }

    fn are_met_by(&self, records: &[Record]) -> bool {
        self.differences(records).is_empty()
    }

    fn differences(&self, records: &[Record]) -> Vec<String> {
        let mut decisions: BTreeMap<(String, String), u64> = BTreeMap::new();
        for decision in records.iter().filter_map(Record::decision) {
            let leaf = decision.delegation_ids.last().cloned().unwrap_or_default();
            *decisions.entry((leaf, decision.reason.clone())).or_default() += 1;
        }
        let aggregates = aggregates(records);
        // Starting the stack has sent requests too.
        decisions.retain(|(leaf, _), _| leaf != Stack::PROBE);
        let mut lines = Vec::new();
        for (key @ (leaf, reason), count) in &self.decisions {
            let found = decisions.remove(key).unwrap_or(0);
            if found != *count {
                lines.push(format!(
                    "{count} decisions {reason} on {leaf} were made, {found} are recorded"
                ));
            }
        }
        for ((leaf, reason), found) in decisions {
            lines.push(format!(
                "{found} decisions {reason} on {leaf} are recorded, none was made"
            ));
        }
        for (reason, count) in &self.aggregates {
            let found = aggregates.get(reason).copied().unwrap_or(0);
            if found < *count {
                lines.push(format!("{count} denials {reason} were made, {found} are recorded"));
            }
        }
        lines
    }
}

fn print(records: &[Record], screen: &mut Screen<impl Write>) -> Result<(), Failure> {
    screen.say("\nThe evidence, read back from the control plane (`credence audit query`)")?;
    screen.say(line(
        ["TIME", "DECISION", "REASON", "TOOL", "PRINCIPAL", "DELEGATION", "TOOK"],
        1,
    ))?;
    let mut rows: Vec<Row> = records.iter().filter_map(Record::decision).map(Row::of).collect();
    rows.retain(|row| row.leaf != Stack::PROBE);
    // Each worker reports on its own schedule.
    rows.sort_by(|one, other| one.time.cmp(&other.time));
    for alike in rows.chunk_by(Row::is_alike) {
        let [row, ..] = alike else { continue };
        let cells = [
            &row.time,
            row.decision,
            &row.reason,
            &row.tool,
            &row.principal,
            &row.leaf,
            &row.took,
        ];
        screen.say(line(cells, alike.len()))?;
    }
    screen.say(
        "  Only counted: open paths, and denials before any signature was verified (the demo's own probes included):",
    )?;
    let counts = aggregates(records)
        .into_iter()
        .map(|(reason, count)| format!("{reason} {count}"));
    screen.say(format_args!("    {}", counts.collect::<Vec<_>>().join(", ")))
}

fn aggregates(records: &[Record]) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for record in records {
        if let Kind::Aggregate { reason, count, .. } = &record.kind {
            *counts.entry(reason.clone()).or_default() += count;
        }
    }
    counts
}

/// A decision as the demo prints it.
#[derive(Debug)]
struct Row {
    /// Time of day, UTC.
    time: String,
    decision: &'static str,
    reason: String,
    tool: String,
    principal: String,
    leaf: String,
    took: String,
}

impl Row {
    fn of(decision: &Decision) -> Self {
        Self {
            time: decision.time.get(11..23).unwrap_or(&decision.time).to_owned(),
            decision: if decision.decision == "allow" { "allow" } else { "deny" },
            reason: decision.reason.clone(),
            tool: decision.tool.clone(),
            principal: decision.principal.subject.clone().unwrap_or_default(),
            leaf: short(decision.delegation_ids.last().map_or("", String::as_str)),
            took: format!("{} us", decision.decision_ns / 1_000),
        }
    }

    fn is_alike(&self, other: &Self) -> bool {
        (self.decision, &self.reason, &self.leaf) == (other.decision, &other.reason, &other.leaf)
    }
}

/// The end of an id that is too long for its column, as those of the issuer are.
fn short(id: &str) -> String {
    match id.len().checked_sub(LEAF_WIDTH) {
        None | Some(0) => id.to_owned(),
        Some(beyond) => format!("…{}", id.get(beyond + 1..).unwrap_or_default()),
    }
}

const LEAF_WIDTH: usize = 12;

fn line(cells: [&str; 7], count: usize) -> String {
    let [time, decision, reason, tool, principal, leaf, took] = cells;
    let times = if count > 1 { format!("x{count}") } else { String::new() };
    let line =
        format!("  {time:<12}  {decision:<8} {reason:<22} {tool:<16} {principal:<9} {leaf:<12} {took:>7} {times:>4}");
    line.trim_end().to_owned()
}
