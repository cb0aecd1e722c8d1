//! What a control plane is started with.

use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeBounds;
use std::path::PathBuf;
use std::time::Duration;

use credence_revocation::{InitOptions, MAX_CACHE_KEY_ROTATION, MAX_DRAIN_PROMISE, MAX_STALENESS, MAX_TOKEN_LIFETIME};

use crate::settings::Settings;
use crate::unusable::Unusable;
use credence_ledger::{MAX_PAYLOAD, MAX_SEGMENT_BYTES};

/// Everything that [`ControlPlane::start`](crate::ControlPlane::start) needs.
#[derive(Debug, Clone)]
pub struct Config {
    /// The folder that holds the revocation log, the ledger and the keys. One control plane at a time uses it.
    pub data_folder: PathBuf,
    /// Whether to wait while another control plane uses the data folder, and to take over the moment it has ended.
    /// Without, that is an error.
    pub standby: bool,
    /// Present to create a log in an empty data folder. Starting refuses if there is a log already, and refuses
    /// without it if there is none: an emptied folder must never pass for a log without revocations.
    pub init: Option<InitOptions>,
    /// The `log_id` of a log that was restored from a backup: it gets another, and a floor of now. Refused where the
    /// folder holds another log, so that it happens once.
    pub restored: Option<String>,
    /// Whether the log's own clock begins anew at the wall clock.
    pub reset_clock: bool,
    /// Where the HTTP API listens. Port 0 takes a free one.
    pub http_address: SocketAddr,
    /// Where the filters' gRPC streams arrive. Port 0 takes a free one. The peers are not authenticated: let only
    /// the mesh reach it.
    pub grpc_address: SocketAddr,
    /// Where health probes are answered, `/healthz` and `/readyz` in plain HTTP, apart from all other clients; nowhere if
    /// absent. The HTTP API answers them too.
    pub probe_address: Option<SocketAddr>,
    /// The file with the bearer token of an operator who may do everything: at least 32 visible ASCII characters and nothing else but a final
    /// newline; not accessible to others than its owner and group.
    pub operator_token_file: Option<PathBuf>,
    /// What stands in the configuration file.
    pub settings: Settings,
    /// The longest that a filter may stay fresh without an echo of its pings: 2 s to 60 s, in whole milliseconds. No
    /// revocation is confirmed later than this after the last echo of a filter that has not applied it.
    pub max_staleness: Duration,
    /// How long filters stay fresh after a planned stop; at most 10 s. The successor takes revocations at once, and confirms
    /// none for as long after its own start. Zero promises nothing.
    pub drain_promise: Duration,
    /// How often the keys change with which the filters of a node seal what they remember for each other; 1 s to 30
    /// days, in whole seconds. What was sealed is believed for one to two of these spans.
    pub cache_key_rotation: Duration,
    /// The longest a token may live (`exp - iat`) that filters believe: 60 s to 366 days, in whole seconds. The log forgets
    /// a revoked delegation this long, and five minutes, after its revocation; filters are told, and must not be
    /// configured to believe tokens that live longer.
    pub max_token_lifetime: Duration,
    /// Every bound on memory, disk and time.
    pub limits: Limits,
}

