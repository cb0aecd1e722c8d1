//! An answer on its way to the client, for a limited time.

use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body_util::BodyExt as _;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Sleep, sleep};

use crate::activity::Running;
use crate::outbound::{Body, BodyError};

/// The answer, which keeps its client's place until it ends, and is cut off after `limit`.
pub(crate) fn limited<P: Unpin + Send + Sync + 'static>(
    response: Response<Body>,
    limit: Duration,
    place: P,
) -> Response<Body> {
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

/// The answer, which keeps its connection in use until it ends.
pub(crate) fn holding(response: Response<Body>, running: Running) -> Response<Body> {
    response.map(|inner| {
        inner
            .map_frame(move |frame| {
                let _in_use = &running;
                frame
            })
            .boxed()
    })
}

struct Limited<P> {
    inner: Body,
    end: Pin<Box<Sleep>>,
    is_cut_off: bool,
    _place: P,
}

impl<P: Unpin> HttpBody for Limited<P> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.is_cut_off {
            return Poll::Ready(None);
        }
        if self.end.as_mut().poll(context).is_ready() {
            self.is_cut_off = true;
            // Otherwise it would look complete.
            return Poll::Ready(Some(Err(BodyError::TooLong)));
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
