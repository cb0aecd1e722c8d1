//! How much of a limited resource each user has.
//!
//! A count-min sketch (Cormode and Muthukrishnan, 2005): two rows of counters. A user has one counter in each, chosen
//! by a keyed hash. Its size is fixed, for any number of users. The estimate is never too low. It is too high only if a
//! user collides with others in both rows: one in a million pairs does, and clients cannot find out which.

use std::hash::Hasher;
use std::num::NonZeroU32;

use credence_delegation::Principal;
use siphasher::sip128::{Hasher128, SipHasher24};

/// A number of entries, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// The number.
    pub entries: usize,
    /// Their bytes.
    pub bytes: usize,
}

/// The entries and bytes of each user.
#[derive(Debug, Default)]
pub struct Shares {
    entries: UsageSketch,
    bytes: UsageSketch,
}

/// Amounts by user.
#[derive(Debug)]
pub struct UsageSketch {
    /// The rows, one after the other.
    counters: Vec<u32>,
}

/// One user: a principal, a holder or a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserKey(NonZeroU32);

/// The users of a delegation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sharers {
    /// The principal.
    pub principal: UserKey,
    /// The principal and the leaf's holder key.
    pub holder: UserKey,
}

// === impl Amount ===

impl Amount {
    /// One entry of `bytes` bytes.
    pub const fn one(bytes: usize) -> Self {
        Self { entries: 1, bytes }
    }

    /// The sum.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            entries: self.entries.saturating_add(other.entries),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    /// The difference, at least zero.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self {
            entries: self.entries.saturating_sub(other.entries),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }

    /// One part in `divisor`.
    #[must_use]
    pub fn part(self, divisor: usize) -> Self {
        let of = |amount: usize| amount.checked_div(divisor).unwrap_or(amount);
        Self {
            entries: of(self.entries),
            bytes: of(self.bytes),
        }
    }

    /// Whether neither number exceeds the limit's.
    pub fn fits(self, limit: Self) -> bool {
        self.entries <= limit.entries && self.bytes <= limit.bytes
    }
}

// === impl Shares ===

impl Shares {
    /// An upper bound of a user's amount.
    pub fn of(&self, user: UserKey) -> Amount {
        Amount {
            entries: self.entries.of(user),
            bytes: self.bytes.of(user),
        }
    }

    /// Adds the amount to each of these users.
    pub fn add(&mut self, users: impl IntoIterator<Item = UserKey>, amount: Amount) {
        for user in users {
            self.entries.add(user, amount.entries);
            self.bytes.add(user, amount.bytes);
        }
    }

    /// Subtracts the amount from each of these users. It must have been added before.
    pub fn remove(&mut self, users: impl IntoIterator<Item = UserKey>, amount: Amount) {
        for user in users {
            self.entries.remove(user, amount.entries);
            self.bytes.remove(user, amount.bytes);
        }
    }
}

// === impl UsageSketch ===

impl UsageSketch {
    /// An upper bound of a user's amount.
    pub fn of(&self, user: UserKey) -> usize {
        let amounts = user.slots().map(|slot| self.counters.get(slot).copied().unwrap_or(0));
        amounts.into_iter().min().map_or(0, |amount| amount as usize)
    }

    /// Adds to a user's amount.
    pub fn add(&mut self, user: UserKey, amount: usize) {
        self.change(user, amount, u32::saturating_add);
    }

    /// Subtracts from a user's amount. It must have been added before.
    pub fn remove(&mut self, user: UserKey, amount: usize) {
        self.change(user, amount, u32::saturating_sub);
    }

    /// Sets all counters to zero.
    pub fn clear(&mut self) {
        self.counters.fill(0);
    }

    fn change(&mut self, user: UserKey, amount: usize, change: impl Fn(u32, u32) -> u32) {
        let amount = u32::try_from(amount).unwrap_or(u32::MAX);
        for slot in user.slots() {
            if let Some(counter) = self.counters.get_mut(slot) {
                *counter = change(*counter, amount);
            }
        }
    }
}

