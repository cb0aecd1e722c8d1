//! A principal that floods the ledger does not push out the others' records.

use std::path::Path;

use credence_ledger::{Ledger, LedgerOptions, LedgerReader, NewItem, RecordBody, Retention, SourceName};
use credence_wire::v1;
use credence_wire::v1::entry::Entry as Kind;
use prost::Message as _;

use crate::support::*;

#[test]
fn entries_beyond_a_principals_share_are_counted_and_the_others_are_recorded_in_full() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = shared(folder.path(), 25);
    for round in 0..ROUNDS {
        report(&mut ledger, round);
        ledger.retain(None).unwrap();
        if round % 7 == 0 {
            // After a start, the ledger knows again how much each principal holds.
            drop(ledger);
            ledger = shared(folder.path(), 25);
        }
    }
    let reader = ledger.reader();
    assert_eq!(reader.first(), 0, "nothing had to be removed");
    let held = Held::of(&reader);
    assert_eq!(held.bystander, ROUNDS * BYSTANDING);
    // Each is either recorded or counted, and none is both.
    assert_eq!(held.flooding + held.counted, ROUNDS * FLOODING);
    assert!(held.counted > held.flooding, "{held:?}");
    assert!(
        held.chains + held.chains_counted == ROUNDS && held.chains_counted > 0,
        "{held:?}"
    );
    let bytes: u64 = std::fs::read_dir(folder.path().join("segments"))
        .unwrap()
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum();
    assert!(bytes < SPACE, "{bytes}");
}

/// The control: what is lost if a principal may hold everything.
#[test]
fn without_shares_the_others_records_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = shared(folder.path(), 100);
    for round in 0..ROUNDS {
        report(&mut ledger, round);
        ledger.retain(None).unwrap();
    }
    let held = Held::of(&ledger.reader());
    assert_eq!((held.counted, ledger.counted()), (0, 0));
    assert!(held.bystander < ROUNDS * BYSTANDING / 2, "{held:?}");
}

/// The control: a lone principal may use half of the space, and all are recorded until then.
#[test]
fn while_there_is_space_no_principal_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = shared(folder.path(), 25);
    for round in 0..ROUNDS / 8 {
        report(&mut ledger, round);
    }
    let held = Held::of(&ledger.reader());
    assert_eq!((held.flooding, held.counted), (ROUNDS / 8 * FLOODING, 0));
    assert_eq!(ledger.counted(), 0);
}

#[test]
fn one_write_counts_a_principal_once_for_any_reports_and_sources() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = beyond_share(folder.path());
    let before = ledger.reader().size();
    let sources = (0..10).map(|number| SourceName([number; 16]));
    let reports: Vec<_> = (0..10)
        .flat_map(|report| sources.clone().map(move |source| (source, report)))
        .map(|(source, report)| of_source(source, batch(1 + report * 3, vec![denial(false); 3])))
        .collect();
    ledger.append(&reports).unwrap();
    let counts = counts(&ledger.reader(), before);
    assert_eq!(counts.len(), 1);
    assert_eq!(counts[0].count, 300);
    // It is on disk together with the sources' positions.
    drop(ledger);
    let ledger = shared(folder.path(), 25);
    assert!(
        sources
            .into_iter()
            .all(|source| ledger.source(&source).unwrap().last_sequence == 30)
    );
    assert_eq!(self::counts(&ledger.reader(), before), counts);
}

#[test]
fn one_write_has_at_most_8_counts_and_an_other_one_for_any_rules_and_reasons() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = beyond_share(folder.path());
    let before = ledger.reader().size();
    let next = ledger.source(&SOURCE).unwrap().last_sequence + 1;
    let named = |number: u64| {
        let mut entry = denial(false);
        if let Some(Kind::Event(event)) = &mut entry.entry {
            event.reason = format!("reason {number}");
            event.time_unix_nano += number * 1_000_000_000;
        }
        entry
    };
    ledger.append(&[batch(next, (0..500).map(named).collect())]).unwrap();
    let counts = counts(&ledger.reader(), before);
    assert_eq!(counts.len(), 9);
    let (other, named): (Vec<_>, Vec<_>) = counts.into_iter().partition(|count| count.rule == "(other)");
    assert_eq!((other[0].reason.as_str(), other[0].count), ("(other)", 492));
    assert!(
        named
            .iter()
            .all(|count| count.reason.starts_with("reason ") && count.count == 1)
    );
}

