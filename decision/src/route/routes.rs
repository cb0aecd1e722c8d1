//! The rules, in the order in which they are tried.

use super::condition::{Asked, AskedNames, Condition};
use super::index::{Found, Hit, Index, Unusable};
use super::pattern::{Pattern, Unclear};
use super::reading::Reading;
use super::template::Captures;
use crate::request::target::{Host, Segments, Target, Tolerated};
use crate::request::{HeaderIndex, Request};

/// Rules in the order in which they are tried; the first match wins.
///
/// `T` is the target of a match. A search does not visit each rule. It allocates only for percent-encoded texts, for a
/// host with capital letters, and for the names of a query on which there is a condition.
#[derive(Clone, Debug)]
pub struct Routes<T> {
    routes: Vec<(Pattern, T)>,
    index: Index,
    asked_names: AskedNames,
}

impl<T> Routes<T> {
    /// Appends a route, which is tried after the existing ones.
    ///
    /// # Errors
    /// [`Unusable`] if the route could never match, or does not fit; then it is not added.
    pub fn push(&mut self, pattern: Pattern, leads_to: T) -> Result<(), Unusable> {
        let covers = |earlier| self.pattern(earlier).is_some_and(|earlier| earlier.covers(&pattern));
        if let Some(earlier) = self.index.find_covering(&pattern, covers) {
            return Err(Unusable::Covered { earlier });
        }
        self.index.insert(self.routes.len(), &pattern)?;
        self.asked_names.push(&pattern.conditions);
        self.routes.push((pattern, leads_to));
        Ok(())
    }

    /// The first route that matches, if any.
    ///
    /// # Errors
    /// [`Unclear`] if the route depends on the reading of the request. The request must then be denied: otherwise the
    /// client could choose its rule.
    pub fn find<'s, 'r>(
        &'s self,
        host: Host<'_>,
        request: &Request<'r>,
        target: &Target<'r>,
    ) -> Result<Option<RouteMatch<'s, 'r, T>>, Unclear<'s>> {
        let asked = Asked::new(&self.asked_names, request, target);
        let host = host.to_lower_case();
        let tolerated = target.tolerated;
        let found = self.search(&host, &asked, target.segments(), tolerated)?;
        if let Some(merged) = target.merged_segments() {
            // Some services read another path, and both readings must give the same result.
            let same = match (&found, &self.search(&host, &asked, merged, tolerated)?) {
                (None, None) => true,
                (Some(found), Some(merged)) => found.index == merged.index && found.captures == merged.captures,
                (Some(_), None) | (None, Some(_)) => false,
            };
            if !same {
                return Err(Unclear::Path);
            }
        }
        Ok(found)
    }

    fn search<'s, 'r>(
        &'s self,
        host: &str,
        asked: &Asked<'_, 'r>,
        path: Segments<'r>,
        tolerated: Tolerated,
    ) -> Result<Option<RouteMatch<'s, 'r, T>>, Unclear<'s>> {
        let judge = |rule| {
            self.pattern(rule)
                .map_or(Reading::No, |pattern| pattern.judge(rule, asked))
        };
        let Found { hit, respelled } = self.index.find(host, path, tolerated, judge);
        let Some(Hit { rule, is_certain }) = hit else {
            return if respelled.is_empty() {
                Ok(None)
            } else {
                Err(Unclear::Spelling)
            };
        };
        let Some((pattern, leads_to)) = self.routes.get(rule) else {
            return Ok(None);
        };
        if !is_certain {
            return Err(pattern.what_is_unclear(rule, asked));
        }
        // A service that does not distinguish the spellings treats the request as one for the earlier rule.
        let is_another_rules = |&earlier: &usize| {
            earlier < rule
                && self
                    .pattern(earlier)
                    .is_some_and(|earlier| !pattern.path.is_as_specific_as(&earlier.path))
        };
        if respelled.iter().any(is_another_rules) {
            return Err(Unclear::Path);
        }
        Ok(Some(RouteMatch {
            index: rule,
            leads_to,
            captures: pattern.path.take(path),
        }))
    }

    /// Whether a request's route may depend on headers other than those of host, method and path.
    pub fn ask_of_headers(&self) -> bool {
        let conditions = self.routes.iter().flat_map(|(pattern, _)| &pattern.conditions);
        conditions
            .into_iter()
            .any(|condition| matches!(condition, Condition::Header { .. }))
    }

    /// Adds the headers of all conditions to an index.
    pub fn add_headers_to(&self, index: &mut HeaderIndex) {
        for condition in self.routes.iter().flat_map(|(pattern, _)| &pattern.conditions) {
            if let Condition::Header { name, .. } = condition {
                index.add(name);
            }
        }
    }

    /// The target of the route with this index.
    pub fn get(&self, index: usize) -> Option<&T> {
        self.routes.get(index).map(|(_, leads_to)| leads_to)
    }

    /// The target of each route, in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.routes.iter().map(|(_, leads_to)| leads_to)
    }

    fn pattern(&self, index: usize) -> Option<&Pattern> {
        self.routes.get(index).map(|(pattern, _)| pattern)
    }
}

impl<T> Default for Routes<T> {
    /// No routes: no request matches.
    fn default() -> Self {
        Self {
            routes: Vec::new(),
            index: Index::default(),
            asked_names: AskedNames::default(),
        }
    }
}

/// A request's route.
#[derive(Debug)]
pub struct RouteMatch<'s, 'r, T> {
    /// The index of the route among all, from 0.
    pub index: usize,
    /// The route's target.
    pub leads_to: &'s T,
    /// The texts that the path's captures matched in the request.
    pub captures: Captures<'r>,
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
