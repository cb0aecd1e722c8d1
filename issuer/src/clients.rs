//! Clients: those that the operator lists, and those that a document at their own URL describes
//! (draft-ietf-oauth-client-id-metadata-document).

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use credence_delegation::JwkSet;
use credence_delegation::inspect::printable;
use credence_delegation::json::Json;
use credence_runtime::client_limits::{Bounds, Client as Place, Places, ShareMetrics, SharedLimit, Shares};
use credence_runtime::outbound::{Document, Guard, GuardedClient, GuardedError, Network};
use credence_runtime::settings::{SettingsError, present};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::value::RawValue;
use url::{Host, Url};

/// A client that is known beforehand. Without `jwks` and `certificate` it is public.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientSettings {
    /// `client_id`.
    #[schemars(length(min = 1, max = 256))]
    pub id: String,
    /// Its name, for people.
    #[schemars(length(min = 1, max = 100))]
    pub name: String,
    /// Where people return. On `127.0.0.1` and `[::1]`, any port (RFC 8252).
    #[serde(default)]
    #[schemars(length(max = 32))]
    pub redirect_uris: Vec<String>,
    /// Its public keys: it authenticates with `private_key_jwt` (RFC 7523).
    #[serde(default, deserialize_with = "present")]
    #[schemars(extend("type" = "object"))]
    pub jwks: Option<Box<RawValue>>,
    /// The host name in its certificate: it authenticates with mutual TLS (RFC 8705).
    #[serde(default, deserialize_with = "present")]
    pub certificate: Option<String>,
    /// Whether it may ask about tokens (RFC 7662), as services do.
    #[serde(default)]
    pub introspects: bool,
}

/// Client ID metadata documents.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClientMetadataSettings {
    /// Hosts of clients' URLs; `*.example` for every host below, `*` for all. Default: none.
    #[schemars(length(max = 256))]
    pub hosts: Vec<String>,
    /// Private networks of these hosts, such as `10.0.0.0/8`.
    #[schemars(length(max = 16))]
    pub private_addresses: Vec<String>,
    /// PEM file: CAs. Default: the system's.
    #[serde(deserialize_with = "present")]
    pub ca: Option<PathBuf>,
}

/// A client.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) id: String,
    /// What people see. Of a foreign client, it is what that says.
    pub(crate) name: String,
    /// The host that vouches for the name, if it is a foreign client's.
    pub(crate) host: Option<String>,
    pub(crate) redirect_uris: Vec<String>,
    pub(crate) authentication: Authentication,
    pub(crate) introspects: bool,
}

/// How a client authenticates.
#[derive(Debug, Clone)]
pub(crate) enum Authentication {
    /// Not at all: what it gets is bound by PKCE, and by its key.
    None,
    PrivateKeyJwt(Arc<JwkSet>),
    /// The host name in its certificate.
    Certificate(String),
}

