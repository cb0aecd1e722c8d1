//! The configuration file of `credence proxy`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use credence_agent::service::Origin;
use credence_delegation::json::Json;
use credence_delegation::{Capabilities, Members, Value};
use credence_runtime::outbound::is_safe;
use credence_runtime::settings::{Field, SettingsError, present};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The whole file.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The services that clients may call. All other hosts are refused.
    #[schemars(length(min = 1, max = 64))]
    pub services: Vec<ServiceSettings>,
    /// What the proxy holds.
    #[schemars(length(min = 1, max = 64))]
    pub credentials: Vec<CredentialSettings>,
    /// Who may use it.
    #[schemars(length(min = 1, max = 256))]
    pub clients: Vec<ClientSettings>,
    /// Limits.
    #[serde(default)]
    pub limits: LimitSettings,
}

/// A service.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceSettings {
    /// Its origin, such as `https://payments.example`. `http` sends delegations in the clear.
    pub url: String,
    /// Its rules: a URL at the same origin, or a file. Default: `/.well-known/credence-agent-rules` at the origin.
    #[serde(default, deserialize_with = "present")]
    pub rules: Option<String>,
    /// The names that its proofs may be for. Default: the names at its origin.
    #[serde(default)]
    #[schemars(length(max = 16))]
    pub audience: Vec<String>,
    /// PEM file: CAs. Default: the system's.
    #[serde(default, deserialize_with = "present")]
    pub ca: Option<PathBuf>,
    /// PEM files for mutual TLS.
    #[serde(default, deserialize_with = "present")]
    pub certificate: Option<CertificateSettings>,
    /// Whether an `http` service speaks HTTP/2. Over TLS, both sides agree on it.
    #[serde(default)]
    pub http2: bool,
}

/// A client certificate.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CertificateSettings {
    /// PEM file: the certificate, and those that sign it.
    pub chain: PathBuf,
    /// PEM file: its private key.
    pub key: PathBuf,
}

/// A delegation, or an access token, with its key.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CredentialSettings {
    /// Unique name, for clients and logs.
    #[schemars(regex(pattern = "^[A-Za-z0-9_.-]{1,64}$"))]
    pub name: String,
    /// The key that the delegation names. Default: a new one, which exists only in the proxy's memory.
    #[serde(default)]
    pub key: KeySettings,
    /// File: the delegation, tokens joined by `~`. It is read again when it changes.
    #[serde(default, deserialize_with = "present")]
    pub file: Option<PathBuf>,
    /// Instead: the issuer where a person grants it.
    #[serde(default, deserialize_with = "present")]
    pub issuer: Option<IssuerSettings>,
}

/// An issuer, where the proxy is an OAuth client.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IssuerSettings {
    /// Its URL: the `iss` of its tokens.
    pub url: String,
    /// The proxy's name there. It is a public client with the redirect URI `http://127.0.0.1/callback`.
    pub client_id: String,
    /// The tools to ask for, with constraints as in a delegation.
    #[schemars(with = "BTreeMap<String, Constraints>")]
    pub tools: Box<RawValue>,
    /// The services to ask for (RFC 8707). Default: as the issuer's policy has it. An access token needs them: it goes to
    /// no others.
    #[serde(default)]
    #[schemars(length(max = 16))]
    pub audience: Vec<String>,
    /// How often it may be handed on: 0 to 8. With 1, each client gets a delegation of its own.
    #[serde(default)]
    #[schemars(range(max = 8))]
    pub depth: u32,
    /// What to ask for.
    #[serde(default)]
    pub token: TokenKind,
    /// File that keeps the grant across restarts. What it has is of no use without the key. Default: none.
    #[serde(default, deserialize_with = "present")]
    pub state: Option<PathBuf>,
    /// Users of this machine whose browsers may open the page where it is granted. Default: the proxy's own.
    #[serde(default = "own_uid")]
    #[schemars(default = "Vec::<u32>::new", length(min = 1, max = 16), transform = without_default)]
    pub uids: Vec<u32>,
    /// PEM file: CAs. Default: the system's.
    #[serde(default, deserialize_with = "present")]
    pub ca: Option<PathBuf>,
}

/// What an issuer gives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TokenKind {
    /// A delegation.
    #[default]
    Delegation,
    /// An access token that DPoP binds to the key (RFC 9449).
    AccessToken,
}

