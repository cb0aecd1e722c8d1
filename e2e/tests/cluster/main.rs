//! Three replicas on three members of etcd, and an Envoy that may follow any of them.

mod losses;
mod restores;

use std::fs;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use credence_e2e::artefacts::Artefacts;
use credence_e2e::control_plane::ControlPlane;
use credence_e2e::etcd::Etcd;
use credence_e2e::grants::READ;
use credence_e2e::late_allows::Load;
use credence_e2e::link::Link;
use credence_e2e::{Request, Stack, StackOptions};
use tempfile::TempDir;

/// S of the log and of the filters: the default.
const MAX_STALENESS: Duration = Duration::from_secs(5);

/// Everything, on this machine.
struct Cluster {
    /// Its control plane is the first replica.
    stack: Stack,
    others: Vec<ControlPlane>,
    etcd: Etcd,
    /// The filters' paths to the replicas.
    _links: Vec<Link>,
    _folder: TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Cluster {
    /// `None` without etcd, which needs Go.
    fn start() -> Option<Self> {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::tempdir().unwrap();
        let Some(etcd) = Etcd::start(folder.path()).unwrap() else {
            eprintln!("SKIPPED: etcd is not built here, because there is no Go that is new enough");
            return None;
        };
        let secrets = folder.path().join("secrets");
        fs::create_dir(&secrets).unwrap();
        for name in ["audit-source-key", "filter-cache-secret"] {
            fs::write(secrets.join(name), [7; 32]).unwrap();
        }
        let store = ["--store", &etcd.address(), "--secrets", &secrets.display().to_string()].map(str::to_owned);
        let links: Vec<_> = (0..REPLICAS).map(|_| Link::new().unwrap()).collect();
        let options = StackOptions {
            serve_options: store.to_vec(),
            control_plane_port: Some(links[0].port()),
            unsynced: true,
            ..StackOptions::default()
        };
        let stack = Stack::start(&reaching(options, &links[1..])).unwrap();
        let program = Artefacts::from_environment().unwrap().credence;
        let join = |nth: usize| {
            let folder = folder.path().join(format!("replica{nth}"));
            join(&program, &folder, &stack.control_plane, &store)
        };
        let others: Vec<_> = (1..REPLICAS).map(join).collect();
        links[0].lead_to(stack.control_plane.grpc());
        for (link, replica) in links[1..].iter().zip(&others) {
            link.lead_to(replica.grpc());
        }
        stack.wait_until_synced().unwrap();
        Some(Self {
            stack,
            others,
            etcd,
            _links: links,
            _folder: folder,
            _alone: alone,
        })
    }

    fn replica(&mut self, nth: usize) -> &mut ControlPlane {
        match nth.checked_sub(1) {
            None => &mut self.stack.control_plane,
            Some(other) => &mut self.others[other],
        }
    }

    /// Load with the delegations of these people, once every worker allows all of them.
    fn load_of(&self, subjects: &[&str]) -> Load {
        let request_for = |subject: &&str| {
            let chain = self.stack.mint(subject, &["--tool", READ]).unwrap();
            Request::get("/v1/catalog/book").delegation(&chain)
        };
        let requests: Vec<_> = subjects
            .iter()
            .map(|subject| (*subject, request_for(subject)))
            .collect();
        let load = Load::start(&self.stack.envoy, &requests).unwrap();
        for subject in subjects {
            load.until_allowed(subject).unwrap();
        }
        load
    }
}

/// Another replica, with the same credentials.
fn join(program: &Path, folder: &Path, first: &ControlPlane, options: &[String]) -> ControlPlane {
    fs::create_dir(folder).unwrap();
    ControlPlane::join(program, folder, first, options).unwrap()
}

/// Envoy's cluster of the control plane has these addresses too, and leaves one that fails.
fn reaching(options: StackOptions, others: &[Link]) -> StackOptions {
    const ENDPOINT: &str = "              - endpoint:\n                  address: {socket_address: {address: 127.0.0.1, port_value: 7071}}\n";
    let another = |link: &Link| ENDPOINT.replace("7071", &link.port().to_string());
    let all: String = [ENDPOINT.to_owned()]
        .into_iter()
        .chain(others.iter().map(another))
        .collect();
    options
        .replacing(ENDPOINT, &all)
        .replacing(
            "    - name: credence\n      connect_timeout: 1s\n",
            "    - name: credence\n      connect_timeout: 0.25s\n      outlier_detection:\n        \
             split_external_local_origin_errors: true\n        consecutive_local_origin_failure: 1\n        \
             enforcing_consecutive_local_origin_failure: 100\n        interval: 0.5s\n        \
             base_ejection_time: 2s\n        max_ejection_percent: 66\n",
        )
        .replacing(
            "connection_keepalive: {interval: 2s, timeout: 2s}",
            "connection_keepalive: {interval: 1s, timeout: 1s}",
        )
}

const REPLICAS: usize = 3;
/// One cluster at a time: nine processes are enough for a machine with two cores.
static ALONE: Mutex<()> = Mutex::new(());
