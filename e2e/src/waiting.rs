//! Waits for a condition, instead of sleeping for a guessed time.

use std::fmt::Display;
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use std::{env, thread};

use crate::Failure;

/// The longest that a step may take on a slow machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Repeats `ask` until it has an answer, for at most [`PATIENCE`], or for the seconds in `CREDENCE_PATIENCE`, since an
/// emulated machine is slower.
///
/// # Errors
/// The failure of `ask`, at once; or that the time is up, with `what` was expected.
pub fn until<T>(what: impl Display, ask: impl FnMut() -> Result<Option<T>, Failure>) -> Result<T, Failure> {
    until_at_most(*LIMIT, what, ask)
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
            return Err(Failure::new(format!("waited {} s for {what}", limit.as_secs_f32())));
        }
        thread::sleep(BETWEEN);
    }
}

/// Short compared with anything that tests wait for.
const BETWEEN: Duration = Duration::from_millis(10);

static LIMIT: LazyLock<Duration> = LazyLock::new(|| {
    let seconds = env::var("CREDENCE_PATIENCE").ok();
    seconds
        .and_then(|seconds| seconds.parse().ok())
        .map_or(PATIENCE, Duration::from_secs)
});
