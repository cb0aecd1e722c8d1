//! The cost of appending events: `cargo run --release -p credence-ledger --example append -- [folder] [events]
//! [principals] [batch]`.
//!
//! Prints the CPU time per event, in the appending thread and in the whole process (another thread writes the index of
//! full segments), the elapsed time including the disk, and the bytes of an event.

#![allow(clippy::print_stdout, reason = "the example prints its figures")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use credence_ledger::{Ledger, LedgerBounds, LedgerOptions, NewItem, Retention, SourceName};
use credence_wire::v1;
use credence_wire::v1::entry::Entry as Kind;
use prost::Message as _;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments
        .next()
        .map_or_else(std::env::temp_dir, PathBuf::from)
        .join("credence-append-example");
    let mut number = |default| arguments.next().and_then(|text| text.parse().ok()).unwrap_or(default);
    let (events, principals, batch): (u64, u64, u64) = (number(1_000_000), number(1000), number(500));
    std::fs::create_dir_all(&folder).expect("the folder can be made");
    let options = LedgerOptions {
        origin: "ledger.example/append".to_owned(),
        bounds: LedgerBounds {
            total: 1 << 40,
            segment: 256 << 20,
            keys: 2_000_000,
        },
        retention: Retention::default(),
        published: None,
    };
    let (mut ledger, _) = Ledger::open(&folder, options).expect("the ledger can be opened");
    let source = SourceName([7; 16]);
    let mut spent = Spent::default();
    let (mut appended, mut entry_bytes) = (0, 0);
    while appended < events {
        let first_sequence = ledger.source(&source).map_or(0, |state| state.last_sequence) + 1;
        // A group is a few batches, as under load.
        let items: Vec<NewItem> = (0..8)
            .map(|part| {
                let first_sequence = first_sequence + part * batch;
                let entries = (first_sequence..first_sequence + batch).map(|number| event(number, principals));
                let encoded = v1::Batch {
                    first_sequence,
                    entries: entries.collect(),
                }
                .encode_to_vec();
                entry_bytes += encoded.len() as u64;
                NewItem::Entries {
                    source,
                    batch: encoded.into(),
                    skip: 0,
                    first_sequence,
                }
            })
            .collect();
        let begun = Clocks::now();
        ledger.append(&items).expect("the group is appended");
        spent.add(&begun);
        appended += 8 * batch;
    }
    let each = |duration: Duration| duration.as_nanos() as f64 / 1000.0 / appended as f64;
    println!(
        "{appended} events of {:.0} bytes, {principals} principals, groups of {}",
        entry_bytes as f64 / appended as f64,
        8 * batch
    );
    println!("appending thread  {:6.3} us of CPU an event", each(spent.thread));
    println!("whole process     {:6.3} us of CPU an event", each(spent.process));
    println!("elapsed           {:6.3} us an event", each(spent.elapsed));
    println!(
        "on disk           {:6.1} bytes an event",
        ledger.bytes() as f64 / appended as f64
    );
    drop(ledger);
    std::fs::remove_dir_all(&folder).expect("the folder can be removed");
}

/// As filters send them.
fn event(number: u64, principals: u64) -> v1::Entry {
    let principal = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % principals;
    let digest = |salt: u64| -> Vec<u8> {
        (0..4_u64)
            .flat_map(|part| {
                (principal + salt + part)
                    .wrapping_mul(0xd6e8_feb8_6659_fd93)
                    .to_le_bytes()
            })
            .collect()
    };
    v1::Entry {
        entry: Some(Kind::Event(v1::Event {
            time_unix_nano: 1_800_000_000_000_000_000 + number * 10_000,
            request_id: format!("{number:08x}-4f5e-4a6b-8c7d-9e0f1a2b3c4d"),
            trace_id: format!("{:032x}", u128::from(number) << 64 | u128::from(principal)),
            rule: "payments".to_owned(),
            tool: "payments.create".to_owned(),
            decision: v1::Decision::Allow.into(),
            reason: String::new(),
            mode: v1::Mode::Enforce.into(),
            principal: Some(v1::Principal {
                issuer: "https://id.example.com".to_owned(),
                subject: Some(format!("user-{principal:08}@example.com")),
            }),
            agent: "QmFzZTY0LXVybC10aHVtYnByaW50LW9mLWEta2V5LTQz".to_owned(),
            proof: v1::ProofKind::Pop.into(),
            delegation_ids: vec![format!("root-{principal:016x}"), format!("leaf-{principal:016x}")],
            arguments_hash: [digest(1), digest(2)[..16].to_vec()].concat(),
            method: "POST".to_owned(),
            authority: "payments.example.com".to_owned(),
            path_template: "/v1/payments".to_owned(),
            cache: v1::CacheLevel::L1.into(),
            decision_ns: 9_000,
            expires_at: 1_800_003_600,
            chain_digest: digest(3),
            ..Default::default()
        })),
    }
}

#[derive(Default)]
struct Spent {
    thread: Duration,
    process: Duration,
    elapsed: Duration,
}

struct Clocks {
    thread: Duration,
    process: Duration,
    instant: Instant,
}

impl Spent {
    fn add(&mut self, begun: &Clocks) {
        let now = Clocks::now();
        self.thread += now.thread - begun.thread;
        self.process += now.process - begun.process;
        self.elapsed += now.instant - begun.instant;
    }
}

impl Clocks {
    fn now() -> Self {
        use rustix::time::{ClockId, clock_gettime};
        let cpu = |clock| {
            let time = clock_gettime(clock);
            Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
        };
        Self {
            thread: cpu(ClockId::ThreadCPUTime),
            process: cpu(ClockId::ProcessCPUTime),
            instant: Instant::now(),
        }
    }
}
