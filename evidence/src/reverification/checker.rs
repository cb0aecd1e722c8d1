//! Checks blocks of records: first all chains in a block, in batches, then its events.

use std::collections::{HashMap, HashSet};

use credence_delegation::TrustAnchors;
use credence_delegation::evidence::EvidenceVerifier;
use credence_ledger::entry::{EntryKind, EntryView, EventView};
use credence_ledger::record::{Mismatch, SourceChange, StoredSourceChange};
use credence_wire::v1;

use super::comparison::{Difference, DifferenceKind, Verdict};
use super::verdicts::Verdicts;

/// A record as the checker looks at it.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::large_enum_variant, reason = "nearly every record is an entry")]
pub(crate) enum Seen<'a> {
    Entry {
        source: &'a str,
        entry: EntryView<'a>,
    },
    Source {
        source: &'a str,
        change: &'a StoredSourceChange,
    },
}

/// Finds chains that came long ago: those that are not remembered any more.
pub(crate) trait Chains {
    /// The chain with this digest, its tokens joined by `~`; none if it never came, or is gone.
    fn chain(&self, digest: &[u8; 32]) -> Result<Option<String>, Unreadable>;
}

/// Whether a chain is there can not be told at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unreadable;

/// What came of a block.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Chains that verified, and that did not.
    pub(crate) verified: u64,
    pub(crate) refused: u64,
    /// Allows that are their chain's.
    pub(crate) matched: u64,
    /// Allows whose chain is not known to us, and those that differ in a way that other anchors would explain, as long as it
    /// is not known what the source trusts.
    pub(crate) unchecked: u64,
    /// Allows that differ from their chain, by how. Those that other anchors explain are in `other_anchors` alone.
    pub(crate) differences: HashMap<DifferenceKind, u64>,
    pub(crate) other_anchors: u64,
    /// The first of each kind for a source and chain: what is to be recorded.
    pub(crate) mismatches: Vec<Mismatch>,
    /// Sources that were not known to trust others than we do until now.
    pub(crate) sources_with_other_anchors: Vec<String>,
}

/// Remembers what it takes to check a block.
#[derive(Debug)]
pub(crate) struct Checker<'c> {
    verifier: EvidenceVerifier<'c>,
    verdicts: Verdicts,
    our_anchors: [u8; 32],
    /// What the sources trust; `None` if one did not say. Of a source that is not in here it is not known: it came before
    /// what was read.
    anchors_of: HashMap<String, Option<[u8; 32]>>,
    /// Chains that were asked for and not found, and have not come since.
    unknown: HashSet<[u8; 32]>,
    /// What has been recorded already.
    told: HashSet<(String, [u8; 32], DifferenceKind)>,
    told_of_source: HashSet<String>,
}

// === impl Checker ===

impl<'c> Checker<'c> {
    /// Remembers verdicts within `bytes`.
    pub(crate) fn new(anchors: &'c TrustAnchors, anchors_of: HashMap<String, Option<[u8; 32]>>, bytes: usize) -> Self {
        Self {
            verifier: EvidenceVerifier::new(anchors),
            verdicts: Verdicts::within(bytes),
            our_anchors: anchors.digest(),
            anchors_of,
            unknown: HashSet::new(),
            told: HashSet::new(),
            told_of_source: HashSet::new(),
        }
    }

