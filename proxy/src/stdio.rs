//! MCP over standard input and output, for clients that start a program: each message becomes a request to the server's URL
//! (Streamable HTTP), proven as those of any client.
//!
//! Versions with sessions and those without are told apart message by message: from 2026-07-28 on, each request names its
//! version.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use credence_agent::terminal::{printable, shortened};
use futures_util::StreamExt as _;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response};
use http_body_util::{BodyExt as _, Limited};
use serde_json::value::RawValue;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::codec::{AnyDelimiterCodec, FramedRead};

use crate::clients::Client;
use crate::exchange::exchange;
use crate::mcp_message::{Message, ParameterHeaders, header_text, request_failed};
use crate::outbound::{Body, whole};
use crate::request::Addressed;
use crate::settings::LimitSettings;
use crate::sse::Events;
use crate::stream::limited;
use crate::upstream::Upstream;

/// A client that speaks MCP over standard input and output.
#[derive(Debug)]
pub(crate) struct Bridge {
    client: Arc<Client>,
    upstream: Arc<Upstream>,
    /// Path and query of the server.
    target: String,
    limits: LimitSettings,
    state: Mutex<State>,
    lines: mpsc::Sender<Vec<u8>>,
    /// Places for large answers that are not complete yet.
    large: Semaphore,
}

/// What earlier messages have said.
#[derive(Debug, Default)]
struct State {
    /// What the server answered to `initialize`.
    session: Option<HeaderValue>,
    version: Option<HeaderValue>,
    parameters: ParameterHeaders,
    /// Requests without an answer yet, by id.
    running: BTreeMap<String, AbortHandle>,
}

// === impl Bridge ===

