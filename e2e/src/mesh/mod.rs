//! An Istio mesh on this machine. A real istiod signs certificates and delivers envoy-config/istio to real proxies
//! (pilot-agent with Envoy as its child): a gateway, a sidecar and a waypoint. The control plane gets its certificate
//! from the mesh too. Only Kubernetes and ztunnel are stand-ins.

pub mod istiod;
pub mod kubernetes;
pub mod modules;
pub mod proxy;
pub mod shipped;
pub mod tools;
pub mod waypoint;

use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::{BuildHasher as _, Hasher as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use self::istiod::Istiod;
use self::kubernetes::{Account, Kubernetes};
use self::modules::Modules;
use self::proxy::{Kind, Proxy, Workload};
use self::shipped::ControlPlanePod;
use self::tools::Tools;
use self::waypoint::Waypoint;
use crate::artefacts::Artefacts;
use crate::audit::Record;
use crate::command::{Credence, Key};
use crate::configuration::Replacement;
use crate::control_plane::ControlPlane;
use crate::grants::CHARGE;
use crate::upstream::Upstream;
use crate::{AUDIENCE, Failure, ISSUER, Request, guardian, waiting};

/// A running mesh. All of it stops when this is dropped, or when the process ends.
#[derive(Debug)]
pub struct Mesh {
    /// The API server for configuration.
    pub kubernetes: Kubernetes,
    /// The gateway's proxy, configured by wasmplugin-gateway.yaml.
    pub gateway: Proxy,
    /// The service's sidecar, configured by wasmplugin.yaml.
    pub sidecar: Proxy,
    /// The control plane that the filters connect to.
    pub control_plane: ControlPlane,
    /// The web server from which agents fetch the filter.
    pub modules: Modules,
    /// The service, behind both.
    pub upstream: Upstream,
    /// The `credence` command.
    pub credence: Credence,
    /// The key of the filters' trust anchor.
    pub issuer: Key,
    /// An agent's key.
    pub agent: Key,
    /// The SHA-256 of the built filter.
    pub digest: String,
    /// The file of the built filter.
    pub filter: PathBuf,
    /// Istio's programs.
    pub tools: Tools,
    istiod: Istiod,
    _control_plane_agent: Proxy,
    network: Network,
    // Last: files are removed once no process uses them.
    folder: TempDir,
}

/// The name under which the filter's module is served.
pub const MODULE: &str = "credence-filter.wasm";

/// The file that works without a WasmPlugin.
pub const ENVOY_FILTER: &str = "envoyfilter.yaml";

/// The file for a waypoint.
pub const WAYPOINT_FILE: &str = "wasmplugin-waypoint.yaml";

/// The folder that the control plane's agent writes certificates to.
const CERTIFICATES: &str = "certificates";

/// The path that charges an account.
pub const CHARGES: &str = "/v1/accounts/acme/charges?amount=1";

impl Mesh {
    /// Starts everything and waits until both proxies allow a valid request.
    ///
    /// # Errors
    /// If a program does not start; the error has its last output.
    pub fn start() -> Result<Self, Failure> {
        let artefacts = Artefacts::from_environment()?;
        let tools = Tools::from_environment()?;
        let folder = TempDir::with_prefix("credence-mesh-").map_err(Failure::of("making a folder for a mesh"))?;
        guardian::own(folder.path())?;
        let network = Network::new();

        let kubernetes = Kubernetes::start(network.at(ISTIOD, 0), &NAMESPACES)?;
        kubernetes.apply(&shipped::read("control-plane/cluster.yaml")?)?;
        let istiod = Istiod::start(&tools.istiod, &kubernetes, network.host(ISTIOD), folder.path())?;

        let (control_plane_agent, certificates) = control_plane_agent(&tools, &kubernetes, &istiod, &network, &folder)?;
        let control_plane = control_plane(&artefacts, folder.path(), &certificates)?;
        kubernetes.apply(&shipped::adapted(
            "control-plane/outside.yaml",
            &[
                Replacement::once("address: 192.0.2.10", "address: 127.0.0.1"),
                Replacement::once(
                    "{grpc-filters: 7071}",
                    format!("{{grpc-filters: {}}}", control_plane.grpc().port()),
                ),
            ],
        )?)?;

        let upstream = Upstream::start()?;
        apply_surroundings(&kubernetes, &network, &upstream)?;
        let modules = Modules::start()?;
        let filter = fs::read(&artefacts.filter).map_err(Failure::of("reading the filter"))?;
        let digest = modules.put(MODULE, filter);
        let credence = Credence::new(&artefacts.credence, folder.path());
        let (issuer, agent) = (credence.keygen("issuer")?, credence.keygen("agent")?);
        let values = values(&modules.url(MODULE), &digest, control_plane.log_id(), &issuer.x);
        for file in ["wasmplugin-gateway.yaml", "wasmplugin.yaml"] {
            kubernetes.apply(&shipped::adapted(file, &values)?)?;
        }

        let start =
            |workload: &Workload| Proxy::start(&tools, &kubernetes, istiod.discovery(), workload, folder.path());
        let gateway = start(&Workload {
            name: "gateway-0",
            kind: Kind::Gateway,
            account: account("istio-ingress", "gateway"),
            label: ("istio", "ingressgateway"),
            address: network.host(GATEWAY),
            environment: Vec::new(),
        })?;
        let sidecar = start(&Workload {
            name: "payments-0",
            kind: Kind::Sidecar,
            account: account("payments", "payments"),
            label: ("app", "payments"),
            address: network.host(SIDECAR),
            environment: Vec::new(),
        })?;
        let mesh = Self {
            kubernetes,
            gateway,
            sidecar,
            control_plane,
            modules,
            upstream,
            credence,
            issuer,
            agent,
            digest,
            filter: artefacts.filter,
            tools,
            istiod,
            _control_plane_agent: control_plane_agent,
            network,
            folder,
        };
        mesh.wait_until_proofs_count(&mesh.gateway)?;
        mesh.wait_until_proofs_count(&mesh.sidecar)?;
        Ok(mesh)
    }

    /// A file of envoy-config/istio with the filter in it, adapted to this mesh, with these further changes made first.
    ///
    /// # Errors
    /// If a change does not fit.
    pub fn adapted(&self, file: &str, changes: &[Replacement]) -> Result<String, Failure> {
        self.with_module(file, MODULE, changes)
    }

    /// The same with the module of another name, and the filter's own SHA-256.
    ///
    /// # Errors
    /// As [`adapted`](Self::adapted).
    pub fn with_module(&self, file: &str, module: &str, changes: &[Replacement]) -> Result<String, Failure> {
        let url = self.modules.url(module);
        let values = values(&url, &self.digest, self.control_plane.log_id(), &self.issuer.x);
        shipped::adapted(file, &[changes, &values].concat())
    }

    /// envoyfilter.yaml, with the filter from a file of this machine.
    ///
    /// # Errors
    /// As [`adapted`](Self::adapted).
    pub fn envoy_filter(&self, filter: &Path) -> Result<String, Failure> {
        let file = Replacement::once(
            "filename: /var/lib/credence/credence-filter.wasm",
            format!("filename: {}", filter.display()),
        );
        let [log, key] = settings(self.control_plane.log_id(), &self.issuer.x);
        shipped::adapted(ENVOY_FILTER, &[file, log, key])
    }

    /// Starts a waypoint in front of the service, in its own namespace, with wasmplugin-waypoint.yaml, and waits for
    /// it.
    ///
    /// # Errors
    /// If it does not allow a valid request in time.
    pub fn start_waypoint(&self) -> Result<Waypoint, Failure> {
        let elsewhere = Replacement {
            text: "namespace: payments".into(),
            times: 3,
            by: format!("namespace: {}", waypoint::NAMESPACE),
        };
        self.kubernetes.apply(&self.adapted(WAYPOINT_FILE, &[elsewhere])?)?;
        let folder = self.folder.path();
        let waypoint = Waypoint::start(
            &self.tools,
            &self.kubernetes,
            |workload| Proxy::start(&self.tools, &self.kubernetes, self.istiod.discovery(), workload, folder),
            &waypoint::Service {
                address: self.network.host(WAYPOINT),
                port: self.upstream.address().port(),
            },
            (folder, &folder.join(CERTIFICATES)),
        )?;
        self.wait_until_proofs_count(&waypoint.proxy)?;
        Ok(waypoint)
    }

    /// Starts another sidecar of the service, with another account, and does not wait for it.
    ///
    /// # Errors
    /// If it does not become live.
    pub fn start_stranger(&self) -> Result<Proxy, Failure> {
        let workload = Workload {
            name: "stranger-0",
            kind: Kind::Gateway,
            account: account("elsewhere", "stranger"),
            label: ("istio", "stranger"),
            address: self.network.host(STRANGER),
            environment: Vec::new(),
        };
        self.kubernetes
            .apply(&GATEWAY_OF_A_STRANGER.replace("ADDRESS", &self.network.host(STRANGER).to_string()))?;
        let folder = self.folder.path();
        Proxy::start(
            &self.tools,
            &self.kubernetes,
            self.istiod.discovery(),
            &workload,
            folder,
        )
    }

    /// `credence mint`: a root for `subject`, held by the agent, for the service, that may charge any account any
    /// amount.
    ///
    /// # Errors
    /// If the command fails.
    pub fn mint(&self, subject: &str) -> Result<String, Failure> {
        let issuer = [
            "mint",
            "--key",
            self.issuer.path(),
            "--issuer",
            ISSUER,
            "--subject",
            subject,
        ];
        let held = ["--holder", self.agent.path(), "--audience", AUDIENCE, "--tool", CHARGE];
        self.credence.run(issuer.iter().chain(&held))
    }

    /// A request to charge an account with this delegation and a new proof.
    ///
    /// # Errors
    /// If the command fails.
    pub fn charge(&self, chain: &str) -> Result<Request, Failure> {
        let proof = [
            "prove",
            "--chain",
            chain,
            "--key",
            self.agent.path(),
            "--audience",
            AUDIENCE,
        ];
        let of_what = [
            "--tool",
            "payments.charge",
            "--arg",
            "account=acme",
            "--arg-json",
            "amount=1",
        ];
        let proof = self.credence.run(proof.iter().chain(&of_what))?;
        Ok(Request::post(CHARGES).delegation(chain).proof(proof))
    }

    /// `credence revoke principal`.
    ///
    /// # Errors
    /// If the command fails.
    pub fn revoke(&self, subject: &str) -> Result<String, Failure> {
        let what = ["revoke", "principal", "--issuer", ISSUER, "--subject", subject].map(str::to_owned);
        self.credence.run(what.into_iter().chain(self.access()))
    }

    /// `credence audit query`: all records so far, oldest first.
    ///
    /// # Errors
    /// If the command fails.
    pub fn records(&self) -> Result<Vec<Record>, Failure> {
        let query = ["audit", "query", "--json", "--limit", "1000000"].map(str::to_owned);
        let printed = self.credence.run(query.into_iter().chain(self.access()))?;
        let mut records = printed
            .lines()
            .map(|line| serde_json::from_str(line).map_err(Failure::of(format_args!("reading the record {line}"))))
            .collect::<Result<Vec<Record>, Failure>>()?;
        records.sort_by_key(|record| record.index);
        Ok(records)
    }

    /// Waits until every worker's filter follows the revocation log and accepts proofs.
    ///
    /// # Errors
    /// If that takes too long.
    pub fn wait_until_proofs_count(&self, proxy: &Proxy) -> Result<(), Failure> {
        let chain = self.mint("probe")?;
        proxy.until_every_worker(
            "every worker to accept proofs",
            || self.charge(&chain),
            |reply| reply.status == 200,
        )
    }

    fn access(&self) -> Vec<String> {
        let mut access = self.control_plane.place();
        let token = self.control_plane.token_file().display().to_string();
        access.extend(["--token-file".to_owned(), token]);
        access
    }
}

/// The values for files that name the module's URL: the URL, the log and the issuer's key.
fn values(url: &str, digest: &str, log_id: &str, anchor: &str) -> [Replacement; 4] {
    let [log, key] = settings(log_id, anchor);
    [
        Replacement::once(
            "url: oci://registry.example/credence/credence-filter:0.2.0",
            format!("url: {url}"),
        ),
        Replacement::once(
            format!("sha256: \"{}\"", "0".repeat(64)),
            format!("sha256: \"{digest}\""),
        ),
        log,
        key,
    ]
}

/// The values for every file with the filter: the log and the issuer's key.
fn settings(log_id: &str, anchor: &str) -> [Replacement; 2] {
    let log = "log_id: 0123456789abcdef0123456789abcdef";
    let key = "x: yYBm-rE6VHWP5Wqf-hF5cS2bUSil1mkmgEUrOfsixqc";
    [
        Replacement::once(log, format!("log_id: {log_id}")),
        Replacement::once(key, format!("x: {anchor}")),
    ]
}

/// The agent beside the control plane, and the folder that it wrote the certificate to.
fn control_plane_agent(
    tools: &Tools,
    kubernetes: &Kubernetes,
    istiod: &Istiod,
    network: &Network,
    folder: &TempDir,
) -> Result<(Proxy, PathBuf), Failure> {
    let certificates = folder.path().join(CERTIFICATES);
    fs::create_dir(&certificates).map_err(Failure::of("making a folder for certificates"))?;
    let pod = control_plane_pod(&certificates)?;
    let mut agent = Proxy::start(
        tools,
        kubernetes,
        istiod.discovery(),
        &Workload {
            name: "credence-control-plane-0",
            kind: Kind::AgentAlone,
            account: account("credence", "credence-control-plane"),
            label: ("app", "credence"),
            address: network.host(CONTROL_PLANE),
            environment: pod.environment.into_iter().collect(),
        },
        folder.path(),
    )?;
    waiting::until("the agent to write the control plane's certificate", || {
        agent.check_running()?;
        let files = ["cert-chain.pem", "key.pem", "root-cert.pem"].map(|name| certificates.join(name));
        Ok(files.iter().all(|file| file.is_file()).then_some(()))
    })?;
    Ok((agent, certificates))
}

fn control_plane(artefacts: &Artefacts, folder: &Path, certificates: &Path) -> Result<ControlPlane, Failure> {
    let settings = folder.join("credence.yaml");
    fs::write(&settings, control_plane_pod(certificates)?.settings).map_err(Failure::of("writing settings"))?;
    let options = ["--config".to_owned(), settings.display().to_string()];
    ControlPlane::start(&artefacts.credence, folder, &options)
}

fn control_plane_pod(certificates: &Path) -> Result<ControlPlanePod, Failure> {
    // The waypoint has a namespace of its own.
    let waypoint = Replacement::once(
        "ns/payments/sa/waypoint",
        format!("ns/{}/sa/waypoint", waypoint::NAMESPACE),
    );
    let manifest = shipped::read("../kubernetes/control-plane.yaml")?;
    let settings = shipped::adapted("control-plane/settings.yaml", &[waypoint])?;
    let folder = certificates.display().to_string();
    let with_certificates = |text: &str| text.replace("/etc/credence/istio", &folder);
    ControlPlanePod::parse(&with_certificates(&manifest), &with_certificates(&settings))
}

/// The platform team's part: the service, the gateway and the route between them. The service's Sidecar is sidecar.yaml
/// and listens on its own port, since no traffic is redirected on this machine.
fn apply_surroundings(kubernetes: &Kubernetes, network: &Network, upstream: &Upstream) -> Result<(), Failure> {
    let port = upstream.address().port().to_string();
    let filled = |text: &str, host: u8| {
        text.replace("ADDRESS", &network.host(host).to_string())
            .replace("SERVICE_PORT", &port)
    };
    kubernetes.apply(&filled(SURROUNDINGS, GATEWAY))?;
    let listening = [Replacement::once(
        "spec:\n  egress:\n    - hosts:\n",
        filled(LISTENING, SIDECAR),
    )];
    kubernetes.apply(&shipped::adapted("control-plane/sidecar.yaml", &listening)?)
}

const SURROUNDINGS: &str = r#"
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: ingress, namespace: istio-ingress}
spec:
  selector: {istio: ingressgateway}
  servers:
    - {port: {number: 8080, name: http, protocol: HTTP}, bind: ADDRESS, hosts: ["*"]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: ingress, namespace: istio-ingress}
