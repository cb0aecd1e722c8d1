//! Faults of the control plane and of the disk below its ledger. Acknowledged evidence is there once and in order; the
//! fault is reported; revocations and requests continue; and the ledger recovers without an operator.

mod disk;
mod kills;
mod slow_disk;

use std::path::PathBuf;
use std::time::Duration;

use credence_e2e::artefacts::Artefacts;
use credence_e2e::control_plane::ControlPlane;
use credence_e2e::read_back::Holdings;
use credence_e2e::reporter::{Reporter, Told, Volume};

fn program() -> PathBuf {
    Artefacts::from_environment().unwrap().credence
}

/// Sources that report at the same time.
struct Reporters(Vec<(String, Reporter)>);

impl Reporters {
    fn start(control_plane: &ControlPlane, count: usize, volume: Volume) -> Self {
        let start = |number| {
            let label = format!("source-{number}");
            let reporter = Reporter::start(control_plane.grpc(), &label, volume);
            (label, reporter)
        };
        Self((0..count).map(start).collect())
    }

    fn until_acknowledged_again(&self) {
        for (_, reporter) in &self.0 {
            reporter.until_acknowledged_again().unwrap();
        }
    }

    fn acknowledged(&self) -> u64 {
        self.0.iter().map(|(_, reporter)| reporter.told().acknowledged).sum()
    }

    /// Ends them once all entries are acknowledged and checks that no promise was broken. Returns what each was told.
    fn finish(self) -> Vec<(String, Told)> {
        let finish = |(label, reporter): (String, Reporter)| {
            let told = reporter.finish().unwrap();
            assert_eq!(told.broken, None, "{label}");
            (label, told)
        };
        self.0.into_iter().map(finish).collect()
    }
}

fn assert_complete(control_plane: &ControlPlane, sources: &[(String, Told)]) {
    let holdings = Holdings::of(control_plane).unwrap();
    for (label, told) in sources {
        holdings.assert_complete(label, told);
    }
}

/// A few thousand entries a second for each source.
const BUSY: Volume = Volume {
    entries: 5,
    pause: Duration::from_millis(5),
};
/// So few that they need minutes to fill a few MiB.
const SLOW: Volume = Volume {
    entries: 2,
    pause: Duration::from_millis(50),
};
