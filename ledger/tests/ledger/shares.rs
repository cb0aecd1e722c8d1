//! A principal that floods the ledger pushes out nothing of the others.

use std::path::Path;

use credence_ledger::{Ledger, LedgerOptions, LedgerReader, RecordBody, Retention};
use credence_wire::v1;
use credence_wire::v1::entry::Entry as Kind;

use crate::support::*;

#[test]
fn what_a_principal_brings_beyond_its_share_is_counted_and_the_others_are_recorded_in_full() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = shared(folder.path(), 25);
    for round in 0..ROUNDS {
        report(&mut ledger, round);
        ledger.retain(None).unwrap();
        if round % 7 == 0 {
            // What each principal holds is known again after a start.
            drop(ledger);
            ledger = shared(folder.path(), 25);
        }
    }
    let reader = ledger.reader();
    assert_eq!(reader.first(), 0, "nothing had to be removed");
    let held = Held::of(&reader);
    assert_eq!(held.bystander, ROUNDS * BYSTANDING);
    // Each is recorded or counted, and none is both.
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

/// The control: so much is lost where a principal may hold everything.
#[test]
fn without_shares_the_others_are_pushed_out() {
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

/// The control: a principal that needs the space alone has half of it, and everybody is recorded until then.
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

/// A ledger that removes the oldest beyond [`SPACE`].
fn shared(folder: &Path, percent: u8) -> Ledger {
    let retention = Retention {
        age: None,
        bytes: Some(SPACE),
    };
    let options = LedgerOptions { retention, ..options() };
    let mut ledger = try_open(folder, options).unwrap().0;
    ledger.share_out(percent);
    ledger
}

/// One report: much of one principal, and a little of another.
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

/// What a ledger holds of each principal.
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
            let RecordBody::Entry { entry, .. } = record.body else {
                continue;
            };
            match entry.entry.unwrap() {
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
