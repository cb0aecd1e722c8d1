//! What a client's text names: an attribute, a part of one, or some of its values (RFC 7644 figure 7).

use super::error::ScimError;
use super::filter::Filter;
use super::schema::{Attribute, COMMON, ENTERPRISE, Schema, USER};

/// What a path of a PATCH operation, or a member's name, leads to.
#[derive(Debug)]
pub(crate) enum Target {
    /// All of the enterprise extension.
    Enterprise,
    Attribute(Path),
    /// Something of a schema that is not served here. It is not kept, and harms nobody.
    Foreign,
}

/// An attribute, perhaps some of its values only, perhaps a part of it.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) name: Name,
    /// Which of the values.
    pub(crate) values: Option<Filter>,
}

/// An attribute, or a sub-attribute of it.
#[derive(Debug, Clone, Copy)]
pub struct Name {
    /// Whether the attribute is one of the enterprise extension's.
    pub(crate) enterprise: bool,
    pub(crate) attribute: &'static Attribute,
    pub(crate) part: Option<&'static Attribute>,
}

/// Why a text is not the name of an attribute.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// A schema that is not served here.
    Schema,
    Attribute,
}

// === impl Target ===

impl Target {
    pub(crate) fn parse(text: &str) -> Result<Self, ScimError> {
        if text.len() > MAX_BYTES {
            return Err(ScimError::invalid_path(format!("a path has at most {MAX_BYTES} bytes")));
        }
        if text.eq_ignore_ascii_case(ENTERPRISE.id) {
            return Ok(Self::Enterprise);
        }
        let Some((before, rest)) = text.split_once('[') else {
            return match Name::parse(text) {
                Ok(name) => Ok(Self::Attribute(Path { name, values: None })),
                Err(unknown) => unknown.of_path(text),
            };
        };
        let name = match Name::parse(before) {
            Ok(name) => name,
            Err(unknown) => return unknown.of_path(text),
        };
        let (filter, after) = rest
            .rsplit_once(']')
            .ok_or_else(|| ScimError::invalid_path(format!("the path {text:?} lacks the ] that ends its filter")))?;
        if name.part.is_some() || !name.attribute.is_complex() || !name.attribute.multi_valued {
            return Err(ScimError::invalid_path(format!(
                "{before} has no several values to choose from, as the path {text:?} would"
            )));
        }
        let values = Filter::parse_within(name.attribute, filter)
            .map_err(|error| ScimError::invalid_filter(format!("in the path {text:?}: {}", error.detail)))?;
        let part = match after.strip_prefix('.') {
            Some(part) => match name.attribute.sub_attribute(part) {
                Some(part) => Some(part),
                None => return Unknown::Attribute.of_path(text),
            },
            None if after.is_empty() => None,
            None => return Unknown::Attribute.of_path(text),
        };
        Ok(Self::Attribute(Path {
            name: Name { part, ..name },
            values: Some(values),
        }))
    }
}

// === impl Name ===

impl Name {
    /// Reads `[urn:]attribute[.part]`. A URN has colons and dots of its own.
    pub(crate) fn parse(text: &str) -> Result<Self, Unknown> {
        if let Some(rest) = below(text, &ENTERPRISE) {
            return Self::within(rest, true, |name| ENTERPRISE.attribute(name));
        }
        let rest = match below(text, &USER) {
            Some(rest) => rest,
            None if starts_with(text, "urn:") => return Err(Unknown::Schema),
            None => text,
        };
        Self::within(rest, false, |name| {
            USER.attribute(name).or_else(|| {
                COMMON
                    .iter()
                    .find(|attribute| attribute.name.eq_ignore_ascii_case(name))
            })
        })
    }

    fn within(
        text: &str,
        enterprise: bool,
        find: impl FnOnce(&str) -> Option<&'static Attribute>,
    ) -> Result<Self, Unknown> {
        let (name, part) = match text.split_once('.') {
            Some((name, part)) => (name, Some(part)),
            None => (text, None),
        };
        let attribute = find(name).ok_or(Unknown::Attribute)?;
        let part = part
            .map(|part| attribute.sub_attribute(part).ok_or(Unknown::Attribute))
            .transpose()?;
        Ok(Self {
            enterprise,
            attribute,
            part,
        })
    }
}

// === impl Unknown ===

impl Unknown {
    fn of_path(&self, text: &str) -> Result<Target, ScimError> {
        match self {
            Self::Schema => Ok(Target::Foreign),
            Self::Attribute => Err(ScimError::invalid_path(format!(
                "the path {text:?} names no attribute of a user; see /scim/v2/Schemas"
            ))),
        }
    }
}

/// What stands behind the schema's URN and a colon.
fn below<'a>(text: &'a str, schema: &Schema) -> Option<&'a str> {
    starts_with(text, schema.id)
        .then(|| text.get(schema.id.len()..))
        .flatten()?
        .strip_prefix(':')
}

fn starts_with(text: &str, prefix: &str) -> bool {
    text.get(..prefix.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

const MAX_BYTES: usize = 1024;
