//! Chains that start with the tokens of an already verified one.

use std::collections::BTreeSet;

use credence_delegation::{
    Algorithm, Algorithms, Chain, Denial, Limits, TrustAnchor, TrustAnchors, UnixTime, VerificationContext,
    VerifiedChain,
};

use crate::common::*;

/// root -> child (bob) -> two grandchildren: one of mallory and one of alice.
struct Family {
    root: String,
    child: String,
    grandchild: String,
    sibling: String,
}

fn family() -> Family {
    let root = root().signed(&anchor());
    let child = child(&root).signed(&alice());
    let grandchild = |id: &str, max: u32| {
        child_of_bob(&child)
            .with("jti", format!("\"{id}\""))
            .tools(&format!(
                r#"{{"pay":{{"account":{{"constraint_type":"exact","value":"a1"}},"amount":{{"constraint_type":"range","max":{max}}}}}}}"#
            ))
            .signed(&bob())
    };
    Family {
        grandchild: grandchild("grandchild", 10),
        sibling: grandchild("sibling", 20),
        root,
        child,
    }
}

fn child_of_bob(parent: &str) -> Claims {
    child(parent)
        .with("iss", format!("\"{}\"", bob().public().thumbprint().uri()))
        .with("cnf", cnf(&mallory()))
        .with("del_depth", "2")
        .with("exp", (NOW + 900).to_string())
}

fn verify_onto(known: &VerifiedChain, chain: &[&str]) -> Result<VerifiedChain, Denial> {
    verify_onto_in(
        known,
        chain,
        &anchors(),
        &Algorithms::default(),
        &Limits::default(),
        NOW,
    )
}

fn verify_onto_in(
    known: &VerifiedChain,
    chain: &[&str],
    anchors: &TrustAnchors,
    holder_algorithms: &Algorithms,
    limits: &Limits,
    now: i64,
) -> Result<VerifiedChain, Denial> {
    let joined = chain.join("~");
    let chain = match begins_with(chain, known) {
        true => Chain::parse_joined_after(known, &joined, limits)?,
        false => Chain::parse(chain.iter().copied(), limits)?,
    };
    chain.verify(&VerificationContext {
        anchors,
        holder_algorithms,
        limits,
        now: UnixTime(now),
        hot_keys: None,
    })
}

fn ids(chain: &VerifiedChain) -> Vec<&str> {
    chain.tokens().map(|token| token.id()).collect()
}

/// Every pair of a known chain and a presented one, valid or not: a known chain changes no answer.
#[test]
fn a_known_chain_changes_no_answer() {
    let Family {
        root,
        child,
        grandchild,
        sibling,
    } = family();
    let forged = format!(
        "{}.{}",
        grandchild.rsplit_once('.').unwrap().0,
        sibling.rsplit('.').next().unwrap()
    );
    let bad_child = format!(
        "{}.{}",
        child.rsplit_once('.').unwrap().0,
        root.rsplit('.').next().unwrap()
    );
    let texts: Vec<&str> = vec![&root, &child, &grandchild, &sibling, &forged, &bad_child, "a.b.c", ""];

    let mut chains: Vec<Vec<&str>> = vec![vec![]];
    for length in 1..=3 {
        for index in 0..texts.len().pow(length) {
            chains.push(
                (0..length)
                    .map(|place| texts[index / texts.len().pow(place) % texts.len()])
                    .collect(),
            );
        }
    }
    let known: Vec<VerifiedChain> = chains.iter().filter_map(|chain| verify(chain).ok()).collect();
    assert_eq!(known.iter().map(ids).collect::<BTreeSet<_>>().len(), 4);

    for known in &known {
        for chain in &chains {
            match (verify(chain), verify_onto(known, chain)) {
                (Ok(expected), Ok(found)) => {
                    assert_eq!(ids(&found), ids(&expected));
                    assert_eq!(found.principal(), expected.principal());
                    assert_eq!(found.leaf().capabilities(), expected.leaf().capabilities());
                }
                (Err(expected), Err(found)) => assert_eq!(found, expected, "{chain:?} onto {:?}", ids(known)),
                (expected, found) => panic!("{chain:?} onto {:?}: {found:?}, not {expected:?}", ids(known)),
            }
        }
    }
}

