//! A client of `AuditService.Report` that is not a filter. It reconnects with its ticket when its stream ends, and
//! sends again what was not acknowledged.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use h2::SendStream;
use http::{HeaderMap, Request};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::client::grpc_frame;
use crate::grpc::{self, Messages};
use crate::http2::{RUNTIME, in_time};
use crate::protobuf::Message;
use crate::{Failure, ISSUER, waiting};

/// A source of evidence, reporting until [`finish`](Self::finish).
#[derive(Debug)]
pub struct Reporter {
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// How much a source reports. At most four batches are unacknowledged.
#[derive(Debug, Clone, Copy)]
pub struct Volume {
    /// In each batch.
    pub entries: u64,
    /// After each acknowledgement.
    pub pause: Duration,
}

/// What the control plane told a source.
#[derive(Debug, Clone, Default)]
pub struct Told {
    /// The name that the control plane gave it.
    pub source: String,
    /// The highest acknowledged sequence number: everything up to it is on disk.
    pub acknowledged: u64,
    /// How often the control plane welcomed it.
    pub welcomes: u64,
    /// The gRPC status and message of ended streams, except for broken connections.
    pub refusals: Vec<(u32, String)>,
    /// The promise that the control plane broke, if any.
    pub broken: Option<String>,
    /// The longest that a batch waited for its acknowledgement.
    pub longest_wait: Duration,
}

#[derive(Debug)]
struct Shared {
    server: SocketAddr,
    /// The prefix of its entries' request ids.
    label: String,
    volume: Volume,
    told: Mutex<Told>,
}

/// The state that outlives a stream.
#[derive(Debug, Default)]
struct Outstanding {
    ticket: Option<Vec<u8>>,
    batches: VecDeque<Batch>,
    next_sequence: u64,
}

#[derive(Debug)]
struct Batch {
    last: u64,
    encoded: Bytes,
    made: Instant,
}

/// Why a stream ended.
enum Ended {
    /// All entries are acknowledged, and the control plane knows that no more follow.
    Finished,
    /// The connection broke, or could not be opened.
    Broken,
    Refused(u32, String),
}

// === impl Reporter ===

impl Reporter {
    /// A new source. Its entries are identified by their request ids: [`request_id`].
    pub fn start(server: SocketAddr, label: &str, volume: Volume) -> Self {
        let shared = Arc::new(Shared {
            server,
            label: label.to_owned(),
            volume,
            told: Mutex::default(),
        });
        let (stop, stopped) = watch::channel(false);
        let task = RUNTIME.spawn(Arc::clone(&shared).report(stopped));
        Self { shared, stop, task }
    }

    /// What the control plane has told it so far.
    pub fn told(&self) -> Told {
        self.shared.told().clone()
    }

    /// Waits for the next acknowledgement.
    ///
    /// # Errors
    /// If none comes.
    pub fn until_acknowledged_again(&self) -> Result<(), Failure> {
        let before = self.told().acknowledged;
        waiting::until(format_args!("{} to be acknowledged again", self.shared.label), || {
            Ok((self.told().acknowledged > before).then_some(()))
        })
    }

