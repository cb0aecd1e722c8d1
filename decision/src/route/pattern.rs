//! The conditions for a request to match a route.

use thiserror::Error;

use super::condition::{Asked, Condition};
use super::host::HostPattern;
use super::reading::Reading;
use super::template::PathTemplate;

/// The conditions for a request to match a route.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// Any of these hosts; every host if empty.
    pub hosts: Vec<HostPattern>,
    /// Any of these methods; every method if empty.
    pub methods: Vec<String>,
    /// The path.
    pub path: PathTemplate,
    /// All of these conditions.
    pub conditions: Vec<Condition>,
}

impl Pattern {
    /// Whether a request with matching host and path matches, if this is the pattern of the route with index `rule`.
    pub(super) fn judge(&self, rule: usize, asked: &Asked<'_, '_>) -> Reading {
        let method = asked.request.method;
        if !(self.methods.is_empty() || self.methods.iter().any(|known| known.as_bytes() == method)) {
            return Reading::No;
        }
        asked.meets(rule, &self.conditions)
    }

    pub(super) fn what_is_unclear(&self, rule: usize, asked: &Asked<'_, '_>) -> Unclear<'_> {
        match asked.first_unclear(rule, &self.conditions) {
            Some(Condition::Header { name, .. }) => Unclear::Header(name),
            Some(Condition::Query { name, .. }) => Unclear::Query(name),
            None => Unclear::Path,
        }
    }

    /// Whether this pattern also matches, or refuses as unclear, every request that `other` matches.
    pub(super) fn covers(&self, other: &Pattern) -> bool {
        let methods = self.methods.is_empty()
            || (!other.methods.is_empty() && other.methods.iter().all(|method| self.methods.contains(method)));
        let conditions = || {
            self.conditions
                .iter()
                .all(|condition| other.conditions.contains(condition))
        };
        let hosts = || {
            self.hosts.is_empty()
                || (!other.hosts.is_empty()
                    && other
                        .hosts
                        .iter()
                        .all(|narrow| self.hosts.iter().any(|wide| wide.covers(narrow))))
        };
        methods && conditions() && self.path.covers(&other.path) && hosts()
    }
}

/// The ambiguous part of a request, because of which its route depends on the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Unclear<'s> {
    /// The path.
    #[error("the path can be read in more than one way")]
    Path,
    /// The path, which no rule matches as it is spelled, but some rule in another spelling.
    #[error("no rule has the path in this spelling")]
    Spelling,
    /// This header, on which there is a condition.
    #[error("header `{0}` can be read in more than one way")]
    Header(&'s str),
    /// This query member, on which there is a condition, or the query as a whole.
    #[error("query member `{0}` can be read in more than one way")]
    Query(&'s str),
}
