//! The configuration's JSON Schema (draft 2020-12), for editors and for programs that generate configurations.
//!
//! Fields, types, limits and descriptions come from the types in `file`. The schema is never stricter than the filter.
//! It cannot express limits in bytes, or rules that span several fields; `credence config check` checks these too.

use std::borrow::Cow;

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::json;

use super::{agents, file};

/// The schema as JSON text.
pub fn json_schema() -> String {
    schema_of::<file::File>()
}

/// The schema of the rules for agents, as JSON text.
pub fn agent_rules_schema() -> String {
    schema_of::<agents::File>()
}

fn schema_of<F: JsonSchema>() -> String {
    let settings = SchemaSettings::draft2020_12()
        .with(|settings| settings.inline_subschemas = true)
        .with_transform(RecursiveTransform(refuse_null));
    let schema = settings.into_generator().into_root_schema_for::<F>();
    // A schema always serialises: its member names are strings.
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}

impl<const LEAST: usize, const MOST: usize, const DEFAULT: usize> JsonSchema for file::Count<LEAST, MOST, DEFAULT> {
    fn schema_name() -> Cow<'static, str> {
        format!("Count{LEAST}To{MOST}Or{DEFAULT}").into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "integer", "minimum": LEAST, "maximum": MOST, "default": DEFAULT})
    }
}

impl<T: JsonSchema> JsonSchema for crate::members::Members<T> {
    fn schema_name() -> Cow<'static, str> {
        format!("MembersOf{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "object", "additionalProperties": generator.subschema_for::<T>()})
    }
}

/// An optional field may be absent, but not `null`, which schemars would allow.
fn refuse_null(schema: &mut Schema) {
    let null = json!("null");
    if let Some(types) = schema.get_mut("type").and_then(|types| types.as_array_mut()) {
        types.retain(|kind| *kind != null);
        if let [only] = &types[..] {
            let only = only.clone();
            schema.insert("type".to_owned(), only);
        }
    }
    let alternatives = schema.get("anyOf").and_then(|any| any.as_array());
    let others: Vec<_> = alternatives
        .into_iter()
        .flatten()
        .filter(|other| other.get("type") != Some(&null))
        .cloned()
        .collect();
    if let [only] = &others[..]
        && let Ok(mut only) = Schema::try_from(only.clone())
    {
        schema.remove("anyOf");
        // The field's description is more specific than its type's.
        for (keyword, value) in std::mem::take(only.ensure_object()) {
            schema.ensure_object().entry(keyword).or_insert(value);
        }
    }
    if schema.get("default").is_some_and(|default| default.is_null()) {
        schema.remove("default");
    }
}
