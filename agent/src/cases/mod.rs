//! Cases for a verifier: one JSON object a line, and one answer a line, as `credence verify --jsonl` and the packages read
//! and write them.

pub mod anchor;
mod answer;
mod case;
mod id;
mod question;

pub use anchor::{DID_KEY, IssuerKeys};
pub use answer::Answer;
pub use case::MAX_LINE_BYTES;
pub use question::{Policy, Question, RequiredProof};

use self::case::{Case, CaseError};
use self::id::CaseId;
use crate::terminal;

/// The answer to one line.
#[derive(Debug)]
pub struct Answered {
    /// The answer.
    pub answer: Answer,
    /// For people: which anchors are not used and why, or what is wrong with the line.
    pub notes: Vec<String>,
    /// Whether the line is a case. One that is none is denied.
    pub is_case: bool,
}

/// Answers one line, without its end.
pub fn answer(line: &[u8]) -> Answered {
    let shown = |said: &str| terminal::printable(&terminal::shortened(said));
    match Case::parse(line) {
        Ok(case) => Answered {
            answer: Answer::of(case.id, &case.question.decide()),
            notes: case.skipped_anchors.iter().map(|skipped| shown(skipped)).collect(),
            is_case: true,
        },
        Err(error @ CaseError::Policy(_)) => Answered {
            answer: Answer::refused(CaseId::of_unreadable(line), error.to_string()),
            notes: Vec::new(),
            is_case: true,
        },
        Err(error) => Answered {
            answer: Answer::refused(CaseId::of_unreadable(line), format!("not a case: {error}")),
            notes: vec![shown(&format!("not a case: {error}"))],
            is_case: false,
        },
    }
}
