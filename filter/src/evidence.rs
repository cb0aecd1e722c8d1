//! The record of a decision: which go into the ledger one by one, which are only counted, and what is written.

use credence_delegation::VerifiedChain;
use credence_wire::v1;
use sha2::{Digest, Sha256};
use siphasher::sip128::{Hasher128, SipHasher24};
use std::hash::Hasher;

use crate::audit::Standing;
use crate::clock::UnixNanos;
use crate::config::{Access, Mode, RecordedArguments};
use crate::decision::{Allowance, Class, Decision};
use crate::engine::{Agent, Lookup, Verdict};
use crate::identity::hex;
use crate::request::Request;

/// How a decision is to be recorded.
#[derive(Debug, PartialEq)]
pub enum Record {
    /// As an event of its own: a decision on a verified chain. The standing says who could cause it.
    Event(Box<v1::Event>, Standing),
    /// As one more of its kind in this second: a denial before any signature had verified, or of somebody who showed
    /// another's chain and could not prove to be its holder. Anybody can cause these, and a flood of them must not
    /// write the ledger full, nor in another's name.
    Count,
    /// Not at all: nothing was delegated and nothing denied.
    Nothing,
}

/// Writes records.
#[derive(Debug)]
pub struct Recorder {
    arguments: RecordedArguments,
    salt_secret: [u8; 16],
    salts: u64,
}

impl Recorder {
    /// A recorder; `salt_secret` is random.
    pub fn new(arguments: RecordedArguments, salt_secret: [u8; 16]) -> Self {
        Self {
            arguments,
            salt_secret,
            salts: 0,
        }
    }

    /// What is to be recorded of a decision on `request` that was begun at `began` and took `decision_ns`.
    pub fn record(
        &mut self,
        verdict: &Verdict<'_>,
        request: &Request<'_>,
        began: UnixNanos,
        decision_ns: u64,
    ) -> Record {
        let (decision, reason) = match &verdict.decision {
            Decision::Allow(Allowance::Public | Allowance::Unmatched) => return Record::Nothing,
            Decision::Allow(allowance @ Allowance::Delegated(_)) => (v1::Decision::Allow, allowance.code()),
            Decision::Deny(denial) => (v1::Decision::Deny, denial.reason.code()),
        };
        let (Some(cached), Some(rule)) = (&verdict.findings.chain, verdict.rule) else {
            return Record::Count;
        };
        let Access::Delegated(requirement) = &rule.access else {
            return Record::Count;
        };
        let proven = matches!(verdict.findings.agent, Some(Agent::Key(_) | Agent::Certificate(_)));
        let standing = match &verdict.decision {
            Decision::Deny(denial) if !proven && denial.reason.class() == Class::Proof => return Record::Count,
            Decision::Deny(_) if !proven => Standing::Unverified,
            Decision::Deny(_) | Decision::Allow(_) => Standing::Verified,
        };
        let cache = match verdict.findings.lookup {
            Some(Lookup::Hit) => v1::CacheLevel::L1,
            Some(Lookup::Shared) => v1::CacheLevel::L2,
            Some(Lookup::Beginning | Lookup::Miss | Lookup::Refused) | None => v1::CacheLevel::None,
        };
        let event = v1::Event {
            time_unix_nano: began.as_nanos(),
            request_id: bounded(request.request_id.unwrap_or_default()),
            trace_id: trace_id(request.traceparent.unwrap_or_default()),
            rule: rule.name.clone(),
            tool: requirement.tool.clone(),
            decision: decision.into(),
            reason: reason.to_owned(),
            mode: match verdict.mode {
                Mode::Enforce => v1::Mode::Enforce,
                Mode::Shadow => v1::Mode::Shadow,
            }
            .into(),
            principal: Some(principal(&cached.chain)),
            agent: match verdict.findings.agent {
                Some(Agent::Key(thumbprint)) => thumbprint.to_string(),
                Some(Agent::Certificate(digest)) => hex(&digest),
                Some(Agent::Bearer) | None => String::new(),
            },
            proof: match verdict.findings.agent {
                Some(Agent::Key(_)) => v1::ProofKind::Pop,
                Some(Agent::Certificate(_)) => v1::ProofKind::Mtls,
                Some(Agent::Bearer) => v1::ProofKind::None,
                None => v1::ProofKind::Unspecified,
            }
            .into(),
            delegation_ids: cached.chain.tokens().map(|token| token.id().to_owned()).collect(),
            arguments_hash: self.arguments_hash(verdict.findings.arguments.as_deref()),
            method: bounded(request.method),
            authority: bounded(request.authority),
            path_template: rule.path_template.clone(),
            cache: cache.into(),
            decision_ns,
            stale_ms: verdict
                .findings
                .stale
                .map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
        };
        Record::Event(Box::new(event), standing)
    }

