//! Where a record comes from. It is stored beside the record, outside of the digest that filters check.

use serde::Serialize;

use crate::subject::Order;

/// Who requested a change, when and why. Durable in the same group as the change.
#[derive(Clone, PartialEq, Eq, prost::Message, Serialize)]
pub(crate) struct Provenance {
    /// By the wall clock, seconds since the Unix epoch.
    #[prost(int64, tag = "1")]
    #[serde(rename = "at")]
    time: i64,
    /// See [`Operation::name`](crate::subject::Operation::name).
    #[prost(string, tag = "2")]
    operation: String,
    /// See [`Source::name`](crate::subject::Source::name).
    #[prost(string, tag = "3")]
    source: String,
    /// See [`Requester`](crate::subject::Requester).
    #[prost(string, tag = "4")]
    #[serde(rename = "by")]
    requester: String,
    #[prost(string, optional, tag = "5")]
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

// === impl Provenance ===

impl Provenance {
    pub(crate) fn of(order: &Order, time: i64) -> Self {
        Self {
            time,
            operation: order.operation.name().to_owned(),
            source: order.by.source.name().to_owned(),
            requester: order.by.name.clone(),
            reason: order.reason.clone(),
        }
    }
}