/// A stated prefix of a chain changes no answer.
#[test]
fn a_stated_prefix_changes_no_answer() {
    let Family {
        root,
        child,
        grandchild,
        sibling,
    } = family();
    let forged = format!(
        "{}.{}",
        grandchild.rsplit_once('.').unwrap().0,
        sibling.rsplit('.').next().unwrap()
    );
    let (limits, anchors, holder_algorithms) = (Limits::default(), anchors(), Algorithms::default());
    let context = VerificationContext {
        anchors: &anchors,
        holder_algorithms: &holder_algorithms,
        limits: &limits,
        now: UnixTime(NOW),
        hot_keys: None,
    };
    let (mut allowed, mut denied) = (0, 0);
    for beginning in [vec![&*root], vec![&root, &child]] {
        let known = verify(&beginning).unwrap();
        for rest in [
            vec![],
            vec![&*child],
            vec![&grandchild],
            vec![&sibling],
            vec![&forged],
            vec!["a.b.c"],
        ] {
            let chain = [&beginning[..], &rest].concat();
            let joined = chain.join("~");
            let stated = Chain::parse_joined_after(&known, &joined, &limits).and_then(|chain| chain.verify(&context));
            assert_eq!(format!("{stated:?}"), format!("{:?}", verify(&chain)));
            match stated {
                Ok(_) => allowed += 1,
                Err(_) => denied += 1,
            }
        }
    }
    // Allowed: the prefixes themselves, the child, both grandchildren.
    assert_eq!((allowed, denied), (5, 7));
}

#[test]
fn a_chain_that_does_not_start_with_the_known_one_is_parsed_in_full() {
    let Family {
        root,
        child,
        grandchild,
        ..
    } = family();
    let limits = Limits::default();
    let known = verify(&[&root, &child]).unwrap();
    for chain in [
        vec!["a.b.c"],
        vec![&*grandchild],
        vec![&root, "a.b.c"],
        vec![&root, &grandchild],
    ] {
        let joined = chain.join("~");
        let stated = Chain::parse_joined_after(&known, &joined, &limits);
        let found_out = Chain::parse(chain, &limits);
        assert_eq!(format!("{stated:?}"), format!("{found_out:?}"));
    }
}

#[test]
fn a_known_token_with_another_signature_is_not_known() {
    let Family { root, child, .. } = family();
    let known = verify(&[&root, &child]).unwrap();
    let (signed, _) = child.rsplit_once('.').unwrap();
    let unsigned = format!("{signed}.");
    let joined = format!("{root}~{unsigned}");
    let (limits, anchors) = (Limits::default(), anchors());
    let chain = Chain::parse_joined_after(&known, &joined, &limits).unwrap();
    let denied = chain.verify(&VerificationContext {
        anchors: &anchors,
        holder_algorithms: &Algorithms::default(),
        limits: &limits,
        now: UnixTime(NOW),
        hot_keys: None,
    });
    assert_eq!(denied.unwrap_err().step.name(), "4b");
}

#[test]
fn a_known_chain_that_is_no_longer_valid_by_time_is_denied() {
    let Family {
        root,
        child,
        grandchild,
        ..
    } = family();
    let known = verify(&[&root, &child]).unwrap();
    let at = |now| {
        verify_onto_in(
            &known,
            &[&root, &child, &grandchild],
            &anchors(),
            &Algorithms::default(),
            &Limits::default(),
            now,
        )
        .map_err(|denial| denial.step.name())
        .map(|chain| ids(&chain).len())
    };
    assert_eq!(at(NOW), Ok(3));
    assert_eq!(at(NOW + 900), Err("4i"));
    assert_eq!(at(NOW + 1800), Err("4i"));
    assert_eq!(at(NOW + 3600), Err("3e"));
    // A clock that was set back.
    assert_eq!(at(NOW - 3600), Err("3f"));
}

