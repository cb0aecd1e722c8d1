//! TLS to the control plane: which authorities the client trusts, and its own certificate.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{AlertDescription, CertificateError};
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};

use crate::failure::Failure;
use crate::files;

/// The files for https:// URLs.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct TlsOptions {
    /// PEM file of the authorities that may have signed the control plane's certificate, for an https:// URL.
    #[arg(long, value_name = "FILE", env = "CREDENCE_CA")]
    ca: Option<PathBuf>,

    /// PEM file of the client's certificate, followed by the intermediate ones, if the control plane authenticates
    /// clients by certificate.
    #[arg(long, value_name = "FILE", env = "CREDENCE_CERT", requires = "client_key")]
    pub(super) cert: Option<PathBuf>,

    /// PEM file of the client certificate's private key.
    #[arg(long, value_name = "FILE", env = "CREDENCE_CLIENT_KEY", requires = "cert")]
    client_key: Option<PathBuf>,
}

// === impl TlsOptions ===

impl TlsOptions {
    /// The TLS configuration for this URL. Plain http ignores it.
    pub(super) fn config(&self, url: &str) -> Result<TlsConfig, Failure> {
        if !url.starts_with("https://") {
            if self.ca.is_some() || self.cert.is_some() {
                return Err(Failure::input(format!(
                    "--control-plane {url}: --ca, --cert and --client-key are for an https:// URL; over http:// the \
                     control plane would not be authenticated"
                )));
            }
            return Ok(TlsConfig::default());
        }
        let Some(ca) = &self.ca else {
            return Err(Failure::input(format!(
                "--control-plane {url}: give --ca, the authorities that may have signed the control plane's \
                 certificate; the system's authorities are often in /etc/ssl/certs/ca-certificates.crt"
            )));
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let authorities = certificates(ca, "--ca", "the authorities' certificates")?;
        let mut config = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(Arc::clone(&provider))
            .root_certs(RootCerts::new_with_certs(&authorities));
        if let (Some(certificate), Some(key)) = (&self.cert, &self.client_key) {
            let chain = certificates(certificate, "--cert", "our certificate")?;
            let key = private_key(key, &chain, &provider)?;
            config = config.client_cert(Some(ClientCert::new_with_certs(&chain, key)));
        }
        Ok(config.build())
    }
}

/// The private key of the client's certificate. The HTTP library does not check that the two match.
fn private_key(
    path: &Path,
    chain: &[Certificate<'static>],
    provider: &CryptoProvider,
) -> Result<PrivateKey<'static>, Failure> {
    let wrong = |problem: &str| Failure::input(format!("--client-key {}: {problem}", path.display()));
    let no_key = "it holds no private key; give one in PEM, as PKCS #8, SEC 1 or PKCS #1, not encrypted";
    let pem = files::read(path, "the client certificate's private key")?;
    let der = PrivateKeyDer::from_pem_slice(&pem).map_err(|_| wrong(no_key))?;
    let chain = chain.iter().map(|certificate| certificate.der().to_vec().into());
    match CertifiedKey::from_der(chain.collect(), der, provider) {
        Ok(_) => PrivateKey::from_pem(&pem).map_err(|_| wrong(no_key)),
        Err(rustls::Error::InconsistentKeys(_)) => Err(wrong(
            "it is not the key of the certificate in --cert; give a matching pair",
        )),
        Err(error) => Err(wrong(&format!("it cannot be used with --cert: {error}"))),
    }
}

/// The certificates of a PEM file, at least one.
fn certificates(path: &Path, option: &str, what: &str) -> Result<Vec<Certificate<'static>>, Failure> {
    let pem = files::read(path, what)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem)
        .map(|found| found.map(|der| Certificate::from_der(&der).to_owned()))
        .collect();
    found.ok().filter(|found| !found.is_empty()).ok_or_else(|| {
        Failure::input(format!(
            "{option} {}: it holds no certificate; give a PEM file, with -----BEGIN CERTIFICATE----- blocks",
            path.display()
        ))
    })
}

/// Why the TLS handshake failed, and what to do; `None` for any other error. The request had no effect then: a control
/// plane reads no request before it has accepted the client.
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
        ) => "use a host name in --control-plane that the control plane's certificate has",
        rustls::Error::InvalidCertificate(_) => "renew the control plane's certificate",
        rustls::Error::InvalidMessage(_) => "does it speak TLS? Otherwise use an http:// URL",
        rustls::Error::AlertReceived(
            AlertDescription::UnknownCA
            | AlertDescription::DecryptError
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateRequired,
        ) => {
            "the control plane refused the client certificate: give one as --cert and --client-key that an authority \
             in its client_ca has signed and that has not expired"
        }
        _ => return None,
    };
    Some(format!("{error}; {cure}"))
}
