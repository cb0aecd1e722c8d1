//! A record of the ledger: the control plane's JSON, and its text for a terminal.

use std::io::Write;

use credence_delegation::json::{Json, Object};

use crate::control_plane::unreadable;
use crate::failure::Failure;
use crate::{columns, terminal};

/// One record: its place in the ledger, and its JSON text.
#[derive(serde::Deserialize)]
pub(super) struct Record {
    pub(super) index: u64,
    /// Its number from that source; 0 if it has none.
    #[serde(default)]
    pub(super) sequence: u64,
    /// When it was on disk.
    #[serde(default)]
    pub(super) received: String,
    #[serde(skip)]
    pub(super) text: String,
    /// Of several ledgers, the number of its own.
    #[serde(skip)]
    pub(super) ledger: Option<usize>,
}

impl Record {
    pub(super) fn read(text: &str) -> Result<Self, Failure> {
        let read: Self = serde_json::from_str(text).map_err(unreadable)?;
        let text = text.to_owned();
        Ok(Self { text, ..read })
    }

    fn json(&self) -> Result<Json<'_>, Failure> {
        let json = Json::parse(self.text.as_bytes()).map_err(unreadable)?;
        json.as_object().ok_or_else(|| unreadable("not an object"))?;
        Ok(json)
    }

    /// What its source said, wherever it was stored: all but its place in the ledger and the time.
    pub(super) fn said(&self) -> Vec<(String, String)> {
        let mut members = self.members().unwrap_or_default();
        members.retain(|(name, _)| name != "index" && name != "received");
        members
    }

    /// Every member and its value, escaped for a terminal.
    pub(super) fn members(&self) -> Result<Vec<(String, String)>, Failure> {
        let json = self.json()?;
        let members = json.as_object().into_iter().flat_map(Object::iter);
        Ok(members
            .map(|(name, value)| (terminal::printable(name), terminal::unquoted(value)))
            .collect())
    }

    /// The record's cells under [`HEADING`].
    fn row(&self) -> Result<[String; HEADING.len()], Failure> {
        let json = self.json()?;
        let empty = Object::default();
        let event = json.as_object().unwrap_or(&empty);
        let cell = |name: &str| match event.member(name) {
            None | Some(Json::Null) => "-".to_owned(),
            Some(Json::String(text)) if text.is_empty() => "-".to_owned(),
            Some(value) => terminal::unquoted(value),
        };
        let cells = match event.text("kind") {
            Some("decision") => {
                let nanoseconds = event.member("decision_ns").and_then(Json::as_integer);
                vec![
                    cell("time"),
                    carried_out_or_not(event, cell("decision")),
                    cell("reason"),
                    cell("rule"),
                    cell("tool"),
                    principal(event),
                    cell("proof"),
                    cell("cache"),
                    (nanoseconds.unwrap_or_default() / 1_000).to_string(),
                ]
            }
            Some("aggregate") => vec![
                cell("time"),
                carried_out_or_not(event, format!("{} x{}", cell("decision"), cell("count"))),
                cell("reason"),
                cell("rule"),
                "-".to_owned(),
                principal(event),
            ],
            Some("gap") => {
                let shed = format!("{} events shed until {}", cell("shed"), cell("last_time"));
                vec![cell("first_time"), "gap".to_owned(), shed]
            }
            Some("source") => {
                let node = format!("{} {}", cell("node"), cell("plugin"));
                vec![cell("received"), "source".to_owned(), cell("change"), node]
            }
            _ => vec![cell("received"), cell("kind")],
        };
        // Records of this kind leave the other columns empty.
        let index = match self.ledger {
            Some(ledger) => format!("{ledger}/{}", self.index),
            None => self.index.to_string(),
        };
        let mut cells = std::iter::once(index).chain(cells);
        Ok(std::array::from_fn(|_| cells.next().unwrap_or_else(|| "-".to_owned())))
    }
}

const HEADING: [&str; 10] = [
    "INDEX",
    "TIME",
    "DECISION",
    "REASON",
    "RULE",
    "TOOL",
    "PRINCIPAL",
    "PROOF",
    "CACHE",
    "US",
];

/// In shadow mode, the filter did not carry the decision out.
fn carried_out_or_not(event: &Object<'_>, decision: String) -> String {
    match event.text("mode") {
        Some("shadow") => format!("{decision} (shadow)"),
        Some(_) | None => decision,
    }
}

fn principal(event: &Object<'_>) -> String {
    let part = |name: &str| event.object("principal")?.text(name).map(terminal::printable);
    match (part("issuer"), part("subject")) {
        (Some(issuer), Some(subject)) => format!("{subject} at {issuer}"),
        (Some(issuer), None) => issuer,
        (None, _) => "-".to_owned(),
    }
}

/// Whether a table begins with the names of the columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heading {
    Printed,
    Omitted,
}

pub(super) fn print(records: &[Record], json: bool, heading: Heading, out: &mut impl Write) -> Result<(), Failure> {
    if json {
        for record in records {
            writeln!(out, "{}", terminal::printable_json(&record.text))?;
        }
        return Ok(());
    }
    let mut rows = match heading {
        Heading::Printed => vec![HEADING.map(str::to_owned)],
        Heading::Omitted => Vec::new(),
    };
    for record in records {
        rows.push(record.row()?);
    }
    columns::print(&rows, out)?;
    Ok(())
}
