//! The configuration of a control plane.

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
    pub data_dir: PathBuf,
    /// Whether to wait while another control plane uses the data folder, and take over when it ends. Otherwise, that is
    /// an error.
    pub standby: bool,
    /// The address of the HTTP API. Port 0 takes a free port.
    pub http_address: SocketAddr,
    /// The address for the filters' gRPC streams. Port 0 takes a free port. Peers are not authenticated by default: let
    /// only the mesh reach it.
    pub grpc_address: SocketAddr,
    /// The address for health probes: `/healthz` and `/readyz` in plain HTTP, separate from all other clients; none if
    /// absent. The HTTP API answers them too.
    pub probe_address: Option<SocketAddr>,
    /// The file with the bearer token of an operator with every permission: at least 32 visible ASCII characters and,
    /// at most, a final newline. Only its owner and group may have access to it.
    pub operator_token_file: Option<PathBuf>,
    /// The contents of the configuration file.
    pub settings: Settings,
    /// The options of the revocation log.
    pub log: LogOptions,
    /// The limits of evidence in memory, disk and time.
    pub evidence: EvidenceLimits,
    /// The limits of identity providers.
    pub identity: IdentityLimits,
    /// The limits of HTTP requests and connections.
    pub limits: Limits,
    /// Timeouts for clients.
    pub timeouts: Timeouts,
}

/// The limits of HTTP requests and of connections, and what happens at each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The number of event streams (`GET /v1/revocations/stream`). The next one gets 503.
    pub max_http_subscribers: usize,
    /// The number of streams of evidence (`GET /v1/audit/stream`). The next one gets 503. Each opens every new record.
    pub max_audit_subscribers: usize,
    /// The number of TCP connections on each of the two listeners. For a further one, the oldest connection without an
    /// accepted request is closed, of the address with the most of them. If there is none, further connections wait in
    /// the kernel's backlog. There are fewer places if the limit on open files requires it.
    pub max_connections: usize,
    /// The size of an HTTP request's body in bytes. A larger one gets 413. The rest of a body after the answer is
    /// discarded, up to 4 MiB within `request_timeout`; then the connection is closed.
    pub max_request_body: usize,
    /// The size of a batch of status checks in bytes.
    pub max_status_body: usize,
    /// The size of a batch of evidence, as JSON, in bytes.
    pub max_evidence_body: usize,
    /// The total size of HTTP request bodies that are being read or handled, in bytes, over all requests with a
    /// credential. A further one gets 503.
    pub body_bytes: usize,
    /// The total size of HTTP answers over 64 KiB that are not sent yet, in bytes, over all clients. A further one
    /// becomes 503.
    pub answer_bytes: usize,
    /// The number of HTTP requests with a credential, and of statements, that are being handled. A further one gets
    /// 503.
    pub max_calls: usize,
    /// How long an HTTP request may take: 408 if it did not arrive completely in time, 504 if handling it took too
    /// long.
    pub request_timeout: Duration,
}

/// The minimum for filters: the largest entry, which holds a chain, and the batch's own fields.
const MIN_BATCH_BYTES: usize = 64 << 10;

/// The shortest [`Config::max_staleness`], because filters ping once a second.
const MIN_STALENESS: Duration = Duration::from_secs(2);

/// A shorter retention would keep almost nothing.
const MIN_RETENTION: Duration = Duration::from_secs(60);
const MOST: usize = u32::MAX as usize;

impl Config {
    /// A configuration on loopback with the defaults of all parts, and without standby.
    pub fn new(data_dir: PathBuf, operator_token_file: Option<PathBuf>) -> Self {
        Self {
            data_dir,
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
        if log.store.is_some() && !(self.settings.scim.is_empty() && self.settings.security_events.is_empty()) {
            return Err(SettingsError {
                place: "scim, security_events".to_owned(),
                problem: "they keep their data in the data folder, so that replicas (--store) cannot have them yet; \
                          leave them out, or run one control plane without --store"
                    .to_owned(),
            });
        }
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
    fn a_drain_promise_beyond_the_contract_is_refused_by_name() {
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