impl Bridge {
    /// Serves until standard input ends.
    pub(crate) async fn serve(
        client: Arc<Client>,
        upstream: Arc<Upstream>,
        target: String,
        limits: LimitSettings,
    ) -> io::Result<()> {
        let (lines, written) = mpsc::channel(LINES_WAITING);
        // So that neither their number nor their size exceeds what may wait.
        let (places, place_bytes) = (limits.requests, (MAX_WAITING_BYTES / limits.requests).max(1));
        let all_places = Arc::new(Semaphore::new(places));
        let bridge = Arc::new(Self {
            client,
            upstream,
            target,
            limits,
            state: Mutex::default(),
            lines,
            large: Semaphore::new(LARGE_ANSWERS),
        });
        let writer = tokio::spawn(write(written));
        let line_end = AnyDelimiterCodec::new_with_max_length(b"\n".to_vec(), b"\n".to_vec(), MAX_MESSAGE_BYTES);
        let mut input = FramedRead::new(tokio::io::stdin(), line_end);
        let mut requests = JoinSet::new();
        let mut listening: Option<AbortHandle> = None;
        while let Some(line) = input.next().await {
            let line = line.map_err(|error| io::Error::other(format!("{error} ({MAX_MESSAGE_BYTES} bytes)")))?;
            if line.trim_ascii().is_empty() {
                continue;
            }
            while requests.try_join_next().is_some() {}
            let Some(message) = Message::read(&line) else {
                let failed = request_failed(None, -32_700, "This line is no JSON-RPC message.", "null");
                bridge.say(failed).await;
                continue;
            };
            if let Some(id) = message.cancels() {
                bridge.cancel(&id);
            }
            // What has no answer keeps its place in the order.
            let Some(id) = message.id() else {
                let sent = tokio::time::timeout(NOTIFICATION_TIME, bridge.send(&message, &line)).await;
                if sent.is_err() {
                    tracing::warn!("the server did not answer a notification in time");
                }
                if message.is("notifications/initialized") && listening.is_none() {
                    let bridge = Arc::clone(&bridge);
                    listening = Some(tokio::spawn(async move { bridge.listen().await }).abort_handle());
                }
                continue;
            };
            let needed = u32::try_from(line.len().div_ceil(place_bytes).min(places)).unwrap_or(u32::MAX);
            let Ok(held) = Arc::clone(&all_places).acquire_many_owned(needed).await else {
                break;
            };
            let (own, sent) = (Arc::clone(&bridge), line.clone());
            let handle = requests.spawn(async move {
                let _held = held;
                if let Some(message) = Message::read(&sent) {
                    own.send(&message, &sent).await;
                }
            });
            bridge.state().running.insert(id, handle);
        }
        // The client has gone, and may still read.
        let ended = async { while requests.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(LAST_ANSWERS, ended).await;
        if let Some(listening) = listening {
            listening.abort();
        }
        bridge.end_session().await;
        requests.shutdown().await;
        drop((requests, bridge));
        let _ = tokio::time::timeout(LAST_ANSWERS, writer).await;
        Ok(())
    }

    /// Sends one message, and passes on what the server answers.
    async fn send(&self, message: &Message<'_>, line: &Bytes) {
        let headers = self.headers(message);
        let response = self.request(Method::POST, headers, whole(line.clone())).await;
        if message.is(INITIALIZE) && response.status().is_success() {
            self.state().session = response.headers().get(SESSION).cloned();
        }
        let is_answered = self.pass_on(message, response).await;
        if let Some(id) = message.id() {
            self.state().running.remove(&id);
            if !is_answered {
                let title = "The server ended without an answer.";
                self.say(request_failed(message.raw_id(), -32_000, title, "null")).await;
            }
        }
    }

    /// Passes an answer on. Returns whether it has the answer to the message.
    async fn pass_on(&self, message: &Message<'_>, response: Response<Body>) -> bool {
        let status = response.status();
        if message.id().is_none() && status.is_success() {
            return true;
        }
        let media_type = response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        let media_type = media_type.unwrap_or_default().split(|byte| *byte == b';').next();
        let is_stream = media_type.is_some_and(|name| name.trim_ascii().eq_ignore_ascii_case(b"text/event-stream"));
        if status.is_success() && is_stream {
            return self.pass_events_on(Some(message), response.into_body()).await;
        }
        let (mut incoming, mut body) = (Limited::new(response.into_body(), MAX_MESSAGE_BYTES), Vec::new());
        let mut place = None;
        while let Some(Ok(frame)) = incoming.frame().await {
            body.extend(frame.into_data().unwrap_or_default());
            self.make_room(body.len(), &mut place).await;
        }
        let said = Message::read(&body);
        if said.as_ref().is_some_and(|said| said.answers(message)) {
            self.learn(message, &body);
            self.say(one_line(&body)).await;
            return true;
        }
        if message.id().is_none() {
            let answer = printable(&shortened(&String::from_utf8_lossy(&body)));
            tracing::warn!(%status, answer, "a notification is refused");
            return true;
        }
        // Anything else, such as a problem document of this proxy, becomes the error of the request.
        let problem = std::str::from_utf8(&body).ok();
        let problem = problem.filter(|text| serde_json::from_str::<&RawValue>(text).is_ok());
        let problem = problem.unwrap_or("null");
        let title = format!("The request is answered with {status}.");
        let failed = request_failed(message.raw_id(), status.as_u16().into(), &title, problem);
        self.say(one_line(&failed)).await;
        true
    }

    /// Passes the messages of a stream on, each as soon as it is there.
    async fn pass_events_on(&self, message: Option<&Message<'_>>, mut body: Body) -> bool {
        let mut events = Events::default();
        let (mut is_answered, mut place) = (false, None);
        while let Some(Ok(frame)) = body.frame().await {
            let Ok(data) = frame.into_data() else { continue };
            for event in events.push(&data) {
                let Some(said) = Message::read(&event) else { continue };
                if let Some(message) = message.filter(|message| said.answers(message)) {
                    self.learn(message, &event);
                    is_answered = true;
                }
                self.say(one_line(&event)).await;
            }
            self.make_room(events.waiting(), &mut place).await;
            if events.waiting() > MAX_MESSAGE_BYTES {
                tracing::error!("a message of the server has more than {MAX_MESSAGE_BYTES} bytes");
                break;
            }
        }
        is_answered
    }

    /// Waits for a place for an answer that has become large, and gives it back when it is small again.
    async fn make_room<'b>(&'b self, bytes: usize, place: &mut Option<SemaphorePermit<'b>>) {
        if bytes <= SMALL_BYTES {
            *place = None;
        } else if place.is_none() {
            *place = self.large.acquire().await.ok();
        }
    }

    /// Notes what later requests need.
    fn learn(&self, message: &Message<'_>, answer: &[u8]) {
        if message.is(INITIALIZE) {
            let version = Message::read(answer).and_then(|said| said.agreed_version());
            self.state().version = version.and_then(|version| HeaderValue::from_str(&version).ok());
        }
        if message.is("tools/list") {
            self.state().parameters.learn(answer);
        }
    }

