//! The JSON Schema (draft 2020-12) of a configuration file, for editors and for tools that generate configurations.
//!
//! Members, types and descriptions come from the types that parse the file, limits from the attributes beside them. A
//! schema is never stricter than the start's checks. It cannot express limits in bytes, or on several members together:
//! the commands that check files check those.

use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, RestrictFormats};
use schemars::{JsonSchema, Schema};
use serde_json::json;

/// The schema of a file with these settings, as JSON text.
#[must_use]
pub fn settings_schema<S: JsonSchema>(title: &str, description: &str) -> String {
    let settings = SchemaSettings::draft2020_12()
        .with(|settings| settings.inline_subschemas = true)
        .with_transform(RecursiveTransform(refuse_null))
        // `uint32` and similar formats are not standard, and strict validators refuse them.
        .with_transform(RestrictFormats::default());
    let mut schema = settings.into_generator().into_root_schema_for::<S>();
    schema.insert("title".to_owned(), json!(title));
    schema.insert("description".to_owned(), json!(description));
    // A schema always serializes: its members' names are texts.
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}

/// An optional member is never null, but schemars allows null for an `Option`.
fn refuse_null(schema: &mut Schema) {
    if schema.get("default").is_some_and(|default| default.is_null()) {
        schema.remove("default");
    }
    if let Some(kinds) = schema.get_mut("type").and_then(|kinds| kinds.as_array_mut()) {
        kinds.retain(|kind| kind != "null");
        if let [only] = &kinds[..] {
            let only = only.clone();
            schema.insert("type".to_owned(), only);
        }
    }
    let Some(alternatives) = schema.get_mut("anyOf").and_then(|any| any.as_array_mut()) else {
        return;
    };
    alternatives.retain(|alternative| alternative.get("type") != Some(&json!("null")));
    if let [only] = &mut alternatives[..] {
        let only = only.take();
        schema.remove("anyOf");
        for (keyword, value) in only.as_object().cloned().unwrap_or_default() {
            // The member's description takes precedence over its type's.
            schema.ensure_object().entry(keyword).or_insert(value);
        }
    }
}
