//! `credence audit verify`: whether the ledger is what it was published to be. Each way to ask is a function here; what is
//! read over the network is in [`online`].

mod online;

use std::io::Write;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use credence_ledger::checkpoint::{Checkpoint, SignedCheckpoint};
use credence_ledger::note::VerifierKey;
use credence_ledger::tlog_proof::TlogProof;
use credence_ledger::verify::{Against, verify};

use super::prove::parse_key;
use super::signatures::SignatureOptions;
use crate::control_plane::ControlPlaneOptions;
use crate::failure::{Failure, Outcome};
use crate::files;

/// Check that nothing was left out of the ledger, changed, or put in later.
///
/// With --data, every byte of a data folder's ledger, while a control plane may be using it; with --proof, a proof that
/// `credence audit prove` has printed; otherwise what a control plane publishes. Says what is wrong, and where; the exit
/// code is then 1. With --data and --signatures, the recorded delegations are verified instead.
#[derive(Debug, clap::Args)]
pub(super) struct Verify {
    #[command(flatten)]
    control_plane: ControlPlaneOptions,

    /// Check the ledger in this data folder; no control plane is asked.
    #[arg(long, value_name = "DIR", conflicts_with = "proof")]
    data: Option<PathBuf>,

    /// Check this proof, a C2SP tlog-proof; no control plane is asked.
    #[arg(long, value_name = "FILE", requires = "key", conflicts_with = "since")]
    proof: Option<PathBuf>,

    /// The ledger's key, from a place that you trust. Absent, what is checked is believed to have the right one.
    #[arg(long, value_name = "VKEY")]
    key: Option<VerifierKey>,

    /// A checkpoint that the ledger has published earlier, which has to be where the present one comes from.
    #[arg(long, value_name = "FILE")]
    since: Vec<PathBuf>,

    /// The key of those checkpoints, if the ledger had another one then: before it was restored from a backup.
    #[arg(long, value_name = "VKEY", requires = "since")]
    since_key: Option<VerifierKey>,

    #[command(flatten)]
    signatures: SignatureOptions,
}

impl Verify {
    pub(super) fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        match (&self.data, &self.proof, &self.key) {
            (Some(data), _, _) if self.signatures.signatures => self.signatures.run(&data.join("ledger"), out),
            (Some(data), _, _) => self.folder(&data.join("ledger"), out),
            (None, Some(proof), Some(key)) => check_proof(proof, key, out),
            _ => self.published(out),
        }
    }

    fn folder(&self, folder: &Path, out: &mut impl Write) -> Result<Outcome, Failure> {
        let key = match &self.key {
            Some(key) => Some(key.clone()),
            None => credence_ledger::identity::verifier_key_of(folder).ok(),
        };
        let against = Against {
            key: self.key.clone(),
            since: self.since(key.as_ref())?,
        };
        let found = verify(folder, &against)
            .map_err(|error| Failure::input(format!("{}: {error}; name a data folder", folder.display())))?;
        if let Some(checkpoint) = &found.checkpoint {
            print_checkpoint(checkpoint, out)?;
        }
        writeln!(
            out,
            "records: {} to {}, of which those from {} on are held",
            0, found.size, found.first
        )?;
        if let Some(torn) = &found.torn {
            writeln!(
                out,
                "unfinished: {torn} (beyond what was published; the next start cuts it off)"
            )?;
        }
        if let Some(erasing) = &found.erasing {
            writeln!(
                out,
                "unfinished: {erasing} (the control plane drops them, or its next start does)"
            )?;
        }
        for problem in &found.problems {
            writeln!(out, "DAMAGED: {problem}")?;
        }
        Ok(outcome(found.problems.is_empty(), out)?)
    }

    fn published(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        let client = self.control_plane.visitor()?;
        let key = match &self.key {
            Some(key) => key.clone(),
            None => parse_key(&client.get("/ledger/key", &[])?)?,
        };
        let since = self.since(Some(&key))?;
        let found = online::check(&client, &key, &since)?;
        print_checkpoint(&found.checkpoint, out)?;
        writeln!(
            out,
            "records: {} to {}, of which {} are held",
            0, found.checkpoint.size, found.held
        )?;
        for problem in &found.problems {
            writeln!(out, "DAMAGED: {problem}")?;
        }
        Ok(outcome(found.problems.is_empty(), out)?)
    }

    fn since(&self, key: Option<&VerifierKey>) -> Result<Vec<SignedCheckpoint>, Failure> {
        let mut checkpoints = Vec::new();
        for path in &self.since {
            let key = self.since_key.as_ref().or(key).ok_or_else(|| {
                Failure::input("the key of the earlier checkpoints is not known; give it as --since-key")
            })?;
            let note = files::read(path, "the earlier checkpoint")?;
            let checkpoint = SignedCheckpoint::open(&note, key)
                .map_err(|error| Failure::input(format!("--since {}: {error}", path.display())))?;
            checkpoints.push(checkpoint);
        }
        Ok(checkpoints)
    }
}

fn check_proof(path: &Path, key: &VerifierKey, out: &mut impl Write) -> Result<Outcome, Failure> {
    let text = files::read(path, "the proof")?;
    let proof = str::from_utf8(&text)
        .map_err(|error| error.to_string())
        .and_then(|text| TlogProof::parse(text).map_err(|error| error.to_string()))
        .map_err(|error| Failure::input(format!("{}: {error}", path.display())))?;
    match proof.verify(key) {
        Ok(checkpoint) => {
            print_checkpoint(&checkpoint, out)?;
            writeln!(out, "record: {} is in it", proof.index)?;
            Ok(outcome(true, out)?)
        }
        Err(error) => {
            writeln!(out, "NOT PROVEN: {}: {error}", path.display())?;
            Ok(Outcome::Denied)
        }
    }
}

fn print_checkpoint(checkpoint: &Checkpoint, out: &mut impl Write) -> Result<(), Failure> {
    let root = STANDARD.encode(checkpoint.root.0);
    writeln!(
        out,
        "checkpoint: {}, {} records, root {root}",
        checkpoint.origin, checkpoint.size
    )?;
    Ok(())
}

fn outcome(is_good: bool, out: &mut impl Write) -> std::io::Result<Outcome> {
    if is_good {
        writeln!(out, "verified")?;
        Ok(Outcome::Done)
    } else {
        Ok(Outcome::Denied)
    }
}