impl Default for UsageSketch {
    /// All counters are zero.
    fn default() -> Self {
        Self {
            counters: vec![0; SLOTS.saturating_mul(2)],
        }
    }
}

// === impl UserKey ===

impl UserKey {
    /// The user with this hash, which must be uniform and keyed with a secret of this VM.
    pub fn new(hash: u64) -> Self {
        // Setting the lowest bit prevents zero.
        Self(NonZeroU32::MIN | hash as u32)
    }

    /// The same user in another role, with separate counters.
    #[must_use]
    pub fn in_role(self, role: u32) -> Self {
        Self::new(u64::from(self.0.get() ^ role.wrapping_mul(SPREAD)))
    }

    /// The user's counter in each row.
    fn slots(self) -> [usize; 2] {
        let mask = SLOTS.saturating_sub(1);
        let hash = self.0.get() as usize;
        [(hash >> 1) & mask, (hash >> (1 + SLOT_BITS)) & mask | SLOTS]
    }
}

// === impl Sharers ===

impl Sharers {
    /// The users of a delegation. `secret` is random and stays in this VM.
    pub fn new(secret: &[u8; 16], principal: &Principal, holder: &[u8]) -> Self {
        let mut hasher = SipHasher24::new_with_key(secret);
        // The length first, so that no two principals give the same text.
        hasher.write_usize(principal.issuer.len());
        hasher.write(principal.issuer.as_bytes());
        if let Some(subject) = &principal.subject {
            hasher.write_u8(1);
            hasher.write(subject.as_bytes());
        }
        let principal = UserKey::new(hasher.finish128().h1);
        hasher.write(holder);
        Self {
            principal,
            holder: UserKey::new(hasher.finish128().h1),
        }
    }
}

/// Counters of a row: a power of two.
const SLOTS: usize = 1 << SLOT_BITS;

const SLOT_BITS: u32 = 10;

/// 2^32 divided by the golden ratio, odd.
const SPREAD: u32 = 0x9E37_79B9;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn each_user_has_its_amount() {
        let mut shares = UsageSketch::default();
        let [one, other] = [11, 5 << 11].map(UserKey::new);
        shares.add(one, 5);
        shares.add(other, 2);
        shares.add(one, 1);
        assert_eq!((shares.of(one), shares.of(other)), (6, 2));
        shares.remove(one, 4);
        assert_eq!((shares.of(one), shares.of(one.in_role(1))), (2, 0));
        shares.clear();
        assert_eq!((shares.of(one), shares.of(other)), (0, 0));
    }

    #[test]
    fn a_thousand_users_rarely_collide() {
        let mut shares = UsageSketch::default();
        let users: Vec<UserKey> = (0..1_000_u64)
            .map(|user| UserKey::new(user.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20))
            .collect();
        users.iter().for_each(|user| shares.add(*user, 1));
        assert!(users.iter().all(|user| shares.of(*user) >= 1));
        let exact = users.iter().filter(|user| shares.of(**user) == 1).count();
        assert!(exact > 500, "{exact}");
    }

    #[test]
    fn principals_and_their_holders_are_distinct() {
        let holder = |number| samples::key(number).public().thumbprint();
        let principal = |subject: Option<&str>| Principal {
            issuer: "https://id.example".to_owned(),
            subject: subject.map(str::to_owned),
        };
        let of = |subject, number| Sharers::new(&[3; 16], &principal(subject), holder(number).as_bytes());
        assert_eq!(of(Some("ada"), 1), of(Some("ada"), 1));
        assert_eq!(of(Some("ada"), 1).principal, of(Some("ada"), 2).principal);
        assert_ne!(of(Some("ada"), 1).holder, of(Some("ada"), 2).holder);
        assert_ne!(of(Some("ada"), 1).principal, of(Some("bob"), 1).principal);
        assert_ne!(of(None, 1).principal, of(Some(""), 1).principal);
        let elsewhere = Sharers::new(&[4; 16], &principal(None), holder(1).as_bytes());
        assert_ne!(of(None, 1).principal, elsewhere.principal, "another VM");
    }
}
