//! `credence audit`

use std::io::Write;
use std::thread;
use std::time::Duration;

use credence_delegation::json::{Json, Object};
use serde_json::value::RawValue;

use crate::control_plane::{Client, ControlPlaneOptions};
use crate::failure::{Failure, Outcome};
use crate::{notice, table, words};

/// Read the evidence of decisions.
#[derive(Debug, clap::Args)]
pub(crate) struct Audit {
    #[command(subcommand)]
    command: AuditCommand,
}

#[derive(Debug, clap::Subcommand)]
enum AuditCommand {
    Query(Query),
    Tail(Tail),
}

/// Print what was recorded, newest first.
#[derive(Debug, clap::Args)]
struct Query {
    #[command(flatten)]
    control_plane: ControlPlaneOptions,

    #[command(flatten)]
    conditions: Conditions,

    /// Records to print at most.
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,

    /// Only records before this index.
    #[arg(long, value_name = "INDEX")]
    before: Option<u64>,

    /// Print each record as a line of JSON.
    #[arg(long)]
    json: bool,
}

/// Print the newest records, oldest first, and then each new one as it arrives, until interrupted.
#[derive(Debug, clap::Args)]
struct Tail {
    #[command(flatten)]
    control_plane: ControlPlaneOptions,

    #[command(flatten)]
    conditions: Conditions,

    /// Records to print at first.
    #[arg(long, value_name = "N", default_value_t = 10)]
    last: usize,

    /// Print each record as a line of JSON.
    #[arg(long)]
    json: bool,
}

/// Which records; every condition has to hold.
#[derive(Debug, Default, clap::Args)]
struct Conditions {
    /// The principal's issuer.
    #[arg(long, value_name = "URI")]
    issuer: Option<String>,

    /// The principal's name at the issuer.
    #[arg(long, value_name = "NAME")]
    subject: Option<String>,

    /// The id of any token in the chain.
    #[arg(long, value_name = "ID")]
    delegation: Option<String>,

    /// The tool that was used.
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,

    /// What was decided.
    #[arg(long, value_enum)]
    decision: Option<Decision>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Decision {
    Allow,
    Deny,
}

impl Audit {
    pub(crate) fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        match &self.command {
            AuditCommand::Query(query) => query.run(out),
            AuditCommand::Tail(tail) => tail.run(out),
        }
    }
}

impl Query {
    fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        let records = newest(
            &self.control_plane.client()?,
            &self.conditions,
            self.before,
            None,
            self.limit,
        )?;
        print(&records, self.json, Heading::Printed, out)?;
        Ok(Outcome::Done)
    }
}

impl Tail {
    fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        let client = self.control_plane.client()?;
        let mut seen = head(&client)?;
        let before = seen.map(|index| index + 1);
        let mut records = newest(&client, &self.conditions, before, None, self.last)?;
        let mut heading = Heading::Printed;
        let mut told = false;
        loop {
            records.reverse();
            print(&records, self.json, heading, out)?;
            out.flush()?;
            heading = Heading::Omitted;
            thread::sleep(POLL_INTERVAL);
            records = match self.news(&client, &mut seen) {
                Ok(records) => {
                    told = false;
                    records
                }
                // A control plane that restarts comes back, and with it everything that was recorded meanwhile.
                Err(failure) => {
                    if !told {
                        notice::print(format_args!("credence: {failure} (still trying)"));
                        told = true;
                    }
                    Vec::new()
                }
            };
        }
    }

    /// What was recorded after `seen`, newest first.
    fn news(&self, client: &Client, seen: &mut Option<u64>) -> Result<Vec<Record>, Failure> {
        // The newest record of all is cheap to find; one that meets conditions may not be.
        let head = head(client)?;
        if head == *seen {
            return Ok(Vec::new());
        }
        let records = newest(client, &self.conditions, head.map(|index| index + 1), *seen, MAX_NEWS)?;
        if records.len() == MAX_NEWS {
            notice::print("credence: more is recorded than can be shown; use `credence audit query` for the rest");
        }
        *seen = head;
        Ok(records)
    }
}

impl Conditions {
    fn parameters(&self) -> Vec<(&'static str, String)> {
        let decision = self.decision.map(|decision| match decision {
            Decision::Allow => "allow".to_owned(),
            Decision::Deny => "deny".to_owned(),
        });
        [
            ("principal_issuer", self.issuer.clone()),
            ("principal_subject", self.subject.clone()),
            ("delegation_id", self.delegation.clone()),
            ("tool", self.tool.clone()),
            ("decision", decision),
        ]
        .into_iter()
        .filter_map(|(name, value)| value.map(|value| (name, value)))
        .collect()
    }
}

/// One record: its place in the ledger, and its JSON text.
struct Record {
    index: u64,
    text: String,
}

/// An answer of the control plane.
#[derive(serde::Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    events: Vec<&'a RawValue>,
    /// Where the next page begins, if there is one.
    next: Option<u64>,
}

/// The index of the newest record, whatever it is.
fn head(client: &Client) -> Result<Option<u64>, Failure> {
    Ok(newest(client, &Conditions::default(), None, None, 1)?
        .first()
        .map(|record| record.index))
}