    /// Makes no more entries, waits until all are acknowledged, and says bye.
    ///
    /// # Errors
    /// If they are not acknowledged in time.
    pub fn finish(self) -> Result<Told, Failure> {
        let _ = self.stop.send(true);
        waiting::until(format_args!("{} to finish", self.shared.label), || {
            Ok(self.task.is_finished().then_some(()))
        })?;
        Ok(self.told())
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The request id of a source's entry of this sequence number.
pub fn request_id(label: &str, sequence: u64) -> String {
    format!("{label}/{sequence}")
}

// === impl Shared ===

impl Shared {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn report(self: Arc<Self>, mut stopped: watch::Receiver<bool>) {
        let mut outstanding = Outstanding {
            next_sequence: 1,
            ..Outstanding::default()
        };
        loop {
            match self.stream(&mut outstanding, &mut stopped).await {
                Ended::Finished => return,
                Ended::Broken => {}
                Ended::Refused(status, message) => {
                    if status != UNAVAILABLE {
                        self.broke(format!("it was refused: {status}, {message}"));
                    }
                    self.told().refusals.push((status, message));
                }
            }
            tokio::time::sleep(BETWEEN_STREAMS).await;
        }
    }

    async fn stream(&self, outstanding: &mut Outstanding, stopped: &mut watch::Receiver<bool>) -> Ended {
        let opened = in_time(async { self.open(outstanding.ticket.as_deref()).await.map_err(|_| broken()) }).await;
        let Ok((mut to_server, mut from_server)) = opened else {
            return Ended::Broken;
        };
        let welcome = match next(&mut from_server).await {
            Ok(message) => message,
            Err(ended) => return ended.too_early(),
        };
        let Some(welcome) = grpc::find_bytes(&welcome, WELCOME) else {
            return self.broke("it was not welcomed at first".to_owned());
        };
        let (ticket, acknowledged) = (grpc::find_bytes(welcome, 1), grpc::find_number(welcome, 2));
        let (Some(ticket), Some(acknowledged)) = (ticket, acknowledged) else {
            return self.broke("the welcome cannot be read".to_owned());
        };
        outstanding.ticket = Some(ticket.to_vec());
        self.welcomed(ticket, acknowledged);
        self.acknowledge(acknowledged, outstanding);
        let send = |to_server: &mut SendStream<Bytes>, content: Bytes| to_server.send_data(content, false);
        for batch in &outstanding.batches {
            if send(&mut to_server, batch.encoded.clone()).is_err() {
                return Ended::Broken;
            }
        }
        loop {
            while outstanding.batches.len() < MAX_IN_FLIGHT && !*stopped.borrow() {
                let encoded = self.next_batch(outstanding);
                if send(&mut to_server, encoded).is_err() {
                    return Ended::Broken;
                }
            }
            if outstanding.batches.is_empty() {
                let bye = grpc_frame(&grpc::bytes_field(BYE, &[]));
                return match send(&mut to_server, bye.into()) {
                    Ok(()) => self.farewell(&mut from_server).await,
                    Err(_) => Ended::Broken,
                };
            }
            match next(&mut from_server).await {
                Ok(message) => {
                    let acknowledgement = grpc::find_bytes(&message, ACKNOWLEDGEMENT);
                    let through = acknowledgement.and_then(|message| grpc::find_number(message, 1));
                    self.acknowledge(through.unwrap_or_default(), outstanding);
                    tokio::time::sleep(self.volume.pause).await;
                }
                Err(ended) => return ended.too_early(),
            }
        }
    }

    async fn open(&self, ticket: Option<&[u8]>) -> Result<(SendStream<Bytes>, Messages), Box<dyn std::error::Error>> {
        let stream = TcpStream::connect(self.server).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = h2::client::handshake(stream).await?;
        // The stream reports its end.
        tokio::spawn(connection);
        let request = Request::post(format!("http://{}/credence.v1.AuditService/Report", self.server))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())?;
        let (response, mut to_server) = sender.ready().await?.send_request(request, false)?;
        let mut hello = grpc::bytes_field(1, b"e2e");
        if let Some(ticket) = ticket {
            hello.extend(grpc::bytes_field(3, ticket));
        }
        let hello = grpc_frame(&grpc::bytes_field(HELLO, &hello));
        to_server.send_data(hello.into(), false)?;
        Ok((to_server, Messages::of(response.await?.into_body())))
    }

    fn next_batch(&self, outstanding: &mut Outstanding) -> Bytes {
        let first = outstanding.next_sequence;
        let mut batch = grpc::number_field(1, first);
        for sequence in first..first + self.volume.entries {
            batch.extend(grpc::bytes_field(2, event(&self.label, sequence).encoded()));
        }
        outstanding.next_sequence += self.volume.entries;
        let encoded = Bytes::from(grpc_frame(&grpc::bytes_field(BATCH, &batch)));
        outstanding.batches.push_back(Batch {
            last: outstanding.next_sequence - 1,
            encoded: encoded.clone(),
            made: Instant::now(),
        });
        encoded
    }

    fn welcomed(&self, ticket: &[u8], acknowledged: u64) {
        let name = grpc::find_bytes(ticket, 1).unwrap_or_default();
        let name = String::from_utf8_lossy(name).into_owned();
        let before = {
            let mut told = self.told();
            told.welcomes += 1;
            (std::mem::replace(&mut told.source, name.clone()), told.acknowledged)
        };
        if !before.0.is_empty() && before.0 != name {
            self.broke(format!("it was {}, and is now taken for {name}", before.0));
        }
        if acknowledged < before.1 {
            self.broke(format!(
                "{} had been acknowledged; now only {acknowledged} is known",
                before.1
            ));
        }
    }

    fn acknowledge(&self, through: u64, outstanding: &mut Outstanding) {
        let mut longest = Duration::ZERO;
        while let Some(batch) = outstanding.batches.pop_front_if(|batch| batch.last <= through) {
            longest = longest.max(batch.made.elapsed());
        }
        if through >= outstanding.next_sequence {
            self.broke(format!("{through} is acknowledged, and was never sent"));
        }
        let mut told = self.told();
        told.longest_wait = told.longest_wait.max(longest);
        told.acknowledged = told.acknowledged.max(through);
    }

    async fn farewell(&self, from_server: &mut Messages) -> Ended {
        match next(from_server).await {
            Err(Ended::Finished) => Ended::Finished,
            // The bye may or may not have arrived. Reconnecting would tell, but the control plane forgets a source that
            // has ended.
            Err(Ended::Broken) => Ended::Finished,
            Err(refused) => refused,
            Ok(_) => self.broke("something was said after the last acknowledgement".to_owned()),
        }
    }

    fn broke(&self, promise: String) -> Ended {
        self.told().broken.get_or_insert(promise);
        Ended::Broken
    }
}

// === impl Ended ===

impl Ended {
    /// Why a stream ended that the control plane closed first.
    fn too_early(self) -> Self {
        match self {
            Self::Finished => Self::Broken,
            ended @ (Self::Broken | Self::Refused(..)) => ended,
        }
    }
}

/// The next message, or how the stream ended.
async fn next(from_server: &mut Messages) -> Result<Bytes, Ended> {
    match from_server.next().await {
        Ok(Some(message)) => Ok(message),
        Ok(None) => Err(match from_server.trailers().await {
            Ok(Some(trailers)) => ended(&trailers),
            Ok(None) | Err(_) => Ended::Broken,
        }),
        Err(_) => Err(Ended::Broken),
    }
}

fn ended(trailers: &HeaderMap) -> Ended {
    let text = |name| {
        trailers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    match text("grpc-status").parse() {
        Ok(0) => Ended::Finished,
        Ok(status) => Ended::Refused(status, percent_decoded(text("grpc-message"))),
        Err(_) => Ended::Broken,
    }
}

/// The decoding of gRPC status messages.
fn percent_decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut decoded = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2).unwrap_or((part, ""));
        decoded.extend(u8::from_str_radix(digits, 16));
        decoded.extend(rest.as_bytes());
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

fn broken() -> Failure {
    Failure::new("the connection broke")
}

/// An entry with a decision, as a filter makes it.
fn event(label: &str, sequence: u64) -> Message {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let time = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
    let subject = format!("{label}-{}", sequence % SUBJECTS);
    let principal = Message::new().bytes(1, ISSUER.as_bytes()).bytes(2, subject.as_bytes());
    let event = Message::new()
        .fixed(1, time)
        .bytes(2, request_id(label, sequence).as_bytes())
        .bytes(4, b"read-catalog")
        .bytes(5, b"catalog.read")
        .number(6, 1)
        .bytes(7, b"delegated")
        .number(8, 1)
        .message(9, &principal)
        .bytes(10, &[b'a'; 43])
        .number(11, 2)
        .bytes(12, format!("delegation-of-{subject}").as_bytes())
        .bytes(14, b"GET")
        .bytes(15, b"shop.example.com")
        .bytes(16, b"/v1/catalog/{item}")
        .number(18, 40_000);
    Message::new().message(1, &event)
}

// Field numbers of audit.proto.
const HELLO: u8 = 1;
const BATCH: u8 = 2;
const BYE: u8 = 3;
const WELCOME: u64 = 1;
const ACKNOWLEDGEMENT: u64 = 2;

const UNAVAILABLE: u32 = 14;
const MAX_IN_FLIGHT: usize = 4;
const BETWEEN_STREAMS: Duration = Duration::from_millis(20);
const SUBJECTS: u64 = 100;
