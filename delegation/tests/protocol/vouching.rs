//! Chains with signatures that another worker has verified and vouches for. Every other check is still made.

use std::collections::{HashMap, HashSet};

use credence_delegation::{
    Algorithm, Algorithms, Chain, Denial, Limits, Thumbprint, TrustAnchor, TrustAnchors, UnixTime, VerificationContext,
    VerifiedChain,
};
use proptest::prelude::*;

use crate::common::*;

/// Verifies the chain, with the signatures of this many of its first tokens vouched for.
fn verify_vouched(chain: &[&str], tokens: usize, known: Option<&VerifiedChain>) -> Result<VerifiedChain, Denial> {
    let limits = Limits::default();
    let (anchors, holder_algorithms) = (anchors(), Algorithms::default());
    let context = VerificationContext {
        anchors: &anchors,
        holder_algorithms: &holder_algorithms,
        limits: &limits,
        now: UnixTime(NOW),
        hot_keys: None,
    };
    let joined = chain.join("~");
    let chain = match known.filter(|known| begins_with(chain, known)) {
        Some(known) => Chain::parse_joined_after(known, &joined, &limits)?,
        None => Chain::parse(chain.iter().copied(), &limits)?,
    };
    let beginnings = chain.beginnings();
    match beginnings.iter().find(|beginning| beginning.tokens() == tokens) {
        Some(beginning) => beginning.verify_vouching_for_signatures(anchor().public().thumbprint(), &context),
        None => chain.verify(&context),
    }
}

/// A result with all its details, as text.
fn whole(result: &Result<VerifiedChain, Denial>) -> String {
    format!("{result:?}")
}

fn digests(chain: &[&str]) -> Vec<[u8; 32]> {
    match Chain::parse(chain.iter().copied(), &Limits::default()) {
        Ok(chain) => chain.beginnings().iter().map(|beginning| *beginning.digest()).collect(),
        Err(_) => vec![],
    }
}

fn family() -> [String; 4] {
    let root = root().signed(&anchor());
    let child = child(&root).signed(&alice());
    let grandchild = |id: &str| of_bob(&child).with("jti", format!("\"{id}\"")).signed(&bob());
    [
        grandchild("grandchild"),
        grandchild("sibling"),
        child.clone(),
        root.clone(),
    ]
}

fn of_bob(parent: &str) -> Claims {
    child(parent)
        .with("jti", "\"grandchild\"")
        .with("iss", format!("\"{}\"", bob().public().thumbprint().uri()))
        .with("cnf", cnf(&mallory()))
        .with("del_depth", "2")
}

fn with_signature_of(token: &str, other: &str) -> String {
    let ((signed, _), (_, signature)) = (token.rsplit_once('.').unwrap(), other.rsplit_once('.').unwrap());
    format!("{signed}.{signature}")
}

/// Every chain of up to three tokens, valid or not, with every true statement about a prefix of it. The answer is the
/// one without a statement.
#[test]
fn vouching_for_verified_signatures_changes_no_answer() {
    let [grandchild, sibling, child, root] = family();
    let forged = with_signature_of(&grandchild, &sibling);
    let bad_child = with_signature_of(&child, &root);
    let texts: [&str; 7] = [&root, &child, &grandchild, &sibling, &forged, &bad_child, "a.b.c"];
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
    let verified: HashSet<[u8; 32]> = known.iter().map(VerifiedChain::digest).collect();
    assert_eq!(verified.len(), 4);

    let mut compared = 0;
    for chain in &chains {
        let expected = whole(&verify(chain));
        // First the digest of all tokens, last that of the root.
        for (dropped, digest) in digests(chain).iter().enumerate() {
            if verified.contains(digest) {
                for known in known.iter().map(Some).chain([None]) {
                    compared += 1;
                    let found = whole(&verify_vouched(chain, chain.len() - dropped, known));
                    assert_eq!(found, expected, "{chain:?}");
                }
            }
        }
    }
    assert!(compared > 100, "{compared}");
}

#[test]
fn a_presented_prefix_has_the_digest_of_its_own_chain_only() {
    let [grandchild, sibling, child, root] = family();
    let chains: [&[&str]; 5] = [
        &[&root],
        &[&root, &child],
        &[&root, &child, &grandchild],
        &[&root, &child, &sibling],
        &[&root, &child, &with_signature_of(&grandchild, &sibling)],
    ];
    let mut found: HashMap<[u8; 32], Vec<&str>> = HashMap::new();
    for chain in chains {
        for (dropped, digest) in digests(chain).into_iter().enumerate() {
            let beginning = &chain[..chain.len() - dropped];
            assert_eq!(*found.entry(digest).or_insert_with(|| beginning.to_vec()), beginning);
            if let Ok(verified) = verify(beginning) {
                assert_eq!(verified.digest(), digest);
            }
        }
    }
    assert_eq!(found.len(), 5);
}

#[test]
fn tokens_of_a_known_chain_need_no_vouching() {
    let [grandchild, _, child, root] = family();
    let known = verify(&[&root, &child]).unwrap();
    let limits = Limits::default();
    let joined = [root, child, grandchild].join("~");
    let chain = Chain::parse_joined_after(&known, &joined, &limits).unwrap();
    let beginnings = chain.beginnings();
    let tokens: Vec<_> = beginnings.iter().map(|beginning| beginning.tokens()).collect();
    assert_eq!(tokens, [3]);
}

