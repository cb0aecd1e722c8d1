//! `credence verify --jsonl`: one case on each line of input, one answer on each line of output.

use std::io::{BufRead, Read, Write};

use credence_agent::cases::{self, MAX_LINE_BYTES};

use crate::failure::{Failure, Outcome};
use crate::stderr;

/// Some editors and tools write this before UTF-8 text.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Answers every line that is not blank. An invalid line is denied and reported; the failure at the end counts these
/// lines.
pub(super) fn answer_all(input: &mut impl BufRead, out: &mut impl Write) -> Result<Outcome, Failure> {
    let mut malformed = 0u64;
    let mut line = Vec::new();
    for number in 1u64.. {
        if !next_line(input, &mut line).map_err(unreadable)? {
            break;
        }
        let text = match number {
            1 => line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&line),
            _ => &line,
        };
        if text.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let answered = cases::answer(text);
        for note in &answered.notes {
            stderr::print(format_args!("line {number}: {note}"));
        }
        malformed += u64::from(!answered.is_case);
        writeln!(out, "{}", answered.answer.to_json()?)?;
        // Each answer at once: the cases may come from a program that waits for it.
        out.flush()?;
    }
    match malformed {
        0 => Ok(Outcome::Done),
        1 => Err(Failure::input(
            "1 line is not a case and was answered with deny; fix the errors above",
        )),
        _ => Err(Failure::input(format!(
            "{malformed} lines are not cases and were answered with deny; fix the errors above"
        ))),
    }
}

/// Reads the next line without its end; `false` at the end of the input. Of a line that is too long, keeps one byte
/// more than the limit and skips the rest.
fn next_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> std::io::Result<bool> {
    line.clear();
    let most = MAX_LINE_BYTES as u64 + 1;
    let read = input.by_ref().take(most).read_until(b'\n', line)?;
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if line.len() > MAX_LINE_BYTES {
        input.skip_until(b'\n')?;
    }
    Ok(read > 0)
}

fn unreadable(error: std::io::Error) -> Failure {
    Failure::input(format!("standard input cannot be read: {error}"))
}
