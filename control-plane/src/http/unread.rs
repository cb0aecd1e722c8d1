//! Bodies that were answered before they had been read whole: what still comes of them is read and dropped.
//!
//! A request may be refused for its credential, its rate or its length while its body is still on its way. A connection
//! that is closed then is reset by what still arrives, and a client that is busy sending sees the reset instead of the
//! answer (RFC 9112 section 9.6). Here the connection stays open, and of use for the next request, unless the body goes on
//! beyond [`MAX_BYTES`] or the request timeout.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::header::{CONNECTION, EXPECT};
use axum::http::{HeaderMap, HeaderValue};
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::sync::{mpsc, oneshot};

use super::api::Arrived;

/// A request's body that is handed back if it is dropped before its end.
#[derive(Debug)]
pub(crate) struct Returned {
    /// None once it has ended.
    body: Option<Incoming>,
    owner: Option<oneshot::Sender<Incoming>>,
    /// Noted at its end.
    pub(super) arrived: Arrived,
}

/// Where a [`Returned`] body comes back to.
#[derive(Debug)]
pub(crate) struct Unread {
    body: oneshot::Receiver<Incoming>,
    /// The client has asked to be told whether to send the body at all.
    expects_word: bool,
}

/// Where the bodies of one connection go that nobody reads any more.
#[derive(Debug, Clone)]
pub(crate) struct Leftovers(mpsc::Sender<Incoming>);

/// The leftovers of a connection, and what has to run beside the connection, on the same task: it reads a body only once
/// the head of the answer is on its way, so that hyper does not ask for the body first (RFC 9110 section 10.1.1).
pub(crate) fn leftovers(patience: Duration) -> (Leftovers, impl Future<Output = ()> + Send) {
    // A connection has one request at a time: the next begins behind the end of the last one's body.
    let (sender, bodies) = mpsc::channel(1);
    (Leftovers(sender), drop_all(bodies, patience))
}

// === impl Returned ===

impl Returned {
    pub(crate) fn new(body: Incoming, headers: &HeaderMap) -> (Self, Unread) {
        let (owner, returned) = oneshot::channel();
        let unread = Unread {
            body: returned,
            expects_word: headers.contains_key(EXPECT),
        };
        let body = Self {
            body: Some(body),
            owner: Some(owner),
            arrived: Arrived::default(),
        };
        body.note_end();
        (body, unread)
    }

    fn note_end(&self) {
        if self.is_end_stream() {
            self.arrived.note();
        }
    }
}

impl Body for Returned {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        let frame = Pin::new(body).poll_frame(context);
        if matches!(frame, Poll::Ready(None | Some(Err(_)))) {
            self.body = None;
        }
        if matches!(frame, Poll::Ready(None | Some(Ok(_)))) {
            self.note_end();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let ended = || SizeHint::with_exact(0);
        self.body.as_ref().map_or_else(ended, Body::size_hint)
    }
}

impl Drop for Returned {
    fn drop(&mut self) {
        if let (Some(body), Some(owner)) = (self.body.take(), self.owner.take())
            && !body.is_end_stream()
        {
            // Of no use to whoever has answered already; then it is closed as hyper does it.
            let _ = owner.send(body);
        }
    }
}

// === impl Leftovers ===

impl Leftovers {
    /// To be called once there is an answer, whose headers these are: what is left of the body is dropped.
    pub(crate) fn answered(&self, mut unread: Unread, headers: &mut HeaderMap) {
        let Ok(body) = unread.body.try_recv() else {
            return;
        };
        // One who has been told not to send the body must not go on with another request, where the body belongs.
        if unread.expects_word || body.size_hint().lower() > MAX_BYTES {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        // There is room, as said above; without, the connection would be closed.
        let _ = self.0.try_send(body);
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
/// of status checks), so that whoever errs by less learns of it. It costs no memory.
const MAX_BYTES: u64 = 4 << 20;
