//! `credence audit verify`: whether the ledger is what it was published to be. Each way to ask is a function here; what is
//! read over the network is in [`online`], and what witnesses say in [`witnesses`].

mod online;
mod witnesses;

use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use credence_ledger::checkpoint::{Checkpoint, SignedCheckpoint};
use credence_ledger::note::VerifierKey;
use credence_ledger::tlog_proof::TlogProof;
use credence_ledger::verify::{Against, verify};

use self::witnesses::WitnessOptions;
use super::prove::published_key;
use super::signatures::SignatureOptions;
use crate::control_plane::ControlPlaneOptions;
use crate::failure::{Failure, Outcome};
use crate::files;

/// Check that nothing was left out of the ledger, changed, or put in later.
///
/// With --data, every byte of a data folder's ledger, while a control plane may be using it; with --proof, a proof that
/// `credence audit prove` has printed; otherwise what a control plane publishes. Says what is wrong, and where; the exit
/// code is then 1. Says too what was not checked. With --data and --signatures, the recorded delegations are verified
/// instead.
#[derive(Debug, clap::Args)]
pub(crate) struct Verify {
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
    witnesses: WitnessOptions,

    #[command(flatten)]
    signatures: SignatureOptions,
}

impl Verify {
    pub(super) fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        match (&self.data, &self.proof, &self.key) {
            (Some(data), _, _) if self.signatures.signatures => self.signatures.run(&data.join("ledger"), out),
            (Some(data), _, _) => self.folder(&data.join("ledger"), out),
            (None, Some(proof), Some(key)) => self.proof(proof, key, out),
            _ => self.published(out),
        }
    }

    fn folder(&self, folder: &Path, out: &mut impl Write) -> Result<Outcome, Failure> {
        let key = match &self.key {
            Some(key) => Some(key.clone()),
            None => credence_ledger::log_identity::verifier_key_of(folder).ok(),
        };
        let mut since = self.since(key.as_ref())?;
        let cosigned = key.as_ref().and_then(|key| published_in(folder, key));
        since.extend(cosigned.clone());
        let against = Against {
            key: self.key.clone(),
            since,
        };
        let found = verify(folder, &against)
            .map_err(|error| Failure::input(format!("{}: {error}; name a data folder", folder.display())))?;
        if let Some(checkpoint) = &found.checkpoint {
            print_checkpoint(checkpoint, out)?;
        }
        print_records(found.size, found.first, out)?;
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
        for unchecked in &found.unchecked {
            writeln!(out, "not checked: {unchecked}")?;
        }
        if self.key.is_none()
            && let Some(key) = &key
        {
            say_believed(key, "the folder", out)?;
        }
        // One that cannot be opened is damaged, as is said below.
        let is_cosigned = match (&cosigned, &key) {
            (Some(cosigned), Some(key)) => self.witnesses.check(cosigned.note(), key, out)?,
            _ => self.witnesses.keys.is_empty(),
        };
        outcome(&found.problems, is_cosigned, out)
    }

    fn published(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        let client = self.control_plane.client_or_anonymous()?;
        let key = self.key.clone().map_or_else(|| published_key(&client), Ok)?;
        let mut since = self.since(Some(&key))?;
        // The latest has rarely been cosigned yet. Asked for first, it is one that the latest goes on from.
        let cosigned = match self.witnesses.keys.is_empty() {
            true => None,
            false => Some(online::checkpoint(&client, "/ledger/checkpoint/witnessed", &key)?),
        };
        since.extend(cosigned.clone());
        let found = online::check(&client, &key, &since)?;
        let checkpoint = found.signed.checkpoint();
        print_checkpoint(checkpoint, out)?;
        print_records(checkpoint.size, found.first, out)?;
        if self.key.is_none() {
            say_believed(&key, "the control plane", out)?;
        }
        let note = cosigned.as_ref().unwrap_or(&found.signed).note();
        let is_cosigned = self.witnesses.check(note, &key, out)?;
        outcome(&found.problems, is_cosigned, out)
    }

    fn proof(&self, path: &Path, key: &VerifierKey, out: &mut impl Write) -> Result<Outcome, Failure> {
        let text = files::read(path, "the proof")?;
        let proof = str::from_utf8(&text)
            .map_err(|error| error.to_string())
            .and_then(|text| TlogProof::parse(text).map_err(|error| error.to_string()))
            .map_err(|error| Failure::input(format!("{}: {error}", path.display())))?;
        match proof.verify(key) {
            Ok(checkpoint) => {
                print_checkpoint(&checkpoint, out)?;
                writeln!(out, "record: {} is in it", proof.index)?;
                let is_cosigned = self.witnesses.check(&proof.checkpoint, key, out)?;
                outcome(&[] as &[&str], is_cosigned, out)
            }
            Err(error) => {
                writeln!(out, "NOT PROVEN: {}: {error}", path.display())?;
                Ok(Outcome::Denied)
            }
        }
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

/// The checkpoint in the folder with the cosignatures that it has; the leaves are compared with it like with any earlier
/// one, since a running control plane may publish the next at any time.
fn published_in(folder: &Path, key: &VerifierKey) -> Option<SignedCheckpoint> {
    let note = files::read(&folder.join("checkpoint"), "the published checkpoint").ok()?;
    SignedCheckpoint::open(&note, key).ok()
}

/// The maker of a false ledger can have made a key to match.
fn say_believed(key: &VerifierKey, whose: &str, out: &mut impl Write) -> Result<(), Failure> {
    writeln!(
        out,
        "not checked: the key, {key}, which is {whose}'s own word: give the one that you trust as --key"
    )?;
    Ok(())
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

fn print_records(size: u64, first: u64, out: &mut impl Write) -> Result<(), Failure> {
    Ok(writeln!(
        out,
        "records: 0 to {size}, of which those from {first} on are held"
    )?)
}

/// Names the problems, or says that there are none.
fn outcome(problems: &[impl Display], is_cosigned: bool, out: &mut impl Write) -> Result<Outcome, Failure> {
    for problem in problems {
        writeln!(out, "DAMAGED: {problem}")?;
    }
    if !(problems.is_empty() && is_cosigned) {
        return Ok(Outcome::Denied);
    }
    writeln!(out, "verified")?;
    Ok(Outcome::Done)
}
