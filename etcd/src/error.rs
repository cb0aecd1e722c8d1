//! Why etcd did not do what was asked.

use tonic::{Code, Status};

use crate::address::AddressError;

/// Why a request has no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum EtcdError {
    /// It may have been carried out.
    #[error(
        "no member of etcd answered within {within_ms} ms (last {member}: {found}); check that a majority of the members \
         runs and can be reached: etcdctl endpoint status"
    )]
    Unreachable {
        within_ms: u64,
        member: String,
        found: String,
    },
    /// It was not carried out.
    #[error("etcd at {member} refused: {found}{}", cure(found))]
    Refused { member: String, found: String },
    /// A watch began before what etcd still has.
    #[error("etcd has compacted what changed since revision {from}")]
    Compacted { from: i64 },
    #[error(transparent)]
    Address(#[from] AddressError),
}

/// Whether another member would answer the same.
pub(crate) fn is_final(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::InvalidArgument
            | Code::NotFound
            | Code::OutOfRange
            | Code::PermissionDenied
            | Code::ResourceExhausted
            | Code::Unauthenticated
            | Code::Unimplemented
    )
}

/// Whether the token is too old: etcd has restarted, or its users have changed.
pub(crate) fn needs_new_token(status: &Status) -> bool {
    status.code() == Code::Unauthenticated || status.message().contains("auth store is old")
}

/// For messages that etcd writes for its own developers.
fn cure(found: &str) -> &'static str {
    const CURES: [(&str, &str); 4] = [
        (
            "database space exceeded",
            ". Compact and defragment etcd, raise --quota-backend-bytes, then: etcdctl alarm disarm",
        ),
        ("user name is empty", ". It wants a user: name one with --store-user"),
        (
            "permission denied",
            ". Give the user's role readwrite on the whole prefix: etcdctl role grant-permission --prefix=true",
        ),
        (
            "invalid user ID or password",
            ". Check --store-user and the file of --store-password-file",
        ),
    ];
    CURES
        .into_iter()
        .find_map(|(said, cure)| found.contains(said).then_some(cure))
        .unwrap_or_default()
}
