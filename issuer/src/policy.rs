//! Which groups may delegate which tools, within which bounds, to which clients.

use std::collections::BTreeSet;

use crate::tools::Tools;

/// The rules. What no rule allows cannot be granted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Policy {
    pub(crate) rules: Vec<Rule>,
}

/// One rule.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    /// Names it in evidence.
    pub(crate) name: String,
    /// A person is in one of them. Empty: every person who can sign in.
    pub(crate) groups: BTreeSet<String>,
    pub(crate) clients: Clients,
    /// The most that may be granted.
    pub(crate) tools: Tools,
    /// The services where tokens may be used: `aud`.
    pub(crate) audience: BTreeSet<String>,
    pub(crate) terms: Terms,
}

/// Clients that a rule is for.
#[derive(Debug, Clone)]
pub(crate) enum Clients {
    /// Every client that may ask at all.
    All,
    Listed(BTreeSet<String>),
}

/// How a grant may be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Terms {
    /// The longest life of one token, in seconds.
    pub(crate) token_seconds: u32,
    /// The longest life of the grant, in seconds: until then it gives new tokens.
    pub(crate) grant_seconds: u32,
    /// How often an agent may hand it on.
    pub(crate) depth: u32,
    /// Whether access tokens may be bound to no key.
    pub(crate) bearer: bool,
    /// How long ago the person may have signed in, in seconds.
    pub(crate) max_age: Option<u32>,
    /// How the person signed in (`acr`): each set has the one of its rule. Empty: in any way.
    pub(crate) acr: Vec<BTreeSet<String>>,
}

/// What a client asks for.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) tools: Tools,
    /// `resource` (RFC 8707). Empty: where policy allows.
    pub(crate) resources: BTreeSet<String>,
    /// `del_max_depth`.
    pub(crate) depth: u32,
}

/// The most that the person may grant to the client: within what was asked, and within policy.
#[derive(Debug, Clone)]
pub(crate) struct Offer {
    pub(crate) tools: Tools,
    pub(crate) audience: BTreeSet<String>,
    pub(crate) terms: Terms,
    /// The names of the rules that allow it.
    pub(crate) rules: BTreeSet<String>,
}

/// Why there is nothing to offer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoOffer {
    #[error("no tool was asked for")]
    Nothing,
    #[error("no rule lets this person give this client the tool \"{0}\" within these bounds")]
    Tool(String),
    #[error("no rule allows all of this at one service; ask for each service on its own")]
    Audience,
    #[error("no rule allows this at {0}")]
    Resource(String),
}

// === impl Policy ===

impl Policy {
    /// What a person in these groups may grant to the client of what it asks for.
    ///
    /// Each tool is offered as asked if a rule covers that. If the client asks for more than any rule allows, the first
    /// rule within what was asked is offered.
    pub(crate) fn offer(&self, groups: &BTreeSet<String>, client: &str, asked: &Asked) -> Result<Offer, NoOffer> {
        if asked.tools.is_empty() {
            return Err(NoOffer::Nothing);
        }
        let applicable: Vec<&Rule> = self.rules.iter().filter(|rule| rule.is_for(groups, client)).collect();
        let (mut tools, mut used) = (Vec::new(), Vec::<&Rule>::new());
        for (tool, _) in asked.tools.iter() {
            let no_rule = || NoOffer::Tool(tool.to_owned());
            let wanted = asked.tools.only(tool).ok_or_else(no_rule)?;
            let covering = applicable.iter().find(|rule| rule.tools.cover(&wanted));
            let (rule, offered) = match covering {
                Some(rule) => (rule, wanted),
                None => applicable
                    .iter()
                    .find_map(|rule| Some((rule, rule.tools.only(tool).filter(|most| wanted.cover(most))?)))
                    .ok_or_else(no_rule)?,
            };
            tools.extend(
                offered
                    .iter()
                    .map(|(tool, constraints)| (tool.to_owned(), constraints.clone())),
            );
            used.push(rule);
        }
        let audience = audience(&used, &asked.resources)?;
        let terms = used.iter().map(|rule| rule.terms.clone()).reduce(Terms::and);
        let terms = terms.ok_or(NoOffer::Nothing)?;
        Ok(Offer {
            tools: Tools::of(tools).map_err(|_| NoOffer::Nothing)?,
            audience,
            terms: Terms {
                depth: terms.depth.min(asked.depth),
                ..terms
            },
            rules: used.iter().map(|rule| rule.name.clone()).collect(),
        })
    }

