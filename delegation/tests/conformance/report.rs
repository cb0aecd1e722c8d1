//! The counts of a suite, and their printed form.

use std::collections::BTreeMap;
use std::fmt::{Debug, Display};

/// The cases of one publication.
pub(crate) struct Suite {
    name: String,
    cases: usize,
    passed: usize,
    /// Reasons why cases with a key, algorithm or form that is not implemented were refused, and how many there are of
    /// each. Nothing else of such a case was checked: valid or not, it would have been refused.
    other_kind: BTreeMap<String, usize>,
    /// Reasons why cases do not apply, with how many there are of each.
    not_applicable: BTreeMap<String, usize>,
    /// Remarks about passed cases, with how many there are of each.
    remarks: BTreeMap<String, usize>,
    /// Remarks about the suite as a whole.
    notes: Vec<String>,
    /// Why the whole suite did not run.
    skipped: Option<String>,
    failures: Vec<String>,
}

impl Suite {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            cases: 0,
            passed: 0,
            other_kind: BTreeMap::new(),
            not_applicable: BTreeMap::new(),
            remarks: BTreeMap::new(),
            notes: Vec::new(),
            skipped: None,
            failures: Vec::new(),
        }
    }

    /// A suite that cannot run here, and why.
    pub(crate) fn skipped(name: &str, reason: impl Into<String>) -> Self {
        Self {
            skipped: Some(reason.into()),
            ..Self::new(name)
        }
    }

    /// Counts a case, which passes if `got` is what was `expected`. Returns whether it did.
    pub(crate) fn case<T: PartialEq + Debug>(&mut self, id: impl Display, expected: T, got: T) -> bool {
        let passes = self.compare(id, expected, got);
        if passes {
            self.passed += 1;
        }
        passes
    }

    /// Counts a case of a kind that is not implemented. It must be refused for that, as `expected` says. It does not
    /// count as passed.
    pub(crate) fn other_kind<T: PartialEq + Debug>(
        &mut self,
        id: impl Display,
        expected: T,
        got: T,
        kind: impl Into<String>,
    ) {
        if self.compare(id, expected, got) {
            *self.other_kind.entry(kind.into()).or_default() += 1;
        }
    }

    /// Adds a remark about the case that has just passed.
    pub(crate) fn remark(&mut self, text: impl Into<String>) {
        *self.remarks.entry(text.into()).or_default() += 1;
    }

    /// Counts a case that does not apply to this crate, and why.
    pub(crate) fn not_applicable(&mut self, reason: impl Into<String>) {
        self.cases += 1;
        *self.not_applicable.entry(reason.into()).or_default() += 1;
    }

    /// Adds a remark about the whole suite.
    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Whether a case failed, or the suite has no cases and gives no reason.
    pub(crate) fn failed(&self) -> bool {
        !self.failures.is_empty() || self.is_empty()
    }

    /// The suite's line of the table, and below it the remarks and failures.
    pub(crate) fn lines(&self) -> String {
        let Self {
            name, cases, passed, ..
        } = self;
        if let Some(reason) = &self.skipped {
            return format!("{name:<44} SKIPPED: {reason}\n");
        }
        let other_kind: usize = self.other_kind.values().sum();
        let not_applicable: usize = self.not_applicable.values().sum();
        let failed = self.failures.len();
        let mut lines = format!("{name:<44} {cases:>6} {passed:>7} {other_kind:>11} {not_applicable:>5} {failed:>7}\n");
        if self.is_empty() {
            lines += "    FAILED: it has no cases\n";
        }
        for note in &self.notes {
            lines += &format!("    note: {note}\n");
        }
        for (kind, number) in &self.other_kind {
            lines += &format!("    {number} of another kind: {kind}\n");
        }
        for (reason, number) in &self.not_applicable {
            lines += &format!("    {number} n/a: {reason}\n");
        }
        for (text, number) in &self.remarks {
            lines += &format!("    {number} of those passed: {text}\n");
        }
        for failure in &self.failures {
            lines += &format!("    FAILED: {failure}\n");
        }
        lines
    }

    fn compare<T: PartialEq + Debug>(&mut self, id: impl Display, expected: T, got: T) -> bool {
        self.cases += 1;
        let agree = expected == got;
        if !agree {
            self.failures
                .push(format!("{id}\n      expected: {expected:?}\n      got:      {got:?}"));
        }
        agree
    }

    fn is_empty(&self) -> bool {
        self.cases == 0 && self.skipped.is_none()
    }
}

/// The table's first line.
pub(crate) fn heading() -> String {
    format!(
        "{:<44} {:>6} {:>7} {:>11} {:>5} {:>7}\n",
        "suite", "cases", "passed", "other kinds", "n/a", "failed"
    )
}
