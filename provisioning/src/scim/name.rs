//! The name of an attribute, or of a part of one (RFC 7644 section 3.10).

use super::schema::{Attribute, COMMON, ENTERPRISE, Schema, USER};

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
