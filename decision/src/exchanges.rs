//! Requests to MCP servers that were allowed and are not over: their answers may be streams, which end with what allowed
//! them.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use crate::chains::CachedChain;
use crate::clock::Monotonic;
use crate::config::{Mode, Requirement};
use crate::decision::{Allowance, Decision};
use crate::engine::Verdict;
use crate::mcp::{Endpoint, Rewriting};

/// The exchanges of one configuration in one VM, by their streams. Envoy bounds their number.
#[derive(Debug)]
pub struct Exchanges<K> {
    open: BTreeMap<K, Exchange>,
    /// The state of the revocations at the last check, and its time.
    checked: Option<(Option<u64>, Monotonic)>,
    /// How many were ended before their time.
    pub cut: u64,
}

/// An allowed request to an MCP server.
#[derive(Debug)]
pub struct Exchange {
    rule_index: usize,
    chain: Rc<CachedChain>,
    /// When it ends at the latest.
    until: Monotonic,
    /// How its answer is rewritten, if it is.
    rewriting: Option<Box<Rewriting>>,
    /// Whether it was to end before its time.
    is_cut: bool,
}

impl Exchange {
    /// The exchange that this verdict begins. None unless it allows a request to an MCP server.
    pub fn of(verdict: &Verdict<'_>, now: Monotonic) -> Option<Self> {
        let endpoint = endpoint_of(verdict)?;
        let (Decision::Allow(Allowance::Delegated(_)), Mode::Enforce) = (&verdict.decision, verdict.mode) else {
            return None;
        };
        let (until, hides) = (now.plus(endpoint.max_stream), endpoint.hides_ungranted);
        let chain = verdict.findings.chain.clone()?;
        let found = verdict.findings.mcp.as_deref()?;
        let is_list = found.method.as_deref() == Some("tools/list");
        let is_stream = found.method.as_deref() == Some("GET");
        // In a session, servers take answers for those to another request with the same id.
        let lists = hides && (is_list || is_stream || found.session.is_some());
        let owner = found.session.as_ref().map(|session| session.owner.clone());
        let lists_for = lists.then(|| Rc::clone(&chain));
        Some(Self {
            rule_index: verdict.rule_index?,
            rewriting: Rewriting::new(owner, lists_for, is_list && hides, found.id.clone()).map(Box::new),
            chain,
            until,
            is_cut: false,
        })
    }
}

fn endpoint_of<'p>(verdict: &Verdict<'p>) -> Option<&'p Endpoint> {
    verdict.rule?.requirement.as_ref().and_then(Requirement::mcp)
}

impl<K: Ord + Copy> Exchanges<K> {
    /// None is open.
    pub fn new() -> Self {
        Self {
            open: BTreeMap::new(),
            checked: None,
            cut: 0,
        }
    }

    /// Whether none is open.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// How many are open.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// A request was decided, and goes on if `is_allowed`.
    pub fn begin_if(&mut self, is_allowed: bool, stream: K, exchange: Option<Exchange>) {
        if let Some(exchange) = exchange.filter(|_| is_allowed) {
            self.open.insert(stream, exchange);
        }
    }

    /// How the answer on this stream is rewritten, if it is, and the rule that says so.
    pub fn rewriting(&mut self, stream: K) -> Option<(usize, &mut Rewriting)> {
        let exchange = self.open.get_mut(&stream)?;
        Some((exchange.rule_index, exchange.rewriting.as_deref_mut()?))
    }

    /// A stream has ended.
    pub fn end(&mut self, stream: K) {
        self.open.remove(&stream);
    }

    /// The exchanges that must end now: their time is over, or `is_valid` no longer holds for their delegations.
    /// `revision` is that of the revocations.
    pub fn overdue(
        &mut self,
        now: Monotonic,
        revision: Option<u64>,
        is_valid: impl Fn(&CachedChain) -> bool,
    ) -> Vec<K> {
        let is_checked = self
            .checked
            .is_some_and(|(at, since)| at == revision && now.since(since) < CHECK_AT_LEAST_EVERY);
        if is_checked {
            return Vec::new();
        }
        self.checked = Some((revision, now));
        self.cut_if(|exchange| exchange.until <= now || !is_valid(&exchange.chain))
    }

    /// All exchanges.
    pub fn give_up(&mut self) -> Vec<K> {
        self.cut_if(|_| true)
    }

    /// They stay until their streams end, and nothing else of their answers passes if these are rewritten.
    fn cut_if(&mut self, is_over: impl Fn(&Exchange) -> bool) -> Vec<K> {
        let mut over = Vec::new();
        for (stream, exchange) in self.open.iter_mut().filter(|(_, exchange)| is_over(exchange)) {
            over.push(*stream);
            self.cut = self.cut.saturating_add(u64::from(!exchange.is_cut));
            exchange.is_cut = true;
            if let Some(rewriting) = &mut exchange.rewriting {
                rewriting.drop_rest();
            }
        }
        over
    }
}

impl<K: Ord + Copy> Default for Exchanges<K> {
    fn default() -> Self {
        Self::new()
    }
}

/// Expiry needs no new state of the revocations.
const CHECK_AT_LEAST_EVERY: Duration = Duration::from_millis(500);
