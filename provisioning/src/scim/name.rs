//! The name of an attribute, or of a part of one (RFC 7644 section 3.10).

use super::schema::{Attribute, ENTERPRISE_URN, Mutability, USER, USER_URN};

/// The path to an attribute: the attributes that contain it, the outermost first, and the attribute itself.
#[derive(Debug, Clone)]
pub struct Name {
    pub(crate) path: Vec<&'static Attribute>,
    /// The last attribute of the path.
    pub(crate) last: &'static Attribute,
}

/// Why a text is not the name of an attribute.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// It belongs to a schema that is not served here.
    Schema,
    Attribute,
}

// === impl Name ===

impl Name {
    /// Parses `[urn:]attribute[.part]`, or the URN of the extension alone. A URN contains colons and dots too.
    pub(crate) fn parse(text: &str) -> Result<Self, Unknown> {
        let (extension, rest) = match (below(text, ENTERPRISE_URN), below(text, USER_URN)) {
            _ if text.eq_ignore_ascii_case(ENTERPRISE_URN) => (Some(text), None),
            (Some(rest), _) => (Some(ENTERPRISE_URN), Some(rest)),
            (None, Some(rest)) => (None, Some(rest)),
            (None, None) if starts_with(text, "urn:") => return Err(Unknown::Schema),
            (None, None) => (None, Some(text)),
        };
        let parts = rest.into_iter().flat_map(|rest| rest.split('.'));
        Self::within(&USER, extension.into_iter().chain(parts)).ok_or(Unknown::Attribute)
    }

    /// The path from an attribute to a nested part.
    pub(crate) fn within<'a>(attribute: &'static Attribute, parts: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut name = Self {
            path: Vec::new(),
            last: attribute,
        };
        for part in parts {
            name = name.part(part)?;
        }
        Some(name)
    }

    /// Whether clients may not write it.
    pub(crate) fn is_read_only(&self) -> bool {
        let mut path = self.path.iter();
        path.any(|attribute| attribute.mutability == Mutability::ReadOnly)
    }

    /// The attribute's part with this name.
    pub(crate) fn part(mut self, part: &str) -> Option<Self> {
        self.last = self.last.sub_attribute(part)?;
        self.path.push(self.last);
        Some(self)
    }
}

/// The text after the schema's URN and a colon.
fn below<'a>(text: &'a str, urn: &str) -> Option<&'a str> {
    starts_with(text, urn)
        .then(|| text.get(urn.len()..))
        .flatten()?
        .strip_prefix(':')
}

fn starts_with(text: &str, prefix: &str) -> bool {
    text.get(..prefix.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}
