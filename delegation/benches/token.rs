//! What verification costs, beside a raw `verify_strict` of ed25519-dalek over the same bytes.
//!
//! `make bench BENCH=token` turns these into the ratios that matter.

#![allow(missing_docs, reason = "criterion's macros make items without documentation")]

use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;

use credence_delegation::mint::{self, Grant, RootGrant};
use credence_delegation::{
    Algorithms, Chain, Limits, SigningKey, TrustAnchor, TrustAnchors, UnixTime, Value, VerificationContext, json::Json,
};

const NOW: UnixTime = UnixTime(1_800_000_000);
const ISSUER: &str = "https://id.example.com";

fn key(number: u8) -> SigningKey {
    SigningKey::from_seed(&[number; 32])
}

fn tools(max: u32) -> Value {
    let text = format!(
        r#"{{"payments.create":{{"account":{{"constraint_type":"one_of","values":["acc-2041","acc-2042"]}},
            "amount":{{"constraint_type":"range","min":1,"max":{max}}},
            "currency":{{"constraint_type":"exact","value":"EUR"}}}},
           "payments.read":{{"account":{{"constraint_type":"exact","value":"acc-2041"}}}}}}"#
    );
    Value::from_json(&Json::parse(text.as_bytes()).unwrap()).unwrap()
}

fn grant(depth: u8) -> Grant {
    Grant {
        id: format!("019a{depth:04}-7c1e-7d7a-9f4e-3b1f0c2d4e5f"),
        issued_at: UnixTime(NOW.0 - 60),
        expires_at: UnixTime(NOW.0 + 3600 - i64::from(depth)),
        holder: key(depth + 2).public(),
        holder_certificate: None,
        audience: vec!["https://payments.example".to_owned()],
        max_depth: 8,
        tools: tools(1000 - u32::from(depth)),
    }
}

/// A chain whose leaf has this `del_depth`.
fn chain(depth: u8) -> String {
    let limits = Limits::default();
    let root = RootGrant {
        grant: grant(0),
        issuer: ISSUER.to_owned(),
        subject: Some("alice".to_owned()),
        epoch: Some(7),
        agent_name: None,
    };
    let mut tokens = vec![mint::root(&root, &key(1), &limits).unwrap()];
    for depth in 1..=depth {
        let token = mint::derive(tokens.last().unwrap(), &grant(depth), &key(depth + 1), &limits).unwrap();
        tokens.push(token);
    }
    tokens.join("~")
}

fn anchors() -> TrustAnchors {
    TrustAnchors::new([TrustAnchor {
        issuer: ISSUER.to_owned(),
        key: key(1).public(),
        key_id: None,
        algorithms: Algorithms::default(),
        asserts_subjects: true,
    }])
}

fn verification(criterion: &mut Criterion) {
    let (limits, anchors, algorithms) = (Limits::default(), anchors(), Algorithms::default());
    let context = |now| VerificationContext {
        anchors: &anchors,
        holder_algorithms: &algorithms,
        limits: &limits,
        now,
    };
    let one = chain(0);
    println!("one token: {} bytes", one.len());

    let (message, signature) = one.rsplit_once('.').unwrap();
    let signature = key(1).sign(message.as_bytes());
    let signature = ed25519_dalek::Signature::from_slice(&signature).unwrap();
    let raw = ed25519_dalek::SigningKey::from_bytes(&[1; 32]).verifying_key();
    criterion.bench_function("raw", |bencher| {
        bencher.iter(|| raw.verify_strict(black_box(message.as_bytes()), black_box(&signature)));
    });
    criterion.bench_function("one", |bencher| {
        bencher.iter(|| {
            Chain::parse_joined(black_box(&one), &limits)
                .unwrap()
                .verify(&context(NOW))
                .unwrap()
        });
    });
    criterion.bench_function("one_parse", |bencher| {
        bencher.iter(|| Chain::parse_joined(black_box(&one), &limits).unwrap());
    });
    let other = one.clone();
    criterion.bench_function("expired", |bencher| {
        bencher.iter(|| {
            Chain::parse_joined(black_box(&other), &limits)
                .unwrap()
                .verify(&context(UnixTime(NOW.0 * 2)))
                .unwrap_err()
        });
    });
}

criterion_group!(benches, verification);
criterion_main!(benches);
