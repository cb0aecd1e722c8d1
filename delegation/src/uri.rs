//! HTTP URIs, compared as RFC 9449, section 4.3 (check 9), asks: without query and fragment, after the normalization of
//! RFC 3986, sections 6.2.2 and 6.2.3.

/// A normalized HTTP URI without query and fragment. Two of them are equal if every HTTP client and server takes them for
/// the same; dot segments are not resolved, and never equal anything that has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpUri {
    is_tls: bool,
    /// In lower case, with a port unless it is the scheme's own.
    authority: String,
    path: String,
}

impl HttpUri {
    /// Reads an absolute `http` or `https` URI. `None` if it is none, or has user information.
    pub fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at_checked(end)?;
        let path = rest.split(['?', '#']).next().unwrap_or_default();
        Self::new(scheme, authority, path)
    }

    /// The URI of these parts; `path` without query.
    pub fn new(scheme: &str, authority: &str, path: &str) -> Option<Self> {
        let is_tls = match scheme {
            _ if scheme.eq_ignore_ascii_case("https") => true,
            _ if scheme.eq_ignore_ascii_case("http") => false,
            _ => return None,
        };
        let own_port = if is_tls { "443" } else { "80" };
        Some(Self {
            is_tls,
            authority: normalized_authority(authority, own_port)?,
            path: normalized_path(path)?,
        })
    }
}

/// The host in lower case, and the port unless it is the scheme's own (RFC 3986, section 3.2). `None` for any other form,
/// such as one with two ports.
fn normalized_authority(authority: &str, own_port: &str) -> Option<String> {
    let authority = authority.to_ascii_lowercase();
    let (host, port) = match authority.rsplit_once(':') {
        // The colons of an IPv6 address are inside its brackets.
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (authority.as_str(), ""),
    };
    let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let is_host = match address {
        Some(address) => address
            .bytes()
            .all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.')),
        None => host
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || HOST_PUNCTUATION.contains(&byte)),
    };
    if !is_host || address.unwrap_or(host).is_empty() || !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let is_own = port.is_empty() || port == own_port;
    Some(if is_own {
        host.to_owned()
    } else {
        format!("{host}:{port}")
    })
}

/// The other characters of a registered name (RFC 3986, section 3.2.2).
const HOST_PUNCTUATION: &[u8] = b"-._~!$&'()*+,;=%";

/// Percent-encoded unreserved characters are decoded, and the other encodings have capital digits.
fn normalized_path(path: &str) -> Option<String> {
    if path.is_empty() {
        return Some("/".to_owned());
    }
    let mut normalized = String::with_capacity(path.len());
    let mut bytes = path.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let digits = [char::from(bytes.next()?), char::from(bytes.next()?)];
            let [high, low] = digits.map(|digit| digit.to_digit(16));
            let decoded = char::from_u32(high? << 4 | low?)?;
            if decoded.is_ascii_alphanumeric() || matches!(decoded, '-' | '.' | '_' | '~') {
                normalized.push(decoded);
            } else {
                normalized.push('%');
                normalized.extend(digits.map(|digit| digit.to_ascii_uppercase()));
            }
        } else if byte.is_ascii_graphic() {
            normalized.push(char::from(byte));
        } else {
            return None;
        }
    }
    normalized.starts_with('/').then_some(normalized)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(text: &str) -> HttpUri {
        HttpUri::parse(text).unwrap_or_else(|| panic!("{text}"))
    }

    #[test]
    fn spellings_of_one_uri_are_equal() {
        let one = uri("https://api.example.com/v1/orders%2Fopen/~a");
        for same in [
            "HTTPS://API.Example.com:443/v1/orders%2fopen/%7Ea",
            "https://api.example.com:/v1/orders%2Fopen/~a?page=2",
            "https://api.example.com/v1/%6frders%2Fopen/~a#top",
        ] {
            assert_eq!(uri(same), one, "{same}");
        }
        assert_eq!(uri("http://a.example"), uri("http://a.example:80/?x"));
        assert_eq!(uri("https://[2001:DB8::1]/"), uri("https://[2001:db8::1]:443"));
    }

    #[test]
    fn other_uris_are_not_equal() {
        let one = uri("https://api.example.com/v1/orders");
        for other in [
            "http://api.example.com/v1/orders",
            "https://api.example.com:8443/v1/orders",
            "https://api.example.com:80/v1/orders",
            "https://api.example.com./v1/orders",
            "https://api.example.com/v1/Orders",
            "https://api.example.com/v1/orders/",
            "https://api.example.com//v1/orders",
            "https://api.example.com/v1/x/../orders",
            "https://api.example.com/v1%2Forders",
            "https://api.example.com/v1/orders;a",
            "https://api.example.com",
        ] {
            assert_ne!(uri(other), one, "{other}");
        }
    }

    #[test]
    fn what_is_no_http_uri_is_refused() {
        for text in [
            "",
            "/v1/orders",
            "api.example.com/v1",
            "https:/api.example.com/",
            "https:///v1",
            "ftp://api.example.com/",
            "https://user@api.example.com/",
            "https://api.example.com\\@evil.example/",
            "https://api.example.com/a b",
            "https://api.example.com/a%2",
            "https://api.example.com/a%zz",
            "https://api.example.com/\u{e9}",
            "https://b\u{fc}cher.example/",
            "https://api.example.com\r\n/",
            "https://api.example.com::443/",
            "https://api.example.com::/",
            "https://api.example.com:443:443/",
            "https://api.example.com:https/",
            "https://2001:db8::1/",
            "https://[2001:db8::1/",
            "https://[]/",
            "https://:443/",
        ] {
            assert_eq!(HttpUri::parse(text), None, "{text}");
        }
    }
}
