//! The record of a decision: whether it is an event or only counted, and its contents.

use credence_delegation::Principal;
use credence_wire::v1;
use prost::encoding::{WireType, encode_key, encode_varint, fixed64, uint64};
use sha2::{Digest, Sha256};
use siphasher::sip128::{Hasher128, SipHasher24};
use std::hash::Hasher;

use super::counts::{Kind, NO_RULE};
use super::denials::{DenialCap, Denied};
use super::ring::{Owner, Trust, framed};
use crate::agent::Agent;
use crate::chains::{CachedChain, Reported};
use crate::clock::UnixNanos;
use crate::config::{Audit, Mode, RecordedArguments, Rule};
use crate::credential::Credential;
use crate::decision::{Allowance, Class, Decision, Reason};
use crate::engine::{Findings, Lookup, Verdict};
use crate::request::Request;

/// A decision that is recorded as an event: one on a verified chain.
#[derive(Debug, PartialEq)]
pub struct Record<'e> {
    /// The event, encoded.
    pub event: &'e [u8],
    /// The principal whose share of the ring it uses, and its trust.
    pub owner: Owner,
    /// Whether the chain is also sent, if the control plane does not have it yet.
    pub with_chain: bool,
}

/// Creates records.
#[derive(Debug)]
pub struct Recorder {
    arguments: RecordedArguments,
    denials: DenialCap,
    salt_secret: [u8; 16],
    salts: u64,
    /// Which ledger is reported to; see [`Reported::Sent`].
    pub ledger: u32,
    /// The event being encoded.
    event: Vec<u8>,
}

impl Recorder {
    /// A recorder; `salt_secret` is random.
    pub fn new(settings: &Audit, salt_secret: [u8; 16]) -> Self {
        Self {
            arguments: settings.arguments,
            denials: DenialCap::new(settings.denials_per_second.get()),
            salt_secret,
            salts: 0,
            ledger: 0,
            event: Vec::new(),
        }
    }

