//! Generated cases, compared with crypto-bigint, curve25519-dalek, ed25519-dalek and p256.
//!
//! A case is one compared result. Operands are weighted towards the edges of their range. `cargo test` runs a
//! thousandth of the cases, `make soak` runs all 100 million in about four minutes on two cores.
//!
//! curve25519-dalek keeps its field private, so field operations are compared with crypto-bigint's.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::thread;

use crypto_bigint::modular::ConstMontyForm;
use crypto_bigint::{U256, const_monty_params};
use curve25519_dalek::constants::{ED25519_BASEPOINT_POINT as BASE, EIGHT_TORSION};
use curve25519_dalek::{EdwardsPoint, Scalar};
use ed25519_dalek::{Signature, VerifyingKey};
use p256::ecdsa::signature::hazmat::{PrehashSigner as _, PrehashVerifier as _};
use sha2::{Digest as _, Sha512};

use crate::edwards::{Point, Sign, sum, table_points};
use crate::field::{ONE, Tight, ZERO};
use crate::fixed_base::FixedBaseTable;
use crate::p256::field::Element as P256Element;
use crate::{Ed25519Table, P256Table, is_of_small_order, verify_strict};

type Family = fn(u64, &mut Numbers);

/// The compared operations, and their number among the 100 million cases.
const FAMILIES: [(&str, u64, Family); 7] = [
    ("field operations", 75_800_000, field_operations),
    ("inverses and square roots", 1_600_000, inverses_and_roots),
    ("point operations", 11_000_000, point_operations),
    ("scalar multiplications", 500_000, scalar_multiplications),
    ("Ed25519 signatures", 1_000_000, ed25519_signatures),
    ("P-256 field operations", 10_000_000, p256_field_operations),
    ("P-256 signatures", 100_000, p256_signatures),
];

#[test]
fn a_thousandth_of_the_cases_agree_with_the_libraries() {
    compare(1_000, 1);
}

#[test]
#[ignore = "long: make soak runs it"]
fn a_hundred_million_cases_agree_with_the_libraries() {
    let seed = RandomState::new().build_hasher().finish();
    assert_eq!(compare(1, seed), 100_000_000);
}

/// Threads that share the cases: a fixed number, so that a seed gives the same cases on every machine.
const THREADS: u64 = 16;

/// Runs one in `fraction` of the cases and returns their number.
fn compare(fraction: u64, seed: u64) -> u64 {
    println!("seed {seed}");
    for (number, (name, cases, family)) in (0..).zip(FAMILIES) {
        let cases = cases / fraction;
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let share = (cases + thread) / THREADS;
                let mut numbers = Numbers(seed ^ (number << 32 | thread));
                scope.spawn(move || family(share, &mut numbers));
            }
        });
        println!("{cases} {name} agree");
    }
    FAMILIES.iter().map(|(_, cases, _)| cases / fraction).sum()
}

/// The pseudorandom numbers of SplitMix64 (Steele, Lea and Flood, Fast splittable pseudorandom number generators, 2014).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `end`.
    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.next() as u8)
    }

    fn words(&mut self) -> U256 {
        U256::from_words(std::array::from_fn(|_| self.next() as _))
    }

    /// A number of 256 bits. One in four is near 0, p, a power of two, or the negative of one.
    fn near_edge(&mut self, modulus: &U256) -> U256 {
        if !self.one_in(4) {
            return self.words();
        }
        let near = U256::from_u64(self.next() % 32);
        let edge = match self.below(4) {
            0 => U256::ZERO,
            1 => *modulus,
            2 => U256::ONE.shl_vartime(self.below(255) as u32),
            _ => modulus.wrapping_sub(&U256::ONE.shl_vartime(self.below(255) as u32)),
        };
        if self.one_in(2) {
            edge.wrapping_add(&near)
        } else {
            edge.wrapping_sub(&near)
        }
    }

    fn scalar(&mut self) -> Scalar {
        let order = U256::from_be_hex("1000000000000000000000000000000014def9dea2f79cd65812631a5cf5d3ed");
        Scalar::from_bytes_mod_order(self.near_edge(&order).to_le_bytes().into())
    }
}

