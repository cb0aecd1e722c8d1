//! Findings about a configuration, collected while it is read.

use std::cell::RefCell;
use std::fmt;

/// A remark about a place in the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// The place, such as `trust_anchors[0].jwks.keys[2]`.
    pub path: String,
    /// What was found, and what to do.
    pub message: String,
}

/// All findings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// Problems that an operator must fix, in the order of their discovery: at most [`MAX_PROBLEMS`].
    pub problems: Vec<Remark>,
    /// The number of problems beyond these.
    pub unlisted: usize,
    /// Notes for the operator.
    pub notes: Vec<Remark>,
}

/// The most problems to list.
pub const MAX_PROBLEMS: usize = 20;

/// A place in the configuration, where problems are reported.
#[derive(Clone, Debug)]
pub struct Location<'f> {
    path: String,
    findings: &'f RefCell<Findings>,
}

impl Remark {
    /// A remark about a place.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            message: message.into(),
        }
    }
}

impl fmt::Display for Remark {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.path, self.message)
    }
}

impl<'f> Location<'f> {
    /// The whole file.
    pub fn root(findings: &'f RefCell<Findings>) -> Self {
        let path = String::new();
        Self { path, findings }
    }

    /// The field of this name in the object at this place.
    pub fn field(&self, name: &str) -> Self {
        let separator = if self.path.is_empty() { "" } else { "." };
        self.with(format!("{}{separator}{name}", self.path))
    }

    /// The element of this index in the list at this place.
    pub fn element(&self, index: usize) -> Self {
        self.with(format!("{}[{index}]", self.path))
    }

    fn with(&self, path: String) -> Self {
        Self { path, ..*self }
    }

    /// The path in a remark, such as `trust_anchors[0].jwk`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Reports a problem.
    pub fn report(&self, message: impl Into<String>) {
        let mut findings = self.findings.borrow_mut();
        if findings.problems.len() < MAX_PROBLEMS {
            findings.problems.push(Remark::new(&self.path, message));
        } else {
            findings.unlisted = findings.unlisted.saturating_add(1);
        }
    }

    /// Adds a note.
    pub fn note(&self, message: impl Into<String>) {
        self.findings.borrow_mut().notes.push(Remark::new(&self.path, message));
    }

    /// Unwraps a result, reporting its error.
    pub fn take<T, E: fmt::Display>(&self, result: Result<T, E>) -> Option<T> {
        result.map_err(|error| self.report(error.to_string())).ok()
    }

    /// Reports a list that is longer than `limit`.
    pub fn at_most<T>(&self, limit: usize, found: &[T]) -> bool {
        let found = found.len();
        if found > limit {
            self.report(format!("{found} entries; at most {limit} are accepted"));
        }
        found <= limit
    }

    /// Reports a text that is empty, too long, or has white space or control characters.
    pub fn visible(&self, text: &str) {
        if text.is_empty() || text.len() > MAX_TEXT_BYTES || text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            self.report(format!(
                "`{}` is not usable; write 1 to {MAX_TEXT_BYTES} bytes without white space",
                text.escape_debug()
            ));
        }
    }
}

/// Bytes of a text without a limit of its own: an audience, an issuer, a tool, a cluster.
const MAX_TEXT_BYTES: usize = 1_024;