#[test]
fn a_lone_principal_is_recorded_in_full_until_there_is_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = shared(folder.path(), 25);
    for round in 0..3 * ROUNDS {
        let subject = if round == 2 * ROUNDS { "bystander" } else { "flooding" };
        fill(&mut ledger, subject, 50);
        ledger.retain(None).unwrap();
        if round % 7 == 0 {
            drop(ledger);
            ledger = shared(folder.path(), 25);
        }
        let is_alone = round < 2 * ROUNDS;
        assert!(!is_alone || ledger.counted() == 0, "{round}");
    }
    assert!(ledger.reader().first() > 0, "it has pushed out its own evidence");
    let held = Held::of(&ledger.reader());
    assert!(held.counted > 0, "{held:?}");
    assert_eq!(held.bystander, 50);
}

#[test]
fn counts_of_a_principal_are_erased_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = shared(folder.path(), 10);
    for round in 0..ROUNDS / 2 {
        report(&mut ledger, round);
    }
    assert!(Held::of(&ledger.reader()).counted > 0);
    ledger.erase(principal("flooding"), "", "").unwrap().unwrap();
    let held = Held::of(&ledger.reader());
    assert_eq!((held.flooding, held.counted), (0, 0));
    assert_eq!(held.bystander, ROUNDS / 2 * BYSTANDING);
}

/// A ledger that removes the oldest records beyond [`SPACE`].
fn shared(folder: &Path, percent: u8) -> Ledger {
    let retention = Retention {
        age: None,
        bytes: Some(SPACE),
    };
    let options = LedgerOptions { retention, ..options() };
    let mut ledger = try_open(folder, options).unwrap().0;
    ledger.limit_shares(percent);
    ledger
}

/// A ledger in which "flooding" holds more than its share, and has used up its allowance beyond.
fn beyond_share(folder: &Path) -> Ledger {
    let mut ledger = shared(folder, 25);
    (0..ROUNDS).for_each(|round| report(&mut ledger, round));
    ledger
}

fn of_source(source: SourceName, item: NewItem) -> NewItem {
    match item {
        NewItem::Entries {
            batch,
            skip,
            first_sequence,
            ..
        } => NewItem::Entries {
            source,
            batch,
            skip,
            first_sequence,
        },
        other => other,
    }
}

/// The counts from this index on.
fn counts(reader: &LedgerReader, from: u64) -> Vec<v1::Aggregate> {
    let records = reader.records(from..reader.size()).unwrap();
    let count = |body| match body {
        RecordBody::Entry(stored) => match v1::Entry::decode(stored.entry.clone()).unwrap().entry {
            Some(Kind::Aggregate(count)) => Some(count),
            _ => None,
        },
        _ => None,
    };
    records.into_iter().filter_map(|record| count(record.body)).collect()
}

/// One report: many records of one principal, and a few of another.
fn report(ledger: &mut Ledger, round: u64) {
    let next = ledger.source(&SOURCE).unwrap_or_default().last_sequence + 1;
    let mut entries = vec![chain(round)];
    entries.extend((0..FLOODING).map(|number| denial(number % 2 == 0)));
    entries.extend((0..BYSTANDING).map(|_| event("bystander", "pay")));
    ledger.append(&[batch(next, entries)]).unwrap();
}

fn denial(is_allowed: bool) -> v1::Entry {
    let mut entry = event("flooding", "pay");
    if let Some(Kind::Event(event)) = &mut entry.entry
        && !is_allowed
    {
        event.decision = v1::Decision::Deny.into();
        event.reason = "argument_constraint".to_owned();
    }
    entry
}

fn chain(round: u64) -> v1::Entry {
    v1::Entry {
        entry: Some(Kind::Chain(v1::PresentedChain {
            chain: format!("a.{round}.c").into_bytes(),
            principal: Some(v1::Principal {
                issuer: "https://id".to_owned(),
                subject: Some("flooding".to_owned()),
            }),
        })),
    }
}

/// The number of records of each principal.
#[derive(Debug, Default)]
struct Held {
    bystander: u64,
    flooding: u64,
    counted: u64,
    chains: u64,
    chains_counted: u64,
}

impl Held {
    fn of(reader: &LedgerReader) -> Self {
        let mut held = Self::default();
        for record in reader.records(reader.first()..reader.size()).unwrap() {
            let RecordBody::Entry(stored) = record.body else {
                continue;
            };
            match v1::Entry::decode(stored.entry.clone()).unwrap().entry.unwrap() {
                Kind::Event(event) => match event.principal.unwrap().subject() {
                    "bystander" => held.bystander += 1,
                    _ => held.flooding += 1,
                },
                Kind::Aggregate(aggregate) => {
                    assert_eq!(aggregate.principal.unwrap().subject(), "flooding");
                    held.counted += aggregate.count;
                }
                Kind::Chain(_) => held.chains += 1,
                Kind::Gap(gap) => held.chains_counted += gap.shed_chains,
            }
        }
        held
    }
}

const SPACE: u64 = 400_000;
const ROUNDS: u64 = 80;
const FLOODING: u64 = 100;
const BYSTANDING: u64 = 5;