/// Why a client is not accepted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    #[error("no client has this client_id")]
    Unknown,
    #[error("client_id: {0}")]
    Url(&'static str),
    #[error("client_id: clients of {0} are not accepted here")]
    Host(String),
    #[error("{0}")]
    Fetch(#[from] GuardedError),
    #[error("the client's document: {0}")]
    Document(String),
    #[error("too many clients' documents are being read; try again")]
    Busy,
}

/// The clients that the operator lists, by id.
#[derive(Debug, Clone, Default)]
pub(crate) struct KnownClients(BTreeMap<String, Arc<Client>>);

/// All clients.
#[derive(Debug)]
pub(crate) struct ClientDirectory {
    known: KnownClients,
    settings: ClientMetadataSettings,
    reader: Arc<GuardedClient>,
    reading: Places,
    cached: Mutex<HashMap<String, (Arc<Client>, Instant)>>,
}

// === impl ClientMetadataSettings ===

impl ClientMetadataSettings {
    pub(crate) fn check(&self) -> Result<(), SettingsError> {
        networks(PRIVATE_ADDRESSES, &self.private_addresses)?;
        let is_host = |host: &String| {
            let name = host.strip_prefix("*.").unwrap_or(host);
            *host == "*" || (!name.is_empty() && !name.contains(['/', ':', '@', '?', '#', '*']))
        };
        match self.hosts.iter().find(|host| !is_host(host)) {
            Some(wrong) => Err(SettingsError::at(
                "client_metadata.hosts",
                format!("{wrong:?} is not a host; write a name, `*.example`, or `*`"),
            )),
            None => Ok(()),
        }
    }

    /// Whether clients of this host are accepted.
    pub(crate) fn accept(&self, host: &str) -> bool {
        self.hosts.iter().any(|listed| match listed.strip_prefix("*.") {
            Some(parent) => host
                .strip_suffix(parent)
                .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
            None => listed == "*" || listed.eq_ignore_ascii_case(host),
        })
    }
}

/// Reads networks of a setting.
pub(crate) fn networks(place: &str, texts: &[String]) -> Result<Vec<Network>, SettingsError> {
    let networks = texts.iter().map(|text| {
        let problem = "is not a network; write an address and the length of its prefix, such as 10.0.0.0/8";
        Network::parse(text).ok_or_else(|| SettingsError::at(place, format!("{text:?} {problem}")))
    });
    networks.collect()
}

// === impl KnownClients ===

impl KnownClients {
    pub(crate) fn new(settings: &[ClientSettings]) -> Result<Self, SettingsError> {
        let mut known = BTreeMap::new();
        for (index, client) in settings.iter().enumerate() {
            let at = |field: &str, problem: String| SettingsError::at(format!("clients[{index}].{field}"), problem);
            if client.id.is_empty()
                || client.id.len() > MAX_ID_BYTES
                || client.id.chars().any(|c| c.is_control() || c == ' ')
            {
                return Err(at("id", "write 1 to 256 bytes without spaces".to_owned()));
            }
            if client.name.trim().is_empty() || client.name.len() > MAX_NAME_BYTES {
                return Err(at("name", format!("write 1 to {MAX_NAME_BYTES} bytes")));
            }
            if client.redirect_uris.len() > MAX_REDIRECT_URIS {
                return Err(at("redirect_uris", format!("write at most {MAX_REDIRECT_URIS}")));
            }
            for uri in &client.redirect_uris {
                check_redirect_uri(uri).map_err(|problem| at("redirect_uris", format!("{uri:?}: {problem}")))?;
            }
            let authentication = match (&client.jwks, &client.certificate) {
                (Some(_), Some(_)) => {
                    return Err(at("certificate", "both `jwks` and `certificate`; keep one".to_owned()));
                }
                (Some(jwks), None) => {
                    let keys = JwkSet::parse_of_issuer(jwks.get().as_bytes());
                    Authentication::PrivateKeyJwt(Arc::new(keys.map_err(|error| at("jwks", error.to_string()))?))
                }
                (None, Some(name)) => Authentication::Certificate(name.clone()),
                (None, None) => Authentication::None,
            };
            if client.introspects && matches!(authentication, Authentication::None) {
                return Err(at(
                    "introspects",
                    "a client that asks about tokens needs `jwks` or `certificate`".to_owned(),
                ));
            }
            let compiled = Client {
                id: client.id.clone(),
                name: client.name.clone(),
                host: None,
                redirect_uris: client.redirect_uris.clone(),
                authentication,
                introspects: client.introspects,
            };
            if known.insert(client.id.clone(), Arc::new(compiled)).is_some() {
                return Err(at("id", format!("another client has the id {:?}", client.id)));
            }
        }
        Ok(Self(known))
    }
}

// === impl ClientDirectory ===

impl ClientDirectory {
    pub(crate) fn new(
        known: KnownClients,
        settings: &ClientMetadataSettings,
        shares: &ShareMetrics,
    ) -> Result<Self, SettingsError> {
        let guard = Guard {
            ca: settings.ca.clone(),
            networks: networks(PRIVATE_ADDRESSES, &settings.private_addresses)?,
            local_http: false,
            timeout: READ_TIMEOUT,
            max_bytes: MAX_DOCUMENT_BYTES,
        };
        Ok(Self {
            known,
            settings: settings.clone(),
            reader: Arc::new(GuardedClient::new(guard)),
            reading: Places::new(SharedLimit::ClientDocuments, Bounds::new(MAX_READING, SHARES), shares),
            cached: Mutex::default(),
        })
    }

    /// The client with this id. May read its document.
    pub(crate) async fn find(&self, id: &str, caller: IpAddr) -> Result<Arc<Client>, ClientError> {
        if let Some(known) = self.known.0.get(id) {
            return Ok(Arc::clone(known));
        }
        // Evidence has room for as much.
        if !id.starts_with("https://") || id.len() > MAX_ID_BYTES {
            return Err(ClientError::Unknown);
        }
        let host = metadata_host(id).map_err(ClientError::Url)?;
        if !self.settings.accept(&host) {
            return Err(ClientError::Host(printable(&host)));
        }
        if let Some((client, until)) = self.cache().get(id)
            && Instant::now() < *until
        {
            return Ok(Arc::clone(client));
        }
        let place = self.reading.take(&Place::anonymous(Some(caller)));
        let place = place.map_err(|_| ClientError::Busy)?;
        let (reader, url) = (Arc::clone(&self.reader), id.to_owned());
        let read = tokio::task::spawn_blocking(move || {
            // As long as the work, even if its caller goes away.
            let _place = place;
            read(&reader, &url, host)
        });
        let read = read.await;
        let (client, max_age) = read.map_err(|_| ClientError::Busy)??;
        let until = Instant::now() + max_age.clamp(MIN_CACHE, MAX_CACHE);
        let mut cache = self.cache();
        let first = cache.iter().min_by_key(|(_, (_, until))| *until);
        if let Some(first) = first.map(|(id, _)| id.clone()).filter(|_| cache.len() >= MAX_CACHED) {
            cache.remove(&first);
        }
        cache.insert(id.to_owned(), (Arc::clone(&client), until));
        Ok(client)
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, HashMap<String, (Arc<Client>, Instant)>> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a client's document, and its keys if it has them elsewhere.
fn read(reader: &GuardedClient, url: &str, host: String) -> Result<(Arc<Client>, Duration), ClientError> {
    let Document { bytes, max_age } = reader.get(url)?;
    let wrong = |problem: &str| ClientError::Document(problem.to_owned());
    let json = Json::parse(&bytes).map_err(|error| ClientError::Document(error.to_string()))?;
    let document = json.as_object().ok_or_else(|| wrong("it is no JSON object"))?;
    if document.text("client_id") != Some(url) {
        return Err(wrong("its client_id is not its URL"));
    }
    if document.member("client_secret").is_some() {
        return Err(wrong("it has a client_secret, which everyone can read"));
    }
    let name = document.text("client_name").unwrap_or(&host);
    if name.trim().is_empty() || name.len() > MAX_NAME_BYTES {
        return Err(wrong("its client_name is empty or too long"));
    }
    let uris = document.array("redirect_uris").unwrap_or_default();
    let uris: Option<Vec<String>> = uris.iter().map(|uri| uri.as_str().map(str::to_owned)).collect();
    let redirect_uris = uris
        .filter(|uris| !uris.is_empty() && uris.len() <= MAX_REDIRECT_URIS)
        .ok_or_else(|| wrong("it needs 1 to 32 redirect_uris"))?;
    for uri in &redirect_uris {
        check_redirect_uri(uri).map_err(|problem| ClientError::Document(format!("{}: {problem}", printable(uri))))?;
    }
    let authentication = match document.text("token_endpoint_auth_method").unwrap_or("none") {
        "none" => Authentication::None,
        "private_key_jwt" => {
            let keys = match (document.member("jwks"), document.text("jwks_uri")) {
                (Some(keys), None) => credence_delegation::canonicalize(keys).unwrap_or_default().into_bytes(),
                // Of its own host: another host cannot lend it keys.
                (None, Some(uri)) if metadata_host(uri).is_ok_and(|of_keys| of_keys == host) => reader.get(uri)?.bytes,
                _ => return Err(wrong("private_key_jwt needs jwks, or a jwks_uri at the same host")),
            };
            let keys = JwkSet::parse_of_issuer(&keys).map_err(|error| ClientError::Document(error.to_string()))?;
            Authentication::PrivateKeyJwt(Arc::new(keys))
        }
        _ => {
            return Err(wrong(
                "its token_endpoint_auth_method is neither none nor private_key_jwt",
            ));
        }
    };
    let client = Client {
        id: url.to_owned(),
        name: printable(name),
        host: Some(host),
        redirect_uris,
        authentication,
        introspects: false,
    };
    Ok((Arc::new(client), max_age.unwrap_or_default()))
}

// === impl Client ===

impl Client {
    /// Whether people may return there. Exact, except for the port on this machine's loopback addresses (RFC 8252,
    /// section 7.3).
    pub(crate) fn accepts(&self, redirect_uri: &str) -> bool {
        self.redirect_uris.iter().any(|listed| {
            listed == redirect_uri
                || without_loopback_port(listed)
                    .is_some_and(|listed| without_loopback_port(redirect_uri).is_some_and(|given| listed == given))
        })
    }
}

/// An http URI on a loopback address without its port, in parts that must be equal.
fn without_loopback_port(uri: &str) -> Option<(&'static str, String)> {
    for host in ["http://127.0.0.1", "http://[::1]"] {
        if let Some(rest) = uri.strip_prefix(host) {
            let rest = match rest.strip_prefix(':') {
                Some(rest) => {
                    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
                    let (port, rest) = rest.split_at(digits);
                    port.parse::<u16>().ok()?;
                    rest
                }
                None => rest,
            };
            return (rest.is_empty() || rest.starts_with(['/', '?'])).then(|| (host, rest.to_owned()));
        }
    }
    None
}

/// Why people could not safely return to a URI.
fn check_redirect_uri(uri: &str) -> Result<(), &'static str> {
    let parsed = Url::parse(uri).map_err(|_| "not a URL")?;
    if uri.contains('#') || uri.len() > MAX_URI_BYTES || !uri.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("it has a fragment, is longer than 2048 bytes, or has characters that are not ASCII");
    }
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err("it has a user name");
    }
    // URLs may have more. In the content security policy of the consent page, `*` is every host, and `;` ends the list.
    let is_of_host = |character: char| character.is_ascii_alphanumeric() || "-._[:]".contains(character);
    if !parsed.host_str().is_none_or(|host| host.chars().all(is_of_host)) {
        return Err("its host has characters that no host name has");
    }
    match (parsed.scheme(), parsed.host()) {
        ("https", Some(_)) => Ok(()),
        ("http", Some(host)) if is_loopback(&host) => Ok(()),
        // RFC 8252, section 7.1: a name in reverse.
        (scheme, None) if scheme.contains('.') => Ok(()),
        _ => Err("write an https URL, an http URL on 127.0.0.1 or [::1], or a scheme such as com.example.app"),
    }
}

