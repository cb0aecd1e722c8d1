//! `PATCH` (RFC 7644 section 3.5.2), in every spelling that the big identity providers send.
//!
//! | not in the RFC | sent by |
//! |---|---|
//! | `"op": "Replace"`, `"Add"`, `"Remove"` | Entra ID |
//! | booleans as `"True"` and `"False"` | Entra ID |
//! | a `value` without a `path` whose members are paths: `{"name.givenName": "A"}` | Entra ID, OneLogin, Ping |
//! | `emails[type eq "work"].value` without such a value yet | Entra ID |
//! | the manager as a string, or in a list of one | Entra ID |
//! | `id` and `schemas` among the changes | Okta |

use credence_delegation::json::{Json, Object};

use super::error::ScimError;
use super::filter::Filter;
use super::name::Name;
use super::path::{Path, Target};
use super::schema::{Attribute, Mutability, is_primary};
use super::value::{Members, Value};

/// Applies a request to the attributes of a user. After an error they are partly changed, and must be discarded.
pub(crate) fn apply(attributes: &mut Members, request: &Object<'_>) -> Result<(), ScimError> {
    for operation in operations(request)? {
        apply_one(attributes, operation)?;
    }
    Ok(())
}

/// The operations of the body. The case of its members' names does not matter.
fn operations<'a, 'b>(request: &'a Object<'b>) -> Result<&'a [Json<'b>], ScimError> {
    if let Some(schemas) = member(request, "schemas")? {
        let named = schemas.as_array().unwrap_or_default();
        if !named
            .iter()
            .filter_map(Json::as_str)
            .any(|schema| schema.eq_ignore_ascii_case(PATCH_OP))
        {
            return Err(ScimError::invalid_syntax(format!("schemas must name {PATCH_OP}")));
        }
    }
    let operations = member(request, "Operations")?
        .and_then(Json::as_array)
        .filter(|operations| !operations.is_empty())
        .ok_or_else(|| ScimError::invalid_syntax("Operations must be an array with at least one operation"))?;
    if operations.len() > MAX_OPERATIONS {
        return Err(ScimError::bad(
            "tooMany",
            format!(
                "a request has at most {MAX_OPERATIONS} operations; this one has {}",
                operations.len()
            ),
        ));
    }
    Ok(operations)
}

