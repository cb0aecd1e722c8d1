//! Waits until a revocation is confirmed, and shows how far it is.

use std::io::Write;
use std::time::{Duration, Instant};

use credence_delegation::json::Json;
use serde_json::json;

use crate::control_plane::{Client, unreadable};
use crate::failure::Failure;
use crate::terminal;

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
    /// Posts a revocation, and waits until it is confirmed unless that is not wanted. Returns the control plane's answer.
    pub(crate) fn post(self, client: &Client, request: &str) -> Result<String, Failure> {
        let answer = client.post("/v1/revocations?wait=committed", request)?;
        self.confirmed(answer, |seq| {
            client.get(&format!("/v1/revocations/{seq}"), &[("wait", "committed".to_owned())])
        })
    }

    /// The answer to a revocation that is durable, with what it says of the filters once it is confirmed. `ask` gets a
    /// newer answer.
    pub(crate) fn confirmed(
        self,
        answer: String,
        mut ask: impl FnMut(u64) -> Result<String, Failure>,
    ) -> Result<String, Failure> {
        let Some((seq, mut filters)) = read(&answer)? else {
            return Ok(answer);
        };
        if self.no_wait || filters.left.is_zero() {
            return Ok(answer);
        }
        let begun = Instant::now();
        let mut pause = SHORTEST_PAUSE;
        let mut shown = Duration::ZERO;
        while !filters.left.is_zero() {
            std::thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
            let newer = ask(seq)
                .and_then(|newer| read(&newer))
                .map_err(|error| unconfirmed(seq, &error))?;
            let Some((_, newer)) = newer else {
                let silent = Failure::operation("the answer does not mention the filters");
                return Err(unconfirmed(seq, &silent));
            };
            filters = newer;
            let took = begun.elapsed();
            if !filters.left.is_zero() && took >= shown + SHOW_INTERVAL {
                shown = took;
                // An error here changes nothing: the result is on stdout.
                let _ = writeln!(std::io::stderr(), "waiting: {}", filters.progress());
            }
        }
        with(&answer, filters)
    }
}

/// The entry and the filters of an answer; nothing from control planes that wait for none.
fn read(answer: &str) -> Result<Option<(u64, Filters)>, Failure> {
    let answer = Json::parse(answer.as_bytes()).map_err(unreadable)?;
    let number = |object: &Json<'_>, name: &str| terminal::value(object.as_object()?.member(name)?).parse::<u64>().ok();
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

/// What to tell a caller who would wait on. The revocation itself is safe.
fn unconfirmed(seq: u64, error: &Failure) -> Failure {
    Failure::operation(format!(
        "the revocation is durable as entry {seq} of the log, and not known to be confirmed: {error}. Do not revoke again: \
         GET /v1/revocations/{seq} answers 200 once it is confirmed"
    ))
}

/// The answer with what it says of the filters replaced.
#[allow(clippy::disallowed_types)] // The control plane's own answer: it has no member twice, and no number beyond 64 bits.
fn with(answer: &str, filters: Filters) -> Result<String, Failure> {
    let mut answer: serde_json::Value = serde_json::from_str(answer).map_err(unreadable)?;
    let left_ms = u64::try_from(filters.left.as_millis()).unwrap_or(u64::MAX);
    answer["filters"] = json!({"applied": filters.applied, "unknown": filters.unknown, "left_ms": left_ms});
    Ok(answer.to_string())
}

/// What there is to say of the filters behind the answer to a revocation.
pub(crate) fn describe(answer: &str) -> Result<String, Failure> {
    Ok(read(answer)?.map_or_else(String::new, |(_, filters)| format!("; {}", filters.describe())))
}

impl Filters {
    fn describe(self) -> String {
        match self {
            Self { left, applied: 0, .. } if left.is_zero() => "confirmed; no filter had to apply it".to_owned(),
            Self { left, applied, .. } if left.is_zero() => format!("confirmed: applied by all {applied} filters"),
            _ => format!("not confirmed yet: {}", self.progress()),
        }
    }

    fn progress(self) -> String {
        let Self { applied, unknown, left } = self;
        let left = left.as_secs_f64();
        match unknown {
            0 => format!("the control plane has just started; confirmed in {left:.1} s at most"),
            _ => format!(
                "applied by {applied} of {} filters; confirmed in {left:.1} s at most",
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
            describe(&answer).unwrap()
        };
        for (filters, wanted) in [
            (
                r#"{"applied":4812,"unknown":1,"left_ms":3200}"#,
                "; not confirmed yet: applied by 4812 of 4813 filters; confirmed in 3.2 s at most",
            ),
            (
                r#"{"applied":2,"unknown":0,"left_ms":9900}"#,
                "; not confirmed yet: the control plane has just started; confirmed in 9.9 s at most",
            ),
            (
                r#"{"applied":2,"unknown":0,"left_ms":0}"#,
                "; confirmed: applied by all 2 filters",
            ),
            (
                r#"{"applied":0,"unknown":0,"left_ms":0}"#,
                "; confirmed; no filter had to apply it",
            ),
        ] {
            assert_eq!(said(filters), wanted);
        }
        assert_eq!(describe(r#"{"seq":7}"#).unwrap(), "");
    }

    const AT_FIRST: &str = r#"{"changed":true,"filters":{"applied":1,"unknown":1,"left_ms":9},"seq":7}"#;

    fn options(no_wait: bool) -> AnswerOptions {
        AnswerOptions { json: true, no_wait }
    }

    #[test]
    fn waits_until_it_is_confirmed_and_answers_what_is_known_then() {
        let mut left = [5, 0].into_iter();
        let confirmed = options(false).confirmed(AT_FIRST.to_owned(), |seq| {
            assert_eq!(seq, 7);
            let left = left.next().expect("no further request");
            Ok(format!(
                r#"{{"seq":7,"filters":{{"applied":2,"unknown":0,"left_ms":{left}}}}}"#
            ))
        });
        let wanted = r#"{"changed":true,"filters":{"applied":2,"left_ms":0,"unknown":0},"seq":7}"#;
        assert_eq!(confirmed.unwrap(), wanted);
        assert_eq!(left.next(), None);
    }

    #[test]
    fn asks_for_nothing_if_it_need_not_wait() {
        let asked = |_| panic!("it asks");
        let confirmed = AT_FIRST.replace("9", "0");
        assert_eq!(options(false).confirmed(confirmed.clone(), asked).unwrap(), confirmed);
        assert_eq!(options(true).confirmed(AT_FIRST.to_owned(), asked).unwrap(), AT_FIRST);
    }

    #[test]
    fn what_ends_the_wait_early_does_not_hide_that_it_is_durable() {
        let unreachable = |_| Err(Failure::operation("the control plane is gone"));
        let error = options(false)
            .confirmed(AT_FIRST.to_owned(), unreachable)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("durable as entry 7") && error.contains("is gone"),
            "{error}"
        );
        assert!(error.contains("GET /v1/revocations/7"), "{error}");
    }
}
