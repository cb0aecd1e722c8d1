//! A control plane in its own folder, and its clients.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use credence_control_plane::{Config, ControlPlane, InitOptions, MAX_CACHE_KEY_ROTATION, Running, StartError};
use credence_wire::v1;
use credence_wire::v1::audit_service_client::AuditServiceClient;
use credence_wire::v1::report_request::Message as ReportMessage;
use credence_wire::v1::report_response::Message as ReportAnswer;
use credence_wire::v1::revocation_service_client::RevocationServiceClient;
use credence_wire::v1::watch_request::Message as WatchMessage;
use credence_wire::v1::watch_response::Message as WatchAnswer;
use prost::Message as _;
use redb::{Database, ReadableDatabase as _, TableDefinition};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

pub(crate) const TOKEN: &str = "an-operator-token-of-enough-length";
pub(crate) const ISSUER: &str = "https://id.example.com";

/// The revocation log.
pub(crate) const LOG_FILE: &str = "log/state.redb";

/// The notes in the log's file.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Notes {
    /// Seconds since the Unix epoch.
    #[prost(int64, optional, tag = "1")]
    pub(crate) clock: Option<i64>,
    /// Encoded.
    #[prost(bytes = "vec", optional, tag = "2")]
    pub(crate) forgotten: Option<Vec<u8>>,
    #[prost(uint64, tag = "3")]
    pub(crate) leases_ms: u64,
}

const NOTES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("notes");

/// A data folder with a token file beside it.
pub(crate) struct Place {
    folder: Arc<tempfile::TempDir>,
}

impl Place {
    pub(crate) fn new() -> Self {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("token");
        std::fs::write(&token, format!("{TOKEN}\n")).unwrap();
        std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
        Self {
            folder: Arc::new(folder),
        }
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.folder.path().join("data").join(below)
    }

    /// Free ports, no drain promise, and an empty log if there is none yet.
    pub(crate) fn config(&self) -> Config {
        let mut config = Config::new(self.path(""), Some(self.folder.path().join("token")));
        config.http_address.set_port(0);
        config.grpc_address.set_port(0);
        config.log.drain_promise = Duration::ZERO;
        // Rotates keys only in tests that wait for it.
        config.log.cache_key_rotation = MAX_CACHE_KEY_ROTATION;
        config.log.init = (!self.path("log").exists()).then_some(InitOptions { floor: false });
        config
    }

    /// The time of the log's clock.
    pub(crate) fn clock(&self) -> i64 {
        self.notes().clock.unwrap()
    }

    /// Sets the log's clock as if a control plane had left it there.
    pub(crate) fn set_clock(&self, seconds: i64) {
        let notes = Notes {
            clock: Some(seconds),
            ..self.notes()
        };
        let database = Database::open(self.path(LOG_FILE)).unwrap();
        let transaction = database.begin_write().unwrap();
        let mut rows = transaction.open_table(NOTES).unwrap();
        rows.insert("notes", notes.encode_to_vec().as_slice()).unwrap();
        drop(rows);
        transaction.commit().unwrap();
    }

    /// The notes beside the log. They are read from a copy, since only one process at a time can open the file.
    pub(crate) fn notes(&self) -> Notes {
        let copy = tempfile::NamedTempFile::new().unwrap();
        std::fs::copy(self.path(LOG_FILE), copy.path()).unwrap();
        let database = Database::open(copy.path()).unwrap();
        let rows = database.begin_read().unwrap().open_table(NOTES).unwrap();
        Notes::decode(rows.get("notes").unwrap().unwrap().value()).unwrap()
    }

    /// Flips a bit of the last occurrence of this text in the log's file.
    pub(crate) fn flip_in_log(&self, text: &str) {
        let path = self.path(LOG_FILE);
        let mut bytes = std::fs::read(&path).unwrap();
        let at = bytes.windows(text.len()).rposition(|window| window == text.as_bytes());
        bytes[at.unwrap()] ^= 1;
        std::fs::write(path, bytes).unwrap();
    }

    /// Starts a control plane that has not announced that it is ready.
    pub(crate) async fn start_unannounced(&self) -> Server {
        self.serving(ControlPlane::start(self.config()).await.unwrap())
    }

    pub(crate) async fn start(&self) -> Server {
        self.start_with(|_| {}).await
    }

