//! Fills a ledger for `loadtest/bench-signatures` with delegations, some of them forged.
//!
//! ```text
//! record-chains DIR DELEGATIONS AGENTS FORGED
//! ```
//!
//! Chains have one to four tokens, all distinct. Four issuers sign the roots, and `AGENTS` agents hold keys. The forged
//! ones are at pseudo-random places; one of their tokens has a signature over another text. Their indexes are printed
//! as a JSON array. `DIR/settings.yaml` has the trust anchors.

#![allow(clippy::print_stdout, reason = "its output is for the benchmark")]

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use credence_delegation::SigningKey;
use credence_ledger::log_identity::{LedgerIdentity, Naming};
use credence_ledger::{Ledger, LedgerBounds, LedgerOptions, NewItem, Retention, SourceName};
use credence_wire::v1;
use prost::Message as _;
use sha2::{Digest as _, Sha256};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, delegations, agents, forged] = arguments.as_slice() else {
        return Err("usage: record-chains DIR DELEGATIONS AGENTS FORGED".into());
    };
    let (delegations, agents, forged): (u64, u64, usize) = (delegations.parse()?, agents.parse()?, forged.parse()?);
    let folder = Path::new(folder);
    let ledger = folder.join("ledger");
    std::fs::create_dir_all(&ledger)?;
    let issuers: Vec<Holder> = (0..ISSUERS).map(|number| Holder::new(1, number)).collect();
    std::fs::write(folder.join("settings.yaml"), settings(&issuers))?;
    let forged: BTreeSet<u64> = (0u64..)
        .map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % delegations)
        .scan(BTreeSet::new(), |chosen, place| {
            let more = chosen.len() < forged;
            chosen.insert(place);
            more.then_some(place)
        })
        .collect();
    let holders = in_parallel(0..agents, &|number| Holder::new(2, number));
    let naming = Naming {
        origin: None,
        log_id: "0123456789abcdef0123456789abcdef",
    };
    let options = LedgerOptions {
        origin: LedgerIdentity::open(&ledger, &naming)?.first_origin().to_string(),
        bounds: LedgerBounds {
            total: u64::MAX,
            segment: 64 << 20,
            keys: 1 << 20,
        },
        retention: Retention::default(),
        published: None,
    };
    let (mut ledger, _) = Ledger::open(&ledger, options)?;
    for first in (0..delegations).step_by(BATCH) {
        let until = delegations.min(first + BATCH as u64);
        let make = |number| chain(number, forged.contains(&number), &issuers, &holders);
        let chains = (first..).zip(in_parallel(first..until, &make));
        let entries = chains.map(|(number, chain)| v1::Entry {
            entry: Some(v1::entry::Entry::Chain(v1::PresentedChain {
                chain: chain.into_bytes(),
                principal: Some(principal(number)),
            })),
        });
        let entries: Vec<_> = entries.collect();
        // As many in a group as on a busy control plane.
        let items = entries.chunks(GROUP).enumerate().map(|(group, entries)| {
            let first_sequence = first + (group * GROUP) as u64 + 1;
            let batch = v1::Batch {
                first_sequence,
                entries: entries.to_vec(),
            };
            NewItem::Entries {
                source: SourceName([7; 16]),
                batch: batch.encode_to_vec().into(),
                skip: 0,
                first_sequence,
            }
        });
        for item in items {
            ledger.append(&[item])?;
        }
    }
    println!("{:?}", forged.iter().collect::<Vec<_>>());
    Ok(())
}

/// An issuer or an agent, with its key.
struct Holder {
    key: SigningKey,
    jwk: String,
    uri: String,
}

impl Holder {
    fn new(kind: u8, number: u64) -> Self {
        let mut seed = [kind; 32];
        for (byte, part) in seed.iter_mut().zip(number.to_le_bytes()) {
            *byte = part;
        }
        let key = SigningKey::from_seed(&seed);
        let public = key.public();
        Self {
            jwk: public.to_jwk(),
            uri: public.thumbprint().uri(),
            key,
        }
    }
}

