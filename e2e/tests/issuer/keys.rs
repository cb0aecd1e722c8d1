//! Signing keys that change while the issuer runs.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use credence_e2e::artefacts::Artefacts;
use credence_e2e::issuer::Issuer;
use credence_e2e::{Client, Failure, Request, Stack, StackOptions, waiting};
use serde::Deserialize;

use crate::{allow, key, reading};

#[test]
fn every_filter_accepts_the_tokens_of_the_old_and_the_new_key() {
    let mut issuer = Issuer::prepare(&Artefacts::from_environment().unwrap().credence).unwrap();
    let stack = Stack::start(&issuer.trusted_by(StackOptions::quick())).unwrap();
    issuer.serve(&stack.control_plane, "").unwrap();
    issuer.wait_until_trusted(&stack).unwrap();
    let old = token(&issuer).unwrap();

    // Filters fetch keys every second here.
    issuer.run(&["keys", "rotate"], &["--lead", "2s"]).unwrap();
    let published = waiting::until("both keys to be published", || {
        let keys = published(&issuer);
        Ok((keys.len() == 2).then_some(keys))
    })
    .unwrap();
    let new = waiting::until("the new key to sign", || {
        let new = token(&issuer)?;
        Ok((key_of(&new) != key_of(&old)).then_some(new))
    })
    .unwrap();
    let used: BTreeSet<String> = [&old, &new].map(|token| key_of(token)).into();
    assert_eq!(used, published);
    for mut worker in stack.envoy.connection_to_every_worker().unwrap() {
        for token in [&old, &new] {
            // On a busy machine, a filter may be late with its fetch.
            let request = Request::get("/v1/catalog/book").delegation(token);
            let is_allowed = || Ok((worker.send(&request)?.status == 200).then_some(()));
            waiting::until("a filter to accept the token", is_allowed).unwrap();
        }
    }
}

/// A delegation that a person has just granted.
fn token(issuer: &Issuer) -> Result<String, Failure> {
    let mut agent = issuer.client(key())?;
    let mut ada = issuer.browser("ada");
    let asked = agent.ask(&reading("book"), 0)?;
    let page = ada.open(&asked.page)?;
    let code = allow(&mut ada, &page)?;
    Ok(agent.redeem(&asked, &code)?.unwrap().access_token)
}

/// The ids of the published keys.
fn published(issuer: &Issuer) -> BTreeSet<String> {
    #[derive(Deserialize)]
    struct KeySet {
        keys: Vec<Published>,
    }
    #[derive(Deserialize)]
    struct Published {
        kid: String,
    }
    let reply = Client::connect(issuer.address())
        .unwrap()
        .send(&Request::get("/jwks"))
        .unwrap();
    let set: KeySet = serde_json::from_slice(&reply.body).unwrap();
    set.keys.into_iter().map(|key| key.kid).collect()
}

/// The id of the key that has signed a token.
fn key_of(token: &str) -> String {
    #[derive(Deserialize)]
    struct Header {
        kid: String,
    }
    let header = URL_SAFE_NO_PAD.decode(token.split('.').next().unwrap()).unwrap();
    let Header { kid } = serde_json::from_slice(&header).unwrap();
    kid
}
