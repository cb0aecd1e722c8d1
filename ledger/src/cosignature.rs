//! Cosignatures: a witness's word that at some time this was the log's tree (C2SP tlog-cosignature, `cosignature/v1`).

use std::fmt;
use std::str::FromStr;

use crate::checkpoint::SignedCheckpoint;
use crate::note::{KeyId, KeyName, NoteError, NoteSignature, PublicKey, SignatureType, UnverifiedNote};

/// A witness's public key. As text it is a vkey of type 4.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WitnessKey(PublicKey);

// === impl WitnessKey ===

impl WitnessKey {
    /// When the witness says that the note was the log's latest (seconds since 1970): the latest time, if it says
    /// so more than once.
    pub fn open(&self, note: &UnverifiedNote) -> Result<u64, NoteError> {
        let text = note.unverified_text();
        self.latest(note.signatures_of(&self.0), text)?
            .ok_or_else(|| self.0.unsigned())
    }

    /// Adds the witness's cosignatures in its answer to the checkpoint that it was asked about. What others signed in
    /// the answer is left out.
    pub fn add_to(&self, checkpoint: &mut SignedCheckpoint, answer: &[u8]) -> Result<u64, NoteError> {
        let answer = str::from_utf8(answer).map_err(|_| NoteError::Malformed("it is not UTF-8"))?;
        let signatures = NoteSignature::parse_lines(answer)?;
        let ours = || {
            signatures
                .iter()
                .filter(|signature| signature.id == self.0.id() && signature.name == *self.0.name())
        };
        let text = UnverifiedNote::parse(checkpoint.note().as_bytes())?;
        let time = self
            .latest(ours(), text.unverified_text())?
            .ok_or_else(|| self.0.unsigned())?;
        let lines: String = ours().map(ToString::to_string).collect();
        checkpoint.add_lines(&lines);
        Ok(time)
    }

    /// Whose key it is.
    pub fn name(&self) -> &KeyName {
        self.0.name()
    }

    /// Which of its owner's keys it is.
    pub fn id(&self) -> KeyId {
        self.0.id()
    }

    fn latest<'a>(
        &self,
        signatures: impl Iterator<Item = &'a NoteSignature>,
        text: &str,
    ) -> Result<Option<u64>, NoteError> {
        let mut latest = None;
        for signature in signatures {
            let (time, signature) = signature
                .signature
                .split_first_chunk()
                .ok_or_else(|| self.0.false_signature())?;
            let time = u64::from_be_bytes(*time);
            // No more than 2^63 - 1 says the specification; and none is a statement about another thing.
            if time == 0 || i64::try_from(time).is_err() {
                return Err(self.0.false_signature());
            }
            self.0.verify(cosigned_message(time, text).as_bytes(), signature)?;
            latest = latest.max(Some(time));
        }
        Ok(latest)
    }
}

impl FromStr for WitnessKey {
    type Err = NoteError;

    fn from_str(text: &str) -> Result<Self, NoteError> {
        Ok(Self(PublicKey::parse(text, SignatureType::Cosignature)?))
    }
}

/// As text (`name+hash+base64`).
impl fmt::Display for WitnessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a witness signs at a time (seconds since 1970) of a checkpoint's text.
pub fn cosigned_message(time: u64, text: &str) -> String {
    format!("cosignature/v1\ntime {time}\n{text}")
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::{Signer, SigningKey};

    use super::*;
    use crate::checkpoint::Checkpoint;
    use crate::note::NoteSigner;
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
        let key = PublicKey::new(
            name.parse().unwrap(),
            SignatureType::Cosignature,
            secret.verifying_key(),
        );
        (WitnessKey(key), secret)
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
    fn a_logs_key_is_no_witnesss_key() {
        let log = NoteSigner::new("example.com/log".parse().unwrap(), &[1; 32]).verifier_key();
        assert!(log.to_string().parse::<WitnessKey>().is_err());
    }
}
