//! The expiry of a certificate. The TLS library checks it, but does not return it.

use rustls::pki_types::CertificateDer;

/// `notAfter` (RFC 5280 section 4.1.2.5) in seconds since the Unix epoch; none if the certificate cannot be parsed.
pub(crate) fn not_after(certificate: &CertificateDer<'_>) -> Option<i64> {
    let (_, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
    Some(certificate.validity().not_after.timestamp())
}
