//! The state of the handlers.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use credence_evidence::{EvidenceLimits, Intake, LedgerHandle, Publisher, Seen, TileAccess};
use credence_ledger::LedgerReader;
use credence_provisioning::scim::Provisioning;
use credence_provisioning::security_events::Receiver;
use credence_revocation::RevocationLog;
use credence_runtime::client_limits::Places;
use credence_runtime::lifecycle::PhaseWatch;
use credence_runtime::settings::Timeouts;
use credence_runtime::throttle::Throttle;
use credence_runtime::turns::Turns;
use tokio::sync::Semaphore;

use super::rates::Rates;
use crate::access::AccessControl;
use crate::config::Limits;
use crate::fetched_anchors::FetchedAnchors;
use crate::metrics::Metrics;
use crate::settings::StatusSettings;

/// Everything that handlers need.
#[derive(Debug)]
pub(crate) struct Api {
    pub(crate) log: RevocationLog,
    pub(crate) ledger: LedgerHandle,
    pub(crate) seen: Arc<Seen>,
    pub(crate) reader: LedgerReader,
    pub(crate) publisher: Arc<Publisher<LedgerReader>>,
    /// The callers that may read the published ledger.
    pub(crate) tiles: TileAccess,
    pub(crate) intake: Intake,
    pub(crate) access: AccessControl,
    /// SCIM, if there is a realm.
    pub(crate) provisioning: Option<Arc<Provisioning>>,
    /// Security events, if there is a transmitter.
    pub(crate) receiver: Option<Arc<Receiver>>,
    pub(crate) phase: PhaseWatch,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) limits: Limits,
    pub(crate) evidence: EvidenceLimits,
    pub(crate) timeouts: Timeouts,
    pub(crate) anchors: Arc<FetchedAnchors>,
    /// The names of this control plane in the `aud` of statements.
    pub(crate) audience: Vec<String>,
    pub(crate) status: StatusSettings,
    pub(crate) rates: Rates,
    /// Limits concurrent signature verifications of statements.
    pub(crate) signature_places: Semaphore,
    /// Limits open event streams.
    pub(crate) stream_places: Places,
    /// Limits open streams of evidence.
    pub(crate) audit_stream_places: Places,
    /// Limits bodies of requests with a credential, in units of [`UNIT_BYTES`].
    pub(crate) bodies: Places,
    /// Limits large answers that are not sent yet, in the same units.
    pub(crate) answers: Places,
    /// Limits requests with a credential, and statements, that are being handled.
    pub(crate) calls: Places,
    /// Limits those of them that wait until the filters have applied a revocation.
    pub(crate) confirmations: Places,
    /// Limits concurrent queries of the ledger.
    pub(crate) query_turns: Turns,
    /// Counts requests that were refused without a valid credential.
    pub(crate) refusals: Throttle,
    /// Counts positions of event streams that the log does not know.
    pub(crate) foreign_positions: Throttle,
    /// Set once the operator's process has printed the addresses.
    pub(crate) announced: Arc<AtomicBool>,
}

/// Concurrent queries of the ledger. The next one waits, within the request's timeout.
pub(crate) const MAX_QUERIES: u32 = 4;

/// The unit of bodies and answers.
pub(crate) const UNIT_BYTES: usize = 1 << 10;
