//! Reads and drops the rest of a request body if the answer was sent before the whole body had arrived.
//!
//! A request may be refused for its credential, its rate or its length while its body is still arriving. If the
//! connection were closed then, the remaining bytes would reset it, and a client that is still sending would see the
//! reset instead of the answer (RFC 9112 section 9.6). Here the connection stays open and usable for the next request,
//! unless the body exceeds [`MAX_BYTES`] or the request timeout.

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

use crate::arrived::Arrived;

/// A request's body. It is kept when its reader drops it.
#[derive(Debug)]
struct Kept {
    body: Arc<Mutex<Incoming>>,
    /// Notes when the whole body has arrived.
    arrived: Arrived,
}

/// Receives the unread bodies of one connection.
#[derive(Debug, Clone)]
pub(crate) struct Leftovers(mpsc::Sender<Incoming>);

/// The leftovers of a connection, and a future that must run on the connection's task. It reads a body only after the
/// head of the answer was sent, so that hyper does not ask for the body first (RFC 9110 section 10.1.1).
pub(crate) fn leftovers(timeout: Duration) -> (Leftovers, impl Future<Output = ()> + Send) {
    // A connection has one request at a time: the next begins after the last one's body.
    let (sender, bodies) = mpsc::channel(1);
    (Leftovers(sender), drop_all(bodies, timeout))
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
    /// Handles the request. The rest of its body is dropped afterwards.
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
        // A body that is still being read cannot be drained; hyper closes the connection.
        if !arrived.is_noted()
            && let Some(body) = Arc::into_inner(body)
        {
            let body = body.into_inner().unwrap_or_else(PoisonError::into_inner);
            // A client that was told not to send the body must not send another request in its place.
            if expects_word || body.size_hint().lower() > MAX_BYTES {
                answer
                    .headers_mut()
                    .insert(CONNECTION, HeaderValue::from_static("close"));
            }
            // There is room, as explained above. Without room, the connection would be closed.
            let _ = self.0.try_send(body);
        }
        Ok(answer)
    }
}

/// Ends with the connection.
async fn drop_all(mut bodies: mpsc::Receiver<Incoming>, timeout: Duration) {
    while let Some(body) = bodies.recv().await {
        // If the body exceeds the limits, it is dropped unread, and hyper closes the connection.
        let _ = tokio::time::timeout(timeout, drop_frames(body)).await;
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

/// The number of bytes of a body that are read and dropped: four times the largest body of any request (a batch of
/// status checks). A client that exceeds a limit by less can read the answer. This needs no memory.
const MAX_BYTES: u64 = 4 << 20;
