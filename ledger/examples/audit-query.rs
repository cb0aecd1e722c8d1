//! Builds a ledger of many decisions, queries a principal's last hour, and prints the time as JSON.
//!
//! `audit-query EVENTS FOLDER` writes EVENTS decisions about a hundred thousand principals, spread evenly over a day,
//! into a ledger in FOLDER, through the ledger's own writer. It then queries a hundred times, each time another
//! principal. It leaves the folder for the caller to remove.

#![allow(clippy::print_stdout, reason = "the example prints its figures")]

use std::path::{Path, PathBuf};
use std::time::Instant;

use credence_ledger::query::{self, Filter, Query};
use credence_ledger::{Ledger, LedgerBounds, LedgerOptions, NewItem, Retention, SourceName};
use credence_wire::v1;
use prost::Message as _;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(events), Some(folder), None) = (arguments.next(), arguments.next(), arguments.next()) else {
        return Err("usage: audit-query EVENTS FOLDER".into());
    };
    let events: u64 = events.parse()?;
    let folder = PathBuf::from(folder);
    let options = LedgerOptions {
        origin: "bench.example/log".to_owned(),
        bounds: LedgerBounds {
            total: 1 << 40,
            segment: SEGMENT_BYTES,
            keys: 2 * PRINCIPALS as u32,
        },
        retention: Retention::default(),
        published: None,
    };
    let began = Instant::now();
    let (mut ledger, _) = Ledger::open(&folder, options)?;
    let mut random = Random(1);
    let mut written = 0;
    while written < events {
        let count = GROUP.min(events - written);
        let entries = (written..written + count).map(|number| decision(number, events, &mut random));
        let batch = v1::Batch {
            first_sequence: written + 1,
            entries: entries.collect(),
        };
        ledger.append(&[NewItem::Entries {
            source: SourceName([1; 16]),
            batch: batch.encode_to_vec().into(),
            skip: 0,
            first_sequence: written + 1,
        }])?;
        written += count;
    }
    let built = began.elapsed();
    let reader = ledger.reader();
    let (mut took, mut found) = (Vec::new(), 0);
    for question in 0..QUESTIONS {
        let filter = Filter {
            principal_issuer: Some(ISSUER.to_owned()),
            principal_subject: Some(subject(random.below(PRINCIPALS))),
            from_unix_nano: Some(DAY_BEGINS + DAY - HOUR),
            ..Filter::default()
        };
        let query = Query {
            limit: 1_000,
            filter,
            ..Query::default()
        };
        let began = Instant::now();
        let page = query::read(&reader, &query)?;
        // The first queries find the disk's pages cold.
        if question >= WARMING {
            took.push(began.elapsed());
            found += page.records.len();
            if page.next.is_some() {
                return Err("a question took more than a page".into());
            }
        }
    }
    took.sort_unstable();
    let ms = |at: usize| took.get(at).map_or(0.0, |took| took.as_secs_f64() * 1e3);
    let index = bytes_of(&folder.join("index"))?;
    // The last segment is still growing: its index is in memory.
    let full: u64 = reader
        .segments()
        .iter()
        .skip(1)
        .map(|segment| u64::from(segment.records()))
        .sum();
    println!(
        "{{\"events\": {events}, \"query_ms_p50\": {:.2}, \"query_ms_max\": {:.2}, \"found\": {:.1}, \
         \"index_bytes_per_event\": {:.1}, \"ledger_bytes_per_event\": {:.1}, \"segments\": {}, \"build_s\": {:.0}}}",
        ms(took.len() / 2),
        ms(took.len() - 1),
        found as f64 / took.len() as f64,
        index as f64 / full.max(1) as f64,
        ledger.bytes() as f64 / events as f64,
        reader.segments().len(),
        built.as_secs_f64(),
    );
    Ok(())
}

fn decision(number: u64, events: u64, random: &mut Random) -> v1::Entry {
    let principal = random.below(PRINCIPALS);
    let delegation = number / 20;
    let event = v1::Event {
        time_unix_nano: DAY_BEGINS + (u128::from(number) * u128::from(DAY) / u128::from(events)) as u64,
        trace_id: format!("{:016x}{:016x}", random.next(), random.next()),
        rule: format!("rule-{}", random.below(50)),
        tool: format!("tool.{}", random.below(200)),
        decision: v1::Decision::Allow.into(),
        reason: "ok".to_owned(),
        mode: v1::Mode::Enforce.into(),
        principal: Some(v1::Principal {
            issuer: ISSUER.to_owned(),
            subject: Some(subject(principal)),
        }),
        agent: format!("{:043}", principal * 7_919),
        proof: v1::ProofKind::Pop.into(),
        delegation_ids: vec![format!("root-{principal}"), format!("leaf-{delegation}-{principal}")],
        arguments_hash: vec![7; 48],
        method: "GET".to_owned(),
        authority: "api.example.com".to_owned(),
        path_template: "/v1/accounts/{account}".to_owned(),
        cache: v1::CacheLevel::L1.into(),
        decision_ns: 12_000,
        ..Default::default()
    };
    v1::Entry {
        entry: Some(v1::entry::Entry::Event(event)),
    }
}

fn subject(principal: u64) -> String {
    format!("user-{principal}@example.com")
}

fn bytes_of(folder: &Path) -> std::io::Result<u64> {
    std::fs::read_dir(folder)?
        .map(|entry| Ok(entry?.metadata()?.len()))
        .sum()
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

const ISSUER: &str = "https://id.example.com";
const PRINCIPALS: u64 = 100_000;
const QUESTIONS: usize = 110;
const WARMING: usize = 10;
const GROUP: u64 = 4_000;
const SEGMENT_BYTES: u64 = 256 << 20;
const DAY_BEGINS: u64 = 1_800_000_000_000_000_000;
const HOUR: u64 = 3_600_000_000_000;
const DAY: u64 = 24 * HOUR;
