//! The configuration file's JSON Schema (draft 2020-12), for editors and for tools that generate configurations.
//!
//! Members, types and descriptions come from the types that read the file, limits from the attributes beside them. The
//! schema is never stricter than [`Settings::check`]: where a limit is in bytes or spans several members it says less, and
//! `credence config check --control-plane` says the rest.

use schemars::Schema;
use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, RestrictFormats};
use serde_json::json;

use super::Settings;

/// The schema as JSON text.
#[must_use]
pub fn settings_schema() -> String {
    let settings = SchemaSettings::draft2020_12()
        .with(|settings| settings.inline_subschemas = true)
        .with_transform(RecursiveTransform(refuse_null))
        // `uint32` and the like are no formats that validators know, and strict ones refuse them.
        .with_transform(RestrictFormats::default());
    let mut schema = settings.into_generator().into_root_schema_for::<Settings>();
    schema.insert("title".to_owned(), json!("Configuration of Credence's control plane"));
    schema.insert(
        "description".to_owned(),
        json!("The file that credence serve --config reads. docs/reference/configuration.md explains every member."),
    );
    // A schema always serialises: its members have texts as names.
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}

/// A member that may be left out is never null, which schemars takes an `Option` to mean.
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
            // What is said of the member counts more than what is said of its type.
            schema.ensure_object().entry(keyword).or_insert(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_ranges_and_no_widths() {
        let schema = settings_schema();
        assert!(schema.contains("date-time") && schema.contains("4294967295"));
        assert!(!schema.contains("uint"), "{schema}");
    }
}