/// The newest records that are before `before` and after `after`, newest first, at most `limit`.
fn newest(
    client: &Client,
    conditions: &Conditions,
    mut before: Option<u64>,
    after: Option<u64>,
    limit: usize,
) -> Result<Vec<Record>, Failure> {
    let mut records = Vec::new();
    while records.len() < limit {
        let mut parameters = conditions.parameters();
        parameters.push(("limit", (limit - records.len()).min(MAX_PAGE).to_string()));
        parameters.extend(before.map(|before| ("before", before.to_string())));
        let text = client.get("/v1/audit/events", &parameters)?;
        let page: Page<'_> = serde_json::from_str(&text).map_err(|error| unreadable(&error))?;
        for event in page.events {
            let record = Record::read(event.get())?;
            if after.is_some_and(|after| record.index <= after) {
                return Ok(records);
            }
            records.push(record);
        }
        match page.next {
            // A page may be short, or even empty, and still not be the last.
            Some(next) if after.is_none_or(|after| next > after + 1) => before = Some(next),
            Some(_) | None => break,
        }
    }
    Ok(records)
}

impl Record {
    fn read(text: &str) -> Result<Self, Failure> {
        #[derive(serde::Deserialize)]
        struct Place {
            index: u64,
        }
        let Place { index } = serde_json::from_str(text).map_err(|error| unreadable(&error))?;
        Ok(Self {
            index,
            text: text.to_owned(),
        })
    }

    /// The record's cells under [`HEADING`].
    fn row(&self) -> Result<[String; HEADING.len()], Failure> {
        let json = Json::parse(self.text.as_bytes()).map_err(|error| unreadable(&error))?;
        let empty = Object::default();
        let event = json.as_object().unwrap_or(&empty);
        let cell = |name: &str| match event.member(name) {
            None | Some(Json::Null) => "-".to_owned(),
            Some(Json::String(text)) if text.is_empty() => "-".to_owned(),
            Some(Json::String(text)) => words::printable(text),
            Some(other) => words::value(other),
        };
        let none = || "-".to_owned();
        let index = self.index.to_string();
        Ok(match event.member("kind").and_then(Json::as_str) {
            Some("decision") => {
                let microseconds = event
                    .member("decision_ns")
                    .and_then(Json::as_integer)
                    .unwrap_or_default()
                    / 1_000;
                [
                    index,
                    cell("time"),
                    cell("decision"),
                    cell("reason"),
                    cell("rule"),
                    cell("tool"),
                    principal(event),
                    cell("proof"),
                    cell("cache"),
                    microseconds.to_string(),
                ]
            }
            Some("aggregate") => [
                index,
                cell("time"),
                format!("{} x{}", cell("decision"), cell("count")),
                cell("reason"),
                cell("rule"),
                none(),
                none(),
                none(),
                none(),
                none(),
            ],
            Some("gap") => {
                let shed = format!("{} events shed until {}", cell("shed"), cell("last_time"));
                [
                    index,
                    cell("first_time"),
                    "gap".to_owned(),
                    shed,
                    none(),
                    none(),
                    none(),
                    none(),
                    none(),
                    none(),
                ]
            }
            Some("source") => {
                let node = format!("{} {}", cell("node"), cell("plugin"));
                let change = cell("change");
                [
                    index,
                    cell("received"),
                    "source".to_owned(),
                    change,
                    node,
                    none(),
                    none(),
                    none(),
                    none(),
                    none(),
                ]
            }
            _ => {
                let kind = cell("kind");
                [
                    index,
                    cell("received"),
                    kind,
                    none(),
                    none(),
                    none(),
                    none(),
                    none(),
                    none(),
                    none(),
                ]
            }
        })
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

fn principal(event: &Object<'_>) -> String {
    let Some(principal) = event.member("principal").and_then(Json::as_object) else {
        return "-".to_owned();
    };
    let part = |name: &str| principal.member(name).and_then(Json::as_str).map(words::printable);
    match (part("issuer"), part("subject")) {
        (Some(issuer), Some(subject)) => format!("{subject} at {issuer}"),
        (Some(issuer), None) => issuer,
        (None, _) => "-".to_owned(),
    }
}

/// Whether a table begins with the names of its columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heading {
    Printed,
    Omitted,
}

fn print(records: &[Record], json: bool, heading: Heading, out: &mut impl Write) -> Result<(), Failure> {
    if json {
        for record in records {
            writeln!(out, "{}", record.text)?;
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
    table::print(&rows, out)?;
    Ok(())
}

fn unreadable(error: &impl std::fmt::Display) -> Failure {
    Failure::operation(format!(
        "the control plane's answer can not be read: {error}; is it of the same version?"
    ))
}

/// Records that the control plane puts on one page at most.
const MAX_PAGE: usize = 1_000;

/// Records that `tail` shows at a time.
const MAX_NEWS: usize = 10_000;

const POLL_INTERVAL: Duration = Duration::from_secs(1);
