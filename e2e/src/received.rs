//! A request as the service behind Envoy received it, and the requests that tests look for there.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// A request as the service saw it: the body of its answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Received {
    /// The method.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Names in lower case, in the order they came.
    pub headers: Vec<(String, String)>,
    /// What followed the body, likewise.
    #[serde(default)]
    pub trailers: Vec<(String, String)>,
    /// The body; what is not UTF-8 in it became U+FFFD.
    pub body: String,
}

/// The requests that have arrived at a service with a header named [`MARK`], by its value.
#[derive(Debug, Clone, Default)]
pub(crate) struct Marks(Arc<Mutex<BTreeMap<String, Received>>>);

/// A header by which a test knows its request again at the service, answered or not.
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

    /// Every header that claims to say who is asking, in whatever spelling.
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
    /// Remembers the request, if it has a mark.
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
