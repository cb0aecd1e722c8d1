//! Evidence as OTLP logs, received by a collector that decodes OpenTelemetry's own messages.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response as HttpResponse};
use axum::routing::post;
use credence_control_plane::{AuditSettings, OtlpHeaders, OtlpProtocol, OtlpSettings, StartError};
use credence_wire::v1;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::{LogsService, LogsServiceServer};
use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsPartialSuccess, ExportLogsServiceRequest, ExportLogsServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, SeverityNumber};
use prost::Message as _;
use redb::{Database, ReadableDatabase as _, TableDefinition};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tonic::{Request, Response, Status};

use super::harness::{ISSUER, Place, Server, TOKEN, event, events};

/// A collector that gives these answers, and then accepts everything.
#[derive(Clone)]
struct Collector {
    answers: Arc<Mutex<Vec<Answer>>>,
    taken: mpsc::UnboundedSender<Taken>,
}

/// Its answers before it accepts everything, last first.
#[derive(Clone, Copy)]
enum Answer {
    Unavailable,
    Unauthenticated,
    TooLarge,
    Bad,
    Partly,
}

/// An accepted request.
struct Taken {
    request: ExportLogsServiceRequest,
    api_key: Option<String>,
}

impl Collector {
    fn new(answers: &[Answer]) -> (Self, mpsc::UnboundedReceiver<Taken>) {
        let (taken, requests) = mpsc::unbounded_channel();
        let answers = Arc::new(Mutex::new(answers.to_vec()));
        (Self { answers, taken }, requests)
    }

    /// As OTLP/gRPC; returns its endpoint.
    async fn grpc(self, address: &str) -> String {
        let listener = TcpListener::bind(address).await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
        let server = tonic::transport::Server::builder().add_service(LogsServiceServer::new(self));
        tokio::spawn(server.serve_with_incoming(incoming));
        endpoint
    }

    /// As OTLP/HTTP.
    async fn http(self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().route("/v1/logs", post(take)).with_state(self);
        tokio::spawn(async move { axum::serve(listener, router).await });
        endpoint
    }

    fn answer(&self) -> Option<Answer> {
        self.answers.lock().unwrap().pop()
    }

    fn take(&self, request: ExportLogsServiceRequest, api_key: Option<String>) {
        // The test may have stopped receiving.
        let _ = self.taken.send(Taken { request, api_key });
    }
}

fn partly() -> ExportLogsServiceResponse {
    ExportLogsServiceResponse {
        partial_success: Some(ExportLogsPartialSuccess {
            rejected_log_records: 1,
            error_message: "too old".to_owned(),
        }),
    }
}

#[tonic::async_trait]
impl LogsService for Collector {
    async fn export(
        &self,
        request: Request<ExportLogsServiceRequest>,
    ) -> Result<Response<ExportLogsServiceResponse>, Status> {
        let api_key = request
            .metadata()
            .get("api-key")
            .map(|key| key.to_str().unwrap().to_owned());
        let answer = match self.answer() {
            Some(Answer::Unavailable) => return Err(Status::unavailable("starting")),
            Some(Answer::Unauthenticated) => return Err(Status::unauthenticated("who?")),
            Some(Answer::TooLarge) => return Err(Status::resource_exhausted("larger than max")),
            Some(Answer::Bad) => return Err(Status::invalid_argument("bad")),
            Some(Answer::Partly) => partly(),
            None => ExportLogsServiceResponse::default(),
        };
        self.take(request.into_inner(), api_key);
        Ok(Response::new(answer))
    }
}

async fn take(State(collector): State<Collector>, headers: HeaderMap, body: Bytes) -> HttpResponse {
    assert_eq!(headers["content-type"], "application/x-protobuf");
    let answer = match collector.answer() {
        Some(Answer::Unavailable) => return (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "1")]).into_response(),
        Some(Answer::Unauthenticated) => return StatusCode::UNAUTHORIZED.into_response(),
        Some(Answer::TooLarge) => return StatusCode::PAYLOAD_TOO_LARGE.into_response(),
        Some(Answer::Bad) => return StatusCode::BAD_REQUEST.into_response(),
        Some(Answer::Partly) => partly(),
        None => ExportLogsServiceResponse::default(),
    };
    let api_key = headers.get("api-key").map(|key| key.to_str().unwrap().to_owned());
    collector.take(ExportLogsServiceRequest::decode(body).unwrap(), api_key);
    ([("content-type", "application/x-protobuf")], answer.encode_to_vec()).into_response()
}

async fn start(place: &Place, endpoint: &str, protocol: OtlpProtocol) -> Server {
    try_start(place, endpoint, protocol).await.unwrap()
}

async fn try_start(place: &Place, endpoint: &str, protocol: OtlpProtocol) -> Result<Server, StartError> {
    place
        .try_start(|config| {
            config.settings.audit = AuditSettings {
                otlp: Some(OtlpSettings {
                    endpoint: endpoint.to_owned(),
                    protocol,
                    headers: OtlpHeaders([("api-key".to_owned(), "k".to_owned())].into()),
                    ca: None,
                }),
            };
        })
        .await
}

