//! The lines of a document's parts.

use std::collections::BTreeMap;

/// Lines by path, such as `rules[0].args.amount.path`; the empty path is the whole document.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Places {
    pub(super) lines: BTreeMap<String, usize>,
    /// Literal blocks (`|`), each with the line before its first. Their lines are lines of the file.
    pub(super) literals: BTreeMap<String, usize>,
}

impl Places {
    /// The line of a path, or of the nearest part around it that is known. Counted from 1.
    pub(crate) fn line(&self, path: &str) -> Option<usize> {
        let mut path = path;
        loop {
            if let Some(line) = self.lines.get(path) {
                return Some(*line);
            }
            if path.is_empty() {
                return None;
            }
            let end = path.rfind(['.', '[']).unwrap_or_default();
            path = path.get(..end).unwrap_or_default();
        }
    }

    /// The line before the first of a text's, if the text's lines are those of the file.
    pub(crate) fn literal(&self, path: &str) -> Option<usize> {
        self.literals.get(path).copied()
    }
}

/// The path of a member.
pub(crate) fn member(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

/// The path of an element, counted from 0.
pub(crate) fn element(path: &str, index: usize) -> String {
    format!("{path}[{index}]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_has_the_line_of_what_is_around_it() {
        let mut places = Places::default();
        for (path, line) in [("", 1), ("rules", 2), ("rules[0]", 3), ("rules[0].name", 4)] {
            places.lines.insert(path.to_owned(), line);
        }
        for (path, line) in [
            ("rules[0].name", 4),
            ("rules[0].args.amount.path", 3),
            ("rules[7]", 2),
            ("default", 1),
        ] {
            assert_eq!(places.line(path), Some(line), "{path}");
        }
        assert_eq!(Places::default().line("rules"), None);
    }
}