/// Where a key is.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum KeySettings {
    /// In memory only, and new at each start.
    #[default]
    Memory,
    /// In a file with a private JWK, which only the proxy's user can read.
    File(PathBuf),
    /// In an encrypted file.
    Encrypted(EncryptedSettings),
    /// In a PKCS #11 module.
    Pkcs11(Pkcs11Settings),
}

/// An encrypted private key.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EncryptedSettings {
    /// PEM file: PKCS #8, Ed25519 or P-256, as `credence keygen --passphrase-file` or OpenSSL writes it.
    pub file: PathBuf,
    /// File with its passphrase.
    pub passphrase_file: PathBuf,
}

/// A key in a PKCS #11 module.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pkcs11Settings {
    /// The module's library, such as `/usr/lib/softhsm/libsofthsm2.so`.
    pub module: PathBuf,
    /// The label of the token.
    pub token: String,
    /// The label of the key: a private and a public one, Ed25519 or P-256.
    pub label: String,
    /// File with the user's PIN.
    pub pin_file: PathBuf,
}

/// A client, known by where it connects, by its user, and by a secret if it has one.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientSettings {
    /// Unique name, for logs and metrics.
    #[schemars(regex(pattern = "^[A-Za-z0-9_.-]{1,64}$"))]
    pub name: String,
    /// `127.0.0.1:7080`, `[::1]:7080`, or `unix:/run/credence/agent.sock`. Clients that share one need secrets.
    pub listen: Listen,
    /// Reverse proxy: the origin of the service that gets all its requests. Default: forward proxy, where requests name
    /// a service.
    #[serde(default, deserialize_with = "present")]
    pub service: Option<String>,
    /// The credential that its requests use. Default: the only one.
    #[serde(default, deserialize_with = "present")]
    pub credential: Option<String>,
    /// Narrower: tools with constraints, as in a delegation. Default: all that the credential grants.
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "Option<BTreeMap<String, Constraints>>")]
    pub tools: Option<Box<RawValue>>,
    /// File with a secret that each request has: `Authorization: Bearer SECRET`, or for a forward proxy
    /// `Proxy-Authorization`, also as the password in `http://NAME:SECRET@127.0.0.1:7080`.
    #[serde(default, deserialize_with = "present")]
    pub secret_file: Option<PathBuf>,
    /// Users of this machine whose programs may connect, by number. Default: the proxy's own.
    #[serde(default = "own_uid")]
    #[schemars(default = "Vec::<u32>::new", length(min = 1, max = 16), transform = without_default)]
    pub uids: Vec<u32>,
    /// Origins of web pages that may call it from a browser on this machine. Default: none.
    #[serde(default)]
    #[schemars(length(max = 16))]
    pub web_origins: Vec<String>,
}

/// Where a client connects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
pub enum Listen {
    /// An address of this machine.
    Tcp(SocketAddr),
    /// A socket, which the proxy makes.
    Unix(PathBuf),
}

/// Limits.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitSettings {
    /// Connections to one port or socket at once: 1 to 4,096. Idle ones end after a minute.
    pub connections: usize,
    /// Requests of one client at once: 1 to 4,096. Beyond: 429.
    pub requests: usize,
    /// How long a service may take until its answer begins, in seconds: 1 to 3,600. Beyond: 504.
    pub answer_s: u64,
    /// How long an answer may take with its stream, in seconds: 1 to 86,400. Then it is cut off.
    pub stream_s: u64,
}

// === impl Settings ===

impl Settings {
    /// Checks what types cannot say.
    ///
    /// # Errors
    /// The first error, with its place.
    pub fn check(&self) -> Result<(), SettingsError> {
        Field("services", "1 to 64 entries").within(self.services.len(), 1..=64)?;
        Field("credentials", "1 to 64 entries").within(self.credentials.len(), 1..=64)?;
        Field("clients", "1 to 256 entries").within(self.clients.len(), 1..=256)?;
        let mut origins = BTreeSet::new();
        for (index, service) in self.services.iter().enumerate() {
            let origin = service.check(&format!("services[{index}]"))?;
            once(&mut origins, origin.as_str(), &format!("services[{index}].url"))?;
        }
        let mut names = BTreeSet::new();
        for (index, credential) in self.credentials.iter().enumerate() {
            let at = format!("credentials[{index}]");
            name(&credential.name, &at)?;
            once(&mut names, &credential.name, &format!("{at}.name"))?;
            credential.check(&at)?;
        }
        let mut clients = BTreeSet::new();
        for (index, client) in self.clients.iter().enumerate() {
            let at = format!("clients[{index}]");
            name(&client.name, &at)?;
            once(&mut clients, &client.name, &format!("{at}.name"))?;
            self.check_client(client, &at)?;
        }
        self.limits.check()
    }