    pub(crate) async fn start_with(&self, change: impl FnOnce(&mut Config)) -> Server {
        self.try_start(change).await.unwrap()
    }

    pub(crate) async fn try_start(&self, change: impl FnOnce(&mut Config)) -> Result<Server, StartError> {
        let mut config = self.config();
        change(&mut config);
        let mut attempts = 0;
        let running = loop {
            match ControlPlane::start(config.clone()).await {
                // A program that another test starts at this moment holds the lock of this process for an instant.
                Err(StartError::DataDir(error)) if attempts < 20 && error.to_string().contains(&own_process()) => {
                    attempts += 1;
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                started => break started?,
            }
        };
        running.announce_ready();
        Ok(self.serving(running))
    }

    fn serving(&self, running: Running) -> Server {
        Server {
            _folder: Some(Arc::clone(&self.folder)),
            ..Server::of(running)
        }
    }
}

/// How an error names this process.
fn own_process() -> String {
    format!("process {} ", std::process::id())
}

/// A running control plane. Dropping it acts like a crash.
pub(crate) struct Server {
    pub(crate) running: Running,
    /// Keeps the folder: a control plane without its folder acknowledges nothing.
    _folder: Option<Arc<tempfile::TempDir>>,
}

/// An HTTP answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) retry_after: Option<u64>,
    pub(crate) content_type: String,
    pub(crate) etag: Option<String>,
    pub(crate) cache_control: Option<String>,
    pub(crate) text: String,
}

impl Answer {
    /// For a revocation: whether it is durable, confirmed or not.
    pub(crate) fn is_committed(&self) -> bool {
        matches!(self.status, 200 | 202)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }
}

impl Server {
    /// A control plane whose folder the caller keeps.
    pub(crate) fn of(running: Running) -> Self {
        Self { running, _folder: None }
    }

