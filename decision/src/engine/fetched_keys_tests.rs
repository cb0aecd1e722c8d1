//! Trust anchors whose keys come from the revocation log.

use credence_delegation::{IssuerKeys, SigningKey};

use super::*;

/// The keys of a fetch, and when they stop counting.
fn keys(keys: &[&SigningKey], trusted_until: i64) -> Option<IssuerKeys> {
    let jwks: Vec<_> = keys.iter().map(|key| key.public().to_jwk()).collect();
    let jwks = jwks.iter().map(|jwk| (jwk.as_str(), ""));
    Some(IssuerKeys::read(jwks, UnixTime(trusted_until)))
}

fn engine(world: &mut TestWorld) -> Engine {
    let anchor =
        format!(r#""trust_anchors": [{{"issuer": "{ISSUER}", "keys": "control_plane", "asserts_subjects": true}}]"#);
    engine_that_trusts(&anchor, world)
}

fn set(world: &mut TestWorld, fetched: Option<IssuerKeys>) {
    world.log.issuer_keys = fetched;
    world.revision = world.revision.map(|revision| revision + 1);
}

#[test]
fn without_fetched_keys_requests_get_keys_unavailable() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    let delegation = delegation();
    assert_eq!(decide(&mut engine, world, &read(&delegation)), "keys_unavailable");
    set(world, keys(&[&key(1)], NOW + 100));
    assert_eq!(
        decide(&mut engine, world, &read(&delegation)),
        "allow",
        "the refusal was not cached"
    );
}

#[test]
fn an_added_key_counts_at_once_and_a_removed_one_is_denied() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    let (old, new) = (delegation(), samples::root_by(&key(9), ISSUER, grant("new", 2, TOOLS)));
    set(world, keys(&[&key(1)], NOW + 100));
    for _ in 0..3 {
        assert_eq!(decide(&mut engine, world, &read(&old)), "allow");
        assert_eq!(decide(&mut engine, world, &read(&new)), "signature_invalid");
    }
    set(world, keys(&[&key(1), &key(9)], NOW + 100));
    assert_eq!(decide(&mut engine, world, &read(&new)), "allow");
    assert_eq!(decide(&mut engine, world, &read(&old)), "allow");
    set(world, keys(&[&key(9)], NOW + 100));
    // The first time, its chain is cached still. Then it is verified with the present keys.
    for reason in ["key_withdrawn", "key_withdrawn", "key_withdrawn"] {
        assert_eq!(decide(&mut engine, world, &read(&new)), "allow");
        assert_eq!(decide(&mut engine, world, &read(&old)), reason);
    }
    let derived = format!("{old}~{}", derived(&old, 2, &grant("leaf", 3, TOOLS)));
    assert_eq!(
        decide(&mut engine, world, &read(&derived)),
        "key_withdrawn",
        "nor below it"
    );
}

#[test]
fn a_withdrawn_key_s_chain_is_denied_as_revoked() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    set(world, keys(&[&key(1)], NOW + 100));
    assert_eq!(decide(&mut engine, world, &read(&delegation())), "allow");
    set(world, keys(&[&key(9)], NOW + 100));
    assert_eq!(decide(&mut engine, world, &read(&delegation())), "key_withdrawn");
}

#[test]
fn trust_ends_without_another_fetch_and_returns_with_one() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    set(world, keys(&[&key(1)], NOW + 100));
    // The last one is a cached decision.
    for _ in 0..4 {
        assert_eq!(decide(&mut engine, world, &read(&delegation())), "allow");
    }
    world.now = NOW + 100;
    let unseen = root(grant("unseen", 2, TOOLS));
    assert_eq!(decide(&mut engine, world, &read(&delegation())), "keys_unavailable");
    assert_eq!(decide(&mut engine, world, &read(&unseen)), "keys_unavailable");
    set(world, keys(&[&key(1)], NOW + 200));
    assert_eq!(decide(&mut engine, world, &read(&delegation())), "allow");
    assert_eq!(decide(&mut engine, world, &read(&unseen)), "allow");
}

/// The keys of an issuer are no other issuer's, and static ones need no control plane.
#[test]
fn static_keys_stay_and_fetched_ones_are_their_issuer_s_alone() {
    let world = &mut TestWorld::default();
    let anchors = format!(
        r#""trust_anchors": [{{"issuer": "{ISSUER}", "jwk": {}, "asserts_subjects": true}},
                              {{"issuer": "https://other.example", "keys": "control_plane", "asserts_subjects": true}}]"#,
        key(1).public().to_jwk()
    );
    let mut engine = engine_that_trusts(&anchors, world);
    set(world, keys(&[&key(9)], NOW + 100));
    assert_eq!(decide(&mut engine, world, &read(&delegation())), "allow");
    let forged = samples::root_by(&key(9), ISSUER, grant("forged", 2, TOOLS));
    assert_eq!(decide(&mut engine, world, &read(&forged)), "signature_invalid");
    let own = samples::root_by(&key(9), "https://other.example", grant("own", 2, TOOLS));
    assert_eq!(decide(&mut engine, world, &read(&own)), "allow");
}

/// What an identity provider and its broker say about one person counts for tokens of both.
#[test]
fn what_revokes_a_principal_revokes_the_same_one_at_another_issuer() {
    let anchors = |shares: &str| {
        format!(
            r#""trust_anchors": [{{"issuer": "{ISSUER}", "jwk": {}, "asserts_subjects": true{shares}}},
                                  {{"issuer": "https://broker.example", "jwk": {}, "asserts_subjects": true}}]"#,
            key(1).public().to_jwk(),
            key(9).public().to_jwk()
        )
    };
    let (own, other) = (
        delegation(),
        samples::root_by(&key(9), "https://broker.example", grant("b", 2, TOOLS)),
    );
    let shared = r#", "same_principals_as": "https://broker.example""#;
    for (shares, disabled_at, expected) in [
        (shared, ISSUER, ["disabled_principal", "disabled_principal"]),
        (
            shared,
            "https://broker.example",
            ["disabled_principal", "disabled_principal"],
        ),
        ("", ISSUER, ["disabled_principal", "allow"]),
        ("", "https://broker.example", ["allow", "disabled_principal"]),
    ] {
        let world = &mut TestWorld::default();
        let mut engine = engine_that_trusts(&anchors(shares), world);
        world.log.disabled_at = Some(disabled_at);
        let decided = [&own, &other].map(|delegation| decide(&mut engine, world, &read(delegation)));
        assert_eq!(decided, expected, "{shares}, disabled at {disabled_at}");
    }
}
