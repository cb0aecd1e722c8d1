//! A response body that can be ended from outside, with a gRPC status.

use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body as HttpBody, Bytes, Frame};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::HeaderMap;

/// Passes the inner body on until `end` resolves; then ends with that status.
pub(crate) struct Supervised {
    pub(crate) body: Body,
    /// Absent once the body has ended.
    pub(crate) end: Option<Pin<Box<dyn Future<Output = Status> + Send>>>,
}

// === impl Supervised ===

impl HttpBody for Supervised {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Some(end) = &mut self.end else {
            return Poll::Ready(None);
        };
        // Checked first, so that a busy stream ends too.
        if let Poll::Ready(status) = end.as_mut().poll(context) {
            self.end = None;
            // The task that feeds the body notices that its reader has gone.
            self.body = Body::empty();
            let mut trailers = HeaderMap::new();
            status.add_header(&mut trailers)?;
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.end.is_none() || self.body.is_end_stream()
    }
}
