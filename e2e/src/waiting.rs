//! Waiting for something that will happen soon, without guessing how soon.

use std::fmt::Display;
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use std::{env, thread};

use crate::Failure;

/// How long anything may take on a slow machine before it counts as never.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Asks again and again until there is an answer, for at most [`PATIENCE`], or as many seconds as `CREDENCE_PATIENCE` says:
/// an emulated machine is slower than a slow one.
///
/// # Errors
/// The failure of `ask`, at once; or that time is up, naming `what` was waited for.
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

static LIMIT: LazyLock<Duration> = LazyLock::new(|| {
    let seconds = env::var("CREDENCE_PATIENCE").ok();
    seconds
        .and_then(|seconds| seconds.parse().ok())
        .map_or(PATIENCE, Duration::from_secs)
});
