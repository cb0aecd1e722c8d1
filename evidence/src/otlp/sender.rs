//! One request to a collector, and what its answer means: OTLP/gRPC and OTLP/HTTP, sections "Failures".

use std::sync::Arc;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::logs::v1::logs_service_client::LogsServiceClient;
use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsPartialSuccess, ExportLogsServiceRequest, ExportLogsServiceResponse,
};
use prost::Message as _;
use tonic::metadata::{MetadataKey, MetadataMap, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Status};

use crate::settings::{OtlpProtocol, OtlpSettings};
use credence_runtime::outbound::{OutboundError, authorities, authorities_text};

/// Sends requests to one collector. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Sender(Transport);

#[derive(Debug, Clone)]
enum Transport {
    Grpc {
        client: LogsServiceClient<Channel>,
        metadata: MetadataMap,
    },
    Http {
        agent: ureq::Agent,
        url: String,
        headers: Arc<[(String, String)]>,
    },
}

/// What became of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The collector has it, but for so many records that it will never take; and why.
    Taken { refused: u64, message: String },
    /// The same request may succeed later, after this long if the collector said so.
    Later { after: Option<Duration>, message: String },
    /// Fewer records at once may succeed.
    TooLarge { message: String },
    /// It will never take this request.
    Refused { message: String },
}

/// A collector that cannot be spoken to.
#[derive(Debug, thiserror::Error)]
pub enum OtlpError {
    /// The authorities of `audit.otlp.ca`, or of the system, cannot be read.
    #[error("audit.otlp.ca: {0}")]
    Authorities(String),
    /// The endpoint is none.
    #[error("audit.otlp.endpoint: {0}")]
    Endpoint(String),
}

// === impl Sender ===

impl Sender {
    /// Reads the authorities; connects when there is something to send.
    pub(crate) fn new(settings: &OtlpSettings) -> Result<Self, OtlpError> {
        let no_authorities = |error: OutboundError| OtlpError::Authorities(error.to_string());
        let is_tls = settings.endpoint.starts_with("https://");
        let headers = &settings.headers.0;
        let transport = match settings.protocol {
            OtlpProtocol::Grpc => {
                let no_endpoint = |error: tonic::transport::Error| OtlpError::Endpoint(error.to_string());
                let mut endpoint = Endpoint::from_shared(settings.endpoint.clone())
                    .map_err(no_endpoint)?
                    .connect_timeout(CONNECT_TIMEOUT)
                    .timeout(TIMEOUT)
                    .http2_keep_alive_interval(KEEP_ALIVE);
                if is_tls {
                    let text = authorities_text(settings.ca.as_deref()).map_err(no_authorities)?;
                    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(text));
                    endpoint = endpoint.tls_config(tls).map_err(no_endpoint)?;
                }
                let mut metadata = MetadataMap::new();
                for (name, value) in headers {
                    // The settings' check has let only such through.
                    if let (Ok(name), Ok(value)) = (
                        MetadataKey::from_bytes(name.as_bytes()),
                        MetadataValue::try_from(value.as_str()),
                    ) {
                        metadata.insert(name, value);
                    }
                }
                let client =
                    LogsServiceClient::new(endpoint.connect_lazy()).max_decoding_message_size(MAX_ANSWER_BYTES);
                Transport::Grpc { client, metadata }
            }
            OtlpProtocol::Http => {
                let mut config = ureq::Agent::config_builder()
                    .timeout_global(Some(TIMEOUT))
                    .timeout_connect(Some(CONNECT_TIMEOUT))
                    .max_redirects(0)
                    .http_status_as_error(false)
                    .user_agent(USER_AGENT);
                if is_tls {
                    let roots = authorities(settings.ca.as_deref()).map_err(no_authorities)?;
                    let provider = Arc::new(rustls::crypto::ring::default_provider());
                    let tls = ureq::tls::TlsConfig::builder()
                        .unversioned_rustls_crypto_provider(provider)
                        .root_certs(ureq::tls::RootCerts::Specific(Arc::new(roots)))
                        .build();
                    config = config.https_only(true).tls_config(tls);
                }
                Transport::Http {
                    agent: config.build().into(),
                    url: with_path(&settings.endpoint),
                    headers: headers
                        .iter()
                        .map(|(name, value)| (name.clone(), value.clone()))
                        .collect(),
                }
            }
        };
        Ok(Self(transport))
    }

    pub(crate) async fn send(&self, request: ExportLogsServiceRequest) -> Outcome {
        match &self.0 {
            Transport::Grpc { client, metadata } => {
                let mut request = tonic::Request::new(request);
                *request.metadata_mut() = metadata.clone();
                match client.clone().export(request).await {
                    Ok(answer) => taken(answer.into_inner()),
                    Err(status) => of_status(&status),
                }
            }
            Transport::Http { agent, url, headers } => {
                let (agent, url, headers) = (agent.clone(), url.clone(), Arc::clone(headers));
                let sending = tokio::task::spawn_blocking(move || post(&agent, &url, &headers, &request));
                sending.await.unwrap_or_else(|error| Outcome::Later {
                    after: None,
                    message: error.to_string(),
                })
            }
        }
    }
}