    /// Checks consecutive records. `chains` is asked for chains that came earlier and are forgotten.
    pub(crate) fn check(&mut self, records: &[Seen<'_>], chains: &impl Chains) -> Findings {
        let mut findings = Findings::default();
        self.verify_chains(records, chains, &mut findings);
        for record in records {
            match record {
                Seen::Source { source, change } => self.note_source(source, change),
                Seen::Entry { source, entry } => {
                    if let EntryKind::Event(event) = &entry.kind {
                        self.check_event(source, event, &mut findings);
                    }
                }
            }
        }
        findings
    }

    pub(crate) fn anchors_of(&self) -> &HashMap<String, Option<[u8; 32]>> {
        &self.anchors_of
    }

    /// A source says what it trusts; it does not say so if the digest is empty.
    pub(crate) fn trusts(&mut self, source: &str, anchors_digest: &[u8]) {
        if self.anchors_of.len() < SOURCES || self.anchors_of.contains_key(source) {
            self.anchors_of
                .insert(source.to_owned(), anchors_digest.try_into().ok());
        }
    }

    /// These have not been recorded after all: whoever finds them again is to say so.
    pub(crate) fn forget_told(&mut self, mismatches: &[Mismatch]) {
        self.told.retain(|(source, digest, _)| {
            let is_of = |mismatch: &Mismatch| mismatch.source == *source && mismatch.chain_digest == digest;
            !mismatches.iter().any(is_of)
        });
    }

    fn verify_chains(&mut self, records: &[Seen<'_>], chains: &impl Chains, findings: &mut Findings) {
        let mut arrived: HashMap<[u8; 32], &str> = HashMap::new();
        // Who names which, in the order in which they do.
        let mut wanted: Vec<([u8; 32], &str)> = Vec::new();
        let mut named: HashSet<([u8; 32], &str)> = HashSet::new();
        for record in records {
            let Seen::Entry { source, entry } = record else {
                continue;
            };
            match &entry.kind {
                EntryKind::Chain(chain) => {
                    if let Ok(joined) = std::str::from_utf8(chain.chain) {
                        arrived.insert(chain.digest(), joined);
                    }
                }
                EntryKind::Event(event) => {
                    if is_compared(event)
                        && let Some(digest) = digest_of(event)
                        && self.verdicts.get(&digest).is_none()
                        && !self.unknown.contains(&digest)
                        && named.insert((digest, source))
                    {
                        wanted.push((digest, source));
                    }
                }
                EntryKind::Aggregate(_) | EntryKind::Gap(_) => {}
            }
        }
        for digest in arrived.keys() {
            // When its verdict is forgotten, it can be looked up.
            self.unknown.remove(digest);
        }
        wanted.retain(|(digest, _)| !arrived.contains_key(digest));
        arrived.retain(|digest, _| self.verdicts.get(digest).is_none());
        self.verify(arrived.into_iter().unzip(), findings);
        self.look_up(&wanted, chains, findings);
    }

    /// Verifies chains that came earlier and are forgotten.
    ///
    /// To find out that there is no such chain takes a look into every segment. Whoever names many that were never presented
    /// must not keep the others from being checked: of each source only so many such looks are taken in a block, and
    /// what it names beyond is unchecked this time.
    fn look_up(&mut self, wanted: &[([u8; 32], &str)], chains: &impl Chains, findings: &mut Findings) {
        let mut misses: HashMap<&str, usize> = HashMap::new();
        let mut looked_for: HashSet<[u8; 32]> = HashSet::new();
        let (mut digests, mut found, mut bytes) = (Vec::new(), Vec::new(), 0);
        for (digest, source) in wanted {
            let missed = misses.entry(source).or_default();
            if *missed >= MISSES || !looked_for.insert(*digest) {
                continue;
            }
            match chains.chain(digest) {
                Ok(Some(chain)) => {
                    bytes += chain.len();
                    digests.push(*digest);
                    found.push(chain);
                }
                Ok(None) => {
                    *missed += 1;
                    remember(&mut self.unknown, *digest);
                }
                // The next event that names it has it looked for again.
                Err(Unreadable) => *missed += 1,
            }
            if bytes >= FOUND_BYTES {
                self.verify((std::mem::take(&mut digests), texts(&found)), findings);
                found.clear();
                bytes = 0;
            }
        }
        self.verify((digests, texts(&found)), findings);
    }

    fn verify(&mut self, (digests, texts): (Vec<[u8; 32]>, Vec<&str>), findings: &mut Findings) {
        for (digest, verdict) in digests.into_iter().zip(Verdict::of(texts, &mut self.verifier)) {
            match verdict {
                Verdict::Verified(_) => findings.verified += 1,
                Verdict::Refused(_) => findings.refused += 1,
            }
            self.verdicts.insert(digest, verdict);
        }
    }

    fn check_event(&mut self, source: &str, event: &EventView<'_>, findings: &mut Findings) {
        if !is_compared(event) {
            return;
        }
        let verdict = digest_of(event).and_then(|digest| Some((digest, self.verdicts.get(&digest)?)));
        let Some((digest, verdict)) = verdict else {
            findings.unchecked += 1;
            return;
        };
        match verdict.difference(event) {
            None => findings.matched += 1,
            Some(difference) => self.tell(source, digest, difference, findings),
        }
    }

    fn tell(&mut self, source: &str, digest: [u8; 32], difference: Difference, findings: &mut Findings) {
        let trusts_others = match self.anchors_of.get(source) {
            Some(said) => said.is_some_and(|anchors| anchors != self.our_anchors),
            None if difference.is_about_anchors => {
                findings.unchecked += 1;
                return;
            }
            None => false,
        };
        let other_anchors = trusts_others && difference.is_about_anchors;
        if other_anchors {
            findings.other_anchors += 1;
            if remember(&mut self.told_of_source, source.to_owned()) {
                findings.sources_with_other_anchors.push(source.to_owned());
            }
        } else {
            *findings.differences.entry(difference.kind).or_default() += 1;
        }
        if remember(&mut self.told, (source.to_owned(), digest, difference.kind)) {
            findings.mismatches.push(Mismatch {
                source: source.to_owned(),
                chain_digest: digest.to_vec(),
                step: difference.step.to_owned(),
                reason: format!("{}: {}", difference.kind, difference.reason),
                other_anchors,
            });
        }
    }

    fn note_source(&mut self, source: &str, change: &StoredSourceChange) {
        match change.change() {
            SourceChange::Started | SourceChange::Returned => self.trusts(source, &change.anchors_digest),
            SourceChange::Ended | SourceChange::Lost => {
                self.anchors_of.remove(source);
                self.told_of_source.remove(source);
            }
            SourceChange::Unspecified => {}
        }
    }
}

/// Shadow mode lets everything through anyway, and what is denied needs no delegation.
fn is_compared(event: &EventView<'_>) -> bool {
    event.decision() == v1::Decision::Allow && event.mode != i32::from(v1::Mode::Shadow)
}

fn texts(chains: &[String]) -> Vec<&str> {
    chains.iter().map(String::as_str).collect()
}

fn digest_of(event: &EventView<'_>) -> Option<[u8; 32]> {
    event.chain_digest.try_into().ok()
}

/// Whether it is new. What is remembered is bounded: too many are forgotten together, and may be told again.
fn remember<T: std::hash::Hash + Eq>(told: &mut HashSet<T>, what: T) -> bool {
    if told.contains(&what) {
        return false;
    }
    if told.len() >= TOLD {
        told.clear();
    }
    told.insert(what)
}

/// Sources whose anchors are remembered.
const SOURCES: usize = 200_000;

/// Chains that are looked for in vain, of each source in a block.
const MISSES: usize = 32;

/// Bytes of chains that were looked up and wait to be verified together.
const FOUND_BYTES: usize = 8 << 20;

/// What is remembered to have been told, so that it is not told again.
const TOLD: usize = 65_536;
