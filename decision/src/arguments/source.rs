//! One argument: where a request has it, and how it is read from there.

use credence_delegation::{Arguments, Number, Value};
use thiserror::Error;

use super::pointer::Pointer;
use crate::request::query::MAX_QUERY_MEMBERS;

/// One argument: its name in the delegation, where to find it, and how to read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgumentSource {
    /// The argument's name, as delegations constrain it.
    pub name: String,
    /// Where the request has it.
    pub source: Source,
    /// The type of JSON value it becomes.
    pub kind: ArgumentKind,
    /// Whether the request may leave it out.
    pub optional: bool,
}

/// The place in a request that holds an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The path template's capture of this number, from 0.
    Path(usize),
    /// The query member of this name.
    Query(String),
    /// The header of this name, in lower case.
    Header(String),
    /// The value at this place of the JSON body.
    Body(Pointer),
    /// The host, in lower case, without port and trailing dot.
    Host,
    /// The method, as it was sent.
    Method,
}

/// The type of an argument.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema, serde::Serialize))]
#[serde(rename_all = "lowercase")]
pub enum ArgumentKind {
    /// Any text.
    #[default]
    String,
    /// A number as JSON writes it, that keeps all its digits as a double.
    Number,
    /// A number without fraction and exponent.
    Integer,
    /// `true` or `false`.
    Boolean,
    /// Any JSON value. Only from a body.
    Json,
}

impl ArgumentSource {
    pub(super) fn put(&self, text: &str, arguments: &mut Arguments) -> Result<(), ArgumentError> {
        let malformed = || ArgumentError::Malformed {
            name: self.name.clone(),
            kind: self.kind,
        };
        let value = match self.kind {
            ArgumentKind::String => Value::String(text.to_owned()),
            ArgumentKind::Number | ArgumentKind::Integer => {
                // JSON's exponents and its minus zero are numbers that others read otherwise: to `atoi`, 99e-5 is 99.
                if text.contains(['e', 'E']) || text == "-0" {
                    return Err(malformed());
                }
                let number = Number::parse(text).ok_or_else(malformed)?;
                if self.kind == ArgumentKind::Integer && number.integer().is_none() {
                    return Err(malformed());
                }
                Value::from_number(number).map_err(|_| malformed())?
            }
            ArgumentKind::Boolean => match text {
                "true" => Value::Bool(true),
                "false" => Value::Bool(false),
                _ => return Err(malformed()),
            },
            ArgumentKind::Json => return Err(malformed()),
        };
        if arguments.insert(self.name.clone(), value) {
            Ok(())
        } else {
            Err(ArgumentError::Repeated(self.name.clone()))
        }
    }

    pub(super) fn ambiguous(&self) -> ArgumentError {
        ArgumentError::Ambiguous(self.name.clone())
    }
}

/// Why a request's arguments could not be taken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ArgumentError {
    /// The rule needs it.
    #[error("argument `{0}` is missing")]
    Missing(String),
    /// Sent more than once.
    #[error("argument `{0}` is given more than once")]
    Repeated(String),
    /// A query member by its own name, or a member of the body by its place, that the rule neither maps nor ignores.
    #[error("`{0}` is not an argument of this tool")]
    Unmapped(String),
    /// Not of its type.
    #[error("argument `{name}` is not a valid {kind}")]
    Malformed {
        /// The argument.
        name: String,
        /// What the rule says it is.
        kind: ArgumentKind,
    },
    /// A `+`, an invalid or control-character escape, bytes that are not UTF-8, or what some take for a part of the name.
    #[error("argument `{0}` is encoded in a way that can be read differently")]
    Ambiguous(String),
    /// A `;`, raw bytes beyond visible ASCII, or a member name that can be read differently.
    #[error("the query can be read in more than one way")]
    AmbiguousQuery,
    /// More than [`MAX_QUERY_MEMBERS`].
    #[error("the query has more than {MAX_QUERY_MEMBERS} members")]
    TooManyMembers,
    /// The body is not `application/json` in UTF-8, or it is encoded.
    #[error("the body is not plain application/json in UTF-8")]
    BodyMediaType,
    /// Not JSON that every parser reads alike.
    #[error("the body is not JSON, or JSON that can be read in more than one way")]
    BodyMalformed,
}

impl ArgumentError {
    /// Something of this name, or at this place, that is not mapped.
    pub(super) fn unmapped(name: &str) -> Self {
        Self::Unmapped(shorten(name))
    }

    /// The argument's name; for one that is not mapped, the query member's or its place in the body.
    pub fn argument(&self) -> Option<&str> {
        match self {
            Self::Missing(name)
            | Self::Repeated(name)
            | Self::Unmapped(name)
            | Self::Malformed { name, .. }
            | Self::Ambiguous(name) => Some(name),
            Self::AmbiguousQuery | Self::TooManyMembers | Self::BodyMediaType | Self::BodyMalformed => None,
        }
    }
}

impl std::fmt::Display for ArgumentKind {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::String => "string",
            Self::Number => "number",
            Self::Integer => "integer",
            Self::Boolean => "boolean",
            Self::Json => "JSON value",
        })
    }
}

/// Bytes of a query member's name that go into an error; the name is the client's, of any length.
pub(super) const MAX_NAMED_BYTES: usize = 64;

fn shorten(name: &str) -> String {
    name.get(..name.floor_char_boundary(MAX_NAMED_BYTES))
        .unwrap_or_default()
        .to_owned()
}
