//! A record's members with their types.

use prost_types::Timestamp;
use serde::{Deserialize, Deserializer, de};

/// A record as the control plane's API shows it, of any kind. Members of a newer version are passed over.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Row {
    pub(super) index: u64,
    pub(super) source: Option<String>,
    pub(super) sequence: Option<u64>,
    #[serde(deserialize_with = "time")]
    pub(super) received: Option<i64>,
    pub(super) kind: String,
    #[serde(deserialize_with = "time")]
    pub(super) time: Option<i64>,
    pub(super) decision: Option<String>,
    pub(super) reason: Option<String>,
    pub(super) mode: Option<String>,
    pub(super) rule: Option<String>,
    pub(super) tool: Option<String>,
    pub(super) principal: Option<Principal>,
    pub(super) agent: Option<String>,
    pub(super) proof: Option<String>,
    pub(super) delegation_ids: Vec<String>,
    pub(super) chain_digest: Option<String>,
    #[serde(deserialize_with = "time")]
    pub(super) expires_at: Option<i64>,
    pub(super) arguments_hash: Option<String>,
    pub(super) arguments: Option<String>,
    pub(super) method: Option<String>,
    pub(super) authority: Option<String>,
    pub(super) path_template: Option<String>,
    pub(super) response_status: Option<u32>,
    pub(super) request_id: Option<String>,
    pub(super) trace_id: Option<String>,
    pub(super) cache: Option<String>,
    pub(super) decision_ns: Option<u64>,
    pub(super) stale_ms: Option<u64>,
    pub(super) count: Option<u64>,
    pub(super) shed: Option<u64>,
    pub(super) shed_counts: Option<u64>,
    pub(super) shed_chains: Option<u64>,
    #[serde(deserialize_with = "time")]
    pub(super) first_time: Option<i64>,
    #[serde(deserialize_with = "time")]
    pub(super) last_time: Option<i64>,
    pub(super) change: Option<String>,
    pub(super) last_sequence: Option<u64>,
    pub(super) node: Option<String>,
    pub(super) plugin: Option<String>,
    pub(super) peer: Option<String>,
    pub(super) anchors_digest: Option<String>,
    pub(super) chain: Option<String>,
    pub(super) note: Option<String>,
    pub(super) key: Option<u64>,
    pub(super) by: Option<String>,
    pub(super) first: Option<u64>,
    pub(super) tree_size: Option<u64>,
    pub(super) root: Option<String>,
    pub(super) reported_by: Option<String>,
    pub(super) step: Option<String>,
    pub(super) other_anchors: Option<bool>,
}

/// Whose authority it was.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Principal {
    pub(super) issuer: Option<String>,
    pub(super) subject: Option<String>,
}

/// RFC 3339, in nanoseconds since the Unix epoch; in years that these can not count, the last that they can.
fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    let Some(text) = Option::<String>::deserialize(deserializer)? else {
        return Ok(None);
    };
    let time: Timestamp = text
        .parse()
        .map_err(|_| de::Error::custom(format_args!("{text:?} is no time as RFC 3339 has it")))?;
    let nanos = time
        .seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(time.nanos.into());
    Ok(Some(nanos))
}