/// The accepted records, up to the one of this index.
async fn until(requests: &mut mpsc::UnboundedReceiver<Taken>, last: i64) -> Vec<LogRecord> {
    let mut records = Vec::new();
    loop {
        let next = tokio::time::timeout(Duration::from_secs(30), requests.recv()).await;
        let Taken { request, api_key } = next.expect("evidence is sent").unwrap();
        assert_eq!(api_key.as_deref(), Some("k"));
        for logs in request.resource_logs {
            let service = logs.resource.unwrap().attributes;
            assert!(service.iter().any(|attribute| attribute.key == "service.name"));
            records.extend(logs.scope_logs.into_iter().flat_map(|scope| scope.log_records));
        }
        if records.last().map(index) == Some(last) {
            return records;
        }
    }
}

fn attribute<'a>(record: &'a LogRecord, key: &str) -> Option<&'a Value> {
    let found = record.attributes.iter().find(|attribute| attribute.key == key)?;
    found.value.as_ref()?.value.as_ref()
}

fn index(record: &LogRecord) -> i64 {
    match attribute(record, "credence.ledger.index") {
        Some(Value::IntValue(index)) => *index,
        other => panic!("{other:?}"),
    }
}

fn indexes(records: &[LogRecord]) -> Vec<i64> {
    records.iter().map(index).collect()
}

fn text(text: &str) -> Option<Value> {
    Some(Value::StringValue(text.to_owned()))
}

#[tokio::test]
async fn a_decision_arrives_in_opentelemetrys_words() {
    let (collector, mut requests) = Collector::new(&[]);
    let endpoint = collector.grpc("127.0.0.1:0").await;
    let place = Place::new();
    let server = start(&place, &endpoint, OtlpProtocol::Grpc).await;
    let (reporter, _) = server.report(None).await.unwrap();
    let mut denied = event("payments.send");
    let Some(v1::entry::Entry::Event(decision)) = &mut denied.entry else {
        panic!("{denied:?}");
    };
    decision.decision = v1::Decision::Deny.into();
    decision.reason = "expired".to_owned();
    decision.trace_id = "4bf92f3577b34da6a3ce929d0e0e4736".to_owned();
    decision.method = "POST".to_owned();
    decision.authority = "shop.example.com:8443".to_owned();
    decision.path_template = "/pay/{id}".to_owned();
    decision.response_status = 401;
    reporter.batch(1, vec![denied]).await;
    let records = until(&mut requests, 1).await;
    assert_eq!(records[0].event_name, "credence.source");
    let record = &records[1];
    assert_eq!(record.event_name, "credence.decision");
    assert_eq!(record.time_unix_nano, 1_800_000_000_000_000_000);
    assert!(record.observed_time_unix_nano > 0);
    assert_eq!(record.severity_number, i32::from(SeverityNumber::Warn));
    assert_eq!(record.trace_id[..2], [0x4b, 0xf9]);
    for (key, expected) in [
        ("credence.decision", text("deny")),
        ("credence.reason", text("expired")),
        ("credence.tool", text("payments.send")),
        ("credence.principal.subject", text("alice")),
        ("http.request.method", text("POST")),
        ("url.template", text("/pay/{id}")),
        ("server.address", text("shop.example.com")),
        ("server.port", Some(Value::IntValue(8443))),
        ("http.response.status_code", Some(Value::IntValue(401))),
        ("credence.arguments", None),
    ] {
        assert_eq!(attribute(record, key), expected.as_ref(), "{key}");
    }
    server.wait_for("credence_otlp_sent_total 2").await;
    server.wait_for("credence_otlp_waiting 0").await;
}

#[tokio::test]
async fn over_http_everything_arrives_in_order_after_any_answer() {
    let answers = [Answer::TooLarge, Answer::Unauthenticated, Answer::Unavailable];
    let (collector, mut requests) = Collector::new(&answers);
    let endpoint = collector.http().await;
    let place = Place::new();
    let server = place.start().await;
    let (mut reporter, _) = server.report(None).await.unwrap();
    for batch in 0..5 {
        reporter.batch(batch * 1000 + 1, events(&["a"; 1000])).await;
        reporter.acknowledged().await;
    }
    drop(server);
    let server = start(&place, &endpoint, OtlpProtocol::Http).await;
    let records = until(&mut requests, 5000).await;
    assert_eq!(indexes(&records), (0..=5000).collect::<Vec<_>>());
    server.wait_for("credence_otlp_sent_total 5001").await;
    server.wait_for("credence_otlp_failures_total 2").await;
}

#[tokio::test]
async fn refused_records_are_counted_and_the_others_are_sent() {
    let (collector, mut requests) = Collector::new(&[Answer::Partly, Answer::Bad]);
    let endpoint = collector.grpc("127.0.0.1:0").await;
    let place = Place::new();
    let server = start(&place, &endpoint, OtlpProtocol::Grpc).await;
    let (reporter, _) = server.report(None).await.unwrap();
    // The source's start is refused as a whole.
    server.wait_for("credence_otlp_refused_total 1").await;
    reporter.batch(1, events(&["a", "b"])).await;
    assert_eq!(indexes(&until(&mut requests, 2).await), [1, 2]);
    server.wait_for("credence_otlp_refused_total 2").await;
    server.wait_for("credence_otlp_sent_total 1").await;
}