// === Field ===

const_monty_params!(
    Modulus,
    U256,
    "7fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffed"
);
type Reference = ConstMontyForm<Modulus, { U256::LIMBS }>;

/// The same element here and in the library.
#[derive(Clone, Copy)]
struct Element(Tight, Reference);

impl Element {
    /// Of any 255 bits, so that it may be p or more.
    fn any(numbers: &mut Numbers) -> Self {
        let modulus = *Reference::MODULUS.as_ref();
        let number = numbers.near_edge(&modulus).bitand(&U256::MAX.shr_vartime(1));
        Self(
            Tight::from_bytes(&number.to_le_bytes().into()),
            Reference::new(&number.rem_vartime(Reference::MODULUS.as_nz_ref())),
        )
    }

    #[track_caller]
    fn assert_same(&self) {
        assert_eq!(U256::from_le_slice(&self.0.to_bytes()), self.1.retrieve());
    }
}

fn field_operations(cases: u64, numbers: &mut Numbers) {
    let mut earlier = Element(ONE, Reference::ONE);
    for _ in 0..cases.div_ceil(6) {
        let a = if numbers.one_in(4) {
            earlier
        } else {
            Element::any(numbers)
        };
        let b = Element::any(numbers);
        let sum = Element((a.0 + b.0).carry(), a.1 + b.1);
        let difference = Element((a.0 - b.0).carry(), a.1 - b.1);
        let product = Element(a.0 * b.0, a.1 * b.1);
        // With the largest possible words.
        let of_loose = Element((a.0 + b.0) * (a.0 - b.0), sum.1 * difference.1);
        let square = Element(a.0.square(), a.1.square());
        let negative = Element(-a.0, -a.1);
        for element in [sum, difference, product, of_loose, square, negative] {
            element.assert_same();
        }
        earlier = *numbers.one_of(&[sum, difference, product, of_loose, square, negative]);
    }
}

/// Checks a result by its definition.
fn inverses_and_roots(cases: u64, numbers: &mut Numbers) {
    for _ in 0..cases.div_ceil(2) {
        let (a, v) = (Element::any(numbers).0, Element::any(numbers).0);
        let inverse = a.invert();
        assert!(if a == ZERO { inverse == ZERO } else { a * inverse == ONE });
        if v == ZERO {
            continue;
        }
        match Tight::sqrt_ratio(a, v) {
            Some(root) => assert!(root.square() * v == a),
            // 2 is not a square. Where a/v has no root, 2a/v has one.
            None => assert!(a != ZERO && Tight::sqrt_ratio((a + a).carry(), v).is_some()),
        }
    }
}

// === Points ===

/// The same point here and in the library.
#[derive(Clone, Copy)]
struct Both(Point, EdwardsPoint);

impl Both {
    fn of(point: EdwardsPoint) -> Self {
        Self(Point::decode(point.compress().as_bytes()).unwrap(), point)
    }
}

/// A point of the group, often with a part of small order.
fn any_point(numbers: &mut Numbers) -> EdwardsPoint {
    let point = match numbers.below(8) {
        0 => EdwardsPoint::default(),
        1 => BASE,
        _ => EdwardsPoint::mul_base(&numbers.scalar()),
    };
    point + numbers.one_of(&EIGHT_TORSION)
}

