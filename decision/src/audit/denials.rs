//! Which denials on a verified chain are recorded one by one, and which of these send their chain.
//!
//! A holder can cause denials as fast as it can send requests, each with a new leaf. So the limits are by principal and
//! by holder key, not by chain: a few denials in a second are enough evidence, and the rest is counted. One principal
//! does not use another's share.

use crate::usage_sketch::{Sharers, UsageSketch, UserKey};

/// Admits a limited number of denials in each second.
#[derive(Debug)]
pub struct DenialCap {
    per_second: usize,
    second: i64,
    /// The denials of this second, by principal and by holder.
    seen: UsageSketch,
    /// The chain bytes of this second's denials, by principal.
    chain_bytes: UsageSketch,
}

/// What is known about a denied client. Each kind has its own share: a client that has copied a chain cannot use the
/// share of its holder. The numbers distinguish the shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    /// The client has proven to be the holder.
    Proven = 1,
    /// The client presented the chain without a proof.
    Unproven = 2,
    /// The client presented a revoked chain.
    Revoked = 3,
}

/// The limit of a principal's recorded denials, as a multiple of one holder's limit.
pub const PRINCIPAL_FACTOR: usize = 4;

/// Recorded denials in a second on one principal's revoked delegations. Ten identify the caller; the rest is counted.
/// They send no chains.
pub const MAX_REVOKED: usize = 10;

/// Chain bytes in a second that denials on one principal's delegations send. Chains of allowed requests are always
/// sent.
pub const MAX_CHAIN_BYTES_DENIED: usize = 64 * 1024;

impl DenialCap {
    /// Records at most `per_second` denials of each holder in a second.
    pub fn new(per_second: usize) -> Self {
        Self {
            per_second,
            second: 0,
            seen: UsageSketch::default(),
            chain_bytes: UsageSketch::default(),
        }
    }

    /// Whether a denial is recorded individually.
    pub fn admits(&mut self, of: Sharers, denied: Denied, second: i64) -> bool {
        self.advance_to(second);
        let (principal, holder) = (of.principal.in_role(denied as u32), of.holder.in_role(denied as u32));
        let (of_holder, of_principal) = match denied {
            Denied::Proven | Denied::Unproven => (self.per_second, self.per_second.saturating_mul(PRINCIPAL_FACTOR)),
            Denied::Revoked => (self.per_second, self.per_second.min(MAX_REVOKED)),
        };
        let is_admitted = self.seen.of(principal) < of_principal && self.seen.of(holder) < of_holder;
        if is_admitted {
            // Only admitted denials count, so that many holders together use no more than the principal's share.
            self.seen.add(principal, 1);
            self.seen.add(holder, 1);
        }
        is_admitted
    }

    /// Whether a recorded denial sends its chain of `bytes` bytes.
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
    fn the_denials_of_one_holder_are_limited_per_second() {
        let mut cap = DenialCap::new(2);
        assert_eq!(admitted(&mut cap, of(1, 1), Denied::Proven, 10), 2);
        assert_eq!(admitted(&mut cap, of(1, 2), Denied::Proven, 10), 2, "another holder");
        assert_eq!(admitted(&mut cap, of(2, 3), Denied::Proven, 10), 2, "another principal");
        assert_eq!(admitted(&mut cap, of(1, 1), Denied::Unproven, 10), 2, "a copied chain");
        assert_eq!(admitted(&mut cap, of(1, 1), Denied::Proven, 10), 0);
        assert_eq!(admitted(&mut cap, of(1, 1), Denied::Proven, 11), 2, "the next second");
    }

    #[test]
    fn the_denials_of_one_principal_are_limited_for_any_number_of_holders() {
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
    fn few_denials_of_revoked_chains_are_recorded_and_no_chain_is_sent() {
        let mut cap = DenialCap::new(100);
        assert_eq!(admitted(&mut cap, of(1, 1), Denied::Revoked, 10), MAX_REVOKED);
        assert_eq!(admitted(&mut cap, of(1, 2), Denied::Revoked, 10), 0, "by any holder");
        assert!(!cap.admits_chain(user(1), Denied::Revoked, 1, 10));
        assert_eq!(
            admitted(&mut cap, of(1, 1), Denied::Proven, 10),
            100,
            "a chain that is not revoked"
        );
    }

    #[test]
    fn the_chain_bytes_of_one_principals_denials_are_limited() {
        let mut cap = DenialCap::new(100);
        let mut sent = |principal, second| {
            (0..100)
                .filter(|_| cap.admits_chain(user(principal), Denied::Proven, 20_000, second))
                .count()
        };
        assert_eq!((sent(1, 10), sent(2, 10), sent(1, 11)), (3, 3, 3));
    }
}
