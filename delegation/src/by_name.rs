//! A small map by name that is read often and never changed.

use crate::sort::sort_by;

/// Values by name, sorted. Most maps have one to three values. A vector needs space for just these; a tree's node needs
/// space for eleven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ByName<V>(Box<[(Box<str>, V)]>);

impl<V> Default for ByName<V> {
    fn default() -> Self {
        Self(Box::default())
    }
}

impl<V> ByName<V> {
    /// The value of this name.
    pub(crate) fn get(&self, name: &str) -> Option<&V> {
        let place = self.0.binary_search_by(|(other, _)| (**other).cmp(name)).ok()?;
        self.0.get(place).map(|(_, value)| value)
    }

    /// Whether there is a value of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Names and values, sorted by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &V)> {
        self.0.iter().map(|(name, value)| (&**name, value))
    }

    /// The number of values.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Bytes on the heap, without other memory of the values.
    pub(crate) fn heap_bytes(&self) -> usize {
        let names = self.0.iter().map(|(name, _)| name.len());
        names.fold(size_of_val(&*self.0), usize::saturating_add)
    }
}

impl<V> IntoIterator for ByName<V> {
    type Item = (Box<str>, V);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_vec().into_iter()
    }
}

impl<V> FromIterator<(Box<str>, V)> for ByName<V> {
    /// Of several values with the same name, the last one counts.
    fn from_iter<I: IntoIterator<Item = (Box<str>, V)>>(values: I) -> Self {
        let mut values: Vec<_> = values.into_iter().enumerate().collect();
        sort_by(&mut values, |(i, (one, _)), (j, (other, _))| {
            one.cmp(other).then(j.cmp(i))
        });
        values.dedup_by(|(_, (one, _)), (_, (other, _))| one == other);
        Self(values.into_iter().map(|(_, value)| value).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(values: &[(&str, u32)]) -> ByName<u32> {
        values.iter().map(|(name, value)| (Box::from(*name), *value)).collect()
    }

    #[test]
    fn finds_exactly_the_inserted_values() {
        let map = map(&[("b", 2), ("a", 1), ("c", 3)]);
        assert_eq!(
            (map.get("a"), map.get("b"), map.get("c")),
            (Some(&1), Some(&2), Some(&3))
        );
        assert!(!map.has("") && !map.has("ab"));
        assert_eq!(map.iter().collect::<Vec<_>>(), [("a", &1), ("b", &2), ("c", &3)]);
        assert_eq!(map.len(), 3);
    }

    #[test]
    fn the_last_value_of_a_name_counts() {
        let map = map(&[("a", 1), ("b", 2), ("a", 3)]);
        assert_eq!(map.iter().collect::<Vec<_>>(), [("a", &3), ("b", &2)]);
    }
}
