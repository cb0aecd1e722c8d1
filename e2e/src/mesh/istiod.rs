//! A real istiod (pilot-discovery) that reads everything from [`Kubernetes`] and signs workload certificates.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

use super::kubernetes::Kubernetes;
use crate::process::Process;
use crate::{Client, Failure, Request, waiting};

/// A running istiod; killed when dropped.
#[derive(Debug)]
pub struct Istiod {
    // Kept alive, not read.
    _process: Process,
    discovery: SocketAddr,
}

impl Istiod {
    /// Starts one on this address, and waits until it serves its configuration. Its files go into `folder`.
    ///
    /// # Errors
    /// If it does not become ready; the error has its last output.
    pub fn start(program: &Path, kubernetes: &Kubernetes, address: Ipv4Addr, folder: &Path) -> Result<Self, Failure> {
        let write = |name: &str, text: String| {
            let file = folder.join(name);
            fs::write(&file, text).map_err(Failure::of(format_args!("writing {}", file.display())))?;
            Ok(file)
        };
        let kubeconfig = write(
            "kubeconfig",
            KUBECONFIG.replace("ADDRESS", &kubernetes.address().to_string()),
        )?;
        let mesh = write("mesh.yaml", MESH.to_owned())?;
        let at = |port: u16| SocketAddr::from((address, port));
        let discovery = at(DISCOVERY_PORT);
        let mut command = Command::new(program);
        command
            .current_dir(folder)
            .arg("discovery")
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .arg("--meshConfig")
            .arg(mesh)
            .args(["--clusterID", "Kubernetes"])
            // The waypoint's service comes from Kubernetes, the others from ServiceEntries.
            .arg("--registries=Kubernetes")
            .args(["--httpAddr", &at(READY_PORT).to_string()])
            .args(["--grpcAddr", &discovery.to_string()])
            // istiod and its agents run on the same machine.
            .args(["--secureGRPCAddr=", "--httpsAddr="])
            .args(["--monitoringAddr", &at(MONITORING_PORT).to_string()])
            .args(["--ctrlz_port", "0"])
            .envs(ENVIRONMENT);
        let mut process = Process::start("istiod", &mut command, &folder.join("istiod.log"))?;
        waiting::until("istiod to be ready", || {
            process.check_running()?;
            // It may not be listening yet.
            let reply = Client::connect(at(READY_PORT)).and_then(|mut client| client.send(&Request::get("/ready")));
            Ok(reply.ok().filter(|reply| reply.status == 200).map(|_| ()))
        })?;
        Ok(Self {
            _process: process,
            discovery,
        })
    }

    /// The address for agents.
    pub fn discovery(&self) -> SocketAddr {
        self.discovery
    }
}

/// Agents connect without TLS only to this port.
const DISCOVERY_PORT: u16 = 15010;
const READY_PORT: u16 = 8080;
const MONITORING_PORT: u16 = 15014;

const KUBECONFIG: &str = r#"apiVersion: v1
kind: Config
clusters: [{name: here, cluster: {server: "http://ADDRESS"}}]
users: [{name: istiod, user: {token: istiod}}]
contexts: [{name: here, context: {cluster: here, user: istiod, namespace: istio-system}}]
current-context: here
"#;

/// Istio's defaults, without what the released Envoy lacks: filters of Istio's own build.
const MESH: &str = "accessLogFile: /dev/stdout\ndefaultProviders: {metrics: []}\n";

const ENVIRONMENT: [(&str, &str); 14] = [
    ("POD_NAME", "istiod-0"),
    ("POD_NAMESPACE", "istio-system"),
    // It signs workloads' certificates, and needs none of its own.
    ("ENABLE_CA_SERVER", "true"),
    ("PILOT_CERT_PROVIDER", "none"),
    // Agents authenticate without TLS too.
    ("XDS_AUTH_PLAINTEXT", "true"),
    // There is no API server to call them.
    ("VALIDATION_WEBHOOK_CONFIG_NAME", ""),
    ("INJECTION_WEBHOOK_CONFIG_NAME", ""),
    // Filters of Istio's own Envoy build.
    ("PILOT_ENABLE_METADATA_EXCHANGE", "false"),
    ("PILOT_ENABLE_ALPN_FILTER", "false"),
    // Waypoints, besides gateways and sidecars.
    ("PILOT_ENABLE_AMBIENT", "true"),
    // Requests that the stand-in does not support.
    ("KUBE_FEATURE_WatchListClient", "false"),
    ("PILOT_ENABLE_GATEWAY_API", "false"),
    ("PILOT_ENABLE_STATUS", "false"),
    // An edit is pushed at once; the default waits up to 100 ms for more.
    ("PILOT_DEBOUNCE_AFTER", "10ms"),
];
