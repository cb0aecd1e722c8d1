//! A table for up to millions of subjects, which grows without pauses.

use std::collections::TryReserveError;

use super::subject_hash::SubjectHash;

/// A hash table that grows by one bucket at a time (Litwin's linear hashing): no insertion moves more than one bucket's
/// entries, and the memory follows the number of entries closely.
///
/// Both matter inside a proxy. A table that doubles, as those of the standard library do, stops the worker while a
/// million entries move, and needs one and a half times its previous memory in addition; a VM's memory never shrinks.
///
/// The subject's hash selects the bucket. It is unpredictable from outside the VM, so no client can fill one bucket on
/// purpose.
#[derive(Debug)]
pub(super) struct SubjectTable<V> {
    /// A power of two, minus the buckets that are not split yet. Never empty.
    buckets: Vec<Vec<Entry<V>>>,
    /// All ones, and at least `buckets.len() - 1`.
    mask: usize,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry<V> {
    hash: SubjectHash,
    value: V,
}

/// The position of a walk through a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cursor(usize);

// === impl SubjectTable ===

impl<V: Copy> SubjectTable<V> {
    pub(super) fn new() -> Self {
        Self {
            buckets: vec![Vec::new()],
            mask: 0,
            len: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, hash: &SubjectHash) -> Option<&V> {
        let bucket = self.buckets.get(self.place_of(hash))?;
        bucket
            .iter()
            .find(|entry| entry.hash == *hash)
            .map(|entry| &entry.value)
    }

    pub(super) fn contains(&self, hash: &SubjectHash) -> bool {
        self.get(hash).is_some()
    }

    /// Stores the value of this subject, which replaces an earlier one.
    ///
    /// # Errors
    /// If there is no memory for it; then nothing has changed.
    pub(super) fn insert(&mut self, hash: SubjectHash, value: V) -> Result<(), TryReserveError> {
        let place = self.place_of(&hash);
        let Some(bucket) = self.buckets.get_mut(place) else {
            return Ok(());
        };
        if let Some(known) = bucket.iter_mut().find(|entry| entry.hash == hash) {
            known.value = value;
            return Ok(());
        }
        if bucket.len() == bucket.capacity() {
            bucket.try_reserve_exact(STEP)?;
        }
        bucket.push(Entry { hash, value });
        self.len = self.len.saturating_add(1);
        if self.len > self.buckets.len().saturating_mul(USUAL_LEN) {
            // Without memory for another bucket, the existing ones grow.
            let _ = self.split_one();
        }
        Ok(())
    }

    /// Removes entries for which `keep` is false, in a few buckets from the cursor on. Returns the next position,
    /// unless it was the end.
    pub(super) fn retain_in_next(
        &mut self,
        from: Cursor,
        buckets: usize,
        mut is_kept: impl FnMut(&V) -> bool,
    ) -> Option<Cursor> {
        let end = from.0.saturating_add(buckets);
        for bucket in self.buckets.iter_mut().take(end).skip(from.0) {
            let before = bucket.len();
            bucket.retain(|entry| is_kept(&entry.value));
            self.len = self.len.saturating_sub(before.saturating_sub(bucket.len()));
            trim(bucket);
        }
        (end < self.buckets.len()).then_some(Cursor(end))
    }

    /// Frees the memory of up to `buckets` buckets. Returns whether any is left. The table must not be used for
    /// look-ups after that.
    pub(super) fn dismantle_some(&mut self, buckets: usize) -> bool {
        let rest = self.buckets.len().saturating_sub(buckets);
        self.buckets.truncate(rest);
        rest > 0
    }

    fn place_of(&self, hash: &SubjectHash) -> usize {
        let place = hash.uniform() & self.mask;
        if place < self.buckets.len() {
            place
        } else {
            // The bucket does not exist yet: its entries are in the one that it will be split from.
            place & (self.mask >> 1)
        }
    }

    /// Adds the next bucket, and moves its entries from the bucket that held them.
    fn split_one(&mut self) -> Result<(), TryReserveError> {
        let new_place = self.buckets.len();
        let mask = self.mask | new_place;
        let Some(old) = self.buckets.get_mut(new_place & (mask >> 1)) else {
            return Ok(());
        };
        let moves = |entry: &Entry<V>| entry.hash.uniform() & mask == new_place;
        let moving = old.iter().filter(|entry| moves(entry)).count();
        let mut new = Vec::new();
        new.try_reserve_exact(moving.next_multiple_of(STEP))?;
        self.buckets.try_reserve(1)?;
        if let Some(old) = self.buckets.get_mut(new_place & (mask >> 1)) {
            new.extend(old.extract_if(.., |entry| moves(entry)));
            trim(old);
        }
        self.buckets.push(new);
        self.mask = mask;
        Ok(())
    }
}

/// Frees the unused capacity of a bucket.
fn trim<V>(bucket: &mut Vec<Entry<V>>) {
    if bucket.capacity().saturating_sub(bucket.len()) >= STEP.saturating_mul(2) {
        bucket.shrink_to(bucket.len().next_multiple_of(STEP));
    }
}

/// Entries of a bucket, on average. A look-up compares with as many; more would save little memory and cost time.
const USUAL_LEN: usize = 16;

/// Growth of a bucket in entries: half of that is unused on average.
const STEP: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// A stand-in for the SipHash of the number.
    fn hash(number: u32) -> SubjectHash {
        let scattered = |salt: u32| {
            (number ^ salt)
                .wrapping_mul(0x9E37_79B1)
                .rotate_left(15)
                .wrapping_mul(0x85EB_CA77)
        };
        SubjectHash::of([scattered(0), number, scattered(1), scattered(2)])
    }

