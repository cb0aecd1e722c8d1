//! Errors of a configuration, with place and fix.

use std::fmt;

use credence_delegation::Remark;

/// Why a configuration does not load: all errors, each with its place in the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// The errors, in the order of the file's fields; at least one and at most [`MAX_PROBLEMS`](super::MAX_PROBLEMS).
    pub problems: Vec<Remark>,
    /// The number of errors beyond these.
    pub unlisted: usize,
}

impl ConfigError {
    pub(super) fn one(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            problems: vec![Remark::new(path, message)],
            unlisted: 0,
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for problem in &self.problems {
            write!(formatter, "{separator}{problem}")?;
            separator = "\n";
        }
        if self.unlisted > 0 {
            write!(formatter, "\nand {} more", self.unlisted)?;
        }
        Ok(())
    }
}
