//! The byte formats that cross the boundary to Envoy.

use prost::encoding::encode_varint;

/// Header pairs as the host takes them: their number, then the lengths of each name and value, then each name and
/// value, closed by a zero byte. Numbers are 32-bit little-endian.
pub(crate) fn serialize_pairs(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    push_length(&mut bytes, pairs.len());
    for (name, value) in pairs {
        push_length(&mut bytes, name.len());
        push_length(&mut bytes, value.len());
    }
    for part in pairs.iter().flat_map(|(name, value)| [name, value]) {
        bytes.extend_from_slice(part.as_bytes());
        bytes.push(0);
    }
    bytes
}

/// The encoded `envoy.config.core.v3.GrpcService` that names a cluster: `{envoy_grpc: {cluster_name, authority}}`.
pub(crate) fn grpc_service(cluster: &str) -> Vec<u8> {
    let mut envoy_grpc = Vec::new();
    push_field(&mut envoy_grpc, FIELD_1, cluster.as_bytes());
    push_field(&mut envoy_grpc, FIELD_2, authority(cluster).as_bytes());
    let mut service = Vec::new();
    push_field(&mut service, FIELD_1, &envoy_grpc);
    service
}

/// What the requests to a cluster say as `:authority`. Left out, it would be the cluster's name, and servers refuse
/// requests whose authority is none (RFC 9113 section 8.3.1, RFC 3986 section 3.2), as Istio's names are not:
/// `outbound|7071||credence.example`. Of those it is the host. Never empty, for that is as if it were left out.
fn authority(cluster: &str) -> String {
    let host = cluster.rsplit('|').find(|part| !part.is_empty()).unwrap_or("-");
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.' | '_');
    host.chars()
        .map(|letter| if is_plain(letter) { letter } else { '-' })
        .collect()
}

fn push_field(message: &mut Vec<u8>, tag: u8, content: &[u8]) {
    message.push(tag);
    encode_varint(u64::try_from(content.len()).unwrap_or(u64::MAX), message);
    message.extend_from_slice(content);
}

/// The tags of length-delimited fields.
const FIELD_1: u8 = 1 << 3 | 2;
const FIELD_2: u8 = 2 << 3 | 2;

fn push_length(bytes: &mut Vec<u8>, length: usize) {
    // A VM has less than 4 GiB of memory: no length there is too large for 32 bits.
    bytes.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_counted_measured_and_closed_by_zeros() {
        let expected = b"\x02\0\0\0\x01\0\0\0\x02\0\0\0\x02\0\0\0\0\0\0\0a\0bc\0de\0\0";
        assert_eq!(serialize_pairs(&[("a", "bc"), ("de", "")]), expected);
        assert_eq!(serialize_pairs(&[]), [0; 4]);
    }

    #[test]
    fn a_cluster_is_named_in_an_encoded_grpc_service() {
        assert_eq!(grpc_service("credence"), b"\x0a\x14\x0a\x08credence\x12\x08credence");
        let long = grpc_service(&"x".repeat(200));
        assert_eq!(long.get(..6), Some(&b"\x0a\x96\x03\x0a\xc8\x01"[..]));
    }

    #[test]
    fn the_authority_is_one_whatever_the_cluster_is_called() {
        for (cluster, expected) in [
            ("credence", "credence"),
            (
                "outbound|7071||credence.credence.svc.cluster.local",
                "credence.credence.svc.cluster.local",
            ),
            ("outbound|7071|v1|[2001:db8::1]", "-2001-db8--1-"),
            (
                "httproute/payments/credence/rule/0",
                "httproute-payments-credence-rule-0",
            ),
            ("k\u{e4}se", "k-se"),
            ("outbound|7071||", "7071"),
            ("|", "-"),
        ] {
            assert_eq!(authority(cluster), expected);
        }
    }
}
