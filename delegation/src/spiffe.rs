//! The SPIFFE IDs that a token may name (the SPIFFE-ID standard, sections 2 and 2.3).

/// Whether this is the ID of a workload, in its canonical form: `spiffe://`, a trust domain in lower case, and a path.
/// The ID of a trust domain, which has no path, is not a workload's (X509-SVID, section 2).
///
/// Only such texts may be compared with a certificate's: the excluded characters could make one text stand for several
/// names.
pub(crate) fn is_workload_id(text: &str) -> bool {
    let is_of = |text: &str, is_right: fn(&u8) -> bool| {
        !text.is_empty()
            && text
                .bytes()
                .all(|byte| is_right(&byte) || matches!(byte, b'.' | b'-' | b'_'))
    };
    let Some((trust_domain, path)) = text.strip_prefix("spiffe://").and_then(|rest| rest.split_once('/')) else {
        return false;
    };
    text.len() <= MAX_BYTES
        && trust_domain.len() <= MAX_TRUST_DOMAIN_BYTES
        && is_of(trust_domain, |byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        && path
            .split('/')
            .all(|segment| is_of(segment, u8::is_ascii_alphanumeric) && !matches!(segment, "." | ".."))
}

/// Bytes of an ID (section 2.3).
const MAX_BYTES: usize = 2048;
/// Bytes of a trust domain's name (section 2.1).
const MAX_TRUST_DOMAIN_BYTES: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workloads_id_has_one_form() {
        for id in [
            "spiffe://cluster.local/ns/pay/sa/agent",
            "spiffe://mesh-1_a.example/A/b.C/...",
            "spiffe://1/x",
        ] {
            assert!(is_workload_id(id), "{id}");
        }
        for id in [
            "",
            "spiffe://",
            "spiffe://mesh.example",
            "spiffe://mesh.example/",
            "spiffe:///agent",
            "spiffe://mesh.example/a/",
            "spiffe://mesh.example//a",
            "spiffe://mesh.example/./a",
            "spiffe://mesh.example/../a",
            "spiffe://Mesh.example/a",
            "SPIFFE://mesh.example/a",
            "spiffe://mesh.example:443/a",
            "spiffe://user@mesh.example/a",
            "spiffe://mesh.example/a?b",
            "spiffe://mesh.example/a#b",
            "spiffe://mesh.example/a%2Fb",
            "spiffe://mesh.example/a,spiffe://mesh.example/b",
            "spiffe://mesh.example/\u{e4}",
            "https://mesh.example/a",
        ] {
            assert!(!is_workload_id(id), "{id}");
        }
    }

    #[test]
    fn an_id_has_a_maximum_length() {
        let id = |bytes: usize| format!("spiffe://m/{}", "a".repeat(bytes - 11));
        assert!(is_workload_id(&id(2048)));
        assert!(!is_workload_id(&id(2049)));
        assert!(!is_workload_id(&format!("spiffe://{}/a", "m".repeat(256))));
    }
}
