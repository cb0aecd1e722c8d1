//! What an operator should know about the stream, in words that say what to do.

use std::time::Duration;

use super::local_view::ViewError;

/// Something about the stream that belongs in the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Notice {
    /// The control plane broke the contract; the stream was reset and nothing new is believed.
    #[error("revocation stream reset: {0}")]
    Violation(#[from] Violation),
    /// The control plane does not serve the pinned log, or not the history this VM has applied.
    #[error(
        "the control plane refused to continue revocation log {log_id:?} (FAILED_PRECONDITION): it serves another \
         log, or one restored from an old copy. Requests are denied once the lease ends. Point \
         control_plane.cluster at the right control plane, or, if the log was re-initialised on purpose, pin its new \
         log_id in the plugin configuration"
    )]
    Refused {
        /// The pinned log.
        log_id: String,
    },
    /// The stream ended.
    #[error("revocation stream closed with gRPC status {status}; trying again in {} ms", retry_in.as_millis())]
    Closed {
        /// The gRPC status code.
        status: u32,
        /// The wait before the next attempt.
        retry_in: Duration,
    },
    /// What the view has forgotten may count after all.
    #[error(
        "the revocation snapshot is pulled anew: revoked delegations were forgotten that a token could still carry, \
         because the wall clock was put back or the control plane now accepts tokens that live longer. Tokens issued \
         before what was forgotten are denied until the snapshot has arrived"
    )]
    ForgotTooMuch,
    /// The control plane allows less than the configuration.
    #[error(
        "requests are denied {} ms after the last echo, as the control plane asks (its --max-staleness), and not only after \
         the {} ms of control_plane.max_staleness",
        limit.as_millis(), own.as_millis()
    )]
    ShorterLease {
        /// As configured.
        own: Duration,
        /// As asked for.
        limit: Duration,
    },
    /// The stream stayed open and said nothing.
    #[error("revocation stream reset: nothing was received for {} ms; check that the control plane answers pings", silence.as_millis())]
    Silent {
        /// Time since the last message.
        silence: Duration,
    },
}

/// How the control plane broke the contract of `credence/v1/revocation.proto`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Larger than any message the contract allows.
    #[error("a message has {size} bytes; expected at most {limit}")]
    MessageTooLarge {
        /// Bytes found.
        size: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// No protobuf of the expected type, or one without content.
    #[error("a message is no WatchResponse this filter knows: update the filter before the control plane")]
    Undecodable,
    /// A message at the wrong time.
    #[error("received {message} while {stage}")]
    OutOfOrder {
        /// The message.
        message: &'static str,
        /// What was expected, as an activity.
        stage: &'static str,
    },
    /// Not the pinned log.
    #[error("the control plane serves log {found:?}; the configuration pins control_plane.log_id {pinned:?}")]
    WrongLog {
        /// The configured log.
        pinned: String,
        /// The served log.
        found: String,
    },
    /// The log's end is before what has been applied.
    #[error(
        "the log ends at {head}, and {applied} was already applied: it lost entries or was restored from an old copy"
    )]
    Rollback {
        /// The last entry applied here.
        applied: u64,
        /// The last entry announced.
        head: u64,
    },
    /// Another history.
    #[error("entry {seq} of the log has another digest than the history applied here: the log has forked")]
    Diverged {
        /// The entry.
        seq: u64,
    },
    /// A position without a SHA-256 digest.
    #[error("a message lacks its position, or the position its 32-byte digest")]
    MalformedPosition,
    /// A snapshot from the future.
    #[error("the snapshot is at {snapshot}, after the log's announced end {head}")]
    SnapshotBeyondHead {
        /// The snapshot's position.
        snapshot: u64,
        /// The last entry announced.
        head: u64,
    },
    /// A snapshot larger than any view.
    #[error("the snapshot has {chunks} chunks; expected at most {limit}")]
    TooManyChunks {
        /// Chunks announced.
        chunks: u32,
        /// Chunks allowed.
        limit: u32,
    },
    /// Not the chunk that was pulled.
    #[error("received snapshot chunk {found}; pulled chunk {expected}")]
    WrongChunk {
        /// The index pulled.
        expected: u32,
        /// The index received.
        found: u32,
    },
    /// An update was repeated, skipped or reordered.
    #[error("received update {found}; expected {expected}")]
    WrongSequence {
        /// The number that follows the last update applied.
        expected: u64,
        /// The number received.
        found: u64,
    },
    /// An update that an earlier echo spoke of has not come.
    #[error("updates up to {owed} were due before the last echo, and those after {applied} have not come")]
    MissingUpdate {
        /// The last entry applied here.
        applied: u64,
        /// The last entry that must have been sent by now.
        owed: u64,
    },
    /// An update without its record.
    #[error("update {seq} has no record")]
    NoRecord {
        /// The update's number.
        seq: u64,
    },
    /// An echo of nothing.
    #[error("received a pong for ping {id}, which was not sent on this stream or already answered")]
    UnknownPing {
        /// The id echoed.
        id: u64,
    },
    /// Keys that are none.
    #[error("received keys for the shared cache that are not 32 bytes long")]
    MalformedCacheKeys,
    /// A record that can not be applied.
    #[error(transparent)]
    Record(#[from] ViewError),
}

// === impl Violation ===

impl Violation {
    /// Whether trying again soon is pointless, because an operator has to act first.
    pub(super) fn is_lasting(&self) -> bool {
        match self {
            Self::WrongLog { .. } | Self::Rollback { .. } | Self::Diverged { .. } | Self::Record(_) => true,
            Self::MessageTooLarge { .. }
            | Self::Undecodable
            | Self::OutOfOrder { .. }
            | Self::MalformedPosition
            | Self::SnapshotBeyondHead { .. }
            | Self::TooManyChunks { .. }
            | Self::WrongChunk { .. }
            | Self::WrongSequence { .. }
            | Self::MissingUpdate { .. }
            | Self::NoRecord { .. }
            | Self::UnknownPing { .. }
            | Self::MalformedCacheKeys => false,
        }
    }
}
