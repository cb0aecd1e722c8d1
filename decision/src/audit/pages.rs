//! A bounded queue of bytes, whose memory stays in the processor's cache.

use std::collections::{TryReserveError, VecDeque};

/// Bytes, oldest first, in pages of equal size.
///
/// The page that was emptied last is filled next. A single circular buffer would reuse each byte only after all others:
/// every event would be written to uncached memory, and would evict Envoy's working set from the cache.
#[derive(Debug)]
pub(super) struct Pages {
    /// Pages with bytes, oldest first. All except the last are full.
    filled: VecDeque<Vec<u8>>,
    /// Pages without bytes, in the order in which they were emptied.
    empty: Vec<Vec<u8>>,
    /// How many bytes of the oldest page were already removed.
    gone: usize,
    length: usize,
}

// === impl Pages ===

impl Pages {
    /// An empty queue with this capacity, which is allocated at once.
    pub(super) fn with_room_for(bytes: usize) -> Result<Self, TryReserveError> {
        // The oldest page may be partly removed, and the last one partly filled.
        let pages = bytes.div_ceil(PAGE_BYTES).saturating_add(1);
        let (mut filled, mut empty) = (VecDeque::new(), Vec::new());
        filled.try_reserve_exact(pages)?;
        empty.try_reserve_exact(pages)?;
        for _ in 0..pages {
            let mut page = Vec::new();
            page.try_reserve_exact(PAGE_BYTES)?;
            empty.push(page);
        }
        Ok(Self {
            filled,
            empty,
            gone: 0,
            length: 0,
        })
    }

    /// The number of bytes.
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Adds bytes in two parts, or none if both do not fit.
    pub(super) fn append(&mut self, first: &[u8], second: &[u8]) -> bool {
        let has_room = first.len().saturating_add(second.len()) <= self.room();
        if has_room {
            self.fill(first);
            self.fill(second);
        }
        has_room
    }

    fn fill(&mut self, mut bytes: &[u8]) {
        self.length = self.length.saturating_add(bytes.len());
        while !bytes.is_empty() {
            if self.filled.back().is_none_or(|page| page.len() >= PAGE_BYTES) {
                self.filled.extend(self.empty.pop());
            }
            let Some(page) = self.filled.back_mut() else { break };
            let fits = PAGE_BYTES.saturating_sub(page.len()).min(bytes.len());
            let (now, later) = bytes.split_at(fits);
            page.extend_from_slice(now);
            bytes = later;
        }
    }

    /// Copies `bytes` bytes to the end of `target`, after skipping the oldest `skip`.
    pub(super) fn copy(&self, skip: usize, bytes: usize, target: &mut Vec<u8>) {
        let mut skip = skip.saturating_add(self.gone);
        let mut wanted = bytes;
        for page in &self.filled {
            if wanted == 0 {
                break;
            }
            let from = skip.min(page.len());
            skip = skip.saturating_sub(from);
            let to = from.saturating_add(wanted).min(page.len());
            let found = page.get(from..to).unwrap_or_default();
            target.extend_from_slice(found);
            wanted = wanted.saturating_sub(found.len());
        }
    }

    /// Removes up to `bytes` of the oldest bytes. Returns the number removed.
    pub(super) fn drop_oldest(&mut self, bytes: usize) -> usize {
        let bytes = bytes.min(self.length);
        self.length = self.length.saturating_sub(bytes);
        self.gone = self.gone.saturating_add(bytes);
        while let Some(page) = self.filled.front() {
            // If all of the last page is removed, it counts as empty.
            let is_gone = self.length == 0 || self.gone >= PAGE_BYTES;
            if !is_gone {
                break;
            }
            self.gone = self.gone.saturating_sub(page.len());
            if let Some(mut page) = self.filled.pop_front() {
                page.clear();
                self.empty.push(page);
            }
        }
        bytes
    }

    fn room(&self) -> usize {
        let last = self
            .filled
            .back()
            .map_or(0, |page| PAGE_BYTES.saturating_sub(page.len()));
        self.empty.len().saturating_mul(PAGE_BYTES).saturating_add(last)
    }
}

/// Small, so that the used pages have little unused space.
const PAGE_BYTES: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn content(pages: &Pages, skip: usize, bytes: usize) -> Vec<u8> {
        let mut found = Vec::new();
        pages.copy(skip, bytes, &mut found);
        found
    }

    #[test]
    fn returns_bytes_in_order() {
        let mut pages = Pages::with_room_for(5 * PAGE_BYTES + 17).unwrap();
        let mut expected: VecDeque<u8> = VecDeque::new();
        let mut random = 12345u64;
        let mut draw = |below: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) as usize % below
        };
        for round in 0..4000 {
            let bytes: Vec<u8> = (0..draw(9000)).map(|place| (place + round) as u8).collect();
            let fits = expected.len() + bytes.len() <= 5 * PAGE_BYTES + 17;
            if fits {
                assert!(
                    pages.append(&[], &bytes),
                    "{} bytes and {}",
                    expected.len(),
                    bytes.len()
                );
                expected.extend(&bytes);
            }
            if !fits || draw(3) == 0 {
                let dropped = pages.drop_oldest(draw(30_000));
                expected.drain(..dropped);
            }
            assert_eq!(pages.len(), expected.len());
            let skip = draw(expected.len() + 1);
            let some = draw(expected.len() - skip + 1);
            let wanted: Vec<u8> = expected.iter().copied().skip(skip).take(some).collect();
            assert_eq!(content(&pages, skip, some), wanted);
        }
        assert_eq!(content(&pages, 0, usize::MAX), Vec::from(expected.clone()));
        assert_eq!(pages.drop_oldest(usize::MAX), expected.len());
        assert_eq!((pages.len(), pages.filled.len()), (0, 0));
    }

    #[test]
    fn accepts_bytes_up_to_its_capacity() {
        for bytes in [1, PAGE_BYTES - 1, PAGE_BYTES, PAGE_BYTES + 1, 3 * PAGE_BYTES] {
            for gone in [0, 1, PAGE_BYTES - 1, PAGE_BYTES] {
                let mut pages = Pages::with_room_for(bytes).unwrap();
                // A part of the oldest page may be removed already.
                let gone = gone.min(bytes);
                assert!(pages.append(&vec![1; bytes], &[]));
                pages.drop_oldest(gone);
                assert!(pages.append(&vec![2; gone / 2], &vec![2; gone - gone / 2]));
                assert_eq!(pages.len(), bytes);
                let before = content(&pages, 0, bytes);
                let more = pages.room() + 1;
                assert!(!pages.append(&[3], &vec![3; more - 1]));
                assert_eq!(content(&pages, 0, usize::MAX), before);
            }
        }
    }

    #[test]
    fn refills_the_page_that_was_emptied_last() {
        let mut pages = Pages::with_room_for(100 * PAGE_BYTES).unwrap();
        let mut used = std::collections::HashSet::new();
        for _ in 0..1000 {
            assert!(pages.append(&[7], &[7; PAGE_BYTES / 3]));
            used.extend(pages.filled.iter().map(|page| page.as_ptr()));
            if pages.len() > 2 * PAGE_BYTES {
                pages.drop_oldest(PAGE_BYTES);
            }
        }
        assert!(used.len() <= 5, "{} pages for three pages' bytes", used.len());
    }
}