    /// The terms of the rules that now allow a grant which they once allowed. The person's groups are not known any more,
    /// so they count as when the person consented.
    pub(crate) fn terms_now(
        &self,
        rules: &BTreeSet<String>,
        client: &str,
        tools: &Tools,
        audience: &BTreeSet<String>,
    ) -> Option<Terms> {
        let is_named = |rule: &&Rule| rules.contains(&rule.name) && rule.clients.include(client);
        let named: Vec<&Rule> = self.rules.iter().filter(is_named).collect();
        let allowing = tools.iter().map(|(tool, _)| {
            let granted = tools.only(tool)?;
            let mut rules = named.iter().filter(|rule| audience.is_subset(&rule.audience));
            rules
                .find(|rule| rule.tools.cover(&granted))
                .map(|rule| rule.terms.clone())
        });
        let allowing: Option<Vec<Terms>> = allowing.collect();
        allowing?.into_iter().reduce(Terms::and)
    }
}

/// The services where all of these rules allow what was asked.
fn audience(rules: &[&Rule], resources: &BTreeSet<String>) -> Result<BTreeSet<String>, NoOffer> {
    let common = rules.iter().map(|rule| rule.audience.clone());
    let common = common.reduce(|one, other| &one & &other).unwrap_or_default();
    if let Some(foreign) = resources.difference(&common).next() {
        return Err(NoOffer::Resource(foreign.clone()));
    }
    match (resources.is_empty(), common.is_empty()) {
        (false, _) => Ok(resources.clone()),
        (true, false) => Ok(common),
        (true, true) => Err(NoOffer::Audience),
    }
}

// === impl Rule ===

impl Rule {
    fn is_for(&self, groups: &BTreeSet<String>, client: &str) -> bool {
        let has_person = self.groups.is_empty() || !self.groups.is_disjoint(groups);
        has_person && self.clients.include(client)
    }
}

// === impl Clients ===

impl Clients {
    fn include(&self, client: &str) -> bool {
        match self {
            Self::All => true,
            Self::Listed(listed) => listed.contains(client),
        }
    }
}

// === impl Terms ===

impl Terms {
    /// Terms that meet both.
    fn and(self, other: Self) -> Self {
        let max_ages = [self.max_age, other.max_age];
        Self {
            token_seconds: self.token_seconds.min(other.token_seconds),
            grant_seconds: self.grant_seconds.min(other.grant_seconds),
            depth: self.depth.min(other.depth),
            bearer: self.bearer && other.bearer,
            max_age: max_ages.into_iter().flatten().min(),
            acr: [self.acr, other.acr].concat(),
        }
    }

    /// Whether a sign-in so long ago, if that is known, in this way, suffices.
    pub(crate) fn accept(&self, age: Option<u64>, acr: Option<&str>) -> bool {
        let is_within = |limit: u32| age.is_some_and(|age| age <= u64::from(limit));
        let is_recent = self.max_age.is_none_or(is_within);
        let is_strong = self.acr.iter().all(|set| acr.is_some_and(|acr| set.contains(acr)));
        is_recent && is_strong
    }
}

#[cfg(test)]
mod tests {
    use credence_delegation::json::Json;

    use super::*;

    fn tools(json: &str) -> Tools {
        Tools::parse(&Json::parse(json.as_bytes()).unwrap()).unwrap()
    }

    fn rule(name: &str, of: &str, token_seconds: u32) -> Rule {
        Rule {
            name: name.to_owned(),
            groups: ["staff".to_owned()].into(),
            clients: Clients::Listed(["planner".to_owned()].into()),
            tools: tools(of),
            audience: ["https://orders.example".to_owned()].into(),
            terms: Terms {
                token_seconds,
                grant_seconds: 3_600,
                depth: 1,
                bearer: true,
                max_age: None,
                acr: Vec::new(),
            },
        }
    }

    #[test]
    fn a_grant_counts_while_its_rules_still_allow_all_of_it() {
        const PAY: &str = r#"{"pay": {"amount": {"constraint_type": "range", "max": 10}}}"#;
        let both = || vec![rule("read", r#"{"read": {}}"#, 600), rule("pay", PAY, 60)];
        let now = |rules: Vec<Rule>, client: &str, audience: &str| {
            let granted = tools(r#"{"pay": {"amount": {"constraint_type": "range", "max": 7}}, "read": {}}"#);
            let named = ["read".to_owned(), "pay".to_owned()].into();
            Policy { rules }.terms_now(&named, client, &granted, &[audience.to_owned()].into())
        };
        let orders = "https://orders.example";
        assert_eq!(now(both(), "planner", orders).unwrap().token_seconds, 60);
        assert_eq!(now(both(), "other", orders), None);
        assert_eq!(now(both(), "planner", "https://other.example"), None);
        assert_eq!(now(vec![rule("read", r#"{"read": {}}"#, 600)], "planner", orders), None);
        let mut lower = both();
        lower[1].tools = tools(&PAY.replace("10", "5"));
        assert_eq!(now(lower, "planner", orders), None);
        let mut renamed = both();
        renamed[1].name = "payments".to_owned();
        assert_eq!(now(renamed, "planner", orders), None);
        let mut strict = both();
        strict[1].terms.bearer = false;
        assert!(!now(strict, "planner", orders).unwrap().bearer);
    }
}
