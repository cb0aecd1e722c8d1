//! MCP over standard input and output, for clients that start a program: each message becomes a request to the server's URL
//! (Streamable HTTP), proven as those of any client.
//!
//! Versions with sessions and those without are told apart message by message: from 2026-07-28 on, each request names its
//! version.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response};
use http_body_util::{BodyExt as _, Empty, Full, Limited};
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinSet};

use crate::clients::Client;
use crate::exchange::exchange;
use crate::mcp_message::{Message, ParameterHeaders, header_text, request_failed};
use crate::outbound::Body;
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
    session: Mutex<Session>,
    parameters: Mutex<ParameterHeaders>,
    /// Requests without an answer yet, by id.
    running: Mutex<BTreeMap<String, AbortHandle>>,
    lines: mpsc::Sender<Vec<u8>>,
}

/// What the server has said in answer to `initialize`.
#[derive(Debug, Default, Clone)]
struct Session {
    id: Option<HeaderValue>,
    version: Option<HeaderValue>,
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
        let places = Arc::new(Semaphore::new(limits.requests));
        let bridge = Arc::new(Self {
            client,
            upstream,
            target,
            limits,
            session: Mutex::default(),
            parameters: Mutex::default(),
            running: Mutex::default(),
            lines,
        });
        let writer = tokio::spawn(write(written));
        let mut input = BufReader::new(tokio::io::stdin());
        let mut requests = JoinSet::new();
        let mut listening: Option<AbortHandle> = None;
        let mut line = Vec::new();
        while next_line(&mut input, &mut line).await? {
            while requests.try_join_next().is_some() {}
            let Some(message) = Message::read(&line) else {
                bridge
                    .say(request_failed(None, -32_700, "This line is no JSON-RPC message.", None))
                    .await;
                continue;
            };
            if let Some(id) = message.cancels() {
                bridge.cancel(&id);
            }
            // What has no answer keeps its place in the order.
            let Some(id) = message.id() else {
                bridge.send(&message, &line).await;
                if message.is_initialized() && listening.is_none() {
                    let bridge = Arc::clone(&bridge);
                    listening = Some(tokio::spawn(async move { bridge.listen().await }).abort_handle());
                }
                continue;
            };
            let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                break;
            };
            let (own, sent) = (Arc::clone(&bridge), line.clone());
            let handle = requests.spawn(async move {
                let _place = place;
                if let Some(message) = Message::read(&sent) {
                    own.send(&message, &sent).await;
                }
            });
            let mut running = bridge.running.lock().unwrap_or_else(PoisonError::into_inner);
            running.insert(id, handle);
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
    async fn send(&self, message: &Message<'_>, line: &[u8]) {
        let headers = self.headers(message);
        let body = Full::new(Bytes::copy_from_slice(line))
            .map_err(|never| match never {})
            .boxed();
        let response = self.request(Method::POST, headers, body).await;
        if message.begins_session() && response.status().is_success() {
            let id = response.headers().get(SESSION).cloned();
            self.session.lock().unwrap_or_else(PoisonError::into_inner).id = id;
        }
        let is_answered = self.pass_on(message, response).await;
        if let Some(id) = message.id() {
            self.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
            if !is_answered {
                let title = "The server ended without an answer.";
                self.say(request_failed(message.raw_id(), -32_000, title, None)).await;
            }
        }
    }