fn member<'a, 'b>(object: &'a Object<'b>, name: &str) -> Result<Option<&'a Json<'b>>, ScimError> {
    let mut found = object
        .iter()
        .filter(|(known, _)| known.eq_ignore_ascii_case(name))
        .map(|(_, value)| value);
    match (found.next(), found.next()) {
        (_, Some(_)) => Err(super::schema::twice(name)),
        (value, None) => Ok(value),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Add,
    Replace,
    Remove,
}

// === impl Verb ===

impl Verb {
    /// The effective verb for this value: null removes.
    fn with(self, value: &Json<'_>) -> Self {
        match value {
            Json::Null => Self::Remove,
            _ => self,
        }
    }
}

/// Applies one operation.
fn apply_one(attributes: &mut Members, operation: &Json<'_>) -> Result<(), ScimError> {
    let object = operation
        .as_object()
        .ok_or_else(|| ScimError::invalid_syntax("an operation is an object with op, path and value"))?;
    let op = member(object, "op")?.and_then(Json::as_str).unwrap_or_default();
    let verb = match op.to_ascii_lowercase().as_str() {
        "add" => Verb::Add,
        "replace" => Verb::Replace,
        "remove" => Verb::Remove,
        _ => {
            return Err(ScimError::invalid_syntax(format!(
                "op is {op:?}; it must be add, replace or remove"
            )));
        }
    };
    let value = member(object, "value")?;
    let path = match member(object, "path")?.unwrap_or(&Json::Null) {
        Json::Null => "",
        path => path
            .as_str()
            .ok_or_else(|| ScimError::invalid_path("a path is a string"))?,
    };
    if path.is_empty() {
        return apply_each(attributes, verb, value);
    }
    match Target::parse(path)? {
        Target::Foreign => Ok(()),
        Target::Attribute(path) => change(attributes, &path, verb, value),
    }
}

/// A value without a path: each of its members' names is the path of a change.
fn apply_each(attributes: &mut Members, verb: Verb, value: Option<&Json<'_>>) -> Result<(), ScimError> {
    if verb == Verb::Remove {
        return Err(ScimError::bad(
            "noTarget",
            "remove needs a path (RFC 7644 section 3.5.2.2)",
        ));
    }
    let changes = value
        .and_then(Json::as_object)
        .ok_or_else(|| ScimError::invalid_value("without a path, value must be an object of attributes"))?;
    for (name, value) in changes.iter() {
        match Target::parse(name) {
            // Clients that send back what they read include our attributes unchanged.
            Ok(Target::Attribute(path)) if path.name.is_read_only() => {}
            Ok(Target::Attribute(path)) => change(attributes, &path, verb, Some(value))?,
            Ok(Target::Foreign) => {}
            Err(error) if name.contains('[') => return Err(error),
            Err(_) => {}
        }
    }
    Ok(())
}

/// Changes the target of the path.
fn change(attributes: &mut Members, path: &Path, verb: Verb, value: Option<&Json<'_>>) -> Result<(), ScimError> {
    let last = path.name.last;
    if path.name.is_read_only() {
        return Err(ScimError::bad("mutability", format!("{} cannot be changed", last.name)));
    }
    if last.mutability == Mutability::WriteOnly {
        return Ok(());
    }
    let verb = value.map_or(verb, |value| verb.with(value));
    if verb == Verb::Remove && last.required {
        return Err(ScimError::bad(
            "mutability",
            format!("{} is required, and cannot be removed", last.name),
        ));
    }
    if verb != Verb::Remove && value.is_none() {
        return Err(ScimError::invalid_value(format!(
            "the operation on {} lacks a value",
            last.name
        )));
    }
    let change = Change {
        verb,
        value,
        chosen: path.values.as_ref(),
    };
    change.at(attributes, &path.name.path)
}

/// The change at the end of a path.
struct Change<'a, 'b> {
    verb: Verb,
    value: Option<&'a Json<'b>>,
    /// The chosen values of an attribute with several; all of them if absent.
    chosen: Option<&'a Filter>,
}

// === impl Change ===

impl Change<'_, '_> {
    fn at(&self, holder: &mut Members, path: &[&'static Attribute]) -> Result<(), ScimError> {
        let Some((attribute, parts)) = path.split_first() else {
            return Ok(());
        };
        let held = holder.remove(&attribute.name);
        let held = if attribute.multi_valued {
            let mut values = match held {
                Some(Value::List(values)) => values,
                _ => Vec::new(),
            };
            self.values(&mut values, attribute, parts)?;
            Some(Value::List(values))
        } else if parts.is_empty() {
            self.value(held, attribute)?
        } else {
            let mut members = complex(held);
            self.at(&mut members, parts)?;
            Some(Value::Complex(members))
        };
        if let Some(held) = held.filter(|held| !held.is_empty()) {
            holder.insert(attribute.name.clone(), held);
        }
        Ok(())
    }

    /// The new value of an attribute with a single value.
    fn value(&self, held: Option<Value>, attribute: &'static Attribute) -> Result<Option<Value>, ScimError> {
        let written = self.read(attribute)?;
        if self.verb == Verb::Remove || !attribute.is_complex() {
            return Ok(written.filter(|_| self.verb != Verb::Remove));
        }
        let mut members = complex(held);
        match self.value {
            // Parts that are left out do not change.
            Some(Json::Object(parts)) => {
                for (name, value) in parts.iter() {
                    let name = Name::within(attribute, name.split('.')).filter(|name| !name.is_read_only());
                    let part = Change {
                        verb: self.verb.with(value),
                        value: Some(value),
                        chosen: None,
                    };
                    name.map_or(Ok(()), |name| part.at(&mut members, &name.path))?;
                }
            }
            _ => members.extend(complex(written)),
        }
        Ok(Some(Value::Complex(members)))
    }

    /// Changes an attribute with several values, or some of the values.
    fn values(
        &self,
        values: &mut Vec<Value>,
        attribute: &Attribute,
        parts: &[&'static Attribute],
    ) -> Result<(), ScimError> {
        let Some(chosen) = self.chosen else {
            if parts.is_empty() {
                return self.all(values, attribute);
            }
            if values.is_empty() && self.verb != Verb::Remove {
                values.push(Value::Complex(Members::default()));
            }
            let all = 0..values.len();
            return self.some(values, all.collect(), attribute, parts);
        };
        let mut places: Vec<_> = values
            .iter()
            .enumerate()
            .filter(|(_, value)| value.as_complex().is_some_and(|members| chosen.matches(members)))
            .map(|(place, _)| place)
            .collect();
        if !places.is_empty() {
            return self.some(values, places, attribute, parts);
        }
        let Some(members) = chosen.exemplar().filter(|_| self.verb != Verb::Remove) else {
            return Err(ScimError::bad(
                "noTarget",
                format!("no value of {} meets the filter of the path", attribute.name),
            ));
        };
        places.push(values.len());
        values.push(Value::Complex(members));
        // Replacing the new value would remove the members that make it meet the filter.
        let adding = Change {
            verb: Verb::Add,
            ..*self
        };
        adding.some(values, places, attribute, parts)
    }

    fn all(&self, values: &mut Vec<Value>, attribute: &Attribute) -> Result<(), ScimError> {
        let read = match self.read(attribute)? {
            Some(Value::List(read)) => read,
            _ => Vec::new(),
        };
        match self.verb {
            // Only Entra ID removes these values like this; the RFCs do not define it.
            Verb::Remove if !read.is_empty() => values.retain(|held| !read.iter().any(|named| covers(named, held))),
            Verb::Remove => values.clear(),
            Verb::Replace => *values = read,
            Verb::Add => {
                let first = values.len();
                for value in read {
                    if !values.contains(&value) {
                        values.push(value);
                    }
                }
                keep_one_primary(values, first);
            }
        }
        Ok(())
    }

    fn some(
        &self,
        values: &mut Vec<Value>,
        places: Vec<usize>,
        attribute: &Attribute,
        parts: &[&'static Attribute],
    ) -> Result<(), ScimError> {
        let written = match parts.is_empty() {
            false => None,
            true => match self.read(attribute)? {
                Some(Value::List(mut read)) if read.len() == 1 => read.pop(),
                None => None,
                Some(_) => {
                    return Err(ScimError::invalid_value(format!(
                        "a value of {} is one object",
                        attribute.name
                    )));
                }
            },
        };
        let first = places.first().copied().unwrap_or_default();
        for &place in &places {
            let Some(held) = values.get_mut(place) else { continue };
            let mut members = complex(Some(std::mem::replace(held, Value::Bool(false))));
            match (self.verb, &written) {
                _ if !parts.is_empty() => self.at(&mut members, parts)?,
                (Verb::Remove, _) => members = Members::default(),
                (Verb::Replace, Some(Value::Complex(written))) => members = written.clone(),
                (_, Some(Value::Complex(written))) => members.extend(written.clone()),
                _ => {}
            }
            *held = Value::Complex(members);
        }
        keep_one_primary(values, first);
        values.retain(|value| !value.is_empty());
        Ok(())
    }

    fn read(&self, attribute: &Attribute) -> Result<Option<Value>, ScimError> {
        self.value.map_or(Ok(None), |value| attribute.read(value))
    }
}

/// Whether the held value has everything that the named one has.
fn covers(named: &Value, held: &Value) -> bool {
    match (named, held) {
        (Value::Complex(named), Value::Complex(held)) => {
            named.iter().all(|(name, value)| held.get(name) == Some(value))
        }
        (named, held) => named == held,
    }
}

/// A value that becomes primary takes this from the others (RFC 7644 section 3.5.2). The values from `changed` on are
/// those that may just have become primary.
fn keep_one_primary(values: &mut [Value], changed: usize) {
    let primaries: Vec<_> = (0..values.len())
        .filter(|&place| values.get(place).is_some_and(is_primary))
        .collect();
    if primaries.len() < 2 {
        return;
    }
    let kept = primaries.iter().copied().find(|&place| place >= changed);
    for place in primaries.into_iter().filter(|&place| Some(place) != kept) {
        if let Some(Value::Complex(members)) = values.get_mut(place) {
            members.insert("primary".to_owned(), Value::Bool(false));
        }
    }
}

fn complex(value: Option<Value>) -> Members {
    match value {
        Some(Value::Complex(members)) => members,
        _ => Members::default(),
    }
}

const PATCH_OP: &str = "urn:ietf:params:scim:api:messages:2.0:PatchOp";
const MAX_OPERATIONS: usize = 100;

#[cfg(test)]
#[allow(clippy::disallowed_types, reason = "tests check users of any shape")]
mod tests {
    use super::super::user::read_attributes;
    use super::super::value::text;
    use super::*;

    const USER: &str = r#"{"userName": "alice", "active": true, "displayName": "Alice",
        "name": {"givenName": "Alice", "familyName": "Adams"},
        "emails": [{"value": "alice@work.example", "type": "work", "primary": true},
                   {"value": "alice@home.example", "type": "home"}],
        "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User": {"department": "Tools"}}"#;

    fn attributes(json: &str) -> Members {
        read_attributes(Json::parse(json.as_bytes()).unwrap().as_object().unwrap()).unwrap()
    }

    fn patched(operations: &str) -> Result<Members, ScimError> {
        let mut user = attributes(USER);
        let body = format!(
            r#"{{"schemas": ["urn:ietf:params:scim:api:messages:2.0:PatchOp"], "Operations": [{operations}]}}"#
        );
        apply(&mut user, Json::parse(body.as_bytes()).unwrap().as_object().unwrap())?;
        Ok(user)
    }

    fn json(members: &Members) -> serde_json::Value {
        serde_json::to_value(members).unwrap()
    }

    /// Each operation, and the only place of the user that it changes.
    #[test]
    fn requests_of_identity_providers_have_the_intended_effect() {
        let enterprise = "/urn:ietf:params:scim:schemas:extension:enterprise:2.0:User";
        let department = format!("{enterprise}/department");
        let manager = format!("{enterprise}/manager/value");
        for (sender, operation, place, expected) in [
            (
                "RFC",
                r#"{"op": "replace", "path": "active", "value": false}"#,
                "/active",
                "false",
            ),
            (
                "Entra ID",
                r#"{"op": "Replace", "path": "active", "value": "False"}"#,
                "/active",
                "false",
            ),
            (
                "Entra ID",
                r#"{"op": "Add", "path": "active", "value": "false"}"#,
                "/active",
                "false",
            ),
            (
                "Entra ID",
                r#"{"op": "Replace", "value": {"active": "False"}}"#,
                "/active",
                "false",
            ),
            (
                "Okta",
                r#"{"op": "replace", "value": {"active": false}}"#,
                "/active",
                "false",
            ),
            (
                "Okta",
                r#"{"op": "replace", "value": {"id": "1", "schemas": [], "active": false}}"#,
                "/active",
                "false",
            ),
            (
                "OneLogin",
                r#"{"op": "replace", "path": "active", "value": "false"}"#,
                "/active",
                "false",
            ),
            (
                "JumpCloud",
                r#"{"op": "REPLACE", "path": "Active", "value": false}"#,
                "/active",
                "false",
            ),
            (
                "Ping",
                r#"{"op": "replace", "path": "urn:ietf:params:scim:schemas:core:2.0:User:active", "value": false}"#,
                "/active",
                "false",
            ),
            (
                "Google",
                r#"{"op": "replace", "value": {"urn:ietf:params:scim:schemas:core:2.0:User:active": false}}"#,
                "/active",
                "false",
            ),
            ("RFC", r#"{"op": "remove", "path": "active"}"#, "/active", "absent"),
            (
                "any",
                r#"{"op": "replace", "path": "active", "value": null}"#,
                "/active",
                "absent",
            ),
            (
                "Entra ID",
                r#"{"op": "Replace", "path": "emails[type eq \"work\"].value", "value": "a@new.example"}"#,
                "/emails/0/value",
                r#""a@new.example""#,
            ),
            (
                "Entra ID",
                r#"{"op": "Add", "path": "phoneNumbers[type eq \"mobile\"].value", "value": "+1 555"}"#,
                "/phoneNumbers",
                r#"[{"type":"mobile","value":"+1 555"}]"#,
            ),
            (
                "Entra ID",
                r#"{"op": "Replace", "value": {"name.givenName": "Al", "displayName": "Al A"}}"#,
                "/name",
                r#"{"familyName":"Adams","givenName":"Al"}"#,
            ),
            (
                "Entra ID",
                r#"{"op": "Add", "value": {"emails[type eq \"other\"].value": "o@x.example"}}"#,
                "/emails/2",
                r#"{"type":"other","value":"o@x.example"}"#,
            ),
            (
                "Entra ID",
                r#"{"op": "Replace", "path": "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:department", "value": "Sales"}"#,
                department.as_str(),
                r#""Sales""#,
            ),
            (
                "Entra ID",
                r#"{"op": "Add", "path": "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:manager", "value": "7"}"#,
                manager.as_str(),
                r#""7""#,
            ),
            (
                "Entra ID",
                r#"{"op": "Add", "path": "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:manager", "value": [{"$ref": "u/7", "value": "7"}]}"#,
                manager.as_str(),
                r#""7""#,
            ),
            (
                "Okta",
                r#"{"op": "replace", "value": {"urn:ietf:params:scim:schemas:extension:enterprise:2.0:User": {"department": "Sales"}}}"#,
                department.as_str(),
                r#""Sales""#,
            ),
            (
                "any",
                r#"{"op": "replace", "value": {"urn:ietf:params:scim:schemas:extension:enterprise:2.0:User": {"department": null}}}"#,
                department.as_str(),
                "absent",
            ),
            (
                "any",
                r#"{"op": "replace", "path": "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User", "value": {"colour": "red"}}"#,
                department.as_str(),
                r#""Tools""#,
            ),
            (
                "any",
                r#"{"op": "remove", "path": "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"}"#,
                enterprise,
                "absent",
            ),
            (
                "RFC",
                r#"{"op": "replace", "path": "name", "value": {"givenName": null, "colour": "red"}}"#,
                "/name",
                r#"{"familyName":"Adams"}"#,
            ),
            (
                "any",
                r#"{"op": "replace", "path": "urn:example:custom:2.0:User:colour", "value": "red"}"#,
                "/userName",
                r#""alice""#,
            ),
            (
                "any",
                r#"{"op": "replace", "value": {"colour": "red"}}"#,
                "/colour",
                "absent",
            ),
            (
                "RFC",
                r#"{"op": "add", "path": "emails", "value": [{"value": "n@x.example", "primary": true}]}"#,
                "/emails/0/primary",
                "false",
            ),
            (
                "RFC",
                r#"{"op": "replace", "path": "emails[type eq \"home\"].primary", "value": true}"#,
                "/emails/0/primary",
                "false",
            ),
            (
                "RFC",
                r#"{"op": "add", "path": "emails", "value": {"value": "alice@home.example", "type": "home"}}"#,
                "/emails/2",
                "absent",
            ),
            (
                "RFC",
                r#"{"op": "remove", "path": "emails[type eq \"home\"]"}"#,
                "/emails/1",
                "absent",
            ),
            ("RFC", r#"{"op": "remove", "path": "emails"}"#, "/emails", "absent"),
            (
                "Entra ID",
                r#"{"op": "Remove", "path": "emails", "value": [{"value": "alice@work.example"}]}"#,
                "/emails/0/type",
                r#""home""#,
            ),
            (
                "RFC",
                r#"{"op": "remove", "path": "name.givenName"}"#,
                "/name",
                r#"{"familyName":"Adams"}"#,
            ),
            (
                "RFC",
                r#"{"op": "add", "path": "password", "value": "secret"}"#,
                "/password",
                "absent",
            ),
        ] {
            let user = patched(operation).unwrap_or_else(|error| panic!("{sender}: {operation}: {error}"));
            let user = json(&user);
            let found = user
                .pointer(place)
                .map_or_else(|| "absent".to_owned(), serde_json::Value::to_string);
            assert_eq!(found, expected, "{sender}: {operation}");
        }
    }

    #[test]
    fn operations_are_applied_in_order() {
        let user = patched(
            r#"{"op": "replace", "path": "title", "value": "A"}, {"op": "replace", "path": "title", "value": "B"}"#,
        );
        assert_eq!(text(&user.unwrap(), "title"), Some("B"));
    }

    #[test]
    fn an_impossible_operation_gets_the_keyword_of_the_rfc() {
        for (operation, kind) in [
            (r#"{"op": "move", "path": "title", "value": "x"}"#, "invalidSyntax"),
            (r#"{"op": "remove"}"#, "noTarget"),
            (r#"{"op": "remove", "path": "emails[type eq \"other\"]"}"#, "noTarget"),
            (
                r#"{"op": "replace", "path": "emails[type sw \"o\"].value", "value": "x"}"#,
                "noTarget",
            ),
            (r#"{"op": "remove", "path": "userName"}"#, "mutability"),
            (r#"{"op": "replace", "path": "id", "value": "x"}"#, "mutability"),
            (
                r#"{"op": "replace", "path": "meta.version", "value": "x"}"#,
                "mutability",
            ),
            (r#"{"op": "replace", "path": "groups", "value": []}"#, "mutability"),
            (r#"{"op": "replace", "path": "favourite", "value": "x"}"#, "invalidPath"),
            (r#"{"op": "replace", "path": "name.nick", "value": "x"}"#, "invalidPath"),
            (
                r#"{"op": "replace", "path": "emails[type eq \"work\"", "value": "x"}"#,
                "invalidPath",
            ),
            (
                r#"{"op": "replace", "path": "title[value eq \"x\"]", "value": "x"}"#,
                "invalidPath",
            ),
            (r#"{"op": "replace", "path": 7, "value": "x"}"#, "invalidPath"),
            (
                r#"{"op": "replace", "path": "emails[type is \"x\"].value", "value": "x"}"#,
                "invalidFilter",
            ),
            (r#"{"op": "replace", "path": "active", "value": "off"}"#, "invalidValue"),
            (r#"{"op": "replace", "path": "active", "value": 0}"#, "invalidValue"),
            (r#"{"op": "replace", "path": "active"}"#, "invalidValue"),
            (r#"{"op": "replace", "path": "title", "value": 5}"#, "invalidValue"),
            (r#"{"op": "replace", "value": "x"}"#, "invalidValue"),
            (r#"{"op": "replace", "value": {"active": "off"}}"#, "invalidValue"),
            (
                r#"{"op": "add", "path": "emails", "value": [{"value": "a", "primary": true}, {"value": "b", "primary": true}]}"#,
                "invalidValue",
            ),
            (r#"{"op": "replace", "OP": "remove", "path": "title"}"#, "invalidSyntax"),
        ] {
            let refused = patched(operation).unwrap_err();
            assert_eq!(refused.kind, Some(kind), "{operation}: {}", refused.detail);
        }
    }

    #[test]
    fn a_request_has_operations_and_not_too_many() {
        let apply = |body: &str| {
            let mut user = attributes(USER);
            let json = Json::parse(body.as_bytes()).unwrap();
            apply(&mut user, json.as_object().unwrap()).map_err(|error| error.kind.unwrap())
        };
        assert_eq!(apply("{}"), Err("invalidSyntax"));
        assert_eq!(apply(r#"{"Operations": []}"#), Err("invalidSyntax"));
        assert_eq!(
            apply(r#"{"schemas": ["urn:x"], "Operations": [{"op": "remove", "path": "title"}]}"#),
            Err("invalidSyntax")
        );
        // Not every provider names the schema, or spells the member as the RFC does.
        assert_eq!(apply(r#"{"operations": [{"op": "remove", "path": "title"}]}"#), Ok(()));
        let many = vec![r#"{"op": "remove", "path": "title"}"#; 101].join(",");
        assert_eq!(apply(&format!(r#"{{"Operations": [{many}]}}"#)), Err("tooMany"));
    }
}
