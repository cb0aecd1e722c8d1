//! How far a revocation has come: waits until every filter has applied it, and shows that.

use std::io::Write;
use std::time::{Duration, Instant};

use credence_delegation::json::Json;

use crate::control_plane::Client;
use crate::failure::Failure;
use crate::words;

/// What the answer is to be.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct AnswerOptions {
    /// Print the control plane's answer as JSON.
    #[arg(long)]
    pub(crate) json: bool,

    /// Return once the revocation is durable, and do not wait until every filter has applied it.
    #[arg(long)]
    pub(crate) no_wait: bool,
}

/// What the control plane says of the filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Filters {
    applied: u64,
    unknown: u64,
    left: Duration,
}

impl AnswerOptions {
    /// Posts a revocation. Whoever reads words sees how far it has come, so that the answer comes at once, and the rest is
    /// asked for ([`follow`]).
    pub(crate) fn post(self, client: &Client, request: &str) -> Result<String, Failure> {
        let wait = if self.json && !self.no_wait {
            "applied"
        } else {
            "committed"
        };
        client.post(&format!("/v1/revocations?wait={wait}"), request)
    }

    /// What there is to say of the filters behind the answer to a revocation; waits for them, if that is wanted.
    pub(crate) fn confirmation(self, client: &Client, answer: &str) -> Result<String, Failure> {
        let Some((seq, filters)) = read(answer)? else {
            return Ok(String::new());
        };
        let filters = match self.no_wait {
            true => filters,
            false => follow(client, seq, filters)?,
        };
        Ok(filters.describe())
    }
}

/// Asks until the revocation is confirmed. If that takes a moment, it is shown what it waits for.
fn follow(client: &Client, seq: u64, mut filters: Filters) -> Result<Filters, Failure> {
    let begun = Instant::now();
    let mut pause = SHORTEST_PAUSE;
    let mut shown = Duration::ZERO;
    while !filters.left.is_zero() {
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
        let answer = client.get(&format!("/v1/revocations/{seq}"), &[("wait", "committed".to_owned())])?;
        match read(&answer)? {
            Some((_, now)) => filters = now,
            None => break,
        }
        let took = begun.elapsed();
        if !filters.left.is_zero() && took >= shown + SHOW_INTERVAL {
            shown = took;
            // Nobody may read it.
            let _ = writeln!(std::io::stderr(), "waiting: {}", filters.progress());
        }
    }
    Ok(filters)
}

/// The entry and the filters of an answer; nothing from control planes that wait for none.
fn read(answer: &str) -> Result<Option<(u64, Filters)>, Failure> {
    let answer = Json::parse(answer.as_bytes())
        .map_err(|error| Failure::operation(format!("the control plane's answer can not be read: {error}")))?;
    let number = |object: &Json<'_>, name: &str| words::value(object.as_object()?.member(name)?).parse::<u64>().ok();
    let filters = answer.as_object().and_then(|answer| answer.member("filters"));
    Ok(filters.and_then(|filters| {
        let read = Filters {
            applied: number(filters, "applied")?,
            unknown: number(filters, "unknown")?,
            left: Duration::from_millis(number(filters, "left_ms")?),
        };
        Some((number(&answer, "seq")?, read))
    }))
}

impl Filters {
    fn describe(self) -> String {
        match self {
            Self { left, applied: 0, .. } if left.is_zero() => "; no filter is connected".to_owned(),
            Self { left, applied, .. } if left.is_zero() => format!("; applied by all {applied} filters"),
            _ => format!("; {}", self.progress()),
        }
    }

    fn progress(self) -> String {
        let Self { applied, unknown, left } = self;
        let left = left.as_secs_f64();
        match unknown {
            0 => format!(
                "applied by {applied} filters; those that an earlier control plane served are stale in {left:.1} s at the latest"
            ),
            _ => format!(
                "applied by {applied} of {} filters; the last is stale in {left:.1} s at the latest",
                applied + unknown
            ),
        }
    }
}

const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
const SHOW_INTERVAL: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_how_far_it_is() {
        let said = |filters: &str| {
            let answer = format!(r#"{{"log_id":"a","seq":7,"changed":true,"filters":{filters}}}"#);
            read(&answer).unwrap().unwrap().1.describe()
        };
        assert_eq!(
            said(r#"{"applied":4812,"unknown":1,"left_ms":3200}"#),
            "; applied by 4812 of 4813 filters; the last is stale in 3.2 s at the latest"
        );
        assert_eq!(
            said(r#"{"applied":2,"unknown":0,"left_ms":9900}"#),
            "; applied by 2 filters; those that an earlier control plane served are stale in 9.9 s at the latest"
        );
        assert_eq!(
            said(r#"{"applied":2,"unknown":0,"left_ms":0}"#),
            "; applied by all 2 filters"
        );
        assert_eq!(
            said(r#"{"applied":0,"unknown":0,"left_ms":0}"#),
            "; no filter is connected"
        );
        assert_eq!(read(r#"{"seq":7}"#).unwrap(), None);
    }
}
