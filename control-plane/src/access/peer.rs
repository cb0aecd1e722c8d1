//! The names in the certificate of a TLS client.

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

use crate::settings::CertificateSubject;

/// The subject alternative names (RFC 5280 section 4.2.1.6) of a certificate that was verified with the configured
/// authorities.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PeerCertificate {
    pub(crate) uris: Vec<String>,
    pub(crate) dns: Vec<String>,
}

// === impl PeerCertificate ===

impl PeerCertificate {
    /// Reads a verified certificate. None if it cannot be parsed.
    pub(crate) fn read(certificate: &CertificateDer<'_>) -> Option<Self> {
        let certificate = EndEntityCert::try_from(certificate).ok()?;
        Some(Self {
            uris: certificate.valid_uri_names().map(str::to_owned).collect(),
            dns: certificate.valid_dns_names().map(str::to_owned).collect(),
        })
    }

    /// The holder's name, which is the same in all of its certificates: the first URI, else the first host name.
    pub(crate) fn name(&self) -> Option<&str> {
        self.uris.first().or(self.dns.first()).map(String::as_str)
    }

    /// Whether the certificate has this subject. A pattern that ends in `/*` matches everything below the part before
    /// it, which must match exactly.
    pub(crate) fn is(&self, subject: &CertificateSubject) -> bool {
        match subject {
            CertificateSubject::Uri(pattern) => self.uris.iter().any(|uri| uri_matches(pattern, uri)),
            CertificateSubject::Dns(name) => self.dns.iter().any(|dns| dns.eq_ignore_ascii_case(name)),
        }
    }
}

fn uri_matches(pattern: &str, uri: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => uri.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty()),
        None => pattern == uri,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_matches_itself_or_a_pattern_above_it() {
        let peer = PeerCertificate {
            uris: vec!["spiffe://mesh/ns/shop/sa/envoy".to_owned()],
            dns: vec!["Envoy.example".to_owned()],
        };
        for (pattern, matches) in [
            ("spiffe://mesh/ns/shop/sa/envoy", true),
            ("spiffe://mesh/ns/*", true),
            ("spiffe://mesh/ns/shop/sa/envoy/*", false),
            ("spiffe://mesh/ns/shop/sa/env", false),
            ("spiffe://other/*", false),
        ] {
            assert_eq!(
                peer.is(&CertificateSubject::Uri(pattern.to_owned())),
                matches,
                "{pattern}"
            );
        }
        assert!(peer.is(&CertificateSubject::Dns("envoy.example".to_owned())));
        assert!(!peer.is(&CertificateSubject::Dns("example".to_owned())));
    }
}
