//! The configuration file of `credence issuer`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use credence_delegation::json::Json;
use credence_runtime::outbound::{is_local, is_safe};
use credence_runtime::settings::{SettingsError, present};
use credence_server::PortTls;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::value::RawValue;
use url::Url;

use crate::clients::{ClientMetadataSettings, ClientSettings, KnownClients, networks};
use crate::policy::{Clients, Policy, Rule, Terms};
use crate::sign_in::IdentityProviderSettings;
use crate::tools::Tools;
use crate::words::Description;

/// The whole file.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The issuer's own URL: the `iss` of its tokens.
    #[schemars(length(min = 1, max = 1024))]
    pub url: String,
    /// Where people sign in.
    pub identity_provider: IdentityProviderSettings,
    /// The control plane that knows what is revoked, and keeps the evidence.
    pub control_plane: ControlPlaneSettings,
    /// The file with the passphrase of the signing keys.
    pub keys_passphrase_file: PathBuf,
    /// TLS of its port. Default: plain HTTP, for a proxy on this machine.
    #[serde(default, deserialize_with = "present")]
    pub tls: Option<PortTls>,
    /// Networks of the proxies in front of it, such as `10.0.0.0/8`: they write the client's address into
    /// `X-Forwarded-For`.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub trusted_proxies: Vec<String>,
    /// Clients that are known beforehand.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    pub clients: Vec<ClientSettings>,
    /// Clients that are known by the document at their URL.
    #[serde(default)]
    pub client_metadata: ClientMetadataSettings,
    /// The tools of each scope, as in a delegation.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, BTreeMap<String, Constraints>>")]
    pub scopes: BTreeMap<String, Box<RawValue>>,
    /// What tools do, for the people who grant them.
    #[serde(default)]
    pub tools: BTreeMap<String, Description>,
    /// Which groups may delegate which tools to which clients.
    #[schemars(length(min = 1, max = 256))]
    pub policy: Vec<RuleSettings>,
    /// Limits.
    #[serde(default)]
    pub limits: LimitSettings,
}

/// The control plane.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ControlPlaneSettings {
    /// Its HTTP API.
    pub url: String,
    /// File with a token that has the roles `revoker`, `watcher`, `reporter` and `auditor`.
    pub token_file: PathBuf,
    /// PEM file: CAs. Default: the system's.
    #[serde(default, deserialize_with = "present")]
    pub ca: Option<PathBuf>,
}

/// A rule of the policy. A person may grant what one rule allows.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RuleSettings {
    /// Unique name for evidence.
    #[schemars(regex(pattern = "^[A-Za-z0-9_.-]{1,128}$"))]
    pub name: String,
    /// The person is in one of them. Default: everyone.
    #[serde(default, deserialize_with = "present")]
    #[schemars(length(min = 1))]
    pub groups: Option<Vec<String>>,
    /// Clients by id. Default: all.
    #[serde(default, deserialize_with = "present")]
    #[schemars(length(min = 1))]
    pub clients: Option<Vec<String>>,
    /// The most that may be granted, as in a delegation.
    #[schemars(with = "BTreeMap<String, Constraints>")]
    pub tools: Box<RawValue>,
    /// Services where the tokens may be used.
    #[schemars(length(min = 1, max = 64))]
    pub audience: Vec<String>,
    /// Longest life of one token, in seconds.
    #[serde(default = "token_lifetime")]
    #[schemars(range(min = 30, max = 86_400))]
    pub token_lifetime_s: u32,
    /// Longest life of a grant, in seconds: until then its client gets new tokens.
    #[serde(default = "grant_lifetime")]
    #[schemars(range(min = 60, max = 31_536_000))]
    pub grant_lifetime_s: u32,
    /// How often agents may hand it on.
    #[serde(default)]
    #[schemars(range(max = 8))]
    pub depth: u32,
    /// Whether access tokens may be bound to no key.
    #[serde(default)]
    pub bearer: bool,
    /// How long ago the person may have signed in, in seconds. Default: as long as the provider says.
    #[serde(default, deserialize_with = "present")]
    pub max_age_s: Option<u32>,
    /// Accepted `acr` of the sign-in. Default: any.
    #[serde(default, deserialize_with = "present")]
    #[schemars(length(min = 1))]
    pub acr: Option<Vec<String>>,
}

