//! Parses a configuration text to a policy.

use credence_delegation::json::Json;
use serde::de::DeserializeOwned;

use super::compile::compile;
use super::error::ConfigError;
use super::file::File;
use super::place::path_before;
use super::policy::Policy;

impl Policy {
    /// Reads a configuration from JSON text.
    ///
    /// # Errors
    /// [`ConfigError`] lists the errors with their places. An error of syntax, type or field name is listed alone,
    /// since the rest cannot be read.
    pub fn parse(json: &[u8]) -> Result<Self, ConfigError> {
        compile(&read(json)?)
    }
}

/// Bytes of a configuration.
pub const MAX_CONFIG_BYTES: usize = 8 << 20;

/// Reads names and types only.
pub(super) fn read(json: &[u8]) -> Result<File, ConfigError> {
    read_as(json)
}

/// The same for another file of this syntax.
pub(super) fn read_as<F: DeserializeOwned>(json: &[u8]) -> Result<F, ConfigError> {
    if json.iter().all(u8::is_ascii_whitespace) {
        return Err(ConfigError::one(
            ".",
            "the configuration is empty; docs/reference/configuration.md shows a complete one",
        ));
    }
    if json.len() > MAX_CONFIG_BYTES {
        let message = format!(
            "the configuration has {} bytes; at most {MAX_CONFIG_BYTES} are accepted",
            json.len()
        );
        return Err(ConfigError::one(".", message));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let file = F::deserialize(&mut deserializer).map_err(|error| {
        // In a text that is not JSON, a path is meaningless.
        let path = match error.is_data() {
            true => path_before(json, offset(json, &error)),
            false => ".".to_owned(),
        };
        ConfigError::one(path, describe(&error))
    })?;
    deserializer
        .end()
        .map_err(|error| ConfigError::one(".", describe(&error)))?;
    // If the text is not strict JSON, the fault is inside a key, which the protocol's own parser reads.
    match Json::parse(json).ok().and_then(|json| null_in(&json, String::new())) {
        Some(path) => Err(ConfigError::one(
            path,
            "invalid type: null; give the field a value, or leave it out",
        )),
        None => Ok(file),
    }
}

/// The path of a `null`. Does not look inside keys.
fn null_in(json: &Json<'_>, path: String) -> Option<String> {
    match json {
        Json::Null => Some(path),
        Json::Bool(_) | Json::Number(_) | Json::String(_) => None,
        Json::Array(elements) => {
            let mut elements = elements.iter().enumerate();
            elements.find_map(|(index, element)| null_in(element, format!("{path}[{index}]")))
        }
        Json::Object(object) => object.iter().find_map(|(name, value)| {
            let is_key = matches!(name, "jwk" | "jwks") && path.starts_with("trust_anchors[");
            if is_key && *value != Json::Null {
                return None;
            }
            let separator = if path.is_empty() { "" } else { "." };
            null_in(value, format!("{path}{separator}{name}"))
        }),
    }
}

/// The byte at which reading stopped.
fn offset(json: &[u8], error: &serde_json::Error) -> usize {
    let lines = json.split_inclusive(|byte| *byte == b'\n');
    let before = lines.take(error.line().saturating_sub(1)).map(<[u8]>::len);
    before.fold(error.column(), usize::saturating_add)
}

/// An error's text, without line and column unless the text is not JSON at all: the operator usually wrote YAML.
fn describe(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let message = match text.rsplit_once(" at line ") {
        Some((message, _)) if error.is_data() => message,
        _ => text.as_str(),
    };
    // The names of types mean nothing to an operator.
    match message.split_once(", expected struct ") {
        Some((found, _)) => format!("{found}, expected a mapping"),
        None => message.to_owned(),
    }
}
