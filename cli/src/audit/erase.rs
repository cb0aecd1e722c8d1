//! `credence audit erase`

use std::io::{BufRead as _, Write};

use serde::Deserialize;
use serde_json::json;

use crate::control_plane::{ControlPlaneOptions, unreadable};
use crate::failure::{Failure, Outcome};
use crate::principal_name::PrincipalName;
use crate::stderr;

/// Erase the evidence about a principal: destroy the principal's data key, so that its records become unreadable.
///
/// Every proof stays valid. The ledger records who asked and why, but not for which principal. Erasing does not reach
/// the revocation log and its history, exports, copies sent elsewhere, and backups.
#[derive(Debug, clap::Args)]
pub(crate) struct Erase {
    #[command(flatten)]
    control_plane: ControlPlaneOptions,

    #[command(flatten)]
    pub principal: PrincipalName,

    /// The reason. The ledger keeps it, so do not name the principal in it.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,

    /// Do not ask for confirmation.
    #[arg(long)]
    yes: bool,

    /// Print the control plane's answer as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Deserialize)]
struct Answer {
    erased: bool,
    index: Option<u64>,
}

impl Erase {
    pub(super) fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        let client = self.control_plane.client()?;
        let name = &self.principal;
        if !self.yes {
            confirm(name)?;
        }
        let request = json!({"principal": name, "reason": self.reason}).to_string();
        let text = client.post("/v1/audit/erasures", &request)?;
        let answer: Answer = serde_json::from_str(&text).map_err(unreadable)?;
        match (self.json, answer.erased, answer.index) {
            (true, ..) => writeln!(out, "{}", text.trim())?,
            (false, true, Some(index)) => {
                writeln!(
                    out,
                    "erased the evidence about {name}; record {index} of the ledger says so"
                )?;
            }
            (false, true, None) => writeln!(out, "erased the evidence about {name}")?,
            (false, false, _) => writeln!(out, "there is no evidence about {name}, or it was erased earlier")?,
        }
        Ok(Outcome::Done)
    }
}

fn confirm(name: &PrincipalName) -> Result<(), Failure> {
    stderr::print(format!(
        "This cannot be undone: the evidence about {name} becomes unreadable. Type yes to continue:"
    ));
    let mut answer = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut answer)
        .map_err(|error| Failure::input(format!("the answer cannot be read: {error}; or give --yes")))?;
    if answer.trim() == "yes" {
        Ok(())
    } else {
        Err(Failure::operation("nothing was erased; type yes, or give --yes"))
    }
}
