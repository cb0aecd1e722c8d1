//! What there is to look at: the series that are shown to Prometheus, and their labels.

use std::collections::{BTreeMap, BTreeSet};

/// The labels of each series.
#[derive(Debug, Default)]
pub(crate) struct Exposed(BTreeMap<String, BTreeSet<String>>);

impl Exposed {
    /// Adds what a page in Prometheus's text form, or OpenMetrics, shows.
    pub(crate) fn add(&mut self, page: &str) {
        for line in page.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let end = line.find(['{', ' ']).unwrap_or(line.len());
            let (name, rest) = line.split_at(end);
            let labels = self.0.entry(name.to_owned()).or_default();
            // A value may hold anything but an unescaped quote, so that every second piece is outside of values.
            let outside = rest
                .strip_prefix('{')
                .map(|rest| rest.split('"').step_by(2))
                .into_iter()
                .flatten();
            for piece in outside {
                if let Some(label) = piece.strip_suffix('=') {
                    labels.insert(label.trim_start_matches(',').to_owned());
                }
            }
        }
    }

    /// Adds a series that Prometheus makes itself.
    pub(crate) fn add_series(&mut self, name: &str, labels: impl IntoIterator<Item = String>) {
        self.0.entry(name.to_owned()).or_default().extend(labels);
    }

    /// Adds all that another has.
    pub(crate) fn add_all(&mut self, other: &Self) {
        for (name, labels) in &other.0 {
            self.add_series(name, labels.iter().cloned());
        }
    }

    /// The labels of a series; `None` if there is no such series.
    pub(crate) fn labels(&self, name: &str) -> Option<&BTreeSet<String>> {
        self.0.get(name)
    }
}

#[test]
fn labels_are_read_whatever_their_values_hold() {
    let mut exposed = Exposed::default();
    exposed.add("# TYPE a counter\na{x=\"1\",y=\"b=, {c}\"} 4\na{z=\"2\"} 1\nb 5\nc{} 6\n");
    let labels = |name: &str| {
        exposed
            .labels(name)
            .map(|labels| labels.iter().cloned().collect::<Vec<_>>().join(" "))
    };
    assert_eq!(labels("a").as_deref(), Some("x y z"));
    assert_eq!(labels("b").as_deref(), Some(""));
    assert_eq!(labels("c").as_deref(), Some(""));
    assert_eq!(labels("d"), None);
}
