//! Requests that are held until a new VM knows what is revoked, each until its own deadline.

use std::collections::BTreeMap;

use crate::clock::Monotonic;

/// Held requests by their stream, each with what it waits with.
#[derive(Debug)]
pub struct AwaitingSnapshot<K, T> {
    held: BTreeMap<K, (Monotonic, T)>,
}

impl<K: Ord + Copy, T> AwaitingSnapshot<K, T> {
    /// How many requests wait.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// What a request waits with, if it does.
    pub fn waiting(&mut self, stream: K) -> Option<&mut T> {
        self.held.get_mut(&stream).map(|(_, waiting)| waiting)
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Holds a request until `deadline`.
    pub fn hold(&mut self, stream: K, deadline: Monotonic, waiting: T) {
        self.held.insert(stream, (deadline, waiting));
    }

    /// One of those that wait no longer: any if what they wait for `has_come`, otherwise one whose deadline has passed.
    pub fn next(&mut self, has_come: bool, now: Monotonic) -> Option<(K, T)> {
        let is_over = |deadline: Monotonic| has_come || deadline <= now;
        let (stream, _) = self.held.iter().find(|(_, (deadline, _))| is_over(*deadline))?;
        let stream = *stream;
        let (_, waiting) = self.held.remove(&stream)?;
        Some((stream, waiting))
    }

    /// A stream has ended. Returns what it waited with, if it was still held.
    pub fn end(&mut self, stream: K) -> Option<T> {
        self.held.remove(&stream).map(|(_, waiting)| waiting)
    }
}

impl<K: Ord + Copy, T> Default for AwaitingSnapshot<K, T> {
    /// Nothing is held.
    fn default() -> Self {
        Self { held: BTreeMap::new() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(millis: u64) -> Monotonic {
        Monotonic::from_nanos(0).plus(Duration::from_millis(millis))
    }

    fn two() -> AwaitingSnapshot<u32, &'static str> {
        let mut awaiting = AwaitingSnapshot::default();
        awaiting.hold(1, at(100), "one");
        awaiting.hold(2, at(50), "two");
        awaiting
    }

    #[test]
    fn each_waits_until_its_own_deadline() {
        let mut awaiting = two();
        assert_eq!(awaiting.next(false, at(49)), None);
        assert_eq!(awaiting.next(false, at(50)), Some((2, "two")));
        assert_eq!(awaiting.next(false, at(50)), None);
        assert_eq!(awaiting.next(false, at(200)), Some((1, "one")));
        assert!(awaiting.is_empty());
    }

    #[test]
    fn none_waits_for_what_has_come() {
        let mut awaiting = two();
        assert_eq!(awaiting.next(true, at(0)), Some((1, "one")));
        assert_eq!(awaiting.next(true, at(0)), Some((2, "two")));
        assert_eq!(awaiting.next(true, at(0)), None);
    }

    #[test]
    fn a_stream_that_ends_waits_no_longer() {
        let mut awaiting = two();
        assert_eq!(
            (awaiting.end(1), awaiting.end(1), awaiting.len()),
            (Some("one"), None, 1)
        );
    }
}
