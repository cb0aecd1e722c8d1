//! Ends and beginnings: of the proxy, of the issuer, of the service, and of the delegation.

use std::time::{Duration, Instant};

use credence_e2e::agent_proxy::AgentProxy;
use credence_e2e::artefacts::Artefacts;
use credence_e2e::browser::Browser;
use credence_e2e::issuer::Issuer;
use credence_e2e::{AUDIENCE, Reply, Request, Stack, StackOptions, waiting};

use super::charge;

/// A service that trusts an issuer, and a proxy that is its client.
struct Scene {
    stack: Stack,
    issuer: Issuer,
    proxy: AgentProxy,
    ada: Browser,
}

impl Scene {
    /// `more` are further settings of the credential's issuer.
    fn start(more: &str) -> Self {
        let mut issuer = Issuer::prepare(&Artefacts::from_environment().unwrap().credence).unwrap();
        let stack = Stack::start(&issuer.trusted_by(StackOptions::quick())).unwrap();
        issuer
            .serve(&stack.control_plane, "    token_lifetime_s: 30\n")
            .unwrap();
        issuer.wait_until_trusted(&stack).unwrap();
        stack.wait_until_proofs_count().unwrap();
        let mut proxy = AgentProxy::prepare(&stack).unwrap();
        let settings = proxy.settings_with_issuer(&stack, &issuer.url(), more).unwrap();
        proxy.serve(&settings).unwrap();
        let ada = issuer.browser("ada");
        Self {
            stack,
            issuer,
            proxy,
            ada,
        }
    }

    fn charge(&self) -> Reply {
        self.proxy.send(charge("5")).unwrap()
    }

    /// The page that the proxy names to its client.
    fn page(&self) -> String {
        self.proxy.consent_page(&charge("5")).unwrap()
    }

    /// Ada opens the page, and allows it.
    fn grant(&mut self) {
        let page = self.page();
        let page = self.ada.open(&page).unwrap();
        let choice = [("t0", "on"), ("decision", "allow")];
        let back = self.ada.submit(&page.form("/consent").unwrap(), &choice).unwrap();
        assert_eq!(back.html, "The agent can work for you now. You can close this page.");
    }

    fn until_allowed(&self) -> Duration {
        let began = Instant::now();
        waiting::until("a request to be allowed", || {
            Ok((self.proxy.send(charge("5"))?.status == 200).then_some(()))
        })
        .unwrap();
        began.elapsed()
    }
}

#[test]
fn a_person_grants_once_and_the_proxy_goes_on_through_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::start(&format!("      state: \"{}\"", folder.path().join("grant").display()));
    scene.grant();
    scene.until_allowed();

    // The agent's own restarts are nothing to the proxy. Its own take no person either.
    scene.proxy.kill().unwrap();
    scene.proxy.restart().unwrap();
    scene.until_allowed();
    let again = scene.proxy.output();
    assert!(!again.contains("a person has to grant"), "{again}");

    // The issuer is away, and the token counts until it expires.
    scene.issuer.kill().unwrap();
    assert_eq!(scene.charge().status, 200);
    scene.issuer.restart().unwrap();

    // The service is away, and comes back.
    scene.stack.restart_envoy_unsynced().unwrap();
}

#[test]
fn what_the_person_takes_back_ends_with_the_barrier_and_says_so() {
    let mut scene = Scene::start("");
    scene.grant();
    scene.until_allowed();
    let listed = scene.issuer.grants(&mut scene.ada).unwrap();
    let form = listed.into_iter().find_map(|grant| grant.withdraw).unwrap();
    scene.ada.submit(&form, &[]).unwrap();
    let reply = scene.charge();
    assert_eq!(
        (reply.status, reply.reason().as_deref()),
        (401, Some("revoked_delegation"))
    );
    // Then the proxy learns that there will be no other one without a person.
    scene.page();
    scene.grant();
    scene.until_allowed();
}

#[test]
fn an_access_token_is_proven_by_dpop() {
    let mut scene = Scene::start("      token: access_token");
    scene.grant();
    let reply = waiting::until("an answer of the service", || {
        let reply = scene.proxy.send(charge("5"))?;
        Ok((reply.reason().as_deref() != Some("no_delegation")).then_some(reply))
    })
    .unwrap();
    // The rule does not read access tokens.
    assert_eq!(
        (reply.status, reply.reason().as_deref()),
        (401, Some("delegation_missing"))
    );
}

#[test]
fn an_access_token_goes_only_to_the_services_that_it_is_for() {
    let more = "      token: access_token";
    let mut scene = Scene::start(more);
    scene.proxy.kill().unwrap();
    let settings = scene
        .proxy
        .settings_with_issuer(&scene.stack, &scene.issuer.url(), more)
        .unwrap();
    let (own, other) = (
        format!("audience: [{AUDIENCE}], rules"),
        "audience: [https://bank.example], rules",
    );
    assert!(settings.contains(&own));
    let rules = scene.stack.agent_rules().unwrap();
    let rules = rules.replace(AUDIENCE, "https://bank.example");
    scene.proxy.write("rules.json", &rules).unwrap();
    scene.proxy.serve(&settings.replace(&own, other)).unwrap();
    scene.grant();
    let reply = waiting::until("the token to be held", || {
        let reply = scene.proxy.send(charge("5"))?;
        Ok((reply.reason().as_deref() != Some("no_delegation")).then_some(reply))
    })
    .unwrap();
    assert_eq!(reply.reason().as_deref(), Some("audience_mismatch"));
}

#[test]
fn nobody_can_finish_what_the_proxy_did_not_begin() {
    let mut scene = Scene::start("");
    let page = scene.page();
    for (target, said) in [
        (
            "callback?code=a&state=b",
            "The proxy did not ask for this. Begin again.",
        ),
        ("callback?code=a", "The proxy did not ask for this. Begin again."),
        ("other", "There is no such page."),
    ] {
        let reply = scene.ada.open(&format!("{page}{target}")).unwrap();
        assert_eq!(reply.html, said);
    }
    // A page whose name leads to this machine.
    let address = page
        .trim_start_matches("http://")
        .trim_end_matches('/')
        .parse()
        .unwrap();
    let reply = credence_e2e::Client::connect(address)
        .unwrap()
        .send(&Request::get("/"))
        .unwrap();
    assert_eq!(reply.status, 400);
}