/// The control plane's limits. What happens at each is part of its documentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Watch streams at a time; the next one gets RESOURCE_EXHAUSTED.
    pub max_subscribers: usize,
    /// Event streams (`GET /v1/revocations/stream`) at a time; the next one gets 503.
    pub max_http_subscribers: usize,
    /// Streams of evidence (`GET /v1/audit/stream`) at a time; the next one gets 503. Each opens every record as it comes.
    pub max_audit_subscribers: usize,
    /// Revocation updates kept in memory for streams to resume from. A client that is further behind gets a
    /// snapshot; a stream that falls further behind is ended with RESOURCE_EXHAUSTED.
    pub history_entries: usize,
    /// The same in bytes of encoded records; whichever is reached first.
    pub history_bytes: usize,
    /// Revoked subjects in the log. Single delegations and keys may use nine tenths of it, so that principals still
    /// find room; an issuer's floor is never refused, and a known subject can always be revoked again.
    pub max_subjects: usize,
    /// Bytes of the log's file below which it is not compacted. Beyond, it is as soon as it has twice the size of what
    /// it has to hold.
    pub compact_above_bytes: u64,
    /// Entries of each principal's history that are kept, the latest.
    pub history_kept: usize,
    /// Audit sources at a time, those that may still come back included; the next one gets RESOURCE_EXHAUSTED.
    pub max_sources: usize,
    /// Entries of one audit batch; more gets RESOURCE_EXHAUSTED.
    pub max_batch_entries: u32,
    /// Encoded bytes of one audit batch; more gets RESOURCE_EXHAUSTED. 64 KiB to 4 MiB.
    pub max_batch_bytes: u32,
    /// Memory for evidence on its way to the disk, in bytes, of all streams together; a stream whose batch does not
    /// fit waits. At least 1 MiB.
    pub ingest_bytes: usize,
    /// Principals whose live delegations are remembered; beyond, who was seen the longest ago is forgotten.
    pub seen_principals: usize,
    /// Delegations remembered of all principals together; of one, at most 32.
    pub seen_delegations: usize,
    /// How long a source whose stream ended without Bye may take to come back before the ledger records that it
    /// ended with its tail unknown.
    pub source_grace: Duration,
    /// Bytes of the whole ledger on disk. When they are used up, evidence is refused (UNAVAILABLE) and `/readyz`
    /// says so; revocations are not affected.
    pub ledger_bytes: u64,
    /// Bytes that the ledger leaves free on its file system, so that what shares it (revocations do) finds room; a sixteenth of
    /// the file system, if that is less. Beyond, evidence is refused as when the ledger is full.
    pub ledger_reserve_bytes: u64,
    /// Hundredths of what the ledger may hold that may be about one principal, 1 to 100. While the ledger is more than half
    /// full, what a principal brings beyond that is counted.
    pub ledger_principal_share: u8,
    /// Bytes after which the ledger begins a new segment file. At most 3 GiB.
    pub ledger_segment_bytes: u64,
    /// Data keys that entries are sealed with: one for each principal that there is evidence of, erased ones included.
    /// When there are as many, evidence about another principal is refused, and `/readyz` says so.
    pub ledger_keys: u32,
    /// How long evidence is kept; what is older is removed, and its hashes stay. Forever, if absent.
    pub ledger_retention: Option<Duration>,
    /// Bytes of evidence and its index beyond which the oldest is removed. Nothing is, if absent.
    pub ledger_retention_bytes: Option<u64>,
    /// Users of all SCIM realms together; creating another gets 507.
    pub scim_users: u64,
    /// Bytes that one SCIM user takes on disk; more gets 413.
    pub scim_user_bytes: usize,
    /// Security event tokens that are remembered, so that none counts twice; while there are as many, further ones get
    /// 503.
    pub security_event_ids: u64,
    /// TCP connections at a time on each of the two listeners. For a further one the oldest without an accepted request is
    /// closed, of the address that has the most of them; where there is none, further ones wait in the kernel's backlog.
    /// Fewer where the limit on open files does not leave room for them.
    pub max_connections: usize,
    /// Bytes of an HTTP request's body; more gets 413. What comes of a body after the answer is dropped, up to 4 MiB
    /// within `request_timeout`; then the connection is closed.
    pub max_request_body: usize,
    /// The same of a batch of status checks.
    pub max_status_body: usize,
    /// The same of a batch of evidence, as JSON.
    pub max_evidence_body: usize,
    /// Bodies of HTTP requests that are being read or carried out, in bytes, of all requests with a credential together; a
    /// further one gets 503.
    pub body_bytes: usize,
    /// HTTP requests with a credential, and statements, that are being carried out; a further one gets 503.
    pub max_calls: usize,
    /// How long an HTTP request may take: 408 if it did not arrive whole in time, 504 once it was being carried out.
    pub request_timeout: Duration,
    /// How long the first message of a gRPC stream may take; then DEADLINE_EXCEEDED. As long may the first bytes of a
    /// connection take, and over HTTP the first request's head; then it is closed. Half-dead connections are found by HTTP/2
    /// pings twice as far apart.
    pub hello_timeout: Duration,
    /// How long a stream whose client does not read may block before it is ended with RESOURCE_EXHAUSTED; over HTTP,
    /// before its connection is closed.
    pub send_timeout: Duration,
    /// How long a watch stream may give no sign of life (a ping or a pull) before it is ended with DEADLINE_EXCEEDED, and
    /// how long a peer's kernel may leave what was sent without an acknowledgement before its connection is closed.
    pub silence_timeout: Duration,
}

