//! Walks over the ledger and checks it in blocks of records: first all chains in a block, in batches, then its events.
//!
//! The place where it stopped is the only truth about what was checked: what comes faster than it can be checked waits on
//! the disk, not in memory, and is caught up with. How far behind it is is a metric.

use std::collections::{HashMap, HashSet};

use credence_delegation::TrustAnchors;
use credence_delegation::evidence::EvidenceVerifier;
use credence_ledger::ReadError;
use credence_ledger::entry::{EntryKind, EntryView, EventView};
use credence_ledger::record::{Mismatch, SourceChange, StoredSourceChange};
use credence_wire::v1;

use super::comparison::{Difference, DifferenceKind, Verdict};
use super::verdicts::Verdicts;
use crate::cursors::Progress;
use crate::metrics::{Metrics, count};
use crate::writer::ReportError;

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

/// The durable part of the ledger.
pub(crate) trait Evidence {
    /// How many records there are.
    fn size(&self) -> u64;

    /// The lowest index that is still held.
    fn first(&self) -> u64;

    /// Reads records from index `from` on, at least one if there is one and as many as make a block, hands them to
    /// `look`, and returns the index behind the last.
    fn read(&self, from: u64, look: &mut dyn FnMut(&[Seen<'_>])) -> Result<u64, ReadError>;

    /// The chain with this digest, which came long ago, its tokens joined by `~`; none if it never came, or is gone.
    fn chain(&self, digest: &[u8; 32]) -> Result<Option<String>, Unreadable>;
}

/// Why a block was not checked; the next attempt begins with it.
#[derive(Debug)]
pub(crate) enum StepError {
    Read(ReadError),
    Record(ReportError),
}

/// Whether a chain is there cannot be told at the moment.
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

/// Checks the ledger from a place on, and remembers what that takes.
#[derive(Debug)]
pub(crate) struct Checker<'c> {
    next: u64,
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

// === impl Findings ===

impl Findings {
    /// Once a block was checked: what the log and the metrics say of it.
    pub(crate) fn report(&self, metrics: &Metrics) {
        for source in &self.sources_with_other_anchors {
            tracing::warn!(
                source,
                "a filter trusts other anchors than this control plane and allows what does not verify under ours: give both \
                 the same trust_anchors"
            );
        }
        for (outcome, chains) in [("verified", self.verified), ("refused", self.refused)] {
            count(&metrics.chains_verified, [("outcome", outcome)], chains);
        }
        let mismatched = self.differences.values().sum();
        for (outcome, allows) in [
            ("matched", self.matched),
            ("unchecked", self.unchecked),
            ("other_anchors", self.other_anchors),
            ("mismatched", mismatched),
        ] {
            count(&metrics.allows_checked, [("outcome", outcome)], allows);
        }
        for (kind, allows) in &self.differences {
            count(&metrics.mismatches, [("kind", kind.into())], *allows);
        }
        metrics
            .sources_with_other_anchors
            .inc_by(self.sources_with_other_anchors.len() as u64);
    }
}

// === impl Checker ===

impl<'c> Checker<'c> {
    /// Goes on where it had come to, and remembers verdicts within `bytes`.
    pub(crate) fn new(anchors: &'c TrustAnchors, progress: Progress, bytes: usize) -> Self {
        Self {
            next: progress.next,
            verifier: EvidenceVerifier::new(anchors),
            verdicts: Verdicts::within(bytes),
            our_anchors: anchors.digest(),
            anchors_of: progress.anchors_of,
            unknown: HashSet::new(),
            told: HashSet::new(),
            told_of_source: HashSet::new(),
        }
    }

    /// The index up to which everything was checked.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// What it takes to go on after a restart.
    pub(crate) fn progress(&self) -> Progress {
        Progress {
            next: self.next,
            anchors_of: self.anchors_of.clone(),
        }
    }

    /// Checks one block; nothing if there is none, for everything has been checked. `record` has mismatches recorded in the
    /// ledger: until that succeeds the block counts as unchecked.
    pub(crate) fn step(
        &mut self,
        evidence: &impl Evidence,
        record: impl FnOnce(Vec<Mismatch>) -> Result<(), ReportError>,
    ) -> Result<Option<Findings>, StepError> {
        // What was pruned cannot be checked any more.
        let from = self.next.max(evidence.first());
        if from >= evidence.size() {
            return Ok(None);
        }
        let mut findings = Findings::default();
        let through = evidence
            .read(from, &mut |records| findings = self.check(records, evidence))
            .map_err(StepError::Read)?;
        if !findings.mismatches.is_empty() {
            record(findings.mismatches.clone()).map_err(|error| {
                self.forget_told(&findings.mismatches);
                StepError::Record(error)
            })?;
        }
        self.next = through;
        Ok(Some(findings))
    }

    /// Checks consecutive records. `evidence` is asked for chains that came earlier and are forgotten.
    fn check(&mut self, records: &[Seen<'_>], evidence: &impl Evidence) -> Findings {
        let mut findings = Findings::default();
        self.verify_chains(records, evidence, &mut findings);
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

    /// A source says what it trusts; it does not say so if the digest is empty.
    pub(crate) fn trusts(&mut self, source: &str, anchors_digest: &[u8]) {
        if self.anchors_of.len() < SOURCES || self.anchors_of.contains_key(source) {
            self.anchors_of
                .insert(source.to_owned(), anchors_digest.try_into().ok());
        }
    }

    /// These have not been recorded after all: they are told of when they are found again.
    fn forget_told(&mut self, mismatches: &[Mismatch]) {
        self.told.retain(|(source, digest, _)| {
            let is_of = |mismatch: &Mismatch| mismatch.source == *source && mismatch.chain_digest == digest;
            !mismatches.iter().any(is_of)
        });
    }

    fn verify_chains(&mut self, records: &[Seen<'_>], evidence: &impl Evidence, findings: &mut Findings) {
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
        self.verify(&Vec::from_iter(arrived), findings);
        self.look_up(&wanted, evidence, findings);
    }

    /// Verifies chains that came earlier and are forgotten.
    ///
    /// To find out that there is no such chain takes a look into every segment. A source that names many that were never presented
    /// must not keep the others from being checked: of each source only so many such looks are taken in a block, and
    /// what it names beyond is unchecked this time.
    fn look_up(&mut self, wanted: &[([u8; 32], &str)], evidence: &impl Evidence, findings: &mut Findings) {
        let mut misses: HashMap<&str, usize> = HashMap::new();
        let mut looked_for: HashSet<[u8; 32]> = HashSet::new();
        let (mut found, mut bytes) = (Vec::new(), 0);
        for (digest, source) in wanted {
            let missed = misses.entry(source).or_default();
            if *missed >= MISSES || !looked_for.insert(*digest) {
                continue;
            }
            match evidence.chain(digest) {
                Ok(Some(chain)) => {
                    bytes += chain.len();
                    found.push((*digest, chain));
                }
                Ok(None) => {
                    *missed += 1;
                    remember(&mut self.unknown, *digest);
                }
                // The next event that names it has it looked for again.
                Err(Unreadable) => *missed += 1,
            }
            if bytes >= FOUND_BYTES {
                self.verify(&found, findings);
                found.clear();
                bytes = 0;
            }
        }
        self.verify(&found, findings);
    }

    fn verify(&mut self, chains: &[([u8; 32], impl AsRef<str>)], findings: &mut Findings) {
        let texts = chains.iter().map(|(_, text)| text.as_ref());
        for ((digest, _), verdict) in chains.iter().zip(Verdict::of(texts, &mut self.verifier)) {
            match verdict {
                Verdict::Verified(_) => findings.verified += 1,
                Verdict::Refused(_) => findings.refused += 1,
            }
            self.verdicts.insert(*digest, verdict);
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
                reason: format!("{}: {}", <&str>::from(difference.kind), difference.reason),
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

/// Failed lookups of chains, of each source in a block.
const MISSES: usize = 32;

/// Bytes of chains that were looked up and wait to be verified together.
const FOUND_BYTES: usize = 8 << 20;

/// What is remembered to have been told, so that it is not told again.
const TOLD: usize = 65_536;

#[cfg(test)]
mod tests {
    use credence_delegation::json::Json;
    use credence_delegation::mint::{self, Grant, RootGrant};
    use credence_delegation::{Algorithms, Limits, SigningKey, TrustAnchor, UnixTime, Value, chain_digest};
    use prost::Message as _;

    use super::*;

    const ISSUER: &str = "https://id.example";
    const IAT: i64 = 1_790_000_000;
    const EXP: i64 = IAT + 3_600;

    fn key(number: u8) -> SigningKey {
        SigningKey::from_seed(&[number; 32])
    }

    fn anchors(number: u8) -> TrustAnchors {
        TrustAnchors::new([TrustAnchor {
            issuer: ISSUER.to_owned(),
            key: key(number).public(),
            key_id: None,
            algorithms: Algorithms::default(),
            asserts_subjects: true,
        }])
    }

    fn grant(id: &str, holder: u8) -> Grant {
        Grant {
            id: id.to_owned(),
            issued_at: UnixTime(IAT),
            expires_at: UnixTime(EXP),
            holder: key(holder).public(),
            holder_certificate: None,
            holder_spiffe_id: None,
            audience: Vec::new(),
            max_depth: 8,
            tools: Value::from_json(&Json::parse(br#"{"pay":{},"read":{}}"#).unwrap()).unwrap(),
        }
    }

    /// A root that this issuer's key signed, and a leaf that agent 3 holds.
    fn chain(issuer: u8) -> String {
        let root = RootGrant {
            grant: grant("root", 2),
            issuer: ISSUER.to_owned(),
            subject: Some("alice".to_owned()),
            epoch: None,
            agent_name: None,
        };
        let root = mint::root(&root, &key(issuer), &Limits::default()).unwrap();
        let leaf = mint::derive(&root, &grant("leaf", 3), &key(2), &Limits::default()).unwrap();
        format!("{root}~{leaf}")
    }

    /// What an honest filter says of a request under the chain.
    fn event(chain: &str) -> v1::Event {
        v1::Event {
            time_unix_nano: (IAT as u64 + 60) * 1_000_000_000,
            tool: "pay".to_owned(),
            decision: v1::Decision::Allow.into(),
            mode: v1::Mode::Enforce.into(),
            principal: Some(v1::Principal {
                issuer: ISSUER.to_owned(),
                subject: Some("alice".to_owned()),
            }),
            agent: key(3).public().thumbprint().to_string(),
            proof: v1::ProofKind::Pop.into(),
            delegation_ids: vec!["root".to_owned(), "leaf".to_owned()],
            expires_at: EXP,
            chain_digest: chain_digest(chain).to_vec(),
            ..Default::default()
        }
    }

    /// A ledger, read a few records at a time.
    #[derive(Default)]
    struct Memory {
        records: Vec<Kept>,
        /// Chains that came before the first record.
        earlier: Vec<String>,
        first: u64,
        /// Whether chains cannot be looked up.
        is_unreadable: bool,
        looks: std::cell::Cell<usize>,
    }

    enum Kept {
        Entry(&'static str, Vec<u8>),
        Source(StoredSourceChange),
    }

    impl Memory {
        fn presenting(chain: &str) -> Self {
            let mut memory = Self::default();
            memory.present(chain);
            memory
        }

        fn present(&mut self, chain: &str) {
            self.put(v1::entry::Entry::Chain(v1::PresentedChain {
                chain: chain.as_bytes().to_vec(),
                principal: None,
            }));
        }

        fn report(&mut self, event: v1::Event) {
            self.put(v1::entry::Entry::Event(event));
        }

        fn put(&mut self, entry: v1::entry::Entry) {
            self.put_by("source", entry);
        }

        fn put_by(&mut self, source: &'static str, entry: v1::entry::Entry) {
            let encoded = v1::Entry { entry: Some(entry) }.encode_to_vec();
            self.records.push(Kept::Entry(source, encoded));
        }

        fn start(&mut self, anchors: &TrustAnchors) {
            self.records.push(Kept::Source(StoredSourceChange {
                change: SourceChange::Started.into(),
                anchors_digest: anchors.digest().to_vec(),
                ..Default::default()
            }));
        }
    }

    impl Evidence for Memory {
        fn chain(&self, digest: &[u8; 32]) -> Result<Option<String>, Unreadable> {
            self.looks.update(|looks| looks + 1);
            if self.is_unreadable {
                return Err(Unreadable);
            }
            let mut earlier = self.earlier.iter();
            Ok(earlier.find(|chain| chain_digest(chain) == *digest).cloned())
        }

        fn size(&self) -> u64 {
            self.records.len() as u64
        }

        fn first(&self) -> u64 {
            self.first
        }

        fn read(&self, from: u64, look: &mut dyn FnMut(&[Seen<'_>])) -> Result<u64, ReadError> {
            let through = self.records.len().min(from as usize + AT_ONCE);
            let seen: Vec<Seen<'_>> = self.records[from as usize..through]
                .iter()
                .map(|record| match record {
                    Kept::Entry(source, encoded) => Seen::Entry {
                        source,
                        entry: EntryView::parse(encoded).unwrap(),
                    },
                    Kept::Source(change) => Seen::Source {
                        source: "source",
                        change,
                    },
                })
                .collect();
            look(&seen);
            Ok(through as u64)
        }
    }

    const AT_ONCE: usize = 3;

    #[derive(Default)]
    struct Told {
        mismatches: Vec<Mismatch>,
        matched: u64,
        unchecked: u64,
        other_anchors: u64,
        differences: Vec<(DifferenceKind, u64)>,
        through: u64,
        /// How many attempts to record something fail.
        failures: u32,
    }

    /// Checks one block and takes down what came of it. False if there is none.
    fn step(checker: &mut Checker<'_>, memory: &Memory, told: &mut Told) -> Result<bool, StepError> {
        let found = checker.step(memory, |mismatches| {
            if told.failures > 0 {
                told.failures -= 1;
                return Err(ReportError::Stopping);
            }
            told.mismatches.extend(mismatches);
            Ok(())
        })?;
        let Some(findings) = found else { return Ok(false) };
        told.matched += findings.matched;
        told.unchecked += findings.unchecked;
        told.other_anchors += findings.other_anchors;
        told.differences.extend(findings.differences);
        told.through = checker.next();
        Ok(true)
    }

    /// A place to begin at, where of the source is known that it did not say what it trusts.
    fn from(next: u64) -> Progress {
        Progress {
            next,
            anchors_of: [("source".to_owned(), None)].into(),
        }
    }

    /// Checks all of it under the anchors of issuer key 1.
    fn follow(memory: &Memory) -> Told {
        let anchors = anchors(1);
        let mut told = Told::default();
        let mut checker = Checker::new(&anchors, from(0), 1 << 20);
        while step(&mut checker, memory, &mut told).unwrap() {}
        told
    }

    #[test]
    fn honest_evidence_raises_no_alarm() {
        let honest = chain(1);
        let mut memory = Memory::presenting(&honest);
        memory.start(&anchors(1));
        let of = |change: &dyn Fn(&mut v1::Event)| {
            let mut event = event(&honest);
            change(&mut event);
            event
        };
        for event in [
            of(&|_| ()),
            of(&|event| (event.agent, event.proof) = (String::new(), v1::ProofKind::None.into())),
            of(&|event| (event.agent, event.proof) = ("a certificate".to_owned(), v1::ProofKind::Mtls.into())),
            // The first and the last moment: a proxy's clock may be behind the issuer's by as much as may be configured.
            of(&|event| event.time_unix_nano = (IAT as u64 - 300) * 1_000_000_000),
            of(&|event| event.time_unix_nano = EXP as u64 * 1_000_000_000),
            of(&|event| event.stale_ms = Some(60_000)),
        ] {
            memory.report(event);
        }
        memory.present(&honest);
        memory.report(event(&honest));
        // Neither lets anything through.
        memory.report(of(&|event| {
            (event.decision, event.tool) = (v1::Decision::Deny.into(), "delete".to_owned())
        }));
        memory.report(of(&|event| {
            (event.mode, event.tool) = (v1::Mode::Shadow.into(), "delete".to_owned())
        }));
        let told = follow(&memory);
        assert_eq!(told.mismatches, []);
        assert_eq!((told.matched, told.unchecked), (7, 0));
    }

    #[test]
    fn each_kind_of_mismatch_raises_one_alarm_however_often_it_happens() {
        let honest = chain(1);
        type Change = fn(&mut v1::Event);
        let cases: [(&str, Change); 7] = [
            ("principal", |event| {
                event.principal.as_mut().unwrap().subject = Some("bob".to_owned())
            }),
            ("delegations", |event| _ = event.delegation_ids.pop()),
            ("agent", |event| event.agent = key(9).public().thumbprint().to_string()),
            ("agent", |event| event.proof = v1::ProofKind::None.into()),
            ("expiry", |event| event.expires_at += 1),
            ("tool", |event| event.tool = "delete".to_owned()),
            ("time", |event| event.time_unix_nano = (EXP as u64 + 1) * 1_000_000_000),
        ];
        for (kind, change) in cases {
            let mut memory = Memory::presenting(&honest);
            for _ in 0..5 {
                let mut event = event(&honest);
                change(&mut event);
                memory.report(event);
            }
            memory.report(event(&honest));
            let told = follow(&memory);
            let [mismatch] = told.mismatches.as_slice() else {
                panic!("{kind}: {:?}", told.mismatches)
            };
            assert!(mismatch.reason.starts_with(&format!("{kind}: ")), "{mismatch:?}");
            assert_eq!((mismatch.source.as_str(), mismatch.other_anchors), ("source", false));
            assert_eq!(mismatch.chain_digest, chain_digest(&honest));
            let counted: u64 = told.differences.iter().map(|(_, count)| count).sum();
            assert_eq!((counted, told.matched), (5, 1), "{kind}");
        }
    }

    #[test]
    fn an_allow_under_a_chain_that_does_not_verify_is_a_mismatch_with_the_step() {
        let forged = chain(8);
        let mut memory = Memory::presenting(&forged);
        memory.start(&anchors(1));
        memory.report(event(&forged));
        let told = follow(&memory);
        assert_eq!((told.mismatches[0].step.as_str(), told.mismatches.len()), ("3b", 1));
        assert!(!told.mismatches[0].other_anchors);
    }

    #[test]
    fn what_a_source_s_other_anchors_explain_is_said_to_be_that() {
        let theirs = chain(8);
        let mut memory = Memory::default();
        memory.start(&anchors(8));
        memory.present(&theirs);
        memory.report(event(&theirs));
        memory.report(event(&theirs));
        let told = follow(&memory);
        assert_eq!((told.other_anchors, told.differences.len()), (2, 0));
        assert!(told.mismatches[0].other_anchors && told.mismatches.len() == 1);
    }

    #[test]
    fn other_anchors_excuse_nothing_that_they_do_not_explain() {
        let honest = chain(1);
        let mut memory = Memory::default();
        memory.start(&anchors(8));
        memory.present(&honest);
        let mut event = event(&honest);
        event.tool = "delete".to_owned();
        memory.report(event);
        let told = follow(&memory);
        assert!(!told.mismatches[0].other_anchors);
        assert_eq!(told.differences, [(DifferenceKind::Tool, 1)]);
    }

    #[test]
    fn what_other_anchors_would_explain_alarms_nobody_until_it_is_known_what_the_source_trusts() {
        let forged = chain(8);
        let mut memory = Memory::presenting(&forged);
        memory.report(event(&forged));
        memory.report(event(&forged));
        let anchors = anchors(1);
        let mut checker = Checker::new(&anchors, Progress::default(), 1 << 20);
        let mut told = Told::default();
        assert!(step(&mut checker, &memory, &mut told).unwrap());
        assert_eq!((told.unchecked, told.mismatches.len()), (2, 0));
        checker.trusts("source", &anchors.digest());
        memory.report(event(&forged));
        assert!(step(&mut checker, &memory, &mut told).unwrap());
        assert_eq!((told.unchecked, told.mismatches.len()), (2, 1));
        assert!(!told.mismatches[0].other_anchors);
        assert_eq!(checker.progress().anchors_of["source"], Some(anchors.digest()));
    }

    #[test]
    fn an_unknown_chain_is_counted_and_alarms_nobody() {
        let mut memory = Memory::default();
        memory.report(event("never presented"));
        memory.report(v1::Event {
            chain_digest: Vec::new(),
            ..event("never presented")
        });
        let told = follow(&memory);
        assert_eq!((told.unchecked, told.mismatches.len()), (2, 0));
    }

    #[test]
    fn a_chain_that_came_long_ago_is_looked_up() {
        let honest = chain(1);
        let mut memory = Memory::default();
        memory.earlier.push(honest.clone());
        memory.report(event(&honest));
        assert_eq!(follow(&memory).matched, 1);
    }

    #[test]
    fn a_chain_that_came_late_is_looked_up_once_its_verdict_is_forgotten() {
        let honest = chain(1);
        let mut memory = Memory::default();
        memory.report(event(&honest));
        let anchors = anchors(1);
        let mut told = Told::default();
        // Room for the verdicts of two chains, about.
        let mut checker = Checker::new(&anchors, from(0), 1);
        while step(&mut checker, &memory, &mut told).unwrap() {}
        assert_eq!((told.unchecked, told.matched), (1, 0));
        memory.present(&honest);
        memory.earlier.push(honest.clone());
        for other in 5..12 {
            memory.present(&chain(other));
        }
        while step(&mut checker, &memory, &mut told).unwrap() {}
        let mut lie = event(&honest);
        lie.tool = "delete".to_owned();
        memory.report(lie);
        while step(&mut checker, &memory, &mut told).unwrap() {}
        assert_eq!((told.unchecked, told.mismatches.len()), (1, 1));
    }

    #[test]
    fn a_chain_that_could_not_be_looked_up_is_looked_up_the_next_time() {
        let honest = chain(1);
        let mut memory = Memory::default();
        memory.earlier.push(honest.clone());
        memory.is_unreadable = true;
        let mut lie = event(&honest);
        lie.tool = "delete".to_owned();
        memory.report(lie.clone());
        let anchors = anchors(1);
        let mut told = Told::default();
        let mut checker = Checker::new(&anchors, from(0), 1 << 20);
        while step(&mut checker, &memory, &mut told).unwrap() {}
        assert_eq!((told.unchecked, told.mismatches.len()), (1, 0));
        memory.is_unreadable = false;
        memory.report(lie);
        while step(&mut checker, &memory, &mut told).unwrap() {}
        assert_eq!((told.unchecked, told.mismatches.len()), (1, 1));
    }

    #[test]
    fn who_names_chains_that_were_never_presented_keeps_nobody_else_from_being_checked() {
        let honest = chain(1);
        let mut memory = Memory::default();
        memory.earlier.push(honest.clone());
        let never = |number: usize| v1::Event {
            chain_digest: chain_digest(number.to_string()).to_vec(),
            ..event(&honest)
        };
        for number in 0..120 {
            memory.put_by("liar", v1::entry::Entry::Event(never(number)));
        }
        // The liar names the other's chain too.
        memory.put_by("liar", v1::entry::Entry::Event(event(&honest)));
        memory.report(event(&honest));
        let anchors = anchors(1);
        let mut checker = Checker::new(&anchors, from(0), 1 << 20);
        let encoded: Vec<(&str, &[u8])> = memory
            .records
            .iter()
            .filter_map(|record| match record {
                Kept::Entry(source, encoded) => Some((*source, encoded.as_slice())),
                Kept::Source(_) => None,
            })
            .collect();
        let records: Vec<Seen<'_>> = encoded
            .iter()
            .map(|(source, encoded)| Seen::Entry {
                source,
                entry: EntryView::parse(encoded).unwrap(),
            })
            .collect();
        let findings = checker.check(&records, &memory);
        assert_eq!((findings.matched, findings.unchecked), (2, 120));
        assert!(memory.looks.get() <= 33, "{}", memory.looks.get());
    }

    #[test]
    fn what_could_not_be_recorded_is_checked_again_and_then_told_once() {
        let honest = chain(1);
        let mut memory = Memory::presenting(&honest);
        let mut event = event(&honest);
        event.tool = "delete".to_owned();
        memory.report(event);
        let anchors = anchors(1);
        let mut checker = Checker::new(&anchors, from(0), 1 << 20);
        let mut told = Told {
            failures: 2,
            ..Told::default()
        };
        for _ in 0..2 {
            assert!(matches!(
                step(&mut checker, &memory, &mut told),
                Err(StepError::Record(ReportError::Stopping))
            ));
            assert_eq!(told.through, 0);
        }
        assert!(step(&mut checker, &memory, &mut told).unwrap());
        assert!(!step(&mut checker, &memory, &mut told).unwrap());
        assert_eq!((told.mismatches.len(), told.through), (1, 2));
    }

    #[test]
    fn it_goes_on_where_it_stopped_and_skips_what_was_pruned() {
        let honest = chain(1);
        let mut memory = Memory::presenting(&honest);
        memory.earlier.push(honest.clone());
        for _ in 0..6 {
            memory.report(event(&honest));
        }
        let anchors = anchors(1);
        let mut told = Told::default();
        let mut checker = Checker::new(&anchors, from(4), 1 << 20);
        while step(&mut checker, &memory, &mut told).unwrap() {}
        assert_eq!((told.matched, told.through), (3, 7));
        memory.first = 6;
        let mut told = Told::default();
        let mut checker = Checker::new(&anchors, from(4), 1 << 20);
        while step(&mut checker, &memory, &mut told).unwrap() {}
        assert_eq!((told.matched, told.through), (1, 7));
    }
}
