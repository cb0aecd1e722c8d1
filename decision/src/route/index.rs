//! The look-up of the rules that a host and a path may match.
//!
//! Each host pattern has a tree of path segments. A request walks down it along every edge that accepts its next
//! segment: the literal, `{capture}` and `{capture:integer}`. Each node has only one way to it, so a walk visits no
//! node twice. It skips the nodes below one whose first rule comes after the best rule found so far. So a look-up costs
//! about as much as the path has segments, for any number of rules. For rules made to be slow, such as all mixtures of
//! `a` and `{x}`, it costs at most one look at each rule's prefix. A search that backtracks through the rules would
//! cost two to the depth.
//!
//! The same walk finds the rules that match the path in [another spelling](Found::respelled): it also follows literals
//! that differ in letter case, a trailing slash and a format suffix. A literal is reached by one spelling only, so this
//! visits no node twice either.

use std::collections::HashMap;

use thiserror::Error;

use super::host::{HostMap, HostPattern};
use super::pattern::Pattern;
use super::reading::Reading;
use super::template::{CaptureKind, PathTemplate, Segment};
use crate::request::target::{self, Segments, Tolerated};

/// Rules by host and path. A rule is its index among all.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    trees: HostMap<NodeId>,
    nodes: Vec<Node>,
}

/// A rule, and whether the request certainly matches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hit {
    pub(super) rule: usize,
    pub(super) is_certain: bool,
}

/// The result of a look-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The first rule that matches the path as it is spelled.
    pub(super) hit: Option<Hit>,
    /// Rules that match the path only in another spelling; of those with the same path, the first. Some may come after
    /// the hit. Empty, and without memory, for nearly every request.
    pub(super) respelled: Vec<usize>,
}

/// Why a route cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Unusable {
    /// The route with this index matches every request that this one could match.
    #[error("an earlier route matches every request that this one could match")]
    Covered {
        /// Its index among all, from 0.
        earlier: usize,
    },
    /// More than [`MAX_ALIKE`].
    #[error("{MAX_ALIKE} routes of one host have this path already; tell requests apart by their path")]
    TooManyAlike,
    /// More than [`MAX_NODES`].
    #[error("with this route, hosts times path segments come to more than {MAX_NODES}; list fewer hosts in each")]
    IndexFull,
}

impl Index {
    /// Adds a rule, which comes after all earlier ones.
    pub(super) fn insert(&mut self, rule: usize, pattern: &Pattern) -> Result<(), Unusable> {
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
            // A host that a rule lists twice counts once.
            if rules.last() != Some(&rule) {
                rules.push(rule);
            }
        }
    }

    fn check_room(&self, pattern: &Pattern) -> Result<(), Unusable> {
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
                return Err(Unusable::TooManyAlike);
            }
        }
        if nodes > MAX_NODES {
            Err(Unusable::IndexFull)
        } else {
            Ok(())
        }
    }

    /// The first rule that matches the host (in lower case) and the path, and for which `judge` returns more than no;
    /// and the rules that match it in another spelling that is not tolerated.
    pub(super) fn find(
        &self,
        host: &str,
        path: Segments<'_>,
        tolerated: Tolerated,
        judge: impl FnMut(usize) -> Reading,
    ) -> Found {
        let mut search = Search::new(&self.nodes, tolerated, judge);
        self.trees.each_over(host, |tree| search.walk(*tree, path, Way::EXACT));
        Found {
            hit: search.best,
            respelled: search.respelled,
        }
    }

    /// The first rule for which `covers` is true, among those whose host and path cover the pattern's.
    pub(super) fn find_covering(&self, pattern: &Pattern, mut covers: impl FnMut(usize) -> bool) -> Option<usize> {
        let judge = |rule| Reading::from(covers(rule));
        let mut search = Search::new(&self.nodes, Tolerated::default(), judge);
        // A rule that covers all of them covers the first.
        self.trees.each_covering(pattern.hosts.first(), |tree| {
            search.walk_template(*tree, pattern.path.segments(), pattern.path.has_rest());
        });
        search.best.map(|hit| hit.rule)
    }
}

/// A node: the rules below some segments.
#[derive(Clone, Debug)]
struct Node {
    /// The first rule at or below this node: the one for which it was created.
    first: usize,
    /// The edge of a trailing slash, which is an empty literal at the end.
    slash: Option<NodeId>,
    literals: Literals,
    /// The largest number of dots in a literal.
    most_dots: usize,
    text: Option<NodeId>,
    integer: Option<NodeId>,
    /// Rules whose path ends here, in order.
    ends: Vec<usize>,
    /// Rules whose path continues with `**` here, in order.
    rests: Vec<usize>,
}

