//! `credence audit tail`

use std::io::Write;

use super::conditions::Conditions;
use super::query::newest;
use super::record::{Heading, Record, print};
use crate::control_plane::ControlPlaneOptions;
use crate::failure::{Failure, Outcome};
use crate::following::Stream;

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
        // Whatever it is, so that nothing is shown twice and nothing is missed.
        let head = newest(&client, &Conditions::default(), None, None, 1)?;
        let head = head.first().map(|record| record.index);
        let mut records = newest(&client, &self.conditions, head.map(|index| index + 1), None, self.last)?;
        records.reverse();
        print(&records, self.json, Heading::Printed, out)?;
        out.flush()?;
        let stream = Stream {
            path: "/v1/audit/stream",
            parameters: self.conditions.parameters(),
            position: head.map(|index| index.to_string()),
        };
        stream.follow(client, |event| {
            if event.name == "record" {
                print(&[Record::read(&event.data)?], self.json, Heading::Omitted, out)?;
                out.flush()?;
            }
            Ok(())
        })
    }
}
