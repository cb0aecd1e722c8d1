//! What a signature costs with and without a table, and what a table costs.

#![allow(missing_docs, reason = "criterion's macros make items without documentation")]

use std::hint::black_box;

use credence_key_tables::{Ed25519Table, P256Table, verify_strict};
use criterion::{Criterion, criterion_group, criterion_main};
use ed25519_dalek::Signer as _;
use p256::ecdsa::signature::hazmat::{PrehashSigner as _, PrehashVerifier as _};

const MESSAGE: [u8; 350] = [7; 350];

fn ed25519(criterion: &mut Criterion) {
    let signing = ed25519_dalek::SigningKey::from_bytes(&[1; 32]);
    let key = signing.verifying_key();
    let signature = signing.sign(&MESSAGE);
    let bytes = signature.to_bytes();
    let table = Ed25519Table::new(&key).unwrap();
    criterion.bench_function("ed25519_dalek", |bencher| {
        bencher.iter(|| key.verify_strict(black_box(&MESSAGE), &signature).unwrap());
    });
    criterion.bench_function("ed25519_without_table", |bencher| {
        bencher.iter(|| assert!(verify_strict(&key, black_box(&MESSAGE), &bytes)));
    });
    criterion.bench_function("ed25519_with_table", |bencher| {
        bencher.iter(|| assert!(table.verify_strict(black_box(&MESSAGE), &bytes)));
    });
    criterion.bench_function("ed25519_new_table", |bencher| {
        bencher.iter(|| Ed25519Table::new(black_box(&key)));
    });
}

fn p256(criterion: &mut Criterion) {
    let signing = p256::ecdsa::SigningKey::from_slice(&[1; 32]).unwrap();
    let key = signing.verifying_key();
    let digest = [7; 32];
    let signature: p256::ecdsa::Signature = signing.sign_prehash(&digest).unwrap();
    let table = P256Table::new(key);
    criterion.bench_function("p256_without_table", |bencher| {
        bencher.iter(|| key.verify_prehash(black_box(&digest), &signature).unwrap());
    });
    criterion.bench_function("p256_with_table", |bencher| {
        bencher.iter(|| assert!(table.verify(black_box(&digest), &signature)));
    });
    criterion.bench_function("p256_new_table", |bencher| {
        bencher.iter(|| P256Table::new(black_box(key)));
    });
}

criterion_group!(benches, ed25519, p256);
criterion_main!(benches);
