//! `limits` of the configuration file: how often a client may ask, and how much it may hold of what clients share.

use schemars::JsonSchema;
use serde::Deserialize;

use credence_runtime::client_limits::Shares;
use credence_runtime::settings::{Field, SettingsError};

/// Rates of the HTTP API, and the clients' shares of common limits. A rate has a bucket that fills at the rate and
/// holds one second of it, or `burst`. A client that finds it empty gets 429.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RateSettings {
    /// Requests per second of one credential.
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    pub requests_per_second: u32,
    /// Burst of one credential.
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    pub burst: u32,
    /// Requests per second of one address without a valid credential.
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    pub unauthenticated_requests_per_second: u32,
    /// Burst of one address without a valid credential.
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    pub unauthenticated_burst: u32,
    /// Signed statements per second.
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    pub statements_per_second: u32,
    /// Signed statements per second of one address.
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    pub statements_per_second_per_address: u32,
    /// Credentials, and addresses, with separate counters.
    #[schemars(range(min = 1, max = MOST_COUNTED_APART))]
    pub counted_apart: usize,
    /// Share of one credential, in percent.
    #[schemars(range(min = 1, max = 100))]
    pub credential_share_percent: u8,
    /// Share of one address (IPv6: /64), in percent.
    #[schemars(range(min = 1, max = 100))]
    pub address_share_percent: u8,
}

/// The additions to the answer of a status check.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StatusSettings {
    /// Seconds to cache an answer.
    #[schemars(range(min = 0, max = 60))]
    pub max_age: u32,
    /// Seconds that an issuer's clock may be ahead.
    #[schemars(range(min = 0, max = 300))]
    pub max_iat_skew: u32,
}

// === impl RateSettings ===

impl RateSettings {
    /// The shares of one client in shared limits.
    pub(crate) fn shares(&self) -> Shares {
        Shares {
            credential_percent: self.credential_share_percent,
            address_percent: self.address_share_percent,
        }
    }

    pub(super) fn check(&self) -> Result<(), SettingsError> {
        let positive = [
            ("limits.requests_per_second", self.requests_per_second),
            ("limits.burst", self.burst),
            (
                "limits.unauthenticated_requests_per_second",
                self.unauthenticated_requests_per_second,
            ),
            ("limits.unauthenticated_burst", self.unauthenticated_burst),
            ("limits.statements_per_second", self.statements_per_second),
            (
                "limits.statements_per_second_per_address",
                self.statements_per_second_per_address,
            ),
        ];
        for (place, rate) in positive {
            Field(place, "1 to 4294967295").within(rate, 1..)?;
        }
        Field("limits.counted_apart", "1 to 1048576").within(self.counted_apart, 1..=MOST_COUNTED_APART)?;
        Field("limits.credential_share_percent", "1 to 100").within(self.credential_share_percent, 1..=100)?;
        Field("limits.address_share_percent", "1 to 100").within(self.address_share_percent, 1..=100)
    }
}

impl Default for RateSettings {
    fn default() -> Self {
        Self {
            requests_per_second: 50_000,
            burst: 50_000,
            unauthenticated_requests_per_second: 1_000,
            unauthenticated_burst: 2_000,
            statements_per_second: 500,
            statements_per_second_per_address: 50,
            counted_apart: 65_536,
            credential_share_percent: 50,
            address_share_percent: 25,
        }
    }
}

// === impl StatusSettings ===

impl StatusSettings {
    pub(super) fn check(&self) -> Result<(), SettingsError> {
        Field("status.max_age", "0 to 60 seconds").within(self.max_age, ..=60)?;
        Field("status.max_iat_skew", "0 to 300 seconds").within(self.max_iat_skew, ..=300)
    }
}

impl Default for StatusSettings {
    fn default() -> Self {
        Self {
            max_age: 1,
            max_iat_skew: 30,
        }
    }
}

const MOST_COUNTED_APART: usize = 1 << 20;
