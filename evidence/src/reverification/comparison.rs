//! Compares an event with its chain.

use credence_delegation::evidence::EvidenceVerifier;
use credence_delegation::{Cause, Denial, Limits, Step, UnixTime, VerifiedChain};
use credence_ledger::entry::EventView;
use credence_wire::v1;

use credence_runtime::text::shorten;

/// The facts of a chain with which events must agree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    issuer: String,
    subject: Option<String>,
    delegation_ids: Vec<String>,
    client: String,
    actors: Vec<String>,
    /// The thumbprint of the leaf holder's key, as in events.
    holder: String,
    issued_at: UnixTime,
    expires_at: UnixTime,
    /// Sorted.
    tools: Vec<String>,
}

/// The result for a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Verified(Box<Facts>),
    /// The chain does not verify, so every allow under it is wrong.
    Refused(Box<Difference>),
}

/// How an allow differs from its chain. `is_about_anchors`: other trust anchors would explain it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) kind: DifferenceKind,
    pub(crate) step: &'static str,
    pub(crate) reason: String,
    pub(crate) is_about_anchors: bool,
}

/// The kind of difference between an allow and its chain. Its name in lower case is the metric's label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum DifferenceKind {
    /// The chain does not verify.
    Chain,
    /// It was not valid at the event's time.
    Time,
    Principal,
    Delegations,
    Agent,
    Expiry,
    Tool,
}

// === impl Verdict ===

impl Verdict {
    /// Verifies chains. This is nearly all of the cost.
    pub(crate) fn of<'a>(chains: impl IntoIterator<Item = &'a str>, verifier: &mut EvidenceVerifier<'_>) -> Vec<Self> {
        let answers = verifier.verify(chains, |chain| Box::new(Facts::of(&chain)));
        let verdict = |answer: Result<_, Denial>| match answer {
            Ok(facts) => Self::Verified(facts),
            Err(denial) => Self::Refused(Box::new(Difference::refused(&denial))),
        };
        answers.into_iter().map(verdict).collect()
    }

    /// How the event, an allow under this chain, differs from it.
    pub(crate) fn difference(&self, event: &EventView<'_>) -> Option<Difference> {
        match self {
            Self::Verified(facts) => facts.difference(event),
            Self::Refused(refusal) => Some(Difference::clone(refusal)),
        }
    }

    /// The approximate size in memory.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Verified(facts) => {
                let texts = facts.delegation_ids.iter().chain(&facts.actors).chain(&facts.tools);
                let texts = texts.map(|text| text.len() + TEXT_BYTES).sum::<usize>();
                size_of::<Facts>()
                    + facts.issuer.len()
                    + facts.client.len()
                    + facts.subject.as_ref().map_or(0, String::len)
                    + texts
                    + 64
            }
            Self::Refused(refusal) => size_of::<Difference>() + refusal.reason.len(),
        }
    }
}

// === impl Difference ===

impl Difference {
    /// The difference of every allow under a chain that does not verify.
    fn refused(denial: &Denial) -> Self {
        // Only a root depends on anchors: a derived token's key is in its parent.
        let is_about_anchors = match (&denial.step, &denial.cause) {
            (Step::S3k, Cause::IssuerUnknown) | (Step::S3a, Cause::AlgorithmNotAllowed) => true,
            // The known key of the issuer is another one, or `asserts_subjects` changes the meaning of `sub`.
            (
                Step::S3b,
                Cause::KeyUnknown
                | Cause::KeyNotNamed { .. }
                | Cause::SignatureInvalid
                | Cause::Claim { claim: "sub", .. },
            ) => true,
            _ => false,
        };
        Self {
            kind: DifferenceKind::Chain,
            step: denial.step.name(),
            // It may quote the token, which contains arbitrary text, and goes into the log and the ledger.
            reason: shorten(denial.cause.to_string()),
            is_about_anchors,
        }
    }
}

// === impl Facts ===

