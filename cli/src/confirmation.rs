//! Waits until a revocation is confirmed, and shows the progress.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::control_plane::{Client, unreadable};
use crate::failure::Failure;
use crate::stderr;

/// How to answer.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct AnswerOptions {
    /// Print the control plane's answer as JSON.
    #[arg(long)]
    pub(crate) json: bool,

    /// Return once the revocation is durable. Do not wait until every filter has applied it.
    #[arg(long)]
    pub(crate) no_wait: bool,
}

/// The control plane's answer.
#[derive(Debug, Deserialize)]
pub(crate) struct Answer {
    /// Its text.
    #[serde(skip)]
    pub(crate) text: String,
    seq: Option<u64>,
    epoch: Option<u64>,
    changed: Option<bool>,
    /// Absent in the answers of control planes that do not track filters.
    filters: Option<Filters>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Filters {
    applied: u64,
    unknown: u64,
    left_ms: u64,
}

impl AnswerOptions {
    /// Posts a revocation. Waits until it is confirmed, unless the caller does not want that.
    pub(crate) fn post(self, client: &Client, request: &str) -> Result<Answer, Failure> {
        let answer = client.post("/v1/revocations?wait=committed", request)?;
        self.confirmed(answer, |seq| {
            client.get(&format!("/v1/revocations/{seq}"), &[("wait", "committed".to_owned())])
        })
    }

    /// Waits until a durable revocation is confirmed. Returns the last answer, with the state of the filters. `ask`
    /// requests a newer answer.
    pub(crate) fn confirmed(
        self,
        answer: String,
        mut ask: impl FnMut(u64) -> Result<String, Failure>,
    ) -> Result<Answer, Failure> {
        let mut answer = Answer::read(answer)?;
        let (Some(seq), Some(mut filters)) = (answer.seq, answer.filters) else {
            return Ok(answer);
        };
        if self.no_wait || filters.left_ms == 0 {
            return Ok(answer);
        }
        let begun = Instant::now();
        let mut pause = SHORTEST_PAUSE;
        let mut shown = Duration::ZERO;
        while filters.left_ms > 0 {
            std::thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
            let newer = ask(seq)
                .and_then(Answer::read)
                .map_err(|error| unconfirmed(seq, &error))?;
            filters = newer.filters.ok_or_else(|| {
                let silent = Failure::operation("the answer does not mention the filters");
                unconfirmed(seq, &silent)
            })?;
            let took = begun.elapsed();
            if filters.left_ms > 0 && took >= shown + SHOW_INTERVAL {
                shown = took;
                stderr::print(format_args!("waiting: {}", filters.progress()));
            }
        }
        answer.replace(filters)?;
        Ok(answer)
    }
}

/// What to tell a caller whose wait was cut short. The revocation itself is durable.
fn unconfirmed(seq: u64, error: &Failure) -> Failure {
    Failure::operation(format!(
        "the revocation is durable as entry {seq} of the log, but it is not known to be confirmed: {error}. Do not \
         revoke again: GET /v1/revocations/{seq} answers 200 once it is confirmed"
    ))
}

// === impl Answer ===

impl Answer {
    fn read(text: String) -> Result<Self, Failure> {
        let answer = serde_json::from_str(&text).map_err(unreadable)?;
        Ok(Self { text, ..answer })
    }

    /// Replaces the state of the filters in the answer.
    #[allow(clippy::disallowed_types)] // The control plane's answer: no duplicate member, no number beyond 64 bits.
    fn replace(&mut self, filters: Filters) -> Result<(), Failure> {
        let mut answer: serde_json::Value = serde_json::from_str(&self.text).map_err(unreadable)?;
        answer["filters"] = json!(filters);
        self.text = answer.to_string();
        self.filters = Some(filters);
        Ok(())
    }

    /// The position of the revocation in the log.
    pub(crate) fn position(&self) -> String {
        let Some(seq) = self.seq else {
            return String::new();
        };
        let epoch = self.epoch.map_or_else(String::new, |epoch| format!(", epoch {epoch}"));
        let repeated = if self.changed == Some(false) {
            ", already in force"
        } else {
            ""
        };
        format!(" (entry {seq} of the log{epoch}{repeated})")
    }

    /// The progress of the filters.
    pub(crate) fn filters(&self) -> String {
        match self.filters {
            None => String::new(),
            Some(Filters {
                left_ms: 0, applied: 0, ..
            }) => "; confirmed; no filter had to apply it".to_owned(),
            Some(Filters {
                left_ms: 0, applied, ..
            }) => format!("; confirmed: applied by all {applied} filters"),
            Some(filters) => format!("; not confirmed yet: {}", filters.progress()),
        }
    }
}

impl Filters {
    fn progress(self) -> String {
        let Self {
            applied,
            unknown,
            left_ms,
        } = self;
        let left = Duration::from_millis(left_ms).as_secs_f64();
        match unknown {
            0 => format!("filters of an earlier or another control plane may be fresh; confirmed within {left:.1} s"),
            _ => format!(
                "applied by {applied} of {} filters; confirmed within {left:.1} s",
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
            Answer::read(answer).unwrap().filters()
        };
        for (filters, wanted) in [
            (
                r#"{"applied":4812,"unknown":1,"left_ms":3200}"#,
                "; not confirmed yet: applied by 4812 of 4813 filters; confirmed within 3.2 s",
            ),
            (
                r#"{"applied":2,"unknown":0,"left_ms":9900}"#,
                "; not confirmed yet: filters of an earlier or another control plane may be fresh; confirmed within 9.9 s",
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
        assert_eq!(Answer::read(r#"{"seq":7}"#.to_owned()).unwrap().filters(), "");
    }

    const AT_FIRST: &str = r#"{"changed":true,"filters":{"applied":1,"unknown":1,"left_ms":9},"seq":7}"#;

    fn options(no_wait: bool) -> AnswerOptions {
        AnswerOptions { json: true, no_wait }
    }

    #[test]
    fn waits_until_it_is_confirmed_and_returns_the_last_answer() {
        let mut left = [5, 0].into_iter();
        let confirmed = options(false).confirmed(AT_FIRST.to_owned(), |seq| {
            assert_eq!(seq, 7);
            let left = left.next().expect("no further request");
            Ok(format!(
                r#"{{"seq":7,"filters":{{"applied":2,"unknown":0,"left_ms":{left}}}}}"#
            ))
        });
        let wanted = r#"{"changed":true,"filters":{"applied":2,"left_ms":0,"unknown":0},"seq":7}"#;
        assert_eq!(confirmed.unwrap().text, wanted);
        assert_eq!(left.next(), None);
    }

    #[test]
    fn sends_no_request_if_it_need_not_wait() {
        let asked = |_| panic!("it asks");
        let confirmed = AT_FIRST.replace("9", "0");
        assert_eq!(
            options(false).confirmed(confirmed.clone(), asked).unwrap().text,
            confirmed
        );
        assert_eq!(
            options(true).confirmed(AT_FIRST.to_owned(), asked).unwrap().text,
            AT_FIRST
        );
    }

    #[test]
    fn an_error_during_the_wait_still_says_that_the_revocation_is_durable() {
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
