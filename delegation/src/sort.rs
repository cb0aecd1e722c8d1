//! Sorting with little code. The standard library's sorts are unrolled for speed: in V8, which compiles the whole
//! filter before its first request, the code of one takes up to 134 KB, and compiling it 25 MB.

use std::cmp::Ordering;

/// Sorts in place, by heap: n log n comparisons at most, for any order. Equal values may change places.
pub fn sort_by<T>(values: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    for root in (0..values.len() / 2).rev() {
        sink(values, root, &compare);
    }
    for end in (1..values.len()).rev() {
        values.swap(0, end);
        let (heap, _) = values.split_at_mut(end);
        sink(heap, 0, &compare);
    }
}

/// The same, by the values' own order.
pub fn sort<T: Ord>(values: &mut [T]) {
    sort_by(values, T::cmp);
}

/// Moves a value down the heap to its place: none is smaller than those below it.
fn sink<T>(heap: &mut [T], mut root: usize, compare: &impl Fn(&T, &T) -> Ordering) {
    loop {
        let left = root.saturating_mul(2).saturating_add(1);
        let right = left.saturating_add(1);
        let is_less = |one: usize, other: usize| match (heap.get(one), heap.get(other)) {
            (Some(one), Some(other)) => compare(one, other) == Ordering::Less,
            _ => false,
        };
        let largest = if is_less(left, right) { right } else { left };
        if !is_less(root, largest) {
            return;
        }
        heap.swap(root, largest);
        root = largest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorts_as_the_standard_library_does() {
        let mut random = 12345u64;
        for length in (0..70).chain([1_000]) {
            for below in [1, 3, 1_000_000] {
                let mut values: Vec<u64> = (0..length)
                    .map(|_| {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        (random >> 33) % below
                    })
                    .collect();
                let mut expected = values.clone();
                expected.sort_unstable();
                sort(&mut values);
                assert_eq!(values, expected);
                expected.reverse();
                sort_by(&mut values, |one, other| other.cmp(one));
                assert_eq!(values, expected);
            }
        }
    }
}
