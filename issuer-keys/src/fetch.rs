//! Reads an issuer's metadata (OpenID Connect Discovery 1.0, section 4; RFC 8414, section 3) and keys (RFC 7517). It asks
//! under the rules of a [`GuardedClient`].

use std::time::Duration;

use credence_delegation::JwkSet;
use credence_delegation::json::Json;
use credence_revocation::MAX_ISSUER_KEYS;
use credence_runtime::outbound::{Document, Guard, GuardedClient, GuardedError, Network, is_local, is_safe};
use ureq::http::Uri;

use crate::settings::IssuerKeysSettings;

/// The keys of an issuer, and how long they may be cached.
#[derive(Debug)]
pub(crate) struct Fetched {
    /// Public JWKs, each with its `kid`.
    pub(crate) keys: Vec<(String, Option<String>)>,
    /// `Cache-Control: max-age` (RFC 9111, section 5.2.2.1).
    pub(crate) max_age: Option<Duration>,
}

/// Why an issuer's keys could not be fetched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error(transparent)]
    Get(#[from] GuardedError),
    #[error("{url}: {problem}")]
    Metadata { url: String, problem: String },
    #[error("{url}: {problem}")]
    Keys { url: String, problem: String },
}

/// Fetches the keys of an issuer. Blocks for up to [`TIMEOUT`] for each of at most three requests.
pub(crate) fn fetch(settings: &IssuerKeysSettings) -> Result<Fetched, FetchError> {
    let client = client(settings);
    let url = match &settings.jwks_uri {
        Some(url) => url.clone(),
        None => discover(&client, settings)?,
    };
    let Document { bytes, max_age } = client.get(&url)?;
    let keys = keys(&bytes).map_err(|problem| FetchError::Keys { url, problem })?;
    Ok(Fetched { keys, max_age })
}

fn client(settings: &IssuerKeysSettings) -> GuardedClient {
    let url = settings.jwks_uri.as_deref().unwrap_or(&settings.issuer);
    let networks = settings
        .private_addresses
        .iter()
        .filter_map(|text| Network::parse(text));
    GuardedClient::new(Guard {
        ca: settings.ca.clone(),
        networks: networks.collect(),
        local_http: is_local(url),
        timeout: TIMEOUT,
        max_bytes: MAX_BYTES,
    })
}

/// The `jwks_uri` of the issuer's metadata. The metadata must be the issuer's own, and the keys at one of its hosts.
fn discover(client: &GuardedClient, settings: &IssuerKeysSettings) -> Result<String, FetchError> {
    let [openid, oauth] = metadata_urls(&settings.issuer);
    let (url, metadata) = match client.get(&openid) {
        Err(GuardedError::Status { status: 404, .. }) => (oauth.clone(), client.get(&oauth)?),
        found => (openid, found?),
    };
    jwks_uri(&metadata.bytes, settings).map_err(|problem| FetchError::Metadata { url, problem })
}

fn metadata_urls(issuer: &str) -> [String; 2] {
    let issuer = issuer.trim_end_matches('/');
    let authority = issuer.find("://").map_or(0, |scheme| scheme + 3);
    let path = issuer
        .get(authority..)
        .and_then(|rest| rest.find('/'))
        .map_or(issuer.len(), |path| authority + path);
    let (origin, path) = issuer.split_at_checked(path).unwrap_or((issuer, ""));
    [
        format!("{issuer}/.well-known/openid-configuration"),
        format!("{origin}/.well-known/oauth-authorization-server{path}"),
    ]
}

fn jwks_uri(text: &[u8], settings: &IssuerKeysSettings) -> Result<String, String> {
    let json = Json::parse(text).map_err(|error| error.to_string())?;
    let metadata = json.as_object().ok_or("the metadata is no JSON object")?;
    if metadata.text("issuer") != Some(&settings.issuer) {
        return Err(format!(
            "it is not the metadata of {:?}: its \"issuer\" differs",
            settings.issuer
        ));
    }
    let url = metadata.text("jwks_uri").ok_or("it has no jwks_uri")?;
    let host = host(url).ok_or_else(|| format!("its jwks_uri {url:?} is not a URL"))?;
    let is_own = self::host(&settings.issuer).is_some_and(|own| own == host);
    if !is_own && !settings.hosts.iter().any(|listed| listed.eq_ignore_ascii_case(&host)) {
        return Err(format!(
            "its jwks_uri is at {host:?}, which is not the issuer's host; list it in hosts if that is right"
        ));
    }
    // A local issuer in a test may have http; no other may change to it.
    if !is_safe(url) || (is_local(url) && !is_local(&settings.issuer)) {
        return Err(format!("its jwks_uri {url:?} is not an https URL"));
    }
    Ok(url.to_owned())
}

