//! Reads and drops the rest of a request body when the answer was sent before the body had arrived.
//!
//! A request may be refused for its credential, its rate or its length while its body is still on its way. A connection
//! that is closed then is reset by what still arrives, and a client that is busy sending sees the reset instead of the
//! answer (RFC 9112 section 9.6). Here the connection stays open, and of use for the next request, unless the body goes on
//! beyond [`MAX_BYTES`] or the request timeout.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::http::header::{CONNECTION, EXPECT};
use axum::http::{HeaderValue, request::Parts};
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::Service as _;
use hyper::{Request, Response};
use hyper_util::service::TowerToHyperService;
use tokio::sync::mpsc;

use super::api::Arrived;

/// A request's body, which is still there when its reader has dropped it.
#[derive(Debug)]
struct Kept {
    body: Arc<Mutex<Incoming>>,
    /// Noted at its end.
    arrived: Arrived,
}

/// Where the unread bodies of one connection go.
#[derive(Debug, Clone)]
pub(crate) struct Leftovers(mpsc::Sender<Incoming>);

/// The leftovers of a connection, and what has to run beside the connection, on the same task: it reads a body only once
/// the head of the answer is on its way, so that hyper does not ask for the body first (RFC 9110 section 10.1.1).
pub(crate) fn leftovers(patience: Duration) -> (Leftovers, impl Future<Output = ()> + Send) {
    // A connection has one request at a time: the next begins behind the end of the last one's body.
    let (sender, bodies) = mpsc::channel(1);
    (Leftovers(sender), drop_all(bodies, patience))
}

// === impl Kept ===

impl Kept {
    fn lock(&self) -> MutexGuard<'_, Incoming> {
        self.body.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_end(&self) {
        if self.is_end_stream() {
            self.arrived.note();
        }
    }
}

impl Body for Kept {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let frame = Pin::new(&mut *self.lock()).poll_frame(context);
        match &frame {
            Poll::Ready(None) => self.arrived.note(),
            Poll::Ready(Some(Ok(_))) => self.note_end(),
            Poll::Ready(Some(Err(_))) | Poll::Pending => {}
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.lock().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.lock().size_hint()
    }
}

// === impl Leftovers ===

impl Leftovers {
    /// Has the request answered. What is left of its body then is dropped.
    pub(crate) async fn answer(
        self,
        mut parts: Parts,
        body: Incoming,
        routes: TowerToHyperService<Router>,
    ) -> Result<Response<axum::body::Body>, Infallible> {
        let expects_word = parts.headers.contains_key(EXPECT);
        let arrived = Arrived::default();
        parts.extensions.insert(arrived.clone());
        let body = Arc::new(Mutex::new(body));
        let kept = Kept {
            body: Arc::clone(&body),
            arrived: arrived.clone(),
        };
        kept.note_end();
        let mut answer = routes.call(Request::from_parts(parts, kept)).await?;
        // A body that is still being read is of no use; it is closed as hyper does it.
        if !arrived.is_noted()
            && let Some(body) = Arc::into_inner(body)
        {
            let body = body.into_inner().unwrap_or_else(PoisonError::into_inner);
            // A client that was told not to send the body must not go on with another request, where the body belongs.
            if expects_word || body.size_hint().lower() > MAX_BYTES {
                answer
                    .headers_mut()
                    .insert(CONNECTION, HeaderValue::from_static("close"));
            }
            // There is room, as said above; without, the connection would be closed.
            let _ = self.0.try_send(body);
        }
        Ok(answer)
    }
}

/// Ends with the connection.
async fn drop_all(mut bodies: mpsc::Receiver<Incoming>, patience: Duration) {
    while let Some(body) = bodies.recv().await {
        // What is beyond the limits is dropped unread, upon which hyper closes the connection.
        let _ = tokio::time::timeout(patience, drop_frames(body)).await;
    }
}

async fn drop_frames(mut body: Incoming) {
    let mut left = MAX_BYTES;
    while let Some(Ok(frame)) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
        let Some(rest) = left.checked_sub(bytes) else {
            return;
        };
        left = rest;
    }
}

/// Bytes of a body that are read and dropped: four times the largest body that any request may have (that of a batch
/// of status checks), so that a client that exceeds a limit by less reads the answer. It costs no memory.
const MAX_BYTES: u64 = 4 << 20;
