//! What verification costs, beside a raw `verify_strict` of ed25519-dalek over the same bytes.
//!
//! `make bench BENCH=token` turns these into the ratios that matter.

#![allow(missing_docs, reason = "criterion's macros make items without documentation")]
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use credence_delegation::batch::{self, Signed};
use credence_delegation::json::Json;
use credence_delegation::mint::{self, Grant, RootGrant};
use credence_delegation::{
    Algorithms, Chain, Limits, SigningKey, TrustAnchor, TrustAnchors, UnixTime, Value, VerificationContext,
};
use criterion::{Criterion, criterion_group, criterion_main};

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
        holder_spiffe_id: None,
        audience: vec!["https://payments.example".to_owned()],
        max_depth: 8,
        tools: tools(1000 - u32::from(depth)),
    }
}

fn root_of(issuer: &str) -> String {
    let root = RootGrant {
        grant: grant(0),
        issuer: issuer.to_owned(),
        subject: Some("alice".to_owned()),
        epoch: Some(7),
        agent_name: None,
    };
    mint::root(&root, &key(1), &Limits::default()).unwrap()
}

/// A chain whose leaf has this `del_depth`.
fn chain(depth: u8) -> String {
    let limits = Limits::default();
    let mut tokens = vec![root_of(ISSUER)];
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
        delegations: true,
        access_tokens: None,
        same_principals: Vec::new(),
        is_fetched: false,
    }])
}

/// A chain of one token, and what refuses one before any signature, beside one raw signature over the same bytes.
fn one_token(criterion: &mut Criterion) {
    let (limits, anchors, algorithms) = (Limits::default(), anchors(), Algorithms::default());
    let context = |now| VerificationContext {
        anchors: &anchors,
        holder_algorithms: &algorithms,
        limits: &limits,
        now,
        hot_keys: None,
    };
    let token = chain(0);
    let message = token.rsplit_once('.').unwrap().0.as_bytes();
    let signature = ed25519_dalek::Signature::from_slice(&key(1).sign(message)).unwrap();
    let raw = ed25519_dalek::SigningKey::from_bytes(&[1; 32]).verifying_key();
    criterion.bench_function("raw", |bencher| {
        bencher.iter(|| raw.verify_strict(black_box(message), black_box(&signature)).unwrap());
    });
    criterion.bench_function("one", |bencher| {
        bencher.iter(|| {
            Chain::parse_joined(black_box(&token), &limits)
                .and_then(|chain| chain.verify(&context(NOW)))
                .unwrap()
        });
    });

    let strangers = root_of("https://id.example.net");
    let truncated = token.replacen('.', "", 1);
    // The last character of the payload is not base64url.
    let (rest, signature) = token.rsplit_once('.').unwrap();
    let spoilt = format!("{}!.{signature}", &rest[..rest.len() - 1]);
    for (name, token, now) in [
        ("garbage_shape", &truncated, NOW),
        ("garbage_encoding", &spoilt, NOW),
        ("garbage_anchor", &strangers, NOW),
        ("garbage_expired", &token, UnixTime(NOW.0 + 86_400)),
    ] {
        criterion.bench_function(name, |bencher| {
            bencher.iter(|| {
                Chain::parse_joined(black_box(token), &limits)
                    .and_then(|chain| chain.verify(&context(now)))
                    .unwrap_err()
            });
        });
    }
}

/// A chain of depth 4 whose first four tokens are known.
fn known_prefix(criterion: &mut Criterion) {
    let (limits, anchors, algorithms) = (Limits::default(), anchors(), Algorithms::default());
    let context = VerificationContext {
        anchors: &anchors,
        holder_algorithms: &algorithms,
        limits: &limits,
        now: NOW,
        hot_keys: None,
    };
    let chain = chain(4);
    let (prefix, leaf) = chain.rsplit_once('~').unwrap();
    let known = Chain::parse_joined(prefix, &limits).unwrap().verify(&context).unwrap();

    let message = leaf.rsplit_once('.').unwrap().0.as_bytes();
    let signature = ed25519_dalek::Signature::from_slice(&key(5).sign(message)).unwrap();
    let raw = ed25519_dalek::SigningKey::from_bytes(&[5; 32]).verifying_key();
    criterion.bench_function("raw_leaf", |bencher| {
        bencher.iter(|| raw.verify_strict(black_box(message), black_box(&signature)).unwrap());
    });
    criterion.bench_function("depth4_prefix", |bencher| {
        bencher.iter(|| {
            Chain::parse_joined_after(&known, black_box(&chain), &limits)
                .and_then(|chain| chain.verify(&context))
                .unwrap()
        });
    });
    criterion.bench_function("depth4", |bencher| {
        bencher.iter(|| {
            Chain::parse_joined(black_box(&chain), &limits)
                .and_then(|chain| chain.verify(&context))
                .unwrap()
        });
    });
}

/// 64 signatures of as many keys, one by one and as a batch, and batches on every core.
fn batches(criterion: &mut Criterion) {
    const SIZE: u8 = 64;
    let messages: Vec<String> = (0..SIZE).map(|number| chain(0) + &number.to_string()).collect();
    let keys: Vec<SigningKey> = (0..SIZE).map(key).collect();
    let public: Vec<_> = keys.iter().map(SigningKey::public).collect();
    let signatures: Vec<_> = keys
        .iter()
        .zip(&messages)
        .map(|(key, message)| key.sign(message.as_bytes()))
        .collect();
    let signed: Vec<Signed<'_>> = public
        .iter()
        .zip(&messages)
        .zip(&signatures)
        .map(|((key, message), signature)| Signed {
            key,
            message: message.as_bytes(),
            signature,
        })
        .collect();

    let raw: Vec<_> = (0..SIZE)
        .map(|number| ed25519_dalek::SigningKey::from_bytes(&[number; 32]).verifying_key())
        .collect();
    let raw_signatures: Vec<_> = signatures
        .iter()
        .map(|signature| ed25519_dalek::Signature::from_slice(signature).unwrap())
        .collect();
    criterion.bench_function("singly_64", |bencher| {
        bencher.iter(|| {
            for ((key, message), signature) in raw.iter().zip(&messages).zip(&raw_signatures) {
                key.verify_strict(black_box(message.as_bytes()), signature).unwrap();
            }
        });
    });
    criterion.bench_function("batch_64", |bencher| {
        bencher.iter(|| assert!(batch::find_bad(black_box(&signed)).is_empty()));
    });
    // Reported as the time of one batch: what all cores together need for one.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    criterion.bench_function("batch_64_all_cores", |bencher| {
        bencher.iter_custom(|batches| {
            let left = AtomicU64::new(batches);
            let start = Instant::now();
            std::thread::scope(|scope| {
                for _ in 0..cores {
                    scope.spawn(|| {
                        while left
                            .try_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                            .is_ok()
                        {
                            assert!(batch::find_bad(black_box(&signed)).is_empty());
                        }
                    });
                }
            });
            start.elapsed()
        });
    });
}

criterion_group!(benches, one_token, known_prefix, batches);
criterion_main!(benches);
