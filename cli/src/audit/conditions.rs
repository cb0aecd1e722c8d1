//! Which records are wanted, as options say it and as the control plane is asked.

use crate::clock::Instant;

/// Which records; every condition has to hold.
#[derive(Debug, Default, clap::Args)]
pub(super) struct Conditions {
    /// The principal's issuer.
    #[arg(long, value_name = "URI")]
    issuer: Option<String>,

    /// The principal's name at the issuer.
    #[arg(long, value_name = "NAME")]
    subject: Option<String>,

    /// What the agent proved: the thumbprint of its key or certificate.
    #[arg(long, value_name = "THUMBPRINT")]
    agent: Option<String>,

    /// The id of any token in the chain.
    #[arg(long, value_name = "ID")]
    delegation: Option<String>,

    /// The tool that was used.
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,

    /// What was decided.
    #[arg(long, value_enum)]
    decision: Option<Decision>,

    /// Why: a reason code.
    #[arg(long, value_name = "CODE")]
    reason: Option<String>,

    /// The configured rule.
    #[arg(long, value_name = "NAME")]
    rule: Option<String>,

    /// The W3C trace id.
    #[arg(long, value_name = "ID")]
    trace: Option<String>,

    /// The digest that decisions know a chain by: prints the chain itself.
    #[arg(long, value_name = "DIGEST")]
    chain: Option<String>,

    /// Of which kind.
    #[arg(long, value_enum)]
    kind: Option<Kind>,

    /// From this instant on: how long ago, such as 1h, or RFC 3339.
    #[arg(long, value_name = "TIME")]
    since: Option<Instant>,

    /// Before this instant.
    #[arg(long, value_name = "TIME")]
    until: Option<Instant>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Decision {
    Allow,
    Deny,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Kind {
    Decision,
    Aggregate,
    Gap,
    Chain,
    Source,
    Note,
    Erased,
    Unreadable,
}

impl Conditions {
    /// The kind alone: a kind that is left out unless it is asked for may be the newest.
    pub(super) fn of_kind(&self) -> Self {
        let asks_for_chains = matches!(self.kind, Some(Kind::Chain)) || self.chain.is_some();
        Self {
            kind: asks_for_chains.then_some(Kind::Chain),
            ..Self::default()
        }
    }

    /// As the query string of `/v1/audit/events` has them.
    pub(super) fn parameters(&self) -> Vec<(&'static str, String)> {
        let instant = |instant: &Option<Instant>| instant.clone().map(|Instant(text)| text);
        [
            ("principal_issuer", self.issuer.clone()),
            ("principal_subject", self.subject.clone()),
            ("agent", self.agent.clone()),
            ("delegation_id", self.delegation.clone()),
            ("tool", self.tool.clone()),
            ("decision", self.decision.and_then(name)),
            ("reason", self.reason.clone()),
            ("rule", self.rule.clone()),
            ("trace_id", self.trace.clone()),
            ("chain_digest", self.chain.clone()),
            ("kind", self.kind.and_then(name)),
            ("from", instant(&self.since)),
            ("until", instant(&self.until)),
        ]
        .into_iter()
        .filter_map(|(name, value)| value.map(|value| (name, value)))
        .collect()
    }
}

/// What the option calls the value, which is what the control plane calls it.
fn name(value: impl clap::ValueEnum) -> Option<String> {
    Some(value.to_possible_value()?.get_name().to_owned())
}