    /// The record of a decision on `request`. The decision began at `began` and took `decision_ns`, if that was
    /// measured.
    ///
    /// `None` if the decision is only counted, by kind and second. That applies to requests that need no delegation; to
    /// denials before any signature was verified; to denials of a client that presented another holder's chain without
    /// a proof; to denials for lack of room in the ring; and to denials beyond the limit of a holder or principal. Any
    /// caller can cause these, and a flood of them must not fill the ledger, nor appear under another's name.
    ///
    /// An event is encoded directly, and the part that is the same for every request of a grant is encoded once: this
    /// runs on every request.
    pub fn record(
        &mut self,
        verdict: &Verdict<'_>,
        request: &Request<'_>,
        began: UnixNanos,
        decision_ns: Option<u64>,
    ) -> Option<Record<'_>> {
        let chain = verdict.findings.chain.as_ref()?;
        let rule = verdict.rule?;
        let requirement = rule.requirement.as_ref()?;
        let second = began.second();
        let (trust, with_chain) = match &verdict.decision {
            Decision::Allow(_) => (Trust::Verified, true),
            Decision::Deny(denial) => {
                let denied = self.denied(chain, &verdict.findings, denial.reason, second)?;
                let with_chain = self.sends_chain(chain, denied, rule, request, second);
                (trust(&verdict.findings, denial.reason), with_chain)
            }
        };
        let owner = Owner {
            trust,
            share: Some(match trust {
                Trust::Verified => chain.sharers.principal,
                // A client that has copied a chain must not use its holder's share.
                Trust::Unverified => chain.sharers.principal.in_role(UNVERIFIED_ROLE),
            }),
        };
        self.event.clear();
        let constant = Constant {
            chain,
            rule,
            tool: match &verdict.findings.mcp {
                Some(mcp) => mcp.tool.as_deref().unwrap_or_default(),
                None => requirement.tool().unwrap_or_default(),
            },
            verdict,
        };
        let findings = &verdict.findings;
        match (&findings.cached_decision, &verdict.decision) {
            (Some(cached), _) => {
                let evidence = cached.evidence(|event| {
                    constant.write(event);
                    put_request(event, request, findings);
                });
                self.event.extend_from_slice(evidence);
            }
            (None, Decision::Allow(Allowance::Delegated(grant))) => {
                let evidence = grant.evidence(|event| constant.write(event));
                self.event.extend_from_slice(evidence);
                put_request(&mut self.event, request, findings);
            }
            (None, Decision::Allow(_) | Decision::Deny(_)) => {
                constant.write(&mut self.event);
                put_request(&mut self.event, request, findings);
            }
        }
        let full = findings
            .arguments
            .as_deref()
            .filter(|arguments| self.records_in_full(arguments));
        let hash = match full {
            Some(_) => None,
            None => self.arguments_hash(findings.arguments.as_deref()),
        };
        let event = &mut self.event;
        fixed64::encode(field::TIME, &began.0, event);
        put_text(event, field::REQUEST_ID, request.request_id.unwrap_or_default());
        put_bytes(
            event,
            field::TRACE_ID,
            trace_id(request.traceparent.unwrap_or_default()).as_bytes(),
        );
        put_bytes(
            event,
            field::ARGUMENTS_HASH,
            hash.as_ref().map_or(&[], <[u8; _]>::as_slice),
        );
        put_number(event, field::DECISION_NS, decision_ns);
        put_number(
            event,
            field::STALE_MS,
            findings
                .stale
                .map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
        );
        put_bytes(event, field::ARGUMENTS, full.unwrap_or_default().as_bytes());
        Some(Record {
            event,
            owner,
            with_chain,
        })
    }

    /// The kind of a recorded denial on a verified chain; `None` if it is only counted.
    fn denied(&mut self, chain: &CachedChain, findings: &Findings, reason: Reason, second: i64) -> Option<Denied> {
        let denied = match reason {
            Reason::AuditFull => return None,
            // Not in the holder's name.
            _ if !is_proven(findings) && reason.class() == Class::Proof => return None,
            _ if reason.is_revocation() => Denied::Revoked,
            _ if is_proven(findings) && reason.class() != Class::Proof => Denied::Proven,
            _ => Denied::Unproven,
        };
        self.denials.admits(chain.sharers, denied, second).then_some(denied)
    }

    /// Whether a recorded denial sends its chain, if the control plane does not have it.
    fn sends_chain(
        &mut self,
        chain: &CachedChain,
        denied: Denied,
        rule: &Rule,
        request: &Request<'_>,
        second: i64,
    ) -> bool {
        let Some(presented) = presented_tokens(rule, request) else {
            return false;
        };
        chain.reported.get() != (Reported::Sent { ledger: self.ledger })
            && self
                .denials
                .admits_chain(chain.sharers.principal, denied, presented.len(), second)
    }

    /// The chain as presented, so that the control plane can verify it too: an encoded `v1::PresentedChain`.
    pub fn presented(chain: &CachedChain, presented: &[u8]) -> Vec<u8> {
        let mut message = Vec::with_capacity(presented.len().saturating_add(USUAL_PRINCIPAL_BYTES));
        put_bytes(&mut message, field::CHAIN, presented);
        put_principal(&mut message, field::CHAIN_PRINCIPAL, chain.chain.principal());
        message
    }

    fn records_in_full(&self, arguments: &str) -> bool {
        self.arguments == RecordedArguments::Full && arguments.len() <= MAX_ARGUMENTS_BYTES
    }

    /// 16 bytes of salt, then SHA-256 over the salt and the canonical arguments. The salt is new each time. So equal
    /// arguments do not look equal, but a reader of the event can still confirm a guess.
    fn arguments_hash(&mut self, arguments: Option<&str>) -> Option<ArgumentsHash> {
        let arguments = arguments.filter(|_| self.arguments != RecordedArguments::None)?;
        self.salts = self.salts.wrapping_add(1);
        let mut salt = SipHasher24::new_with_key(&self.salt_secret);
        salt.write_u64(self.salts);
        let salt = salt.finish128().as_bytes();
        let digest = Sha256::new().chain_update(salt).chain_update(arguments).finalize();
        let mut hash = [0; SALT_BYTES + DIGEST_BYTES];
        let (of_salt, of_digest) = hash.split_at_mut(SALT_BYTES);
        of_salt.copy_from_slice(&salt);
        of_digest.copy_from_slice(&digest);
        Some(hash)
    }
}

