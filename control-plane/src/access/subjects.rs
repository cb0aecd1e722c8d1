//! Whether a client certificate has the subject of an entry in the settings.

use credence_server::PeerCertificate;

use crate::settings::CertificateSubject;

// === impl CertificateSubject ===

impl CertificateSubject {
    /// Whether the certificate has this subject. A pattern that ends in `/*` matches everything below the part before
    /// it, which must match exactly.
    pub(crate) fn matches(&self, certificate: &PeerCertificate) -> bool {
        match self {
            Self::Uri(pattern) => certificate.uris.iter().any(|uri| uri_matches(pattern, uri)),
            Self::Dns(name) => certificate.dns.iter().any(|dns| dns.eq_ignore_ascii_case(name)),
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
            ..PeerCertificate::default()
        };
        for (pattern, matches) in [
            ("spiffe://mesh/ns/shop/sa/envoy", true),
            ("spiffe://mesh/ns/*", true),
            ("spiffe://mesh/ns/shop/sa/envoy/*", false),
            ("spiffe://mesh/ns/shop/sa/env", false),
            ("spiffe://other/*", false),
        ] {
            let subject = CertificateSubject::Uri(pattern.to_owned());
            assert_eq!(subject.matches(&peer), matches, "{pattern}");
        }
        assert!(CertificateSubject::Dns("envoy.example".to_owned()).matches(&peer));
        assert!(!CertificateSubject::Dns("example".to_owned()).matches(&peer));
    }
}
