//! Places in a JSON text.

use std::fmt;

use thiserror::Error;

/// The place of a value in a JSON text (RFC 6901).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pointer {
    source: String,
    pub(super) tokens: Vec<String>,
}

/// Why a text is not a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PointerError {
    /// Not empty and not starting with a slash.
    #[error("a JSON pointer starts with `/` (RFC 6901); write `/amount`, or `/transfer/amount` for a member within")]
    NotAbsolute,
    /// A `~` that is neither `~0` nor `~1`.
    #[error("in a JSON pointer `~` is written `~0`, and `/` within a name `~1` (RFC 6901)")]
    Escape,
    /// More than [`MAX_POINTER_BYTES`] or [`MAX_POINTER_TOKENS`].
    #[error("the pointer is longer than {MAX_POINTER_BYTES} bytes or {MAX_POINTER_TOKENS} names")]
    TooLong,
}

impl Pointer {
    /// Reads a pointer; the empty one is the whole body.
    ///
    /// # Errors
    /// See [`PointerError`].
    pub fn parse(source: &str) -> Result<Self, PointerError> {
        if source.len() > MAX_POINTER_BYTES {
            return Err(PointerError::TooLong);
        }
        let tokens = match source.strip_prefix('/') {
            None if source.is_empty() => Vec::new(),
            None => return Err(PointerError::NotAbsolute),
            Some(rest) => rest.split('/').map(unescape).collect::<Result<Vec<_>, _>>()?,
        };
        if tokens.len() > MAX_POINTER_TOKENS {
            return Err(PointerError::TooLong);
        }
        Ok(Self {
            source: source.to_owned(),
            tokens,
        })
    }

    /// The names on the way, unescaped.
    pub fn names(&self) -> &[String] {
        &self.tokens
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.source)
    }
}

/// A name within a pointer.
pub(crate) fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

fn unescape(token: &str) -> Result<String, PointerError> {
    if token.split('~').skip(1).any(|rest| !rest.starts_with(['0', '1'])) {
        return Err(PointerError::Escape);
    }
    // The order matters: `~01` is `~1`.
    Ok(token.replace("~1", "/").replace("~0", "~"))
}

/// Bytes of a pointer.
pub const MAX_POINTER_BYTES: usize = 256;

/// Names in a pointer.
pub const MAX_POINTER_TOKENS: usize = 16;