/// The tokens of a request under this rule.
pub(super) fn presented_tokens<'r>(rule: &Rule, request: &Request<'r>) -> Option<&'r [u8]> {
    let credential = Credential::of(request, rule.requirement.as_ref()?).ok()?;
    Some(credential.tokens)
}

/// The kind under which a decision is counted.
pub fn kind<'v>(verdict: &Verdict<'v>) -> Kind<'v> {
    let (decision, reason) = match &verdict.decision {
        Decision::Allow(allowance) => (v1::Decision::Allow, allowance.code()),
        Decision::Deny(denial) => (v1::Decision::Deny, denial.reason.code()),
    };
    Kind {
        rule: verdict.rule.map_or(NO_RULE, |rule| &rule.name),
        reason,
        decision,
        mode: match verdict.mode {
            Mode::Enforce => v1::Mode::Enforce,
            Mode::Shadow => v1::Mode::Shadow,
        },
    }
}

/// Whether the caller has proven possession of the holder key.
fn is_proven(findings: &Findings) -> bool {
    matches!(
        findings.agent,
        Some(Agent::Key(_) | Agent::DpopKey(_) | Agent::Certificate(_))
    )
}

/// The trust of a denial's event.
fn trust(findings: &Findings, reason: Reason) -> Trust {
    // The proof was valid once, so any client that has seen it can replay it.
    if is_proven(findings) && reason.class() != Class::Proof {
        Trust::Verified
    } else {
        Trust::Unverified
    }
}

/// Separates the share of a principal's chains with other holders from its own share.
const UNVERIFIED_ROLE: u32 = 1;

/// The part of an event that is the same for one chain, rule, agent and outcome.
struct Constant<'a> {
    chain: &'a CachedChain,
    rule: &'a Rule,
    tool: &'a str,
    verdict: &'a Verdict<'a>,
}

impl Constant<'_> {
    fn write(&self, event: &mut Vec<u8>) {
        let Kind {
            decision, reason, mode, ..
        } = kind(self.verdict);
        let (proof, agent) = match self.verdict.findings.agent {
            Some(Agent::Key(thumbprint)) => (v1::ProofKind::Pop, thumbprint.to_string()),
            Some(Agent::DpopKey(thumbprint)) => (v1::ProofKind::Dpop, thumbprint.to_string()),
            Some(Agent::Certificate(digest)) => (v1::ProofKind::Mtls, base16ct::lower::encode_string(&digest)),
            Some(Agent::Bearer) => (v1::ProofKind::None, String::new()),
            None => (v1::ProofKind::Unspecified, String::new()),
        };
        put_bytes(event, field::RULE, self.rule.name.as_bytes());
        put_bytes(event, field::TOOL, self.tool.as_bytes());
        put_enum(event, field::DECISION, decision.into());
        put_bytes(event, field::REASON, reason.as_bytes());
        put_enum(event, field::MODE, mode.into());
        put_principal(event, field::PRINCIPAL, self.chain.chain.principal());
        put_bytes(event, field::AGENT, agent.as_bytes());
        put_enum(event, field::PROOF, proof.into());
        for token in self.chain.chain.tokens() {
            put_present_bytes(event, field::DELEGATION_IDS, token.id().as_bytes());
        }
        let expires_at = u64::try_from(self.chain.chain.expires_at().0).ok();
        put_number(event, field::EXPIRES_AT, expires_at.filter(|seconds| *seconds != 0));
        put_bytes(event, field::PATH_TEMPLATE, self.rule.path_template.as_bytes());
        put_bytes(event, field::CHAIN_DIGEST, &self.chain.digest);
        put_bytes(
            event,
            field::CLIENT,
            self.chain.chain.client().unwrap_or_default().as_bytes(),
        );
        for actor in self.chain.chain.actors() {
            put_present_bytes(event, field::ACTORS, actor.as_bytes());
        }
    }
}

