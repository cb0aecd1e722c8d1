//! `attributes` and `excludedAttributes` (RFC 7644 section 3.9): which parts of a resource are shown.

use super::error::ScimError;
use super::name::{Name, Unknown};
use super::schema::ENTERPRISE;
use super::value::{Members, Value};

/// What to show.
#[derive(Debug, Default)]
pub enum Projection {
    #[default]
    Everything,
    Only(Vec<Part>),
    Without(Vec<Part>),
}

/// An attribute, a part of one, or the whole extension.
#[derive(Debug)]
pub enum Part {
    Enterprise,
    Name(Name),
}

// === impl Projection ===

impl Projection {
    /// Lists of names, as in the query or the body of a search.
    pub fn parse<'a>(
        attributes: impl IntoIterator<Item = &'a str>,
        excluded: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, ScimError> {
        let only = names(attributes)?;
        let without = names(excluded)?;
        match (only, without) {
            (None, None) => Ok(Self::Everything),
            (Some(names), None) => Ok(Self::Only(names)),
            (None, Some(names)) => Ok(Self::Without(names)),
            (Some(_), Some(_)) => Err(ScimError::invalid_value(
                "attributes and excludedAttributes exclude each other (RFC 7644 section 3.9)",
            )),
        }
    }

    /// `id` and `schemas` are always shown.
    pub fn apply(&self, mut resource: Members) -> Members {
        match self {
            Self::Everything => {}
            Self::Only(parts) => {
                resource.retain(|name, value| ALWAYS.contains(&name) || keep_only(name, value, parts, false));
            }
            Self::Without(parts) => {
                for part in parts {
                    leave_out(&mut resource, part);
                }
            }
        }
        resource
    }
}

/// Names that no user has are passed over: what they name is not there, and so it is not shown.
fn names<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Option<Vec<Part>>, ScimError> {
    let mut parts = Vec::new();
    let mut any = false;
    for (index, name) in names
        .into_iter()
        .flat_map(|names| names.split(','))
        .map(str::trim)
        .enumerate()
    {
        // Of any names, so that the limit does not depend on which of them are known here.
        if index == MAX_NAMES {
            return Err(ScimError::invalid_value(format!(
                "at most {MAX_NAMES} attributes can be named"
            )));
        }
        if name.is_empty() {
            continue;
        }
        any = true;
        if name.eq_ignore_ascii_case(ENTERPRISE.id) {
            parts.push(Part::Enterprise);
            continue;
        }
        match Name::parse(name) {
            Ok(name) => parts.push(Part::Name(name)),
            Err(Unknown::Schema | Unknown::Attribute) => {}
        }
    }
    Ok(any.then_some(parts))
}

/// Whether any part of what is called so is wanted; takes away what is not.
fn keep_only(name: &str, value: &mut Value, parts: &[Part], enterprise: bool) -> bool {
    if !enterprise && name == ENTERPRISE.id {
        if parts.iter().any(|part| matches!(part, Part::Enterprise)) {
            return true;
        }
        return match value {
            Value::Complex(members) => {
                members.retain(|name, value| keep_only(name, value, parts, true));
                !members.is_empty()
            }
            _ => false,
        };
    }
    let wanted: Vec<_> = parts
        .iter()
        .filter_map(|part| match part {
            Part::Name(wanted) if wanted.enterprise == enterprise && wanted.attribute.name == name => Some(wanted.part),
            _ => None,
        })
        .collect();
    if wanted.is_empty() || wanted.iter().any(Option::is_none) {
        return !wanted.is_empty();
    }
    let wanted: Vec<_> = wanted.into_iter().flatten().map(|part| part.name).collect();
    each_complex(value, |members| members.retain(|name, _| wanted.contains(&name)));
    has_anything(value)
}

