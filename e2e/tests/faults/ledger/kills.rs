//! A control plane that is killed (`kill -9`) at random times under load, again and again.

use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{env, fs, thread};

use credence_e2e::checkpoints::Collector;
use credence_e2e::control_plane::ControlPlane;
use credence_e2e::waiting;

use super::{BUSY, Reporters, assert_complete, program};

#[test]
fn fifteen_kills_lose_and_duplicate_nothing() {
    survive(15);
}

#[test]
#[ignore = "takes a minute: 50 kills"]
fn fifty_kills_lose_and_duplicate_nothing() {
    survive(50);
}

fn survive(kills: usize) {
    let mut random = Random::seeded();
    let folder = tempfile::tempdir().unwrap();
    let mut control_plane = ControlPlane::start(&program(), folder.path(), &[]).unwrap();
    let reporters = Reporters::start(&control_plane, SOURCES, BUSY);
    let checkpoints = Collector::start(control_plane.http());
    reporters.until_acknowledged_again();
    for kill in 0..kills {
        thread::sleep(random.below(UNDER_LOAD));
        let before = reporters.acknowledged();
        control_plane.kill().unwrap();
        // Some starts end early: a start reads the ledger, truncates its end and rebuilds derived files.
        if kill % 3 == 2 {
            control_plane.restart_and_not_wait().unwrap();
            thread::sleep(random.below(STARTING));
            control_plane.kill().unwrap();
        }
        control_plane.restart().unwrap();
        reporters.until_acknowledged_again();
        assert!(reporters.acknowledged() > before, "under load, after {kill} kills");
    }
    let sources = reporters.finish();
    let welcomes: u64 = sources.iter().map(|(_, told)| told.welcomes).sum();
    assert!(
        welcomes > (SOURCES * kills) as u64,
        "each source reconnected after each kill"
    );
    assert_complete(&control_plane, &sources);
    // And the disk has the same.
    control_plane.kill().unwrap();
    control_plane.restart().unwrap();
    assert_complete(&control_plane, &sources);
    // A checkpoint of all entries follows within a second.
    let entries: u64 = sources.iter().map(|(_, told)| told.acknowledged).sum();
    waiting::until("a checkpoint of everything", || {
        Ok((checkpoints.latest_size() > entries).then_some(()))
    })
    .unwrap();
    let checkpoints = checkpoints.finish().unwrap();
    let token = fs::read_to_string(control_plane.token_file()).unwrap();
    let leaves = checkpoints.check(control_plane.http(), token.trim()).unwrap();
    eprintln!(
        "{kills} kills, {entries} entries, {leaves} leaves, {} checkpoints",
        checkpoints.count()
    );
}

/// SplitMix64. `CREDENCE_SEED` repeats a run, as far as its timing repeats.
struct Random(u64);

impl Random {
    fn seeded() -> Self {
        let seed = env::var("CREDENCE_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            u64::from(since.subsec_nanos())
        });
        eprintln!("CREDENCE_SEED={seed}");
        Self(seed)
    }

    fn below(&mut self, limit: Duration) -> Duration {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        limit.mul_f64((mixed >> 11) as f64 / (1_u64 << 53) as f64)
    }
}

const SOURCES: usize = 8;
const UNDER_LOAD: Duration = Duration::from_millis(400);
/// About the time of a start.
const STARTING: Duration = Duration::from_millis(60);
