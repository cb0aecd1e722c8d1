//! The look-up of the rules that a host and a path may fall under.
//!
//! Under each host pattern hangs a tree of path segments. A request walks down it along every edge that takes its next
//! segment: the literal, `{capture}` and `{capture:integer}`. Each node is reached by one way only, so a walk visits no
//! node twice, and it leaves out what lies below a node whose first rule comes after the best one found so far. So a
//! look-up costs about as much as the path has segments, however many rules there are; and for rules made to be slow,
//! such as all mixtures of `a` and `{x}`, no more than looking at each rule's prefix once: never the two-to-the-depth of
//! a search that backtracks through the rules.

use std::collections::HashMap;

use super::Pattern;
use super::host::{HostMap, HostPattern};
use super::reading::Reading;
use super::template::{CaptureKind, PathTemplate, Segment};
use crate::target::{self, Segments};

/// Rules by host and path. A rule is its position among all.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    trees: HostMap<NodeId>,
    nodes: Vec<Node>,
}

/// A rule, and whether it is certain that the request falls under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hit {
    pub(super) rule: usize,
    pub(super) is_certain: bool,
}

/// Why there is no room for a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// [`MAX_ALIKE`] rules of one host have the path already.
    Alike,
    /// The hosts and paths of all rules together make more than [`MAX_NODES`].
    Nodes,
}

impl Index {
    /// Adds a rule, which comes after all that were added before.
    pub(super) fn insert(&mut self, rule: usize, pattern: &Pattern) -> Result<(), Full> {
        self.check_room(pattern)?;
        if pattern.hosts.is_empty() {
            self.insert_at(rule, None, &pattern.path);
        }
        for host in &pattern.hosts {
            self.insert_at(rule, Some(host), &pattern.path);
        }
        Ok(())
    }

    fn insert_at(&mut self, rule: usize, host: Option<&HostPattern>, path: &PathTemplate) {
        let nodes = &mut self.nodes;
        let mut id = *self.trees.entry(host).get_or_insert_with(|| add(nodes, rule));
        for segment in path.segments() {
            let known = nodes.get(id).and_then(|node| node.edge(segment));
            id = known.unwrap_or_else(|| {
                let new = add(nodes, rule);
                if let Some(node) = nodes.get_mut(id) {
                    node.set_edge(segment, new);
                }
                new
            });
        }
        if let Some(node) = nodes.get_mut(id) {
            let rules = if path.has_rest() {
                &mut node.rests
            } else {
                &mut node.ends
            };
            // A host that a rule lists twice is one host.
            if rules.last() != Some(&rule) {
                rules.push(rule);
            }
        }
    }

    fn check_room(&self, pattern: &Pattern) -> Result<(), Full> {
        let every_host = pattern.hosts.is_empty().then_some(None);
        let mut nodes = self.nodes.len();
        for host in every_host.into_iter().chain(pattern.hosts.iter().map(Some)) {
            let mut node = self.trees.of_pattern(host).and_then(|id| self.nodes.get(*id));
            nodes = nodes.saturating_add(usize::from(node.is_none()));
            for segment in pattern.path.segments() {
                let next = node.and_then(|node| node.edge(segment));
                node = next.and_then(|id| self.nodes.get(id));
                nodes = nodes.saturating_add(usize::from(node.is_none()));
            }
            let alike = node.map_or(0, |node| node.rules(pattern.path.has_rest()).len());
            if alike >= MAX_ALIKE {
                return Err(Full::Alike);
            }
        }
        if nodes > MAX_NODES { Err(Full::Nodes) } else { Ok(()) }
    }

    /// The first rule that takes the host (in lower case) and the path, and of which `judge` says more than no.
    pub(super) fn find(&self, host: &str, path: Segments<'_>, judge: impl FnMut(usize) -> Reading) -> Option<Hit> {
        let mut search = Search {
            nodes: &self.nodes,
            judge,
            best: None,
        };
        self.trees.each_over(host, |tree| search.walk(*tree, path, true));
        search.best
    }

    /// The first rule of which `covers` is true, among those whose host and path take all that the pattern's take.
    pub(super) fn find_covering(&self, pattern: &Pattern, mut covers: impl FnMut(usize) -> bool) -> Option<usize> {
        let mut search = Search {
            nodes: &self.nodes,
            judge: |rule| Reading::from(covers(rule)),
            best: None,
        };
        // A rule that covers them all covers the first.
        self.trees.each_covering(pattern.hosts.first(), |tree| {
            search.walk_template(*tree, pattern.path.segments(), pattern.path.has_rest());
        });
        search.best.map(|hit| hit.rule)
    }
}

/// What is left to decide below some segments.
#[derive(Clone, Debug)]
struct Node {
    /// The first rule at or below this node: the one that it was made for.
    first: usize,
    literals: Literals,
    text: Option<NodeId>,
    integer: Option<NodeId>,
    /// Rules whose path ends here, in order.
    ends: Vec<usize>,
    /// Rules whose path goes on with `**` here, in order.
    rests: Vec<usize>,
}

impl Node {
    fn edge(&self, segment: &Segment) -> Option<NodeId> {
        match segment {
            Segment::Literal(text) => self.literals.get(text),
            Segment::Capture { kind, .. } => self.capture(*kind),
        }
    }

