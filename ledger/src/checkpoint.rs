//! Checkpoints: signed commitments to the first leaves of a log (C2SP tlog-checkpoint).

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::note::{KeyName, NoteError, NoteSigner, UnverifiedNote, VerifierKey};
use crate::tree::Hash;

/// The tree of a log at one size. `Display` gives the text that is signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The log: each origin has one append-only tree.
    pub origin: KeyName,
    /// The number of leaves.
    pub size: u64,
    /// The tree's root.
    pub root: Hash,
}

/// A checkpoint with a verified signature of its log, and the note as received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedCheckpoint {
    checkpoint: Checkpoint,
    note: String,
}

/// Why bytes are not a checkpoint of a log.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum CheckpointError {
    /// The note cannot be opened with the log's key.
    #[error(transparent)]
    Note(#[from] NoteError),
    /// The signed text is not a checkpoint.
    #[error("the text that {signed_by} signed is not a checkpoint: {found}")]
    Malformed {
        /// The signer.
        signed_by: KeyName,
        /// The problem.
        found: &'static str,
    },
    /// The checkpoint belongs to another log.
    #[error("the checkpoint is of the log {found}, but the key belongs to {expected}")]
    Origin {
        /// The origin in its first line.
        found: KeyName,
        /// The key's name.
        expected: KeyName,
    },
}

// === impl Checkpoint ===

impl Checkpoint {
    /// Signs the checkpoint.
    pub fn sign(self, signer: &NoteSigner) -> Result<SignedCheckpoint, NoteError> {
        Ok(SignedCheckpoint {
            note: signer.sign(&self.to_string())?,
            checkpoint: self,
        })
    }

    /// Parses the text of a note. Lines after the third are extensions, which are ignored.
    fn parse(text: &str) -> Result<Self, &'static str> {
        let mut lines = text
            .strip_suffix('\n')
            .ok_or("its last line does not end with a newline")?
            .split('\n');
        let mut next = || {
            lines
                .next()
                .filter(|line| !line.is_empty())
                .ok_or("it does not have three lines")
        };
        let (origin, size, root) = (next()?, next()?, next()?);
        if lines.any(str::is_empty) {
            return Err("one of its lines is empty");
        }
        let root = STANDARD
            .decode(root)
            .ok()
            .and_then(|root| root.try_into().ok())
            .ok_or("its third line is not a root hash")?;
        Ok(Self {
            origin: origin.parse().map_err(|_| "its first line is not a valid key name")?,
            size: parse_decimal(size).ok_or("its second line is not a size")?,
            root: Hash(root),
        })
    }
}

/// The text that is signed.
impl fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n{}\n{}", self.origin, self.size, STANDARD.encode(self.root.0))
    }
}

// === impl SignedCheckpoint ===

impl SignedCheckpoint {
    /// Opens a note that must have a signature of this log key.
    pub fn open(note: &[u8], key: &VerifierKey) -> Result<Self, CheckpointError> {
        let unverified = UnverifiedNote::parse(note)?;
        let text = key.open(&unverified)?;
        let checkpoint = Checkpoint::parse(text).map_err(|found| CheckpointError::Malformed {
            signed_by: key.name().clone(),
            found,
        })?;
        if checkpoint.origin != *key.name() {
            return Err(CheckpointError::Origin {
                found: checkpoint.origin,
                expected: key.name().clone(),
            });
        }
        let signatures: String = unverified.signatures().iter().map(ToString::to_string).collect();
        Ok(Self {
            note: format!("{text}\n{signatures}"),
            checkpoint,
        })
    }

    /// The checkpoint.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// The whole note, signatures included.
    pub fn note(&self) -> &str {
        &self.note
    }

    /// The number of signatures: the log's, and cosignatures.
    pub fn signatures(&self) -> usize {
        let parts = self.note.rsplit_once("\n\n");
        parts.map_or(0, |(_, signatures)| signatures.lines().count())
    }

    /// Replaces its signatures with these verified lines. Unchanged if the result would not be a valid note.
    pub(crate) fn sign_with(&mut self, lines: &str) -> Result<(), NoteError> {
        let text = UnverifiedNote::parse(self.note.as_bytes())?;
        let note = format!("{}\n{lines}", text.unverified_text());
        UnverifiedNote::parse(note.as_bytes())?;
        self.note = note;
        Ok(())
    }
}

/// Parses a decimal number in its only canonical form.
pub(crate) fn parse_decimal(digits: &str) -> Option<u64> {
    let number = digits.parse().ok()?;
    (u64::to_string(&number) == digits).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signer() -> NoteSigner {
        NoteSigner::new("example.com/log".parse().unwrap(), &[1; 32])
    }

    fn checkpoint() -> Checkpoint {
        Checkpoint {
            origin: "example.com/log".parse().unwrap(),
            size: 20_852_163,
            root: Hash([0xab; 32]),
        }
    }

    #[test]
    fn what_the_log_signed_is_read_again() {
        let signed = checkpoint().sign(&signer()).unwrap();
        let opened = SignedCheckpoint::open(signed.note().as_bytes(), &signer().verifier_key()).unwrap();
        assert_eq!(opened, signed);
        assert_eq!(opened.checkpoint(), &checkpoint());
        assert!(
            signed
                .note()
                .starts_with("example.com/log\n20852163\nq6urq6urq6urq6urq6urq6urq6urq6urq6urq6urq6s=\n\n— ")
        );
    }

    #[test]
    fn extension_lines_are_ignored_but_stay_in_the_note() {
        let note = signer().sign(&format!("{}more\n", checkpoint())).unwrap();
        let opened = SignedCheckpoint::open(note.as_bytes(), &signer().verifier_key()).unwrap();
        assert_eq!(opened.checkpoint(), &checkpoint());
        assert_eq!(opened.note(), note);
    }

    #[test]
    fn a_signed_text_that_is_not_a_checkpoint_is_refused() {
        let root = STANDARD.encode([0xab; 32]);
        for text in [
            "example.com/log\n".to_owned(),
            "example.com/log\n5\n".to_owned(),
            format!("example.com/log\n05\n{root}\n"),
            format!("example.com/log\n+5\n{root}\n"),
            format!("example.com/log\n-1\n{root}\n"),
            format!("example.com/log\n18446744073709551616\n{root}\n"),
            format!("\n5\n{root}\n"),
            format!("example.com/log\n5\n{}\n", &root[..40]),
            format!("example.com/log\n5\n{root}\n\nmore\n"),
        ] {
            let note = signer().sign(&text).unwrap();
            assert!(
                matches!(
                    SignedCheckpoint::open(note.as_bytes(), &signer().verifier_key()),
                    Err(CheckpointError::Malformed { .. })
                ),
                "{text}"
            );
        }
    }

    #[test]
    fn a_log_cannot_sign_for_another_log() {
        let other = Checkpoint {
            origin: "example.com/other".parse().unwrap(),
            ..checkpoint()
        };
        let note = signer().sign(&other.to_string()).unwrap();
        assert!(matches!(
            SignedCheckpoint::open(note.as_bytes(), &signer().verifier_key()),
            Err(CheckpointError::Origin { .. })
        ));
    }
}
