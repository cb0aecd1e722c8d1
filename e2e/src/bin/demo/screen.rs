//! The demo's output: one aligned line for each case.

use std::fmt::Display;
use std::io::Write;
use std::time::Duration;

use credence_e2e::{Failure, Reply};

/// Prints, and remembers whether every result was as expected.
#[derive(Debug)]
pub(crate) struct Screen<W> {
    out: W,
    is_all_well: bool,
}

/// How a request was decided, as its client sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// `allow` or `deny`.
    pub(crate) decision: &'static str,
    /// The reason as clients see it.
    pub(crate) reason: String,
    /// The HTTP status.
    pub(crate) status: u16,
}

// === impl Screen ===

impl<W: Write> Screen<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out, is_all_well: true }
    }

    /// Whether every case had the expected result.
    pub(crate) fn is_all_well(&self) -> bool {
        self.is_all_well
    }

    /// Prints a line.
    pub(crate) fn say(&mut self, words: impl Display) -> Result<(), Failure> {
        writeln!(self.out, "{words}")
            .and_then(|()| self.out.flush())
            .map_err(Failure::of("printing"))
    }

    /// Begins a group of cases.
    pub(crate) fn heading(&mut self, title: &str) -> Result<(), Failure> {
        let columns = line(" ", title, "DECISION", "REASON", "HTTP", "LATENCY");
        self.say(format_args!("\n{}", columns.trim_end()))
    }

    /// Prints a case: the decision, beside the expected one.
    pub(crate) fn case(&mut self, name: &str, reply: &Reply, expected: &Outcome) -> Result<(), Failure> {
        let found = Outcome::of(reply);
        let mark = self.mark(found == *expected);
        let status = found.status.to_string();
        self.say(line(
            mark,
            name,
            found.decision,
            &found.reason,
            &status,
            &milliseconds(reply.latency),
        ))?;
        if found == *expected {
            Ok(())
        } else {
            self.say(format_args!(
                "        expected: {} {} {}",
                expected.decision, expected.reason, expected.status
            ))
        }
    }

    /// Prints an observation, and whether it is the expected one.
    pub(crate) fn check(&mut self, is_well: bool, words: impl Display) -> Result<(), Failure> {
        let mark = self.mark(is_well);
        self.say(format_args!("  {mark:<5} {words}"))
    }

    fn mark(&mut self, is_well: bool) -> &'static str {
        self.is_all_well &= is_well;
        if is_well { "ok" } else { "WRONG" }
    }
}

// === impl Outcome ===

impl Outcome {
    /// Allowed by a delegation.
    pub(crate) fn delegated() -> Self {
        Self {
            decision: "allow",
            reason: "delegated".to_owned(),
            status: 200,
        }
    }

    /// Allowed because its path is open to all.
    pub(crate) fn public() -> Self {
        Self {
            decision: "allow",
            reason: "public".to_owned(),
            status: 200,
        }
    }

    /// Denied by the filter.
    pub(crate) fn denied(reason: &str, status: u16) -> Self {
        Self {
            decision: "deny",
            reason: reason.to_owned(),
            status,
        }
    }

    fn of(reply: &Reply) -> Self {
        match reply.received() {
            // The filter tells the service on whose behalf the agent asks; on an open path, it sends no identity
            // headers.
            Some(received) if received.identity_headers().is_empty() => Self::public(),
            Some(_) => Self::delegated(),
            None => Self::denied(&reply.reason().unwrap_or_else(|| "-".to_owned()), reply.status),
        }
    }
}

/// A duration in milliseconds.
pub(crate) fn milliseconds(span: Duration) -> String {
    format!("{:.1} ms", span.as_secs_f64() * 1_000.0)
}

fn line(mark: &str, name: &str, decision: &str, reason: &str, status: &str, latency: &str) -> String {
    format!("  {mark:<5} {name:<46} {decision:<8} {reason:<22} {status:<4} {latency:>9}")
}
