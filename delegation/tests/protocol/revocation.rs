//! Chains that a revocation log revokes.

use std::sync::Arc;

use crate::common::*;
use credence_delegation::revocation::{
    DelegationPath, Memory, PrincipalState, RevocationReason, RevocationView, check_revocation,
};
use credence_delegation::{
    AccessTokens, Algorithms, Chain, Limits, PresentedChain, Thumbprint, TrustAnchor, TrustAnchors, UnixTime,
    VerificationContext, VerifiedChain,
};

/// A revocation log with these revocations.
#[derive(Default)]
struct Log {
    principal: PrincipalState,
    key: Option<Thumbprint>,
    issuer_floor: Option<UnixTime>,
    log_floor: Option<UnixTime>,
    /// The ids from the root down to the revoked one. A single id counts in any chain.
    delegation: Option<Vec<&'static str>>,
    memory: Memory,
}

impl RevocationView for Log {
    fn principal(&self, issuer: &str, _: Option<&str>) -> PrincipalState {
        assert_eq!(issuer, ISSUER);
        self.principal
    }
    fn is_key_revoked(&self, key: &Thumbprint) -> bool {
        self.key == Some(*key)
    }
    fn issuer_floor(&self, issuer: &str) -> Option<UnixTime> {
        assert_eq!(issuer, ISSUER);
        self.issuer_floor
    }
    fn log_floor(&self) -> Option<UnixTime> {
        self.log_floor
    }
    fn is_delegation_revoked(&self, _: &str, _: Option<&str>, token: DelegationPath<'_>) -> bool {
        let path = [token.under, &[token.id]].concat();
        self.delegation
            .as_ref()
            .is_some_and(|revoked| *revoked == [token.id] || *revoked == path)
    }
    fn memory(&self) -> Memory {
        self.memory
    }
}

const SKEW: u64 = 30;

/// A chain of a root and a token derived from it, and the trust anchors.
fn joined(epoch: Option<&str>, asserts_subjects: bool) -> (String, TrustAnchors) {
    let root = root_at(epoch).signed(&anchor());
    let joined = format!("{root}~{}", child(&root).signed(&alice()));
    (joined, anchors_for(asserts_subjects))
}

fn root_at(epoch: Option<&str>) -> Claims {
    let claims = root().with("sub", "\"ada\"");
    match epoch {
        Some(epoch) => claims.with("rev_epoch", epoch),
        None => claims,
    }
}

fn anchors_for(asserts_subjects: bool) -> TrustAnchors {
    TrustAnchors::new([TrustAnchor {
        issuer: ISSUER.into(),
        key: anchor().public(),
        key_id: None,
        algorithms: Algorithms::default(),
        asserts_subjects,
        delegations: true,
        access_tokens: Some(Arc::new(AccessTokens::default())),
        same_principals: Vec::new(),
        is_fetched: false,
    }])
}

fn chain(epoch: Option<&str>, asserts_subjects: bool) -> VerifiedChain {
    let (joined, anchors) = joined(epoch, asserts_subjects);
    verified(&joined, &anchors)
}

fn verified(joined: &str, anchors: &TrustAnchors) -> VerifiedChain {
    let limits = Limits::default();
    Chain::parse_joined(joined, &limits)
        .unwrap()
        .verify(&VerificationContext {
            anchors,
            holder_algorithms: &Algorithms::default(),
            limits: &limits,
            now: UnixTime(NOW),
            hot_keys: None,
        })
        .unwrap()
}

fn at_epoch(epoch: u64, raised_at: Option<i64>) -> Log {
    Log {
        principal: PrincipalState {
            epoch,
            disabled: false,
            raised_at: raised_at.map(UnixTime),
        },
        ..Log::default()
    }
}

#[test]
fn an_empty_log_revokes_nothing() {
    for chain in [chain(None, true), chain(None, false), chain(Some("0"), true)] {
        assert_eq!(check_revocation(&chain, &Log::default(), SKEW), Ok(()));
    }
}

#[test]
fn only_the_current_epoch_counts() {
    let chain = chain(Some("7"), true);
    assert_eq!(check_revocation(&chain, &at_epoch(7, Some(NOW)), SKEW), Ok(()));
    for epoch in [0, 6, 8] {
        assert_eq!(
            check_revocation(&chain, &at_epoch(epoch, None), SKEW),
            Err(RevocationReason::PrincipalRevoked),
            "{epoch}"
        );
    }
}