    /// Listens to what the server says of itself, in versions with sessions, until it does not want that.
    async fn listen(&self) {
        let mut pause = SHORTEST_PAUSE;
        loop {
            let mut headers = self.session_headers();
            headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
            let response = self.request(Method::GET, headers, whole("")).await;
            if !response.status().is_success() {
                tracing::debug!(status = %response.status(), "the server has no stream of its own");
                return;
            }
            let began = tokio::time::Instant::now();
            self.pass_events_on(None, response.into_body()).await;
            if began.elapsed() > LONGEST_PAUSE {
                pause = SHORTEST_PAUSE;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn end_session(&self) {
        let has_session = self.state().session.is_some();
        if has_session {
            let ended = self.request(Method::DELETE, self.session_headers(), whole(""));
            let _ = tokio::time::timeout(LAST_ANSWERS, ended).await;
        }
    }

    /// Ends a request whose version has no sessions: closing its stream tells the server.
    fn cancel(&self, id: &str) {
        let mut state = self.state();
        if state.version.is_none()
            && let Some(handle) = state.running.remove(id)
        {
            handle.abort();
        }
    }

    async fn request(&self, method: Method, headers: HeaderMap, body: Body) -> Response<Body> {
        let request = Addressed {
            upstream: Arc::clone(&self.upstream),
            method,
            target: self.target.clone(),
            headers,
        };
        match exchange(&self.client, request, body, self.limits.answer()).await {
            Ok(response) => limited(response, self.limits.stream(), ()),
            Err(refusal) => {
                tracing::info!(reason = refusal.reason, "a message was not sent");
                *refusal.response
            }
        }
    }

    fn headers(&self, message: &Message<'_>) -> HeaderMap {
        let mut headers = match message.version() {
            // It says everything about itself.
            Some(version) => {
                let mut headers = HeaderMap::new();
                let parameters = self.state().parameters.of(message);
                let named = [(VERSION.to_owned(), version)].into_iter();
                for (name, text) in named.chain(message.mirrored()).chain(parameters) {
                    let name = HeaderName::try_from(name);
                    if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(&header_text(&text))) {
                        headers.insert(name, value);
                    }
                }
                headers
            }
            None => self.session_headers(),
        };
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        headers
    }

    fn session_headers(&self) -> HeaderMap {
        let state = self.state();
        let named = [(SESSION, &state.session), (VERSION, &state.version)].into_iter();
        let present = named.filter_map(|(name, value)| Some((HeaderName::from_static(name), value.clone()?)));
        present.collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn say(&self, line: Vec<u8>) {
        // The writer ends only if standard output is closed: then nobody listens.
        let _ = self.lines.send(line).await;
    }
}

async fn write(mut lines: mpsc::Receiver<Vec<u8>>) {
    // Not the standard library's handle, which the command line holds.
    let Ok(descriptor) = io::stdout().as_fd().try_clone_to_owned() else {
        return;
    };
    let mut out = tokio::fs::File::from_std(descriptor.into());
    while let Some(mut line) = lines.recv().await {
        line.push(b'\n');
        if out.write_all(&line).await.is_err() || out.flush().await.is_err() {
            return;
        }
    }
}

/// JSON without line ends, which it can have between its parts only.
fn one_line(json: &[u8]) -> Vec<u8> {
    let in_line = json
        .iter()
        .map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte });
    in_line.collect()
}

const INITIALIZE: &str = "initialize";
const SESSION: &str = "mcp-session-id";
const VERSION: &str = "mcp-protocol-version";
const MAX_MESSAGE_BYTES: usize = 8 << 20;
/// Of requests that have no answer yet.
const MAX_WAITING_BYTES: usize = 4 * MAX_MESSAGE_BYTES;
/// Answers of more than `SMALL_BYTES` that are read at once.
const LARGE_ANSWERS: usize = 4;
const SMALL_BYTES: usize = 256 << 10;
/// Later messages wait so long for an earlier notification.
const NOTIFICATION_TIME: Duration = Duration::from_secs(10);
/// Messages for the client that it does not read.
const LINES_WAITING: usize = 4;
/// For answers that are under way when standard input ends.
const LAST_ANSWERS: Duration = Duration::from_secs(5);
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
