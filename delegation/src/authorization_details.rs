//! Rich authorization details (RFC 9396): what their entries grant.
//!
//! Each type of entry has a template: the `tools` of a delegation (draft section 3.3), in which values may come from the
//! entry itself. `{"from": "/instructedAmount/currency"}` is the value at that JSON pointer (RFC 6901), and
//! `{"number_from": …}` the number that is written there as a string.
//!
//! A closed world again: an entry with a member that neither the template nor the configuration names grants nothing,
//! because that member may be a limit.

use std::borrow::Cow;

use crate::by_name::ByName;
use crate::capabilities::{self, Capabilities};
use crate::constraint::Constraint;
use crate::denial::{Cause, Denial, Step};
use crate::json::{Json, Object};
use crate::number::Number;
use crate::sort::sort;
use crate::value::Value;

/// The types of entries, by their names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct DetailTypes(ByName<DetailType>);

/// What entries of one type grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DetailType {
    /// The template, as JSON.
    tools: Box<str>,
    /// What the values at these pointers must be, or the entry grants nothing.
    requires: Vec<(Box<str>, Constraint)>,
    /// Pointers to all members that are read or ignored, sorted.
    known: Vec<Box<str>>,
}

impl DetailTypes {
    pub(crate) fn new(types: impl IntoIterator<Item = (Box<str>, DetailType)>) -> Self {
        Self(types.into_iter().collect())
    }

    /// The types whose template names this tool.
    pub(crate) fn of_tool(&self, tool: &str) -> impl Iterator<Item = &str> {
        let names_tool = move |detail_type: &DetailType| {
            let template = Json::parse(detail_type.tools.as_bytes());
            template.is_ok_and(|template| template.as_object().is_some_and(|tools| tools.member(tool).is_some()))
        };
        let types = self.0.iter();
        types
            .filter(move |(_, detail_type)| names_tool(detail_type))
            .map(|(name, _)| name)
    }

    /// What the entries grant.
    pub(crate) fn read(&self, details: &[Json<'_>]) -> Result<Vec<Capabilities>, Denial> {
        let mut granted = Vec::new();
        granted.extend(capabilities::find(details, Step::S3m, Step::S3n)?);
        let known = details.iter().filter_map(Json::as_object).filter_map(|entry| {
            let detail_type = entry.text("type").and_then(|name| self.0.get(name))?;
            Some((entry, detail_type))
        });
        for (number, (entry, detail_type)) in known.enumerate() {
            Step::S3m.ensure(
                number < MAX_ENTRIES,
                Cause::TooLong {
                    tokens: number,
                    limit: MAX_ENTRIES,
                },
            )?;
            granted.extend(detail_type.read(entry)?);
        }
        Ok(granted)
    }
}

impl DetailType {
    /// A type with this template. `ignored` are pointers to members that limit nothing.
    ///
    /// # Errors
    /// A number that does not keep its value in canonical form; a template that is not the `tools` of a delegation.
    pub(crate) fn new(
        tools: &Object<'_>,
        requires: Vec<(Box<str>, Constraint)>,
        ignored: &[&str],
    ) -> Result<Self, Denial> {
        let template = Json::Object(tools.clone());
        let text = Value::from_json(&template)
            .map_err(|error| Step::S3n.deny(error))?
            .canonical();
        check(&template)?;
        let mut known: Vec<Box<str>> = ignored
            .iter()
            .chain(&["/type"])
            .map(|pointer| (*pointer).into())
            .collect();
        known.extend(requires.iter().map(|(pointer, _)| pointer.clone()));
        collect_pointers(&template, &mut known);
        sort(&mut known);
        Ok(Self {
            tools: text.into(),
            requires,
            known,
        })
    }

    /// The pointers that it reads or ignores.
    pub(crate) fn pointers(&self) -> impl Iterator<Item = &str> {
        self.known.iter().map(|pointer| &**pointer)
    }

    /// What an entry of this type grants; `None` if nothing.
    fn read(&self, entry: &Object<'_>) -> Result<Option<Capabilities>, Denial> {
        let is_met = |(pointer, constraint): &(Box<str>, Constraint)| {
            let value = at(entry, pointer).and_then(|json| Value::from_json(json).ok());
            value.is_some_and(|value| constraint.check(&value))
        };
        if !self.requires.iter().all(is_met) || !self.knows(entry, "") {
            return Ok(None);
        }
        let template = Json::parse(self.tools.as_bytes()).map_err(|error| Step::S3n.deny(error))?;
        let Some(filled) = filled(&template, entry) else {
            return Ok(None);
        };
        let tools = filled
            .as_object()
            .ok_or_else(|| Step::S3n.malformed("a template is an object"))?;
        Capabilities::parse(tools, Step::S3m, Step::S3n).map(Some)
    }

