//! Connections to services, over HTTP/1.1 and HTTP/2, with and without TLS. Redirects are not followed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use credence_runtime::outbound::{OutboundError, authorities_text};
use http_body_util::combinators::BoxBody;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::settings::ServiceSettings;

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

/// Why a service cannot be connected to.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error(transparent)]
    Authorities(#[from] OutboundError),
    #[error("{path}: {error}", path = path.display())]
    Pem {
        path: PathBuf,
        error: rustls::pki_types::pem::Error,
    },
    #[error("TLS cannot be used: {0}")]
    Tls(#[from] rustls::Error),
}

/// Connections to one service.
pub(crate) fn connections(settings: &ServiceSettings) -> Result<Connections, ConnectError> {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(Some(CONNECT_TIMEOUT));
    http.set_keepalive(Some(KEEPALIVE));
    let connector = HttpsConnectorBuilder::new().with_tls_config(tls(settings)?);
    let is_tls = settings.url.starts_with("https://");
    let connector = match is_tls {
        true => connector.https_only().enable_all_versions().wrap_connector(http),
        false => connector.https_or_http().enable_all_versions().wrap_connector(http),
    };
    Ok(Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(MAX_IDLE)
        .http2_only(settings.http2)
        .http2_max_header_list_size(MAX_HEAD_BYTES)
        .http1_max_buf_size(MAX_HEAD_BYTES as usize)
        .build(connector))
}

fn tls(settings: &ServiceSettings) -> Result<ClientConfig, ConnectError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut roots = RootCertStore::empty();
    if settings.url.starts_with("https://") {
        let text = authorities_text(settings.ca.as_deref())?;
        let path = settings.ca.clone().unwrap_or_default();
        for certificate in CertificateDer::pem_slice_iter(&text) {
            let certificate = certificate.map_err(|error| ConnectError::Pem {
                path: path.clone(),
                error,
            })?;
            // Systems list some that rustls does not take.
            let _ = roots.add(certificate);
        }
    }
    let config = config.with_root_certificates(roots);
    Ok(match &settings.certificate {
        None => config.with_no_client_auth(),
        Some(own) => {
            let chain: Result<Vec<_>, _> = pem(&own.chain, CertificateDer::pem_file_iter(&own.chain))?.collect();
            let key = pem(&own.key, PrivateKeyDer::from_pem_file(&own.key))?;
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