/// Limits.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitSettings {
    /// Grants of one person that have not ended.
    #[schemars(range(min = 1, max = 10_000))]
    pub grants_per_person: usize,
    /// How long a grant stays listed after its end, in days.
    #[schemars(range(min = 1, max = 366))]
    pub kept_days: u32,
    /// Connections.
    #[schemars(range(min = 16, max = 65_536))]
    pub connections: usize,
    /// Requests a second of one network (an IPv4 address, or an IPv6 /64), with bursts of ten seconds.
    #[schemars(range(min = 1, max = 100_000))]
    pub requests_per_second: u32,
}

/// The schema of the file.
#[must_use]
pub fn settings_schema() -> String {
    credence_runtime::settings_schema::settings_schema::<Settings>(
        "Configuration of Credence's issuer",
        "The file that credence issuer serve --config reads. docs/start/issuer.md explains every member.",
    )
}

// === impl Settings ===

impl Settings {
    /// Checks everything that the types do not rule out.
    ///
    /// # Errors
    /// The first invalid member.
    pub fn check(&self) -> Result<(), SettingsError> {
        self.policy()?;
        self.scopes()?;
        Ok(())
    }

    /// The policy.
    pub(crate) fn policy(&self) -> Result<Policy, SettingsError> {
        self.check_urls()?;
        for (place, length, most) in [
            ("trusted_proxies", self.trusted_proxies.len(), 64),
            ("clients", self.clients.len(), 1_024),
            ("client_metadata.hosts", self.client_metadata.hosts.len(), 256),
            (
                "client_metadata.private_addresses",
                self.client_metadata.private_addresses.len(),
                16,
            ),
            ("policy", self.policy.len(), 256),
        ] {
            at_most(place, length, most)?;
        }
        networks("trusted_proxies", &self.trusted_proxies)?;
        self.identity_provider.check()?;
        KnownClients::new(&self.clients)?;
        self.client_metadata.check()?;
        self.limits.check()?;
        let mut names = BTreeSet::new();
        let rules = self.policy.iter().enumerate().map(|(index, rule)| {
            let at = |field: &str| format!("policy[{index}].{field}");
            if !names.insert(&rule.name) {
                return Err(SettingsError::at(
                    at("name"),
                    "another rule has this name; evidence could not tell them apart",
                ));
            }
            rule.compile(at)
        });
        let rules = rules.collect::<Result<Vec<_>, _>>()?;
        match rules.is_empty() {
            true => Err(SettingsError::at(
                "policy",
                "no rule, so nothing could be granted; add one",
            )),
            false => Ok(Policy { rules }),
        }
    }

    /// The tools of each scope.
    pub(crate) fn scopes(&self) -> Result<BTreeMap<String, Tools>, SettingsError> {
        let scopes = self.scopes.iter().map(|(scope, tools)| {
            let place = format!("scopes.{scope}");
            let is_scope = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
            if scope.is_empty() || !scope.bytes().all(is_scope) {
                return Err(SettingsError::at(
                    place,
                    "no scope: visible ASCII without quotes and backslashes (RFC 6749)",
                ));
            }
            Ok((scope.clone(), tools_at(&place, tools)?))
        });
        scopes.collect()
    }

    fn check_urls(&self) -> Result<(), SettingsError> {
        let is_origin = |url: Url| url.origin().ascii_serialization() == self.url;
        if !is_safe(&self.url) || !Url::parse(&self.url).is_ok_and(is_origin) {
            return Err(SettingsError::at(
                "url",
                "write an https URL of a host in lower case, without path, final slash and query; http is only for this \
                 machine",
            ));
        }
        if !is_safe(&self.control_plane.url) {
            return Err(SettingsError::at(
                "control_plane.url",
                "not an https URL, so the token could be read on the way; http is only for this machine",
            ));
        }
        if self.tls.is_some() && is_local(&self.url) {
            return Err(SettingsError::at("url", "with `tls`, write an https URL"));
        }
        Ok(())
    }
}

// === impl RuleSettings ===

