//! Checks the ledger in blocks of records: first all chains of a block, in batches, then its events.
//!
//! Everything before the checker's position was checked. If records arrive faster than they can be checked, they wait
//! on the disk, not in memory, and are checked later. A metric shows the backlog.

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

/// A record, as the checker sees it.
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
    /// The number of records.
    fn size(&self) -> u64;

    /// The lowest held index.
    fn first(&self) -> u64;

    /// Reads a block of records from index `from` on (at least one, if there is one), passes them to `look`, and
    /// returns the index after the last.
    fn read(&self, from: u64, look: &mut dyn FnMut(&[Seen<'_>])) -> Result<u64, ReadError>;

    /// The chain with this digest, presented long ago, its tokens joined by `~`; none if it was never presented, or is
    /// gone.
    fn chain(&self, digest: &[u8; 32]) -> Result<Option<String>, Unreadable>;
}

/// Why a block was not checked. The next attempt starts with it.
#[derive(Debug)]
pub(crate) enum StepError {
    Read(ReadError),
    Record(ReportError),
}

/// A lookup failed, so it is unknown whether the chain exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unreadable;

/// The results of a block.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// The number of chains that verified. `refused` counts the others.
    pub(crate) verified: u64,
    pub(crate) refused: u64,
    /// The number of allows that match their chain.
    pub(crate) matched: u64,
    /// The number of allows with an unknown chain, and of those with a difference that other anchors would explain,
    /// while the source's anchors are unknown.
    pub(crate) unchecked: u64,
    /// The number of allows that differ from their chain, by kind. Those that other anchors explain are only in
    /// `other_anchors`.
    pub(crate) differences: HashMap<DifferenceKind, u64>,
    pub(crate) other_anchors: u64,
    /// The first mismatch of each kind for a source and chain, to be recorded.
    pub(crate) mismatches: Vec<Mismatch>,
    /// Sources newly found to have other trust anchors than the control plane.
    pub(crate) sources_with_other_anchors: Vec<String>,
}

/// Checks the ledger from a position on, with the state that this needs.
#[derive(Debug)]
pub(crate) struct Checker<'c> {
    next: u64,
    verifier: EvidenceVerifier<'c>,
    verdicts: Verdicts,
    our_anchors: [u8; 32],
    /// The trust anchors of the sources; `None` if a source did not send them. For a source that is missing here, they
    /// are unknown: it started before the records that were read.
    anchors_of: HashMap<String, Option<[u8; 32]>>,
    /// Chains that were looked up without success, and were not presented since.
    unknown: HashSet<[u8; 32]>,
    /// Mismatches that were already recorded.
    reported: HashSet<(String, [u8; 32], DifferenceKind)>,
    told_of_source: HashSet<String>,
}

// === impl Findings ===

impl Findings {
    /// Reports the results of a block to log and metrics.
    pub(crate) fn report(&self, metrics: &Metrics) {
        for source in &self.sources_with_other_anchors {
            tracing::warn!(
                source,
                "a filter has other trust anchors than this control plane, and allows chains that do not verify here: \
                 give both the same trust_anchors"
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
    /// Continues from `progress`, and remembers verdicts within `bytes`.
    pub(crate) fn new(anchors: &'c TrustAnchors, progress: Progress, bytes: usize) -> Self {
        Self {
            next: progress.next,
            verifier: EvidenceVerifier::new(anchors),
            verdicts: Verdicts::within(bytes),
            our_anchors: anchors.digest(),
            anchors_of: progress.anchors_of,
            unknown: HashSet::new(),
            reported: HashSet::new(),
            told_of_source: HashSet::new(),
        }
    }

    /// The index up to which everything was checked.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// The state for continuing after a restart.
    pub(crate) fn progress(&self) -> Progress {
        Progress {
            next: self.next,
            anchors_of: self.anchors_of.clone(),
        }
    }

    /// Checks one block; none if everything has been checked. `record` records mismatches in the ledger: until that
    /// succeeds, the block counts as unchecked.
    pub(crate) fn step(
        &mut self,
        evidence: &impl Evidence,
        record: impl FnOnce(Vec<Mismatch>) -> Result<(), ReportError>,
    ) -> Result<Option<Findings>, StepError> {
        // Pruned records cannot be checked.
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
                self.forget_reported(&findings.mismatches);
                StepError::Record(error)
            })?;
        }
        self.next = through;
        Ok(Some(findings))
    }

    /// Checks consecutive records. Chains that were presented earlier and forgotten are looked up in `evidence`.
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

