//! The control plane is away: nothing is granted that it could have revoked, and nothing that people do is lost.

use credence_e2e::waiting;

use crate::{Scene, allow, find, reading};

#[test]
fn without_the_control_plane_people_see_and_withdraw_but_grant_nothing() {
    let mut scene = Scene::start();
    let mut ada = scene.issuer.browser("ada");
    let mut book = scene.granted(&mut ada, "book");
    let tokens = book.redeem();
    let mut pen = scene.granted(&mut ada, "pen");
    scene.wait_until_reported();
    scene.control_plane.kill().unwrap();

    // Signing in and the list need only the issuer.
    let mut ada_elsewhere = scene.issuer.browser("ada");
    let listed = scene.issuer.grants(&mut ada_elsewhere).unwrap();
    assert!(find(&listed, "book").is_some() && find(&listed, "pen").is_some());
    let unknown = "The last use is not available now.";
    assert!(listed.iter().all(|grant| grant.html.contains(unknown)), "{listed:?}");

    // Neither a code nor a refresh token is used up.
    for _ in 0..2 {
        for answer in [
            pen.agent.redeem(&pen.asked, &pen.code).unwrap(),
            book.agent.refresh(&tokens.refresh_token).unwrap(),
        ] {
            let refused = answer.unwrap_err();
            assert_eq!(
                (refused.status, refused.error.as_str()),
                (503, "temporarily_unavailable")
            );
            assert!(refused.retry_after.is_some(), "{refused:?}");
        }
    }

    // A withdrawal is durable at once, and outlives a crash.
    let said = scene.withdrawn(&mut ada, "book");
    assert_eq!(
        said,
        "Taken back. Services that have seen it may accept it until they are told."
    );
    scene.issuer.kill().unwrap();
    scene.issuer.restart().unwrap();
    let listed = scene.issuer.grants(&mut scene.issuer.browser("ada")).unwrap();
    assert!(find(&listed, "book").unwrap().withdraw.is_none(), "{listed:?}");

    scene.control_plane.restart().unwrap();
    let id = tokens.id().unwrap();
    let mut status = scene.status();
    waiting::until("the token to be revoked", || {
        Ok(status.is_revoked("ada", &id)?.then_some(()))
    })
    .unwrap();
    scene.wait_until_reported();
    assert_eq!(scene.reasons("book"), ["granted", "withdrawn_by_person"]);
    assert_eq!(scene.reasons("pen"), ["granted"]);
    let refused = scene.agent().refresh(&tokens.refresh_token).unwrap().unwrap_err();
    assert_eq!((refused.status, refused.error.as_str()), (400, "invalid_grant"));
    scene.agent().redeem(&pen.asked, &pen.code).unwrap().unwrap();
}

#[test]
fn a_button_that_was_pressed_during_an_outage_works_afterwards() {
    let mut scene = Scene::start();
    let mut ada = scene.issuer.browser("ada");
    let mut agent = scene.agent();
    let asked = agent.ask(&reading("book"), 0).unwrap();
    let page = ada.open(&asked.page).unwrap();
    scene.control_plane.kill().unwrap();
    let choice = [("t0", "on"), ("decision", "allow")];
    let later = ada.submit(&page.form("/consent").unwrap(), &choice).unwrap();
    assert_eq!(later.status, Some(503));
    assert!(later.html.contains("<h1>Not now</h1>"), "{}", later.html);
    scene.control_plane.restart().unwrap();
    let code = allow(&mut ada, &page).unwrap();
    agent.redeem(&asked, &code).unwrap().unwrap();
    scene.wait_until_reported();
    assert_eq!(scene.reasons("book"), ["granted"]);
}