#[tokio::test]
async fn a_dead_collector_delays_nothing_and_gets_everything_once_it_is_back() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let place = Place::new();
    let server = start(&place, &format!("http://{address}"), OtlpProtocol::Grpc).await;
    let (mut reporter, _) = server.report(None).await.unwrap();
    reporter.batch(1, events(&["a", "b"])).await;
    assert_eq!(reporter.acknowledged().await, 2);
    server.wait_for("credence_otlp_failures_total 1").await;
    drop(server);
    let server = start(&place, &format!("http://{address}"), OtlpProtocol::Grpc).await;
    let (collector, mut requests) = Collector::new(&[]);
    collector.grpc(&address).await;
    assert_eq!(indexes(&until(&mut requests, 2).await), [0, 1, 2]);
    server.wait_for("credence_otlp_waiting 0").await;
}

#[tokio::test]
async fn records_erased_while_the_collector_is_down_are_not_sent_later() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let place = Place::new();
    let server = place.start().await;
    let (mut reporter, _) = server.report(None).await.unwrap();
    reporter.batch(1, events(&["a", "b"])).await;
    reporter.acknowledged().await;
    drop((reporter, server));
    // It has already tried to send them.
    let server = start(&place, &format!("http://{address}"), OtlpProtocol::Grpc).await;
    server.wait_for("credence_otlp_failures_total 1").await;
    let whom = json!({"principal": {"issuer": ISSUER, "subject": "alice"}, "reason": "request 17"});
    let authorization = format!("Bearer {TOKEN}");
    let erased = server
        .post("/v1/audit/erasures", whom.to_string(), &[&authorization])
        .await;
    assert_eq!(erased.status, 200, "{}", erased.text);
    let (collector, mut requests) = Collector::new(&[]);
    collector.grpc(&address).await;
    let records = until(&mut requests, erased.json()["index"].as_i64().unwrap()).await;
    let names: Vec<_> = records[1..3].iter().map(|record| record.event_name.as_str()).collect();
    assert_eq!(names, ["credence.erased"; 2]);
    assert!(!format!("{records:?}").contains("alice"), "{records:?}");
}

#[tokio::test]
async fn after_a_restart_it_goes_on_where_it_was() {
    let (collector, mut requests) = Collector::new(&[]);
    let endpoint = collector.grpc("127.0.0.1:0").await;
    let place = Place::new();
    let server = start(&place, &endpoint, OtlpProtocol::Grpc).await;
    let (reporter, _) = server.report(None).await.unwrap();
    reporter.batch(1, events(&["a"])).await;
    until(&mut requests, 1).await;
    let begun = std::time::Instant::now();
    while cursor(&place.path(FOLLOWERS)) != Some(2) {
        assert!(begun.elapsed() < Duration::from_secs(10));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(server);
    let server = start(&place, &endpoint, OtlpProtocol::Grpc).await;
    let (reporter, _) = server.report(None).await.unwrap();
    reporter.batch(1, events(&["b"])).await;
    let records = until(&mut requests, 3).await;
    assert_eq!(indexes(&records), [2, 3]);
}

/// The position up to which evidence was sent, read from a copy, since the file is locked.
fn cursor(file: &std::path::Path) -> Option<u64> {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy");
    std::fs::copy(file, &copy).unwrap();
    let database = Database::open(&copy).ok()?;
    let transaction = database.begin_read().ok()?;
    let table = TableDefinition::<&str, u64>::new("next");
    let next = transaction.open_table(table).ok()?.get("otlp").ok()??;
    Some(next.value())
}

#[tokio::test]
async fn a_cursor_that_cannot_be_read_is_refused_with_the_cure() {
    let (collector, mut requests) = Collector::new(&[]);
    let endpoint = collector.grpc("127.0.0.1:0").await;
    let place = Place::new();
    let server = start(&place, &endpoint, OtlpProtocol::Grpc).await;
    let (reporter, _) = server.report(None).await.unwrap();
    reporter.batch(1, events(&["a"])).await;
    until(&mut requests, 1).await;
    drop(server);
    std::fs::write(place.path(FOLLOWERS), "two records").unwrap();
    let refused = try_start(&place, &endpoint, OtlpProtocol::Grpc)
        .await
        .err()
        .unwrap()
        .to_string();
    assert!(
        refused.contains(FOLLOWERS) && refused.contains("or remove it"),
        "{refused}"
    );
    std::fs::remove_file(place.path(FOLLOWERS)).unwrap();
    let server = start(&place, &endpoint, OtlpProtocol::Grpc).await;
    let records = until(&mut requests, 1).await;
    assert_eq!(indexes(&records), [0, 1]);
    drop(server);
}

const FOLLOWERS: &str = "ledger/followers.redb";
