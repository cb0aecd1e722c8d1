//! Until when a certificate is good. The TLS library checks that, but does not say it.

use rustls::pki_types::CertificateDer;

/// `notAfter` (RFC 5280 section 4.1.2.5) in seconds since the Unix epoch; nothing if the certificate is none.
pub(crate) fn not_after(certificate: &CertificateDer<'_>) -> Option<i64> {
    let (_, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
    Some(certificate.validity().not_after.timestamp())
}