impl Node {
    fn edge(&self, segment: &Segment) -> Option<NodeId> {
        match segment {
            Segment::Literal(text) => self.literal(text),
            Segment::Capture { kind, .. } => self.capture(*kind),
        }
    }

    fn set_edge(&mut self, segment: &Segment, to: NodeId) {
        match segment {
            Segment::Literal(text) if text.is_empty() => self.slash = Some(to),
            Segment::Literal(text) => {
                let dots = text.bytes().filter(|byte| *byte == b'.').count();
                self.most_dots = self.most_dots.max(dots);
                self.literals.insert(text, to);
            }
            Segment::Capture { kind, .. } => match kind {
                CaptureKind::Text => self.text = Some(to),
                CaptureKind::Integer => self.integer = Some(to),
            },
        }
    }

    fn literal(&self, text: &str) -> Option<NodeId> {
        if text.is_empty() {
            return self.slash;
        }
        let mut alike = self.literals.alike(text).iter();
        alike.find(|literal| *literal.text == *text).map(|literal| literal.to)
    }

    fn capture(&self, kind: CaptureKind) -> Option<NodeId> {
        match kind {
            CaptureKind::Text => self.text,
            CaptureKind::Integer => self.integer,
        }
    }

    /// The captures that accept a segment, percent-decoded, and whether that is certain.
    fn captures(&self, decoded: &str) -> impl Iterator<Item = (NodeId, bool)> {
        let captures = [CaptureKind::Integer, CaptureKind::Text].map(|kind| {
            let edge = self.capture(kind)?;
            match kind.takes(decoded) {
                Reading::Yes => Some((edge, true)),
                Reading::Unclear => Some((edge, false)),
                Reading::No => None,
            }
        });
        captures.into_iter().flatten()
    }

    fn rules(&self, rest: bool) -> &[usize] {
        if rest { &self.rests } else { &self.ends }
    }
}

/// The literal edges of a node, by their texts in lower case. Most nodes have one, which needs no table.
#[derive(Clone, Debug)]
enum Literals {
    None,
    One(Literal),
    Many(HashMap<Box<[u8]>, Vec<Literal>>),
}

#[derive(Clone, Debug)]
struct Literal {
    text: Box<str>,
    to: NodeId,
}

impl Literals {
    /// Those whose texts differ from this one at most in letter case.
    fn alike(&self, text: &str) -> &[Literal] {
        match self {
            Self::One(literal) if literal.text.eq_ignore_ascii_case(text) => std::slice::from_ref(literal),
            Self::None | Self::One(_) => &[],
            Self::Many(table) => {
                let mut buffer = [0; SHORT];
                let found = match buffer.get_mut(..text.len()) {
                    Some(folded) => {
                        folded.copy_from_slice(text.as_bytes());
                        folded.make_ascii_lowercase();
                        table.get(&*folded)
                    }
                    None => table.get(&*text.as_bytes().to_ascii_lowercase()),
                };
                found.map_or(&[], Vec::as_slice)
            }
        }
    }

    fn insert(&mut self, text: &str, to: NodeId) {
        let literal = Literal { text: text.into(), to };
        *self = match std::mem::replace(self, Self::None) {
            Self::None => Self::One(literal),
            Self::One(first) => {
                let mut table = HashMap::new();
                put(&mut table, first);
                put(&mut table, literal);
                Self::Many(table)
            }
            Self::Many(mut table) => {
                put(&mut table, literal);
                Self::Many(table)
            }
        };
    }
}

fn put(table: &mut HashMap<Box<[u8]>, Vec<Literal>>, literal: Literal) {
    let folded = literal.text.as_bytes().to_ascii_lowercase();
    table.entry(folded.into()).or_default().push(literal);
}

/// How a walk reached a node.
#[derive(Clone, Copy, Debug)]
struct Way {
    /// Whether every service reads the segments so far in this way.
    is_certain: bool,
    /// Whether the path has the spelling of the rules below.
    is_exact: bool,
}

impl Way {
    const EXACT: Self = Self {
        is_certain: true,
        is_exact: true,
    };

    fn and(self, is_certain: bool) -> Self {
        Self {
            is_certain: self.is_certain && is_certain,
            ..self
        }
    }

    fn respelled(self) -> Self {
        Self {
            is_exact: false,
            ..self
        }
    }
}

/// One look-up.
struct Search<'i, J> {
    nodes: &'i [Node],
    tolerated: Tolerated,
    judge: J,
    best: Option<Hit>,
    respelled: Vec<usize>,
}

