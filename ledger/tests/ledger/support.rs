//! A ledger in its own folder.

use std::path::{Path, PathBuf};

use credence_ledger::entry::PrincipalView;
use credence_ledger::tree::Hash;
use credence_ledger::{
    Ledger, LedgerBounds, LedgerError, LedgerOptions, LedgerReader, NewItem, Opened, RecordBody, Retention,
    SourceChange, SourceName, StoredSourceChange,
};
use credence_wire::v1;
use credence_wire::v1::entry::Entry as Kind;
use prost::Message as _;

pub(crate) const SOURCE: SourceName = SourceName([0xab; 16]);

/// Segments of a few hundred small records.
pub(crate) fn options() -> LedgerOptions {
    LedgerOptions {
        origin: "ledger.example/one".to_owned(),
        bounds: LedgerBounds {
            total: 1 << 30,
            segment: 25_000,
            keys: 1000,
        },
        retention: Retention::default(),
        published: None,
    }
}

pub(crate) fn try_open(folder: &Path, options: LedgerOptions) -> Result<(Ledger, Opened), LedgerError> {
    Ledger::open(folder, options)
}

pub(crate) fn open(folder: &Path) -> Ledger {
    try_open(folder, options()).unwrap().0
}

pub(crate) fn event(subject: &str, tool: &str) -> v1::Entry {
    v1::Entry {
        entry: Some(Kind::Event(v1::Event {
            time_unix_nano: 1_800_000_000_000_000_000,
            principal: Some(v1::Principal {
                issuer: "https://id".to_owned(),
                subject: Some(subject.to_owned()),
            }),
            tool: tool.to_owned(),
            decision: v1::Decision::Allow.into(),
            delegation_ids: vec!["root".to_owned(), "leaf".to_owned()],
            ..Default::default()
        })),
    }
}

pub(crate) fn batch(first_sequence: u64, entries: Vec<v1::Entry>) -> NewItem {
    let batch = v1::Batch {
        first_sequence,
        entries,
    };
    NewItem::Entries {
        source: SOURCE,
        batch: batch.encode_to_vec().into(),
        skip: 0,
        first_sequence,
    }
}

pub(crate) fn change(source: SourceName, change: SourceChange, last_sequence: u64) -> NewItem {
    NewItem::Change {
        source,
        change: StoredSourceChange {
            change: change.into(),
            last_sequence,
            ..Default::default()
        },
    }
}

/// Appends this many events of this principal, in groups of 100.
pub(crate) fn fill(ledger: &mut Ledger, subject: &str, count: u64) {
    let mut next = ledger.source(&SOURCE).unwrap_or_default().last_sequence + 1;
    let end = next + count;
    while next < end {
        let group = (end - next).min(100);
        let entries = (0..group).map(|_| event(subject, "pay")).collect();
        ledger.append(&[batch(next, entries)]).unwrap();
        next += group;
    }
}

pub(crate) fn principal(subject: &str) -> PrincipalView<'_> {
    PrincipalView {
        issuer: "https://id",
        subject: Some(subject),
    }
}

/// The subject of each record, or its kind.
pub(crate) fn subjects(reader: &LedgerReader) -> Vec<String> {
    let records = reader.records(reader.first()..reader.size()).unwrap();
    let text = |body: &RecordBody| match body {
        RecordBody::Entry(stored) => match &v1::Entry::decode(stored.entry.clone()).unwrap().entry {
            Some(Kind::Event(event)) => event.principal.as_ref().unwrap().subject().to_owned(),
            Some(Kind::Chain(chain)) if chain.chain.is_empty() => "known chain".to_owned(),
            Some(Kind::Chain(_)) => "chain".to_owned(),
            _ => "other".to_owned(),
        },
        RecordBody::Source(_) => "source".to_owned(),
        RecordBody::Note(_) => "note".to_owned(),
        RecordBody::Erased => "erased".to_owned(),
        RecordBody::Unreadable => "unreadable".to_owned(),
    };
    records.iter().map(|record| text(&record.body)).collect()
}

pub(crate) fn tree(reader: &LedgerReader) -> (u64, Hash) {
    (reader.size(), reader.root(reader.size()).unwrap())
}

pub(crate) fn segment_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder.join("segments")).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Copies a data folder in its current state.
pub(crate) fn copy(from: &Path) -> tempfile::TempDir {
    fn copy_folder(from: &Path, to: &Path) {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap() {
            let path = entry.unwrap().path();
            let target = to.join(path.file_name().unwrap());
            if path.is_dir() {
                copy_folder(&path, &target);
            } else {
                std::fs::copy(&path, &target).unwrap();
            }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    copy_folder(from, folder.path());
    folder
}
