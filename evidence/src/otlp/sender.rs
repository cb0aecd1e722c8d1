//! Sends a request to a collector, and interprets its answer: OTLP/gRPC and OTLP/HTTP, sections "Failures".

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::logs::v1::logs_service_client::LogsServiceClient;
use opentelemetry_proto::tonic::collector::logs::v1::{ExportLogsServiceRequest, ExportLogsServiceResponse};
use prost::Message as _;
use tonic::metadata::{MetadataKey, MetadataMap, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::settings::{OtlpProtocol, OtlpSettings};
use credence_runtime::outbound::{self, OutboundError, authorities_text};
use credence_runtime::settings::SettingsError;

/// Sends requests to one collector. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) enum Sender {
    Grpc {
        client: LogsServiceClient<Channel>,
        metadata: MetadataMap,
    },
    Http {
        agent: ureq::Agent,
        url: String,
        headers: Arc<BTreeMap<String, String>>,
    },
}

/// The result of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The collector has accepted it, except for this many records that it will never accept, with the reason.
    Taken { refused: u64, message: String },
    /// The same request may succeed later, after this time if the collector gave one.
    Later { after: Option<Duration>, message: String },
    /// The same records may succeed in smaller requests.
    TooLarge { message: String },
    /// The collector will never accept this request.
    Refused { message: String },
}

// === impl Sender ===

impl Sender {
    /// Reads the authorities. Connects when there is something to send.
    pub(crate) fn new(settings: &OtlpSettings) -> Result<Self, SettingsError> {
        let no_authorities = |error: OutboundError| SettingsError::at("audit.otlp.ca", error.to_string());
        let headers = &settings.headers.0;
        match settings.protocol {
            OtlpProtocol::Grpc => {
                let no_endpoint =
                    |error: tonic::transport::Error| SettingsError::at("audit.otlp.endpoint", error.to_string());
                let mut endpoint = Endpoint::from_shared(settings.endpoint.clone())
                    .map_err(no_endpoint)?
                    .connect_timeout(CONNECT_TIMEOUT)
                    .timeout(TIMEOUT)
                    .http2_keep_alive_interval(KEEP_ALIVE);
                if settings.endpoint.starts_with("https://") {
                    let text = authorities_text(settings.ca.as_deref()).map_err(no_authorities)?;
                    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(text));
                    endpoint = endpoint.tls_config(tls).map_err(no_endpoint)?;
                }
                let mut metadata = MetadataMap::new();
                for (name, value) in headers {
                    // The check of the settings accepts only valid ones.
                    if let (Ok(name), Ok(value)) = (
                        MetadataKey::from_bytes(name.as_bytes()),
                        MetadataValue::try_from(value.as_str()),
                    ) {
                        metadata.insert(name, value);
                    }
                }
                let client =
                    LogsServiceClient::new(endpoint.connect_lazy()).max_decoding_message_size(MAX_ANSWER_BYTES);
                Ok(Self::Grpc { client, metadata })
            }
            OtlpProtocol::Http => {
                let agent = outbound::agent(&settings.endpoint, settings.ca.as_deref(), TIMEOUT);
                Ok(Self::Http {
                    agent: agent.map_err(no_authorities)?,
                    url: with_path(&settings.endpoint),
                    headers: Arc::new(headers.clone()),
                })
            }
        }
    }

    pub(crate) async fn send(&self, request: ExportLogsServiceRequest) -> Outcome {
        match self {
            Self::Grpc { client, metadata } => {
                let mut request = tonic::Request::new(request);
                *request.metadata_mut() = metadata.clone();
                match client.clone().export(request).await {
                    Ok(answer) => taken(answer.into_inner()),
                    Err(status) => of_status(&status),
                }
            }
            Self::Http { agent, url, headers } => {
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

/// An endpoint without a path is that of the collector, not the one for logs (OTLP/HTTP, "Request").
fn with_path(endpoint: &str) -> String {
    let authority = endpoint.split_once("://").map_or(endpoint, |(_, rest)| rest);
    match authority.split_once('/') {
        None => format!("{endpoint}/v1/logs"),
        Some((_, "")) => format!("{endpoint}v1/logs"),
        Some(_) => endpoint.to_owned(),
    }
}

fn post(
    agent: &ureq::Agent,
    url: &str,
    headers: &BTreeMap<String, String>,
    request: &ExportLogsServiceRequest,
) -> Outcome {
    let mut post = agent
        .post(url)
        .content_type("application/x-protobuf")
        .header("user-agent", USER_AGENT);
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
        let said = tonic_types::Status::decode(body.as_slice()).map(|status| status.message);
        format!("HTTP {status}: {}", said.unwrap_or_default())
    };
    match status {
        // A proxy's page is not a collector's answer.
        200..=299 => match ExportLogsServiceResponse::decode(body.as_slice()) {
            Ok(answer) => taken(answer),
            Err(_) => later(format!(
                "HTTP {status} without a collector's answer; check audit.otlp.endpoint"
            )),
        },
        413 => Outcome::TooLarge { message: message() },
        400 | 422 => Outcome::Refused { message: message() },
        // Temporary are 429, 502, 503 and 504. The others depend on the configuration, not on the records.
        _ => Outcome::Later {
            after,
            message: message(),
        },
    }
}

fn taken(answer: ExportLogsServiceResponse) -> Outcome {
    let partial = answer.partial_success.unwrap_or_default();
    Outcome::Taken {
        refused: u64::try_from(partial.rejected_log_records).unwrap_or_default(),
        message: partial.error_message,
    }
}

fn of_status(status: &Status) -> Outcome {
    let message = format!("{:?}: {}", status.code(), status.message());
    let after = status.get_details_retry_info().and_then(|info| info.retry_delay);
    match status.code() {
        // Without a delay it is not throttling: the message has more bytes than the collector accepts.
        Code::ResourceExhausted | Code::OutOfRange if after.is_none() => Outcome::TooLarge { message },
        Code::InvalidArgument => Outcome::Refused { message },
        // The statuses that OTLP calls retryable, and those that depend on the configuration, not on the records.
        _ => Outcome::Later { after, message },
    }
}

const USER_AGENT: &str = concat!("credence/", env!("CARGO_PKG_VERSION"));
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The default timeout of OTLP's exporters.
const TIMEOUT: Duration = Duration::from_secs(10);
const KEEP_ALIVE: Duration = Duration::from_secs(30);
const MAX_ANSWER_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use tonic_types::ErrorDetails;

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
        let details = ErrorDetails::with_retry_info(Some(Duration::from_secs(3)));
        let throttled = Status::with_error_details(Code::ResourceExhausted, "slow down", details);
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