fn point_operations(cases: u64, numbers: &mut Numbers) {
    const POOL: usize = 64;
    let mut left = cases;
    while left > 0 {
        let pool: Vec<Both> = (0..POOL).map(|_| Both::of(any_point(numbers))).collect();
        let points: Vec<Point> = pool.iter().map(|both| both.0).collect();
        let prepared = table_points(&points);
        let mut both = pool[0];
        for _ in 0..left.min(5_000) {
            let index = numbers.below(POOL);
            let other = pool[index];
            // Sometimes the sum of equal or of opposite points.
            match numbers.below(32) {
                0 => both = other,
                1 => both = Both(other.0.negate(), -other.1),
                _ => {}
            }
            both = match numbers.below(6) {
                0 => Both(both.0.negate(), -both.1),
                1 => Both(both.0.add(&both.0), both.1 + both.1),
                2 => Both(both.0.add(&other.0), both.1 + other.1),
                3 => Both(both.0.add_table_point(&prepared[index], Sign::Plus), both.1 + other.1),
                4 => Both(both.0.add_table_point(&prepared[index], Sign::Minus), both.1 - other.1),
                _ => Both(Point::decode(&both.0.encode()).unwrap(), both.1),
            };
            assert_eq!(both.0.encode(), both.1.compress().to_bytes());
            assert!(both.0.is_consistent());
        }
        left = left.saturating_sub(5_000);
    }
}

fn scalar_multiplications(cases: u64, numbers: &mut Numbers) {
    let base = FixedBaseTable::<8>::new(Both::of(BASE).0);
    let mut left = cases;
    while left > 0 {
        let point = any_point(numbers);
        let table = FixedBaseTable::<6>::new(Both::of(point).0);
        for _ in 0..left.min(1_000) {
            let (of_point, of_base) = (numbers.scalar(), numbers.scalar());
            let addends: Vec<_> = table.addends(&of_point).chain(base.addends(&of_base)).collect();
            let expected = EdwardsPoint::vartime_double_scalar_mul_basepoint(&of_point, &point, &of_base);
            assert_eq!(sum(&addends).encode(), expected.compress().to_bytes());
        }
        left = left.saturating_sub(1_000);
    }
}

// === Signatures ===

fn ed25519_signatures(cases: u64, numbers: &mut Numbers) {
    const PER_KEY: u64 = 50;
    let (mut left, mut accepted) = (cases, 0);
    while left > 0 {
        let secret = numbers.scalar();
        let torsion = if numbers.one_in(4) {
            *numbers.one_of(&EIGHT_TORSION)
        } else {
            EdwardsPoint::default()
        };
        let key = VerifyingKey::from(EdwardsPoint::mul_base(&secret) + torsion);
        assert_eq!(is_of_small_order(key.as_bytes()), key.is_weak());
        if key.is_weak() {
            continue;
        }
        let table = Ed25519Table::new(&key).unwrap();
        for _ in 0..left.min(PER_KEY) {
            let message = numbers.bytes::<200>();
            let mut message = message[..numbers.below(200)].to_vec();
            let mut signature = sign(&key, secret, &message, numbers);
            if numbers.one_in(4) {
                signature[numbers.below(64)] ^= 1 << numbers.below(8);
            } else if numbers.one_in(8) {
                message.push(0);
            }
            let theirs = key.verify_strict(&message, &Signature::from_bytes(&signature)).is_ok();
            assert_eq!(verify_strict(&key, &message, &signature), theirs);
            assert_eq!(table.verify_strict(&message, &signature), theirs);
            accepted += u64::from(theirs);
        }
        left = left.saturating_sub(PER_KEY);
    }
    assert!(0 < accepted && accepted < cases, "{accepted} of {cases} accepted");
}