/// An endpoint without a path is that of the collector, not of its logs (OTLP/HTTP, "Request").
fn with_path(endpoint: &str) -> String {
    let authority = endpoint.split_once("://").map_or(endpoint, |(_, rest)| rest);
    match authority.split_once('/') {
        None => format!("{endpoint}/v1/logs"),
        Some((_, "")) => format!("{endpoint}v1/logs"),
        Some(_) => endpoint.to_owned(),
    }
}

fn post(agent: &ureq::Agent, url: &str, headers: &[(String, String)], request: &ExportLogsServiceRequest) -> Outcome {
    let mut post = agent.post(url).content_type("application/x-protobuf");
    for (name, value) in headers {
        post = post.header(name, value);
    }
    let later = |message: String| Outcome::Later { after: None, message };
    let mut response = match post.send(request.encode_to_vec()) {
        Ok(response) => response,
        Err(error) => return later(error.to_string()),
    };
    let after = response
        .headers()
        .get("retry-after")
        .and_then(|value| value.to_str().ok()?.parse().ok())
        .map(Duration::from_secs);
    let status = response.status().as_u16();
    let body = response
        .body_mut()
        .with_config()
        .limit(MAX_ANSWER_BYTES as u64)
        .read_to_vec();
    let body = match body {
        Ok(body) => body,
        Err(error) => return later(error.to_string()),
    };
    let message = || {
        let said = RpcStatus::decode(body.as_slice()).map(|status| status.message);
        format!("HTTP {status}: {}", said.unwrap_or_default())
    };
    match status {
        // A proxy's page is no answer of a collector's.
        200..=299 => match ExportLogsServiceResponse::decode(body.as_slice()) {
            Ok(answer) => taken(answer),
            Err(_) => later(format!(
                "HTTP {status} without the answer of a collector; is the endpoint right?"
            )),
        },
        413 => Outcome::TooLarge { message: message() },
        400 | 422 => Outcome::Refused { message: message() },
        // 429, 502, 503 and 504 say so; the others are about the configuration, and not about what is sent.
        _ => Outcome::Later {
            after,
            message: message(),
        },
    }
}

fn taken(answer: ExportLogsServiceResponse) -> Outcome {
    let ExportLogsPartialSuccess {
        rejected_log_records,
        error_message,
    } = answer.partial_success.unwrap_or_default();
    Outcome::Taken {
        refused: u64::try_from(rejected_log_records).unwrap_or_default(),
        message: error_message,
    }
}

fn of_status(status: &Status) -> Outcome {
    let message = format!("{:?}: {}", status.code(), status.message());
    let after = retry_delay(status.details());
    match status.code() {
        // Without a delay it is no throttling: the message has more bytes than the collector takes.
        Code::ResourceExhausted | Code::OutOfRange if after.is_none() => Outcome::TooLarge { message },
        Code::InvalidArgument => Outcome::Refused { message },
        // Those that OTLP names as passing, and those that are about the configuration, and not about what is sent.
        _ => Outcome::Later { after, message },
    }
}

/// `google.rpc.RetryInfo` among a status's details.
fn retry_delay(details: &[u8]) -> Option<Duration> {
    let status = RpcStatus::decode(details).ok()?;
    let info = status
        .details
        .iter()
        .find(|detail| detail.type_url == "type.googleapis.com/google.rpc.RetryInfo")?;
    Duration::try_from(RetryInfo::decode(info.value.as_slice()).ok()?.retry_delay?).ok()
}

/// `google.rpc.Status`, which OTLP answers errors with.
#[derive(Clone, PartialEq, prost::Message)]
struct RpcStatus {
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<prost_types::Any>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<prost_types::Duration>,
}

const USER_AGENT: &str = concat!("credence/", env!("CARGO_PKG_VERSION"));
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// What OTLP's exporters wait for an answer by default.
const TIMEOUT: Duration = Duration::from_secs(10);
const KEEP_ALIVE: Duration = Duration::from_secs(30);
const MAX_ANSWER_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_without_a_path_gets_the_one_of_logs() {
        for (endpoint, url) in [
            ("http://c:4318", "http://c:4318/v1/logs"),
            ("http://c:4318/", "http://c:4318/v1/logs"),
            ("https://c/otlp/logs", "https://c/otlp/logs"),
        ] {
            assert_eq!(with_path(endpoint), url);
        }
    }

    #[test]
    fn statuses_mean_what_otlp_says() {
        let info = RetryInfo {
            retry_delay: Some(prost_types::Duration { seconds: 3, nanos: 0 }),
        };
        let details = RpcStatus {
            message: String::new(),
            details: vec![prost_types::Any {
                type_url: "type.googleapis.com/google.rpc.RetryInfo".to_owned(),
                value: info.encode_to_vec(),
            }],
        };
        let throttled = Status::with_details(Code::ResourceExhausted, "slow down", details.encode_to_vec().into());
        let three = Some(Duration::from_secs(3));
        assert!(matches!(of_status(&throttled), Outcome::Later { after, .. } if after == three));
        let too_large = Status::resource_exhausted("message too large");
        assert!(matches!(of_status(&too_large), Outcome::TooLarge { .. }));
        assert!(matches!(
            of_status(&Status::invalid_argument("")),
            Outcome::Refused { .. }
        ));
        for passing in [
            Status::unavailable(""),
            Status::aborted(""),
            Status::unauthenticated(""),
        ] {
            assert!(matches!(of_status(&passing), Outcome::Later { after: None, .. }));
        }
    }
}
