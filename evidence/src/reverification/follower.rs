//! Walks over the ledger and has every record checked, however far behind.
//!
//! The place where it stopped is the only truth about what was checked: what comes faster than it can be checked waits on
//! the disk, not in memory, and is caught up with. How far behind it is is a metric.

use credence_delegation::TrustAnchors;
use credence_ledger::record::Mismatch;

use super::checker::{Chains, Checker, Findings, Seen};
use crate::cursors::Progress;

/// The durable part of the ledger.
pub(crate) trait Evidence: Chains {
    /// Why records can not be read.
    type Error;

    /// How many records there are.
    fn size(&self) -> u64;

    /// The lowest index that is still held.
    fn first(&self) -> u64;

    /// Reads records from index `from` on, at least one if there is one and as many as make a block, hands them to
    /// `look`, and returns the index behind the last.
    fn read(&self, from: u64, look: &mut dyn FnMut(&[Seen<'_>])) -> Result<u64, Self::Error>;
}

/// Why a block was not checked; the next attempt begins with it.
#[derive(Debug)]
pub(crate) enum StepError<R, W> {
    Read(R),
    Record(W),
}

/// Checks the ledger from a place on.
#[derive(Debug)]
pub(crate) struct Follower<'c> {
    checker: Checker<'c>,
    next: u64,
}

// === impl Follower ===

impl<'c> Follower<'c> {
    /// Goes on where it had come to, and remembers verdicts within `bytes`.
    pub(crate) fn new(anchors: &'c TrustAnchors, progress: Progress, bytes: usize) -> Self {
        Self {
            next: progress.next,
            checker: Checker::new(anchors, progress.anchors_of, bytes),
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
            anchors_of: self.checker.anchors_of().clone(),
        }
    }

    /// A source says what it trusts; it does not say so if the digest is empty.
    pub(crate) fn trusts(&mut self, source: &str, anchors_digest: &[u8]) {
        self.checker.trusts(source, anchors_digest);
    }

    /// Checks one block; nothing if there is none, for everything has been checked. `record` has mismatches recorded in the
    /// ledger: until that succeeds the block counts as unchecked.
    pub(crate) fn step<E: Evidence, F>(
        &mut self,
        evidence: &E,
        record: impl FnOnce(Vec<Mismatch>) -> Result<(), F>,
    ) -> Result<Option<Findings>, StepError<E::Error, F>> {
        // What was pruned can not be checked any more.
        let from = self.next.max(evidence.first());
        if from >= evidence.size() {
            return Ok(None);
        }
        let mut findings = Findings::default();
        let checker = &mut self.checker;
        let through = evidence
            .read(from, &mut |records| findings = checker.check(records, evidence))
            .map_err(StepError::Read)?;
        if !findings.mismatches.is_empty() {
            record(findings.mismatches.clone()).map_err(|error| {
                self.checker.forget_told(&findings.mismatches);
                StepError::Record(error)
            })?;
        }
        self.next = through;
        Ok(Some(findings))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use credence_delegation::json::Json;
    use credence_delegation::mint::{self, Grant, RootGrant};
    use credence_delegation::{Algorithms, Limits, SigningKey, TrustAnchor, UnixTime, Value, chain_digest};
    use credence_ledger::entry::EntryView;
    use credence_ledger::record::{SourceChange, StoredSourceChange};
    use credence_wire::v1;
    use prost::Message as _;

    use super::super::checker::Unreadable;
    use super::super::comparison::DifferenceKind;
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
        /// Whether chains can not be looked up.
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

    impl Chains for Memory {
        fn chain(&self, digest: &[u8; 32]) -> Result<Option<String>, Unreadable> {
            self.looks.update(|looks| looks + 1);
            if self.is_unreadable {
                return Err(Unreadable);
            }
            let mut earlier = self.earlier.iter();
            Ok(earlier.find(|chain| chain_digest(chain) == *digest).cloned())
        }
    }

    impl Evidence for Memory {
        type Error = Infallible;

        fn size(&self) -> u64 {
            self.records.len() as u64
        }

        fn first(&self) -> u64 {
            self.first
        }

        fn read(&self, from: u64, look: &mut dyn FnMut(&[Seen<'_>])) -> Result<u64, Infallible> {
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
    fn step(follower: &mut Follower<'_>, memory: &Memory, told: &mut Told) -> Result<bool, StepError<Infallible, ()>> {
        let found = follower.step(memory, |mismatches| {
            if told.failures > 0 {
                told.failures -= 1;
                return Err(());
            }
            told.mismatches.extend(mismatches);
            Ok(())
        })?;
        let Some(findings) = found else { return Ok(false) };
        told.matched += findings.matched;
        told.unchecked += findings.unchecked;
        told.other_anchors += findings.other_anchors;
        told.differences.extend(findings.differences);
        told.through = follower.next();
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
        let mut follower = Follower::new(&anchors, from(0), 1 << 20);
        while step(&mut follower, memory, &mut told).unwrap() {}
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
        let mut follower = Follower::new(&anchors, Progress::default(), 1 << 20);
        let mut told = Told::default();
        assert!(step(&mut follower, &memory, &mut told).unwrap());
        assert_eq!((told.unchecked, told.mismatches.len()), (2, 0));
        follower.trusts("source", &anchors.digest());
        memory.report(event(&forged));
        assert!(step(&mut follower, &memory, &mut told).unwrap());
        assert_eq!((told.unchecked, told.mismatches.len()), (2, 1));
        assert!(!told.mismatches[0].other_anchors);
        assert_eq!(follower.progress().anchors_of["source"], Some(anchors.digest()));
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
        let mut follower = Follower::new(&anchors, from(0), 1);
        while step(&mut follower, &memory, &mut told).unwrap() {}
        assert_eq!((told.unchecked, told.matched), (1, 0));
        memory.present(&honest);
        memory.earlier.push(honest.clone());
        for other in 5..12 {
            memory.present(&chain(other));
        }
        while step(&mut follower, &memory, &mut told).unwrap() {}
        let mut lie = event(&honest);
        lie.tool = "delete".to_owned();
        memory.report(lie);
        while step(&mut follower, &memory, &mut told).unwrap() {}
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
        let mut follower = Follower::new(&anchors, from(0), 1 << 20);
        while step(&mut follower, &memory, &mut told).unwrap() {}
        assert_eq!((told.unchecked, told.mismatches.len()), (1, 0));
        memory.is_unreadable = false;
        memory.report(lie);
        while step(&mut follower, &memory, &mut told).unwrap() {}
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
        let mut checker = Checker::new(&anchors, from(0).anchors_of, 1 << 20);
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
        let mut follower = Follower::new(&anchors, from(0), 1 << 20);
        let mut told = Told {
            failures: 2,
            ..Told::default()
        };
        for _ in 0..2 {
            assert!(matches!(
                step(&mut follower, &memory, &mut told),
                Err(StepError::Record(()))
            ));
            assert_eq!(told.through, 0);
        }
        assert!(step(&mut follower, &memory, &mut told).unwrap());
        assert!(!step(&mut follower, &memory, &mut told).unwrap());
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
        let mut follower = Follower::new(&anchors, from(4), 1 << 20);
        while step(&mut follower, &memory, &mut told).unwrap() {}
        assert_eq!((told.matched, told.through), (3, 7));
        memory.first = 6;
        let mut told = Told::default();
        let mut follower = Follower::new(&anchors, from(4), 1 << 20);
        while step(&mut follower, &memory, &mut told).unwrap() {}
        assert_eq!((told.matched, told.through), (1, 7));
    }
}
