//! Names in the configuration, found in a request by their fold.
//!
//! All spellings that some service treats as one name have the same fold. `request` defines the fold of header names,
//! `query` that of query names. The cost of a look-up depends on the fold's bytes, not on the number of names.

use std::collections::HashMap;

/// A name in the configuration. Valid only for its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameId(usize);

/// Distinct names, each with an id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    names: Vec<Box<str>>,
    ids: HashMap<Box<str>, NameId>,
}

/// The names of each fold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Folds {
    ids: HashMap<Box<[u8]>, Vec<NameId>>,
    /// The lengths of the folds, as bits; the last bit stands for all longer ones. Most names in a request have another
    /// length, which this shows with one test.
    lengths: u128,
}

impl Names {
    /// The id of a name, and whether it is new.
    pub(crate) fn intern(&mut self, name: &str) -> (NameId, bool) {
        if let Some(id) = self.ids.get(name) {
            return (*id, false);
        }
        let id = NameId(self.names.len());
        self.names.push(name.into());
        self.ids.insert(name.into(), id);
        (id, true)
    }

    pub(crate) fn id(&self, name: &str) -> Option<NameId> {
        self.ids.get(name).copied()
    }

    pub(crate) fn is(&self, id: NameId, name: &[u8]) -> bool {
        self.names.get(id.0).is_some_and(|known| known.as_bytes() == name)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

impl Folds {
    pub(crate) fn add(&mut self, fold: &[u8], id: NameId) {
        self.lengths |= length_bit(fold.len());
        let ids = self.ids.entry(fold.into()).or_default();
        if !ids.contains(&id) {
            ids.push(id);
        }
    }

    /// Whether a fold has this length.
    pub(crate) fn have_length(&self, length: usize) -> bool {
        self.lengths & length_bit(length) != 0
    }

    /// The names with this fold.
    pub(crate) fn find(&self, fold: &[u8]) -> &[NameId] {
        if !self.have_length(fold.len()) {
            return &[];
        }
        work::count(1);
        self.ids.get(fold).map(Vec::as_slice).unwrap_or_default()
    }
}

fn length_bit(length: usize) -> u128 {
    1 << length.min(127)
}

/// The cost of reading names, in bytes read and look-ups; only counted in tests.
pub(crate) mod work {
    #[cfg(test)]
    thread_local! {
        static WORK: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }

    #[cfg(not(test))]
    pub(crate) fn count(_steps: usize) {}

    #[cfg(test)]
    pub(crate) fn count(steps: usize) {
        WORK.with(|work| work.set(work.get() + steps));
    }

    /// The count in this thread since the last call.
    #[cfg(test)]
    pub(crate) fn take() -> usize {
        WORK.with(std::cell::Cell::take)
    }
}