    fn check_client(&self, client: &ClientSettings, at: &str) -> Result<(), SettingsError> {
        if let Some(url) = &client.service {
            let known = self.services.iter().any(|service| is_same(&service.url, url));
            ensure(known, format!("{at}.service"), || {
                format!("{url} is not in `services`; add it there")
            })?;
        }
        match &client.credential {
            Some(named) => {
                let known = self.credentials.iter().any(|credential| &credential.name == named);
                ensure(known, format!("{at}.credential"), || {
                    format!("{named} is not in `credentials`; add it there")
                })?;
            }
            None => ensure(self.credentials.len() == 1, at, || {
                "there are several credentials; name one as `credential`".to_owned()
            })?,
        }
        let sharing = self.clients.iter().filter(|other| other.listen == client.listen);
        let shares = sharing.count() > 1;
        ensure(
            !shares || client.secret_file.is_some(),
            format!("{at}.secret_file"),
            || format!("several clients listen on {}; give each a secret", client.listen),
        )?;
        client
            .capabilities()
            .map_err(|problem| SettingsError::at(format!("{at}.tools"), problem))?;
        Ok(())
    }
}

impl ServiceSettings {
    /// Its origin.
    ///
    /// # Errors
    /// It has none, or another setting is wrong.
    fn check(&self, at: &str) -> Result<Origin, SettingsError> {
        let origin = Origin::parse(&self.url);
        let origin = origin.map_err(|error| SettingsError::at(format!("{at}.url"), error.to_string()))?;
        if let Some(url) = self.rules.as_deref().filter(|rules| rules.contains("://")) {
            let is_own = Origin::of_url(url).is_some_and(|other| other.is_same(&origin));
            ensure(is_own, format!("{at}.rules"), || {
                format!("{url} is at another origin than the service; publish them there, or give a file")
            })?;
        }
        let is_safe = self.rules_file().is_some() || is_safe(&self.url);
        ensure(is_safe, format!("{at}.rules"), || {
            "rules are not fetched in the clear from another machine; use an https service, or give them as a file"
                .to_owned()
        })?;
        ensure(
            !self.http2 || self.url.starts_with("http://"),
            format!("{at}.http2"),
            || "over TLS both sides agree on it; remove it".to_owned(),
        )?;
        Ok(origin)
    }

    /// The file with its rules, if they are in one.
    pub(crate) fn rules_file(&self) -> Option<&str> {
        self.rules.as_deref().filter(|rules| !rules.contains("://"))
    }
}

impl CredentialSettings {
    fn check(&self, at: &str) -> Result<(), SettingsError> {
        ensure(self.file.is_some() != self.issuer.is_some(), at, || {
            "say where the delegation comes from: either `file` or `issuer`".to_owned()
        })?;
        if let Some(issuer) = &self.issuer {
            issuer.check(&format!("{at}.issuer"))?;
        }
        let is_kept = !matches!(self.key, KeySettings::Memory);
        let keeps = self.issuer.as_ref().is_some_and(|issuer| issuer.state.is_some());
        ensure(!keeps || is_kept, format!("{at}.issuer.state"), || {
            "after a restart, a key in memory is another one, and the grant is of no use; give a `key` that stays"
                .to_owned()
        })?;
        ensure(self.file.is_none() || is_kept, format!("{at}.key"), || {
            "a delegation in a file names a key that exists already; give it as `key`".to_owned()
        })
    }
}

impl IssuerSettings {
    fn check(&self, at: &str) -> Result<(), SettingsError> {
        ensure(
            is_safe(&self.url) && !self.url.ends_with('/'),
            format!("{at}.url"),
            || {
                format!(
                    "{} is no https URL as the issuer writes it, without a last slash",
                    self.url
                )
            },
        )?;
        ensure(self.depth <= 8, format!("{at}.depth"), || {
            format!("{} is not 0 to 8", self.depth)
        })?;
        let goes_nowhere = self.token == TokenKind::AccessToken && self.audience.is_empty();
        ensure(!goes_nowhere, format!("{at}.audience"), || {
            "list the services that may get the access token".to_owned()
        })?;
        tools(&self.tools).map_err(|problem| SettingsError::at(format!("{at}.tools"), problem))?;
        Ok(())
    }
}