    /// Whether every member of the object at this pointer is known, or has only known members.
    fn knows(&self, object: &Object<'_>, pointer: &str) -> bool {
        object.iter().all(|(name, json)| {
            let pointer = format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"));
            self.known.binary_search_by(|known| (**known).cmp(&*pointer)).is_ok()
                || json
                    .as_object()
                    .is_some_and(|inner| !inner.is_empty() && self.knows(inner, &pointer))
        })
    }
}

/// Entries of configured types in one token: each costs the work of its template.
const MAX_ENTRIES: usize = 16;

/// The template with the entry's values; `None` if the entry lacks one.
fn filled<'a>(template: &Json<'a>, entry: &'a Object<'a>) -> Option<Json<'a>> {
    Some(match template {
        Json::Object(object) => match reference(object) {
            Some(Reference::Value(pointer)) => at(entry, pointer)?.clone(),
            Some(Reference::Number(pointer)) => Json::Number(Number::parse(at(entry, pointer)?.as_str()?)?),
            None => {
                let members = object
                    .iter()
                    .map(|(name, json)| Some((name.to_owned(), filled(json, entry)?)));
                Json::Object(members.collect::<Option<Object<'_>>>()?)
            }
        },
        Json::Array(elements) => {
            let elements = elements.iter().map(|element| filled(element, entry));
            Json::Array(elements.collect::<Option<_>>()?)
        }
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => template.clone(),
    })
}

/// Checks a template with stand-ins for the entry's values.
fn check(template: &Json<'_>) -> Result<(), Denial> {
    let filled = with_stand_ins(template, "");
    let tools = filled
        .as_object()
        .ok_or_else(|| Step::S3n.malformed("a template is an object"))?;
    Capabilities::parse(tools, Step::S3m, Step::S3n).map(|_| ())
}

/// The template with a value of the type that the member of this name has in a constraint (draft section 3.4).
fn with_stand_ins<'a>(template: &Json<'a>, name: &str) -> Json<'a> {
    let number = || Number::parse("1").map_or(Json::Null, Json::Number);
    let text = || Json::String(Cow::Borrowed("1"));
    match template {
        Json::Object(object) => match (reference(object), name) {
            (Some(Reference::Number(_)), _) | (Some(Reference::Value(_)), "min" | "max") => number(),
            (Some(Reference::Value(_)), "values" | "excluded" | "required" | "allowed") => Json::Array(vec![text()]),
            (Some(Reference::Value(_)), _) => text(),
            (None, _) => {
                let members = object.iter();
                let members = members.map(|(name, json)| (name.to_owned(), with_stand_ins(json, name)));
                Json::Object(members.collect())
            }
        },
        Json::Array(elements) => Json::Array(elements.iter().map(|json| with_stand_ins(json, "")).collect()),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => template.clone(),
    }
}

/// A value that a template takes from the entry.
enum Reference<'t> {
    Value(&'t str),
    Number(&'t str),
}

fn reference<'t>(object: &'t Object<'_>) -> Option<Reference<'t>> {
    let mut members = object.iter();
    let (name, json) = members.next().filter(|_| object.iter().count() == 1)?;
    match (name, json.as_str()?) {
        ("from", pointer) => Some(Reference::Value(pointer)),
        ("number_from", pointer) => Some(Reference::Number(pointer)),
        _ => None,
    }
}

fn collect_pointers(template: &Json<'_>, pointers: &mut Vec<Box<str>>) {
    match template {
        Json::Object(object) => match reference(object) {
            Some(Reference::Value(pointer) | Reference::Number(pointer)) => pointers.push(pointer.into()),
            None => object.iter().for_each(|(_, json)| collect_pointers(json, pointers)),
        },
        Json::Array(elements) => elements.iter().for_each(|json| collect_pointers(json, pointers)),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
    }
}

/// The value at a JSON pointer, from object to object.
fn at<'o, 'a>(object: &'o Object<'a>, pointer: &str) -> Option<&'o Json<'a>> {
    let mut names = pointer.strip_prefix('/')?.split('/').map(unescaped);
    let first = object.member(&names.next()?)?;
    names.try_fold(first, |json, name| json.as_object()?.member(&name))
}

fn unescaped(name: &str) -> Cow<'_, str> {
    if name.contains('~') {
        Cow::Owned(name.replace("~1", "/").replace("~0", "~"))
    } else {
        Cow::Borrowed(name)
    }
}
