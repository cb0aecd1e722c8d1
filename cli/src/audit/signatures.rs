//! `credence audit verify --signatures`: verifies every recorded delegation again.
//!
//! One thread reads the ledger in blocks of records, the others verify them. Few blocks wait at a time, which bounds
//! the memory, and a block has enough signatures for full batches.

use std::io::{IsTerminal as _, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use credence_delegation::evidence::EvidenceVerifier;
use credence_delegation::{Algorithms, Denial, TrustAnchors};
use credence_ledger::DiskError;
use credence_ledger::stored_chains::{SealedBlock, StoredChains};

use crate::failure::{Failure, Outcome};
use crate::{serve, stderr, verify};

/// What to verify signatures with.
#[derive(Debug, clap::Args)]
pub(super) struct SignatureOptions {
    /// Verify every recorded delegation again: all steps of the draft, at the time when the delegation was valid, and
    /// every signature.
    ///
    /// Names each delegation that does not verify, with the step, and exits with 1.
    #[arg(long, requires = "data", conflicts_with_all = ["key", "since"])]
    pub(super) signatures: bool,

    /// The control plane's configuration file. Its trust_anchors are trusted.
    #[arg(long, value_name = "FILE", env = "CREDENCE_CONFIG", requires = "signatures")]
    config: Option<PathBuf>,

    /// A further trust anchor (repeatable): an issuer's URI and its public key, as ISSUER=JWK. JWK is the JWK itself, a
    /// JWK set, or a file of either whose path has no `=`. A did:key needs no JWK.
    #[arg(long = "anchor", value_name = "ISSUER=JWK", requires = "signatures")]
    anchors: Vec<String>,

    /// How many threads verify. Default: one for each core.
    #[arg(long, value_name = "COUNT", requires = "signatures")]
    threads: Option<NonZeroUsize>,
}

/// The result.
#[derive(Debug, Default)]
struct Tally {
    delegations: u64,
    signatures: u64,
    bad: u64,
    /// Records of principals whose evidence was erased: they cannot be verified.
    erased: u64,
    /// The bad records with the lowest indexes.
    first_bad: Vec<(u64, Denial)>,
    unreadable: Option<Failure>,
}

impl SignatureOptions {
    /// Verifies the chains in a ledger's folder.
    pub(super) fn run(&self, folder: &Path, out: &mut impl Write) -> Result<Outcome, Failure> {
        let anchors = self.trust_anchors()?;
        let recorded = StoredChains::open(folder)
            .map_err(|error| Failure::input(format!("{error}; give --data a control plane's data folder")))?;
        let threads = self
            .threads
            .or_else(|| std::thread::available_parallelism().ok())
            .map_or(1, NonZeroUsize::get);
        let tally = Mutex::new(Tally::default());
        let began = Instant::now();
        let (blocks, waiting) = sync_channel(BLOCKS_WAITING);
        let waiting = Mutex::new(waiting);
        let read = std::thread::scope(|scope| {
            let (waiting, tally, anchors, recorded) = (&waiting, &tally, &anchors, &recorded);
            let workers: Vec<_> = (0..threads)
                .map(|_| scope.spawn(move || verify_all(waiting, recorded, anchors, tally)))
                .collect();
            let read = read(recorded, blocks, tally, began);
            for worker in workers {
                if worker.join().is_err() {
                    return Err(Failure::operation(
                        "a verifying thread has ended early; not everything was verified",
                    ));
                }
            }
            read
        });
        let unfinished = read?;
        let mut tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(failure) = tally.unreadable.take() {
            return Err(failure);
        }
        if let Some(unfinished) = unfinished {
            writeln!(out, "unfinished: {unfinished}")?;
        }
        tally.report(threads, began.elapsed(), out)
    }

    fn trust_anchors(&self) -> Result<TrustAnchors, Failure> {
        let mut anchors = Vec::new();
        if let Some(path) = &self.config {
            let configured = serve::settings::read(path)?
                .anchors()
                .map_err(|error| Failure::input(format!("{}: {error}", path.display())))?;
            anchors.extend(configured.iter().cloned());
        }
        let algorithms = Algorithms::all();
        for given in &self.anchors {
            anchors.extend(verify::trust_anchors(given, &algorithms)?);
        }
        if anchors.is_empty() {
            return Err(Failure::input(
                "no issuer is trusted: the configuration file has no trust_anchors; add them, or give --anchor",
            ));
        }
        Ok(TrustAnchors::new(anchors))
    }
}

/// Verifies blocks until there are no more.
fn verify_all(
    waiting: &Mutex<Receiver<SealedBlock>>,
    recorded: &StoredChains,
    anchors: &TrustAnchors,
    tally: &Mutex<Tally>,
) {
    let mut verifier = EvidenceVerifier::new(anchors);
    let mut opener = recorded.opener();
    loop {
        let block = lock(waiting).recv();
        let Ok(block) = block else { return };
        match block.open(&mut opener) {
            Ok(opened) => {
                let texts = opened.chains.iter().map(|(_, joined)| joined.as_str());
                let answers = verifier.verify(texts, |chain| chain.tokens().count() as u64);
                let mut tally = lock(tally);
                tally.erased += opened.erased;
                for ((index, joined), answer) in opened.chains.iter().zip(answers) {
                    tally.add(*index, joined, answer);
                }
            }
            Err(error) => {
                lock(tally).unreadable.get_or_insert_with(|| failure(&error));
            }
        }
    }
}

impl Tally {
    fn add(&mut self, index: u64, joined: &str, answer: Result<u64, Denial>) {
        self.delegations += 1;
        match answer {
            Ok(verified) => self.signatures += verified,
            Err(denial) => {
                // The records up to the first bad one have been verified.
                self.signatures += joined.split('~').count() as u64;
                self.bad += 1;
                let place = self.first_bad.partition_point(|(before, _)| *before < index);
                if place < BAD_NAMED {
                    self.first_bad.insert(place, (index, denial));
                    self.first_bad.truncate(BAD_NAMED);
                }
            }
        }
    }

    fn report(&self, threads: usize, took: Duration, out: &mut impl Write) -> Result<Outcome, Failure> {
        let Self {
            delegations,
            signatures,
            bad,
            erased,
            first_bad: named,
            ..
        } = self;
        for (index, denial) in named {
            writeln!(out, "{index}: {denial}")?;
        }
        if *bad > named.len() as u64 {
            writeln!(out, "and {} more", bad - named.len() as u64)?;
        }
        if *erased > 0 {
            writeln!(out, "{erased} records were erased and cannot be verified")?;
        }
        let seconds = took.as_secs_f64();
        let rate = *signatures as f64 / seconds.max(f64::MIN_POSITIVE);
        writeln!(
            out,
            "{delegations} delegations, {signatures} signatures, {bad} delegations do not verify \
             ({seconds:.2} s on {threads} threads, {rate:.0} signatures/s)"
        )?;
        Ok(if *bad == 0 { Outcome::Done } else { Outcome::Denied })
    }
}

/// Reads the ledger and sends its blocks to the threads. Shows the progress on a terminal.
fn read(
    recorded: &StoredChains,
    blocks: SyncSender<SealedBlock>,
    tally: &Mutex<Tally>,
    began: Instant,
) -> Result<Option<DiskError>, Failure> {
    let watched = std::io::stderr().is_terminal();
    let mut told = began;
    let read = recorded.blocks(|block| {
        if watched && told.elapsed() >= PROGRESS {
            told = Instant::now();
            let Tally {
                delegations,
                signatures,
                ..
            } = *lock(tally);
            stderr::print(format_args!(
                "{delegations} delegations, {signatures} signatures, {:.0} signatures/s",
                signatures as f64 / began.elapsed().as_secs_f64()
            ));
        }
        // An error means that every thread has ended. Joining them reports why.
        _ = blocks.send(block);
    });
    read.map_err(|error| failure(&error))
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failure(error: &impl std::fmt::Display) -> Failure {
    Failure::operation(error.to_string())
}

/// Blocks that wait for a thread, of about 2 MiB each.
const BLOCKS_WAITING: usize = 4;

/// How many of the bad delegations are named.
const BAD_NAMED: usize = 10_000;

const PROGRESS: Duration = Duration::from_secs(1);
