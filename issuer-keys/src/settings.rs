//! `issuer_keys` in the configuration file.

use std::path::PathBuf;

use credence_runtime::outbound::{Network, is_safe};
use credence_runtime::settings::{SettingsError, present};
use schemars::JsonSchema;
use serde::Deserialize;

/// An issuer whose keys the control plane fetches, for filters whose trust anchor has `keys: control_plane`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IssuerKeysSettings {
    /// The `iss` of its tokens, compared exactly.
    #[schemars(length(min = 1, max = 1024))]
    pub issuer: String,
    /// Its JWK set. Default: by discovery (OpenID Connect, RFC 8414).
    #[serde(default, deserialize_with = "present")]
    pub jwks_uri: Option<String>,
    /// Hosts of its keys, besides its own.
    #[serde(default)]
    #[schemars(length(max = 8))]
    pub hosts: Vec<String>,
    /// Its private networks, such as `10.0.0.0/8`.
    #[serde(default)]
    #[schemars(length(max = 16))]
    pub private_addresses: Vec<String>,
    /// PEM file: CAs. Default: the system's.
    #[serde(default, deserialize_with = "present")]
    pub ca: Option<PathBuf>,
    /// Longest time between two fetches, in seconds.
    #[serde(default = "refresh")]
    #[schemars(range(min = 1, max = 3600))]
    pub refresh_s: u32,
    /// How long keys are trusted without another fetch, in seconds. At least three times `refresh_s`.
    #[serde(default = "max_key_age")]
    #[schemars(range(min = 3, max = 2_592_000))]
    pub max_key_age_s: u32,
}

/// Checks everything that the types do not rule out.
///
/// # Errors
/// The first invalid member.
pub fn check(issuers: &[IssuerKeysSettings]) -> Result<(), SettingsError> {
    if issuers.len() > MAX_ISSUERS {
        return Err(SettingsError::at(
            "issuer_keys",
            format!("{} issuers; at most {MAX_ISSUERS} are accepted", issuers.len()),
        ));
    }
    for (index, settings) in issuers.iter().enumerate() {
        let at =
            |field: &str, problem: String| Err(SettingsError::at(format!("issuer_keys[{index}].{field}"), problem));
        let url = settings.jwks_uri.as_deref().unwrap_or(&settings.issuer);
        if !is_safe(url) {
            let field = if settings.jwks_uri.is_some() {
                "jwks_uri"
            } else {
                "issuer"
            };
            return at(
                field,
                format!(
                    "{url:?} is not an https URL, so its keys could be replaced on the way; http is only for this machine"
                ),
            );
        }
        if issuers
            .iter()
            .take(index)
            .any(|earlier| earlier.issuer == settings.issuer)
        {
            return at(
                "issuer",
                format!("{:?} has an earlier entry; remove one", settings.issuer),
            );
        }
        if let Some(wrong) = settings
            .private_addresses
            .iter()
            .find(|text| Network::parse(text).is_none())
        {
            return at(
                "private_addresses",
                format!(
                    "{wrong:?} is not a network; write an address and the length of its prefix, such as 10.0.0.0/8"
                ),
            );
        }
        let is_host = |host: &&String| !host.is_empty() && !host.contains(['/', ':', '@', '?', '#', '*']);
        if let Some(wrong) = settings.hosts.iter().find(|host| !is_host(host)) {
            return at(
                "hosts",
                format!("{wrong:?} is not a host; write it without scheme, port and path"),
            );
        }
        if settings.hosts.len() > MAX_HOSTS || settings.private_addresses.len() > MAX_NETWORKS {
            return at(
                "hosts",
                format!("at most {MAX_HOSTS} hosts and {MAX_NETWORKS} private_addresses are accepted"),
            );
        }
        if !(1..=3600).contains(&settings.refresh_s) {
            return at(
                "refresh_s",
                format!("{} is not possible; write 1 to 3600 seconds", settings.refresh_s),
            );
        }
        if settings.max_key_age_s < settings.refresh_s.saturating_mul(3) || settings.max_key_age_s > 2_592_000 {
            return at(
                "max_key_age_s",
                format!(
                    "{} is not possible; write at least three times refresh_s, and at most 2592000 seconds (30 days)",
                    settings.max_key_age_s
                ),
            );
        }
    }
    Ok(())
}

/// The default: five minutes.
fn refresh() -> u32 {
    300
}

/// The default: a day.
fn max_key_age() -> u32 {
    86_400
}

/// Fewer than filters can hold, which is 256.
const MAX_ISSUERS: usize = 64;
const MAX_HOSTS: usize = 8;
const MAX_NETWORKS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(json: &str) -> Option<String> {
        let settings: Vec<IssuerKeysSettings> = serde_json::from_str(json).unwrap();
        check(&settings).err().map(|error| error.to_string())
    }

    #[test]
    fn an_issuer_alone_is_enough() {
        assert_eq!(problem(r#"[{"issuer": "https://login.example"}]"#), None);
        assert_eq!(
            problem(
                r#"[{"issuer": "urn:idp", "jwks_uri": "https://login.example/keys", "private_addresses": ["10.0.0.0/8", "::1/128"]}]"#
            ),
            None
        );
    }

    #[test]
    fn errors_name_the_place_and_the_cure() {
        for (json, expected) in [
            (r#"[{"issuer": "http://login.example"}]"#, "issuer_keys[0].issuer: "),
            (r#"[{"issuer": "urn:idp"}]"#, "not an https URL"),
            (
                r#"[{"issuer": "https://a", "jwks_uri": "http://a/k"}]"#,
                "issuer_keys[0].jwks_uri",
            ),
            (
                r#"[{"issuer": "https://a"}, {"issuer": "https://a"}]"#,
                "issuer_keys[1].issuer",
            ),
            (
                r#"[{"issuer": "https://a", "private_addresses": ["10.0.0.0"]}]"#,
                "10.0.0.0/8",
            ),
            (
                r#"[{"issuer": "https://a", "refresh_s": 0}]"#,
                "issuer_keys[0].refresh_s: 0 is not possible",
            ),
            (r#"[{"issuer": "https://a", "hosts": ["https://k"]}]"#, "without scheme"),
            (
                r#"[{"issuer": "https://a", "refresh_s": 60, "max_key_age_s": 100}]"#,
                "three times",
            ),
        ] {
            let said = problem(json).unwrap();
            assert!(said.contains(expected), "{json}: {said}");
        }
    }
}