impl RuleSettings {
    fn compile(&self, at: impl Fn(&str) -> String) -> Result<Rule, SettingsError> {
        let within = |field: &str, value: u32, least: u32, most: u32| match (least..=most).contains(&value) {
            true => Ok(value),
            false => Err(SettingsError::at(
                at(field),
                format!("{value} is not possible; write {least} to {most}"),
            )),
        };
        let names = |field: &str, names: &[String]| {
            if names.is_empty() || names.iter().any(String::is_empty) {
                return Err(SettingsError::at(at(field), "write at least one name, or leave it out"));
            }
            Ok(names.iter().cloned().collect::<BTreeSet<String>>())
        };
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        if !(1..=128).contains(&self.name.len()) || !self.name.bytes().all(is_name) {
            return Err(SettingsError::at(
                at("name"),
                "write 1 to 128 letters, digits, `_`, `.` and `-`",
            ));
        }
        at_most(&at("audience"), self.audience.len(), 64)?;
        let tools = tools_at(&at("tools"), &self.tools)?;
        if tools.is_empty() {
            return Err(SettingsError::at(
                at("tools"),
                "no tool, so the rule allows nothing; add one",
            ));
        }
        let optional =
            |field: &str, list: &Option<Vec<String>>| list.as_deref().map(|list| names(field, list)).transpose();
        Ok(Rule {
            name: self.name.clone(),
            groups: optional("groups", &self.groups)?.unwrap_or_default(),
            clients: optional("clients", &self.clients)?.map_or(Clients::All, Clients::Listed),
            tools,
            audience: names("audience", &self.audience)?,
            terms: Terms {
                token_seconds: within("token_lifetime_s", self.token_lifetime_s, 30, 86_400)?,
                grant_seconds: within("grant_lifetime_s", self.grant_lifetime_s, 60, 31_536_000)?,
                depth: within("depth", self.depth, 0, 8)?,
                bearer: self.bearer,
                max_age: self.max_age_s,
                acr: optional("acr", &self.acr)?.into_iter().collect(),
            },
        })
    }
}

// === impl LimitSettings ===

impl LimitSettings {
    fn check(&self) -> Result<(), SettingsError> {
        for (field, value, least, most) in [
            ("grants_per_person", self.grants_per_person as u64, 1, 10_000),
            ("kept_days", self.kept_days.into(), 1, 366),
            ("connections", self.connections as u64, 16, 65_536),
            ("requests_per_second", self.requests_per_second.into(), 1, 100_000),
        ] {
            if !(least..=most).contains(&value) {
                return Err(SettingsError::at(
                    format!("limits.{field}"),
                    format!("{value} is not possible; write {least} to {most}"),
                ));
            }
        }
        Ok(())
    }
}

impl Default for LimitSettings {
    fn default() -> Self {
        Self {
            grants_per_person: 200,
            kept_days: 90,
            connections: 1_024,
            requests_per_second: 50,
        }
    }
}

fn at_most(place: &str, length: usize, most: usize) -> Result<(), SettingsError> {
    match length <= most {
        true => Ok(()),
        false => Err(SettingsError::at(
            place,
            format!("{length} are too many; write at most {most}"),
        )),
    }
}

fn tools_at(place: &str, text: &RawValue) -> Result<Tools, SettingsError> {
    let json = Json::parse(text.get().as_bytes()).map_err(|error| SettingsError::at(place, error.to_string()))?;
    Tools::parse(&json).map_err(|error| SettingsError::at(place, error.to_string()))
}

/// Constraints by argument, for the schema: their members depend on their type.
type Constraints = BTreeMap<String, BTreeMap<String, Box<RawValue>>>;

/// The default: ten minutes.
fn token_lifetime() -> u32 {
    600
}