/// A signature whose equation holds except for a part of small order. Sometimes R is of small order or not canonical,
/// or S is not below the group order.
fn sign(key: &VerifyingKey, secret: Scalar, message: &[u8], numbers: &mut Numbers) -> [u8; 64] {
    let nonce = if numbers.one_in(16) {
        Scalar::ZERO
    } else {
        numbers.scalar()
    };
    let torsion = if numbers.one_in(8) {
        *numbers.one_of(&EIGHT_TORSION)
    } else {
        EdwardsPoint::default()
    };
    let mut r = (EdwardsPoint::mul_base(&nonce) + torsion).compress().to_bytes();
    if numbers.one_in(4) && r[1..31] == [0; 30] && r[0] < 19 && r[31] & 0x7f == 0 {
        // y + p, for the few y below 19.
        (r[0], r[31]) = (r[0] + 0xed, r[31] | 0x7f);
        r[1..31].fill(0xff);
    }
    let challenge = Sha512::new()
        .chain_update(r)
        .chain_update(key.as_bytes())
        .chain_update(message)
        .finalize();
    let s = nonce + Scalar::from_bytes_mod_order_wide(&challenge.into()) * secret;
    let mut s = U256::from_le_slice(s.as_bytes());
    if numbers.one_in(16) {
        let order = U256::from_le_slice((-Scalar::ONE).as_bytes()).wrapping_add(&U256::ONE);
        s = s.wrapping_add(&order);
    }
    let mut signature = [0; 64];
    signature[..32].copy_from_slice(&r);
    signature[32..].copy_from_slice(s.to_le_bytes().as_ref());
    signature
}

const_monty_params!(
    P256Modulus,
    U256,
    "ffffffff00000001000000000000000000000000ffffffffffffffffffffffff"
);
type P256Reference = ConstMontyForm<P256Modulus, { U256::LIMBS }>;

fn p256_field_operations(cases: u64, numbers: &mut Numbers) {
    let modulus = P256Reference::MODULUS.as_nz_ref();
    let inverse_r = P256Reference::new(&U256::ONE.shl_vartime(140))
        .square()
        .invert_vartime()
        .unwrap();
    let fifteen = P256Reference::new(&U256::from_u32(15));
    for _ in 0..cases.div_ceil(5) {
        let [(a, known_a), (b, known_b)] = std::array::from_fn(|_| {
            let known = P256Reference::new(&numbers.near_edge(modulus).rem_vartime(modulus));
            // Often the limbs, and not the number, are near an edge.
            let known = if numbers.one_in(2) { known } else { known * inverse_r };
            (P256Element::new(&known.retrieve()), known)
        });
        // With the greatest and the least elements that sums make.
        let (greatest, least) = (a.times(15).carried(), b.times(-15).carried());
        for (element, known) in [
            (a * b, known_a * known_b),
            (a.square(), known_a.square()),
            ((a - b).carried(), known_a - known_b),
            (greatest * least, -(known_a * known_b * fifteen * fifteen)),
            (greatest.square(), (known_a * fifteen).square()),
        ] {
            assert_eq!(element.number().rem_vartime(modulus), known.retrieve());
            assert_eq!(element.is_zero(), known == P256Reference::ZERO);
        }
    }
}

fn p256_signatures(cases: u64, numbers: &mut Numbers) {
    let mut left = cases;
    while left > 0 {
        let Ok(signing) = p256::ecdsa::SigningKey::from_slice(&numbers.bytes::<32>()) else {
            continue;
        };
        let (key, table) = (signing.verifying_key(), P256Table::new(signing.verifying_key()));
        for _ in 0..left.min(100) {
            let mut digest = numbers.bytes::<32>();
            let signature: p256::ecdsa::Signature = signing.sign_prehash(&digest).unwrap();
            let (r, s) = signature.split_scalars();
            let signature = match numbers.below(4) {
                0 => signature,
                1 => p256::ecdsa::Signature::from_scalars(r, -s).unwrap(),
                2 => p256::ecdsa::Signature::from_scalars(s, r).unwrap(),
                _ => {
                    digest[numbers.below(32)] ^= 1 << numbers.below(8);
                    signature
                }
            };
            let theirs = key.verify_prehash(&digest, &signature.normalize_s()).is_ok();
            assert_eq!(table.verify(&digest, &signature), theirs);
        }
        left = left.saturating_sub(100);
    }
}
