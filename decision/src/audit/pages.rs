//! A bounded queue of bytes, whose memory stays in the processor's cache.

use std::collections::{TryReserveError, VecDeque};

/// Bytes, oldest first, in pages of equal size.
///
/// The page that was emptied last is filled next. A single circular buffer would reuse each byte only after all others:
/// every event would be written to uncached memory, and would evict Envoy's working set from the cache.
#[derive(Debug)]
pub(super) struct Pages {
    /// All pages, one after the other. The room for them is reserved at once, and costs no memory until it is used.
    memory: Vec<u8>,
    /// Pages with bytes, oldest first. All except the last are full.
    filled: VecDeque<Page>,
    /// Where pages without bytes begin, in the order in which they were emptied.
    empty: Vec<usize>,
    /// The number of pages that were never used.
    unused: usize,
    /// How many bytes of the oldest page were already removed.
    gone: usize,
    length: usize,
}

/// A page with bytes.
#[derive(Debug, Clone, Copy)]
struct Page {
    /// Where it begins in the memory.
    start: usize,
    length: usize,
}

// === impl Pages ===

impl Pages {
    /// An empty queue with this capacity.
    pub(super) fn with_room_for(bytes: usize) -> Result<Self, TryReserveError> {
        // The oldest page may be partly removed, and the last one partly filled.
        let pages = bytes.div_ceil(PAGE_BYTES).saturating_add(1);
        let (mut memory, mut filled, mut empty) = (Vec::new(), VecDeque::new(), Vec::new());
        memory.try_reserve_exact(pages.saturating_mul(PAGE_BYTES))?;
        filled.try_reserve_exact(pages)?;
        empty.try_reserve_exact(pages)?;
        Ok(Self {
            memory,
            filled,
            empty,
            unused: pages,
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
            if self.filled.back().is_none_or(|page| page.length >= PAGE_BYTES) {
                let start = self.empty.pop().or_else(|| self.unused_page());
                self.filled.extend(start.map(|start| Page { start, length: 0 }));
            }
            let Some(page) = self.filled.back_mut() else { break };
            let fits = PAGE_BYTES.saturating_sub(page.length).min(bytes.len());
            let (now, later) = bytes.split_at(fits);
            let from = page.start.saturating_add(page.length);
            page.length = page.length.saturating_add(fits);
            match self.memory.get_mut(from..from.saturating_add(fits)) {
                Some(free) => free.copy_from_slice(now),
                None => break,
            }
            bytes = later;
        }
    }

    fn unused_page(&mut self) -> Option<usize> {
        self.unused = self.unused.checked_sub(1)?;
        let start = self.memory.len();
        self.memory.resize(start.saturating_add(PAGE_BYTES), 0);
        Some(start)
    }

    /// Copies `bytes` bytes to the end of `target`, after skipping the oldest `skip`.
    pub(super) fn copy(&self, skip: usize, bytes: usize, target: &mut Vec<u8>) {
        let mut skip = skip.saturating_add(self.gone);
        let mut wanted = bytes;
        for page in &self.filled {
            if wanted == 0 {
                break;
            }
            let from = skip.min(page.length);
            skip = skip.saturating_sub(from);
            let to = from.saturating_add(wanted).min(page.length);
            let (from, to) = (page.start.saturating_add(from), page.start.saturating_add(to));
            let found = self.memory.get(from..to).unwrap_or_default();
            target.extend_from_slice(found);
            wanted = wanted.saturating_sub(found.len());
        }
    }

    /// Removes up to `bytes` of the oldest bytes. Returns the number removed.
    pub(super) fn drop_oldest(&mut self, bytes: usize) -> usize {
        let bytes = bytes.min(self.length);
        self.length = self.length.saturating_sub(bytes);
        self.gone = self.gone.saturating_add(bytes);
        // If all of the last page is removed, it counts as empty.
        while (self.length == 0 || self.gone >= PAGE_BYTES)
            && let Some(page) = self.filled.pop_front()
        {
            self.gone = self.gone.saturating_sub(page.length);
            self.empty.push(page.start);
        }
        bytes
    }

    fn room(&self) -> usize {
        let last = self
            .filled
            .back()
            .map_or(0, |page| PAGE_BYTES.saturating_sub(page.length));
        let pages = self.empty.len().saturating_add(self.unused);
        pages.saturating_mul(PAGE_BYTES).saturating_add(last)
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
    fn uses_no_memory_before_there_are_bytes() {
        let mut pages = Pages::with_room_for(100 * PAGE_BYTES).unwrap();
        assert_eq!(pages.memory.len(), 0);
        assert!(pages.append(&[7; PAGE_BYTES], &[7]));
        assert_eq!(pages.memory.len(), 2 * PAGE_BYTES);
    }

    #[test]
    fn refills_the_page_that_was_emptied_last() {
        let mut pages = Pages::with_room_for(100 * PAGE_BYTES).unwrap();
        let mut used = std::collections::HashSet::new();
        for _ in 0..1000 {
            assert!(pages.append(&[7], &[7; PAGE_BYTES / 3]));
            used.extend(pages.filled.iter().map(|page| page.start));
            if pages.len() > 2 * PAGE_BYTES {
                pages.drop_oldest(PAGE_BYTES);
            }
        }
        assert!(used.len() <= 5, "{} pages for three pages' bytes", used.len());
    }
}
