//! Evidence: how it arrives, where it is kept, how it is read back.
//!
//! The crate `credence_ledger` is the ledger itself. `parts` puts together everything that works on it:
//!
//! | module | its one job |
//! |---|---|
//! | `writer` | the one thread that appends to the ledger, and knows every source's last sequence number |
//! | `service`, `intake` | accept evidence, over gRPC and over HTTP |
//! | `sources`, `ticket` | the sources, and the tickets that prove their names |
//! | `ingest` | the limits of incoming batches |
//! | `seen` | the delegations that principals' agents use |
//! | `publisher`, `witness` | signed checkpoints, and their witnesses |
//! | `reverification`, `handover` | verifies again what filters allowed |
//! | `cursors` | the progress of the ledger's followers |
//! | `otlp` | sends every record to an OpenTelemetry collector |

#![allow(
    missing_docs,
    reason = "internal to the control plane: a name that explains itself needs no comment"
)]

mod arrivals;
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

pub use arrivals::Arrivals;
pub use ingest::{BatchBounds, IngestError};
pub use intake::{Intake, NotTaken, Reporter, TicketText};
pub use metrics::Metrics;
pub use otlp::OtlpMetrics;
pub use parts::{Evidence, EvidenceError, EvidenceLimits, EvidenceOptions, Ingest, OpenedEvidence, with_note_outside};
pub use publisher::Publisher;
pub use reverification::CurrentAnchors;
pub use seen::{Seen, SeenDelegation};
pub use service::ReportService;
pub use settings::{
    AuditSettings, LedgerSettings, OtlpHeaders, OtlpProtocol, OtlpSettings, TileAccess, WitnessSettings,
};
pub use writer::{Erase, LedgerHandle, ReportError};
