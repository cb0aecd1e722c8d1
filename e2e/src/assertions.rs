//! What tests say of replies.

use crate::Reply;

/// The filter has denied the request with this status, for this reason.
///
/// # Panics
/// If it has not.
#[track_caller]
pub fn assert_denied(reply: &Reply, status: u16, reason: &str) {
    assert_eq!(
        (reply.status, reply.reason().as_deref()),
        (status, Some(reason)),
        "{}",
        reply.text()
    );
}