spec:
  hosts: ["*"]
  gateways: [ingress]
  http:
    - route: [{destination: {host: payments.example, port: {number: 80}}}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: payments, namespace: istio-ingress}
spec:
  hosts: [payments.example]
  location: MESH_EXTERNAL
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}]
  endpoints: [{address: 127.0.0.1, ports: {http: SERVICE_PORT}}]
"#;

/// In sidecar.yaml, between `spec` and the hosts of `egress`.
const LISTENING: &str = "spec:
  workloadSelector: {labels: {app: payments}}
  ingress:
    - port: {number: 8080, protocol: HTTP, name: http}
      bind: ADDRESS
      captureMode: NONE
      defaultEndpoint: 127.0.0.1:SERVICE_PORT
  egress:
    - port: {number: 8081, protocol: HTTP_PROXY, name: egress}
      bind: ADDRESS
      captureMode: NONE
      hosts:
";

const GATEWAY_OF_A_STRANGER: &str = r#"
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: stranger, namespace: elsewhere}
spec:
  selector: {istio: stranger}
  servers:
    - {port: {number: 8080, name: http, protocol: HTTP}, bind: ADDRESS, hosts: ["*"]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: stranger, namespace: elsewhere}
spec:
  hosts: ["*"]
  gateways: [stranger]
  http:
    - route: [{destination: {host: payments.example, port: {number: 80}}}]
"#;

const NAMESPACES: [&str; 6] = [
    waypoint::NAMESPACE,
    "istio-system",
    "istio-ingress",
    "payments",
    "credence",
    "elsewhere",
];

fn account(namespace: &str, name: &str) -> Account {
    Account {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

/// Addresses of this machine that only this mesh uses, so that each of its programs can listen on its usual port.
#[derive(Debug)]
struct Network {
    prefix: [u8; 3],
}

impl Network {
    fn new() -> Self {
        let [second, third, ..] = RandomState::new().build_hasher().finish().to_be_bytes();
        // Other programs may listen on 127.0.x.y.
        Self {
            prefix: [127, second.max(1), third],
        }
    }

    fn host(&self, number: u8) -> Ipv4Addr {
        let [first, second, third] = self.prefix;
        Ipv4Addr::new(first, second, third, number)
    }

    fn at(&self, number: u8, port: u16) -> SocketAddr {
        SocketAddr::from((self.host(number), port))
    }
}

const ISTIOD: u8 = 1;
const GATEWAY: u8 = 2;
const SIDECAR: u8 = 3;
const CONTROL_PLANE: u8 = 4;
const STRANGER: u8 = 5;
const WAYPOINT: u8 = 6;