#[test]
fn the_epoch_of_an_access_token_counts_too() {
    let claims = root_at(Some("7"))
        .with("client_id", "\"planner\"")
        .with("aud", format!("\"{AUDIENCE}\""));
    let token = sign(&anchor(), r#"{"alg":"Ed25519","typ":"at+jwt"}"#, &claims.json());
    let chain = verified(&token, &anchors_for(true));
    // By its time of issue, it would be revoked.
    assert_eq!(check_revocation(&chain, &at_epoch(7, Some(NOW)), SKEW), Ok(()));
    assert_eq!(
        check_revocation(&chain, &at_epoch(8, None), SKEW),
        Err(RevocationReason::PrincipalRevoked)
    );
}

#[test]
fn without_an_epoch_the_issuers_time_counts() {
    // The root was issued at NOW - 60.
    for (raised_at, is_revoked) in [(NOW - 60 - 31, false), (NOW - 60 - 30, true), (NOW, true)] {
        let result = check_revocation(&chain(None, true), &at_epoch(3, Some(raised_at)), SKEW);
        assert_eq!(result.is_err(), is_revoked, "{raised_at}");
    }
}

#[test]
fn a_principal_that_signs_its_own_roots_has_no_trusted_issue_time() {
    assert_eq!(
        check_revocation(&chain(None, false), &at_epoch(3, Some(0)), SKEW),
        Err(RevocationReason::PrincipalRevoked)
    );
}

#[test]
fn disabled_keys_issuers_and_delegations_are_denied_at_any_epoch() {
    let chain = chain(Some("0"), true);
    let disabled = Log {
        principal: PrincipalState {
            disabled: true,
            ..Default::default()
        },
        ..Log::default()
    };
    assert_eq!(
        check_revocation(&chain, &disabled, SKEW),
        Err(RevocationReason::PrincipalDisabled)
    );
    for key in [anchor(), alice(), bob()] {
        let log = Log {
            key: Some(key.public().thumbprint()),
            ..Log::default()
        };
        assert_eq!(check_revocation(&chain, &log, SKEW), Err(RevocationReason::KeyRevoked));
    }
    for id in ["root", "child"] {
        let log = Log {
            delegation: Some(vec![id]),
            ..Log::default()
        };
        assert_eq!(
            check_revocation(&chain, &log, SKEW),
            Err(RevocationReason::DelegationRevoked)
        );
    }
}

/// As with a raise: an issuer whose clock is ahead has dated roots later than it issued them.
#[test]
fn a_floor_revokes_roots_that_are_dated_up_to_the_allowed_skew_after_it() {
    // The root was issued at NOW - 60.
    for (floor, expected) in [
        (NOW - 60, Err(RevocationReason::IssuerRevoked)),
        (NOW - 60 - 30, Err(RevocationReason::IssuerRevoked)),
        (NOW - 60 - 31, Ok(())),
    ] {
        let of_issuer = Log {
            issuer_floor: Some(UnixTime(floor)),
            ..Log::default()
        };
        let of_log = Log {
            log_floor: Some(UnixTime(floor)),
            ..Log::default()
        };
        for asserts_subjects in [true, false] {
            let (presented, anchors) = joined(Some("0"), asserts_subjects);
            let presented = PresentedChain::read(&presented, &anchors, &Limits::default()).unwrap();
            for log in [&of_issuer, &of_log] {
                assert_eq!(
                    check_revocation(&chain(Some("0"), asserts_subjects), log, SKEW),
                    expected,
                    "{floor}"
                );
                assert_eq!(presented.check_revocation(log, SKEW), expected, "presented, {floor}");
            }
        }
    }
}

/// A holder chooses the ids of the tokens that it derives. Here it reuses the id of another root of the same principal,
/// and the id of a token that another holder derived from the same root.
#[test]
fn a_revocation_with_the_ids_above_a_token_leaves_others_of_the_same_id_alone() {
    let (anchors, limits) = (anchors(), Limits::default());
    let (one, two) = (
        root().with("jti", "\"one\"").signed(&anchor()),
        root().with("jti", "\"two\"").signed(&anchor()),
    );
    let below = |parent: &str, id: &str| {
        let child = child(parent).with("jti", format!("\"{id}\"")).signed(&alice());
        format!("{parent}~{child}")
    };
    let (impostor, sibling) = (below(&one, "two"), below(&two, "leaf"));
    let copied = below(&one, "leaf");
    let verified = |joined: &str| {
        let context = VerificationContext {
            anchors: &anchors,
            holder_algorithms: &Algorithms::default(),
            limits: &limits,
            now: UnixTime(NOW),
            hot_keys: None,
        };
        Chain::parse_joined(joined, &limits).unwrap().verify(&context).unwrap()
    };
    let is_revoked = |path: &[&'static str], joined: &str| {
        let log = Log {
            delegation: Some(path.to_vec()),
            ..Log::default()
        };
        let verdict = check_revocation(&verified(joined), &log, SKEW);
        let presented = PresentedChain::read(joined, &anchors, &limits).unwrap();
        assert_eq!(presented.check_revocation(&log, SKEW), verdict);
        verdict.is_err()
    };
    assert!(is_revoked(&["one", "two"], &impostor));
    assert!(!is_revoked(&["one", "two"], &two), "another root");
    assert!(!is_revoked(&["one", "two"], &sibling), "a token under another root");
    assert!(is_revoked(&["one", "leaf"], &copied));
    assert!(
        !is_revoked(&["one", "leaf"], &sibling),
        "another's token of the same id"
    );
    // An id alone, as in older logs, counts in any chain.
    for joined in [&impostor, &two, &sibling] {
        assert!(is_revoked(&["two"], joined));
    }
}

#[test]
fn other_keys_and_ids_leave_the_chain_alone() {
    let log = Log {
        key: Some(mallory().public().thumbprint()),
        delegation: Some(vec!["sibling"]),
        ..Log::default()
    };
    assert_eq!(check_revocation(&chain(Some("0"), true), &log, SKEW), Ok(()));
}

#[test]
fn a_token_that_lives_longer_than_the_log_remembers_is_refused() {
    let chain = chain(Some("0"), true);
    let lifetimes = chain
        .tokens()
        .map(|token| token.expires_at().distance(token.issued_at()));
    let longest = lifetimes.max().unwrap();
    for (token_lifetime, expected) in [
        (None, Ok(())),
        (Some(u64::MAX), Ok(())),
        (Some(longest), Ok(())),
        (Some(longest - 1), Err(RevocationReason::BeyondMemory)),
        (Some(0), Err(RevocationReason::BeyondMemory)),
    ] {
        let memory = Memory {
            token_lifetime,
            forgotten_before: None,
        };
        let log = Log {
            memory,
            ..Log::default()
        };
        assert_eq!(check_revocation(&chain, &log, SKEW), expected, "{token_lifetime:?}");
    }
}

#[test]
fn a_token_from_before_the_forgotten_revocations_is_refused() {
    let chain = chain(Some("0"), true);
    let oldest = chain.tokens().map(|token| token.issued_at().0).min().unwrap();
    for (instant, expected) in [(oldest, Ok(())), (oldest + 1, Err(RevocationReason::BeyondMemory))] {
        let memory = Memory {
            token_lifetime: None,
            forgotten_before: Some(UnixTime(instant)),
        };
        let log = Log {
            memory,
            ..Log::default()
        };
        assert_eq!(check_revocation(&chain, &log, SKEW), expected, "{instant}");
    }
}

#[test]
fn an_unverified_chain_is_revoked_for_the_same_reasons() {
    let floor = |issuer_floor, log_floor| Log {
        issuer_floor,
        log_floor,
        ..Log::default()
    };
    let mut logs = vec![
        Log::default(),
        at_epoch(7, Some(NOW)),
        at_epoch(8, Some(0)),
        floor(Some(UnixTime(NOW)), None),
        floor(None, Some(UnixTime(NOW))),
    ];
    logs.extend([anchor(), alice(), bob()].map(|key| Log {
        key: Some(key.public().thumbprint()),
        ..Log::default()
    }));
    logs.push(Log {
        principal: PrincipalState {
            disabled: true,
            ..PrincipalState::default()
        },
        ..Log::default()
    });
    for asserts_subjects in [true, false] {
        for epoch in [None, Some("0"), Some("7")] {
            let (presented, anchors) = joined(epoch, asserts_subjects);
            let presented = PresentedChain::read(&presented, &anchors, &Limits::default()).unwrap();
            let verified = chain(epoch, asserts_subjects);
            for id in verified.tokens().map(|token| token.id().to_owned()) {
                let log = Log {
                    delegation: Some(vec![Box::leak(id.into_boxed_str())]),
                    ..Log::default()
                };
                assert_eq!(
                    presented.check_revocation(&log, SKEW),
                    check_revocation(&verified, &log, SKEW)
                );
            }
            for log in &logs {
                assert_eq!(
                    presented.check_revocation(log, SKEW),
                    check_revocation(&verified, log, SKEW)
                );
            }
        }
    }
}

#[test]
fn a_text_that_is_not_a_chain_of_a_known_issuer_is_refused() {
    let (presented, anchors) = joined(None, true);
    let read = |text: &str, anchors: &TrustAnchors| PresentedChain::read(text, anchors, &Limits::default());
    read(&presented, &anchors).unwrap();
    assert!(read(&presented, &TrustAnchors::default()).is_err(), "an unknown issuer");
    let (root, derived) = presented.split_once('~').unwrap();
    let longest = format!("{root}{}", format!("~{derived}").repeat(8));
    read(&longest, &anchors).unwrap();
    for text in [
        "",
        "~",
        "a.b.c",
        derived,
        &format!("{presented}~"),
        &format!("{longest}~{derived}"),
    ] {
        assert!(read(text, &anchors).is_err(), "{text}");
    }
}
