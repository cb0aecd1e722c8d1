//! Which records are wanted, as options say it and as the control plane is asked.

/// Which records; every condition has to hold.
#[derive(Debug, Default, clap::Args)]
pub(super) struct Conditions {
    /// The principal's issuer.
    #[arg(long, value_name = "URI")]
    issuer: Option<String>,

    /// The principal's name at the issuer.
    #[arg(long, value_name = "NAME")]
    subject: Option<String>,

    /// The id of any token in the chain.
    #[arg(long, value_name = "ID")]
    delegation: Option<String>,

    /// The tool that was used.
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,

    /// What was decided.
    #[arg(long, value_enum)]
    decision: Option<Decision>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Decision {
    Allow,
    Deny,
}

impl Conditions {
    /// As the query string of `/v1/audit/events` has them.
    pub(super) fn parameters(&self) -> Vec<(&'static str, String)> {
        let decision = self.decision.map(|decision| match decision {
            Decision::Allow => "allow".to_owned(),
            Decision::Deny => "deny".to_owned(),
        });
        [
            ("principal_issuer", self.issuer.clone()),
            ("principal_subject", self.subject.clone()),
            ("delegation_id", self.delegation.clone()),
            ("tool", self.tool.clone()),
            ("decision", decision),
        ]
        .into_iter()
        .filter_map(|(name, value)| value.map(|value| (name, value)))
        .collect()
    }
}