#[test]
fn vouching_for_the_parent_does_not_cover_the_leaf() {
    let [grandchild, sibling, child, root] = family();
    let forged = with_signature_of(&grandchild, &sibling);
    let chain = [root.as_str(), &child, &forged];
    for tokens in [1, 2] {
        assert_eq!(verify_vouched(&chain, tokens, None).unwrap_err().step.name(), "4b");
    }
}

#[test]
fn a_vouched_chain_that_the_configuration_no_longer_allows_is_denied() {
    let [_, _, child, root] = family();
    let limits = Limits::default();
    let chain = Chain::parse([root.as_str(), &child], &limits).unwrap();
    let beginnings = chain.beginnings();
    let step = |vouched: Thumbprint, anchors: &TrustAnchors, holder_algorithms: &Algorithms| {
        let context = VerificationContext {
            anchors,
            holder_algorithms,
            limits: &limits,
            now: UnixTime(NOW),
            hot_keys: None,
        };
        let verified = beginnings[0].verify_vouching_for_signatures(vouched, &context);
        verified
            .map(|chain| chain.anchor())
            .map_err(|denial| denial.step.name())
    };
    let with = |change: &dyn Fn(&mut TrustAnchor)| {
        TrustAnchors::new(anchors().iter().cloned().map(|mut anchor| {
            change(&mut anchor);
            anchor
        }))
    };
    let (ours, other) = (anchor().public().thumbprint(), mallory().public());
    let (ed25519, es256) = (Algorithms::default(), Algorithms::new([Algorithm::Es256]));
    assert_eq!(step(ours, &anchors(), &ed25519), Ok(ours));
    assert_eq!(step(other.thumbprint(), &anchors(), &ed25519), Err("3b"));
    assert_eq!(step(ours, &TrustAnchors::default(), &ed25519), Err("3k"));
    assert_eq!(
        step(ours, &with(&|anchor| anchor.key = other.clone()), &ed25519),
        Err("3b")
    );
    assert_eq!(
        step(ours, &with(&|anchor| anchor.algorithms = es256.clone()), &ed25519),
        Err("3a")
    );
    assert_eq!(step(ours, &anchors(), &es256), Err("4a"));
}

/// Claims that may be wrong for some token.
fn changes() -> impl Strategy<Value = Vec<(usize, &'static str, String)>> {
    let times = [
        NOW - 7200,
        NOW - 60,
        NOW,
        NOW + 20,
        NOW + 60,
        NOW + 1800,
        NOW + 3600,
        NOW + 90 * 86_400,
    ];
    let time = proptest::sample::select(times.map(|time| time.to_string()).to_vec());
    let number = (0..5u32).prop_map(|number| number.to_string());
    let text = |texts: &[&str]| proptest::sample::select(texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>());
    let tools = [
        r#"{"pay":{}}"#,
        r#"{"read":{}}"#,
        r#"{"pay":{"account":{"constraint_type":"exact","value":"a1"},"amount":{"constraint_type":"range","max":70}}}"#,
        r#"{"pay":{"account":{"constraint_type":"exact","value":"a1"},"amount":{"constraint_type":"range","max":20}}}"#,
        r#"{"pay":{"amount":{"constraint_type":"magic"}}}"#,
    ];
    let change = prop_oneof![
        time.clone().prop_map(|json| ("iat", json)),
        time.prop_map(|json| ("exp", json)),
        number.clone().prop_map(|json| ("del_depth", json)),
        number.prop_map(|json| ("del_max_depth", json)),
        text(&["\"root\"", "\"\"", "7"]).prop_map(|json| ("jti", json)),
        text(&["\"ada\"", "\"\"", "7"]).prop_map(|json| ("sub", json)),
        text(&["0", "-1", "9007199254740992", "\"1\""]).prop_map(|json| ("rev_epoch", json)),
        text(&["\"https://id.example.com\"", "\"https://other.example\"", "7"]).prop_map(|json| ("iss", json)),
        text(&["\"wrong\"", "null"]).prop_map(|json| ("par_hash", json)),
        text(&["\"a\"", "[\"a\",7]", "{}"]).prop_map(|json| ("aud", json)),
        text(&["{}", "[]", "{\"jwk\":{}}"]).prop_map(|json| ("cnf", json)),
        text(&["[]", "7"]).prop_map(|json| ("authorization_details", json)),
        text(&tools).prop_map(|json| ("authorization_details", details(&json))),
    ];
    proptest::collection::vec((0..3usize, change), 0..3).prop_map(|changes| {
        changes
            .into_iter()
            .map(|(token, (claim, json))| (token, claim, json))
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Tokens with wrong claims and valid signatures: vouching for signatures skips no other check.
    #[test]
    fn every_other_error_is_found_at_the_same_step(changes in changes()) {
        let changed = |token: usize, claims: Claims| {
            changes
                .iter()
                .filter(|(of, ..)| *of == token)
                .fold(claims, |claims, (_, claim, json)| claims.with(claim, json.clone()))
        };
        let root = changed(0, root()).signed(&anchor());
        let child = changed(1, child(&root)).signed(&alice());
        let leaf = changed(2, of_bob(&child)).signed(&bob());
        let tokens: [&str; 3] = [&root, &child, &leaf];
        let known = (1..=3).find_map(|length| verify(&tokens[..length]).ok());
        for length in 1..=3 {
            let chain = &tokens[..length];
            let expected = whole(&verify(chain));
            for vouched in 1..=length {
                prop_assert_eq!(&whole(&verify_vouched(chain, vouched, None)), &expected);
                prop_assert_eq!(&whole(&verify_vouched(chain, vouched, known.as_ref())), &expected);
            }
        }
    }
}
