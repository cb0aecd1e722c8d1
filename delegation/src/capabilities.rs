//! The grants of a token: tools, and constraints on their arguments (draft sections 3.3 and 4.5).

use crate::by_name::ByName;
use crate::constraint::{Budget, Constraint, ConstraintError, Fault};
use crate::denial::{Cause, Denial, Step};
use crate::json::{Json, Object};
use crate::value::Arguments;

/// The tools that a token grants. Tool names are compared as exact strings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Capabilities {
    tools: ByName<ToolGrant>,
}

/// The constraints under which a tool is granted: a delegation has one map of them. An access token can have several,
/// from its scopes, and each suffices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolGrant {
    first: ConstraintMap,
    others: Vec<ConstraintMap>,
}

/// The constraints on one tool's arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConstraintMap {
    entries: ByName<Entry>,
    /// Whether unnamed arguments are granted with any value: the `*` entry, or a map without entries.
    rest: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    constraint: Constraint,
    optional: bool,
}

impl Capabilities {
    /// Reads a `tools` object as a root token has it (draft section 3.3).
    ///
    /// # Errors
    /// The first tool that is no object, or the first malformed constraint.
    pub fn of_tools(tools: &Object<'_>) -> Result<Self, Denial> {
        Self::parse(tools, Step::S3m, Step::S3n)
    }

    /// Reads the `tools` member of an `attenuating_agent_token` entry. `shape` and `constraints` are the steps of its
    /// errors.
    pub(crate) fn parse(tools: &Object<'_>, shape: Step, constraints: Step) -> Result<Self, Denial> {
        // Shape before contents, because the draft has a step for each.
        let maps = tools
            .iter()
            .map(|(tool, map)| map.as_object().map(|map| (tool, map)))
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| malformed(shape))?;
        let tools = maps.into_iter().map(|(tool, map)| {
            let map = ConstraintMap::parse(tool, map).map_err(|error| constraints.deny(Cause::Constraint(error)))?;
            Ok((tool.into(), ToolGrant::from(map)))
        });
        Ok(Self {
            tools: tools.collect::<Result<_, _>>()?,
        })
    }

    /// All of these together. What any of them grants is granted.
    pub(crate) fn any_of(all: impl IntoIterator<Item = Self>) -> Self {
        let mut tools: Vec<(Box<str>, ToolGrant)> = Vec::new();
        for (tool, grant) in all.into_iter().flat_map(|capabilities| capabilities.tools) {
            match tools.iter_mut().find(|(name, _)| *name == tool) {
                Some((_, earlier)) => earlier.extend(grant),
                None => tools.push((tool, grant)),
            }
        }
        Self {
            tools: tools.into_iter().collect(),
        }
    }

    /// The constraints on `tool`'s arguments, if it is granted.
    pub fn tool(&self, tool: &str) -> Option<&ToolGrant> {
        self.tools.get(tool)
    }

    /// The names of the tools, sorted.
    pub fn tools(&self) -> impl Iterator<Item = &str> {
        self.tools.iter().map(|(tool, _)| tool)
    }

    /// Checks that `child` grants no more than this (draft section 8, step 4p).
    ///
    /// # Errors
    /// What it grants beyond this. Sound, but not complete: it may find no proof that one `any` is within another.
    pub fn check_attenuation(&self, child: &Self) -> Result<(), Denial> {
        let mut budget = Budget::PER_TOKEN;
        let mut pairs = Vec::with_capacity(child.tools.len());
        for (tool, grant) in child.tools.iter() {
            let map = &grant.first;
            let parent = self.tools.get(tool).ok_or_else(|| {
                Step::S4p1.deny(Cause::Attenuation(format!(
                    "the parent does not grant the tool \"{tool}\""
                )))
            })?;
            pairs.push((tool, parent.map_for(tool, map, &mut budget), map));
        }
        for check in [ConstraintMap::check_names, ConstraintMap::check_presence] {
            for &(tool, parent, map) in &pairs {
                check(parent, tool, map)?;
            }
        }
        for (tool, parent, map) in pairs {
            parent.check_constraints(tool, map, &mut budget)?;
        }
        Ok(())
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        let tools = self.tools.iter();
        tools
            .map(|(_, grant)| grant.heap_bytes())
            .fold(self.tools.heap_bytes(), usize::saturating_add)
    }
}

