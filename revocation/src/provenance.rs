//! Where a record comes from: what stands beside it in the log, outside the digest that filters check.

use crate::subject::{Operation, Order, Source};

/// Who asked for a change, when and why. Durable in the same group as the change.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Provenance {
    /// By the wall clock, seconds since the Unix epoch.
    #[prost(int64, tag = "1")]
    pub(crate) time: i64,
    /// A number of [`OPERATIONS`], from 1.
    #[prost(uint32, tag = "2")]
    operation: u32,
    /// The bit of [`Source::disabler`].
    #[prost(uint32, tag = "3")]
    source: u32,
    /// See [`Requester`](crate::subject::Requester).
    #[prost(string, tag = "4")]
    pub(crate) requester: String,
    #[prost(string, optional, tag = "5")]
    pub(crate) reason: Option<String>,
}

// === impl Provenance ===

impl Provenance {
    pub(crate) fn of(order: &Order, time: i64) -> Self {
        Self {
            time,
            operation: number(&order.operation),
            source: order.by.source.disabler(),
            requester: order.by.name.clone(),
            reason: order.reason.clone(),
        }
    }

    /// As [`Operation::name`]; nothing if a later version knows it.
    pub(crate) fn operation(&self) -> Option<&'static str> {
        let place = usize::try_from(self.operation).ok()?.checked_sub(1)?;
        OPERATIONS.get(place).copied()
    }

    /// As [`Source::name`]; nothing if a later version knows it.
    pub(crate) fn source(&self) -> Option<&'static str> {
        Source::ALL
            .into_iter()
            .find(|source| source.disabler() == self.source)
            .map(Source::name)
    }
}

fn number(operation: &Operation) -> u32 {
    match operation {
        Operation::Raise { .. } => 1,
        Operation::Disable(_) => 2,
        Operation::Enable(_) => 3,
        Operation::RevokeKey(_) => 4,
        Operation::RaiseIssuerFloor { .. } => 5,
        Operation::RevokeDelegation(_) => 6,
    }
}

/// The numbers are in every log: none is ever given another meaning.
const OPERATIONS: [&str; 6] = [
    "raise",
    "disable",
    "enable",
    "revoke_key",
    "raise_issuer_floor",
    "revoke_delegation",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::{PrincipalName, Requester};

    #[test]
    fn what_was_asked_by_whom_is_read_back_by_name() {
        let principal = PrincipalName::parse("https://id.example.com".to_owned(), None).unwrap();
        for (source, operation) in [
            (Source::Operator, Operation::Disable(principal.clone())),
            (Source::SecurityEvent, Operation::Enable(principal)),
        ] {
            let order = Order {
                operation,
                by: Requester {
                    source,
                    name: "ci".to_owned(),
                },
                reason: Some("lost".to_owned()),
            };
            let provenance = Provenance::of(&order, 7);
            assert_eq!(provenance.operation(), Some(order.operation.name()));
            assert_eq!(provenance.source(), Some(source.name()));
        }
    }
}
