//! Witnesses' cosignatures of a checkpoint (C2SP tlog-cosignature): a witness that has signed one has seen no other
//! tree of that log.

use std::io::Write;

use credence_delegation::UnixTime;
use credence_ledger::cosignature::WitnessKey;
use credence_ledger::note::{UnverifiedNote, VerifierKey};

use crate::clock::{LATEST, rfc3339};
use crate::failure::Failure;

/// Which witnesses to ask for.
#[derive(Debug, clap::Args)]
pub(super) struct WitnessOptions {
    /// A witness that must have cosigned the checkpoint (repeatable): its key, as in ledger.witnesses of the
    /// configuration. Without it, cosignatures are counted and not checked.
    #[arg(long = "witness", value_name = "VKEY", conflicts_with = "signatures")]
    pub(super) keys: Vec<WitnessKey>,
}

// === impl WitnessOptions ===

impl WitnessOptions {
    /// Whether every witness has cosigned the log's note. Prints which have, when, and which have not.
    pub(super) fn check(&self, note: &str, log: &VerifierKey, out: &mut impl Write) -> Result<bool, Failure> {
        let note = UnverifiedNote::parse(note.as_bytes())
            .map_err(|error| Failure::operation(format!("the checkpoint's cosignatures: {error}")))?;
        if self.keys.is_empty() {
            let others = note.signatures().iter();
            let count = others
                .filter(|signature| signature.id != log.id() || signature.name != *log.name())
                .count();
            if count > 0 {
                writeln!(
                    out,
                    "not checked: {count} cosignatures: give the witnesses' keys as --witness"
                )?;
            }
            return Ok(true);
        }
        let mut is_cosigned = true;
        for key in &self.keys {
            match key.open(&note) {
                Ok(time) => {
                    let time = rfc3339(UnixTime(i64::try_from(time).unwrap_or(LATEST).min(LATEST)));
                    writeln!(out, "cosigned: by {} at {time}", key.name())?;
                }
                Err(error) => {
                    writeln!(out, "NOT COSIGNED: {error}")?;
                    is_cosigned = false;
                }
            }
        }
        Ok(is_cosigned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(witnesses: &[&str], note: &str) -> (bool, String) {
        let keys = witnesses.iter().map(|key| key.parse().unwrap()).collect();
        let mut out = Vec::new();
        let is_cosigned = WitnessOptions { keys }.check(note, &LOG.parse().unwrap(), &mut out);
        (is_cosigned.unwrap(), String::from_utf8(out).unwrap())
    }

    #[test]
    fn a_witness_that_is_asked_for_has_to_have_cosigned() {
        let first = "cosigned: by witness.example/w1 at 2023-11-14T22:13:20Z\n";
        assert_eq!(said(&[FIRST], NOTE), (true, first.to_owned()));
        let (is_cosigned, said) = said(&[FIRST, SECOND], NOTE);
        assert!(!is_cosigned);
        assert!(
            said.starts_with(first) && said.contains("NOT COSIGNED: the note has no signature of witness.example/w2")
        );
    }

    #[test]
    fn a_cosignature_of_another_tree_is_false() {
        let (is_cosigned, said) = said(&[FIRST], &NOTE.replace("\n0\n", "\n1\n"));
        assert!(!is_cosigned && said.contains("is invalid"), "{said}");
    }

    #[test]
    fn cosignatures_without_a_key_are_reported_as_not_checked() {
        let (is_cosigned, said) = said(&[], NOTE);
        assert!(is_cosigned && said.starts_with("not checked: 1 cosignatures"), "{said}");
    }

    // Made with other implementations of Ed25519 and SHA-256, from the seeds 1, 2 and 3 (32 times), of an empty tree.
    const LOG: &str = "example.com/log+9be5d3c6+AYqI4910CfGV/VLbLTy6XXLKZwm/HZQSG/N0iAG0D29c";
    const FIRST: &str = "witness.example/w1+df1c0a35+BIE5dw6ofRdfVqNUZsNMfszLjYqRtO43ol32D1uPybOU";
    const SECOND: &str = "witness.example/w2+bfff2874+BO1JKMYo0cLG6ukDOJBZlWEpWSc6XGP5NjbBRhSshzfR";
    const NOTE: &str = "example.com/log\n0\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n\n\
        — example.com/log m+XTxucYSiNuRvCVt2ZOCAgI+6rbvdUZF/wq/FFzTxp5aOBmMzUYAu9M5FwOpTu763a3Dpg2vMM8zOWJAmshLUKn/wo=\n\
        — witness.example/w1 3xwKNQAAAABlU/EAQ93c104z8a2olqzkOGxER/oARnxToWIWkmtF/FZcsmK1g5DUHe5uj/Sk0oJCPVIhUpLvriFbR8cKXcm/IXrcAw==\n";
}
