//! The metrics and labels that a PromQL expression names. promtool checks the syntax; this reads what promtool accepts.

/// The names in an expression.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Each metric with the labels that select it.
    pub(crate) selectors: Vec<(String, Vec<String>)>,
    /// Labels that group or match series: `by (…)`, `on (…)` and the like.
    pub(crate) grouping: Vec<String>,
}

impl Asked {
    /// Reads an expression.
    pub(crate) fn read(expression: &str) -> Self {
        let mut asked = Self::default();
        let mut rest = Rest(expression);
        while let Some(next) = rest.0.chars().next() {
            match next {
                '"' | '\'' | '`' => rest.text(next),
                '[' => rest.until(']'),
                '0'..='9' => drop(rest.word()),
                '{' => asked.selectors.push((String::new(), rest.matchers())),
                'a'..='z' | 'A'..='Z' | '_' | ':' => {
                    let word = rest.word();
                    rest.space();
                    let next = rest.0.chars().next();
                    match next {
                        Some('(') if GROUPINGS.contains(&word) => asked.grouping.extend(rest.list()),
                        // A function.
                        Some('(') => {}
                        Some('{') => asked.selectors.push((word.to_owned(), rest.matchers())),
                        _ if KEYWORDS.contains(&word) || GROUPINGS.contains(&word) => {}
                        _ => asked.selectors.push((word.to_owned(), Vec::new())),
                    }
                }
                _ => rest.0 = &rest.0[next.len_utf8()..],
            }
        }
        asked
    }
}

const GROUPINGS: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
const KEYWORDS: [&str; 10] = [
    "and", "or", "unless", "offset", "bool", "sum", "min", "max", "inf", "nan",
];

/// The rest of the expression.
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    fn word(&mut self) -> &'a str {
        let is_part = |next: char| next.is_ascii_alphanumeric() || matches!(next, '_' | ':' | '.');
        let end = self.0.find(|next| !is_part(next)).unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at(end);
        self.0 = rest;
        word
    }

    fn space(&mut self) {
        self.0 = self.0.trim_start();
    }

    fn until(&mut self, end: char) {
        self.0 = self.0.split_once(end).map_or("", |(_, rest)| rest);
    }

    /// A text between quotes. Our expressions have no escaped quotes.
    fn text(&mut self, quote: char) {
        self.0 = &self.0[1..];
        self.until(quote);
    }

    /// The labels of `{label="…",…}`.
    fn matchers(&mut self) -> Vec<String> {
        let mut labels = Vec::new();
        self.0 = &self.0[1..];
        loop {
            match self.0.chars().next() {
                None => return labels,
                Some('}') => {
                    self.0 = &self.0[1..];
                    return labels;
                }
                Some(quote @ ('"' | '\'' | '`')) => self.text(quote),
                Some(next) if next.is_ascii_alphabetic() || next == '_' => labels.push(self.word().to_owned()),
                Some(next) => self.0 = &self.0[next.len_utf8()..],
            }
        }
    }

    /// `(label, …)`
    fn list(&mut self) -> Vec<String> {
        let (list, rest) = self.0[1..].split_once(')').unwrap_or((&self.0[1..], ""));
        self.0 = rest;
        let labels = list.split(',').map(str::trim).filter(|label| !label.is_empty());
        labels.map(str::to_owned).collect()
    }
}

#[test]
fn metrics_and_labels_are_told_from_other_names() {
    let asked = Asked::read(
        r#"sum by (job, le) (rate(a_total{x=~"b{c}|d",y!="e"}[5m] offset 15m)) / on (job) (b > 1e6) and f unless time() - g:h"#,
    );
    let selector = |metric: &str, labels: &[&str]| {
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        (metric.to_owned(), labels)
    };
    assert_eq!(
        asked,
        Asked {
            selectors: vec![
                selector("a_total", &["x", "y"]),
                selector("b", &[]),
                selector("f", &[]),
                selector("g:h", &[])
            ],
            grouping: vec!["job".to_owned(), "le".to_owned(), "job".to_owned()],
        }
    );
}