    /// Notes the source's trust anchors; an empty digest means that it did not send them.
    pub(crate) fn trusts(&mut self, source: &str, anchors_digest: &[u8]) {
        if self.anchors_of.len() < SOURCES || self.anchors_of.contains_key(source) {
            self.anchors_of
                .insert(source.to_owned(), anchors_digest.try_into().ok());
        }
    }

    /// These mismatches were not recorded after all, and are reported when they are found again.
    fn forget_reported(&mut self, mismatches: &[Mismatch]) {
        self.reported.retain(|(source, digest, _)| {
            let is_of = |mismatch: &Mismatch| mismatch.source == *source && mismatch.chain_digest == digest;
            !mismatches.iter().any(is_of)
        });
    }

    fn verify_chains(&mut self, records: &[Seen<'_>], evidence: &impl Evidence, findings: &mut Findings) {
        let mut arrived: HashMap<[u8; 32], &str> = HashMap::new();
        // Which source names which chain, in the order of the events.
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
            // If its verdict is forgotten, it can be looked up.
            self.unknown.remove(digest);
        }
        wanted.retain(|(digest, _)| !arrived.contains_key(digest));
        arrived.retain(|digest, _| self.verdicts.get(digest).is_none());
        self.verify(&Vec::from_iter(arrived), findings);
        self.look_up(&wanted, evidence, findings);
    }

    /// Verifies chains that were presented earlier and forgotten.
    ///
    /// If a chain does not exist, the lookup searches every segment. A source that names many such chains must not
    /// delay the others. So each source gets a limited number of failed lookups in a block. Its further events with
    /// unknown chains stay unchecked.
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
                // The next event that names it looks it up again.
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
        if remember(&mut self.reported, (source.to_owned(), digest, difference.kind)) {
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
            SourceChange::Started | SourceChange::Returned | SourceChange::Arrived => {
                self.trusts(source, &change.anchors_digest);
            }
            SourceChange::Ended | SourceChange::Lost | SourceChange::Moved => {
                self.anchors_of.remove(source);
                self.told_of_source.remove(source);
            }
            SourceChange::Unspecified => {}
        }
    }
}

/// Shadow mode allows everything, and a denial needs no delegation.
fn is_compared(event: &EventView<'_>) -> bool {
    event.decision() == v1::Decision::Allow && event.mode != i32::from(v1::Mode::Shadow)
}

fn digest_of(event: &EventView<'_>) -> Option<[u8; 32]> {
    event.chain_digest.try_into().ok()
}

/// Returns whether it is new. The memory is bounded: when it is full, all of it is forgotten, and mismatches may be
/// reported again.
fn remember<T: std::hash::Hash + Eq>(reported: &mut HashSet<T>, what: T) -> bool {
    if reported.contains(&what) {
        return false;
    }
    if reported.len() >= MAX_REPORTED {
        reported.clear();
    }
    reported.insert(what)
}

/// The number of sources whose anchors are remembered.
const SOURCES: usize = 200_000;

/// The number of failed chain lookups for each source in a block.
const MISSES: usize = 32;

/// The size of the looked-up chains that wait to be verified together.
const FOUND_BYTES: usize = 8 << 20;

