//! One source of evidence on its own connection, like an Envoy worker.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::{Buf as _, Bytes, BytesMut};
use credence_wire::v1;
use credence_wire::v1::report_request::Message as Outgoing;
use credence_wire::v1::report_response::Message as Incoming;
use h2::client::ResponseFuture;
use h2::{RecvStream, SendStream};
use prost::Message as _;
use tokio::net::TcpStream;

use super::Failure;
use super::events::EntryWriter;

/// A source that the control plane has welcomed.
#[derive(Debug)]
pub(crate) struct Source {
    name: String,
    to_server: SendStream<Bytes>,
    from_server: Answers,
}

/// When batches are due. Without a pace, as soon as one may be sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) first: Instant,
    pub(crate) between: Duration,
}

/// When to measure. Nothing is sent after it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schedule {
    pub(crate) measured_from: Instant,
    pub(crate) measured_until: Instant,
}

/// The result of a source.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    pub(crate) name: String,
    /// The last acknowledged sequence number.
    pub(crate) acknowledged: u64,
    /// Entries acknowledged during the measurement.
    pub(crate) acknowledged_while_measured: u64,
    /// From sending a batch to its acknowledgement, for batches sent during the measurement.
    pub(crate) latencies: Vec<Duration>,
    /// The same from the time that the batch was due.
    pub(crate) delays: Vec<Duration>,
}

#[derive(Debug)]
struct Unacknowledged {
    last_sequence: u64,
    encoded: Bytes,
    sent: Instant,
}

/// The control plane's side of a stream.
#[derive(Debug)]
struct Answers {
    body: RecvStream,
    arrived: BytesMut,
}

// === impl Source ===

impl Source {
    pub(crate) async fn open(address: SocketAddr, number: u32) -> Result<Self, Failure> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = h2::client::handshake(stream).await?;
        // The stream reports its end.
        tokio::task::spawn_local(connection);
        let request = http::Request::post(format!("http://{address}/credence.v1.AuditService/Report"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())?;
        let (response, mut to_server) = sender.ready().await?.send_request(request, false)?;
        let hello = v1::ReportHello {
            node: format!("load-{number}"),
            plugin: "load".to_owned(),
            ..Default::default()
        };
        to_server.send_data(grpc_message(Outgoing::Hello(hello))?, false)?;
        let mut from_server = Answers::of(response).await?;
        let Some(Incoming::Welcome(welcome)) = from_server.next().await? else {
            return Err("the control plane said something before its welcome".into());
        };
        Ok(Self {
            name: welcome.ticket.unwrap_or_default().source,
            to_server,
            from_server,
        })
    }

    /// Sends batches of this many entries until the time is up and all are acknowledged; then says bye.
    pub(crate) async fn send(
        mut self,
        mut entries: EntryWriter,
        batch_entries: u32,
        pace: Option<Pace>,
        schedule: Schedule,
    ) -> Result<Sent, Failure> {
        let mut sent = Sent {
            name: self.name.clone(),
            ..Sent::default()
        };
        let mut in_flight: VecDeque<Unacknowledged> = VecDeque::new();
        let mut last_sequence = 0;
        let mut due = pace.map_or_else(Instant::now, |pace| pace.first);
        loop {
            let has_ended = due >= schedule.measured_until;
            if has_ended && in_flight.is_empty() {
                break;
            }
            tokio::select! {
                answer = self.from_server.next(), if !in_flight.is_empty() => {
                    let Some(Incoming::Acknowledgement(acknowledgement)) = answer? else {
                        return Err("the control plane ended the stream, or said something else than acknowledgements".into());
                    };
                    for batch in sent.acknowledge(acknowledgement.through, &mut in_flight, schedule) {
                        entries.reuse(batch);
                    }
                }
                () = tokio::time::sleep_until(due.into()), if in_flight.len() < MAX_IN_FLIGHT && !has_ended => {
                    let now = Instant::now();
                    let encoded = entries.batch(batch_entries);
                    self.to_server.send_data(encoded.clone(), false)?;
                    last_sequence += u64::from(batch_entries);
                    in_flight.push_back(Unacknowledged { last_sequence, encoded, sent: now });
                    if schedule.is_measured(now) {
                        sent.delays.push(now.saturating_duration_since(due));
                    }
                    due = pace.map_or(now, |pace| due + pace.between);
                }
            }
        }
        self.to_server
            .send_data(grpc_message(Outgoing::Bye(v1::Bye {}))?, false)?;
        while self.from_server.next().await?.is_some() {}
        Ok(sent)
    }
}

// === impl Sent ===

impl Sent {
    /// Returns the acknowledged batches.
    fn acknowledge(
        &mut self,
        through: u64,
        in_flight: &mut VecDeque<Unacknowledged>,
        schedule: Schedule,
    ) -> Vec<Bytes> {
        let now = Instant::now();
        let mut done = Vec::new();
        while let Some(batch) = in_flight.pop_front_if(|batch| batch.last_sequence <= through) {
            if schedule.is_measured(batch.sent) {
                self.latencies.push(now - batch.sent);
            }
            done.push(batch.encoded);
        }
        if schedule.is_measured(now) {
            self.acknowledged_while_measured += through.saturating_sub(self.acknowledged);
        }
        self.acknowledged = self.acknowledged.max(through);
        done
    }
}

// === impl Schedule ===

impl Schedule {
    fn is_measured(&self, instant: Instant) -> bool {
        (self.measured_from..self.measured_until).contains(&instant)
    }
}

// === impl Answers ===

impl Answers {
    async fn of(response: ResponseFuture) -> Result<Self, Failure> {
        Ok(Self {
            body: response.await?.into_body(),
            arrived: BytesMut::new(),
        })
    }

    /// The next message; `None` if the control plane has ended the stream without an error. The future is cancel-safe.
    async fn next(&mut self) -> Result<Option<Incoming>, Failure> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(Some(message));
            }
            let Some(part) = self.body.data().await else {
                let trailers = self.body.trailers().await?.unwrap_or_default();
                return match trailers.get("grpc-status") {
                    Some(status) if status == "0" => Ok(None),
                    _ => Err(format!("the control plane ended the stream: {trailers:?}").into()),
                };
            };
            let part = part?;
            self.body.flow_control().release_capacity(part.len())?;
            self.arrived.extend_from_slice(&part);
        }
    }

    fn take(&mut self) -> Result<Option<Incoming>, Failure> {
        let Some(length) = self.arrived.get(1..PREFIX_BYTES) else {
            return Ok(None);
        };
        let length = length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        if self.arrived.len() < PREFIX_BYTES + length {
            return Ok(None);
        }
        self.arrived.advance(PREFIX_BYTES);
        let message = v1::ReportResponse::decode(self.arrived.split_to(length))?;
        message.message.map(Some).ok_or_else(|| "an empty message".into())
    }
}

fn grpc_message(message: Outgoing) -> Result<Bytes, Failure> {
    let message = v1::ReportRequest { message: Some(message) };
    let mut encoded = vec![0];
    encoded.extend(u32::try_from(message.encoded_len())?.to_be_bytes());
    message.encode(&mut encoded)?;
    Ok(encoded.into())
}

const PREFIX_BYTES: usize = 5;
/// In batches, as in filters.
const MAX_IN_FLIGHT: usize = 4;
