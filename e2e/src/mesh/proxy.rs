//! A workload's proxy as in Istio: pilot-agent, with Envoy as its child.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, iter};

use super::kubernetes::{Account, Kubernetes};
use super::tools::Tools;
use crate::process::Process;
use crate::{Client, Failure, Reply, Request, ports, waiting};

/// A running proxy; killed when dropped.
#[derive(Debug)]
pub struct Proxy {
    process: Process,
    address: Ipv4Addr,
    admin: SocketAddr,
    folder: PathBuf,
}

/// The pod of a proxy.
#[derive(Debug, Clone)]
pub struct Workload {
    /// The pod's name, also the name of the folder for the proxy's files.
    pub name: &'static str,
    /// The kind of proxy.
    pub kind: Kind,
    /// The pod's service account.
    pub account: Account,
    /// The pod's label `app` or `istio`.
    pub label: (&'static str, &'static str),
    /// The pod's address.
    pub address: Ipv4Addr,
    /// `proxyMetadata` of the pod's annotation.
    pub environment: Vec<(String, String)>,
}

/// The kinds of proxies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// At the edge of the mesh.
    Gateway,
    /// Beside a service.
    Sidecar,
    /// In front of services of an ambient mesh.
    Waypoint,
    /// An agent beside a service that needs only a certificate.
    AgentAlone,
}

impl Proxy {
    /// Starts one and waits until it is live.
    ///
    /// # Errors
    /// If it does not become live; the error has its last output.
    pub fn start(
        tools: &Tools,
        kubernetes: &Kubernetes,
        discovery: SocketAddr,
        workload: &Workload,
        folder: &Path,
    ) -> Result<Self, Failure> {
        let mut proxy = Self::launch(tools, kubernetes, discovery, workload, folder)?;
        if workload.kind != Kind::AgentAlone {
            proxy.wait_until_live()?;
        }
        Ok(proxy)
    }

