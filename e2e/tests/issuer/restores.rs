//! The control plane's data is restored from an older copy, or lost.

use std::fs;

use credence_e2e::control_plane::copy_folder;

use crate::Scene;

/// What was recorded after the copy is gone with the disk. All events that were under way are recorded once.
#[test]
fn after_a_restored_copy_every_event_that_waited_is_recorded_once() {
    let mut scene = Scene::start();
    let mut ada = scene.issuer.browser("ada");
    scene.granted(&mut ada, "before").redeem();
    scene.wait_until_reported();
    scene.control_plane.stop().unwrap();
    let copy = scene.folder.path().join("copy");
    copy_folder(&scene.control_plane.data_dir(), &copy).unwrap();

    scene.control_plane.restart().unwrap();
    scene.granted(&mut ada, "lost").redeem();
    scene.wait_until_reported();
    scene.control_plane.kill().unwrap();
    // It waits.
    scene.withdrawn(&mut ada, "before");
    fs::remove_dir_all(scene.control_plane.data_dir()).unwrap();
    copy_folder(&copy, &scene.control_plane.data_dir()).unwrap();
    scene.control_plane.restart_restored().unwrap();

    // Its tokens count once the new log's not-before time is past.
    scene.granted(&mut ada, "after");
    scene.wait_until_reported();
    assert_eq!(scene.reasons("before"), ["granted", "withdrawn_by_person"]);
    assert_eq!(scene.reasons("after"), ["granted"]);
    assert!(scene.reasons("lost").is_empty());
}

/// The new ledger knows nothing of the issuer.
#[test]
fn a_new_control_plane_gets_every_event_that_waited_once() {
    let mut scene = Scene::start();
    let mut ada = scene.issuer.browser("ada");
    scene.granted(&mut ada, "before").redeem();
    scene.wait_until_reported();
    scene.control_plane.kill().unwrap();
    scene.withdrawn(&mut ada, "before");
    fs::remove_dir_all(scene.control_plane.data_dir()).unwrap();
    scene.control_plane.restart_as_a_new_log().unwrap();

    // Its tokens count once the new log's not-before time is past.
    scene.granted(&mut ada, "after");
    scene.wait_until_reported();
    assert_eq!(scene.reasons("before"), ["withdrawn_by_person"]);
    assert_eq!(scene.reasons("after"), ["granted"]);
}
