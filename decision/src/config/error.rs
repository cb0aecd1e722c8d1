//! What is wrong with a configuration, where, and what to do about it.

use std::fmt;

use credence_delegation::trust::Remark;

/// Why a configuration does not load: every mistake that was found, each with its place in the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    problems: Vec<Remark>,
    /// Mistakes beyond [`MAX_PROBLEMS`].
    unlisted: usize,
}

impl ConfigError {
    /// The mistakes, in the order of the file's fields; at least one and at most [`MAX_PROBLEMS`].
    pub fn problems(&self) -> &[Remark] {
        &self.problems
    }

    /// How many mistakes there are beyond those.
    pub fn unlisted(&self) -> usize {
        self.unlisted
    }

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

/// Mistakes that one error lists. A file with more is better looked at as a whole.
pub const MAX_PROBLEMS: usize = 20;

/// Collects mistakes while the rest of the file is still being read.
#[derive(Debug, Default)]
pub(super) struct Problems {
    listed: Vec<Remark>,
    unlisted: usize,
}

impl Problems {
    pub(super) fn report(&mut self, path: impl Into<String>, message: impl Into<String>) {
        if self.listed.len() < MAX_PROBLEMS {
            self.listed.push(Remark::new(path, message));
        } else {
            self.unlisted = self.unlisted.saturating_add(1);
        }
    }

    /// Unwraps a result, reporting its error at `path`.
    pub(super) fn take<T, E: fmt::Display>(&mut self, path: impl Into<String>, result: Result<T, E>) -> Option<T> {
        result.map_err(|error| self.report(path, error.to_string())).ok()
    }

    /// The value that was made meanwhile, if there were no mistakes.
    pub(super) fn finish<T>(self, value: T) -> Result<T, ConfigError> {
        if self.listed.is_empty() {
            Ok(value)
        } else {
            Err(ConfigError {
                problems: self.listed,
                unlisted: self.unlisted,
            })
        }
    }
}