fn is_loopback(host: &Host<&str>) -> bool {
    match host {
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => address.is_loopback(),
        Host::Domain(name) => *name == "localhost",
    }
}

/// The host of a URL that names a client.
fn metadata_host(url: &str) -> Result<String, &'static str> {
    let parsed = Url::parse(url).map_err(|_| "not a URL")?;
    // Another spelling would be another client with the same document.
    if parsed.as_str() != url || url.len() > MAX_URI_BYTES || parsed.fragment().is_some() {
        return Err("write the URL in its normal form, without a fragment, in at most 2048 bytes");
    }
    if parsed.scheme() != "https" || !parsed.username().is_empty() || parsed.password().is_some() {
        return Err("write an https URL without a user name");
    }
    if parsed.path() == "/" {
        return Err("the URL needs a path");
    }
    parsed.host_str().map(str::to_owned).ok_or("it has no host")
}

const PRIVATE_ADDRESSES: &str = "client_metadata.private_addresses";
const MAX_ID_BYTES: usize = 256;
const MAX_NAME_BYTES: usize = 100;
const MAX_URI_BYTES: usize = 2_048;
const MAX_REDIRECT_URIS: usize = 32;
const MAX_DOCUMENT_BYTES: u64 = 5 << 10;
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Documents that are read at the same time.
const MAX_READING: usize = 64;
const SHARES: Shares = Shares {
    credential_percent: 100,
    address_percent: 12,
};
const MAX_CACHED: usize = 4_096;
const MIN_CACHE: Duration = Duration::from_secs(60);
const MAX_CACHE: Duration = Duration::from_secs(3_600);