/// The further part that equal requests share.
fn put_request(event: &mut Vec<u8>, request: &Request<'_>, findings: &Findings) {
    put_text(event, field::METHOD, request.method);
    put_text(event, field::AUTHORITY, request.authority);
    put_enum(event, field::CACHE, cache_level(findings.lookup).into());
    let mcp_method = findings.mcp.as_ref().and_then(|mcp| mcp.method.as_deref());
    put_bytes(event, field::MCP_METHOD, mcp_method.unwrap_or_default().as_bytes());
}

fn cache_level(lookup: Option<Lookup>) -> v1::CacheLevel {
    match lookup {
        Some(Lookup::Hit) => v1::CacheLevel::L1,
        Some(Lookup::Shared) => v1::CacheLevel::L2,
        Some(Lookup::Beginning | Lookup::Miss | Lookup::Refused) | None => v1::CacheLevel::None,
    }
}

/// The trace id of a W3C traceparent; empty if it is invalid.
fn trace_id(traceparent: &[u8]) -> &str {
    let id = std::str::from_utf8(traceparent)
        .ok()
        .and_then(|text| text.split('-').nth(1));
    match id {
        Some(id) if id.len() == 32 && id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) => id,
        _ => "",
    }
}

// The encoding of v1::Event, field by field: https://protobuf.dev/programming-guides/encoding/. As in proto3, empty and
// zero values are omitted.

/// The numbers of the fields in audit.proto.
mod field {
    pub(super) const TIME: u32 = 1;
    pub(super) const REQUEST_ID: u32 = 2;
    pub(super) const TRACE_ID: u32 = 3;
    pub(super) const RULE: u32 = 4;
    pub(super) const TOOL: u32 = 5;
    pub(super) const DECISION: u32 = 6;
    pub(super) const REASON: u32 = 7;
    pub(super) const MODE: u32 = 8;
    pub(super) const PRINCIPAL: u32 = 9;
    pub(super) const AGENT: u32 = 10;
    pub(super) const PROOF: u32 = 11;
    pub(super) const DELEGATION_IDS: u32 = 12;
    pub(super) const ARGUMENTS_HASH: u32 = 13;
    pub(super) const METHOD: u32 = 14;
    pub(super) const AUTHORITY: u32 = 15;
    pub(super) const PATH_TEMPLATE: u32 = 16;
    pub(super) const CACHE: u32 = 17;
    pub(super) const DECISION_NS: u32 = 18;
    pub(super) const STALE_MS: u32 = 19;
    pub(super) const EXPIRES_AT: u32 = 20;
    pub(super) const CHAIN_DIGEST: u32 = 21;
    pub(super) const ARGUMENTS: u32 = 22;
    pub(super) const CLIENT: u32 = 24;
    pub(super) const ACTORS: u32 = 25;
    pub(super) const MCP_METHOD: u32 = 26;
    /// In `PresentedChain`.
    pub(super) const CHAIN: u32 = 1;
    pub(super) const CHAIN_PRINCIPAL: u32 = 2;
    /// In `Principal`.
    pub(super) const ISSUER: u32 = 1;
    pub(super) const SUBJECT: u32 = 2;
}

fn put_bytes(event: &mut Vec<u8>, number: u32, value: &[u8]) {
    if !value.is_empty() {
        put_present_bytes(event, number, value);
    }
}

