//! Large answers: each holds its bytes of the memory for answers until it is sent, and has a time limit.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _, to_bytes};
use axum::response::{IntoResponse as _, Response};
use credence_runtime::client_limits::{Client, Place};
use credence_server::Peer;
use tokio::sync::oneshot;

use super::api::{Api, UNIT_BYTES};
use super::problem::{Problem, RETRY_SOON};

/// The bytes of an answer. They hold their place until the connection has written them all, or ends.
struct Held {
    bytes: Bytes,
    _place: Place,
    _sending: oneshot::Sender<Infallible>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Returns the answer if there is memory for it. Streams are not large answers: their number limits their memory.
pub(super) async fn limit(api: &Api, peer: &Peer, client: &Client, answer: Response) -> Response {
    let size = answer.body().size_hint().exact().unwrap_or_default();
    if size <= SMALL_BYTES {
        return answer;
    }
    let units = usize::try_from(size).unwrap_or(usize::MAX).div_ceil(UNIT_BYTES);
    let place = match api.answers.take_many(client, units) {
        Ok(place) => place,
        Err(refused) => return Problem::unavailable(refused.to_string(), RETRY_SOON).into_response(),
    };
    let (head, body) = answer.into_parts();
    // It is already in memory in one piece: nothing is copied, and nothing fails.
    let bytes = to_bytes(body, usize::MAX).await.unwrap_or_default();
    let longest = api.timeouts.send + Duration::from_millis(size / BYTES_PER_MS);
    Response::from_parts(head, Body::from(hold(bytes, place, peer.clone(), longest)))
}

/// The bytes, which hold the place until they are sent. If that takes longer than `longest`, the connection is closed.
fn hold(bytes: Bytes, place: Place, peer: Peer, longest: Duration) -> Bytes {
    let (sending, sent) = oneshot::channel();
    tokio::spawn(async move {
        if tokio::time::timeout(longest, sent).await.is_err() {
            peer.close();
        }
    });
    Bytes::from_owner(Held {
        bytes,
        _place: place,
        _sending: sending,
    })
}

/// Smaller answers, such as probes and metrics, are limited by the number of connections, and sent even if the memory
/// is full.
const SMALL_BYTES: u64 = 64 << 10;
/// The slowest rate at which a client may read a large answer, after the time that it may read nothing: 256 KiB/s.
const BYTES_PER_MS: u64 = 256;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use credence_runtime::client_limits::{Bounds, Network, Places, ShareMetrics, SharedLimit};
    use credence_server::{Connection, Connections};
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::settings::RateSettings;

    const LONGEST: Duration = Duration::from_secs(10);

    fn places(limit: SharedLimit) -> Places {
        let bounds = Bounds::new(4, RateSettings::default().shares());
        Places::new(limit, bounds, &ShareMetrics::new(&mut Registry::default()))
    }

    /// An answer that is being sent, and its connection. There is no memory for another one.
    async fn sending(answers: &Places) -> (Bytes, Arc<Connection>) {
        let address = [192, 0, 2, 1].into();
        let connections = Connections::new(places(SharedLimit::HttpConnections));
        let connection = connections.admit(Network::of(address)).await.unwrap();
        let client = Client::new(None, Some(address));
        let place = answers.take(&client).unwrap();
        let peer = Peer::new((address, 1).into(), &connection);
        let bytes = hold(Bytes::from_static(b"large"), place, peer, LONGEST);
        answers.try_take(&client, 1).unwrap_err();
        (bytes, connection)
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_holds_its_place_until_the_last_of_it_is_sent_and_its_connection_stays() {
        let answers = places(SharedLimit::Answers);
        let (mut bytes, connection) = sending(&answers).await;
        let rest = bytes.split_off(2);
        drop(bytes);
        let client = Client::new(None, Some([192, 0, 2, 1].into()));
        answers.try_take(&client, 1).unwrap_err();
        drop(rest);
        answers.take(&client).unwrap();
        tokio::time::sleep(2 * LONGEST).await;
        assert!(!connection.is_closing());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_too_long_for_an_answer_loses_its_connection() {
        let (_bytes, connection) = sending(&places(SharedLimit::Answers)).await;
        tokio::time::sleep(LONGEST - Duration::from_millis(1)).await;
        assert!(!connection.is_closing());
        tokio::time::sleep(Duration::from_millis(2)).await;
        assert!(connection.is_closing());
    }
}
