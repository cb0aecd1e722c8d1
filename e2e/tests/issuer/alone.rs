//! Two issuers never share grants or a name.

use std::fs;

use credence_e2e::waiting;

use crate::Scene;

#[test]
fn a_second_issuer_is_refused_in_the_same_folder_and_at_the_same_url() {
    let scene = Scene::start();
    let other = scene.folder.path().join("other");
    fs::create_dir(&other).unwrap();
    for (data, expected) in [
        (scene.issuer.data_dir(), "is in use by"),
        (other, "another issuer answers at"),
    ] {
        let mut second = scene.issuer.another(&data).unwrap();
        let status = waiting::until("the second issuer to end", || second.ended()).unwrap();
        assert!(!status.success(), "{status}");
        assert!(second.output().contains(expected), "{}", second.output());
    }
    // The first one was not disturbed.
    let mut ada = scene.issuer.browser("ada");
    scene.granted(&mut ada, "book").redeem();
}
