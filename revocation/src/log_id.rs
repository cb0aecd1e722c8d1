//! The name of a log.

use std::fmt;
use std::io;

use credence_runtime::text::random_hex;

/// 128 random bits as 32 lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogId(String);

// === impl LogId ===

impl LogId {
    /// The name, as in configurations and on the wire.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A new name.
    pub(crate) fn random() -> io::Result<Self> {
        Ok(Self(random_hex()?))
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let valid = text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        valid.then(|| Self(text.to_owned()))
    }
}

impl fmt::Display for LogId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}