fn put_present_bytes(event: &mut Vec<u8>, number: u32, value: &[u8]) {
    encode_key(number, WireType::LengthDelimited, event);
    encode_varint(value.len() as u64, event);
    event.extend_from_slice(value);
}

/// Adds a header's value as text of bounded length. The client chose it, and it must not make the event too large.
fn put_text(event: &mut Vec<u8>, number: u32, value: &[u8]) {
    let cut = value.get(..MAX_TEXT_BYTES).unwrap_or(value);
    // Nearly all values are ASCII, which is already valid text.
    if cut.is_ascii() {
        put_bytes(event, number, cut);
    } else {
        put_bytes(event, number, String::from_utf8_lossy(cut).as_bytes());
    }
}

fn put_enum(event: &mut Vec<u8>, number: u32, value: i32) {
    put_number(event, number, u64::try_from(value).ok().filter(|value| *value != 0));
}

fn put_number(event: &mut Vec<u8>, number: u32, value: Option<u64>) {
    if let Some(value) = value {
        uint64::encode(number, &value, event);
    }
}

fn put_principal(event: &mut Vec<u8>, number: u32, principal: &Principal) {
    let issuer = framed(principal.issuer.len());
    let subject = principal.subject.as_ref().map_or(0, |subject| framed(subject.len()));
    encode_key(number, WireType::LengthDelimited, event);
    encode_varint(issuer.saturating_add(subject) as u64, event);
    put_present_bytes(event, field::ISSUER, principal.issuer.as_bytes());
    if let Some(subject) = &principal.subject {
        // Present even if empty: no subject and an empty subject are different principals.
        put_present_bytes(event, field::SUBJECT, subject.as_bytes());
    }
}

/// A salt and a SHA-256.
type ArgumentsHash = [u8; SALT_BYTES + DIGEST_BYTES];

const SALT_BYTES: usize = 16;
const DIGEST_BYTES: usize = 32;

/// Bytes of a text from the client.
const MAX_TEXT_BYTES: usize = 256;

/// Bytes of arguments that are recorded in full. With them, the largest event is still far below the ring's limit.
pub const MAX_ARGUMENTS_BYTES: usize = 4096;

/// The usual length of a principal's name.
const USUAL_PRINCIPAL_BYTES: usize = 128;

#[cfg(test)]
mod tests {
    use std::rc::Rc;
    use std::time::Duration;

    use credence_delegation::{UnixTime, VerifiedChain};
    use prost::Message as _;

    use super::*;
    use crate::chains::ChainCache;
    use crate::config::Policy;
    use crate::decision::Reason;
    use crate::engine::Findings;
    use crate::grant::Grant;
    use crate::identity_headers::{Identity, IdentityHeaders};
    use crate::request::tests::serialize;
    use crate::samples;
    use crate::usage_sketch::Amount;

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

