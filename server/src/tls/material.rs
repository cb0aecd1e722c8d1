//! The contents of one port's TLS files, parsed for handshakes.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use sha2::{Digest as _, Sha256};

use super::settings::PortTls;
use super::validity::not_after;
use super::which_port::Port;
use crate::unusable::Unusable;
use credence_storage::durable;

/// A port's certificate with its key, and the authorities for client certificates: complete and consistent.
#[derive(Debug)]
pub(crate) struct Material {
    pub(crate) config: Arc<ServerConfig>,
    clients: Option<Arc<dyn ClientCertVerifier>>,
    /// When the port's certificate expires, in seconds since the Unix epoch.
    pub(crate) expires: i64,
    /// The digest of the files' contents.
    pub(crate) digest: [u8; 32],
}

/// The bytes of one port's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

// === impl Contents ===

impl Contents {
    /// Reads the files.
    pub(crate) fn read(port: Port, settings: &PortTls) -> Result<Self, Unusable> {
        let read = |member, path: &Path| {
            durable::read_small_file(path, MAX_FILE_BYTES)
                .map_err(|error| unusable(port, member, path, &format!("cannot be read: {error}")))
        };
        Ok(Self {
            certificate: read("certificate", &settings.certificate)?,
            key: read("key", &settings.key)?,
            client_ca: settings
                .client_ca
                .as_deref()
                .map(|path| read("client_ca", path))
                .transpose()?,
        })
    }

    pub(crate) fn digest(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        for part in [
            &self.certificate,
            &self.key,
            self.client_ca.as_ref().unwrap_or(&Vec::new()),
        ] {
            digest.update(part.len().to_be_bytes());
            digest.update(part);
        }
        digest.finalize().into()
    }
}

// === impl Material ===

impl Material {
    /// Reads and parses the present files.
    pub(crate) fn read(port: Port, settings: &PortTls) -> Result<Self, Unusable> {
        Self::parse(port, settings, &Contents::read(port, settings)?)
    }

    /// Parses the files' contents. `settings` names the files in errors.
    pub(crate) fn parse(port: Port, settings: &PortTls, contents: &Contents) -> Result<Self, Unusable> {
        let unusable = |member, path: &Path, problem: String| unusable(port, member, path, &problem);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let chain = certificates(&contents.certificate)
            .map_err(|problem| unusable("certificate", &settings.certificate, problem))?;
        let expires = chain.first().and_then(not_after).ok_or_else(|| {
            unusable(
                "certificate",
                &settings.certificate,
                "has a certificate that cannot be parsed; have it issued again".to_owned(),
            )
        })?;
        let key = PrivateKeyDer::from_pem_slice(&contents.key).map_err(|_| {
            unusable(
                "key",
                &settings.key,
                "holds no private key; write PEM as PKCS #8, SEC 1 or PKCS #1, not encrypted".to_owned(),
            )
        })?;
        let clients = match (&settings.client_ca, &contents.client_ca) {
            (Some(path), Some(authorities)) => {
                let mut roots = RootCertStore::empty();
                let found = certificates(authorities).map_err(|problem| unusable("client_ca", path, problem))?;
                for authority in found {
                    roots.add(authority).map_err(|error| {
                        unusable(
                            "client_ca",
                            path,
                            format!("has a certificate that is not valid for an authority: {error}"),
                        )
                    })?;
                }
                let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
                let builder = match port {
                    Port::Http => builder.allow_unauthenticated(),
                    Port::Grpc => builder,
                };
                let verifier = builder
                    .build()
                    .map_err(|error| unusable("client_ca", path, format!("cannot be used: {error}")))?;
                Some(verifier)
            }
            _ => None,
        };
        let builder = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
            .map_err(|error| unusable("certificate", &settings.certificate, error.to_string()))?;
        let builder = match &clients {
            Some(verifier) => builder.with_client_cert_verifier(Arc::clone(verifier)),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| {
            let problem = match error {
                rustls::Error::InconsistentKeys(_) => format!(
                    "is not the key of the certificate in {}; replace both together",
                    settings.certificate.display()
                ),
                error => format!("holds a private key that cannot be used: {error}"),
            };
            unusable("key", &settings.key, problem)
        })?;
        config.alpn_protocols = vec![port.protocol().to_vec()];
        // Every connection must present its certificate: a resumed one would rely on an earlier one's.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Self {
            config: Arc::new(config),
            clients,
            expires,
            digest: contents.digest(),
        })
    }

    /// Whether a client's certificate chain is still signed by a configured authority. `now` is in seconds since the
    /// Unix epoch.
    pub(crate) fn accepts(&self, chain: &[CertificateDer<'_>], now: i64) -> bool {
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(now.try_into().unwrap_or_default()));
        match (&self.clients, chain.split_first()) {
            (Some(clients), Some((certificate, intermediates))) => {
                clients.verify_client_cert(certificate, intermediates, now).is_ok()
            }
            _ => false,
        }
    }
}

fn unusable(port: Port, member: &str, path: &Path, problem: &str) -> Unusable {
    let (port, path) = (port.name(), path.display());
    Unusable(format!("tls.{port}.{member}: the file {path} {problem}"))
}

/// The certificates of a PEM file, at least one.
fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| format!("is not PEM: {error:?}; write -----BEGIN CERTIFICATE----- blocks"))?;
    if found.is_empty() {
        return Err("holds no certificate; write at least one -----BEGIN CERTIFICATE----- block".to_owned());
    }
    Ok(found)
}

/// The size limit of one file: a bundle of several hundred authorities.
const MAX_FILE_BYTES: u64 = 1 << 20;