#[test]
fn a_known_chain_that_the_configuration_no_longer_allows_is_denied() {
    let Family {
        root,
        child,
        grandchild,
        ..
    } = family();
    let known = verify(&[&root, &child]).unwrap();
    let limits = Limits::default();
    let step = |anchors: &TrustAnchors, holder_algorithms: &Algorithms, limits: &Limits| {
        let chain = [root.as_str(), &child, &grandchild];
        verify_onto_in(&known, &chain, anchors, holder_algorithms, limits, NOW)
            .unwrap_err()
            .step
            .name()
    };
    let with = |change: &dyn Fn(&mut TrustAnchor)| {
        TrustAnchors::new(anchors().iter().cloned().map(|mut anchor| {
            change(&mut anchor);
            anchor
        }))
    };
    let ed25519 = Algorithms::default();
    let es256 = Algorithms::new([Algorithm::Es256]);
    for (anchors, expected) in [
        (TrustAnchors::default(), "3k"),
        (with(&|anchor| anchor.issuer.push('x')), "3k"),
        (with(&|anchor| anchor.key = mallory().public()), "3b"),
        (with(&|anchor| anchor.algorithms = es256.clone()), "3a"),
    ] {
        assert_eq!(step(&anchors, &ed25519, &limits), expected);
    }
    assert_eq!(step(&anchors(), &es256, &limits), "4a");
    for (limits, expected) in [
        (
            Limits {
                token_lifetime: 60,
                ..limits.clone()
            },
            "3h",
        ),
        (
            Limits {
                delegation_depth: 2,
                ..limits.clone()
            },
            "3i",
        ),
    ] {
        assert_eq!(step(&anchors(), &ed25519, &limits), expected);
    }
}

/// Every pair of configurations, valid or not: a chain verified under one changes no answer under the other.
#[test]
fn only_the_present_configuration_decides() {
    let header = r#"{"alg":"EdDSA","typ":"aat+jwt","kid":"one"}"#;
    let root = root().with("sub", "\"ada\"");
    let roots = [
        root.signed(&anchor()),
        sign(&anchor(), header, &root.json()),
        root.with("sub", "7").signed(&anchor()),
    ];
    let mut single = vec![];
    for issuer in [ISSUER, "https://other.example"] {
        for key in [anchor(), mallory()] {
            for key_id in [None, Some("one"), Some("two")] {
                for algorithm in [Algorithm::Ed25519, Algorithm::EdDsa] {
                    for asserts_subjects in [false, true] {
                        single.push(TrustAnchor {
                            issuer: issuer.to_owned(),
                            key: key.public(),
                            key_id: key_id.map(str::to_owned),
                            algorithms: Algorithms::new([algorithm]),
                            asserts_subjects,
                            delegations: true,
                            access_tokens: None,
                            same_principals: Vec::new(),
                            is_fetched: false,
                        });
                    }
                }
            }
        }
    }
    let mut sets = vec![TrustAnchors::default()];
    sets.extend(single.iter().map(|anchor| TrustAnchors::new([anchor.clone()])));
    // Of configurations with two anchors, only those are interesting in which both have the key.
    let right: Vec<_> = single
        .iter()
        .filter(|anchor| anchor.issuer == ISSUER && anchor.key == crate::common::anchor().public())
        .collect();
    for one in &right {
        sets.extend(
            right
                .iter()
                .map(|other| TrustAnchors::new([(*one).clone(), (*other).clone()])),
        );
    }
    let limits = Limits::default();
    let mut compared = 0;
    for root in &roots {
        let leaf = child(root).signed(&alice());
        let next = child_of_bob(&leaf).with("jti", "\"next\"").signed(&bob());
        let tokens = [root.as_str(), &leaf, &next];
        for beginning in 1..tokens.len() {
            let plain = |tokens: &[&str], anchors: &TrustAnchors, now| {
                Chain::parse(tokens.iter().copied(), &limits)
                    .unwrap()
                    .verify(&VerificationContext {
                        anchors,
                        holder_algorithms: &Algorithms::default(),
                        limits: &limits,
                        now: UnixTime(now),
                        hot_keys: None,
                    })
            };
            // One for each origin that a chain can have.
            let mut known: Vec<VerifiedChain> = vec![];
            for chain in sets
                .iter()
                .filter_map(|anchors| plain(&tokens[..beginning], anchors, NOW).ok())
            {
                if !known.iter().any(|other| other.principal() == chain.principal()) {
                    known.push(chain);
                }
            }
            for known in &known {
                for anchors in &sets {
                    for now in [NOW, NOW + 3600, NOW - 3600] {
                        let chain = &tokens[..=beginning];
                        let onto = verify_onto_in(known, chain, anchors, &Algorithms::default(), &limits, now);
                        let expected = plain(chain, anchors, now);
                        let found = onto.map(|chain| (chain.principal().clone(), chain.anchor()));
                        let expected = expected.map(|chain| (chain.principal().clone(), chain.anchor()));
                        assert_eq!(found, expected, "{anchors:?} at {now}");
                        compared += 1;
                    }
                }
            }
        }
    }
    assert!(compared > 2_000, "{compared}");
}