/// What the filters need: the largest entry, which has a chain in it, and the batch's own fields.
const MIN_BATCH_BYTES: u32 = 64 << 10;

/// The shortest [`Config::max_staleness`]: filters ping once a second.
const MIN_STALENESS: Duration = Duration::from_secs(2);

/// What is removed sooner was hardly kept.
const MIN_RETENTION: Duration = Duration::from_secs(60);

impl Config {
    /// A configuration on loopback with default limits, leases of 5 s, a promise of 10 s, daily cache keys, tokens that live up to 90
    /// days, no initialisation, and no waiting for another control plane to end.
    pub fn new(data_folder: PathBuf, operator_token_file: Option<PathBuf>) -> Self {
        Self {
            data_folder,
            standby: false,
            init: None,
            restored: None,
            reset_clock: false,
            http_address: SocketAddr::from(([127, 0, 0, 1], 7070)),
            grpc_address: SocketAddr::from(([127, 0, 0, 1], 7071)),
            probe_address: None,
            operator_token_file,
            settings: Settings::default(),
            max_staleness: Duration::from_secs(5),
            drain_promise: Duration::from_secs(10),
            cache_key_rotation: Duration::from_secs(24 * 60 * 60),
            max_token_lifetime: Duration::from_secs(90 * 24 * 60 * 60),
            limits: Limits::default(),
        }
    }

    pub(crate) fn check(&self) -> Result<(), Unusable> {
        self.settings.check().map_err(Unusable::configuration)?;
        let limits = &self.limits;
        Field("drain_promise", "at most 10 seconds").within(self.drain_promise, ..=MAX_DRAIN_PROMISE)?;
        Field("max_staleness", "2 to 60 seconds").within(self.max_staleness, MIN_STALENESS..=MAX_STALENESS)?;
        let rotations = Duration::from_secs(1)..=MAX_CACHE_KEY_ROTATION;
        Field("cache_key_rotation", "1 second to 30 days").within(self.cache_key_rotation, rotations)?;
        if let Some(retention) = limits.ledger_retention {
            Field("ledger_retention", "at least 60 seconds").within(retention, MIN_RETENTION..)?;
        }
        Field("ledger_principal_share", "1 to 100").within(limits.ledger_principal_share, 1..=100)?;
        Field("ledger_segment_bytes", "at most 3 GiB").within(limits.ledger_segment_bytes, ..=MAX_SEGMENT_BYTES)?;
        let lifetimes = Duration::from_secs(60)..=MAX_TOKEN_LIFETIME;
        Field("max_token_lifetime", "60 seconds to 366 days").within(self.max_token_lifetime, lifetimes)?;
        Field("history_kept", "1 to 1000").within(limits.history_kept, ..=1_000)?;
        let batch_bytes = MIN_BATCH_BYTES..=(MAX_PAYLOAD / 2) as u32;
        Field("max_batch_bytes", "65536 to 4194304").within(limits.max_batch_bytes, batch_bytes)?;
        Field("max_batch_entries", "1 to 100000").within(limits.max_batch_entries, ..=100_000)?;
        Field("ingest_bytes", "at least 1048576").within(limits.ingest_bytes, 1 << 20..)?;
        let positive = [
            ("max_subscribers", limits.max_subscribers),
            ("max_http_subscribers", limits.max_http_subscribers),
            ("max_audit_subscribers", limits.max_audit_subscribers),
            ("history_entries", limits.history_entries),
            ("history_bytes", limits.history_bytes),
            ("max_subjects", limits.max_subjects),
            ("history_kept", limits.history_kept),
            ("max_sources", limits.max_sources),
            ("max_batch_entries", limits.max_batch_entries as usize),
            ("ingest_bytes", limits.ingest_bytes),
            ("seen_principals", limits.seen_principals),
            ("seen_delegations", limits.seen_delegations),
            ("max_connections", limits.max_connections),
            ("max_request_body", limits.max_request_body),
            ("max_status_body", limits.max_status_body),
            ("max_evidence_body", limits.max_evidence_body),
            ("body_bytes", limits.body_bytes),
            ("max_calls", limits.max_calls),
        ];
        positive
            .into_iter()
            .try_for_each(|(name, value)| Field(name, "1 to 4294967295").within(value, 1..=u32::MAX as usize))
    }
}