impl ToolGrant {
    /// Checks an invocation's arguments in closed world (draft section 8, step 6b).
    ///
    /// # Errors
    /// The first argument that is missing, not granted or not allowed.
    pub fn permits(&self, arguments: &Arguments) -> Result<(), Cause> {
        self.first.permits(arguments).or_else(|cause| {
            let is_permitted = self.others.iter().any(|map| map.permits(arguments).is_ok());
            if is_permitted { Ok(()) } else { Err(cause) }
        })
    }

    /// Checks that an invocation may have any arguments.
    pub(crate) fn permits_all(&self) -> Result<(), Cause> {
        let permits = |map: &ConstraintMap| match map.entries.iter().next() {
            Some((name, _)) => Err(Cause::ArgumentMissing(name.to_owned())),
            None if !map.rest => Err(Cause::ArgumentNotGranted("*".to_owned())),
            None => Ok(()),
        };
        permits(&self.first).or_else(|cause| {
            let is_permitted = self.others.iter().any(|map| permits(map).is_ok());
            if is_permitted { Ok(()) } else { Err(cause) }
        })
    }

    /// Checks some of an invocation's arguments, before the others are known.
    pub(crate) fn permits_so_far(&self, arguments: &Arguments) -> Result<(), Cause> {
        self.first.permits_present(arguments).or_else(|cause| {
            let is_permitted = self.others.iter().any(|map| map.permits_present(arguments).is_ok());
            if is_permitted { Ok(()) } else { Err(cause) }
        })
    }

    fn extend(&mut self, other: Self) {
        for map in std::iter::once(other.first).chain(other.others) {
            if self.first != map && !self.others.contains(&map) {
                self.others.push(map);
            }
        }
    }

    /// The map under which a child may have `child`, or any of the maps.
    fn map_for(&self, tool: &str, child: &ConstraintMap, budget: &mut Budget) -> &ConstraintMap {
        let mut covers = |map: &&ConstraintMap| {
            map.check_names(tool, child).is_ok()
                && map.check_presence(tool, child).is_ok()
                && map.check_constraints(tool, child, budget).is_ok()
        };
        self.others.iter().find(&mut covers).unwrap_or(&self.first)
    }

    fn heap_bytes(&self) -> usize {
        let others = self.others.iter();
        others
            .map(|map| size_of::<ConstraintMap>().saturating_add(map.heap_bytes()))
            .fold(self.first.heap_bytes(), usize::saturating_add)
    }
}

impl From<ConstraintMap> for ToolGrant {
    fn from(map: ConstraintMap) -> Self {
        Self {
            first: map,
            others: Vec::new(),
        }
    }
}

impl ConstraintMap {
    fn parse(tool: &str, map: &Object<'_>) -> Result<Self, ConstraintError> {
        let mut entries = Vec::new();
        let mut rest = map.is_empty();
        for (argument, json) in map.iter() {
            let fail = |fault| ConstraintError {
                place: format!("{tool}.{argument}"),
                fault,
            };
            let (constraint, optional) = Constraint::parse_entry(json).map_err(fail)?;
            if argument == "*" {
                let plain = json
                    .as_object()
                    .is_some_and(|object| object.member("optional").is_none());
                if constraint != Constraint::Wildcard || !plain {
                    return Err(fail(Fault::Rest));
                }
                rest = true;
            } else {
                entries.push((argument.into(), Entry { constraint, optional }));
            }
        }
        Ok(Self {
            entries: entries.into_iter().collect(),
            rest,
        })
    }

    /// Checks an invocation's arguments in closed world (draft section 8, step 6b).
    pub(crate) fn permits(&self, arguments: &Arguments) -> Result<(), Cause> {
        self.permits_present(arguments)?;
        match self
            .entries
            .iter()
            .find(|(name, entry)| !entry.optional && arguments.argument(name).is_none())
        {
            Some((name, _)) => Err(Cause::ArgumentMissing(name.to_owned())),
            None => Ok(()),
        }
    }