    fn filled(count: u32) -> SubjectTable<u32> {
        let mut table = SubjectTable::new();
        for number in 0..count {
            table.insert(hash(number), number).unwrap();
        }
        table
    }

    /// At every size: a split must leave all entries where look-ups find them.
    #[test]
    fn finds_exactly_the_inserted_entries() {
        let mut table = SubjectTable::new();
        for number in 0..5_000 {
            assert!(!table.contains(&hash(number)));
            table.insert(hash(number), number).unwrap();
            assert_eq!(table.len(), number as usize + 1);
            assert_eq!(table.get(&hash(number / 2)), Some(&(number / 2)));
        }
        for number in 0..5_000 {
            assert_eq!(table.get(&hash(number)), Some(&number));
        }
    }

    #[test]
    fn one_word_in_common_is_not_the_same_subject() {
        let mut table = SubjectTable::new();
        for word in 0..4 {
            let mut words = [7; 4];
            words[word] = 8;
            table.insert(SubjectHash::of(words), word).unwrap();
        }
        assert_eq!(table.len(), 4);
        assert!(!table.contains(&SubjectHash::of([7; 4])));
    }

    #[test]
    fn a_value_replaces_the_previous_one() {
        let mut table = filled(100);
        table.insert(hash(50), 7).unwrap();
        assert_eq!((table.len(), table.get(&hash(50))), (100, Some(&7)));
    }

    /// Bounds the delay of requests.
    #[test]
    fn no_insertion_touches_more_than_a_few_hundred_entries() {
        let table = filled(100_000);
        let longest = table.buckets.iter().map(Vec::len).max().unwrap();
        assert!(longest < 100, "{longest}");
    }

    /// Bounds the memory: a fifth more than the bare entries, at any size.
    #[test]
    fn memory_follows_the_number_of_entries() {
        let mut table = SubjectTable::new();
        for number in 0..200_000 {
            table.insert(hash(number), number).unwrap();
            if number % 9_999 == 9_998 {
                let entries: usize = table.buckets.iter().map(Vec::capacity).sum();
                let share = entries as f64 / table.len() as f64;
                assert!(share < 1.2, "{share} at {number}");
                assert!(table.buckets.len() * USUAL_LEN <= table.len() + USUAL_LEN);
            }
        }
    }

    #[test]
    fn removes_entries_step_by_step_and_frees_memory() {
        let mut table = filled(10_000);
        let before: usize = table.buckets.iter().map(Vec::capacity).sum();
        let mut cursor = Some(Cursor::default());
        let mut steps = 0;
        while let Some(from) = cursor {
            cursor = table.retain_in_next(from, 10, |number| number % 10 == 0);
            steps += 1;
        }
        assert_eq!(steps, table.buckets.len().div_ceil(10));
        assert_eq!(table.len(), 1_000);
        for number in 0..10_000 {
            assert_eq!(table.contains(&hash(number)), number % 10 == 0);
        }
        let after: usize = table.buckets.iter().map(Vec::capacity).sum();
        assert!(after < before / 2, "{after} of {before}");
        for number in 0..10_000 {
            table.insert(hash(number), number).unwrap();
        }
        assert_eq!(table.len(), 10_000);
    }

    #[test]
    fn is_dismantled_step_by_step() {
        let mut table = filled(10_000);
        let steps = table.buckets.len().div_ceil(10);
        for _ in 1..steps {
            assert!(table.dismantle_some(10));
        }
        assert!(!table.dismantle_some(10));
        assert!(!table.dismantle_some(10));
    }

    #[test]
    fn an_empty_table_has_nothing_to_forget() {
        let mut table = SubjectTable::<u32>::new();
        assert_eq!(table.retain_in_next(Cursor::default(), 10, |_| false), None);
        assert_eq!(table.len(), 0);
    }
}
