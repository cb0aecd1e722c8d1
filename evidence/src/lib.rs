//! Evidence: how it arrives, where it is kept, how it is read back.
//!
//! The ledger itself is the crate `credence_ledger`. Here [`writer`] is the one thread that appends to it and knows every
//! source's last sequence number, [`ticket`] and [`sources`] say who the sources are, [`service`] is the gRPC stream, [`intake`] is the same for HTTP, [`ingest`] and [`budget`] are their bounds, [`seen`] is what principals'
//! agents were seen to use. [`publisher`] signs checkpoints, and [`witness`] has others cosign them. [`reverification`] says
//! whether what filters allowed is what the delegations say; [`handover`] is how it learns of what was written. [`otlp`] sends
//! every record to an OpenTelemetry collector.

#![allow(
    missing_docs,
    reason = "internal to the control plane: names that say all have no comment"
)]

mod budget;
mod handover;
mod ingest;
mod intake;
#[cfg(test)]
mod memory_tree;
mod metrics;
mod names;
mod otlp;
mod publisher;
mod reverification;
mod seen;
mod service;
mod settings;
mod sources;
mod ticket;
mod witness;
mod writer;

pub use budget::Budget;
pub use handover::Handover;
pub use ingest::{BatchBounds, IngestError};
pub use intake::{Intake, NotTaken, Reporter, TicketText};
pub use metrics::Metrics;
pub use names::{change_name, decision_name};
pub use otlp::{CursorFile, FollowedLedger, Follower, OtlpError, OtlpMetrics, Sender};
pub use publisher::Publisher;
pub use reverification::{Reverification, Reverifier};
pub use seen::{Seen, SeenDelegation, SeenOfLate, Sightings};
pub use service::{ReportOptions, ReportService, give_up_lost_sources};
pub use settings::{
    AuditSettings, LedgerSettings, OtlpHeaders, OtlpProtocol, OtlpSettings, TileAccess, WitnessSettings,
};
pub use sources::Sources;
pub use ticket::TicketKey;
pub use witness::Witness;
pub use writer::{Erase, LedgerHandle, LedgerWriter, ReportError, damaged as damaged_ledger, start as start_ledger};
