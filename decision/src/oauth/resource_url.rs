//! The identifier of a protected resource, and where its metadata is (RFC 9728, sections 1.2 and 3).

use crate::request::Request;

/// The identifier of a protected resource, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceUrl {
    identifier: String,
    scheme: &'static str,
    /// Without the scheme's own port.
    authority: String,
    /// The path of its metadata (section 3.1).
    metadata_path: String,
}

impl ResourceUrl {
    /// As configured.
    pub fn identifier(&self) -> &str {
        &self.identifier
    }

    /// Whether the request is for its metadata. Its query does not count.
    pub fn is_asked_for(&self, request: &Request<'_>) -> bool {
        let path = request.path.split(|byte| *byte == b'?').next().unwrap_or_default();
        let is_read = matches!(request.method, b"GET" | b"HEAD" | b"OPTIONS");
        let authority = std::str::from_utf8(request.authority).unwrap_or_default();
        let own_port = if self.scheme == "https" { ":443" } else { ":80" };
        let authority = authority.strip_suffix(own_port).unwrap_or(authority);
        // Envoy may have removed the port (strip_any_host_port).
        let names_it = [self.authority.as_str(), self.host()]
            .iter()
            .any(|name| authority.eq_ignore_ascii_case(name));
        is_read && path == self.metadata_path.as_bytes() && names_it
    }

    /// The first of these names that is a resource identifier.
    pub fn of(audience: &[String]) -> Option<Self> {
        audience.iter().find_map(|name| Self::parse(name))
    }

    /// An `https` URL without query and fragment; `http` only for the machine itself.
    fn parse(identifier: &str) -> Option<Self> {
        let (scheme, own_port, rest) = match identifier.split_once("://")? {
            ("https", rest) => ("https", ":443", rest),
            ("http", rest) => ("http", ":80", rest),
            _ => return None,
        };
        let end = rest.find('/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at_checked(end)?;
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#' | b'@' | b'"' | b'\\');
        if authority.is_empty() || !rest.bytes().all(is_plain) {
            return None;
        }
        let authority = authority
            .strip_suffix(own_port)
            .unwrap_or(authority)
            .to_ascii_lowercase();
        let is_loopback = LOOPBACK.iter().any(|host| {
            let port = authority.strip_prefix(host);
            port.is_some_and(|port| port.is_empty() || port.starts_with(':'))
        });
        if scheme == "http" && !is_loopback {
            return None;
        }
        Some(Self {
            identifier: identifier.to_owned(),
            scheme,
            authority,
            metadata_path: format!("{WELL_KNOWN}{}", if path == "/" { "" } else { path }),
        })
    }

    /// Without its port.
    fn host(&self) -> &str {
        match self.authority.rsplit_once(':') {
            // The colons of an IPv6 address are inside its brackets.
            Some((host, port)) if !port.ends_with(']') => host,
            _ => &self.authority,
        }
    }

    /// The URL of the resource's metadata.
    pub fn metadata_url(&self) -> String {
        format!("{}://{}{}", self.scheme, self.authority, self.metadata_path)
    }
}

/// RFC 9728, section 3.
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// Hosts without TLS: for development only.
const LOOPBACK: [&str; 3] = ["127.0.0.1", "[::1]", "localhost"];
