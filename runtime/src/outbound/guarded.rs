//! Reads documents at URLs that another party chose, such as an issuer or a client: over https, from servers on the internet
//! or in listed networks, without redirects and proxies, and only small ones.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use ureq::Agent;
use ureq::unversioned::transport::DefaultConnector;

use super::addresses::{AllowedAddresses, Network};
use super::{OutboundError, config, is_local, is_safe};

/// Which servers a [`GuardedClient`] asks, and its limits.
#[derive(Debug, Clone)]
pub struct Guard {
    /// A PEM file with the authorities for https servers. Default: the system's.
    pub ca: Option<PathBuf>,
    /// Networks whose servers may be asked, besides those at public addresses.
    pub networks: Vec<Network>,
    /// Whether http is allowed on this machine. Its address must be in `networks` too.
    pub local_http: bool,
    /// How long one request may take, with its answer.
    pub timeout: Duration,
    /// An answer of this size is too large.
    pub max_bytes: u64,
}

/// Reads documents. It keeps connections open for further requests.
#[derive(Debug)]
pub struct GuardedClient {
    guard: Guard,
    /// Made for the first URL that needs it: without https, no authorities are needed.
    https: OnceLock<Agent>,
    http: OnceLock<Agent>,
}

/// The contents of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    pub bytes: Vec<u8>,
    /// `Cache-Control: max-age` (RFC 9111, section 5.2.2.1).
    pub max_age: Option<Duration>,
}

/// Why a document could not be read.
#[derive(Debug, thiserror::Error)]
pub enum GuardedError {
    #[error(transparent)]
    Client(#[from] OutboundError),
    #[error("{url:?} is not an https URL")]
    NotHttps { url: String },
    #[error("{url}: {error}")]
    Request { url: String, error: Box<ureq::Error> },
    #[error("{url}: the answer is {status}; 200 was expected, and redirects are not followed")]
    Status { url: String, status: u16 },
}

// === impl GuardedClient ===

impl GuardedClient {
    pub fn new(guard: Guard) -> Self {
        Self {
            guard,
            https: OnceLock::new(),
            http: OnceLock::new(),
        }
    }

    /// Asks for the JSON document at a URL. Blocks for up to the guard's timeout.
    pub fn get(&self, url: &str) -> Result<Document, GuardedError> {
        let failed = |error| GuardedError::Request {
            url: url.to_owned(),
            error: Box::new(error),
        };
        let mut response = self
            .agent(url)?
            .get(url)
            .header("accept", "application/json")
            .call()
            .map_err(failed)?;
        let status = response.status().as_u16();
        if status != 200 {
            let url = url.to_owned();
            return Err(GuardedError::Status { url, status });
        }
        let header = response.headers().get("cache-control");
        let max_age = header.and_then(|value| value.to_str().ok()).and_then(max_age);
        let body = response.body_mut().with_config().limit(self.guard.max_bytes);
        let bytes = body.read_to_vec().map_err(failed)?;
        Ok(Document { bytes, max_age })
    }

    fn agent(&self, url: &str) -> Result<&Agent, GuardedError> {
        let place = match is_local(url) {
            true if self.guard.local_http => &self.http,
            false if is_safe(url) => &self.https,
            _ => return Err(GuardedError::NotHttps { url: url.to_owned() }),
        };
        if let Some(agent) = place.get() {
            return Ok(agent);
        }
        // A proxy would resolve names itself.
        let config = config(url, self.guard.ca.as_deref(), self.guard.timeout)?.proxy(None);
        let resolver = AllowedAddresses {
            networks: self.guard.networks.clone(),
            inner: Default::default(),
        };
        let agent = Agent::with_parts(config.build(), DefaultConnector::new(), resolver);
        Ok(place.get_or_init(|| agent))
    }
}

/// `max-age` of a `Cache-Control` header. `no-cache` and `no-store` are as good as an age of 0.
pub fn max_age(header: &str) -> Option<Duration> {
    header.split(',').map(str::trim).find_map(|directive| match directive {
        "no-cache" | "no-store" => Some(Duration::ZERO),
        _ => {
            let (name, value) = directive.split_once('=')?;
            let seconds = value.trim_matches('"').parse().ok()?;
            name.eq_ignore_ascii_case("max-age")
                .then(|| Duration::from_secs(seconds))
        }
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, TcpListener};
    use std::thread;

    use super::*;

    fn guard(local_http: bool, networks: &[&str]) -> Guard {
        Guard {
            ca: None,
            networks: networks.iter().filter_map(|text| Network::parse(text)).collect(),
            local_http,
            timeout: Duration::from_secs(5),
            max_bytes: 8,
        }
    }

    /// The URL of a server that gives this answer to its first client.
    fn server(answer: &'static str) -> String {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("http://{}/document", listener.local_addr().unwrap());
        thread::spawn(move || {
            let (mut connection, _) = listener.accept().unwrap();
            let _ = connection.read(&mut [0; 1024]).unwrap();
            connection.write_all(answer.as_bytes()).unwrap();
        });
        url
    }

    fn get(answer: &'static str) -> Result<Document, GuardedError> {
        GuardedClient::new(guard(true, &["127.0.0.0/8"])).get(&server(answer))
    }

    #[test]
    fn a_document_comes_with_its_age() {
        let document = get("HTTP/1.1 200 OK\r\ncache-control: max-age=60\r\ncontent-length: 7\r\n\r\n1234567").unwrap();
        let expected = Document {
            bytes: b"1234567".to_vec(),
            max_age: Some(Duration::from_secs(60)),
        };
        assert_eq!(document, expected);
    }

    #[test]
    fn large_documents_and_redirects_are_errors() {
        get("HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n12345678").unwrap_err();
        let redirected = get("HTTP/1.1 302 Found\r\nlocation: /other\r\ncontent-length: 0\r\n\r\n").unwrap_err();
        assert!(redirected.to_string().contains("the answer is 302"), "{redirected}");
    }

    #[test]
    fn http_is_for_this_machine_only_and_only_if_that_is_allowed() {
        for (local_http, url) in [
            (false, "http://127.0.0.1/document"),
            (true, "http://example.com/document"),
            (true, "ftp://127.0.0.1/document"),
            (true, "127.0.0.1"),
        ] {
            let refused = GuardedClient::new(guard(local_http, &["0.0.0.0/0"]))
                .get(url)
                .unwrap_err();
            assert!(matches!(refused, GuardedError::NotHttps { .. }), "{url}: {refused}");
        }
    }

    #[test]
    fn this_machine_must_be_in_a_listed_network() {
        let refused = GuardedClient::new(guard(true, &["10.0.0.0/8"])).get("http://127.0.0.1:9/document");
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("127.0.0.1, which is not public"), "{refused}");
    }

    #[test]
    fn cache_control_says_how_long() {
        for (header, expected) in [
            ("public, max-age=3600", Some(3_600)),
            ("max-age=\"60\"", Some(60)),
            ("Max-Age=5", Some(5)),
            ("no-cache", Some(0)),
            ("private, no-store", Some(0)),
            ("public", None),
            ("max-age=soon", None),
        ] {
            assert_eq!(max_age(header), expected.map(Duration::from_secs), "{header}");
        }
    }
}
