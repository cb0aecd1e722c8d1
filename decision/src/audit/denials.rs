//! Which denials on a verified chain are recorded one by one, and which of these send their chain along.
//!
//! A holder can have requests denied as fast as it can send them, each on a leaf that was never seen before. So the bounds
//! are by principal and by holder key, not by chain: some denials in a second say all there is to say, and the rest is
//! counted. What one principal has used takes nothing from another's share.

use crate::usage_sketch::{Sharers, UsageSketch, UserKey};

/// Lets through so many denials in one second.
#[derive(Debug)]
pub struct DenialCap {
    per_second: usize,
    second: i64,
    /// Denials of this second, by principal and by holder.
    seen: UsageSketch,
    /// Bytes of chains that denials of this second have sent along, by principal.
    chain_bytes: UsageSketch,
}

/// What is known of who was denied. Each kind has shares of its own: a client that has copied a chain cannot use up those
/// of its holder. The numbers tell the shares apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    /// The holder has proven to be the holder.
    Proven = 1,
    /// A client that has shown the chain.
    Unproven = 2,
    /// A client that shows a chain that is revoked.
    Revoked = 3,
}

/// Denials that a principal's holders may have recorded together: so many times what one of them may.
pub const PRINCIPAL_FACTOR: usize = 4;

/// Recorded denials in a second on one principal's revoked delegations. Ten identify the caller; the rest are counted. They
/// send no chains along.
pub const MAX_REVOKED: usize = 10;

/// Bytes of chains in a second that denials on one principal's delegations send along. Chains of allowed requests are always
/// sent.
pub const MAX_CHAIN_BYTES_DENIED: usize = 64 * 1024;

impl DenialCap {
    /// At most so many are recorded of each holder in a second.
    pub fn new(per_second: usize) -> Self {
        Self {
            per_second,
            second: 0,
            seen: UsageSketch::default(),
            chain_bytes: UsageSketch::default(),
        }
    }

    /// Whether a denial is recorded by itself.
    pub fn admits(&mut self, of: Sharers, denied: Denied, second: i64) -> bool {
        self.advance_to(second);
        let (principal, holder) = (of.principal.in_role(denied as u32), of.holder.in_role(denied as u32));
        let (of_holder, of_principal) = match denied {
            Denied::Proven | Denied::Unproven => (self.per_second, self.per_second.saturating_mul(PRINCIPAL_FACTOR)),
            Denied::Revoked => (self.per_second, self.per_second.min(MAX_REVOKED)),
        };
        let is_admitted = self.seen.of(principal) < of_principal && self.seen.of(holder) < of_holder;
        if is_admitted {
            // Only what is admitted: however many holders a principal has, they use up no more than its share.
            self.seen.add(principal, 1);
            self.seen.add(holder, 1);
        }
        is_admitted
    }

    /// Whether a denial that is recorded sends its chain of so many bytes along.
    pub fn admits_chain(&mut self, principal: UserKey, denied: Denied, bytes: usize, second: i64) -> bool {
        self.advance_to(second);
        let key = principal.in_role(denied as u32);
        let is_admitted =
            denied != Denied::Revoked && self.chain_bytes.of(key).saturating_add(bytes) <= MAX_CHAIN_BYTES_DENIED;
        if is_admitted {
            self.chain_bytes.add(key, bytes);
        }
        is_admitted
    }

    fn advance_to(&mut self, second: i64) {
        if self.second != second {
            self.second = second;
            self.seen.clear();
            self.chain_bytes.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(number: u64) -> UserKey {
        UserKey::new(number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20)
    }

    fn of(principal: u64, holder: u64) -> Sharers {
        Sharers {
            principal: user(principal),
            holder: user(1_000 + holder),
        }
    }

    fn admitted(cap: &mut DenialCap, of: Sharers, denied: Denied, second: i64) -> usize {
        (0..100).filter(|_| cap.admits(of, denied, second)).count()
    }

    #[test]
    fn of_one_holder_so_many_are_recorded_in_a_second() {
        let mut cap = DenialCap::new(2);
        assert_eq!(admitted(&mut cap, of(1, 1), Denied::Proven, 10), 2);
        assert_eq!(admitted(&mut cap, of(1, 2), Denied::Proven, 10), 2, "another holder");
        assert_eq!(admitted(&mut cap, of(2, 3), Denied::Proven, 10), 2, "another principal");
        assert_eq!(admitted(&mut cap, of(1, 1), Denied::Unproven, 10), 2, "a copied chain");
        assert_eq!(admitted(&mut cap, of(1, 1), Denied::Proven, 10), 0);
        assert_eq!(admitted(&mut cap, of(1, 1), Denied::Proven, 11), 2, "the next second");
    }

    #[test]
    fn of_one_principal_so_many_are_recorded_however_many_holders_it_has() {
        let mut cap = DenialCap::new(2);
        let recorded: usize = (0..1_000)
            .map(|holder| admitted(&mut cap, of(1, holder), Denied::Proven, 10))
            .sum();
        assert_eq!(recorded, 2 * PRINCIPAL_FACTOR);
        for principal in 2..100 {
            let recorded = admitted(&mut cap, of(principal, 5_000 + principal), Denied::Proven, 10);
            assert_eq!(recorded, 2, "principal {principal}");
        }
    }

    #[test]
    fn of_what_is_revoked_few_are_recorded_and_no_chain() {
        let mut cap = DenialCap::new(100);
        assert_eq!(admitted(&mut cap, of(1, 1), Denied::Revoked, 10), MAX_REVOKED);
        assert_eq!(admitted(&mut cap, of(1, 2), Denied::Revoked, 10), 0, "by any holder");
        assert!(!cap.admits_chain(user(1), Denied::Revoked, 1, 10));
        assert_eq!(admitted(&mut cap, of(1, 1), Denied::Proven, 10), 100, "what is not");
    }

    #[test]
    fn denials_of_one_principal_send_so_many_bytes_of_chains_along() {
        let mut cap = DenialCap::new(100);
        let mut sent = |principal, second| {
            (0..100)
                .filter(|_| cap.admits_chain(user(principal), Denied::Proven, 20_000, second))
                .count()
        };
        assert_eq!((sent(1, 10), sent(2, 10), sent(1, 11)), (3, 3, 3));
    }
}
