//! How many denials on one chain are recorded one by one.
//!
//! Whoever has a chain, and be it revoked, can have requests denied on it as fast as he can send them. Each would be an
//! event; so many of a kind in one second say all there is to say, and the rest is counted.

use std::collections::BTreeMap;

/// Lets through so many denials of one chain and reason in one second.
#[derive(Debug)]
pub struct DenialCap {
    per_second: usize,
    second: i64,
    /// By the beginning of the chain's digest, and reason: how many in this second.
    seen: BTreeMap<(u64, &'static str), usize>,
}

/// The most chains and reasons that are told apart in one second; denials of further ones are counted.
pub const MAX_DENIED: usize = 4096;

impl DenialCap {
    /// At most so many are recorded of each kind and second.
    pub fn new(per_second: usize) -> Self {
        Self {
            per_second,
            second: 0,
            seen: BTreeMap::new(),
        }
    }

    /// Whether a denial on the chain of this digest is recorded by itself.
    pub fn admits(&mut self, chain: &[u8; 32], reason: &'static str, second: i64) -> bool {
        if self.second != second {
            self.second = second;
            self.seen.clear();
        }
        let (name, _) = chain.split_first_chunk().unwrap_or((&[0; 8], &[]));
        let key = (u64::from_le_bytes(*name), reason);
        if self.seen.len() >= MAX_DENIED && !self.seen.contains_key(&key) {
            return false;
        }
        let seen = self.seen.entry(key).or_insert(0);
        *seen = seen.saturating_add(1);
        *seen <= self.per_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_one_kind_so_many_are_recorded_in_a_second() {
        let mut cap = DenialCap::new(2);
        let mut admitted =
            |chain: u8, reason, second| (0..5).filter(|_| cap.admits(&[chain; 32], reason, second)).count();
        assert_eq!(admitted(1, "expired", 10), 2);
        assert_eq!(admitted(2, "expired", 10), 2, "another chain");
        assert_eq!(admitted(1, "tool_not_granted", 10), 2, "another reason");
        assert_eq!(admitted(1, "expired", 10), 0);
        assert_eq!(admitted(1, "expired", 11), 2, "the next second");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut cap = DenialCap::new(1);
        let chains = (0..2 * MAX_DENIED as u64).map(|number| {
            let mut digest = [0; 32];
            digest[..8].copy_from_slice(&number.to_le_bytes());
            digest
        });
        assert_eq!(
            chains.filter(|chain| cap.admits(chain, "expired", 1)).count(),
            MAX_DENIED
        );
        assert_eq!(cap.seen.len(), MAX_DENIED);
    }
}