impl Facts {
    pub(crate) fn of(chain: &VerifiedChain) -> Self {
        let leaf = chain.leaf();
        let tools = leaf
            .capabilities()
            .map(|capabilities| capabilities.tools().map(str::to_owned).collect());
        Self {
            issuer: chain.principal().issuer.clone(),
            subject: chain.principal().subject.clone(),
            delegation_ids: chain.tokens().map(|token| token.id().to_owned()).collect(),
            holder: leaf
                .holder()
                .thumbprint()
                .map(|key| key.to_string())
                .unwrap_or_default(),
            client: chain.client().unwrap_or_default().to_owned(),
            actors: chain.actors().to_vec(),
            issued_at: chain.issued_at(),
            expires_at: chain.expires_at(),
            tools: tools.unwrap_or_default(),
        }
    }

    fn difference(&self, event: &EventView<'_>) -> Option<Difference> {
        let principal = event.principal.unwrap_or_default();
        let differs = |kind, step, reason: String| {
            Some(Difference {
                kind,
                step,
                reason,
                is_about_anchors: kind == DifferenceKind::Principal && principal.issuer == self.issuer,
            })
        };
        if (principal.issuer, principal.subject) != (&self.issuer, self.subject.as_deref()) {
            return differs(
                DifferenceKind::Principal,
                "3k",
                "the event names another principal".to_owned(),
            );
        }
        if event.delegation_ids() != self.delegation_ids {
            let reason = "the event names other delegation ids than the chain has";
            return differs(DifferenceKind::Delegations, "2c", reason.to_owned());
        }
        if !self.is_agent(event) {
            let reason = format!(
                "the event's proof is from {}, but the leaf's holder is {}",
                event.agent, self.holder
            );
            return differs(DifferenceKind::Agent, "7b", reason);
        }
        if event.client != self.client || event.actors() != self.actors {
            let reason = "the event names another client, or other actors, than the access token";
            return differs(DifferenceKind::Agent, "3b", reason.to_owned());
        }
        if event.expires_at != self.expires_at.0 {
            let reason = format!(
                "the event has the expiry {}, but the chain expires at {}",
                event.expires_at, self.expires_at.0
            );
            return differs(DifferenceKind::Expiry, "4i", reason);
        }
        // A rule may open methods of MCP to any valid delegation.
        let is_open = event.tool.is_empty() && !event.mcp_method.is_empty();
        let finds = |tool: &String| tool.as_str().cmp(event.tool);
        if !is_open && self.tools.binary_search_by(finds).is_err() {
            let reason = format!("the leaf does not grant the tool {:?}", event.tool);
            return differs(DifferenceKind::Tool, "6b", reason);
        }
        if !self.is_valid_at(event.time_unix_nano) {
            let step = if self.is_over(event.time_unix_nano) { "4i" } else { "4k" };
            return differs(
                DifferenceKind::Time,
                step,
                "was not valid at the event's time".to_owned(),
            );
        }
        None
    }

    /// For mutual TLS the chain binds a certificate or a SPIFFE ID, which only the proxy has seen.
    fn is_agent(&self, event: &EventView<'_>) -> bool {
        match v1::ProofKind::try_from(event.proof) {
            Ok(v1::ProofKind::Pop | v1::ProofKind::Dpop) => event.agent == self.holder,
            Ok(v1::ProofKind::None) => event.agent.is_empty(),
            Ok(v1::ProofKind::Mtls | v1::ProofKind::Unspecified) | Err(_) => true,
        }
    }

    /// By the event's clock, which also decided about the chain.
    fn is_valid_at(&self, time_unix_nano: u64) -> bool {
        let seconds = seconds(time_unix_nano);
        seconds.saturating_add_unsigned(Limits::WIDEST.iat_skew) >= self.issued_at.0 && !self.is_over(time_unix_nano)
    }

    fn is_over(&self, time_unix_nano: u64) -> bool {
        seconds(time_unix_nano) >= self.expires_at.0.saturating_add(EXPIRY_LEEWAY)
    }
}

fn seconds(time_unix_nano: u64) -> i64 {
    i64::try_from(time_unix_nano / 1_000_000_000).unwrap_or(i64::MAX)
}

/// How many seconds an event may be dated after its chain's end: it is dated when it is written, shortly after the
/// decision.
const EXPIRY_LEEWAY: i64 = 1;

/// The overhead of a text besides its bytes.
const TEXT_BYTES: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_quotes_at_most_a_line_of_the_token() {
        let denial = Denial {
            step: Step::S4o,
            cause: Cause::Attenuation("x".repeat(40_000)),
        };
        assert!(Difference::refused(&denial).reason.len() <= 256);
    }
}
