//! Which records to show: the options of the command line, and the query parameters of the control plane's API.

use crate::clock;

/// Conditions on a record; all of them have to hold.
#[derive(Debug, Default, clap::Args)]
pub(super) struct Conditions {
    /// The principal's issuer.
    #[arg(long, value_name = "URI")]
    issuer: Option<String>,

    /// The principal's name at the issuer.
    #[arg(long, value_name = "NAME")]
    subject: Option<String>,

    /// The agent: the thumbprint of its key or of its certificate.
    #[arg(long, value_name = "THUMBPRINT")]
    agent: Option<String>,

    /// The id of any token in the chain.
    #[arg(long, value_name = "ID")]
    delegation: Option<String>,

    /// The tool.
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,

    /// The decision.
    #[arg(long, value_parser = ["allow", "deny"])]
    decision: Option<String>,

    /// A reason code of the decision.
    #[arg(long, value_name = "CODE")]
    reason: Option<String>,

    /// The name of the configured rule.
    #[arg(long, value_name = "NAME")]
    rule: Option<String>,

    /// The W3C trace id.
    #[arg(long, value_name = "ID")]
    trace: Option<String>,

    /// A chain's digest, as decisions record it: prints the chain itself.
    #[arg(long, value_name = "DIGEST")]
    chain: Option<String>,

    /// The kind of record.
    #[arg(long, value_parser = ["decision", "aggregate", "gap", CHAIN, "source", "note", "erased", "unreadable"])]
    kind: Option<String>,

    /// Not before this time: how long ago, such as 1h, RFC 3339, or a date (UTC).
    #[arg(long, value_name = "TIME", value_parser = clock::instant)]
    since: Option<String>,

    /// Before this time.
    #[arg(long, value_name = "TIME", value_parser = clock::instant)]
    until: Option<String>,
}

impl Conditions {
    /// Only the condition on the kind. The newest record may be of a kind that is left out unless the caller asks for
    /// it.
    pub(super) fn of_kind(&self) -> Self {
        let asks_for_chains = self.kind.as_deref() == Some(CHAIN) || self.chain.is_some();
        Self {
            kind: asks_for_chains.then(|| CHAIN.to_owned()),
            ..Self::default()
        }
    }

    /// What became of sources.
    pub(super) fn of_sources() -> Self {
        Self {
            kind: Some("source".to_owned()),
            ..Self::default()
        }
    }

    /// The query parameters of `/v1/audit/events`.
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
