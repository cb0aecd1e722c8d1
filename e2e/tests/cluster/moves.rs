//! A log moves from a data folder to etcd and back, and its filters go on where they were.

use std::fs;
use std::path::Path;

use credence_e2e::artefacts::Artefacts;
use credence_e2e::control_plane::{ControlPlane, Replica};
use credence_e2e::etcd::Etcd;
use credence_e2e::operator::Operator;
use credence_e2e::{Failure, Stack, StackOptions};

use super::{ALONE, load_of};

#[test]
fn a_running_control_plane_moves_to_etcd_and_back_without_a_denial() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let Some(etcd) = Etcd::start(folder.path()).unwrap() else {
        eprintln!("SKIPPED: etcd is not built here, because there is no Go that is new enough");
        return;
    };
    let mut stack = Stack::start(&StackOptions::default()).unwrap();
    let load = load_of(&stack, &["alice", "bob", "carol", "dave"]);
    let bob = Operator::of(&stack.control_plane).unwrap().raise("bob").unwrap();
    let log_id = stack.control_plane.log_id().to_owned();
    let secrets = folder.path().join("secrets").display().to_string();
    let data = stack.control_plane.data_dir().display().to_string();
    let store = etcd.address();
    let place = ["--store", &store, "--secrets", &secrets];
    let cluster = |stack: &Stack, command: &str, options: &[&str]| {
        let arguments = ["cluster", command].into_iter().chain(options.iter().copied());
        stack.credence.run(arguments.chain(place[..2].iter().copied()))
    };

    // To etcd. The first replica goes on in the data folder, with its ledger.
    let in_use = cluster(&stack, "import", &["--data", &data, "--secrets", &secrets]);
    assert!(
        in_use.unwrap_err().to_string().contains("in use"),
        "by the control plane"
    );
    stack.control_plane.stop().unwrap();
    let moved = cluster(&stack, "import", &["--data", &data, "--secrets", &secrets]).unwrap();
    assert!(moved.contains(&format!("log_id: {log_id}\nseq: 1\n")), "{moved}");
    let refused = stack.control_plane.restart().unwrap_err().to_string();
    assert!(refused.contains("goes on in etcd://"), "{refused}");
    stack.control_plane.set_options(&place);
    stack.control_plane.restart().unwrap();
    let carol = Operator::of(&stack.control_plane).unwrap().raise("carol").unwrap();
    assert_eq!(carol.seq, 2);
    let mut second = join(folder.path(), &stack.control_plane, &place.map(str::to_owned)).unwrap();
    assert_eq!(Operator::of(&second).unwrap().epoch_of("bob").unwrap(), bob.epoch);
    let status = cluster(&stack, "status", &[]).unwrap();
    assert!(status.contains(&format!("log_id: {log_id}\nseq: 2\n")), "{status}");
    assert_eq!(status.matches(" follows ").count(), 2, "{status}");

    // And back, into another folder.
    let back = folder.path().join("back").display().to_string();
    second.stop().unwrap();
    let in_use = cluster(&stack, "export", &["--data", &back, "--secrets", &secrets]);
    assert!(in_use.unwrap_err().to_string().contains("registered"));
    load.finish().unwrap().assert_always_allowed("alice");
    stack.control_plane.stop().unwrap();
    let moved = cluster(&stack, "export", &["--data", &back, "--secrets", &secrets]).unwrap();
    assert!(moved.contains(&format!("log_id: {log_id}\nseq: 2\n")), "{moved}");
    let refused = stack.control_plane.restart().unwrap_err().to_string();
    assert!(refused.contains("goes on in the data folder"), "{refused}");
    fs::rename(&data, folder.path().join("replica-of-before")).unwrap();
    fs::rename(&back, &data).unwrap();
    stack.control_plane.set_options(&[]);
    stack.control_plane.restart().unwrap();
    let load = load_of(&stack, &["alice", "dave"]);
    let raised = Operator::of(&stack.control_plane).unwrap().raise("dave").unwrap();
    assert_eq!(raised.seq, 3);
    load.go_on_beyond(raised.at, "dave").unwrap();
    load.finish().unwrap().assert_no_late_allows("dave", raised.at);
    let mut operator = Operator::of(&stack.control_plane).unwrap();
    assert_eq!(operator.epoch_of("carol").unwrap(), carol.epoch);
}

fn join(folder: &Path, first: &ControlPlane, options: &[String]) -> Result<ControlPlane, Failure> {
    let folder = folder.join("second");
    fs::create_dir(&folder).map_err(Failure::of("making a folder"))?;
    let program = Artefacts::from_environment()?.credence;
    let replica = Replica {
        program: &program,
        folder: &folder,
        options,
        environment: &[],
        site: credence_e2e::control_plane::Site::at(credence_e2e::place::Place::default())?,
    };
    ControlPlane::join(replica, first)
}