#[cfg(test)]
mod tests {
    use super::*;

    const CALLER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn with(redirect_uri: &str) -> Client {
        Client {
            id: "planner".to_owned(),
            name: "Planner".to_owned(),
            host: None,
            redirect_uris: vec![redirect_uri.to_owned()],
            authentication: Authentication::None,
            introspects: false,
        }
    }

    #[test]
    fn only_the_port_of_a_loopback_address_may_differ() {
        for (listed, sent, expected) in [
            ("http://127.0.0.1/cb", "http://127.0.0.1:49152/cb", true),
            ("http://127.0.0.1:1/cb", "http://127.0.0.1:2/cb", true),
            ("http://[::1]/cb", "http://[::1]:80/cb", true),
            ("http://127.0.0.1/cb", "http://127.0.0.1:49152/other", false),
            ("http://127.0.0.1/cb", "http://127.0.0.1:x/cb", false),
            ("http://127.0.0.1/cb", "http://127.0.0.1:1@evil.example/cb", false),
            ("http://127.0.0.1/cb", "http://127.0.0.1.evil.example/cb", false),
            ("http://127.0.0.1/cb", "http://127.0.0.1:99999/cb", false),
            ("http://127.0.0.1/cb", "http://[::1]/cb", false),
            ("http://127.0.0.1/cb", "https://127.0.0.1:1/cb", false),
            ("http://localhost/cb", "http://localhost:1/cb", false),
            ("https://a.example/cb", "https://a.example:1/cb", false),
            ("com.example.app:/cb", "com.example.app:/cb", true),
        ] {
            assert_eq!(with(listed).accepts(sent), expected, "{listed} {sent}");
        }
    }

