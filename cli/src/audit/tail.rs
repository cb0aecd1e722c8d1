//! `credence audit tail`

use std::io::Write;
use std::thread;
use std::time::Duration;

use super::conditions::Conditions;
use super::query::newest;
use super::record::{Heading, Record, print};
use crate::control_plane::{Client, ControlPlaneOptions};
use crate::failure::{Failure, Outcome};
use crate::notice;

/// Print the newest records, oldest first, and then each new one as it arrives, until interrupted.
#[derive(Debug, clap::Args)]
pub(super) struct Tail {
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

impl Tail {
    pub(super) fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
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

/// The index of the newest record, whatever it is.
fn head(client: &Client) -> Result<Option<u64>, Failure> {
    Ok(newest(client, &Conditions::default(), None, None, 1)?
        .first()
        .map(|record| record.index))
}

/// Records that `tail` shows at a time.
const MAX_NEWS: usize = 10_000;

const POLL_INTERVAL: Duration = Duration::from_secs(1);
