//! Evidence: how it arrives, where it is kept, how it is read back.
//!
//! The ledger itself is the crate `credence_ledger`. [`parts`] puts together what works on it:
//!
//! | module | its one job |
//! |---|---|
//! | [`writer`] | the one thread that appends to the ledger, and knows every source's last sequence number |
//! | [`service`], [`intake`] | what takes evidence in, over gRPC and over HTTP |
//! | [`sources`], [`ticket`] | who the sources are |
//! | [`ingest`] | what may be taken in at a time |
//! | [`seen`] | what principals' agents were seen to use |
//! | [`publisher`], [`witness`] | signed checkpoints, and those who cosign them |
//! | [`reverification`], [`handover`] | whether what filters allowed is what the delegations say |
//! | [`backoff`] | how long to wait before a collector or a witness is asked again |
//! | [`cursors`] | how far those who follow the ledger have come |
//! | [`otlp`] | every record, for an OpenTelemetry collector |

#![allow(
    missing_docs,
    reason = "internal to the control plane: names that say all have no comment"
)]

mod cursors;
mod handover;
mod ingest;
mod intake;
#[cfg(test)]
mod memory_tree;
mod metrics;
mod otlp;
mod parts;
mod publisher;
mod reverification;
mod seen;
mod service;
mod settings;
mod sources;
mod ticket;
mod witness;
mod writer;

pub use ingest::{BatchBounds, IngestError};
pub use intake::{Intake, NotTaken, Reporter, TicketText};
pub use metrics::Metrics;
pub use otlp::OtlpMetrics;
pub use parts::{Evidence, EvidenceError, EvidenceLimits, EvidenceOptions, Ingest, OpenedEvidence, with_note_outside};
pub use publisher::Publisher;
pub use seen::{Seen, SeenDelegation};
pub use service::ReportService;
pub use settings::{
    AuditSettings, LedgerSettings, OtlpHeaders, OtlpProtocol, OtlpSettings, TileAccess, WitnessSettings,
};
pub use writer::{Erase, LedgerHandle, ReportError};
