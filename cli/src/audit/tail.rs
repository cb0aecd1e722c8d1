//! `credence audit tail`

use std::io::Write;

use super::conditions::Conditions;
use super::ledger_record::{Heading, Record, print};
use super::query::newest;
use crate::control_plane::{ControlPlaneOptions, unreadable};
use crate::events::Event;
use crate::failure::{Failure, Outcome};
use crate::following::Stream;

/// Print the newest records, oldest first, and then each new one as it arrives, until interrupted.
#[derive(Debug, clap::Args)]
pub(crate) struct Tail {
    #[command(flatten)]
    control_plane: ControlPlaneOptions,

    #[command(flatten)]
    conditions: Conditions,

    /// How many existing records to print first.
    #[arg(long, value_name = "N", default_value_t = 10)]
    last: usize,

    /// Print each record as one line of JSON.
    #[arg(long)]
    json: bool,
}

impl Tail {
    pub(super) fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        let client = self.control_plane.client()?;
        // This request reports a wrong URL or credential at once. The stream below would retry.
        newest(&client, &Conditions::default(), None, None, 1)?;
        let stream = Stream {
            path: "/v1/audit/stream",
            parameters: self.conditions.parameters(),
            position: None,
        };
        let mut begun = false;
        stream.follow(&self.control_plane, |event| {
            // Only the stream knows where it begins. The records before that are asked for here, so that none is
            // printed twice and none is missed, even if the credential may see little of the ledger.
            if !begun && let Some(beginning) = beginning(event)? {
                begun = true;
                let mut records = newest(&client, &self.conditions, Some(beginning), None, self.last)?;
                records.reverse();
                print(&records, self.json, Heading::Printed, out)?;
                out.flush()?;
            }
            if event.name == "record" {
                print(&[Record::read(&event.data)?], self.json, Heading::Omitted, out)?;
                out.flush()?;
            }
            Ok(())
        })
    }
}

/// The index at which the stream begins: it has no earlier records.
fn beginning(event: &Event) -> Result<Option<u64>, Failure> {
    #[derive(serde::Deserialize)]
    struct Alive {
        next: u64,
    }
    match event.name.as_str() {
        "record" => Ok(Some(Record::read(&event.data)?.index)),
        "alive" => {
            let Alive { next } = serde_json::from_str(&event.data).map_err(unreadable)?;
            Ok(Some(next))
        }
        _ => Ok(None),
    }
}
