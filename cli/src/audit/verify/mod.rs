//! `credence audit verify`: whether the ledger is intact. Each way to check is a function here; [`online`] reads from a
//! control plane, [`witnesses`] checks cosignatures, and [`moves`] follows sources from ledger to ledger.

mod moves;
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
use crate::control_plane::{ControlPlaneOptions, OtherReplicas};
use crate::failure::{Failure, Outcome};
use crate::files;

/// Check that no record was removed from the ledger, changed, or inserted later.
///
/// With --data, check every byte of the ledger in a data folder; a control plane may be using it. With --proof, check a
/// proof that `credence audit prove` printed. Otherwise check the ledger that a control plane publishes.
///
/// Prints each problem with its place, and what was not checked. Exits with 1 if there is a problem. With --data and
/// --signatures, verify the recorded delegations instead.
#[derive(Debug, clap::Args)]
pub(crate) struct Verify {
    #[command(flatten)]
    control_plane: ControlPlaneOptions,

    #[command(flatten)]
    others: OtherReplicas,

    /// Check the ledger in this data folder, without asking a control plane.
    #[arg(long, value_name = "DIR", conflicts_with = "proof")]
    data: Option<PathBuf>,

    /// Check this proof, a C2SP tlog-proof, without asking a control plane.
    #[arg(long, value_name = "FILE", requires = "key", conflicts_with = "since")]
    proof: Option<PathBuf>,

    /// The ledger's key, from a source that you trust. Without it, the key of the checked ledger is believed.
    #[arg(long, value_name = "VKEY")]
    key: Option<VerifierKey>,

    /// A checkpoint that the ledger published earlier. The present ledger must extend it.
    #[arg(long, value_name = "FILE")]
    since: Vec<PathBuf>,

    /// The key of those checkpoints, if the ledger had another key then, before a restore from a backup.
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
            _ if self.others.is_empty() => self.published(&self.control_plane, out),
            _ => self.replicas(out),
        }
    }

    /// Each ledger by itself, and then whether the evidence of sources that moved is in one of them.
    fn replicas(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        if self.key.is_some() || !self.since.is_empty() || !self.witnesses.keys.is_empty() {
            return Err(Failure::input(
                "each ledger has a key and witnesses of its own: check the ledgers one by one against those, without \
                 --also",
            ));
        }
        let replicas = self.others.with(&self.control_plane);
        let mut is_intact = true;
        for replica in &replicas {
            writeln!(out, "ledger: {}", replica.url())?;
            is_intact &= self.published(replica, out)? == Outcome::Done;
        }
        let clients: Vec<_> = replicas
            .iter()
            .map(ControlPlaneOptions::client)
            .collect::<Result<_, _>>()?;
        let problems = moves::check(&clients, out)?;
        let moves = outcome(&problems, true, out)?;
        Ok(if is_intact { moves } else { Outcome::Denied })
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
            .map_err(|error| Failure::input(format!("{}: {error}; give --data a data folder", folder.display())))?;
        if let Some(checkpoint) = &found.checkpoint {
            print_checkpoint(checkpoint, out)?;
        }
        print_records(found.size, found.first, out)?;
        if let Some(torn) = &found.torn {
            writeln!(
                out,
                "unfinished: {torn} (not published yet; the next start cuts it off)"
            )?;
        }
        if let Some(erasing) = &found.erasing {
            writeln!(
                out,
                "unfinished: {erasing} (the control plane removes them, at the latest when it next starts)"
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
        // If it cannot be opened, it is damaged. That is reported below.
        let is_cosigned = match (&cosigned, &key) {
            (Some(cosigned), Some(key)) => self.witnesses.check(cosigned.note(), key, out)?,
            _ => self.witnesses.keys.is_empty(),
        };
        outcome(&found.problems, is_cosigned, out)
    }

    fn published(&self, replica: &ControlPlaneOptions, out: &mut impl Write) -> Result<Outcome, Failure> {
        let client = replica.client_or_anonymous()?;
        let key = self.key.clone().map_or_else(|| published_key(&client), Ok)?;
        let mut since = self.since(Some(&key))?;
        // The latest checkpoint is rarely cosigned yet. Asked for first, the cosigned one is an earlier state of the
        // latest.
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
                writeln!(out, "record: {} is in the ledger", proof.index)?;
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
                Failure::input("the key of the earlier checkpoints is unknown; give it as --since-key")
            })?;
            let note = files::read(path, "the earlier checkpoint")?;
            let checkpoint = SignedCheckpoint::open(&note, key)
                .map_err(|error| Failure::input(format!("--since {}: {error}", path.display())))?;
            checkpoints.push(checkpoint);
        }
        Ok(checkpoints)
    }
}

/// The checkpoint in the folder with its cosignatures. The leaves are compared with it like with any earlier
/// checkpoint, since a running control plane may publish the next one at any time.
fn published_in(folder: &Path, key: &VerifierKey) -> Option<SignedCheckpoint> {
    let note = files::read(&folder.join("checkpoint"), "the published checkpoint").ok()?;
    SignedCheckpoint::open(&note, key).ok()
}

/// A forger of a ledger can make a matching key.
fn say_believed(key: &VerifierKey, whose: &str, out: &mut impl Write) -> Result<(), Failure> {
    writeln!(
        out,
        "not checked: the key {key}, which comes from {whose} itself: give the key that you trust as --key"
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
        "records: 0 to {size}, of which {first} and later are present"
    )?)
}

/// Prints the problems, or that there are none.
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