/// The number of reported mismatches that are remembered.
const MAX_REPORTED: usize = 65_536;

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
            delegations: true,
            access_tokens: None,
            same_principals: Vec::new(),
            is_fetched: false,
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

    /// A root signed by this issuer's key, and a leaf held by agent 3.
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

    /// The event of an honest filter for a request under the chain.
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

    /// A ledger that is read a few records at a time.
    #[derive(Default)]
    struct Memory {
        records: Vec<Kept>,
        /// Chains that were presented before the first record.
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
    struct Outcome {
        mismatches: Vec<Mismatch>,
        matched: u64,
        unchecked: u64,
        other_anchors: u64,
        differences: Vec<(DifferenceKind, u64)>,
        through: u64,
        /// How many attempts to record fail.
        failures: u32,
    }

    /// Checks one block and notes the results. Returns false if there is none.
    fn step(checker: &mut Checker<'_>, memory: &Memory, outcome: &mut Outcome) -> Result<bool, StepError> {
        let found = checker.step(memory, |mismatches| {
            if outcome.failures > 0 {
                outcome.failures -= 1;
                return Err(ReportError::Stopping);
            }
            outcome.mismatches.extend(mismatches);
            Ok(())
        })?;
        let Some(findings) = found else { return Ok(false) };
        outcome.matched += findings.matched;
        outcome.unchecked += findings.unchecked;
        outcome.other_anchors += findings.other_anchors;
        outcome.differences.extend(findings.differences);
        outcome.through = checker.next();
        Ok(true)
    }

    /// A starting position, with a source that did not send its anchors.
    fn from(next: u64) -> Progress {
        Progress {
            next,
            anchors_of: [("source".to_owned(), None)].into(),
        }
    }

    /// Checks everything under the anchors of issuer key 1.
    fn follow(memory: &Memory) -> Outcome {
        let anchors = anchors(1);
        let mut outcome = Outcome::default();
        let mut checker = Checker::new(&anchors, from(0), 1 << 20);
        while step(&mut checker, memory, &mut outcome).unwrap() {}
        outcome
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
            // The first and the last moment: a proxy's clock may be behind the issuer's by the largest configurable
            // skew.
            of(&|event| event.time_unix_nano = (IAT as u64 - 300) * 1_000_000_000),
            of(&|event| event.time_unix_nano = EXP as u64 * 1_000_000_000),
            of(&|event| event.stale_ms = Some(60_000)),
        ] {
            memory.report(event);
        }
        memory.present(&honest);
        memory.report(event(&honest));
        // Neither of them allows a request.
        memory.report(of(&|event| {
            (event.decision, event.tool) = (v1::Decision::Deny.into(), "delete".to_owned())
        }));
        memory.report(of(&|event| {
            (event.mode, event.tool) = (v1::Mode::Shadow.into(), "delete".to_owned())
        }));
        let outcome = follow(&memory);
        assert_eq!(outcome.mismatches, []);
        assert_eq!((outcome.matched, outcome.unchecked), (7, 0));
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
            let outcome = follow(&memory);
            let [mismatch] = outcome.mismatches.as_slice() else {
                panic!("{kind}: {:?}", outcome.mismatches)
            };
            assert!(mismatch.reason.starts_with(&format!("{kind}: ")), "{mismatch:?}");
            assert_eq!((mismatch.source.as_str(), mismatch.other_anchors), ("source", false));
            assert_eq!(mismatch.chain_digest, chain_digest(&honest));
            let counted: u64 = outcome.differences.iter().map(|(_, count)| count).sum();
            assert_eq!((counted, outcome.matched), (5, 1), "{kind}");
        }
    }

    #[test]
    fn an_allow_under_a_chain_that_does_not_verify_is_a_mismatch_with_the_step() {
        let forged = chain(8);
        let mut memory = Memory::presenting(&forged);
        memory.start(&anchors(1));
        memory.report(event(&forged));
        let outcome = follow(&memory);
        assert_eq!(
            (outcome.mismatches[0].step.as_str(), outcome.mismatches.len()),
            ("3b", 1)
        );
        assert!(!outcome.mismatches[0].other_anchors);
    }

    #[test]
    fn a_mismatch_that_other_anchors_explain_is_reported_as_such() {
        let theirs = chain(8);
        let mut memory = Memory::default();
        memory.start(&anchors(8));
        memory.present(&theirs);
        memory.report(event(&theirs));
        memory.report(event(&theirs));
        let outcome = follow(&memory);
        assert_eq!((outcome.other_anchors, outcome.differences.len()), (2, 0));
        assert!(outcome.mismatches[0].other_anchors && outcome.mismatches.len() == 1);
    }

    #[test]
    fn other_anchors_excuse_no_other_mismatch() {
        let honest = chain(1);
        let mut memory = Memory::default();
        memory.start(&anchors(8));
        memory.present(&honest);
        let mut event = event(&honest);
        event.tool = "delete".to_owned();
        memory.report(event);
        let outcome = follow(&memory);
        assert!(!outcome.mismatches[0].other_anchors);
        assert_eq!(outcome.differences, [(DifferenceKind::Tool, 1)]);
    }

    #[test]
    fn a_mismatch_that_other_anchors_would_explain_raises_no_alarm_until_the_sources_anchors_are_known() {
        let forged = chain(8);
        let mut memory = Memory::presenting(&forged);
        memory.report(event(&forged));
        memory.report(event(&forged));
        let anchors = anchors(1);
        let mut checker = Checker::new(&anchors, Progress::default(), 1 << 20);
        let mut outcome = Outcome::default();
        assert!(step(&mut checker, &memory, &mut outcome).unwrap());
        assert_eq!((outcome.unchecked, outcome.mismatches.len()), (2, 0));
        checker.trusts("source", &anchors.digest());
        memory.report(event(&forged));
        assert!(step(&mut checker, &memory, &mut outcome).unwrap());
        assert_eq!((outcome.unchecked, outcome.mismatches.len()), (2, 1));
        assert!(!outcome.mismatches[0].other_anchors);
        assert_eq!(checker.progress().anchors_of["source"], Some(anchors.digest()));
    }

    #[test]
    fn an_unknown_chain_is_counted_and_raises_no_alarm() {
        let mut memory = Memory::default();
        memory.report(event("never presented"));
        memory.report(v1::Event {
            chain_digest: Vec::new(),
            ..event("never presented")
        });
        let outcome = follow(&memory);
        assert_eq!((outcome.unchecked, outcome.mismatches.len()), (2, 0));
    }

    #[test]
    fn a_chain_presented_long_ago_is_looked_up() {
        let honest = chain(1);
        let mut memory = Memory::default();
        memory.earlier.push(honest.clone());
        memory.report(event(&honest));
        assert_eq!(follow(&memory).matched, 1);
    }

    #[test]
    fn a_chain_presented_late_is_looked_up_once_its_verdict_is_forgotten() {
        let honest = chain(1);
        let mut memory = Memory::default();
        memory.report(event(&honest));
        let anchors = anchors(1);
        let mut outcome = Outcome::default();
        // Room for the verdicts of about two chains.
        let mut checker = Checker::new(&anchors, from(0), 1);
        while step(&mut checker, &memory, &mut outcome).unwrap() {}
        assert_eq!((outcome.unchecked, outcome.matched), (1, 0));
        memory.present(&honest);
        memory.earlier.push(honest.clone());
        for other in 5..12 {
            memory.present(&chain(other));
        }
        while step(&mut checker, &memory, &mut outcome).unwrap() {}
        let mut lie = event(&honest);
        lie.tool = "delete".to_owned();
        memory.report(lie);
        while step(&mut checker, &memory, &mut outcome).unwrap() {}
        assert_eq!((outcome.unchecked, outcome.mismatches.len()), (1, 1));
    }

    #[test]
    fn a_failed_lookup_of_a_chain_is_repeated_the_next_time() {
        let honest = chain(1);
        let mut memory = Memory::default();
        memory.earlier.push(honest.clone());
        memory.is_unreadable = true;
        let mut lie = event(&honest);
        lie.tool = "delete".to_owned();
        memory.report(lie.clone());
        let anchors = anchors(1);
        let mut outcome = Outcome::default();
        let mut checker = Checker::new(&anchors, from(0), 1 << 20);
        while step(&mut checker, &memory, &mut outcome).unwrap() {}
        assert_eq!((outcome.unchecked, outcome.mismatches.len()), (1, 0));
        memory.is_unreadable = false;
        memory.report(lie);
        while step(&mut checker, &memory, &mut outcome).unwrap() {}
        assert_eq!((outcome.unchecked, outcome.mismatches.len()), (1, 1));
    }

    #[test]
    fn a_source_that_names_unknown_chains_does_not_keep_others_from_being_checked() {
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
        // The dishonest source names the other's chain too.
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
    fn a_mismatch_that_could_not_be_recorded_is_checked_again_and_then_recorded_once() {
        let honest = chain(1);
        let mut memory = Memory::presenting(&honest);
        let mut event = event(&honest);
        event.tool = "delete".to_owned();
        memory.report(event);
        let anchors = anchors(1);
        let mut checker = Checker::new(&anchors, from(0), 1 << 20);
        let mut outcome = Outcome {
            failures: 2,
            ..Outcome::default()
        };
        for _ in 0..2 {
            assert!(matches!(
                step(&mut checker, &memory, &mut outcome),
                Err(StepError::Record(ReportError::Stopping))
            ));
            assert_eq!(outcome.through, 0);
        }
        assert!(step(&mut checker, &memory, &mut outcome).unwrap());
        assert!(!step(&mut checker, &memory, &mut outcome).unwrap());
        assert_eq!((outcome.mismatches.len(), outcome.through), (1, 2));
    }

    #[test]
    fn it_continues_where_it_stopped_and_skips_pruned_records() {
        let honest = chain(1);
        let mut memory = Memory::presenting(&honest);
        memory.earlier.push(honest.clone());
        for _ in 0..6 {
            memory.report(event(&honest));
        }
        let anchors = anchors(1);
        let mut outcome = Outcome::default();
        let mut checker = Checker::new(&anchors, from(4), 1 << 20);
        while step(&mut checker, &memory, &mut outcome).unwrap() {}
        assert_eq!((outcome.matched, outcome.through), (3, 7));
        memory.first = 6;
        let mut outcome = Outcome::default();
        let mut checker = Checker::new(&anchors, from(4), 1 << 20);
        while step(&mut checker, &memory, &mut outcome).unwrap() {}
        assert_eq!((outcome.matched, outcome.through), (1, 7));
    }
}