fn leave_out(resource: &mut Members, part: &Part) {
    let Part::Name(name) = part else {
        resource.take(ENTERPRISE.id);
        return;
    };
    if name.enterprise {
        if let Some(Value::Complex(mut extension)) = resource.take(ENTERPRISE.id) {
            leave_out_of(&mut extension, name);
            if !extension.is_empty() {
                resource.set(ENTERPRISE.id, Value::Complex(extension));
            }
        }
    } else if !ALWAYS.contains(&name.attribute.name) {
        leave_out_of(resource, name);
    }
}

fn leave_out_of(holder: &mut Members, name: &Name) {
    let Some(part) = name.part else {
        holder.take(name.attribute.name);
        return;
    };
    holder.retain(|known, value| {
        if known != name.attribute.name {
            return true;
        }
        each_complex(value, |members| {
            members.take(part.name);
        });
        has_anything(value)
    });
}

fn each_complex(value: &mut Value, mut change: impl FnMut(&mut Members)) {
    match value {
        Value::Complex(members) => change(members),
        Value::List(values) => {
            for value in values.iter_mut() {
                if let Value::Complex(members) = value {
                    change(members);
                }
            }
            values.retain(has_anything);
        }
        _ => {}
    }
}

fn has_anything(value: &Value) -> bool {
    match value {
        Value::Complex(members) => !members.is_empty(),
        Value::List(values) => !values.is_empty(),
        Value::Bool(_) | Value::Text(_) => true,
    }
}

/// Returned whatever is asked for (RFC 7643 sections 3 and 3.1).
const ALWAYS: [&str; 2] = ["id", "schemas"];
const MAX_NAMES: usize = 100;

#[cfg(test)]
mod tests {
    use super::super::user::read_attributes;
    use super::*;
    use credence_delegation::json::Json;

    fn shown(attributes: &str, excluded: &str) -> String {
        let json = br#"{"userName": "alice", "title": "T", "name": {"givenName": "A", "familyName": "B"},
            "emails": [{"value": "a@x", "type": "work"}, {"type": "home"}],
            "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User": {"department": "D", "division": "V"}}"#;
        let mut resource = read_attributes(Json::parse(json).unwrap().as_object().unwrap()).unwrap();
        resource.set("id", Value::text("1"));
        let projection = Projection::parse([attributes], [excluded]).unwrap();
        serde_json::to_string(&projection.apply(resource)).unwrap()
    }

    #[test]
    fn only_what_is_asked_for_is_shown_and_always_the_id() {
        for (attributes, expected) in [
            ("username", r#"{"userName":"alice","id":"1"}"#),
            (
                "name.givenName, title",
                r#"{"title":"T","name":{"givenName":"A"},"id":"1"}"#,
            ),
            ("emails.value", r#"{"emails":[{"value":"a@x"}],"id":"1"}"#),
            ("nothing", r#"{"id":"1"}"#),
            (
                "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:department",
                r#"{"urn:ietf:params:scim:schemas:extension:enterprise:2.0:User":{"department":"D"},"id":"1"}"#,
            ),
        ] {
            assert_eq!(shown(attributes, ""), expected, "{attributes}");
        }
    }

    #[test]
    fn names_are_counted_whether_known_or_not() {
        for name in ["title", "nothing", ""] {
            let names = |count| vec![name; count].join(",");
            assert!(Projection::parse([names(MAX_NAMES).as_str()], [""]).is_ok(), "{name}");
            assert!(
                Projection::parse([names(MAX_NAMES + 1).as_str()], [""]).is_err(),
                "{name}"
            );
        }
    }

    #[test]
    fn what_is_excluded_is_not_shown_but_for_the_id() {
        let rest = shown(
            "",
            "id,emails,name.familyName,urn:ietf:params:scim:schemas:extension:enterprise:2.0:User",
        );
        assert_eq!(
            rest,
            r#"{"userName":"alice","title":"T","name":{"givenName":"A"},"id":"1"}"#
        );
    }

    #[test]
    fn both_at_once_are_refused() {
        Projection::parse(["title"], ["name"]).unwrap_err();
    }
}
