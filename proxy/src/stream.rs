//! An answer on its way to the client, for a limited time.

use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body_util::BodyExt as _;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Sleep, sleep};

use crate::outbound::Body;

/// The answer, which keeps its client's place until it ends, and is cut off after `limit`.
pub(crate) fn limited(response: Response<Body>, limit: Duration, place: OwnedSemaphorePermit) -> Response<Body> {
    response.map(|inner| {
        let body = Limited {
            inner,
            end: Box::pin(sleep(limit)),
            is_cut_off: false,
            _place: place,
        };
        body.boxed()
    })
}

struct Limited {
    inner: Body,
    end: Pin<Box<Sleep>>,
    is_cut_off: bool,
    _place: OwnedSemaphorePermit,
}

impl HttpBody for Limited {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if self.is_cut_off || self.end.as_mut().poll(context).is_ready() {
            self.is_cut_off = true;
            return Poll::Ready(None);
        }
        pin!(&mut self.inner).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
