//! One argument: its place in a request, and its type.

use credence_delegation::{Arguments, Number, Value};

use super::pointer::Pointer;
use crate::decision::{Denial, Reason};

/// One argument: its name in the delegation, its place in the request, and its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgumentSource {
    /// The argument's name, as delegations constrain it.
    pub name: String,
    /// Its place in the request.
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
    /// The method, as sent.
    Method,
}

impl Source {
    /// The header's name, if the source is a header.
    pub fn header(&self) -> Option<&str> {
        match self {
            Self::Header(name) => Some(name),
            Self::Path(_) | Self::Query(_) | Self::Body(_) | Self::Host | Self::Method => None,
        }
    }
}

/// The type of an argument.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema, serde::Serialize))]
#[serde(rename_all = "lowercase")]
pub enum ArgumentKind {
    /// Any text.
    #[default]
    String,
    /// A number in JSON syntax that keeps all its digits as a double.
    Number,
    /// A number without fraction and exponent.
    Integer,
    /// `true` or `false`.
    Boolean,
    /// Any JSON value. Only from a body.
    Json,
}

impl ArgumentSource {
    /// Adds the argument, read from a text.
    pub(super) fn put(&self, text: &str, arguments: &mut Arguments) -> Result<(), Denial> {
        let malformed = || self.denied(Reason::ArgumentMalformed);
        let value = match self.kind {
            ArgumentKind::String => Value::String(text.to_owned()),
            ArgumentKind::Number | ArgumentKind::Integer => {
                // Other parsers read JSON's exponents and its minus zero differently: to `atoi`, 99e-5 is 99.
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
        self.insert(value, arguments)
    }

    pub(super) fn insert(&self, value: Value, arguments: &mut Arguments) -> Result<(), Denial> {
        if arguments.insert(self.name.clone(), value) {
            Ok(())
        } else {
            Err(self.denied(Reason::ArgumentRepeated))
        }
    }

    /// A denial because of this argument.
    pub(super) fn denied(&self, reason: Reason) -> Denial {
        Denial::about(reason, &self.name)
    }

    /// A denial because of an ambiguous value: a `+`, an invalid or control-character escape, bytes that are not UTF-8,
    /// or characters that some parsers take as part of the name.
    pub(super) fn ambiguous(&self) -> Denial {
        self.denied(Reason::ArgumentAmbiguous)
    }
}

/// A denial because of a query member with this name, or a body member at this place, that the rule neither maps nor
/// ignores.
pub(crate) fn unmapped(name: &str) -> Denial {
    about(Reason::ArgumentUnknown, name)
}

/// A denial about a name or place of the client's, which is cut if it is long.
pub(crate) fn about(reason: Reason, name: &str) -> Denial {
    let shown = name.get(..name.floor_char_boundary(MAX_NAMED_BYTES));
    Denial::about(reason, shown.unwrap_or_default())
}

/// Bytes of a client's name in a denial.
pub(super) const MAX_NAMED_BYTES: usize = 64;