    /// 16 bytes of salt, then SHA-256 over the salt and the canonical arguments. The salt is new each time, so that
    /// equal arguments do not show as equal, and whoever may read the event can still confirm a guess.
    fn arguments_hash(&mut self, arguments: Option<&str>) -> Vec<u8> {
        let (RecordedArguments::Hash, Some(arguments)) = (self.arguments, arguments) else {
            return Vec::new();
        };
        self.salts = self.salts.wrapping_add(1);
        let mut salt = SipHasher24::new_with_key(&self.salt_secret);
        salt.write_u64(self.salts);
        let salt = salt.finish128().as_bytes();
        let digest = Sha256::new().chain_update(salt).chain_update(arguments).finalize();
        [salt.as_slice(), digest.as_slice()].concat()
    }
}

fn principal(chain: &VerifiedChain) -> v1::Principal {
    let principal = chain.principal();
    v1::Principal {
        issuer: principal.issuer.clone(),
        subject: principal.subject.clone(),
    }
}

/// A header's value as text of bounded length. The client chose it; it must not make the event too large to keep.
fn bounded(value: &[u8]) -> String {
    let cut = value.get(..MAX_TEXT_BYTES).unwrap_or(value);
    String::from_utf8_lossy(cut).into_owned()
}

/// The trace id of a W3C traceparent, or nothing if it is not one.
fn trace_id(traceparent: &[u8]) -> String {
    let id = std::str::from_utf8(traceparent)
        .ok()
        .and_then(|text| text.split('-').nth(1));
    match id {
        Some(id) if id.len() == 32 && id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) => id.to_owned(),
        _ => String::new(),
    }
}

/// Bytes of a text that a client chose.
const MAX_TEXT_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_id_is_32_hexadecimal_digits() {
        let id = "4bf92f3577b34da6a3ce929d0e0e4736";
        assert_eq!(trace_id(format!("00-{id}-00f067aa0ba902b7-01").as_bytes()), id);
        for wrong in [
            "",
            "00",
            "00-xyz-1-01",
            &format!("00-{}-1-01", id.to_uppercase()),
            "\u{fffd}",
        ] {
            assert_eq!(trace_id(wrong.as_bytes()), "", "{wrong}");
        }
    }

    #[test]
    fn client_text_is_cut() {
        assert_eq!(bounded(&[b'x'; 1000]).len(), 256);
        assert_eq!(bounded(b"\xff"), "\u{fffd}");
    }

    #[test]
    fn equal_arguments_do_not_look_equal_and_can_be_confirmed() {
        let mut recorder = Recorder::new(RecordedArguments::Hash, [3; 16]);
        let (one, two) = (recorder.arguments_hash(Some("{}")), recorder.arguments_hash(Some("{}")));
        assert_ne!(one, two);
        let (salt, digest) = one.split_at(16);
        assert_eq!(
            Sha256::new()
                .chain_update(salt)
                .chain_update("{}")
                .finalize()
                .as_slice(),
            digest
        );
        assert_eq!(recorder.arguments_hash(None), Vec::<u8>::new());
        assert_eq!(
            Recorder::new(RecordedArguments::None, [3; 16]).arguments_hash(Some("{}")),
            Vec::<u8>::new()
        );
    }
}
