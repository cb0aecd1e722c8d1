//! Cosignatures: a witness states that this was the log's tree at some time (C2SP tlog-cosignature, `cosignature/v1`).

use crate::checkpoint::SignedCheckpoint;
use crate::note::{NoteError, NoteSignature, OF_CHECKPOINTS, PublicKey, UnverifiedNote};

/// A witness's public key. As text it is a vkey of type 4.
pub type WitnessKey = PublicKey<OF_CHECKPOINTS>;

// === impl WitnessKey ===

impl WitnessKey {
    /// Verifies the witness's cosignatures. Returns the latest time (seconds since 1970) at which the witness says that
    /// the note was the log's latest.
    pub fn open(&self, note: &UnverifiedNote) -> Result<u64, NoteError> {
        let text = note.unverified_text();
        let ours = note.signatures().iter().filter(|signature| self.is_of(signature));
        let latest = self.latest(ours, text)?;
        latest.map(|(time, _)| time).ok_or_else(|| self.unsigned())
    }

    /// Adds the witness's latest cosignature of this checkpoint from its answer, in place of an earlier one. A note has
    /// at most one line for each witness, for any answers, so it stays readable. Other signatures in the answer are
    /// left out.
    pub fn add_to(&self, checkpoint: &mut SignedCheckpoint, answer: &[u8]) -> Result<u64, NoteError> {
        let answer = str::from_utf8(answer).map_err(|_| NoteError::Malformed("it is not UTF-8"))?;
        let signatures = NoteSignature::parse_lines(answer)?;
        let note = UnverifiedNote::parse(checkpoint.note().as_bytes())?;
        let ours = signatures.iter().filter(|signature| self.is_of(signature));
        let (time, latest) = self
            .latest(ours, note.unverified_text())?
            .ok_or_else(|| self.unsigned())?;
        let others = note.signatures().iter().filter(|signature| !self.is_of(signature));
        let lines: String = others.chain([latest]).map(ToString::to_string).collect();
        checkpoint.sign_with(&lines)?;
        Ok(time)
    }

    fn latest<'a>(
        &self,
        signatures: impl Iterator<Item = &'a NoteSignature>,
        text: &str,
    ) -> Result<Option<(u64, &'a NoteSignature)>, NoteError> {
        let mut latest: Option<(u64, &NoteSignature)> = None;
        for line in signatures {
            let (time, signature) = line
                .signature
                .split_first_chunk()
                .ok_or_else(|| self.false_signature())?;
            let time = u64::from_be_bytes(*time);
            // The specification allows at most 2^63 - 1. Zero means a statement about something else.
            if time == 0 || i64::try_from(time).is_err() {
                return Err(self.false_signature());
            }
            self.verify(cosigned_message(time, text).as_bytes(), signature)?;
            if latest.is_none_or(|(before, _)| before < time) {
                latest = Some((time, line));
            }
        }
        Ok(latest)
    }
}

/// The message that a witness signs: a time (seconds since 1970) and a checkpoint's text.
pub fn cosigned_message(time: u64, text: &str) -> String {
    format!("cosignature/v1\ntime {time}\n{text}")
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::{Signer, SigningKey};

    use super::*;
    use crate::checkpoint::Checkpoint;
    use crate::note::{KeyName, NoteSigner};
    use crate::tree::empty_root;

    fn signed() -> SignedCheckpoint {
        let origin: KeyName = "example.com/log".parse().unwrap();
        let checkpoint = Checkpoint {
            origin: origin.clone(),
            size: 0,
            root: empty_root(),
        };
        checkpoint.sign(&NoteSigner::new(origin, &[1; 32])).unwrap()
    }

    fn witness(name: &str) -> (WitnessKey, SigningKey) {
        let secret = SigningKey::from_bytes(&[2; 32]);
        (WitnessKey::new(name.parse().unwrap(), secret.verifying_key()), secret)
    }

    fn line(key: &WitnessKey, secret: &SigningKey, time: u64, text: &str) -> String {
        let signature = secret.sign(cosigned_message(time, text).as_bytes());
        NoteSignature {
            name: key.name().clone(),
            id: key.id(),
            signature: [&time.to_be_bytes(), signature.to_bytes().as_slice()].concat(),
        }
        .to_string()
    }

    #[test]
    fn a_witnesss_cosignature_is_added_and_found_again() {
        let (key, secret) = witness("witness.example/w1");
        assert_eq!(key.to_string().parse::<WitnessKey>().unwrap(), key);
        let mut checkpoint = signed();
        let text = checkpoint.checkpoint().to_string();
        let (stranger, strange) = witness("witness.example/w2");
        let answer = line(&stranger, &strange, 5, &text) + &line(&key, &secret, 1_700_000_000, &text);
        assert_eq!(key.add_to(&mut checkpoint, answer.as_bytes()).unwrap(), 1_700_000_000);
        let note = UnverifiedNote::parse(checkpoint.note().as_bytes()).unwrap();
        assert_eq!(note.signatures().len(), 2);
        assert_eq!(key.open(&note).unwrap(), 1_700_000_000);
        assert!(matches!(stranger.open(&note), Err(NoteError::Unsigned { .. })));
    }

    #[test]
    fn a_note_has_one_line_for_a_witness_however_many_it_sends() {
        let (key, secret) = witness("witness.example/w1");
        let (other, other_secret) = witness("witness.example/w2");
        let mut checkpoint = signed();
        let text = checkpoint.checkpoint().to_string();
        other
            .add_to(&mut checkpoint, line(&other, &other_secret, 7, &text).as_bytes())
            .unwrap();
        // As many lines as an answer may have, for the same checkpoint, after each of several restarts.
        for restart in 0..3 {
            let times = (1..=64).map(|second| 1_000 * (restart + 1) + second);
            let answer: String = times.map(|time| line(&key, &secret, time, &text)).collect();
            assert_eq!(
                key.add_to(&mut checkpoint, answer.as_bytes()).unwrap(),
                1_000 * (restart + 1) + 64
            );
        }
        let note = UnverifiedNote::parse(checkpoint.note().as_bytes()).unwrap();
        assert_eq!(note.signatures().len(), 3, "the log's and one of each witness");
        assert_eq!((key.open(&note).unwrap(), other.open(&note).unwrap()), (3_064, 7));
    }

    #[test]
    fn a_cosignature_of_anything_else_is_not_added() {
        let (key, secret) = witness("witness.example/w1");
        let checkpoint = signed();
        let text = checkpoint.checkpoint().to_string();
        let mut of_another_time = line(&key, &secret, 6, &text);
        of_another_time.insert(0, ' ');
        for answer in [
            String::new(),
            line(&key, &secret, 5, "example.com/log\n1\n"),
            line(&key, &secret, 0, &text),
            line(&key, &secret, u64::MAX, &text),
            line(&key, &secret, 5, &text).trim_end().to_owned(),
            of_another_time,
        ] {
            let mut with = checkpoint.clone();
            assert!(key.add_to(&mut with, answer.as_bytes()).is_err(), "{answer}");
            assert_eq!(with, checkpoint);
        }
    }

    #[test]
    fn a_logs_key_is_not_a_witnesss_key() {
        let log = NoteSigner::new("example.com/log".parse().unwrap(), &[1; 32]).verifier_key();
        assert!(log.to_string().parse::<WitnessKey>().is_err());
    }
}
