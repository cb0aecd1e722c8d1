//! Assertions about replies.

use crate::Reply;

/// Asserts that the filter denied the request with this status, for this reason.
///
/// # Panics
/// If it did not.
#[track_caller]
pub fn assert_denied(reply: &Reply, status: u16, reason: &str) {
    assert_eq!(
        (reply.status, reply.reason().as_deref()),
        (status, Some(reason)),
        "{}",
        reply.text()
    );
}
