//! What happens to each request before its handler: its client's address is found, and its rate limited.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use credence_runtime::client_limits::Network as Client;
use credence_runtime::metrics::count;
use credence_runtime::outbound::Network;
use credence_server::Peer;

use crate::app::App;

/// Limits, ends and counts a request.
pub(crate) async fn receive(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let matched = request.extensions().get::<MatchedPath>();
    let route = matched.map_or_else(|| "none".to_owned(), |path| path.as_str().to_owned());
    let direct = request.extensions().get::<Peer>().map(|peer| peer.address.ip());
    let address = direct.map(|peer| client(peer, request.headers(), &app.trusted_proxies));
    if let (Some(peer), Some(address)) = (request.extensions_mut().get_mut::<Peer>(), address) {
        peer.address.set_ip(address);
    }
    let allowed = address.map_or(Ok(()), |address| app.rates.take(&Client::of(address), Instant::now()));
    let proxy = request
        .extensions()
        .get::<Peer>()
        .filter(|_| address != direct)
        .cloned();
    let response = match allowed {
        Ok(()) => {
            let _busy = proxy.filter(|proxy| proxy.accept(None).is_ok()).map(Busy);
            let answered = tokio::time::timeout(REQUEST_TIMEOUT, next.run(request)).await;
            answered.unwrap_or_else(|_| (StatusCode::SERVICE_UNAVAILABLE, "This took too long.\n").into_response())
        }
        Err(wait) => {
            app.metrics.rate_limited.inc();
            let seconds = wait.as_secs().saturating_add(1).to_string();
            let text = "Too many requests come from this network. Try again in some seconds.\n";
            (StatusCode::TOO_MANY_REQUESTS, [(header::RETRY_AFTER, seconds)], text).into_response()
        }
    };
    let status = response.status();
    count(&app.metrics.responses, [("route", &route), ("status", status.as_str())]);
    response
}

/// A proxy's connection with a request, which is not closed for another one: it has those of many. It ends with the
/// request, also if that is given up.
struct Busy(Peer);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// The client's address: the last one in `X-Forwarded-For` that is not a trusted proxy's, if one sent the request.
fn client(peer: IpAddr, headers: &HeaderMap, trusted: &[Network]) -> IpAddr {
    let is_trusted = |address: IpAddr| trusted.iter().any(|network| network.has(address));
    let lines = headers.get_all("x-forwarded-for").iter().rev();
    let mut hops = lines.flat_map(|line| line.to_str().unwrap_or_default().rsplit(','));
    let mut nearest = peer.to_canonical();
    while is_trusted(nearest) {
        // Some proxies add the port. What is no address was not written by a proxy.
        let hop = hops.next().map(str::trim);
        let address = hop.and_then(|hop| {
            hop.parse()
                .or_else(|_| hop.parse().map(|with: SocketAddr| with.ip()))
                .ok()
        });
        let Some(address) = address else { break };
        nearest = address.to_canonical();
    }
    nearest
}

/// A withdrawal waits for filters.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_is_the_last_address_that_is_no_trusted_proxys() {
        let trusted = ["10.0.0.0/8", "fd00::/8"].map(|text| Network::parse(text).unwrap());
        for (peer, lines, expected) in [
            ("192.0.2.1", &["198.51.100.7"][..], "192.0.2.1"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.7"], "198.51.100.7"),
            ("::ffff:10.0.0.1", &["198.51.100.7"], "198.51.100.7"),
            // What the client wrote itself comes first.
            ("10.0.0.1", &["203.0.113.9, 198.51.100.7, 10.0.0.2"], "198.51.100.7"),
            ("10.0.0.1", &["203.0.113.9", "198.51.100.7,10.0.0.2"], "198.51.100.7"),
            ("10.0.0.1", &["198.51.100.7:4711"], "198.51.100.7"),
            ("fd00::1", &["[2001:db8::7]:80"], "2001:db8::7"),
            ("10.0.0.1", &["203.0.113.9, unknown"], "10.0.0.1"),
            ("10.0.0.1", &["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append("x-forwarded-for", line.parse().unwrap());
            }
            let found = client(peer.parse().unwrap(), &headers, &trusted);
            assert_eq!(found, expected.parse::<IpAddr>().unwrap(), "{peer} {lines:?}");
        }
    }
}