impl<'i, J: FnMut(usize) -> Reading> Search<'i, J> {
    fn new(nodes: &'i [Node], tolerated: Tolerated, judge: J) -> Self {
        Self {
            nodes,
            tolerated,
            judge,
            best: None,
            respelled: Vec::new(),
        }
    }

    /// The recursion is as deep as the longest template.
    fn walk(&mut self, id: NodeId, mut path: Segments<'_>, way: Way) {
        let Some(node) = self.node(id) else { return };
        self.consider(&node.rests, way);
        let Some(segment) = path.next() else {
            self.consider(&node.ends, way);
            if !self.tolerated.trailing_slash
                && let Some(slash) = node.slash.and_then(|id| self.node(id))
            {
                self.consider(&slash.ends, way.respelled());
            }
            return;
        };
        // The segments of a parsed target decode.
        let Ok(decoded) = target::decode(segment) else { return };
        let bare = target::without_parameters(&decoded);
        if bare.is_empty() {
            if let Some(slash) = node.slash {
                self.walk(slash, path, way.and(decoded.is_empty()));
            }
            if !self.tolerated.trailing_slash && path.is_empty() {
                self.consider(&node.ends, way.respelled());
            }
        } else {
            self.walk_literals(node, &decoded, path, way);
            if bare.len() != decoded.len() {
                self.walk_literals(node, bare, path, way.and(false));
            }
            let other_letters = target::with_ascii_letters(bare).filter(|_| !self.tolerated.letter_case);
            if let Some(letters) = &other_letters {
                self.walk_literals(node, letters, path, way.respelled());
            }
            if !self.tolerated.format_suffix && path.is_at_end() {
                // A literal with this many dots is the text before the next one.
                let stems = [Some(bare), other_letters.as_deref()].into_iter().flatten();
                for stem in stems.flat_map(|text| target::without_format(text).take(node.most_dots.saturating_add(1))) {
                    self.walk_literals(node, stem, path, way.respelled());
                }
                if let (Some(integer), Some(stem)) = (node.integer, target::without_format(bare).next())
                    && CaptureKind::Integer.takes(stem) != Reading::No
                {
                    self.walk(integer, path, way.respelled());
                }
            }
        }
        for (edge, is_certain) in node.captures(&decoded) {
            self.walk(edge, path, way.and(is_certain));
        }
    }

    fn walk_literals(&mut self, node: &'i Node, text: &str, path: Segments<'_>, way: Way) {
        for literal in node.literals.alike(text) {
            if *literal.text == *text {
                self.walk(literal.to, path, way);
            } else if !self.tolerated.letter_case {
                self.walk(literal.to, path, way.respelled());
            }
        }
    }

    fn walk_template(&mut self, id: NodeId, path: &[Segment], rest: bool) {
        let Some(node) = self.node(id) else { return };
        self.consider(&node.rests, Way::EXACT);
        match path.split_first() {
            None if rest => {}
            None => self.consider(&node.ends, Way::EXACT),
            Some((Segment::Literal(text), path)) => {
                let bare = target::without_parameters(text);
                let bare = (bare.len() != text.len()).then(|| node.literal(bare)).flatten();
                let captures = node.captures(text).map(|(edge, _)| edge);
                for edge in node.literal(text).into_iter().chain(bare).chain(captures) {
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

    /// The node, unless all rules at or below it come after the best one.
    fn node(&self, id: NodeId) -> Option<&'i Node> {
        self.nodes.get(id).filter(|node| self.is_better(node.first))
    }

    fn is_better(&self, rule: usize) -> bool {
        self.best.is_none_or(|best| rule < best.rule)
    }

    fn consider(&mut self, rules: &[usize], way: Way) {
        for &rule in rules {
            if !self.is_better(rule) {
                return;
            }
            let reading = (self.judge)(rule);
            if reading == Reading::No {
                continue;
            }
            if way.is_exact {
                let is_certain = way.is_certain && reading == Reading::Yes;
                self.best = Some(Hit { rule, is_certain });
            } else {
                self.respelled.push(rule);
            }
            return;
        }
    }
}

type NodeId = usize;

fn add(nodes: &mut Vec<Node>, rule: usize) -> NodeId {
    nodes.push(Node {
        first: rule,
        slash: None,
        most_dots: 0,
        literals: Literals::None,
        text: None,
        integer: None,
        ends: Vec::new(),
        rests: Vec::new(),
    });
    nodes.len().saturating_sub(1)
}

/// Bytes of a segment that is converted to lower case without allocating.
const SHORT: usize = 64;

/// Rules of one host with the same path. They differ in methods and conditions, and are tried in order.
pub const MAX_ALIKE: usize = 256;

/// Nodes of all trees: one for each segment of each path under each host pattern, unless rules share them.
pub const MAX_NODES: usize = 1 << 19;