    /// Every field of an allowed request's event, as the control plane decodes it.
    #[test]
    fn an_event_has_every_field() {
        let scene = Scene::new();
        let mut recorder = recorder(RecordedArguments::Hash);
        let agent = Agent::Key(samples::key(2).public().thumbprint());
        let grant = Identity::new(&scene.chain.chain, agent, Some("pay"), IdentityHeaders::Separate)
            .map(|identity| Grant::new(0, agent, None, identity));
        let mut verdict = scene.verdict(Decision::Allow(Allowance::Delegated(Rc::new(grant.unwrap()))));
        verdict.findings.agent = Some(agent);
        verdict.findings.lookup = Some(Lookup::Hit);
        verdict.findings.arguments = Some("{}".into());
        verdict.findings.stale = Some(Duration::from_millis(1500));
        let expected = v1::Event {
            time_unix_nano: 1_800_000_000_000_000_007,
            request_id: "4f5d1b7a".to_owned(),
            trace_id: "4bf92f3577b34da6a3ce929d0e0e4736".to_owned(),
            rule: "charge".to_owned(),
            tool: "pay".to_owned(),
            decision: v1::Decision::Allow.into(),
            reason: "delegated".to_owned(),
            mode: v1::Mode::Enforce.into(),
            principal: Some(v1::Principal {
                issuer: samples::ISSUER.to_owned(),
                subject: Some("ada".to_owned()),
            }),
            agent: samples::key(2).public().thumbprint().to_string(),
            proof: v1::ProofKind::Pop.into(),
            delegation_ids: scene.chain.chain.tokens().map(|token| token.id().to_owned()).collect(),
            arguments_hash: Vec::new(),
            method: "POST".to_owned(),
            authority: "payments.example".to_owned(),
            path_template: "/charges/{id}".to_owned(),
            cache: v1::CacheLevel::L1.into(),
            decision_ns: 70_000,
            stale_ms: Some(1500),
            expires_at: scene.chain.chain.expires_at().0,
            chain_digest: scene.chain.chain.digest().to_vec(),
            ..Default::default()
        };
        // The second time, the constant part comes from the grant.
        for _ in 0..2 {
            let mut event = scene.event(&mut recorder, &verdict, Some(70_000));
            assert_eq!(event.arguments_hash.len(), SALT_BYTES + DIGEST_BYTES);
            event.arguments_hash.clear();
            assert_eq!(event, expected);
        }
    }

    #[test]
    fn an_event_omits_unknown_fields() {
        let scene = Scene::new();
        let verdict = scene.verdict(Decision::Deny(Reason::Expired.into()));
        let event = scene.event(&mut recorder(RecordedArguments::None), &verdict, None);
        assert_eq!(
            (event.reason.as_str(), event.decision),
            ("expired", v1::Decision::Deny.into())
        );
        assert_eq!((event.agent.as_str(), event.arguments_hash.len()), ("", 0));
        assert_eq!((event.proof, event.decision_ns, event.stale_ms), (0, 0, None));
    }