/// A field's name, and what it must be.
struct Field(&'static str, &'static str);

// === impl Field ===

impl Field {
    fn within<T: PartialOrd + fmt::Debug>(self, value: T, allowed: impl RangeBounds<T>) -> Result<(), Unusable> {
        let Self(name, expected) = self;
        match allowed.contains(&value) {
            true => Ok(()),
            false => Err(Unusable::configuration(format_args!(
                "{name} is {value:?}; it must be {expected}"
            ))),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_subscribers: 10_000,
            max_http_subscribers: 1_000,
            max_audit_subscribers: 32,
            history_entries: 65_536,
            history_bytes: 64 << 20,
            max_subjects: 1_000_000,
            compact_above_bytes: 64 << 20,
            history_kept: 32,
            max_sources: 20_000,
            max_batch_entries: 1_000,
            max_batch_bytes: 1 << 20,
            ingest_bytes: 64 << 20,
            seen_principals: 100_000,
            seen_delegations: 200_000,
            source_grace: Duration::from_secs(60),
            ledger_bytes: 64 << 30,
            ledger_reserve_bytes: 256 << 20,
            ledger_principal_share: 25,
            ledger_segment_bytes: 256 << 20,
            ledger_keys: 1_000_000,
            ledger_retention: None,
            ledger_retention_bytes: None,
            scim_users: 200_000,
            scim_user_bytes: 32 << 10,
            security_event_ids: 1_000_000,
            max_connections: 16_384,
            max_request_body: 64 << 10,
            max_status_body: 1 << 20,
            max_evidence_body: 4 << 20,
            body_bytes: 256 << 20,
            max_calls: 4_096,
            request_timeout: Duration::from_secs(30),
            hello_timeout: Duration::from_secs(10),
            send_timeout: Duration::from_secs(10),
            silence_timeout: Duration::from_secs(30),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_accepted() {
        Config::new("data".into(), Some("token".into())).check().unwrap();
    }

    #[test]
    fn a_promise_beyond_the_contract_is_refused_by_name() {
        let config = Config {
            drain_promise: Duration::from_secs(11),
            ..Config::new("data".into(), Some("token".into()))
        };
        assert!(config.check().unwrap_err().to_string().contains("drain_promise"));
    }

    #[test]
    fn a_rotation_that_never_ends_or_never_lasts_is_refused_by_name() {
        for rotation in [Duration::ZERO, MAX_CACHE_KEY_ROTATION + Duration::from_secs(1)] {
            let config = Config {
                cache_key_rotation: rotation,
                ..Config::new("data".into(), Some("token".into()))
            };
            assert!(config.check().unwrap_err().to_string().contains("cache_key_rotation"));
        }
    }

    #[test]
    fn a_token_lifetime_that_filters_do_not_know_is_refused_by_name() {
        for lifetime in [Duration::from_secs(59), MAX_TOKEN_LIFETIME + Duration::from_secs(1)] {
            let config = Config {
                max_token_lifetime: lifetime,
                ..Config::new("data".into(), Some("token".into()))
            };
            assert!(config.check().unwrap_err().to_string().contains("max_token_lifetime"));
        }
    }

    #[test]
    fn a_limit_of_zero_is_refused_by_name() {
        let mut config = Config::new("data".into(), Some("token".into()));
        config.limits.max_subscribers = 0;
        assert!(config.check().unwrap_err().to_string().contains("max_subscribers"));
    }
}
