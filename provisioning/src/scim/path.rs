//! The path of a PATCH operation: an attribute, a part of one, or some of its values (RFC 7644 figure 7).

use super::error::ScimError;
use super::filter::Filter;
use super::name::{Name, Unknown};

/// The target of a path, or of a member's name.
#[derive(Debug)]
pub(crate) enum Target {
    Attribute(Path),
    /// An attribute of a schema that is not served here. It is not stored.
    Foreign,
}

/// An attribute, or some of its values, or a part of it.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) name: Name,
    /// The chosen values.
    pub(crate) values: Option<Filter>,
}

// === impl Target ===

impl Target {
    pub(crate) fn parse(text: &str) -> Result<Self, ScimError> {
        if text.len() > MAX_BYTES {
            return Err(ScimError::invalid_path(format!("a path has at most {MAX_BYTES} bytes")));
        }
        let Some((before, rest)) = text.split_once('[') else {
            return match Name::parse(text) {
                Ok(name) => Ok(Self::Attribute(Path { name, values: None })),
                Err(unknown) => unknown_target(&unknown, text),
            };
        };
        let name = match Name::parse(before) {
            Ok(name) => name,
            Err(unknown) => return unknown_target(&unknown, text),
        };
        let (filter, after) = rest
            .rsplit_once(']')
            .ok_or_else(|| ScimError::invalid_path(format!("the path {text:?} lacks the ] that ends its filter")))?;
        if !name.last.is_complex() || !name.last.multi_valued {
            return Err(ScimError::invalid_path(format!(
                "{before} has a single value, so the path {text:?} cannot choose one"
            )));
        }
        let values = Filter::parse_within(name.last, filter)
            .map_err(|error| ScimError::bad("invalidFilter", format!("in the path {text:?}: {}", error.detail)))?;
        let name = match after.strip_prefix('.') {
            Some(part) => name.part(part),
            None => Some(name).filter(|_| after.is_empty()),
        };
        match name {
            Some(name) => Ok(Self::Attribute(Path {
                name,
                values: Some(values),
            })),
            None => unknown_target(&Unknown::Attribute, text),
        }
    }
}

/// The target of a path with an unknown name.
fn unknown_target(unknown: &Unknown, text: &str) -> Result<Target, ScimError> {
    match unknown {
        Unknown::Schema => Ok(Target::Foreign),
        Unknown::Attribute => Err(ScimError::invalid_path(format!(
            "the path {text:?} names no attribute of a user; see /scim/v2/Schemas"
        ))),
    }
}

const MAX_BYTES: usize = 1024;
