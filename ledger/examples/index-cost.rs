//! The index's cost per event: `cargo run --release -p credence-ledger --example index-cost [events] [segment]`.
//!
//! An event has eleven indexed values (its chain has two tokens), with the cardinality of a busy deployment: a hundred
//! thousand principals at three issuers, each with its own agent, a new delegation every twenty decisions, two hundred
//! tools, fifty rules, twenty reasons, and a trace for each request.

#![allow(clippy::print_stdout, reason = "the example prints its figures")]

use credence_ledger::index::{IndexBuilder, IndexFile, IndexKey, IndexSecret};

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u32>().unwrap_or(0));
    let events = arguments.next().unwrap_or(1_000_000);
    let segment = arguments.next().unwrap_or(500_000).min(events);
    let folder = std::env::temp_dir().join(format!("credence-index-cost-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the temporary folder can be written");
    let (mut adding, mut finishing, mut bytes, mut keys_in_all) = (0, 0, 0, 0);
    let mut random = Random(1);
    for number in 0..events / segment {
        let mut builder = IndexBuilder::new(&IndexSecret::new(&[1; 32]), 0);
        while builder.places() < segment {
            // As many as a group commit has, so that the caches are as warm as there.
            let records: Vec<Record> = (0..GROUP).map(|_| Record::draw(&mut random)).collect();
            let began = processor_ns();
            for record in &records {
                let keys = record.keys();
                keys_in_all += keys.len();
                let place = builder.places();
                builder.add(place * 400, (1, 1), &keys);
            }
            adding += processor_ns() - began;
        }
        let began = processor_ns();
        let file = IndexFile::write(&builder, &folder.join(number.to_string())).expect("it is written");
        finishing += processor_ns() - began;
        bytes += file.bytes();
    }
    std::fs::remove_dir_all(&folder).expect("what was written can be removed");
    let each = |spent: u64| spent as f64 / f64::from(events);
    println!(
        "{{\"events\": {events}, \"segment\": {segment}, \"keys_per_event\": {:.1}, \"add_ns\": {:.0}, \"finish_ns\": {:.0}, \
         \"bytes_per_event\": {:.1}}}",
        keys_in_all as f64 / f64::from(events),
        each(adding),
        each(finishing),
        bytes as f64 / f64::from(events),
    );
}

/// The CPU time of this thread, without the machine's other load.
fn processor_ns() -> u64 {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells");
    let spent = statistics.split(' ').next().and_then(|spent| spent.parse().ok());
    spent.expect("its first number is nanoseconds")
}

const GROUP: usize = 1_000;

struct Record {
    issuer: String,
    subject: String,
    agent: String,
    root: String,
    leaf: String,
    tool: String,
    reason: String,
    rule: String,
    trace: String,
    decision: i32,
}

impl Record {
    fn draw(random: &mut Random) -> Self {
        let principal = random.below(100_000);
        let delegation = random.below(100_000);
        let denied = random.below(20) == 0;
        Self {
            issuer: format!("https://id{}.example.com/realms/staff", principal % 3),
            subject: format!("user-{principal}@example.com"),
            agent: format!("{:043}", principal * 7_919),
            root: format!("9f1c{principal:08}-6d1e-4c6b-{delegation:08}"),
            leaf: format!("9f1d{delegation:08}-77aa-4c6b-{principal:08}"),
            tool: format!("tool.{}", random.below(200)),
            reason: if denied {
                format!("reason_{}", random.below(20))
            } else {
                "ok".to_owned()
            },
            rule: format!("rule-{}", random.below(50)),
            trace: format!("{:016x}{:016x}", random.next(), random.next()),
            decision: if denied { 2 } else { 1 },
        }
    }

    fn keys(&self) -> [IndexKey<'_>; 10] {
        [
            IndexKey::Issuer(&self.issuer),
            IndexKey::Subject(&self.subject),
            IndexKey::Agent(&self.agent),
            IndexKey::Delegation(&self.root),
            IndexKey::Delegation(&self.leaf),
            IndexKey::Tool(&self.tool),
            IndexKey::Decision(self.decision),
            IndexKey::Reason(&self.reason),
            IndexKey::Rule(&self.rule),
            IndexKey::Trace(&self.trace),
        ]
    }
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
