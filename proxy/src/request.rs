//! A client's request: which service it is for, and its headers as they go on.

use std::sync::Arc;

use credence_agent::service::Origin;
use http::header::{CONNECTION, HOST, HeaderName, ORIGIN, REFERER, TE, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, Version};

use crate::clients::Client;
use crate::refusal::Refusal;
use crate::upstream::Upstream;

/// A request that may go on to a service.
#[derive(Debug)]
pub(crate) struct Addressed {
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
}

/// Checks a request of this client, which arrived at this port, or at a socket.
pub(crate) fn address(
    parts: Parts,
    client: &Client,
    services: &[Arc<Upstream>],
    port: Option<u16>,
) -> Result<Addressed, Refusal> {
    if parts.method == Method::CONNECT {
        return Err(Refusal::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "tunnel",
            "Nothing can be proven inside a tunnel. Call an https service through a client with `service` (reverse proxy).",
        ));
    }
    if parts.headers.contains_key(UPGRADE) || parts.extensions.get::<hyper::ext::Protocol>().is_some() {
        let title = "Upgrades, such as WebSocket, do not go through this proxy.";
        return Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, "upgrade", title));
    }
    check_web_page(client, &parts.headers)?;
    let upstream = Arc::clone(upstream(&parts, client, services, port)?);
    let target = parts.uri.path_and_query().map_or("", |target| target.as_str());
    if !target.starts_with('/') {
        return Err(malformed("The path does not start with a slash."));
    }
    Ok(Addressed {
        upstream,
        target: target.to_owned(),
        method: parts.method,
        headers: without_hop_by_hop(parts.headers),
    })
}

/// The service that a request is for.
fn upstream<'u>(
    parts: &Parts,
    client: &'u Client,
    services: &'u [Arc<Upstream>],
    port: Option<u16>,
) -> Result<&'u Arc<Upstream>, Refusal> {
    let host = host(parts)?;
    let is_absolute = parts.version != Version::HTTP_2 && parts.uri.scheme().is_some();
    let Some(service) = &client.service else {
        let named = is_absolute.then(|| origin_of(&parts.uri)).flatten();
        let named = named.ok_or_else(|| {
            let title = "A forward proxy needs the whole URL. Set HTTP_PROXY, or give the client a `service`.";
            Refusal::new(StatusCode::BAD_REQUEST, "no_service", title)
        })?;
        let known = services.iter().find(|service| service.origin.is_same(&named));
        return known.ok_or_else(|| {
            let title = "This service is not in `services`. Nothing was sent.";
            Refusal::with_detail(StatusCode::FORBIDDEN, "service_unknown", title, Some(named.as_str()))
        });
    };
    let is_own = match is_absolute {
        true => origin_of(&parts.uri).is_some_and(|named| service.origin.is_same(&named)),
        false => is_local(host, port) || is_host_of(host, &service.origin),
    };
    match is_own {
        true => Ok(service),
        // A web page whose name leads to this machine (DNS rebinding) ends here.
        false => Err(Refusal::new(
            StatusCode::MISDIRECTED_REQUEST,
            "host_unknown",
            "The request names another host than this proxy and its service.",
        )),
    }
}

/// Host and port as the client has written them.
fn host(parts: &Parts) -> Result<&str, Refusal> {
    if let Some(authority) = parts.uri.authority() {
        return Ok(authority.as_str());
    }
    let mut hosts = parts.headers.get_all(HOST).iter();
    match (hosts.next().map(HeaderValue::to_str), hosts.next()) {
        (Some(Ok(host)), None) => Ok(host),
        (None, None) if parts.version == Version::HTTP_10 => Ok(""),
        _ => Err(malformed("The request has no host, or several.")),
    }
}

/// Whether a host is this proxy by its address: at this port, or at any for a socket.
fn is_local(host: &str, port: Option<u16>) -> bool {
    let (name, written) = match host.rsplit_once(':') {
        Some((name, written)) if !written.ends_with(']') => (name, written.parse().ok()),
        _ => (host, Some(80)),
    };
    let is_name = matches!(name, "127.0.0.1" | "[::1]") || name.eq_ignore_ascii_case("localhost");
    is_name && port.is_none_or(|port| written == Some(port))
}

fn is_host_of(host: &str, origin: &Origin) -> bool {
    let scheme = origin.as_str().split("://").next().unwrap_or_default();
    Origin::of_url(&format!("{scheme}://{host}")).is_some_and(|named| named.is_same(origin))
}

fn origin_of(uri: &Uri) -> Option<Origin> {
    // With user information, it is no origin.
    Origin::of_url(&format!("{}://{}", uri.scheme_str()?, uri.authority()?))
}

/// A browser on this machine would send the requests of any web page. It says so in these headers (Fetch Metadata).
fn check_web_page(client: &Client, headers: &HeaderMap) -> Result<(), Refusal> {
    let origin = headers.get(ORIGIN).map(HeaderValue::as_bytes);
    let is_listed = |origin: &[u8]| client.web_origins.iter().any(|listed| listed.as_bytes() == origin);
    let site = headers.get(FETCH_SITE).map(HeaderValue::as_bytes);
    // Of an image on a page, a browser says no more than where the page is.
    let referer = headers.get(REFERER).map(HeaderValue::to_str);
    let page = referer.map(|page| page.ok().and_then(Origin::of_url));
    let is_listed_page = page.is_none_or(|page| page.is_some_and(|page| is_listed(page.as_str().as_bytes())));
    let is_allowed = is_listed_page
        && match (origin, site) {
            (Some(origin), _) => is_listed(origin),
            (None, Some(site)) => site == b"none" || site == b"same-origin",
            (None, None) => true,
        };
    match is_allowed {
        true => Ok(()),
        false => Err(Refusal::new(
            StatusCode::FORBIDDEN,
            "web_page",
            "Web pages may not use this proxy, unless their origin is in `web_origins`.",
        )),
    }
}

/// Removes what concerns only this connection (RFC 9110, section 7.6.1), and what the proxy writes anew.
pub(crate) fn without_hop_by_hop(mut headers: HeaderMap) -> HeaderMap {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    // gRPC needs it.
    let takes_trailers = headers
        .get(TE)
        .is_some_and(|te| te.as_bytes().eq_ignore_ascii_case(b"trailers"));
    for name in named.iter().map(HeaderName::as_str).chain(HOP_BY_HOP) {
        headers.remove(name);
    }
    if takes_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    headers
}

fn malformed(title: &str) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, "request_malformed", title)
}

const HOP_BY_HOP: [&str; 13] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
const FETCH_SITE: &str = "sec-fetch-site";
