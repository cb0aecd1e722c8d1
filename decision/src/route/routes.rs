//! The rules in the order they are tried.

use super::condition::{Asked, AskedNames, Condition};
use super::index::{Found, Hit, Index, Unusable};
use super::pattern::{Pattern, Unclear};
use super::reading::Reading;
use super::template::Captures;
use crate::request::target::{Host, Segments, Target, Tolerated};
use crate::request::{HeaderIndex, Request};

/// Rules in the order they are tried; the first that matches wins.
///
/// `T` is what a match leads to. A search does not look at each rule, and allocates only for what is percent-encoded, a
/// host with capital letters, and the names of a query that a condition asks about.
#[derive(Clone, Debug)]
pub struct Routes<T> {
    routes: Vec<(Pattern, T)>,
    index: Index,
    asked_names: AskedNames,
}

impl<T> Routes<T> {
    /// Appends a route, to be tried after those already there.
    ///
    /// # Errors
    /// [`Unusable`] if the route could never match, or there is no room for it; then it is not there.
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
    /// [`Unclear`] if it depends on how one reads the request which route that is. The request is to be denied: the
    /// client could otherwise choose the rule by which it is judged.
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
            // Some see another path, and both must come to the same.
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
        // To a service that does not tell the spellings apart, the request is for the earlier rule.
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

    /// Whether which route a request takes may depend on other headers than those that say its host, method and path.
    pub fn ask_of_headers(&self) -> bool {
        let conditions = self.routes.iter().flat_map(|(pattern, _)| &pattern.conditions);
        conditions
            .into_iter()
            .any(|condition| matches!(condition, Condition::Header { .. }))
    }

    /// Adds the headers that conditions ask about to an index.
    pub fn add_headers_to(&self, index: &mut HeaderIndex) {
        for condition in self.routes.iter().flat_map(|(pattern, _)| &pattern.conditions) {
            if let Condition::Header { name, .. } = condition {
                index.add(name);
            }
        }
    }

    /// What the route at this place leads to.
    pub fn get(&self, index: usize) -> Option<&T> {
        self.routes.get(index).map(|(_, leads_to)| leads_to)
    }

    /// What each route leads to, in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.routes.iter().map(|(_, leads_to)| leads_to)
    }

    fn pattern(&self, index: usize) -> Option<&Pattern> {
        self.routes.get(index).map(|(pattern, _)| pattern)
    }
}

impl<T> Default for Routes<T> {
    /// No routes: nothing matches.
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
    /// The position of the route among all, from 0.
    pub index: usize,
    /// What the route leads to.
    pub leads_to: &'s T,
    /// What the path's captures took from the request.
    pub captures: Captures<'r>,
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
