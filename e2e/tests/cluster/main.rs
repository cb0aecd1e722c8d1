//! Three replicas on three members of etcd, and an Envoy that may follow any of them.

mod losses;
mod moves;
mod restores;
mod security;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use credence_e2e::cluster::{self, ClusterOptions};
use credence_e2e::control_plane::ControlPlane;
use credence_e2e::grants::READ;
use credence_e2e::late_allows::Load;
use credence_e2e::{Request, Stack};

/// S of the log and of the filters: the default.
const MAX_STALENESS: Duration = Duration::from_secs(5);

/// Everything, on this machine.
struct Cluster {
    all: cluster::Cluster,
    _alone: MutexGuard<'static, ()>,
}

impl Cluster {
    /// `None` without etcd, which needs Go.
    fn start() -> Option<Self> {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let all = cluster::Cluster::start(&ClusterOptions::default()).unwrap()?;
        Some(Self { all, _alone: alone })
    }

    fn stack(&self) -> &Stack {
        &self.all.stack
    }

    fn replica(&mut self, nth: usize) -> &mut ControlPlane {
        self.all.replica(nth)
    }

    /// Load with the delegations of these people, once every worker allows all of them.
    fn load_of(&self, subjects: &[&str]) -> Load {
        load_of(self.stack(), subjects)
    }
}

fn load_of(stack: &Stack, subjects: &[&str]) -> Load {
    let request_for = |subject: &&str| {
        let chain = stack.mint(subject, &["--tool", READ]).unwrap();
        Request::get("/v1/catalog/book").delegation(&chain)
    };
    let requests: Vec<_> = subjects
        .iter()
        .map(|subject| (*subject, request_for(subject)))
        .collect();
    let load = Load::start(&stack.envoy, &requests).unwrap();
    for subject in subjects {
        load.until_allowed(subject).unwrap();
    }
    load
}

/// One cluster at a time: nine processes are enough for a machine with two cores.
static ALONE: Mutex<()> = Mutex::new(());
