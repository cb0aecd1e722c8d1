//! The wall clock.

use credence_delegation::UnixTime;
use credence_runtime::time::unix_seconds;

/// The current time.
pub(crate) fn now() -> UnixTime {
    UnixTime(unix_seconds())
}
