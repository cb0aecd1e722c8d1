//! Connections to services, over HTTP/1.1 and HTTP/2, with and without TLS. Redirects are not followed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use credence_agent::service::ServiceError;
use credence_runtime::outbound::{OutboundError, authorities_text};
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::settings::CertificateSettings;
use crate::signer::{SignerError, read_secret};

/// A body on its way, in either direction.
pub(crate) type Body = BoxBody<Bytes, BodyError>;

/// Why a body ends early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    #[error(transparent)]
    Http(#[from] hyper::Error),
    #[error("the answer took too long")]
    TooLong,
}

pub(crate) type Connections = Client<HttpsConnector<HttpConnector>, Body>;

/// Why a server cannot be connected to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error(transparent)]
    Origin(#[from] ServiceError),
    #[error(transparent)]
    Authorities(#[from] OutboundError),
    #[error(transparent)]
    Key(#[from] SignerError),
    #[error("{path}: {error}", path = path.display())]
    Pem {
        path: PathBuf,
        error: rustls::pki_types::pem::Error,
    },
    #[error("TLS cannot be used: {0}")]
    Tls(#[from] rustls::Error),
}

/// Connections to one server, whose URL this is.
pub(crate) fn connections(
    url: &str,
    ca: Option<&Path>,
    certificate: Option<&CertificateSettings>,
    http2: bool,
) -> Result<Connections, ConnectError> {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(Some(CONNECT_TIMEOUT));
    http.set_keepalive(Some(KEEPALIVE));
    let roots = if url.starts_with("https://") {
        roots(ca)?
    } else {
        RootCertStore::empty()
    };
    let connector = HttpsConnectorBuilder::new().with_tls_config(tls(roots, certificate)?);
    // What goes over http has an http URL in the settings.
    let connector = connector.https_or_http().enable_all_versions().wrap_connector(http);
    Ok(Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(MAX_IDLE)
        .http2_only(http2)
        .http2_max_header_list_size(MAX_HEAD_BYTES)
        .http1_max_buf_size(MAX_HEAD_BYTES as usize)
        .build(connector))
}

/// A whole answer. What goes wrong is said as its innermost cause.
pub(crate) async fn fetched(
    connections: &Connections,
    request: Request<Body>,
    (max_bytes, time): (usize, Duration),
) -> Result<Response<Bytes>, String> {
    let fetching = async {
        let response = connections.request(request).await.map_err(|error| cause(&error))?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, max_bytes).collect().await;
        let body = body.map_err(|error| cause(error.as_ref()))?;
        Ok(Response::from_parts(parts, body.to_bytes()))
    };
    let fetched = tokio::time::timeout(time, fetching).await;
    fetched.unwrap_or_else(|_| Err(format!("there was no answer within {time:?}")))
}

/// A body that is known as a whole.
pub(crate) fn whole(body: impl Into<Bytes>) -> Body {
    Full::new(body.into()).map_err(|never| match never {}).boxed()
}

/// The innermost cause, which says what to do.
pub(crate) fn cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

fn roots(ca: Option<&Path>) -> Result<RootCertStore, ConnectError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&authorities_text(ca)?) {
        // Systems list some that rustls does not take.
        let _ = roots.add(pem(ca.unwrap_or(Path::new("")), certificate)?);
    }
    Ok(roots)
}

fn tls(roots: RootCertStore, certificate: Option<&CertificateSettings>) -> Result<ClientConfig, ConnectError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let config = config.with_root_certificates(roots);
    Ok(match certificate {
        None => config.with_no_client_auth(),
        Some(own) => {
            let chain: Result<Vec<_>, _> = pem(&own.chain, CertificateDer::pem_file_iter(&own.chain))?.collect();
            let key = pem(&own.key, PrivateKeyDer::from_pem_slice(&read_secret(&own.key)?))?;
            config.with_client_auth_cert(pem(&own.chain, chain)?, key)?
        }
    })
}

fn pem<T>(path: &Path, read: Result<T, rustls::pki_types::pem::Error>) -> Result<T, ConnectError> {
    read.map_err(|error| ConnectError::Pem {
        path: path.to_owned(),
        error,
    })
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const KEEPALIVE: Duration = Duration::from_secs(30);
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Connections to a service that wait for a request.
const MAX_IDLE: usize = 64;
/// Of an answer. Also the read buffer of a connection.
const MAX_HEAD_BYTES: u32 = 64 << 10;