fn host(url: &str) -> Option<String> {
    let uri: Uri = url.parse().ok()?;
    uri.host().map(str::to_ascii_lowercase)
}

fn keys(text: &[u8]) -> Result<Vec<(String, Option<String>)>, String> {
    let set = JwkSet::parse_of_issuer(text).map_err(|error| error.to_string())?;
    let keys: Vec<_> = set
        .keys()
        .iter()
        .map(|identified| (identified.key.to_jwk(), identified.id.clone()))
        .collect();
    if let Some((_, Some(id))) = keys
        .iter()
        .find(|(_, id)| id.as_ref().is_some_and(|id| id.len() > MAX_KEY_ID_BYTES))
    {
        return Err(format!(
            "a \"kid\" of {} bytes; at most {MAX_KEY_ID_BYTES} are accepted",
            id.len()
        ));
    }
    if keys.len() > MAX_ISSUER_KEYS {
        return Err(format!(
            "{} keys; at most {MAX_ISSUER_KEYS} of an issuer are accepted",
            keys.len()
        ));
    }
    Ok(keys)
}

const TIMEOUT: Duration = Duration::from_secs(5);
const MAX_BYTES: u64 = 256 << 10;
/// With 16 keys of 4,096 bits, the record stays well below the 64 KiB of a snapshot's chunk.
const MAX_KEY_ID_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(issuer: &str, hosts: &[&str]) -> IssuerKeysSettings {
        let hosts = serde_json::to_string(hosts).unwrap();
        serde_json::from_str(&format!(r#"{{"issuer": "{issuer}", "hosts": {hosts}}}"#)).unwrap()
    }

    #[test]
    fn metadata_is_at_both_well_known_places() {
        assert_eq!(
            metadata_urls("https://login.example/tenant/v2.0"),
            [
                "https://login.example/tenant/v2.0/.well-known/openid-configuration",
                "https://login.example/.well-known/oauth-authorization-server/tenant/v2.0"
            ]
        );
        assert_eq!(
            metadata_urls("https://login.example/"),
            [
                "https://login.example/.well-known/openid-configuration",
                "https://login.example/.well-known/oauth-authorization-server"
            ]
        );
    }

    #[test]
    fn keys_are_only_at_pinned_hosts() {
        let issuer = "https://login.example";
        let place = |url: &str, hosts: &[&str]| {
            let metadata = format!(r#"{{"issuer": "{issuer}", "jwks_uri": "{url}"}}"#);
            jwks_uri(metadata.as_bytes(), &settings(issuer, hosts))
        };
        place("https://login.example/keys", &[]).unwrap();
        place("https://LOGIN.example:8443/keys", &[]).unwrap();
        place("https://keys.example/keys", &["keys.example"]).unwrap();
        for (url, expected) in [
            ("https://keys.example/keys", "hosts"),
            ("https://login.example.evil.example/keys", "hosts"),
            ("https://login.example@evil.example/keys", "hosts"),
            ("http://login.example/keys", "https"),
            ("http://127.0.0.1/keys", "hosts"),
            ("/keys", "URL"),
            ("", "URL"),
        ] {
            let said = place(url, &[]).unwrap_err();
            assert!(said.contains(expected), "{url}: {said}");
        }
        assert!(
            place("http://127.0.0.1/keys", &["127.0.0.1"]).is_err(),
            "not from https to http"
        );
        let other = br#"{"issuer": "https://login.example/", "jwks_uri": "https://login.example/keys"}"#;
        assert!(jwks_uri(other, &settings(issuer, &[])).unwrap_err().contains("differs"));
    }

    #[test]
    fn a_key_with_a_long_name_is_refused() {
        let set = |id: usize| {
            let id = "i".repeat(id);
            format!(
                r#"{{"keys": [{{"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo", "kid": "{id}"}}]}}"#
            )
        };
        assert_eq!(keys(set(256).as_bytes()).unwrap().len(), 1);
        assert!(keys(set(257).as_bytes()).unwrap_err().contains("257 bytes"));
    }
}
