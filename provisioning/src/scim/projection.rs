//! `attributes` and `excludedAttributes` (RFC 7644 section 3.9): which parts of a resource are shown.

use super::error::ScimError;
use super::name::Name;
use super::schema::Attribute;
use super::value::{Members, Value};

/// The shown parts; everything by default.
#[derive(Debug, Default)]
pub struct Projection {
    names: Vec<Name>,
    /// Whether only the named parts are shown; otherwise they are left out.
    only: bool,
}

// === impl Projection ===

impl Projection {
    /// Parses lists of names from the query or the body of a search. `id` and `schemas` are always shown.
    pub fn parse<'a>(
        attributes: impl IntoIterator<Item = &'a str>,
        excluded: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, ScimError> {
        match (names(attributes)?, names(excluded)?) {
            (Some(_), Some(_)) => Err(ScimError::invalid_value(
                "attributes and excludedAttributes exclude each other (RFC 7644 section 3.9)",
            )),
            (Some(mut names), None) => {
                names.extend(ALWAYS.into_iter().flat_map(Name::parse));
                Ok(Self { names, only: true })
            }
            (None, excluded) => {
                let mut names = excluded.unwrap_or_default();
                names.retain(|name| !ALWAYS.contains(&name.last.name.as_str()));
                Ok(Self { names, only: false })
            }
        }
    }

    /// The shown part of the resource.
    pub fn apply(&self, mut resource: Members) -> Members {
        let paths: Vec<_> = self.names.iter().map(|name| name.path.as_slice()).collect();
        self.keep(&mut resource, &paths);
        resource
    }

    /// Removes the attributes without a path, or those with one.
    fn keep(&self, members: &mut Members, paths: &[&[&Attribute]]) {
        members.retain(|name, value| {
            let below: Vec<_> = paths
                .iter()
                .filter_map(|path| path.split_first())
                .filter_map(|(first, rest)| (first.name == *name).then_some(rest))
                .collect();
            let whole = below.iter().any(|rest| rest.is_empty());
            if !whole && !below.is_empty() {
                each_complex(value, |members| self.keep(members, &below));
            }
            let shown = if self.only { !below.is_empty() } else { !whole };
            shown && !value.is_empty()
        });
    }
}

/// Unknown names are ignored: there is nothing to show or to leave out.
fn names<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Option<Vec<Name>>, ScimError> {
    let mut found = Vec::new();
    let mut any = false;
    for (index, name) in names
        .into_iter()
        .flat_map(|names| names.split(','))
        .map(str::trim)
        .enumerate()
    {
        // Unknown names count too, so that the limit does not depend on the known ones.
        if index == MAX_NAMES {
            return Err(ScimError::invalid_value(format!(
                "at most {MAX_NAMES} attributes can be named"
            )));
        }
        if name.is_empty() {
            continue;
        }
        any = true;
        found.extend(Name::parse(name));
    }
    Ok(any.then_some(found))
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
            values.retain(|value| !value.is_empty());
        }
        _ => {}
    }
}

/// Always returned (RFC 7643 sections 3 and 3.1).
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
        resource.insert("id".to_owned(), Value::text("1"));
        let projection = Projection::parse([attributes], [excluded]).unwrap();
        serde_json::to_string(&projection.apply(resource)).unwrap()
    }

    #[test]
    fn only_requested_attributes_are_shown_and_always_the_id() {
        for (attributes, expected) in [
            ("username", r#"{"id":"1","userName":"alice"}"#),
            (
                "name.givenName, title",
                r#"{"id":"1","name":{"givenName":"A"},"title":"T"}"#,
            ),
            ("emails.value", r#"{"emails":[{"value":"a@x"}],"id":"1"}"#),
            ("nothing", r#"{"id":"1"}"#),
            (
                "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:department",
                r#"{"id":"1","urn:ietf:params:scim:schemas:extension:enterprise:2.0:User":{"department":"D"}}"#,
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
    fn excluded_attributes_are_not_shown_except_the_id() {
        let rest = shown(
            "",
            "id,emails,name.familyName,urn:ietf:params:scim:schemas:extension:enterprise:2.0:User",
        );
        assert_eq!(
            rest,
            r#"{"id":"1","name":{"givenName":"A"},"title":"T","userName":"alice"}"#
        );
    }

    #[test]
    fn both_at_once_are_refused() {
        Projection::parse(["title"], ["name"]).unwrap_err();
    }
}
