//! A waypoint of an ambient mesh in front of a service, and a stand-in for its clients' ztunnel.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

use super::kubernetes::{Account, Kubernetes};
use super::proxy::{Kind, Proxy, Workload};
use super::tools::Tools;
use crate::Failure;
use crate::process::Process;

/// A running waypoint; it stops when it is dropped.
#[derive(Debug)]
pub struct Waypoint {
    /// The proxy. Requests to it go through the tunnel.
    pub proxy: Proxy,
    // Kept alive, not read.
    _tunnel: Process,
}

/// The namespace of its service, which has no sidecar.
pub const NAMESPACE: &str = "ambient";

/// The address and names of the service behind it.
pub(super) struct Service {
    pub(super) address: Ipv4Addr,
    pub(super) port: u16,
}

impl Waypoint {
    /// Starts one for `service`, and a tunnel to it with these certificates. Apply the plugin first.
    pub(super) fn start(
        tools: &Tools,
        kubernetes: &Kubernetes,
        start: impl FnOnce(&Workload) -> Result<Proxy, Failure>,
        service: &Service,
        (folder, certificates): (&Path, &Path),
    ) -> Result<Self, Failure> {
        let address = service.address;
        let filled = |text: &str| {
            text.replace("ADDRESS", &address.to_string())
                .replace("SERVICE_PORT", &service.port.to_string())
                .replace("CERTIFICATES", &certificates.display().to_string())
        };
        kubernetes.apply(&filled(AMBIENT))?;
        kubernetes.apply(&filled(AS_ENVOY_IS_RELEASED))?;
        let proxy = start(&Workload {
            name: "waypoint-0",
            kind: Kind::Waypoint,
            account: Account {
                namespace: NAMESPACE.to_owned(),
                name: "waypoint".to_owned(),
            },
            label: ("gateway.networking.k8s.io/gateway-name", "waypoint"),
            address,
            // To later versions, istiod delivers a filter that only Istio's Envoy has (io.istio.connect_authority).
            environment: vec![("ISTIO_META_ISTIO_VERSION".to_owned(), "1.29.1".to_owned())],
        })?;

        let configuration = folder.join("tunnel.yaml");
        fs::write(&configuration, filled(TUNNEL)).map_err(Failure::of("writing the tunnel's configuration"))?;
        let mut command = Command::new(&tools.envoy);
        command
            .arg("--config-path")
            .arg(configuration)
            .args(["--disable-hot-restart", "--concurrency", "2"]);
        let tunnel = Process::start("tunnel", &mut command, &folder.join("tunnel.log"))?;
        Ok(Self { proxy, _tunnel: tunnel })
    }
}

/// The waypoint and the service in Kubernetes, as `istioctl waypoint apply` and a label create them.
const AMBIENT: &str = r#"
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: istio-waypoint}
spec: {controllerName: istio.io/mesh-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: waypoint, namespace: ambient, labels: {istio.io/waypoint-for: service}}
spec:
  gatewayClassName: istio-waypoint
  listeners: [{name: mesh, port: 15008, protocol: HBONE}]
status:
  addresses: [{type: Hostname, value: waypoint.ambient.svc.cluster.local}]
---
apiVersion: v1
kind: Service
metadata:
  name: waypoint
  namespace: ambient
  labels: {gateway.istio.io/managed: istio.io-mesh-controller, gateway.networking.k8s.io/gateway-name: waypoint}
spec:
  clusterIP: 240.240.0.1
  clusterIPs: [240.240.0.1]
  selector: {gateway.networking.k8s.io/gateway-name: waypoint}
  ports: [{name: mesh, port: 15008, protocol: TCP, targetPort: 15008, appProtocol: all}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: waypoint-1, namespace: ambient, labels: {kubernetes.io/service-name: waypoint}}
addressType: IPv4
endpoints: [{addresses: [ADDRESS], targetRef: {kind: Pod, name: waypoint-0, namespace: ambient}}]
ports: [{name: mesh, port: 15008, protocol: TCP}]
---
apiVersion: v1
kind: Pod
metadata: {name: waypoint-0, namespace: ambient, labels: {gateway.networking.k8s.io/gateway-name: waypoint}}
spec: {serviceAccountName: waypoint}
status: {phase: Running, podIP: ADDRESS, podIPs: [{ip: ADDRESS}], conditions: [{type: Ready, status: "True"}]}
---
apiVersion: v1
kind: Service
metadata: {name: payments, namespace: ambient, labels: {istio.io/use-waypoint: waypoint}}
spec:
  clusterIP: 240.240.0.2
  clusterIPs: [240.240.0.2]
  selector: {app: payments}
  ports: [{name: http, port: 80, protocol: TCP, targetPort: SERVICE_PORT}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: payments-1, namespace: ambient, labels: {kubernetes.io/service-name: payments}}
addressType: IPv4
endpoints: [{addresses: [127.0.0.1]}]
ports: [{name: http, port: SERVICE_PORT, protocol: TCP}]
"#;

/// Removes Istio's own filters, which the released Envoy does not have and no setting turns off. Also makes the
/// waypoint listen on its own address instead of on all of this machine's.
const AS_ENVOY_IS_RELEASED: &str = r#"
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: as-envoy-is-released, namespace: ambient}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: waypoint}]
  configPatches:
    - applyTo: HTTP_FILTER
      match:
        context: SIDECAR_INBOUND
        listener:
          filterChain:
            filter:
              name: envoy.filters.network.http_connection_manager
              subFilter: {name: waypoint_downstream_peer_metadata}
      patch: {operation: REMOVE}
    - applyTo: HTTP_FILTER
      match:
        context: SIDECAR_INBOUND
        listener:
          filterChain:
            filter:
              name: envoy.filters.network.http_connection_manager
              subFilter: {name: waypoint_upstream_peer_metadata}
      patch: {operation: REMOVE}
    - applyTo: LISTENER
      match: {context: SIDECAR_INBOUND, listener: {name: connect_terminate}}
      patch: {operation: MERGE, value: {address: {socket_address: {address: ADDRESS, port_value: 15008}}}}
"#;

/// The part of a ztunnel: each connection becomes a CONNECT to the service's address over the mesh's mutual TLS. Each
/// has its own TLS connection, so that every worker of the waypoint gets some.
const TUNNEL: &str = r#"
static_resources:
  listeners:
    - name: tunnel
      address: {socket_address: {address: ADDRESS, port_value: 8080}}
      filter_chains:
        - filters:
            - name: envoy.filters.network.tcp_proxy
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
                stat_prefix: tunnel
                cluster: waypoint
                tunneling_config: {hostname: "240.240.0.2:80"}
  clusters:
    - name: waypoint
      load_assignment:
        cluster_name: waypoint
        endpoints:
          - lb_endpoints: [{endpoint: {address: {socket_address: {address: ADDRESS, port_value: 15008}}}}]
      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          common_http_protocol_options: {max_requests_per_connection: 1}
          explicit_http_config: {http2_protocol_options: {}}
      transport_socket:
        name: tls
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
          common_tls_context:
            alpn_protocols: [h2]
            tls_params: {tls_minimum_protocol_version: TLSv1_3, tls_maximum_protocol_version: TLSv1_3}
            tls_certificates:
              - certificate_chain: {filename: CERTIFICATES/cert-chain.pem}
                private_key: {filename: CERTIFICATES/key.pem}
            validation_context:
              trusted_ca: {filename: CERTIFICATES/root-cert.pem}
              match_typed_subject_alt_names:
                - {san_type: URI, matcher: {exact: "spiffe://cluster.local/ns/ambient/sa/waypoint"}}
"#;