    /// A client that has seen a proof can replay it. Its events must not use the room reserved for the signer.
    #[test]
    fn a_replayed_proof_does_not_raise_the_trust_of_evidence() {
        let scene = Scene::new();
        let trust = |reason: Reason| {
            let mut verdict = scene.verdict(Decision::Deny(reason.into()));
            verdict.findings.agent = Some(Agent::Key(samples::key(2).public().thumbprint()));
            let request = Request::parse(&scene.request, &scene.policy.headers, false).unwrap();
            let mut recorder = recorder(RecordedArguments::None);
            match recorder.record(&verdict, &request, UnixNanos(1), None) {
                Some(Record { owner, .. }) => owner.trust,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(trust(Reason::ProofReplayed), Trust::Unverified);
        assert_eq!(trust(Reason::ToolNotGranted), Trust::Verified);
    }

    #[test]
    fn client_text_is_cut_and_converted_to_utf_8() {
        let put = |value: &[u8]| {
            let mut event = Vec::new();
            put_text(&mut event, field::METHOD, value);
            v1::Event::decode(event.as_slice()).unwrap().method
        };
        assert_eq!(put(&[b'x'; 1000]).len(), 256);
        assert_eq!(put(b"\xff"), "\u{fffd}");
    }

    #[test]
    fn equal_arguments_do_not_look_equal_and_can_be_confirmed() {
        let mut recorder = recorder(RecordedArguments::Hash);
        let mut hash = || recorder.arguments_hash(Some("{}")).unwrap();
        let (one, two) = (hash(), hash());
        assert_ne!(one, two);
        let (salt, digest) = one.split_at(SALT_BYTES);
        let confirmed = Sha256::new().chain_update(salt).chain_update("{}").finalize();
        assert_eq!(confirmed.as_slice(), digest);
        assert_eq!(recorder.arguments_hash(None), None);
        assert_eq!(self::recorder(RecordedArguments::None).arguments_hash(Some("{}")), None);
    }

    #[test]
    fn short_arguments_are_recorded_in_full_if_configured() {
        let scene = Scene::new();
        let mut recorder = recorder(RecordedArguments::Full);
        let mut recorded = |arguments: String| {
            let mut verdict = scene.verdict(Decision::Deny(Reason::ToolNotGranted.into()));
            verdict.findings.arguments = Some(arguments.into());
            let event = scene.event(&mut recorder, &verdict, None);
            (String::from_utf8(event.arguments).unwrap(), event.arguments_hash.len())
        };
        let longest = format!("\"{}\"", "x".repeat(MAX_ARGUMENTS_BYTES - 2));
        assert_eq!(recorded(longest.clone()), (longest.clone(), 0));
        assert_eq!(recorded(longest + " "), (String::new(), SALT_BYTES + DIGEST_BYTES));
    }

    #[test]
    fn a_chain_is_sent_as_presented_with_its_principal() {
        let scene = Scene::new();
        let sent = v1::PresentedChain::decode(Recorder::presented(&scene.chain, b"root~leaf").as_slice()).unwrap();
        assert_eq!(sent.chain, b"root~leaf");
        let principal = sent.principal.unwrap();
        assert_eq!(
            (principal.issuer.as_str(), principal.subject()),
            (samples::ISSUER, "ada")
        );
    }

    /// The same holds for requests that are denied because they cannot be recorded.
    #[test]
    fn the_first_denials_of_a_second_on_one_chain_are_events_and_the_rest_is_counted() {
        let scene = Scene::new();
        let mut recorder = recorder(RecordedArguments::None);
        let mut events = |reason: Reason, count| {
            let verdict = scene.verdict(Decision::Deny(reason.into()));
            let request = Request::parse(&scene.request, &scene.policy.headers, false).unwrap();
            let mut record = || recorder.record(&verdict, &request, UnixNanos(1), None).is_some();
            (0..count).filter(|_| record()).count()
        };
        assert_eq!(events(Reason::AuditFull, 3), 0);
        assert_eq!(events(Reason::Expired, 3 * DENIALS), DENIALS);
        assert_eq!(events(Reason::ToolNotGranted, 3), 0, "for any reason");
    }

    /// A holder can derive any number of leaves, each of which is another chain.
    #[test]
    fn new_chains_of_one_holder_do_not_raise_its_limit_of_events() {
        let scene = Scene::new();
        let mut recorder = recorder(RecordedArguments::None);
        let chains = (0..100).map(|number| scene.another_chain(number));
        let events = chains.filter(|chain| scene.is_event(&mut recorder, chain, Reason::ToolNotGranted));
        assert_eq!(events.count(), DENIALS);
    }

    #[test]
    fn thousands_of_new_chains_a_second_leave_another_principal_its_events() {
        let scene = Scene::new();
        let mut recorder = recorder(RecordedArguments::None);
        for number in 0..10_000 {
            let chain = scene.another_chain(number);
            scene.is_event(&mut recorder, &chain, Reason::ToolNotGranted);
        }
        let other = scene.chain_for("bob");
        assert!(scene.is_event(&mut recorder, &other, Reason::ToolNotGranted));
    }

    #[test]
    fn denials_of_revoked_chains_have_their_own_share_and_send_no_chain() {
        let scene = Scene::new();
        let mut recorder = recorder(RecordedArguments::None);
        let mut with_chain = |reason: Decision<Rc<Grant>>| {
            let verdict = scene.verdict(reason);
            let mut headers = HEADERS.to_vec();
            headers.push(("delegation", "root~leaf"));
            let serialized = serialize(&headers);
            let request = Request::parse(&serialized, &scene.policy.headers, false).unwrap();
            let record = recorder.record(&verdict, &request, UnixNanos(1), None);
            record.map(|record| record.with_chain)
        };
        for reason in Reason::ALL.iter().filter(|reason| reason.is_revocation()).take(DENIALS) {
            assert_eq!(with_chain(Decision::Deny((*reason).into())), Some(false), "{reason}");
        }
        assert_eq!(with_chain(Decision::Deny(Reason::RevokedKey.into())), None);
        assert_eq!(with_chain(Decision::Deny(Reason::ToolNotGranted.into())), Some(true));
        assert_eq!(with_chain(Decision::Allow(Allowance::Public)), Some(true));
    }

    const DENIALS: usize = 5;

    fn recorder(arguments: RecordedArguments) -> Recorder {
        let settings = Audit {
            arguments,
            denials_per_second: crate::config::Count(DENIALS as u64),
            ..Scene::new().policy.audit
        };
        Recorder::new(&settings, [3; 16])
    }

    fn cached(chain: VerifiedChain) -> Rc<CachedChain> {
        let limits = Amount { entries: 0, bytes: 0 };
        ChainCache::new([1; 16], limits).prepare(chain, UnixTime(samples::NOW))
    }

    const HEADERS: [(&str, &str); 5] = [
        (":method", "POST"),
        (":authority", "payments.example"),
        (":path", "/charges/1"),
        ("x-request-id", "4f5d1b7a"),
        ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
    ];

    /// A policy, a chain, and a request.
    struct Scene {
        policy: Policy,
        chain: Rc<CachedChain>,
        request: Vec<u8>,
    }

    impl Scene {
        fn new() -> Self {
            let policy = format!(
                r#"{{"audience": ["{}"], "trust_anchors": [{{"issuer": "{}", "jwk": {}}}],
                    "control_plane": {{"cluster": "credence", "log_id": "0123456789abcdef0123456789abcdef"}},
                    "rules": [{{"name": "charge", "match": {{"path": "/charges/{{id}}"}}, "tool": "pay",
                                "args": {{"id": {{"path": "id"}}}}}}]}}"#,
                samples::AUDIENCE,
                samples::ISSUER,
                samples::key(1).public().to_jwk()
            );
            Self {
                policy: Policy::parse(policy.as_bytes()).unwrap(),
                chain: cached(samples::verified_chain()),
                request: serialize(&HEADERS),
            }
        }

        /// A chain of the same holder, with another leaf.
        fn another_chain(&self, number: u64) -> Rc<CachedChain> {
            let mut chain = cached(samples::verified_chain());
            Rc::get_mut(&mut chain).unwrap().digest[..8].copy_from_slice(&number.to_le_bytes());
            chain
        }

        fn chain_for(&self, subject: &str) -> Rc<CachedChain> {
            cached(samples::chain_for(subject))
        }

        fn is_event(&self, recorder: &mut Recorder, chain: &Rc<CachedChain>, reason: Reason) -> bool {
            let mut verdict = self.verdict(Decision::Deny(reason.into()));
            verdict.findings.chain = Some(Rc::clone(chain));
            let request = Request::parse(&self.request, &self.policy.headers, false).unwrap();
            recorder.record(&verdict, &request, UnixNanos(1), None).is_some()
        }

        fn verdict(&self, decision: Decision<Rc<Grant>>) -> Verdict<'_> {
            Verdict {
                decision,
                rule: self.policy.routes.iter().next(),
                rule_index: Some(0),
                mode: Mode::Enforce,
                nonce: None,
                findings: Findings {
                    chain: Some(Rc::clone(&self.chain)),
                    ..Findings::default()
                },
            }
        }

        fn event(&self, recorder: &mut Recorder, verdict: &Verdict<'_>, decision_ns: Option<u64>) -> v1::Event {
            let request = Request::parse(&self.request, &self.policy.headers, false).unwrap();
            let began = UnixNanos(1_800_000_000_000_000_007);
            match recorder.record(verdict, &request, began, decision_ns) {
                Some(Record { event, .. }) => v1::Event::decode(event).unwrap(),
                other => panic!("{other:?}"),
            }
        }
    }
}
