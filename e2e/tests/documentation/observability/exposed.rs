//! The series that Prometheus scrapes, and their labels.

use std::collections::{BTreeMap, BTreeSet};

/// The labels of each series.
#[derive(Debug, Default)]
pub(crate) struct Exposed(BTreeMap<String, BTreeSet<String>>);

impl Exposed {
    /// Adds the series of a page in Prometheus' text format, or OpenMetrics.
    pub(crate) fn add(&mut self, page: &str) {
        for line in page.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let end = line.find(['{', ' ']).unwrap_or(line.len());
            let (name, rest) = line.split_at(end);
            let labels = self.0.entry(name.to_owned()).or_default();
            // Values contain no unescaped quotes, so every second piece is outside of values.
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

    /// Adds all series of another one.
    pub(crate) fn add_all(&mut self, other: &Self) {
        for (name, labels) in &other.0 {
            self.add_series(name, labels.iter().cloned());
        }
    }

    /// The labels of a series; `None` if it does not exist.
    pub(crate) fn labels(&self, name: &str) -> Option<&BTreeSet<String>> {
        self.0.get(name)
    }
}

#[test]
fn labels_are_read_beside_any_value() {
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
