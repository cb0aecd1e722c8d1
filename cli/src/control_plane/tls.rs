//! TLS to the control plane: whom we believe, and what we show.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};
use ureq::tls::{ClientCert, PemItem, RootCerts, TlsConfig, parse_pem};

use crate::failure::Failure;
use crate::files;

/// The files for https:// URLs.
#[derive(Debug, clap::Args)]
pub(super) struct TlsOptions {
    /// The PEM file with the authorities that may have signed the control plane's certificate, for an https:// URL.
    #[arg(long, value_name = "FILE", env = "CREDENCE_CA")]
    ca: Option<PathBuf>,

    /// The PEM file with our own certificate, and the intermediate ones behind it, where the control plane knows us by
    /// that.
    #[arg(long, value_name = "FILE", env = "CREDENCE_CERT", requires = "client_key")]
    cert: Option<PathBuf>,

    /// The PEM file with its private key.
    #[arg(long, value_name = "FILE", env = "CREDENCE_CLIENT_KEY", requires = "cert")]
    client_key: Option<PathBuf>,
}

// === impl TlsOptions ===

impl TlsOptions {
    /// Whether we can show a certificate.
    pub(super) fn has_certificate(&self) -> bool {
        self.cert.is_some()
    }

    /// What to configure for this URL; nothing for plain http.
    pub(super) fn config(&self, url: &str) -> Result<Option<TlsConfig>, Failure> {
        if !url.starts_with("https://") {
            if self.ca.is_some() || self.has_certificate() {
                return Err(Failure::input(format!(
                    "--control-plane {url}: --ca, --cert and --client-key are for an https:// URL; over http:// the \
                     control plane would be believed unseen"
                )));
            }
            return Ok(None);
        }
        let Some(ca) = &self.ca else {
            return Err(Failure::input(format!(
                "--control-plane {url}: say with --ca which authorities may have signed the control plane's certificate; \
                 those that this machine believes are often in /etc/ssl/certs/ca-certificates.crt"
            )));
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let authorities = read(ca, "--ca", "the authorities' certificates")?;
        let mut config = TlsConfig::builder().unversioned_rustls_crypto_provider(Arc::clone(&provider));
        let shown = match (&self.cert, &self.client_key) {
            (Some(certificate), Some(key)) => Some((
                read(certificate, "--cert", "our certificate")?,
                files::read(key, "our certificate's private key")?,
                key,
            )),
            _ => None,
        };
        check(
            provider,
            &authorities,
            shown
                .as_ref()
                .map(|(chain, key, path)| (&chain[..], &key[..], path.as_path())),
        )?;
        config = config.root_certs(RootCerts::new_with_certs(&certificates(&authorities)));
        if let Some((chain, key, path)) = &shown {
            let key = ureq::tls::PrivateKey::from_pem(key).map_err(|_| no_key(path))?;
            config = config.client_cert(Some(ClientCert::new_with_certs(&certificates(chain), key)));
        }
        Ok(Some(config.build()))
    }
}

/// Finds out what the HTTP library takes for granted.
fn check(
    provider: Arc<CryptoProvider>,
    authorities: &[u8],
    shown: Option<(&[u8], &[u8], &Path)>,
) -> Result<(), Failure> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(chain(authorities));
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Failure::operation(format!("TLS can not be used: {error}")))?
        .with_root_certificates(roots);
    let Some((certificates, key, path)) = shown else {
        return Ok(());
    };
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| no_key(path))?;
    match builder.with_client_auth_cert(chain(certificates), key) {
        Ok(_) => Ok(()),
        Err(rustls::Error::InconsistentKeys(_)) => Err(Failure::input(format!(
            "--client-key {}: it is not the key of the certificate in --cert; give the two that belong together",
            path.display()
        ))),
        Err(error) => Err(Failure::input(format!(
            "--cert and --client-key {}: they can not be used: {error}",
            path.display()
        ))),
    }
}

/// A PEM file with at least one certificate.
fn read(path: &Path, option: &str, what: &str) -> Result<Vec<u8>, Failure> {
    let pem = files::read(path, what)?;
    let found = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    if found.is_ok_and(|found| !found.is_empty()) {
        return Ok(pem.to_vec());
    }
    Err(Failure::input(format!(
        "{option} {}: it holds no certificate; give a PEM file, with -----BEGIN CERTIFICATE----- blocks",
        path.display()
    )))
}

fn chain(pem: &[u8]) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem).filter_map(Result::ok).collect()
}

fn certificates(pem: &[u8]) -> Vec<ureq::tls::Certificate<'static>> {
    let certificate = |item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    };
    parse_pem(pem).filter_map(certificate).collect()
}

fn no_key(path: &Path) -> Failure {
    Failure::input(format!(
        "--client-key {}: it holds no private key; give one in PEM, as PKCS #8, SEC 1 or PKCS #1, not encrypted",
        path.display()
    ))
}

/// Why the two sides could not agree on TLS, and what to do about it; nothing if that is not what went wrong. Nothing that
/// was asked for was done then: a control plane reads no request before it has accepted the client.
pub(super) fn disagreement(error: &ureq::Error) -> Option<String> {
    let error = match error {
        ureq::Error::Rustls(error) => error,
        ureq::Error::Io(error) => error.get_ref()?.downcast_ref::<rustls::Error>()?,
        _ => return None,
    };
    let cure = match error {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "give the authority that signed the control plane's certificate as --ca"
        }
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "use a host name in --control-plane that stands in the control plane's certificate",
        rustls::Error::InvalidCertificate(_) => "the control plane's certificate has to be renewed",
        rustls::Error::InvalidMessage(_) => "does it speak TLS? Otherwise use an http:// URL",
        rustls::Error::AlertReceived(
            AlertDescription::UnknownCA
            | AlertDescription::DecryptError
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateRequired,
        ) => {
            "it does not take our certificate: give one that an authority in its client_ca has signed and that has not \
             ended, as --cert and --client-key"
        }
        _ => return None,
    };
    Some(format!("{error}; {cure}"))
}
