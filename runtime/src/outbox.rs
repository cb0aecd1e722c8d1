//! The sending half of a gRPC stream: a bounded channel whose writer cannot be held up for ever, and whose last word
//! (a status) gets out even when the channel is full.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_stream::Stream;
use tonic::Status;

use crate::lifecycle::PhaseWatch;

/// Where one stream's task puts its messages.
#[derive(Debug)]
pub struct Outbox<T> {
    messages: mpsc::Sender<T>,
    last: Arc<OnceLock<Status>>,
    phase: PhaseWatch,
    send_timeout: Duration,
}

/// What tonic takes the messages from.
#[derive(Debug)]
pub struct Responses<T> {
    messages: mpsc::Receiver<T>,
    last: Arc<OnceLock<Status>>,
}

/// Why a stream's task ends: with a status for the client, or silently because nobody listens any more.
#[derive(Debug)]
pub enum Ended {
    /// The client is told.
    With(Status),
    /// All is said, or the client has gone.
    Quietly,
}

/// A connected outbox and response stream. A send that blocks longer than `send_timeout` ends the stream.
pub fn outbox<T>(phase: PhaseWatch, send_timeout: Duration) -> (Outbox<T>, Responses<T>) {
    let (sender, receiver) = mpsc::channel(CAPACITY);
    let last = Arc::new(OnceLock::new());
    (
        Outbox {
            messages: sender,
            last: Arc::clone(&last),
            phase,
            send_timeout,
        },
        Responses {
            messages: receiver,
            last,
        },
    )
}

// === impl Outbox ===

impl<T> Outbox<T> {
    pub async fn send(&mut self, message: T) -> Result<(), Ended> {
        tokio::select! {
            biased;
            sent = self.messages.send(message) => sent.map_err(|_| Ended::Quietly),
            () = self.phase.stopped() => Err(Ended::Quietly),
            () = tokio::time::sleep(self.send_timeout) => Err(Ended::With(Status::resource_exhausted(
                "the client reads too slowly; reconnect and resume",
            ))),
        }
    }

    /// Resolves when the client has gone.
    pub async fn closed(&self) {
        self.messages.closed().await;
    }

    /// Ends the stream. The client gets what was sent before, then the status.
    pub fn finish(self, ended: Ended) {
        if let Ended::With(status) = ended {
            // Only this one call sets it.
            let _ = self.last.set(status);
        }
    }
}

// === impl Responses ===

impl<T> Stream for Responses<T> {
    type Item = Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(match ready!(self.messages.poll_recv(context)) {
            Some(message) => Some(Ok(message)),
            None => std::mem::take(&mut self.last).get().cloned().map(Err),
        })
    }
}

/// Messages between a stream's task and its connection. Small: what waits here is no longer in anybody's control.
const CAPACITY: usize = 8;
