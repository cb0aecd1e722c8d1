//! What was called, answered and seen, on one clock; and whether all of it may have happened.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use credence_e2e::operator::{Acknowledged, Action};

/// The calls of operators, and the log as it was seen.
#[derive(Debug, Default)]
pub(crate) struct History {
    raises: Mutex<Vec<Raise>>,
    log: Mutex<BTreeMap<u64, Entry>>,
    digests: Mutex<HashMap<u64, Vec<u8>>>,
    /// The last entry that anybody has seen.
    committed: AtomicU64,
    violations: Mutex<Vec<String>>,
}

/// A call.
#[derive(Debug, Clone)]
pub(crate) struct Raise {
    pub(crate) subject: String,
    pub(crate) action: Action,
    pub(crate) replica: usize,
    pub(crate) invoked: Instant,
    /// None if the outcome is unknown.
    pub(crate) acknowledged: Option<Acknowledged>,
}

/// An entry of the log.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
pub(crate) struct Entry {
    pub(crate) subject: String,
    pub(crate) epoch: u64,
    pub(crate) disabled: bool,
}

impl History {
    pub(crate) fn violation(&self, what: String) {
        eprintln!("    VIOLATION: {what}");
        lock(&self.violations).push(what);
    }

    pub(crate) fn violations(&self) -> usize {
        lock(&self.violations).len()
    }

    pub(crate) fn raised(&self, raise: Raise) {
        if let Some(acknowledged) = raise.acknowledged {
            self.saw(acknowledged.seq);
        }
        lock(&self.raises).push(raise);
    }

    pub(crate) fn raises(&self) -> Vec<Raise> {
        lock(&self.raises).clone()
    }

    /// One of those that were acknowledged before now.
    pub(crate) fn acknowledged(&self, choose: impl FnOnce(usize) -> usize) -> Option<(String, Acknowledged)> {
        let raises = lock(&self.raises);
        let raise = raises.get(choose(raises.len()))?;
        Some((raise.subject.clone(), raise.acknowledged?))
    }

    /// The entry is certainly in the log.
    fn saw(&self, seq: u64) {
        self.committed.fetch_max(seq, Ordering::SeqCst);
    }

    /// The last entry that is certainly in the log.
    pub(crate) fn committed(&self) -> u64 {
        self.committed.load(Ordering::SeqCst)
    }

    /// A replica says what the log's digest is after this entry.
    pub(crate) fn digest(&self, seq: u64, digest: Vec<u8>, replica: usize) {
        self.saw(seq);
        let known = lock(&self.digests).entry(seq).or_insert_with(|| digest.clone()).clone();
        if known != digest {
            self.violation(format!(
                "replica {replica} has another digest after entry {seq} than was seen elsewhere"
            ));
        }
    }

    /// A replica says what an entry is.
    pub(crate) fn entry(&self, seq: u64, entry: Entry, replica: usize) {
        self.saw(seq);
        let known = lock(&self.log).entry(seq).or_insert_with(|| entry.clone()).clone();
        if known != entry {
            self.violation(format!(
                "replica {replica} has {entry:?} as entry {seq}, where {known:?} was seen"
            ));
        }
    }

    /// The last entry up to which all are known.
    pub(crate) fn known_through(&self) -> u64 {
        let log = lock(&self.log);
        log.keys()
            .zip(1..)
            .take_while(|(seq, expected)| **seq == *expected)
            .count() as u64
    }

    /// Checks the calls against the log.
    pub(crate) fn check(&self) {
        let (raises, log) = (self.raises(), lock(&self.log).clone());
        let mut done: Vec<_> = raises
            .iter()
            .filter_map(|raise| Some((raise, raise.acknowledged?)))
            .collect();
        for (raise, acknowledged) in &done {
            let entry = log.get(&acknowledged.seq);
            let is_there = entry.is_some_and(|entry| {
                entry.subject == raise.subject
                    && entry.epoch >= acknowledged.epoch
                    && (raise.action == Action::Raise || entry.disabled)
            });
            if !is_there {
                self.violation(format!(
                    "{} was acknowledged as entry {}, which is {entry:?}",
                    raise.subject, acknowledged.seq
                ));
            }
        }
        // Each that was answered before another began comes before it.
        done.sort_by_key(|(raise, _)| raise.invoked);
        let mut answered: Vec<_> = done
            .iter()
            .map(|(raise, acknowledged)| (acknowledged.at, acknowledged.seq, raise))
            .collect();
        answered.sort_by_key(|(at, _, _)| *at);
        let mut answered = answered.into_iter().peekable();
        let mut highest = 0;
        for (raise, acknowledged) in &done {
            while let Some((_, seq, _)) = answered.next_if(|(at, _, _)| *at < raise.invoked) {
                highest = highest.max(seq);
            }
            // A subject that is disabled already keeps its entry.
            if acknowledged.seq <= highest && raise.action == Action::Raise {
                self.violation(format!(
                    "{} became entry {} after entry {highest} was acknowledged",
                    raise.subject, acknowledged.seq
                ));
            }
        }
        let mut states: HashMap<&str, &Entry> = HashMap::new();
        for (seq, entry) in &log {
            if let Some(before) = states.insert(&entry.subject, entry)
                && (before.epoch > entry.epoch || (before.disabled && !entry.disabled))
            {
                self.violation(format!("entry {seq} undoes: {before:?} became {entry:?}"));
            }
        }
    }

    /// How long calls took, shortest first, that these intervals contain.
    pub(crate) fn latencies(&self, within: impl Fn(&Raise) -> bool) -> Vec<Duration> {
        let raises = self.raises();
        let mut latencies: Vec<_> = raises
            .iter()
            .filter_map(|raise| Some((raise, raise.acknowledged?)))
            .filter(|(raise, _)| within(raise))
            .map(|(raise, acknowledged)| acknowledged.at - raise.invoked)
            .collect();
        latencies.sort_unstable();
        latencies
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
