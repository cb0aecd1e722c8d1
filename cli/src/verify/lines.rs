//! `credence verify --jsonl`: a case a line in, an answer a line out.

use std::io::{BufRead, Read, Write};

use super::answer::Answer;
use super::case::Case;
use crate::failure::{Failure, Outcome};
use crate::words;

/// Bytes of one line: far more than the limits on a chain, so that those are what an oversized case is denied by.
const MAX_LINE_BYTES: u64 = 16 << 20;

/// Answers every case. A line that is none is reported and passed over; the failure at the end counts them.
pub(super) fn answer_all(input: &mut impl BufRead, out: &mut impl Write) -> Result<Outcome, Failure> {
    let mut malformed = 0u64;
    let mut line = Vec::new();
    for number in 1u64.. {
        line.clear();
        let read = input
            .by_ref()
            .take(MAX_LINE_BYTES + 1)
            .read_until(b'\n', &mut line)
            .map_err(unreadable)?;
        if read == 0 {
            break;
        }
        if line.len() as u64 > MAX_LINE_BYTES {
            eprintln!("line {number}: longer than {MAX_LINE_BYTES} bytes; split the case or leave out what it repeats");
            malformed += 1;
            if line.last() != Some(&b'\n') {
                input.skip_until(b'\n').map_err(unreadable)?;
            }
            continue;
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match Case::parse(&line) {
            Ok(case) => {
                writeln!(
                    out,
                    "{}",
                    Answer::new(Some(&case.id), &case.question.decide()).to_json()?
                )?;
                // Each answer at once: the cases may come from a program that waits for it.
                out.flush()?;
            }
            Err(error) => {
                eprintln!("line {number}: {}", words::printable(&error.to_string()));
                malformed += 1;
            }
        }
    }
    match malformed {
        0 => Ok(Outcome::Done),
        1 => Err(Failure::input(
            "1 line is not a case and has no answer; correct it as said above",
        )),
        _ => Err(Failure::input(format!(
            "{malformed} lines are not cases and have no answer; correct them as said above"
        ))),
    }
}

fn unreadable(error: std::io::Error) -> Failure {
    Failure::input(format!("standard input can not be read: {error}"))
}