    fn launch(
        tools: &Tools,
        kubernetes: &Kubernetes,
        discovery: SocketAddr,
        workload: &Workload,
        folder: &Path,
    ) -> Result<Self, Failure> {
        let Workload {
            name,
            kind,
            account,
            label,
            address,
            environment,
        } = workload;
        let folder = folder.join(name);
        // The path of a pod's service account token; the agent's paths are relative.
        let secrets = folder.join("var/run/secrets/tokens");
        fs::create_dir_all(&secrets).map_err(Failure::of("making a pod's folders"))?;
        let token = format!("token-of-{name}");
        fs::write(secrets.join("istio-token"), &token).map_err(Failure::of("writing a pod's token"))?;
        kubernetes.recognise(&token, account.clone());

        let bootstrap = folder.join("envoy_bootstrap.json");
        fs::write(&bootstrap, tools.bootstrap()?).map_err(Failure::of("writing a bootstrap"))?;

        let admin = SocketAddr::from((Ipv4Addr::LOCALHOST, ports::free()?));
        // Injection makes this of the mesh's and the pod's proxy.istio.io/config.
        let configuration = format!(
            "binaryPath: {}\ndiscoveryAddress: {discovery}\ncontrolPlaneAuthPolicy: NONE\nproxyAdminPort: {}\n\
             statusPort: {}\nconcurrency: {WORKERS}\n{STATISTICS}",
            tools.envoy.display(),
            admin.port(),
            ports::free()?
        );
        let role = match kind {
            Kind::Gateway => "router",
            Kind::Waypoint => "waypoint",
            Kind::Sidecar | Kind::AgentAlone => "sidecar",
        };
        let mut command = Command::new("unshare");
        command
            // The agent and its Envoy end with the tests. It has its own /var/lib.
            .args(["--mount", "--pid", "--fork", "--kill-child=KILL"])
            .args(as_own_root())
            .args(["--", "/bin/sh", "-c", IN_A_POD])
            .arg(&tools.agent)
            .args(["proxy", role, "--domain"])
            .arg(format!("{}.svc.cluster.local", account.namespace))
            .args(["--proxyComponentLogLevel", "wasm:info"])
            .current_dir(&folder)
            .env("PROXY_CONFIG", configuration)
            .env("ISTIO_BOOTSTRAP", bootstrap)
            .env("POD_NAME", name)
            .env("POD_NAMESPACE", &account.namespace)
            .env("SERVICE_ACCOUNT", &account.name)
            .env("INSTANCE_IP", address.to_string())
            .env("ISTIO_META_CLUSTER_ID", "Kubernetes")
            .env("ISTIO_META_WORKLOAD_NAME", name)
            .env("ISTIO_METAJSON_LABELS", format!(r#"{{"{}": "{}"}}"#, label.0, label.1))
            // Packets are not redirected on this machine.
            .env("ISTIO_META_INTERCEPTION_MODE", "NONE")
            .env("ENVOY_STATUS_PORT", ports::free()?.to_string())
            .env("ENVOY_PROMETHEUS_PORT", ports::free()?.to_string())
            // A test of a missing module should not wait for many retries.
            .env("WASM_HTTP_REQUEST_MAX_RETRIES", "1")
            .envs(environment.iter().map(|(name, value)| (name, value)));
        if *kind == Kind::AgentAlone {
            command.env("DISABLE_ENVOY", "true");
        }
        let process = Process::start(name, &mut command, &folder.join("log"))?;
        Ok(Self {
            process,
            address: *address,
            admin,
            folder,
        })
    }

    fn wait_until_live(&mut self) -> Result<(), Failure> {
        waiting::until("the proxy to be live", || {
            self.process.check_running()?;
            // It may not be listening yet.
            let page = self.admin_page("/ready");
            Ok(page.ok().filter(|reply| reply.status == 200).map(|_| ()))
        })
    }

    /// Fails, with the end of its output, if it is no longer running.
    ///
    /// # Errors
    /// If it has ended.
    pub fn check_running(&mut self) -> Result<(), Failure> {
        self.process.check_running()
    }

    /// The address for requests.
    pub fn ingress(&self) -> SocketAddr {
        SocketAddr::from((self.address, INGRESS_PORT))
    }

    /// Sends a request over a new connection.
    ///
    /// # Errors
    /// If there is no reply.
    pub fn send(&self, request: &Request) -> Result<Reply, Failure> {
        Client::connect(self.ingress())?.send(request)
    }

    /// Sends requests over many new connections, to reach every worker, until all replies of a round are as wanted.
    ///
    /// # Errors
    /// If that takes too long; the error has the last other reply.
    pub fn until_every_worker(
        &self,
        what: &str,
        mut request: impl FnMut() -> Result<Request, Failure>,
        is_as_wanted: impl Fn(&Reply) -> bool,
    ) -> Result<(), Failure> {
        let mut other = None;
        let waited = waiting::until(what, || {
            let mut replies = iter::repeat_with(|| self.send(&request()?)).take(CONNECTIONS);
            // It may not be listening yet.
            other = replies.find(|reply| !reply.as_ref().is_ok_and(&is_as_wanted));
            Ok(other.is_none().then_some(()))
        });
        waited.map_err(|failure| match other {
            Some(Ok(reply)) => Failure::new(format!("{failure}; last: {} {}", reply.status, reply.text())),
            Some(Err(error)) => Failure::new(format!("{failure}; last: {error}")),
            None => failure,
        })
    }

    /// A page of Envoy's admin server.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn admin_page(&self, target: &str) -> Result<Reply, Failure> {
        Client::connect(self.admin)?.send(&Request::get(target))
    }

    /// The value of a counter or gauge by its full name; 0 if Envoy does not have it.
    ///
    /// # Errors
    /// If the admin page does not answer.
    pub fn stat(&self, name: &str) -> Result<u64, Failure> {
        let page = self.admin_page("/stats")?.text();
        let value = page
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        Ok(value.and_then(|value| value.parse().ok()).unwrap_or(0))
    }

    /// The log of the agent and Envoy so far.
    pub fn log(&self) -> String {
        self.process.output()
    }

    /// The folder of its files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// A user who is not root can be root in a new user namespace.
fn as_own_root() -> &'static [&'static str] {
    if rustix::process::geteuid().is_root() {
        &[]
    } else {
        &["--user", "--map-root-user"]
    }
}

/// The agent keeps modules in a fixed folder below /var/lib, as in its image.
const IN_A_POD: &str = r#"mount -t tmpfs tmpfs /var/lib && mkdir -p /var/lib/istio/data && exec "$0" "$@""#;

/// The port of the gateway and the sidecar, each at its own address.
const INGRESS_PORT: u16 = 8080;

const WORKERS: usize = 2;

/// Once in 32,768 times, all of these reach the same one of two workers.
const CONNECTIONS: usize = 16;

/// As in envoy-config/istio-shadow/kustomization.yaml.
const STATISTICS: &str = "proxyStatsMatcher: {inclusionPrefixes: [wasmcustom]}\n";