impl ClientSettings {
    /// What it may do at most, and the same as JSON, if it may not do everything.
    ///
    /// # Errors
    /// What is wrong.
    pub(crate) fn capabilities(&self) -> Result<Option<(Capabilities, Value)>, String> {
        self.tools.as_deref().map(tools).transpose()
    }
}

/// Whether both name the same origin.
pub(crate) fn is_same(url: &str, other: &str) -> bool {
    Origin::parse(url).is_ok_and(|origin| Origin::parse(other).is_ok_and(|other| origin.is_same(&other)))
}

/// The user that this process runs as.
fn own_uid() -> Vec<u32> {
    vec![rustix::process::getuid().as_raw()]
}

/// It depends on the machine.
fn without_default(schema: &mut schemars::Schema) {
    schema.remove("default");
}

/// Tools with constraints, and the same as JSON.
fn tools(written: &RawValue) -> Result<(Capabilities, Value), String> {
    let json = Json::parse(written.get().as_bytes()).map_err(|error| error.to_string())?;
    let tools = json.as_object().ok_or("not an object of tools")?;
    let granted = Capabilities::of_tools(tools).map_err(|denial| denial.to_string())?;
    let members = Members::from_json(tools).map_err(|error| error.to_string())?;
    Ok((granted, Value::Object(members)))
}

impl LimitSettings {
    fn check(&self) -> Result<(), SettingsError> {
        Field("limits.connections", "1 to 4,096").within(self.connections, 1..=4_096)?;
        Field("limits.requests", "1 to 4,096").within(self.requests, 1..=4_096)?;
        Field("limits.answer_s", "1 to 3,600").within(self.answer_s, 1..=3_600)?;
        Field("limits.stream_s", "1 to 86,400").within(self.stream_s, 1..=86_400)
    }

    pub(crate) fn answer(&self) -> Duration {
        Duration::from_secs(self.answer_s)
    }

    pub(crate) fn stream(&self) -> Duration {
        Duration::from_secs(self.stream_s)
    }
}

impl Default for LimitSettings {
    fn default() -> Self {
        Self {
            connections: 256,
            requests: 128,
            answer_s: 60,
            stream_s: 3_600,
        }
    }
}

// === impl Listen ===

impl TryFrom<String> for Listen {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Unix(path.into()));
        }
        let address: SocketAddr = text.parse().map_err(|_| {
            format!("`{text}` is no address; write `127.0.0.1:7080` or `unix:/run/credence/agent.sock`")
        })?;
        match address.ip().is_loopback() {
            true => Ok(Self::Tcp(address)),
            false => Err(format!(
                "{address} can be reached from other machines; listen on 127.0.0.1 or ::1"
            )),
        }
    }
}

impl std::fmt::Display for Listen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

fn name(name: &str, at: &str) -> Result<(), SettingsError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let is_name = !name.is_empty() && name.len() <= 64 && name.bytes().all(is_plain);
    ensure(is_name, format!("{at}.name"), || {
        format!("`{name}` is not a name of up to 64 letters, digits, `_`, `-` and `.`")
    })
}

fn once(seen: &mut BTreeSet<String>, name: &str, at: &str) -> Result<(), SettingsError> {
    ensure(seen.insert(name.to_owned()), at, || {
        format!("{name} is listed twice; remove one")
    })
}

fn ensure(holds: bool, at: impl Into<String>, problem: impl FnOnce() -> String) -> Result<(), SettingsError> {
    match holds {
        true => Ok(()),
        false => Err(SettingsError::at(at, problem())),
    }
}

/// Constraints by argument, for the schema: their members depend on their type.
type Constraints = BTreeMap<String, BTreeMap<String, Box<RawValue>>>;

/// The JSON Schema of the file.
pub fn settings_schema() -> String {
    credence_runtime::settings_schema::settings_schema::<Settings>(
        "Configuration of Credence's proxy for agents",
        "The file that `credence proxy` reads.",
    )
}
