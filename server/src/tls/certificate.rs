//! The names in the certificate of a TLS client.

use rustls::pki_types::CertificateDer;
use sha2::{Digest as _, Sha256};
use webpki::EndEntityCert;

/// The subject alternative names (RFC 5280 section 4.2.1.6) of a certificate that was verified with the configured
/// authorities.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PeerCertificate {
    /// URIs, in the certificate's order.
    pub uris: Vec<String>,
    /// Host names, in the certificate's order.
    pub dns: Vec<String>,
    /// SHA-256 of the certificate (RFC 8705, section 3.1).
    pub digest: [u8; 32],
}

// === impl PeerCertificate ===

impl PeerCertificate {
    /// Reads a verified certificate. None if it cannot be parsed.
    pub(crate) fn read(certificate: &CertificateDer<'_>) -> Option<Self> {
        let digest = Sha256::digest(certificate).into();
        let certificate = EndEntityCert::try_from(certificate).ok()?;
        Some(Self {
            uris: certificate.valid_uri_names().map(str::to_owned).collect(),
            dns: certificate.valid_dns_names().map(str::to_owned).collect(),
            digest,
        })
    }

    /// The holder's name, which is the same in all of its certificates: the first URI, else the first host name.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.uris.first().or(self.dns.first()).map(String::as_str)
    }
}