    pub(crate) fn log_id(&self) -> String {
        self.running.log_id().to_string()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.running.http_address())
    }

    /// Revokes and expects success, whether or not filters have applied it.
    pub(crate) async fn revoke(&self, body: Value) -> Value {
        let answer = self.try_revoke(body).await;
        assert!(answer.is_committed(), "{answer:?}");
        answer.json()
    }

    pub(crate) async fn try_revoke(&self, body: Value) -> Answer {
        let path = "/v1/revocations?wait=committed";
        self.post(path, body.to_string(), &[&format!("Bearer {TOKEN}")]).await
    }

    /// Revokes in a new task and waits for the filters.
    pub(crate) fn revoke_in_background(&self, body: Value) -> impl Future<Output = Answer> + Send + use<> {
        let request = ureq::http::Request::post(self.url("/v1/revocations"))
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {TOKEN}"));
        send(request.body(body.to_string()).unwrap())
    }

    /// The same, returning only the status.
    pub(crate) fn post_in_background(&self, body: Value) -> impl Future<Output = u16> + Send + use<> {
        let answer = self.revoke_in_background(body);
        async move { answer.await.status }
    }

    pub(crate) async fn post(&self, path: &str, body: String, authorization: &[&str]) -> Answer {
        let mut request = ureq::http::Request::post(self.url(path)).header("content-type", "application/json");
        for value in authorization {
            request = request.header("authorization", *value);
        }
        send(request.body(body).unwrap()).await
    }

    /// Sends a body of any type, without a credential.
    pub(crate) async fn send(&self, path: &str, content_type: &str, body: &str) -> Answer {
        let request = ureq::http::Request::post(self.url(path)).header("content-type", content_type);
        send(request.body(body.to_owned()).unwrap()).await
    }

    /// The status of a request of any method.
    pub(crate) async fn any(&self, method: &str, path: &str, token: &str) -> u16 {
        let request = ureq::http::Request::builder()
            .method(method.to_uppercase().as_str())
            .uri(self.url(path))
            .header("authorization", format!("Bearer {token}"));
        send(request.body(String::new()).unwrap()).await.status
    }

    /// Waits until a metric has the value.
    pub(crate) async fn wait_for(&self, line: &str) {
        let begin = std::time::Instant::now();
        loop {
            let metrics = self.get("/metrics", &[]).await.text;
            if metrics.lines().any(|found| found == line) {
                return;
            }
            assert!(begin.elapsed() < Duration::from_secs(10), "no {line} in {metrics}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Sends a request with the operator's token and these headers.
    pub(crate) async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let mut request = ureq::http::Request::get(self.url(path)).header("authorization", format!("Bearer {TOKEN}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        send(request.body(String::new()).unwrap()).await
    }

    pub(crate) async fn get(&self, path: &str, authorization: &[&str]) -> Answer {
        let mut request = ureq::http::Request::get(self.url(path));
        for value in authorization {
            request = request.header("authorization", *value);
        }
        send(request.body(String::new()).unwrap()).await
    }

    /// The log's state of a principal of [`ISSUER`], with its history.
    pub(crate) async fn history_of(&self, subject: &str) -> Value {
        let path = format!("/v1/principals?issuer={ISSUER}&subject={subject}");
        let answer = self.get(&path, &[&format!("Bearer {TOKEN}")]).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json()
    }

    /// Every record that matches the conditions, newest first.
    pub(crate) async fn events(&self, conditions: &str) -> Vec<Value> {
        let answer = self
            .get(&format!("/v1/audit/events{conditions}"), &[&format!("Bearer {TOKEN}")])
            .await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json()["events"].as_array().unwrap().clone()
    }

    pub(crate) async fn channel(&self) -> Channel {
        self.try_channel().await.unwrap()
    }

    pub(crate) async fn try_channel(&self) -> Result<Channel, tonic::transport::Error> {
        Channel::from_shared(format!("http://{}", self.running.grpc_address()))
            .unwrap()
            .connect()
            .await
    }

    /// A watch stream that has sent nothing yet.
    pub(crate) async fn open_watch(&self) -> Result<Watcher, Status> {
        self.watch_as(None).await
    }

    /// The same with this value of the metadata `authorization`.
    pub(crate) async fn watch_as(&self, authorization: Option<&str>) -> Result<Watcher, Status> {
        self.watch_on(self.channel().await, authorization).await
    }

    pub(crate) async fn watch_on(&self, channel: Channel, authorization: Option<&str>) -> Result<Watcher, Status> {
        let (requests, queue) = mpsc::channel(16);
        let mut client = RevocationServiceClient::new(channel);
        let request = authorized(ReceiverStream::new(queue), authorization);
        let responses = client.watch(request).await?.into_inner();
        Ok(Watcher { requests, responses })
    }

    /// A watch stream that has said hello for this log.
    pub(crate) async fn watch(&self, applied: Option<v1::Position>) -> Watcher {
        let watcher = self.open_watch().await.unwrap();
        watcher.hello(&self.log_id(), applied).await;
        watcher
    }

    /// A watch stream that has reached the head, and the records of its snapshot.
    pub(crate) async fn watch_from_snapshot(&self) -> (Watcher, v1::Position, Vec<v1::Record>) {
        let mut watcher = self.watch(None).await;
        let snapshot = watcher.welcome().await.snapshot.unwrap();
        let mut records = Vec::new();
        for index in 0..snapshot.chunks {
            records.extend(watcher.pull(index).await.records);
        }
        (watcher, snapshot.position.unwrap(), records)
    }

    /// A watch stream at the head of the log, like a filter's.
    pub(crate) async fn watch_in_step(&self) -> Watcher {
        let (mut watcher, ..) = self.watch_from_snapshot().await;
        watcher.ping(1).await;
        watcher
    }

    /// A stream of a filter that confirms what it has applied, at the head of the log: it may be fresh.
    pub(crate) async fn filter(&self) -> Watcher {
        self.filter_as(None, v1::WatchHello::default()).await.unwrap()
    }

    /// The same with this value of the metadata `authorization`, and these further fields of the hello.
    pub(crate) async fn filter_as(
        &self,
        authorization: Option<&str>,
        hello: v1::WatchHello,
    ) -> Result<Watcher, Status> {
        let mut watcher = self.watch_as(authorization).await?;
        let hello = v1::WatchHello {
            log_id: self.log_id(),
            confirms: true,
            ..hello
        };
        watcher.say(WatchMessage::Hello(hello)).await;
        let welcome = watcher.welcome().await;
        for index in 0..welcome.snapshot.map_or(0, |snapshot| snapshot.chunks) {
            watcher.pull(index).await;
        }
        watcher.apply(welcome.head).await;
        watcher.ping(1).await;
        Ok(watcher)
    }

    /// Stops as planned. Returns how long this stream may stay fresh.
    pub(crate) async fn stop_before(self, watcher: &mut Watcher) -> u32 {
        let stopping = tokio::spawn(self.running.shutdown());
        let drain = match watcher.next().await.unwrap() {
            WatchAnswer::Drain(drain) => drain,
            other => panic!("{other:?}"),
        };
        stopping.await.unwrap();
        drain.promise_ms
    }

    /// An audit stream that has said hello and got its welcome.
    pub(crate) async fn report(
        &self,
        resume: Option<v1::SourceTicket>,
    ) -> Result<(Reporter, v1::ReportWelcome), Status> {
        self.report_as(None, resume).await
    }

    /// The same with this value of the metadata `authorization`.
    pub(crate) async fn report_as(
        &self,
        authorization: Option<&str>,
        resume: Option<v1::SourceTicket>,
    ) -> Result<(Reporter, v1::ReportWelcome), Status> {
        self.report_on(self.channel().await, authorization, resume).await
    }

    pub(crate) async fn report_on(
        &self,
        channel: Channel,
        authorization: Option<&str>,
        resume: Option<v1::SourceTicket>,
    ) -> Result<(Reporter, v1::ReportWelcome), Status> {
        let (requests, queue) = mpsc::channel(16);
        let mut client = AuditServiceClient::new(channel);
        let hello = v1::ReportHello {
            node: "node-1".to_owned(),
            plugin: "plugin-1".to_owned(),
            resume,
            anchors_digest: Vec::new(),
            acknowledged: 0,
        };
        requests
            .send(v1::ReportRequest {
                message: Some(ReportMessage::Hello(hello)),
            })
            .await
            .unwrap();
        let responses = client
            .report(authorized(ReceiverStream::new(queue), authorization))
            .await?
            .into_inner();
        let mut reporter = Reporter { requests, responses };
        match reporter.next().await? {
            ReportAnswer::Welcome(welcome) => Ok((reporter, welcome)),
            other => panic!("{other:?}"),
        }
    }
}

fn authorized<M>(message: M, authorization: Option<&str>) -> tonic::Request<M> {
    let mut request = tonic::Request::new(message);
    if let Some(authorization) = authorization {
        request
            .metadata_mut()
            .insert("authorization", authorization.parse().unwrap());
    }
    request
}

async fn send(request: ureq::http::Request<String>) -> Answer {
    tokio::task::spawn_blocking(move || {
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let mut response = agent.run(request).unwrap();
        let header = |name| {
            response
                .headers()
                .get(name)
                .map(|value| value.to_str().unwrap().to_owned())
        };
        Answer {
            status: response.status().as_u16(),
            retry_after: header("retry-after").map(|value| value.parse().unwrap()),
            content_type: header("content-type").unwrap_or_default(),
            etag: header("etag"),
            cache_control: header("cache-control"),
            text: response.body_mut().read_to_string().unwrap(),
        }
    })
    .await
    .unwrap()
}

/// A client of `RevocationService.Watch`.
pub(crate) struct Watcher {
    requests: mpsc::Sender<v1::WatchRequest>,
    responses: Streaming<v1::WatchResponse>,
}

impl Watcher {
    pub(crate) async fn say(&self, message: WatchMessage) {
        self.requests
            .send(v1::WatchRequest { message: Some(message) })
            .await
            .unwrap();
    }

    pub(crate) async fn hello(&self, log_id: &str, applied: Option<v1::Position>) {
        let hello = v1::WatchHello {
            log_id: log_id.to_owned(),
            applied,
            node: "node-1".to_owned(),
            ..Default::default()
        };
        self.say(WatchMessage::Hello(hello)).await;
    }

    pub(crate) async fn apply(&self, seq: u64) {
        self.say(WatchMessage::Applied(v1::Applied { seq })).await;
    }

    /// The next message. An error too if the server ends the stream without one.
    pub(crate) async fn next(&mut self) -> Result<WatchAnswer, Status> {
        let next = tokio::time::timeout(Duration::from_secs(5), self.responses.message());
        let message = next.await.expect("the server said nothing for 5 s")?;
        message
            .map(|message| message.message.unwrap())
            .ok_or_else(|| Status::ok("the stream ended"))
    }

    /// Waits longer than for an answer.
    pub(crate) async fn refusal_within(&mut self, limit: Duration) -> (Code, String) {
        match tokio::time::timeout(limit, self.responses.message()).await.unwrap() {
            Ok(message) => panic!("{message:?}"),
            Err(status) => (status.code(), status.message().to_owned()),
        }
    }

    pub(crate) async fn refusal(&mut self) -> (Code, String) {
        match self.next().await {
            Ok(message) => panic!("{message:?}"),
            Err(status) => (status.code(), status.message().to_owned()),
        }
    }

    pub(crate) async fn welcome(&mut self) -> v1::Welcome {
        match self.next().await.unwrap() {
            WatchAnswer::Welcome(welcome) => welcome,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn pull(&mut self, index: u32) -> v1::SnapshotChunk {
        self.say(WatchMessage::Pull(v1::PullChunk { index })).await;
        match self.next().await.unwrap() {
            WatchAnswer::Chunk(chunk) => chunk,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn update(&mut self) -> v1::Update {
        match self.next().await.unwrap() {
            WatchAnswer::Update(update) => update,
            other => panic!("{other:?}"),
        }
    }

    /// Pings. Returns the updates before the pong, and the pong's head.
    pub(crate) async fn ping(&mut self, id: u64) -> (Vec<v1::Update>, u64) {
        self.say(WatchMessage::Ping(v1::Ping { id })).await;
        let mut updates = Vec::new();
        loop {
            match self.next().await.unwrap() {
                WatchAnswer::Update(update) => updates.push(update),
                WatchAnswer::Pong(pong) => {
                    assert_eq!(pong.id, id);
                    return (updates, pong.head);
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

/// A client of `AuditService.Report`.
pub(crate) struct Reporter {
    requests: mpsc::Sender<v1::ReportRequest>,
    responses: Streaming<v1::ReportResponse>,
}

impl Reporter {
    pub(crate) async fn say(&self, message: ReportMessage) {
        self.requests
            .send(v1::ReportRequest { message: Some(message) })
            .await
            .unwrap();
    }

    pub(crate) async fn batch(&self, first_sequence: u64, entries: Vec<v1::Entry>) {
        self.say(ReportMessage::Batch(v1::Batch {
            first_sequence,
            entries,
        }))
        .await;
    }

    pub(crate) async fn next(&mut self) -> Result<ReportAnswer, Status> {
        let next = tokio::time::timeout(Duration::from_secs(5), self.responses.message());
        let message = next.await.expect("the server said nothing for 5 s")?;
        message
            .map(|message| message.message.unwrap())
            .ok_or_else(|| Status::ok("the stream ended"))
    }

    pub(crate) async fn acknowledged(&mut self) -> u64 {
        match self.next().await.unwrap() {
            ReportAnswer::Acknowledgement(acknowledgement) => acknowledgement.through,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn refusal(&mut self) -> (Code, String) {
        match self.next().await {
            Ok(message) => panic!("{message:?}"),
            Err(status) => (status.code(), status.message().to_owned()),
        }
    }
}

/// An allowed decision of this tool.
pub(crate) fn event(tool: &str) -> v1::Entry {
    let principal = v1::Principal {
        issuer: ISSUER.to_owned(),
        subject: Some("alice".to_owned()),
    };
    let event = v1::Event {
        time_unix_nano: 1_800_000_000_000_000_000,
        tool: tool.to_owned(),
        decision: v1::Decision::Allow.into(),
        mode: v1::Mode::Enforce.into(),
        principal: Some(principal),
        delegation_ids: vec!["root".to_owned(), "leaf".to_owned()],
        ..Default::default()
    };
    v1::Entry {
        entry: Some(v1::entry::Entry::Event(event)),
    }
}

pub(crate) fn events(tools: &[&str]) -> Vec<v1::Entry> {
    tools.iter().map(|tool| event(tool)).collect()
}

pub(crate) fn raise(subject: &str) -> Value {
    json!({"principal": {"issuer": ISSUER, "subject": subject}})
}

pub(crate) fn delegation(id: &str) -> Value {
    json!({"delegation": {"issuer": ISSUER, "subject": "alice", "id": id}})
}

/// The digest of a client that has applied this log's updates from the start, as revocation.proto documents it.
pub(crate) fn digest_after(log_id: &str, records: &[v1::Record]) -> Vec<u8> {
    use prost::Message;
    let mut digest = Sha256::digest(log_id).to_vec();
    for record in records {
        digest = Sha256::digest([digest, record.encode_to_vec()].concat()).to_vec();
    }
    digest
}
