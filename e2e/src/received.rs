//! A request as the service behind Envoy received it, and the marks by which tests find it there.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// A request as the service received it: the body of its answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Received {
    /// The method.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Names in lower case, in the order they came.
    pub headers: Vec<(String, String)>,
    /// The trailers, likewise.
    #[serde(default)]
    pub trailers: Vec<(String, String)>,
    /// The body. Bytes that are not UTF-8 became U+FFFD.
    pub body: String,
}

/// The requests with a header [`MARK`] that have arrived at a service, by its value.
#[derive(Debug, Clone, Default)]
pub(crate) struct Marks(Arc<Mutex<BTreeMap<String, Received>>>);

/// The header by which a test finds its request at the service, answered or not.
pub const MARK: &str = "x-mark";

impl Received {
    /// The values of every header of that name (in lower case).
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.headers
            .iter()
            .filter(move |(other, _)| other == name)
            .map(|(_, value)| value.as_str())
    }

    /// The value of the one header of that name; `None` if there is none, or more than one.
    pub fn header<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        let mut values = self.values(name);
        values.next().filter(|_| values.next().is_none())
    }

    /// Every header that claims an identity, in any spelling.
    pub fn identity_headers(&self) -> Vec<&str> {
        let fold = |name: &str| name.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let is_identity = |name: &str| fold(name).starts_with("x-delegation-");
        self.headers
            .iter()
            .chain(&self.trailers)
            .map(|(name, _)| name.as_str())
            .filter(|name| is_identity(name))
            .collect()
    }
}

impl Marks {
    /// Records the request, if it has a mark.
    pub(crate) fn note(&self, received: &Received) {
        if let Some(mark) = received.header(MARK) {
            let mut marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            marks.insert(mark.to_owned(), received.clone());
        }
    }

    /// The request with this mark, if one has arrived; the last if there were several.
    pub(crate) fn find(&self, mark: &str) -> Option<Received> {
        let marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        marks.get(mark).cloned()
    }
}
