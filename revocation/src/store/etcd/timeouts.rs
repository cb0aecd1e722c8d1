//! How long etcd may take.

use std::time::Duration;

/// Until another attempt to read the head, in which two members can be asked.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(1);
/// Until a commit's outcome is unknown: longer than an election.
pub(super) const COMMIT_TIMEOUT: Duration = Duration::from_secs(3);
pub(super) const READ_TIMEOUT: Duration = Duration::from_secs(10);
