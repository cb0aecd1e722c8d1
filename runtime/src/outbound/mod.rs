//! Requests to other servers over HTTP. Redirects are not followed.
//!
//! | module | its one job |
//! |---|---|
//! | `guarded` | reads documents at URLs that another party chose |
//! | `addresses` | which servers may be asked for them |

mod addresses;
mod guarded;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ureq::config::ConfigBuilder;
use ureq::typestate::AgentScope;

pub use self::addresses::Network;
pub use self::guarded::{Document, Guard, GuardedClient, GuardedError, max_age};

/// Why no HTTP client can be made.
#[derive(Debug, thiserror::Error)]
pub enum OutboundError {
    #[error("found no certificate authorities for https servers; name a PEM file as ca")]
    NoAuthorities,
    #[error("{path}: {error}", path = path.display())]
    Authorities { path: PathBuf, error: std::io::Error },
}

/// An HTTP client for `url`. It verifies https servers with the authorities in `ca`, or the system's.
pub fn agent(url: &str, ca: Option<&Path>, timeout: Duration) -> Result<ureq::Agent, OutboundError> {
    Ok(config(url, ca, timeout)?.build().into())
}

/// An HTTP client that does not verify servers: only to learn whether one answers. What it sends and reads is not secret,
/// and proves nothing.
pub fn probing_agent(timeout: Duration) -> ureq::Agent {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ureq::tls::TlsConfig::builder()
        .unversioned_rustls_crypto_provider(provider)
        .disable_verification(true)
        .build();
    let config = ureq::Agent::config_builder()
        .timeout_global(Some(timeout))
        .max_redirects(0);
    config.http_status_as_error(false).tls_config(tls).build().into()
}

fn config(url: &str, ca: Option<&Path>, timeout: Duration) -> Result<ConfigBuilder<AgentScope>, OutboundError> {
    let mut config = ureq::Agent::config_builder()
        .timeout_global(Some(timeout))
        .max_redirects(0)
        .http_status_as_error(false)
        .user_agent("credence");
    if url.starts_with("https://") {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ureq::tls::TlsConfig::builder()
            .unversioned_rustls_crypto_provider(provider)
            .root_certs(ureq::tls::RootCerts::Specific(Arc::new(authorities(ca)?)))
            .build();
        config = config.https_only(true).tls_config(tls);
    }
    Ok(config)
}

/// Reads the authorities for https servers.
pub fn authorities(ca: Option<&Path>) -> Result<Vec<ureq::tls::Certificate<'static>>, OutboundError> {
    read_authorities(ca).map(|(_, certificates)| certificates)
}

/// The same, as PEM text.
pub fn authorities_text(ca: Option<&Path>) -> Result<Vec<u8>, OutboundError> {
    read_authorities(ca).map(|(text, _)| text)
}

fn read_authorities(ca: Option<&Path>) -> Result<(Vec<u8>, Vec<ureq::tls::Certificate<'static>>), OutboundError> {
    let system = SYSTEM_AUTHORITIES.iter().map(Path::new).find(|path| path.is_file());
    let path = ca.or(system).ok_or(OutboundError::NoAuthorities)?;
    let failed = |error| OutboundError::Authorities {
        path: path.to_owned(),
        error,
    };
    let text = credence_storage::durable::read_small_file(path, MAX_AUTHORITIES_BYTES).map_err(failed)?;
    let certificates: Vec<_> = ureq::tls::parse_pem(&text)
        .filter_map(|item| match item {
            Ok(ureq::tls::PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    match certificates.is_empty() {
        true => Err(failed(std::io::Error::other("it holds no certificate in PEM"))),
        false => Ok((text, certificates)),
    }
}

/// Whether answers from this URL cannot be changed in transit: it is https, or on this machine.
pub fn is_safe(url: &str) -> bool {
    if let Some(rest) = url.strip_prefix("https://") {
        return !rest.is_empty();
    }
    is_local(url)
}

/// Whether the URL is http on this machine.
pub fn is_local(url: &str) -> bool {
    let authority = url
        .strip_prefix("http://")
        .and_then(|rest| rest.split(['/', '?', '#']).next())
        .unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    !authority.contains('@') && matches!(host, "127.0.0.1" | "::1" | "localhost")
}

const MAX_AUTHORITIES_BYTES: u64 = 4 << 20;
/// The paths of Debian, Fedora, and Alpine.
const SYSTEM_AUTHORITIES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];