    fn set_edge(&mut self, segment: &Segment, to: NodeId) {
        match segment {
            Segment::Literal(text) => self.literals.insert(text, to),
            Segment::Capture { kind, .. } => match kind {
                CaptureKind::Text => self.text = Some(to),
                CaptureKind::Integer => self.integer = Some(to),
            },
        }
    }

    fn capture(&self, kind: CaptureKind) -> Option<NodeId> {
        match kind {
            CaptureKind::Text => self.text,
            CaptureKind::Integer => self.integer,
        }
    }

    fn rules(&self, rest: bool) -> &[usize] {
        if rest { &self.rests } else { &self.ends }
    }

    /// The edges that take a segment of a request, percent-decoded, and whether it is certain that they do.
    fn edges(&self, decoded: &str) -> impl Iterator<Item = (NodeId, bool)> {
        let bare = target::without_parameters(decoded);
        let has_parameters = bare.len() != decoded.len();
        let captures = [CaptureKind::Integer, CaptureKind::Text].map(|kind| {
            let edge = self.capture(kind)?;
            match kind.takes(decoded) {
                Reading::Yes => Some((edge, true)),
                Reading::Unclear => Some((edge, false)),
                Reading::No => None,
            }
        });
        let literal = self.literals.get(decoded).map(|edge| (edge, true));
        let bare = if has_parameters { self.literals.get(bare) } else { None };
        let bare = bare.map(|edge| (edge, false));
        literal.into_iter().chain(bare).chain(captures.into_iter().flatten())
    }
}

/// The literal edges of a node. Most nodes have one, which needs no table.
#[derive(Clone, Debug)]
enum Literals {
    None,
    One(Box<str>, NodeId),
    Many(HashMap<Box<str>, NodeId>),
}

impl Literals {
    fn get(&self, text: &str) -> Option<NodeId> {
        match self {
            Self::None => None,
            Self::One(literal, to) => (**literal == *text).then_some(*to),
            Self::Many(table) => table.get(text).copied(),
        }
    }

    fn insert(&mut self, text: &str, to: NodeId) {
        *self = match std::mem::replace(self, Self::None) {
            Self::None => Self::One(text.into(), to),
            Self::One(literal, first) => Self::Many(HashMap::from([(literal, first), (text.into(), to)])),
            Self::Many(mut table) => {
                table.insert(text.into(), to);
                Self::Many(table)
            }
        };
    }
}

/// One look-up.
struct Search<'i, J> {
    nodes: &'i [Node],
    judge: J,
    best: Option<Hit>,
}

impl<'i, J: FnMut(usize) -> Reading> Search<'i, J> {
    /// As deep as the longest template.
    fn walk(&mut self, id: NodeId, mut path: Segments<'_>, is_certain: bool) {
        let Some(node) = self.node(id) else { return };
        self.consider(&node.rests, is_certain);
        let Some(segment) = path.next() else {
            return self.consider(&node.ends, is_certain);
        };
        // A parsed target's segments decode.
        let Ok(decoded) = target::decode(segment) else { return };
        for (edge, edge_is_certain) in node.edges(&decoded) {
            self.walk(edge, path, is_certain && edge_is_certain);
        }
    }

    fn walk_template(&mut self, id: NodeId, path: &[Segment], rest: bool) {
        let Some(node) = self.node(id) else { return };
        self.consider(&node.rests, true);
        match path.split_first() {
            None if rest => {}
            None => self.consider(&node.ends, true),
            Some((Segment::Literal(text), path)) => {
                for (edge, _) in node.edges(text) {
                    self.walk_template(edge, path, rest);
                }
            }
            Some((Segment::Capture { kind, .. }, path)) => {
                let same = (*kind == CaptureKind::Integer).then_some(node.integer).flatten();
                for edge in same.into_iter().chain(node.text) {
                    self.walk_template(edge, path, rest);
                }
            }
        }
    }

    /// The node, unless nothing at or below it comes before the best.
    fn node(&self, id: NodeId) -> Option<&'i Node> {
        self.nodes.get(id).filter(|node| self.is_better(node.first))
    }

    fn is_better(&self, rule: usize) -> bool {
        self.best.is_none_or(|best| rule < best.rule)
    }

    fn consider(&mut self, rules: &[usize], is_certain: bool) {
        for &rule in rules {
            if !self.is_better(rule) {
                return;
            }
            let is_certain = match (self.judge)(rule) {
                Reading::No => continue,
                Reading::Yes => is_certain,
                Reading::Unclear => false,
            };
            self.best = Some(Hit { rule, is_certain });
            return;
        }
    }
}

type NodeId = usize;

fn add(nodes: &mut Vec<Node>, rule: usize) -> NodeId {
    nodes.push(Node {
        first: rule,
        literals: Literals::None,
        text: None,
        integer: None,
        ends: Vec::new(),
        rests: Vec::new(),
    });
    nodes.len().saturating_sub(1)
}

/// Rules that one host has for the same path. They differ in methods and conditions, and are tried in turn.
pub const MAX_ALIKE: usize = 256;

/// Nodes of all trees: one for each segment of each path under each host pattern, where rules do not share them.
pub const MAX_NODES: usize = 1 << 19;
