//! What a control plane is started with.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use credence_evidence::EvidenceLimits;
use credence_ledger::{MAX_PAYLOAD, MAX_SEGMENT_BYTES};
use credence_provisioning::IdentityLimits;
use credence_revocation::{LogOptions, MAX_CACHE_KEY_ROTATION, MAX_DRAIN_PROMISE, MAX_STALENESS, MAX_TOKEN_LIFETIME};
use credence_runtime::settings::{Field, SettingsError, Timeouts};

use crate::settings::Settings;

/// Everything that [`ControlPlane::start`](crate::ControlPlane::start) needs.
#[derive(Debug, Clone)]
pub struct Config {
    /// The folder that holds the revocation log, the ledger and the keys. One control plane at a time uses it.
    pub data_folder: PathBuf,
    /// Whether to wait while another control plane uses the data folder, and to take over the moment it has ended.
    /// Without, that is an error.
    pub standby: bool,
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
    /// How the revocation log is opened, kept and served.
    pub log: LogOptions,
    /// What evidence may take of memory, disk and time.
    pub evidence: EvidenceLimits,
    /// The same of identity providers.
    pub identity: IdentityLimits,
    /// The same of HTTP requests and connections.
    pub limits: Limits,
    /// How long clients may take.
    pub timeouts: Timeouts,
}

/// The limits of HTTP requests and of connections. What happens at each is part of its documentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Event streams (`GET /v1/revocations/stream`) at a time; the next one gets 503.
    pub max_http_subscribers: usize,
    /// Streams of evidence (`GET /v1/audit/stream`) at a time; the next one gets 503. Each opens every record as it comes.
    pub max_audit_subscribers: usize,
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
    /// HTTP answers of more than 64 KiB that are not sent yet, in bytes, of all clients together; a further one is 503.
    pub answer_bytes: usize,
    /// HTTP requests with a credential, and statements, that are being carried out; a further one gets 503.
    pub max_calls: usize,
    /// How long an HTTP request may take: 408 if it did not arrive whole in time, 504 once it was being carried out.
    pub request_timeout: Duration,
}

/// What the filters need: the largest entry, which has a chain in it, and the batch's own fields.
const MIN_BATCH_BYTES: usize = 64 << 10;

/// The shortest [`Config::max_staleness`]: filters ping once a second.
const MIN_STALENESS: Duration = Duration::from_secs(2);

/// What is removed sooner was hardly kept.
const MIN_RETENTION: Duration = Duration::from_secs(60);
const MOST: usize = u32::MAX as usize;

impl Config {
    /// A configuration on loopback with the defaults of all parts, and no waiting for another control plane to end.
    pub fn new(data_folder: PathBuf, operator_token_file: Option<PathBuf>) -> Self {
        Self {
            data_folder,
            standby: false,
            http_address: SocketAddr::from(([127, 0, 0, 1], 7070)),
            grpc_address: SocketAddr::from(([127, 0, 0, 1], 7071)),
            probe_address: None,
            operator_token_file,
            settings: Settings::default(),
            log: LogOptions::default(),
            evidence: EvidenceLimits::default(),
            identity: IdentityLimits::default(),
            limits: Limits::default(),
            timeouts: Timeouts::default(),
        }
    }

    pub(crate) fn check(&self) -> Result<(), SettingsError> {
        self.settings.check()?;
        let Self {
            log, evidence, limits, ..
        } = self;
        Field("drain_promise", "at most 10 seconds").within(log.drain_promise, ..=MAX_DRAIN_PROMISE)?;
        Field("max_staleness", "2 to 60 seconds").within(log.max_staleness, MIN_STALENESS..=MAX_STALENESS)?;
        let rotations = Duration::from_secs(1)..=MAX_CACHE_KEY_ROTATION;
        Field("cache_key_rotation", "1 second to 30 days").within(log.cache_key_rotation, rotations)?;
        if let Some(retention) = evidence.retention.age {
            Field("ledger_retention", "at least 60 seconds").within(retention, MIN_RETENTION..)?;
        }
        Field("ledger_principal_share", "1 to 100").within(evidence.principal_share, 1..=100)?;
        Field("ledger_segment_bytes", "at most 3 GiB").within(evidence.ledger.segment, ..=MAX_SEGMENT_BYTES)?;
        let lifetimes = Duration::from_secs(60)..=MAX_TOKEN_LIFETIME;
        Field("max_token_lifetime", "60 seconds to 366 days").within(log.max_token_lifetime, lifetimes)?;
        Field("history_kept", "1 to 1000").within(log.history_kept, 1..=1_000)?;
        Field("max_batch_bytes", "65536 to 4194304").within(evidence.batch.bytes, MIN_BATCH_BYTES..=MAX_PAYLOAD / 2)?;
        Field("max_batch_entries", "1 to 100000").within(evidence.batch.entries, 1..=100_000)?;
        Field("ingest_bytes", "1048576 to 4294967295").within(evidence.ingest_bytes, 1 << 20..=MOST)?;
        let positive = [
            ("max_subscribers", log.max_subscribers),
            ("max_http_subscribers", limits.max_http_subscribers),
            ("max_audit_subscribers", limits.max_audit_subscribers),
            ("history_entries", log.updates.entries),
            ("history_bytes", log.updates.bytes),
            ("max_subjects", log.max_subjects),
            ("max_sources", evidence.max_sources),
            ("seen_principals", evidence.seen_principals),
            ("seen_delegations", evidence.seen_delegations),
            ("max_connections", limits.max_connections),
            ("max_request_body", limits.max_request_body),
            ("max_status_body", limits.max_status_body),
            ("max_evidence_body", limits.max_evidence_body),
            ("body_bytes", limits.body_bytes),
            ("answer_bytes", limits.answer_bytes),
            ("max_calls", limits.max_calls),
        ];
        positive
            .into_iter()
            .try_for_each(|(name, value)| Field(name, "1 to 4294967295").within(value, 1..=MOST))
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_http_subscribers: 1_000,
            max_audit_subscribers: 32,
            max_connections: 16_384,
            max_request_body: 64 << 10,
            max_status_body: 1 << 20,
            max_evidence_body: 4 << 20,
            body_bytes: 256 << 20,
            answer_bytes: 256 << 20,
            max_calls: 4_096,
            request_timeout: Duration::from_secs(30),
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
        let mut config = Config::new("data".into(), Some("token".into()));
        config.log.drain_promise = Duration::from_secs(11);
        assert!(config.check().unwrap_err().to_string().contains("drain_promise"));
    }

    #[test]
    fn a_rotation_that_never_ends_or_never_lasts_is_refused_by_name() {
        for rotation in [Duration::ZERO, MAX_CACHE_KEY_ROTATION + Duration::from_secs(1)] {
            let mut config = Config::new("data".into(), Some("token".into()));
            config.log.cache_key_rotation = rotation;
            assert!(config.check().unwrap_err().to_string().contains("cache_key_rotation"));
        }
    }

    #[test]
    fn a_token_lifetime_that_filters_do_not_know_is_refused_by_name() {
        for lifetime in [Duration::from_secs(59), MAX_TOKEN_LIFETIME + Duration::from_secs(1)] {
            let mut config = Config::new("data".into(), Some("token".into()));
            config.log.max_token_lifetime = lifetime;
            assert!(config.check().unwrap_err().to_string().contains("max_token_lifetime"));
        }
    }

    #[test]
    fn a_limit_of_zero_is_refused_by_name() {
        let mut config = Config::new("data".into(), Some("token".into()));
        config.log.max_subscribers = 0;
        assert!(config.check().unwrap_err().to_string().contains("max_subscribers"));
    }
}
