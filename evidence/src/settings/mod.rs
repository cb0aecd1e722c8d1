//! The parts of the configuration file about evidence.

mod ledger;
mod otlp;

pub use self::ledger::{LedgerSettings, TileAccess, WitnessSettings};
pub use self::otlp::{AuditSettings, OtlpHeaders, OtlpProtocol, OtlpSettings};