    /// Passes an answer on. Returns whether it has the answer to the message.
    async fn pass_on(&self, message: &Message<'_>, response: Response<Body>) -> bool {
        let status = response.status();
        if message.id().is_none() && status.is_success() {
            return true;
        }
        let media_type = response
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok());
        let media_type = media_type
            .unwrap_or_default()
            .split(';')
            .next()
            .unwrap_or_default()
            .trim()
            .to_owned();
        if status.is_success() && media_type.eq_ignore_ascii_case("text/event-stream") {
            return self.pass_events_on(Some(message), response.into_body()).await;
        }
        let collected = Limited::new(response.into_body(), MAX_MESSAGE_BYTES).collect().await;
        let body = collected.map(|collected| collected.to_bytes()).unwrap_or_default();
        let said = Message::read(&body);
        if said.as_ref().is_some_and(|said| said.answers(message)) {
            self.learn(message, &body);
            self.say(one_line(&body)).await;
            return true;
        }
        if message.id().is_none() {
            if !status.is_success() {
                let text = String::from_utf8_lossy(&body);
                tracing::warn!(%status, answer = text.chars().take(500).collect::<String>(), "a notification is refused");
            }
            return true;
        }
        // Anything else, such as a problem document of this proxy, becomes the error of the request.
        let problem = std::str::from_utf8(&body)
            .ok()
            .filter(|text| serde_json::from_str::<&RawValue>(text).is_ok());
        let title = format!("The request is answered with {status}.");
        let code = i32::from(status.as_u16());
        self.say(request_failed(message.raw_id(), code, &title, problem)).await;
        true
    }

    /// Passes the messages of a stream on, each as soon as it is there.
    async fn pass_events_on(&self, message: Option<&Message<'_>>, mut body: Body) -> bool {
        let mut events = Events::new(MAX_MESSAGE_BYTES);
        let mut is_answered = false;
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
            if events.is_too_long() {
                tracing::error!("a message of the server has more than {MAX_MESSAGE_BYTES} bytes");
                break;
            }
        }
        is_answered
    }

    /// Notes what later requests need.
    fn learn(&self, message: &Message<'_>, answer: &[u8]) {
        if message.begins_session() {
            let version = Message::read(answer).and_then(|said| said.agreed_version());
            let version = version.and_then(|version| HeaderValue::from_str(&version).ok());
            self.session.lock().unwrap_or_else(PoisonError::into_inner).version = version;
        }
        if message.lists_tools() {
            self.parameters
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .learn(answer);
        }
    }

    /// Listens to what the server says of itself, in versions with sessions, until it does not want that.
    async fn listen(&self) {
        let mut pause = SHORTEST_PAUSE;
        loop {
            let mut headers = self.session_headers();
            headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
            let response = self.request(Method::GET, headers, empty()).await;
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
        if self.session.lock().unwrap_or_else(PoisonError::into_inner).id.is_some() {
            let ended = self.request(Method::DELETE, self.session_headers(), empty());
            let _ = tokio::time::timeout(LAST_ANSWERS, ended).await;
        }
    }

    /// Ends a request whose version has no sessions: closing its stream tells the server.
    fn cancel(&self, id: &str) {
        let has_session = self
            .session
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .version
            .is_some();
        if !has_session && let Some(handle) = self.running.lock().unwrap_or_else(PoisonError::into_inner).remove(id) {
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
            Ok(exchanged) => limited(exchanged.response, self.limits.stream(), ()),
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
                let parameters = self.parameters.lock().unwrap_or_else(PoisonError::into_inner);
                let mirrored = message.mirrored();
                let all = [(VERSION.to_owned(), version)]
                    .into_iter()
                    .chain(mirrored)
                    .chain(parameters.of(message));
                for (name, text) in all {
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
        let Session { id, version } = self.session.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let named = [(SESSION, id), (VERSION, version)].into_iter();
        let present = named.filter_map(|(name, value)| Some((HeaderName::from_static(name), value?)));
        present.collect()
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

/// Reads a line of limited length. False at the end.
async fn next_line(input: &mut BufReader<tokio::io::Stdin>, line: &mut Vec<u8>) -> io::Result<bool> {
    loop {
        line.clear();
        let read = input.take(MAX_MESSAGE_BYTES as u64 + 1).read_until(b'\n', line).await?;
        if read == 0 {
            return Ok(false);
        }
        if line.len() > MAX_MESSAGE_BYTES {
            return Err(io::Error::other(format!(
                "a message has more than {MAX_MESSAGE_BYTES} bytes"
            )));
        }
        if !line.trim_ascii().is_empty() {
            *line = line.trim_ascii().to_vec();
            return Ok(true);
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

fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed()
}

const SESSION: &str = "mcp-session-id";
const VERSION: &str = "mcp-protocol-version";
const MAX_MESSAGE_BYTES: usize = 8 << 20;
const LINES_WAITING: usize = 64;
/// For answers that are under way when standard input ends.
const LAST_ANSWERS: Duration = Duration::from_secs(5);
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
