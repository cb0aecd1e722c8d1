//! `credence audit query`

use std::collections::HashSet;
use std::io::Write;

use serde_json::value::RawValue;

use super::conditions::Conditions;
use super::ledger_record::{Heading, Record, print};
use crate::control_plane::{Client, ControlPlaneOptions, OtherReplicas, unreadable};
use crate::failure::{Failure, Outcome};

/// Print records, newest first.
#[derive(Debug, clap::Args)]
pub(crate) struct Query {
    #[command(flatten)]
    control_plane: ControlPlaneOptions,

    #[command(flatten)]
    others: OtherReplicas,

    #[command(flatten)]
    conditions: Conditions,

    /// The most records to print.
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,

    /// Only records before this index.
    #[arg(long, value_name = "INDEX", conflicts_with = "also")]
    before: Option<u64>,

    /// Print each record as one line of JSON.
    #[arg(long)]
    json: bool,
}

impl Query {
    pub(super) fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        let newest_of =
            |replica: &ControlPlaneOptions| newest(&replica.client()?, &self.conditions, self.before, None, self.limit);
        let records = match self.others.is_empty() {
            true => newest_of(&self.control_plane)?,
            false => {
                let replicas = self.others.with(&self.control_plane);
                let ledgers: Result<_, Failure> = replicas.iter().map(newest_of).collect();
                merged(ledgers?, self.limit)
            }
        };
        print(&records, self.json, Heading::Printed, out)?;
        Ok(Outcome::Done)
    }
}

/// The newest of the records of several ledgers. Evidence that two of them have, because its source moved before it was
/// acknowledged, counts once.
fn merged(ledgers: Vec<Vec<Record>>, limit: usize) -> Vec<Record> {
    let numbered = ledgers.into_iter().zip(1..).flat_map(|(records, ledger)| {
        records.into_iter().map(move |record| Record {
            ledger: Some(ledger),
            ..record
        })
    });
    let mut records: Vec<_> = numbered.collect();
    // Times have a fixed length. Of equal ones, later records of a ledger come first.
    records.sort_by(|a, b| (&b.received, b.index).cmp(&(&a.received, a.index)));
    // If a source says different things under one number, both are shown.
    let mut seen = HashSet::new();
    records.retain(|record| record.sequence == 0 || seen.insert(record.said()));
    records.truncate(limit);
    records
}

/// An answer of the control plane.
#[derive(serde::Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    events: Vec<&'a RawValue>,
    /// Where the next page begins, if any.
    next: Option<u64>,
}

/// The newest records before `before` and after `after`, newest first, at most `limit`.
pub(super) fn newest(
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
        let page: Page<'_> = serde_json::from_str(&text).map_err(unreadable)?;
        for event in page.events {
            let record = Record::read(event.get())?;
            if after.is_some_and(|after| record.index <= after) {
                return Ok(records);
            }
            records.push(record);
        }
        match page.next {
            // A short or empty page need not be the last one.
            Some(next) if after.is_none_or(|after| next > after + 1) => before = Some(next),
            Some(_) | None => break,
        }
    }
    Ok(records)
}

/// The most records on one page of the control plane.
const MAX_PAGE: usize = 1_000;
