//! What Envoy is told to open a gRPC stream by: as much of `envoy.config.core.v3.GrpcService` as names a cluster.

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
