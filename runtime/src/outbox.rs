//! The sending half of a gRPC stream: a bounded channel. Sending times out, and a place is reserved for the final
//! status, so that it is sent even if the channel is full.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::sync::mpsc::OwnedPermit;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use crate::lifecycle::PhaseWatch;

/// The place where a stream's task puts its messages.
#[derive(Debug)]
pub struct Outbox<T> {
    messages: mpsc::Sender<Result<T, Status>>,
    /// The place in the channel that is reserved for the status.
    last: Option<OwnedPermit<Result<T, Status>>>,
    phase: PhaseWatch,
    send_timeout: Duration,
}

/// The receiving half, for tonic.
pub type Responses<T> = ReceiverStream<Result<T, Status>>;

/// Why a stream's task ends: with a status for the client, or silently because the client has gone.
#[derive(Debug)]
pub enum Ended {
    /// The client gets this status.
    With(Status),
    /// Everything was sent, or the client has gone.
    Quietly,
}

/// A connected outbox and response stream. A send that blocks longer than `send_timeout` ends the stream.
pub fn outbox<T>(phase: PhaseWatch, send_timeout: Duration) -> (Outbox<T>, Responses<T>) {
    let (messages, receiver) = mpsc::channel(CAPACITY + 1);
    let outbox = Outbox {
        // A new channel has room.
        last: messages.clone().try_reserve_owned().ok(),
        messages,
        phase,
        send_timeout,
    };
    (outbox, ReceiverStream::new(receiver))
}

// === impl Outbox ===

impl<T> Outbox<T> {
    pub async fn send(&mut self, message: T) -> Result<(), Ended> {
        tokio::select! {
            biased;
            sent = self.messages.send(Ok(message)) => sent.map_err(|_| Ended::Quietly),
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
        if let (Ended::With(status), Some(place)) = (ended, self.last) {
            place.send(Err(status));
        }
    }
}

/// Messages between a stream's task and its connection. Small, because queued messages cannot be withdrawn.
const CAPACITY: usize = 8;
