//! `credence principal`

use std::io::Write;

use credence_delegation::UnixTime;
use serde::Deserialize;

use crate::clock;
use crate::control_plane::{ControlPlaneOptions, unreadable};
use crate::failure::{Failure, Outcome};
use crate::principal_name::PrincipalName;
use crate::terminal;

/// Print a principal's state, and its history, newest first.
#[derive(Debug, clap::Args)]
pub(crate) struct Principal {
    #[command(flatten)]
    control_plane: ControlPlaneOptions,

    #[command(flatten)]
    principal: PrincipalName,

    /// Print the control plane's answer as JSON.
    #[arg(long)]
    json: bool,
}

/// The members of the control plane's answer that are printed. A newer control plane may add others.
#[derive(Debug, Deserialize)]
struct Answer {
    epoch: u64,
    disabled: bool,
    disabled_by: Vec<String>,
    raised_at: Option<i64>,
    history: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
struct Entry {
    seq: u64,
    at: i64,
    operation: Option<String>,
    epoch: u64,
    source: Option<String>,
    by: Option<String>,
    reason: Option<String>,
}

impl Principal {
    pub(crate) fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        let mut parameters = vec![("issuer", self.principal.issuer.clone())];
        parameters.extend(self.principal.subject.clone().map(|subject| ("subject", subject)));
        let text = self.control_plane.client()?.get("/v1/principals", &parameters)?;
        if self.json {
            writeln!(out, "{}", text.trim())?;
            return Ok(Outcome::Done);
        }
        let answer: Answer = serde_json::from_str(&text).map_err(unreadable)?;
        answer.print(out)?;
        Ok(Outcome::Done)
    }
}

impl Answer {
    fn print(&self, out: &mut impl Write) -> std::io::Result<()> {
        writeln!(out, "epoch: {}", self.epoch)?;
        if self.disabled {
            writeln!(
                out,
                "disabled by: {}",
                terminal::printable(&self.disabled_by.join(", "))
            )?;
        }
        match self.raised_at {
            Some(raised_at) => writeln!(out, "last raised: {}", clock::rfc3339(UnixTime(raised_at)))?,
            None => writeln!(out, "never raised")?,
        }
        for entry in &self.history {
            let by = match (&entry.source, &entry.by) {
                (Some(source), Some(requester)) => format!(" by {source} {requester}"),
                _ => String::new(),
            };
            let reason = entry
                .reason
                .as_ref()
                .map_or_else(String::new, |reason| format!(": {reason}"));
            let line = format!(
                "entry {}: {} to epoch {}{by}{reason}",
                entry.seq,
                entry.operation.as_deref().unwrap_or("changed"),
                entry.epoch
            );
            writeln!(
                out,
                "{}  {}",
                clock::rfc3339(UnixTime(entry.at)),
                terminal::printable(&line)
            )?;
        }
        Ok(())
    }
}