fn issuer_of(number: u64) -> usize {
    (number / 4 % ISSUERS) as usize
}

fn principal(number: u64) -> v1::Principal {
    v1::Principal {
        issuer: format!("https://id{}.example.com", issuer_of(number)),
        subject: Some(format!("user-{}@example.com", number / 5)),
    }
}

/// Made without `mint`, which verifies what it makes.
fn chain(number: u64, is_forged: bool, issuers: &[Holder], holders: &[Holder]) -> String {
    let tokens = number % 4 + 1;
    let issuer = issuer_of(number);
    let holder = |depth: u64| &holders[((number / 3 + depth * 7919) % holders.len() as u64) as usize];
    let mut joined = String::new();
    let mut parent_hash = String::new();
    for depth in 0..tokens {
        let issued = 1_790_000_000 + (number / 100) as i64;
        let mut claims = format!(
            r#"{{"aud":"https://payments.example","authorization_details":[{{"tools":{TOOLS},"type":"attenuating_agent_token"}}],"cnf":{{"jwk":{}}},"del_depth":{depth},"del_max_depth":8,"exp":{},"iat":{issued},"jti":"019a{depth:04}-7c1e-7d7a-9f4e-{number:012x}","#,
            holder(depth).jwk,
            issued + 3_600,
        );
        let signer = if depth == 0 {
            _ = write!(
                claims,
                r#""iss":"https://id{issuer}.example.com","rev_epoch":7,"sub":"{}"}}"#,
                principal(number).subject()
            );
            &issuers[issuer]
        } else {
            let signer = holder(depth - 1);
            _ = write!(claims, r#""iss":"{}","par_hash":"{parent_hash}"}}"#, signer.uri);
            joined.push('~');
            signer
        };
        let input = format!("{HEADER}.{}", URL_SAFE_NO_PAD.encode(claims));
        parent_hash = URL_SAFE_NO_PAD.encode(Sha256::digest(&input));
        let signed: &[u8] = if is_forged && depth == number / 4 % tokens {
            b"something else"
        } else {
            input.as_bytes()
        };
        let signature = URL_SAFE_NO_PAD.encode(signer.key.sign(signed));
        _ = write!(joined, "{input}.{signature}");
    }
    joined
}

fn settings(issuers: &[Holder]) -> String {
    let anchors = issuers.iter().enumerate().map(|(number, issuer)| {
        format!(
            "  - issuer: https://id{number}.example.com\n    asserts_subjects: true\n    jwk: {}\n",
            issuer.jwk
        )
    });
    format!("trust_anchors:\n{}", anchors.collect::<String>())
}

/// The results of `make` for these numbers, in order, computed on every core.
fn in_parallel<T: Send>(numbers: std::ops::Range<u64>, make: &(impl Fn(u64) -> T + Sync)) -> Vec<T> {
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get() as u64);
    let share = (numbers.end - numbers.start).div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        let parts: Vec<_> = numbers
            .clone()
            .step_by(share as usize)
            .map(|from| {
                let until = numbers.end.min(from + share);
                scope.spawn(move || (from..until).map(make).collect::<Vec<T>>())
            })
            .collect();
        let joined = parts.into_iter().map(|part| part.join().expect("it does not panic"));
        joined.flatten().collect()
    })
}

const ISSUERS: u64 = 4;
/// Delegations made at a time.
const BATCH: usize = 20_000;
const GROUP: usize = 700;
/// base64url of `{"alg":"Ed25519","typ":"aat+jwt"}`.
const HEADER: &str = "eyJhbGciOiJFZDI1NTE5IiwidHlwIjoiYWF0K2p3dCJ9";
const TOOLS: &str = r#"{"payments.create":{"account":{"constraint_type":"one_of","values":["acc-2041","acc-2042"]},"amount":{"constraint_type":"range","max":1000,"min":1},"currency":{"constraint_type":"exact","value":"EUR"}},"payments.read":{"account":{"constraint_type":"exact","value":"acc-2041"}}}"#;