    fn permits_present(&self, arguments: &Arguments) -> Result<(), Cause> {
        for (name, value) in arguments.iter() {
            match self.entries.get(name) {
                Some(entry) if entry.constraint.check(value) => {}
                Some(_) => return Err(Cause::ArgumentRejected(name.to_owned())),
                None if self.rest => {}
                None => return Err(Cause::ArgumentNotGranted(name.to_owned())),
            }
        }
        Ok(())
    }

    fn heap_bytes(&self) -> usize {
        let entries = self.entries.iter();
        entries
            .map(|(_, entry)| entry.constraint.heap_bytes())
            .fold(self.entries.heap_bytes(), usize::saturating_add)
    }

    /// Step 4p2: which arguments a child may name and drop (section 4.5).
    fn check_names(&self, tool: &str, child: &Self) -> Result<(), Denial> {
        let deny = |what: String| Err(Step::S4p2.deny(Cause::Attenuation(what)));
        let mut names = child.entries.iter().map(|(name, _)| name);
        if let Some(name) = names.find(|name| !self.rest && !self.entries.has(name)) {
            return deny(format!(
                "the parent does not grant the argument \"{name}\" of \"{tool}\""
            ));
        }
        for (name, entry) in self.entries.iter() {
            if !child.entries.has(name) && (!entry.optional || child.rest) {
                return deny(format!(
                    "the argument \"{name}\" of \"{tool}\" is dropped, and with it its constraint"
                ));
            }
        }
        if child.rest && !self.rest {
            return deny(format!("the parent does not grant unnamed arguments of \"{tool}\""));
        }
        Ok(())
    }

    /// Step 4p3: a required argument stays required.
    fn check_presence(&self, tool: &str, child: &Self) -> Result<(), Denial> {
        for (name, entry) in child.entries.iter() {
            if entry.optional && self.entries.get(name).is_some_and(|parent| !parent.optional) {
                let what = format!("the argument \"{name}\" of \"{tool}\" is required by the parent");
                return Err(Step::S4p3.deny(Cause::Attenuation(what)));
            }
        }
        Ok(())
    }

    /// Step 4p4: every constraint is at least as tight as the parent's. An argument under the parent's `*` had no
    /// constraint, so any constraint is tighter.
    fn check_constraints(&self, tool: &str, child: &Self, budget: &mut Budget) -> Result<(), Denial> {
        for (name, entry) in child.entries.iter() {
            if self
                .entries
                .get(name)
                .is_some_and(|parent| !parent.constraint.subsumes_within(&entry.constraint, budget))
            {
                let what = format!("the constraint on \"{name}\" of \"{tool}\" is not within the parent's");
                return Err(Step::S4p4.deny(Cause::Attenuation(what)));
            }
        }
        Ok(())
    }
}

/// The capabilities in an `authorization_details` array: the only entry of type `attenuating_agent_token`, or none
/// (draft section 3.3).
///
/// # Errors
/// At the step `shape` if there are several entries, or if the entry has no valid `tools`; at `constraints` if a
/// constraint is malformed.
pub(crate) fn find(details: &[Json<'_>], shape: Step, constraints: Step) -> Result<Option<Capabilities>, Denial> {
    let mut found = None;
    for entry in details {
        let entry = entry.as_object().ok_or_else(|| malformed(shape))?;
        if entry.text("type") == Some("attenuating_agent_token") && found.replace(entry).is_some() {
            return Err(malformed(shape));
        }
    }
    let Some(entry) = found else { return Ok(None) };
    let tools = entry.object("tools").ok_or_else(|| malformed(shape))?;
    Capabilities::parse(tools, shape, constraints).map(Some)
}

fn malformed(shape: Step) -> Denial {
    shape.claim("authorization_details", ONE_ENTRY)
}

pub(crate) const ONE_ENTRY: &str = "an array with exactly one entry of type \"attenuating_agent_token\", whose \"tools\" is \
                                    an object of objects";