/// The default: 30 days.
fn grant_lifetime() -> u32 {
    2_592_000
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = r#"{
        "url": "https://issuer.example",
        "identity_provider": {"issuer": "https://login.example", "client_id": "credence"},
        "control_plane": {"url": "https://credence.example:7070", "token_file": "token"},
        "keys_passphrase_file": "passphrase",
        "clients": [{"id": "planner", "name": "Planner", "redirect_uris": ["https://planner.example/cb"]}],
        "client_metadata": {"hosts": ["*.example.com"], "private_addresses": ["10.0.0.0/8"]},
        "scopes": {"orders.read": {"orders.read": {}}},
        "policy": [{"name": "read", "tools": {"orders.read": {}}, "audience": ["https://orders.example"]}]
    }"#;

    /// The error of the valid file with this change.
    fn error(old: &str, new: &str) -> String {
        assert!(VALID.contains(old), "{old}");
        let settings = serde_json::from_str::<Settings>(&VALID.replace(old, new));
        match settings {
            Ok(settings) => settings.check().unwrap_err().to_string(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn the_rest_has_defaults() {
        let settings: Settings = serde_json::from_str(VALID).unwrap();
        settings.check().unwrap();
        let [rule] = &settings.policy().unwrap().rules[..] else {
            panic!("one rule")
        };
        let Terms {
            token_seconds,
            grant_seconds,
            depth,
            bearer,
            ..
        } = rule.terms;
        assert_eq!(
            (token_seconds, grant_seconds, depth, bearer),
            (600, 2_592_000, 0, false)
        );
        assert!(rule.groups.is_empty() && matches!(rule.clients, Clients::All));
    }

    #[test]
    fn errors_have_their_place_and_cure() {
        let rule = r#""name": "read""#;
        for (old, new, expected) in [
            (
                "https://issuer.example",
                "http://issuer.example",
                "at url: write an https URL",
            ),
            ("https://issuer.example", "https://issuer.example/", "at url"),
            ("https://issuer.example", "https://issuer.example/issuer", "at url"),
            ("https://issuer.example", "https://Issuer.example", "at url"),
            ("https://issuer.example", "https://issuer.example:443", "at url"),
            (
                "https://credence.example:7070",
                "http://credence.example",
                "at control_plane.url",
            ),
            (
                "https://login.example",
                "http://login.example",
                "at identity_provider.issuer",
            ),
            (
                "https://planner.example/cb",
                "http://planner.example/cb",
                "at clients[0].redirect_uris",
            ),
            (r#""id": "planner""#, r#""id": """#, "at clients[0].id"),
            ("*.example.com", "https://example.com", "at client_metadata.hosts"),
            ("10.0.0.0/8", "10.0.0.0", "at client_metadata.private_addresses"),
            (
                r#""clients":"#,
                r#""trusted_proxies": ["10.0.0.1"], "clients":"#,
                "at trusted_proxies: \"10.0.0.1\" is not a network",
            ),
            (r#""orders.read": {"orders"#, r#""a b": {"orders"#, "at scopes.a b"),
            (
                r#""tools": {"orders.read": {}}"#,
                r#""tools": {}"#,
                "at policy[0].tools: no tool",
            ),
            (
                r#""tools": {"orders.read": {}}"#,
                r#""tools": {"a": {"b": 7}}"#,
                "at policy[0].tools",
            ),
            (r#"["https://orders.example"]"#, "[]", "at policy[0].audience"),
            (rule, r#""name": "größe""#, "at policy[0].name: write 1 to 128"),
            (rule, r#""name": "read", "groups": []"#, "at policy[0].groups"),
            (
                r#"["https://orders.example"]"#,
                &format!("[{}\"b\"]", "\"a\",".repeat(64)),
                "at policy[0].audience: 65 are too many",
            ),
            (
                r#""clients":"#,
                &format!(
                    r#""trusted_proxies": [{}"10.0.0.0/8"], "clients":"#,
                    r#""10.0.0.0/8","#.repeat(64)
                ),
                "at trusted_proxies: 65 are too many; write at most 64",
            ),
            (rule, r#""name": "read", "clients": [""]"#, "at policy[0].clients"),
            (
                rule,
                r#""name": "read", "depth": 9"#,
                "at policy[0].depth: 9 is not possible; write 0 to 8",
            ),
            (
                rule,
                r#""name": "read", "token_lifetime_s": 5"#,
                "at policy[0].token_lifetime_s",
            ),
            (rule, r#""name": "read", "max_age": 5"#, "unknown field `max_age`"),
            (
                r#""policy": [{"#,
                r#""policy": [{"name": "read", "tools": {"a": {}}, "audience": ["b"]}, {"#,
                "at policy[1].name",
            ),
            (
                r#""policy": ["#,
                r#""limits": {"connections": 0}, "policy": ["#,
                "at limits.connections",
            ),
        ] {
            let found = error(old, new);
            assert!(found.contains(expected), "{new}: {found}");
        }
    }

    #[test]
    fn hosts_of_clients_match_whole_labels() {
        let hosts = |hosts: &[&str]| ClientMetadataSettings {
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            ..ClientMetadataSettings::default()
        };
        for (listed, host, expected) in [
            ("*", "a.example", true),
            ("a.example", "A.example", true),
            ("a.example", "b.a.example", false),
            ("*.a.example", "b.a.example", true),
            ("*.a.example", "a.example", false),
            ("*.a.example", "ba.example", false),
        ] {
            assert_eq!(hosts(&[listed]).accept(host), expected, "{listed} {host}");
        }
    }
}
