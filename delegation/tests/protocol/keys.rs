//! Which keys may sign what: algorithms, kinds of keys, and principals with several keys.

use credence_delegation::{
    Algorithm, Algorithms, Cause, Chain, Denial, KeyType, Limits, PublicKey, SigningKey, TrustAnchor, TrustAnchors,
    UnixTime, VerificationContext, VerifiedChain,
};

use crate::common::*;

#[test]
fn every_algorithm_signs_roots_children_and_is_denied_where_it_is_not_named() {
    for kind in KeyType::ALL {
        let (issuer, holder) = (key(kind, 21), key(kind, 22));
        for algorithm in Algorithm::ALL
            .into_iter()
            .filter(|algorithm| algorithm.key_type() == kind)
        {
            let header = format!(r#"{{"alg":"{algorithm}","typ":"aat+jwt"}}"#);
            let root = sign(&issuer, &header, &root().with("cnf", cnf(&holder)).json());
            let leaf = child(&root).with("iss", format!("\"{}\"", holder.public().thumbprint().uri()));
            let leaf = sign(&holder, &header, &leaf.json());
            let named = Algorithms::new([algorithm]);
            let others = Algorithms::new(Algorithm::ALL.into_iter().filter(|other| *other != algorithm));
            let verdict = |roots: &Algorithms, holders: &Algorithms| {
                let anchors = TrustAnchors::new([device(issuer.public(), roots.clone())]);
                verify(&[&root, &leaf], &anchors, holders).map_err(|denial| (denial.step.name(), denial.cause))
            };
            assert!(verdict(&named, &named).is_ok(), "{algorithm}");
            let denied = |step| Some((step, Cause::AlgorithmNotAllowed));
            assert_eq!(verdict(&others, &named).err(), denied("3a"), "{algorithm}");
            assert_eq!(verdict(&named, &others).err(), denied("4a"), "{algorithm}");
        }
    }
}

#[test]
fn a_signature_of_the_right_algorithm_and_another_message_or_length_is_refused() {
    for kind in [KeyType::P256, KeyType::Secp256k1] {
        let issuer = key(kind, 21);
        let anchors = TrustAnchors::new([device(issuer.public(), Algorithms::new([kind.algorithm()]))]);
        let header = format!(r#"{{"alg":"{}","typ":"aat+jwt"}}"#, kind.algorithm());
        let token = sign(&issuer, &header, &root().json());
        let other = sign(&issuer, &header, &root().with("jti", "\"other\"").json());
        let (input, signature) = token.rsplit_once('.').unwrap();
        let (_, foreign) = other.rsplit_once('.').unwrap();
        assert!(verify(&[&token], &anchors, &Algorithms::default()).is_ok());
        for wrong in [
            foreign.to_owned(),
            String::new(),
            signature[..84].to_owned(),
            format!("{signature}AAAA"),
            "A".repeat(86),
        ] {
            let denial = verify(&[&format!("{input}.{wrong}")], &anchors, &Algorithms::default()).unwrap_err();
            assert_eq!(denial.step.name(), "3b", "{wrong}");
        }
    }
}

#[test]
fn a_principal_with_several_devices_can_lose_one() {
    let (laptop, phone) = (key(KeyType::Ed25519, 31), key(KeyType::P256, 32));
    let devices = [
        device(laptop.public(), Algorithms::default()),
        device(phone.public(), Algorithms::new([Algorithm::Es256])),
    ];
    let tokens = [&laptop, &phone].map(|key| {
        let header = format!(r#"{{"alg":"{}","typ":"aat+jwt"}}"#, key.algorithm());
        sign(key, &header, &root().json())
    });
    let accepted = |anchors: &[TrustAnchor]| {
        let anchors = TrustAnchors::new(anchors.to_vec());
        tokens
            .each_ref()
            .map(|token| verify(&[token], &anchors, &Algorithms::default()).is_ok())
    };
    assert_eq!(accepted(&devices), [true, true]);
    assert_eq!(accepted(&devices[..1]), [true, false], "the phone is lost");
    let replacement = device(key(KeyType::P256, 33).public(), Algorithms::new([Algorithm::Es256]));
    assert_eq!(
        accepted(&[devices[0].clone(), replacement]),
        [true, false],
        "its successor signs for itself, not for it"
    );
    let both = TrustAnchors::new(devices.to_vec());
    let [by_laptop, by_phone] = tokens
        .each_ref()
        .map(|token| verify(&[token], &both, &Algorithms::default()).unwrap());
    assert_eq!(
        by_laptop.principal(),
        by_phone.principal(),
        "the devices are one person"
    );
    assert_eq!(by_laptop.anchor(), laptop.public().thumbprint());
    assert_eq!(by_phone.anchor(), phone.public().thumbprint());
}

#[test]
fn a_kid_selects_among_the_issuers_keys_and_is_no_key_itself() {
    let keys = [key(KeyType::Ed25519, 41), key(KeyType::Ed25519, 42)];
    let named = |index: usize, id: Option<&str>| TrustAnchor {
        key_id: id.map(str::to_owned),
        ..device(keys[index].public(), Algorithms::default())
    };
    let verdict = |anchors: [TrustAnchor; 2], signer: usize, kid: &str| {
        let header = format!(r#"{{"alg":"Ed25519","typ":"aat+jwt"{kid}}}"#);
        let token = sign(&keys[signer], &header, &root().json());
        verify(&[&token], &TrustAnchors::new(anchors), &Algorithms::default())
            .map(|chain| chain.anchor())
            .map_err(|denial| (denial.step.name(), denial.cause))
    };
    let both = || [named(0, Some("one")), named(1, Some("two"))];
    let thumbprint = |index: usize| Ok(keys[index].public().thumbprint());
    assert_eq!(verdict(both(), 1, r#","kid":"two""#), thumbprint(1));
    assert_eq!(verdict(both(), 1, ""), thumbprint(1), "all are tried without one");
    let invalid = Err(("3b", Cause::SignatureInvalid));
    assert_eq!(verdict(both(), 1, r#","kid":"one""#), invalid, "the other is not tried");
    let unknown = Err(("3b", Cause::KeyUnknown));
    assert_eq!(verdict(both(), 1, r#","kid":"three""#), unknown);
    assert_eq!(verdict(both(), 1, r#","kid":"Two""#), unknown, "compared exactly");
    let one_unnamed = [named(0, Some("one")), named(1, None)];
    assert_eq!(verdict(one_unnamed, 1, r#","kid":"three""#), thumbprint(1));
    let first_unnamed = || [named(0, None), named(1, Some("two"))];
    assert_eq!(verdict(first_unnamed(), 1, r#","kid":"two""#), thumbprint(1));
    assert_eq!(verdict(first_unnamed(), 0, ""), thumbprint(0));
    let shape = verdict(both(), 1, r#","kid":2"#).unwrap_err();
    assert_eq!(shape.0, "3a");
}

#[test]
fn a_did_key_is_an_issuer_only_where_it_is_listed() {
    for kind in KeyType::ALL {
        let issuer = key(kind, 51);
        let did = issuer.public().to_did_key();
        let header = format!(r#"{{"alg":"{}","typ":"aat+jwt"}}"#, kind.algorithm());
        let token = sign(&issuer, &header, &root().with("iss", format!("\"{did}\"")).json());
        let anchor = TrustAnchor {
            issuer: did.clone(),
            ..device(
                PublicKey::from_did_key(&did).unwrap(),
                Algorithms::new([kind.algorithm()]),
            )
        };
        let chain = verify(&[&token], &TrustAnchors::new([anchor]), &Algorithms::default()).unwrap();
        assert_eq!(chain.principal().issuer, did);
        let denial = verify(&[&token], &anchors(), &Algorithms::default()).unwrap_err();
        assert_eq!((denial.step.name(), denial.cause), ("3k", Cause::IssuerUnknown));
    }
}

fn key(kind: KeyType, seed: u8) -> SigningKey {
    SigningKey::from_secret(kind, &[seed; 32]).unwrap()
}

fn device(key: PublicKey, algorithms: Algorithms) -> TrustAnchor {
    TrustAnchor {
        issuer: ISSUER.to_owned(),
        key,
        key_id: None,
        algorithms,
        asserts_subjects: false,
        delegations: true,
        access_tokens: None,
        same_principals: Vec::new(),
        is_fetched: false,
    }
}

fn verify(chain: &[&str], anchors: &TrustAnchors, holders: &Algorithms) -> Result<VerifiedChain, Denial> {
    let limits = Limits::default();
    Chain::parse(chain.iter().copied(), &limits)?.verify(&VerificationContext {
        anchors,
        holder_algorithms: holders,
        limits: &limits,
        now: UnixTime(NOW),
        hot_keys: None,
    })
}
