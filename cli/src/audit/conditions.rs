//! Which records are wanted, as options say it and as the control plane is asked.

use crate::clock;

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
    #[arg(long, value_parser = ["allow", "deny"])]
    decision: Option<String>,

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
    #[arg(long, value_parser = ["decision", "aggregate", "gap", CHAIN, "source", "note", "erased", "unreadable"])]
    kind: Option<String>,

    /// From this instant on: how long ago, such as 1h, or RFC 3339.
    #[arg(long, value_name = "TIME", value_parser = clock::instant)]
    since: Option<String>,

    /// Before this instant.
    #[arg(long, value_name = "TIME", value_parser = clock::instant)]
    until: Option<String>,
}

impl Conditions {
    /// The kind alone: a kind that is left out unless it is asked for may be the newest.
    pub(super) fn of_kind(&self) -> Self {
        let asks_for_chains = self.kind.as_deref() == Some(CHAIN) || self.chain.is_some();
        Self {
            kind: asks_for_chains.then(|| CHAIN.to_owned()),
            ..Self::default()
        }
    }

    /// As the query string of `/v1/audit/events` has them.
    pub(super) fn parameters(&self) -> Vec<(&'static str, String)> {
        [
            ("principal_issuer", self.issuer.clone()),
            ("principal_subject", self.subject.clone()),
            ("agent", self.agent.clone()),
            ("delegation_id", self.delegation.clone()),
            ("tool", self.tool.clone()),
            ("decision", self.decision.clone()),
            ("reason", self.reason.clone()),
            ("rule", self.rule.clone()),
            ("trace_id", self.trace.clone()),
            ("chain_digest", self.chain.clone()),
            ("kind", self.kind.clone()),
            ("from", self.since.clone()),
            ("until", self.until.clone()),
        ]
        .into_iter()
        .filter_map(|(name, value)| value.map(|value| (name, value)))
        .collect()
    }
}

const CHAIN: &str = "chain";