    #[test]
    fn people_return_to_safe_places_only() {
        for safe in [
            "https://a.example/cb",
            "http://127.0.0.1/",
            "http://[::1]:7/cb?x=y",
            "com.example.app:/cb",
        ] {
            assert_eq!(check_redirect_uri(safe), Ok(()), "{safe}");
        }
        for unsafe_uri in [
            "http://a.example/cb",
            "https://a.example/cb#x",
            "https://user@a.example/cb",
            "javascript:alert(1)",
            "data:text/html,x",
            "file:///etc/passwd",
            "app:/cb",
            "/cb",
            "https://a.example/ö",
            "https://*/cb",
            "https://a;sandbox/cb",
            "https://a,b/cb",
        ] {
            assert!(check_redirect_uri(unsafe_uri).is_err(), "{unsafe_uri}");
        }
    }

    #[test]
    fn a_client_is_named_by_one_spelling_of_an_https_url() {
        assert_eq!(
            metadata_host("https://app.example/client.json").as_deref(),
            Ok("app.example")
        );
        for wrong in [
            "https://app.example",
            "https://app.example/",
            "https://APP.example/client.json",
            "https://app.example/a/../client.json",
            "https://app.example:443/client.json",
            "https://app.example/client.json#a",
            "https://user@app.example/client.json",
            "http://app.example/client.json",
        ] {
            assert!(metadata_host(wrong).is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn a_document_is_read_only_from_accepted_hosts_and_public_addresses() {
        let settings = |hosts: &[&str]| ClientMetadataSettings {
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            ..ClientMetadataSettings::default()
        };
        let directory = |hosts: &[&str]| {
            let shares = ShareMetrics::new(&mut prometheus_client::registry::Registry::default());
            ClientDirectory::new(KnownClients::default(), &settings(hosts), &shares).unwrap()
        };
        let found = directory(&[]).find("https://app.example/client.json", CALLER).await;
        assert!(matches!(found, Err(ClientError::Host(_))), "{found:?}");
        let found = directory(&["*.example.com"])
            .find("https://example.com/client.json", CALLER)
            .await;
        assert!(matches!(found, Err(ClientError::Host(_))), "{found:?}");
        for private in [
            "https://127.0.0.1/c",
            "https://[::1]/c",
            "https://169.254.169.254/c",
            "https://localhost/c",
        ] {
            let found = directory(&["*"]).find(private, CALLER).await;
            assert!(
                matches!(&found, Err(ClientError::Fetch(error)) if error.to_string().contains("not public")),
                "{found:?}"
            );
        }
        let found = directory(&["*"]).find("planner", CALLER).await;
        assert!(matches!(found, Err(ClientError::Unknown)), "{found:?}");
    }
}
