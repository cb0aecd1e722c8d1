//! Waiting for something that will happen soon, without guessing how soon.

use std::fmt::Display;
use std::thread;
use std::time::{Duration, Instant};

use crate::Failure;

/// How long anything may take on a slow machine before it counts as never.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Asks again and again until there is an answer, for at most [`PATIENCE`].
///
/// # Errors
/// The failure of `ask`, at once; or that time is up, naming `what` was waited for.
pub fn until<T>(what: impl Display, ask: impl FnMut() -> Result<Option<T>, Failure>) -> Result<T, Failure> {
    until_at_most(PATIENCE, what, ask)
}

/// The same with another limit.
///
/// # Errors
/// As [`until`].
pub fn until_at_most<T>(
    limit: Duration,
    what: impl Display,
    mut ask: impl FnMut() -> Result<Option<T>, Failure>,
) -> Result<T, Failure> {
    let begin = Instant::now();
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        if begin.elapsed() > limit {
            return Err(Failure::new(format!(
                "waited {} s in vain for {what}",
                limit.as_secs_f32()
            )));
        }
        thread::sleep(BETWEEN);
    }
}

/// Short against everything that is waited for.
const BETWEEN: Duration = Duration::from_millis(10);
