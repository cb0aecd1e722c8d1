//! The part of `envoy.config.core.v3.GrpcService` with which Envoy opens a gRPC stream to a cluster.

use prost::Message;

#[derive(Clone, PartialEq, Message)]
struct GrpcService {
    #[prost(message, tag = "1")]
    envoy_grpc: Option<EnvoyGrpc>,
}

#[derive(Clone, PartialEq, Message)]
struct EnvoyGrpc {
    #[prost(string, tag = "1")]
    cluster_name: String,
    #[prost(string, tag = "2")]
    authority: String,
}

/// The encoded message.
pub(crate) fn encode(cluster: &str) -> Vec<u8> {
    let envoy_grpc = Some(EnvoyGrpc {
        cluster_name: cluster.to_owned(),
        authority: authority(cluster),
    });
    GrpcService { envoy_grpc }.encode_to_vec()
}

/// The `:authority` of requests to a cluster. By default it would be the cluster's name, but servers refuse an invalid
/// authority (RFC 9113 section 8.3.1, RFC 3986 section 3.2). Istio's names are invalid ones:
/// `outbound|7071||credence.example`. For these, the authority is the host. Never empty, because Envoy treats an empty
/// one as absent.
fn authority(cluster: &str) -> String {
    let host = cluster.rsplit('|').find(|part| !part.is_empty()).unwrap_or("-");
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.' | '_');
    host.chars()
        .map(|letter| if is_plain(letter) { letter } else { '-' })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_named_in_an_encoded_grpc_service() {
        assert_eq!(encode("credence"), b"\x0a\x14\x0a\x08credence\x12\x08credence");
        let long = encode(&"x".repeat(200));
        assert_eq!(long.get(..6), Some(&b"\x0a\x96\x03\x0a\xc8\x01"[..]));
    }

    #[test]
    fn every_cluster_name_gives_a_valid_authority() {
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
