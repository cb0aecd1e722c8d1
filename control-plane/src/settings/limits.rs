//! `limits` of the configuration file: how often a client may ask, and how much it may hold of what clients share.

use schemars::JsonSchema;
use serde::Deserialize;

use credence_runtime::client_limits::Shares;
use credence_runtime::settings::SettingsError;

/// Rates of the HTTP API, and the shares of what clients share. A rate has a bucket that fills at the rate and holds one
/// second of it, or `burst`; a client that finds it empty gets 429.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RateSettings {
    /// Requests of one credential in a second.
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    pub requests_per_second: u32,
    /// Requests of one credential at once.
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    pub burst: u32,
    /// Requests of one address in a second that come without a credential, or with one that is refused.
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    pub unauthenticated_requests_per_second: u32,
    /// Such requests at once.
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    pub unauthenticated_burst: u32,
    /// Revocation statements in a second, of everybody together: each may cost a signature.
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    pub statements_per_second: u32,
    /// The same of one address.
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    pub statements_per_second_per_address: u32,
    /// Credentials and addresses that are counted apart, each; further addresses share one bucket.
    #[schemars(range(min = 1, max = MOST_COUNTED_APART))]
    pub counted_apart: usize,
    /// How much of each limit that clients share one credential may hold, in percent.
    #[schemars(range(min = 1, max = 100))]
    pub credential_share_percent: u8,
    /// How much of it one address may hold (IPv6: one /64), in percent.
    #[schemars(range(min = 1, max = 100))]
    pub address_share_percent: u8,
}

/// What a status check answers beside the status.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StatusSettings {
    /// For how many seconds the answer may be used again: 0 to 60.
    #[schemars(range(min = 0, max = 60))]
    pub max_age: u32,
    /// How many seconds an issuer's clock may be ahead, as the filters' `max_iat_skew`: 0 to 300.
    #[schemars(range(min = 0, max = 300))]
    pub max_iat_skew: u32,
}

// === impl RateSettings ===

impl RateSettings {
    /// What one client may hold of what all clients share.
    pub(crate) fn shares(&self) -> Shares {
        Shares {
            credential_percent: self.credential_share_percent,
            address_percent: self.address_share_percent,
        }
    }

    pub(super) fn check(&self) -> Result<(), SettingsError> {
        let positive = [
            ("requests_per_second", self.requests_per_second),
            ("burst", self.burst),
            (
                "unauthenticated_requests_per_second",
                self.unauthenticated_requests_per_second,
            ),
            ("unauthenticated_burst", self.unauthenticated_burst),
            ("statements_per_second", self.statements_per_second),
            (
                "statements_per_second_per_address",
                self.statements_per_second_per_address,
            ),
        ];
        if let Some((name, _)) = positive.into_iter().find(|(_, value)| *value == 0) {
            return Err(SettingsError::at(format!("limits.{name}"), "write 1 to 4294967295"));
        }
        if !(1..=MOST_COUNTED_APART).contains(&self.counted_apart) {
            return Err(SettingsError::at(
                "limits.counted_apart",
                format!("write 1 to {MOST_COUNTED_APART}"),
            ));
        }
        let shares = [
            ("credential_share_percent", self.credential_share_percent),
            ("address_share_percent", self.address_share_percent),
        ];
        if let Some((name, _)) = shares.into_iter().find(|(_, share)| !(1..=100).contains(share)) {
            return Err(SettingsError::at(format!("limits.{name}"), "write 1 to 100"));
        }
        Ok(())
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
        if self.max_age > 60 {
            return Err(SettingsError::at("status.max_age", "write 0 to 60 seconds"));
        }
        if self.max_iat_skew > 300 {
            return Err(SettingsError::at("status.max_iat_skew", "write 0 to 300 seconds"));
        }
        Ok(())
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
