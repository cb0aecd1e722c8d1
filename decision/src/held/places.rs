//! Places and memory for held requests, shared among their users.
//!
//! A user (a principal, a holder or a connection) may use at most as much as stays free. So one user has at most half
//! of the places, two have a third each, and the next one still finds some.

use std::collections::BTreeSet;
use std::hash::Hasher;

use credence_delegation::Thumbprint;
use siphasher::sip128::{Hasher128, SipHasher24};

use crate::decision::Reason;
use crate::usage_sketch::{Amount, Sharers, Shares, UserKey};

/// The places of one configuration in one VM.
#[derive(Debug)]
pub struct Places {
    secret: [u8; 16],
    what_for: WhatFor,
    /// The limits: the number of held requests, and the bytes of their headers and of the arrived parts of their
    /// bodies.
    limits: Amount,
    used: Amount,
    owned: Shares,
    /// Proofs of the held requests: one proof holds one place.
    proofs: BTreeSet<u64>,
}

/// What requests wait for that have such a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhatFor {
    /// The rest of their bodies, after their credentials were verified.
    Body,
    /// Their bodies, with their credentials.
    Credential,
    /// The first snapshot.
    Snapshot,
}

/// A request for a place.
#[derive(Debug, Clone, Copy, Default)]
pub struct Claim<'a> {
    /// The principal of its delegation, and the delegation's holder.
    pub sharers: Option<Sharers>,
    /// Envoy's number of its connection, if known.
    pub connection: Option<u64>,
    /// Also the address of its client, if connections cost nothing.
    pub address: Option<&'a [u8]>,
    /// The key that signed its proof, and the proof's id.
    pub proof: Option<(&'a Thumbprint, &'a str)>,
    /// Bytes of memory that it uses already.
    pub bytes: usize,
}

/// One place. It is in use until [`Places::release`].
#[derive(Debug)]
#[must_use = "a place that is not released is lost"]
pub struct Place {
    /// What for.
    pub what_for: WhatFor,
    users: [Option<UserKey>; 3],
    proof: Option<u64>,
    bytes: usize,
}

impl Places {
    /// All places are free. `secret` is random and stays in this VM.
    pub fn new(secret: [u8; 16], limits: Amount, what_for: WhatFor) -> Self {
        Self {
            secret,
            what_for,
            limits,
            used: Amount::default(),
            owned: Shares::default(),
            proofs: BTreeSet::new(),
        }
    }

    /// Takes a place.
    ///
    /// # Errors
    /// The reason for denying the request: no place is free, its users have reached their share, or its proof holds a
    /// place already.
    pub fn take(&mut self, claim: &Claim<'_>) -> Result<Place, Reason> {
        let users = [
            claim.sharers.map(|sharers| sharers.principal),
            match (claim.sharers, claim.address) {
                (Some(sharers), _) => Some(sharers.holder),
                (None, Some(_)) => Some(self.client(&Claim {
                    address: None,
                    ..*claim
                })),
                (None, None) => None,
            },
            // Requests with an unknown connection share one user.
            Some(self.client(claim)),
        ];
        let request = Amount::one(claim.bytes);
        let used = self.used.plus(request);
        let free = self.limits.minus(used);
        let leaves_enough = |user: &UserKey| self.owned.of(*user).fits(free);
        if !used.fits(self.limits) || !users.iter().flatten().all(leaves_enough) {
            return Err(Reason::TooManyHeld);
        }
        let proof = claim.proof.map(|(holder, id)| self.proof(holder, id));
        if proof.is_some_and(|proof| !self.proofs.insert(proof)) {
            return Err(Reason::ProofReplayed);
        }
        let bytes = claim.bytes;
        let place = Place {
            what_for: self.what_for,
            users,
            proof,
            bytes,
        };
        self.add(&place, request);
        Ok(place)
    }

    /// A held request now uses `bytes` of memory. `false` if that exceeds its limit; then the request is to be denied.
    #[must_use]
    pub fn grow(&mut self, place: &mut Place, bytes: usize) -> bool {
        let more = Amount {
            entries: 0,
            bytes: bytes.saturating_sub(place.bytes),
        };
        if more.bytes == 0 {
            return true;
        }
        let used = self.used.plus(more).bytes;
        // It keeps its place, even if all others are in use.
        let free = self.limits.bytes.checked_sub(used);
        let users = || place.users.iter().flatten();
        let has_room = free.is_some_and(|free| users().all(|user| self.owned.of(*user).bytes <= free));
        if has_room {
            place.bytes = bytes;
            self.add(place, more);
        }
        has_room
    }

    /// A request is no longer held.
    pub fn release(&mut self, place: Place) {
        let Place {
            users, proof, bytes, ..
        } = place;
        let request = Amount::one(bytes);
        self.used = self.used.minus(request);
        self.owned.remove(users.into_iter().flatten(), request);
        if let Some(proof) = proof {
            self.proofs.remove(&proof);
        }
    }

    fn add(&mut self, place: &Place, more: Amount) {
        self.used = self.used.plus(more);
        self.owned.add(place.users.into_iter().flatten(), more);
    }

    fn client(&self, claim: &Claim<'_>) -> UserKey {
        let mut hasher = SipHasher24::new_with_key(&self.secret);
        match (claim.address, claim.connection) {
            (Some(address), _) => hasher.write(address),
            (None, Some(number)) => hasher.write_u64(number),
            (None, None) => {}
        }
        UserKey::new(hasher.finish128().h1)
    }

    fn proof(&self, holder: &Thumbprint, id: &str) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.secret);
        hasher.write(holder.as_bytes());
        hasher.write(id.as_bytes());
        hasher.finish128().h1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    fn places() -> Places {
        let limits = Amount {
            entries: 100,
            bytes: 100_000,
        };
        Places::new([7; 16], limits, WhatFor::Body)
    }

    fn claim(principal: &str, holder: u8, connection: u64) -> Claim<'static> {
        let chain = samples::chain_for(principal);
        let thumbprint = samples::key(holder).public().thumbprint();
        Claim {
            sharers: Some(Sharers::new(&[1; 16], chain.principal(), thumbprint.as_bytes())),
            connection: Some(connection),
            ..Claim::default()
        }
    }

    /// How many places the claims get when they are repeated.
    fn taken(places: &mut Places, claims: &[Claim<'_>]) -> usize {
        let claims = claims.iter().cycle().take(300);
        claims.filter_map(|claim| places.take(claim).ok()).count()
    }

    #[test]
    fn a_request_that_does_not_grow_keeps_its_place() {
        let mut places = places();
        let mut held: Vec<_> = (0..24)
            .map(|connection| places.take(&claim("ada", 1, connection)).unwrap())
            .collect();
        assert!(held.iter_mut().all(|place| places.grow(place, 1_000)));
        for (principal, holder, bytes) in [("mallory", 2, 38_000), ("bob", 3, 19_000)] {
            let mut place = places.take(&claim(principal, holder, 100 + u64::from(holder))).unwrap();
            assert!(places.grow(&mut place, bytes), "{principal}");
        }
        assert!(held.iter_mut().all(|place| places.grow(place, 1_000)));
        assert!(!held.iter_mut().all(|place| places.grow(place, 2_000)));
    }

    #[test]
    fn one_holder_has_half_of_the_places_and_the_next_ones_still_find_some() {
        let mut places = places();
        assert_eq!(
            taken(&mut places, &[claim("mallory", 2, 1), claim("mallory", 2, 2)]),
            50
        );
        assert_eq!(taken(&mut places, &[claim("ada", 3, 3)]), 25);
        assert_eq!(taken(&mut places, &[claim("bob", 4, 4)]), 13);
    }

    #[test]
    fn neither_new_keys_nor_new_connections_get_a_principal_more() {
        let mut places = places();
        let claims: Vec<_> = (2..60)
            .map(|number| claim("mallory", number, u64::from(number)))
            .collect();
        assert_eq!(taken(&mut places, &claims), 50);
        assert_eq!(taken(&mut places, &[claim("ada", 3, 3)]), 25);
    }

    #[test]
    fn one_connection_has_half_of_the_places_for_any_principal() {
        let mut places = places();
        let names: Vec<String> = (0..60).map(|number| format!("agent-{number}")).collect();
        let claims: Vec<_> = names.iter().map(|name| claim(name, 2, 1)).collect();
        assert_eq!(taken(&mut places, &claims), 50);
        assert!(places.take(&claim("agent-1", 2, 2)).is_ok(), "over another connection");
        // Before any verification, only the connection is known.
        let unknown = Claim::default();
        assert!(taken(&mut places, &[unknown]) < 50);
    }

    #[test]
    fn a_proof_holds_at_most_one_place() {
        let mut places = places();
        let (holder, other) = (
            samples::key(2).public().thumbprint(),
            samples::key(3).public().thumbprint(),
        );
        let with = |holder, id| Claim {
            proof: Some((holder, id)),
            ..claim("ada", 2, 1)
        };
        let place = places.take(&with(&holder, "a")).unwrap();
        assert_eq!(places.take(&with(&holder, "a")).unwrap_err(), Reason::ProofReplayed);
        assert!(places.take(&with(&holder, "b")).is_ok(), "another proof");
        assert!(places.take(&with(&other, "a")).is_ok(), "another holder's");
        places.release(place);
        assert!(places.take(&with(&holder, "a")).is_ok());
    }

    #[test]
    fn bytes_are_shared_like_places_and_are_freed() {
        let mut places = places();
        let (mallory, ada) = (claim("mallory", 2, 1), claim("ada", 3, 2));
        let mut large = places
            .take(&Claim {
                bytes: 1_000,
                ..mallory
            })
            .unwrap();
        assert!(places.grow(&mut large, 50_000));
        assert!(!places.grow(&mut large, 90_000), "more than stays free");
        assert_eq!(
            places
                .take(&Claim {
                    bytes: 1_000,
                    ..mallory
                })
                .unwrap_err(),
            Reason::TooManyHeld
        );
        let mut small = places.take(&Claim { bytes: 1_000, ..ada }).unwrap();
        assert!(places.grow(&mut small, 20_000));
        places.release(large);
        places.release(small);
        assert_eq!(places.used, Amount::default());
        assert_eq!(taken(&mut places, &[mallory]), 50);
    }

    #[test]
    fn all_places_can_be_used() {
        let mut places = places();
        let names: Vec<String> = (0..300).map(|number| format!("agent-{number}")).collect();
        let claims: Vec<_> = names
            .iter()
            .zip(0..)
            .map(|(name, connection)| claim(name, 2, connection))
            .collect();
        let held: Vec<_> = claims.iter().filter_map(|claim| places.take(claim).ok()).collect();
        // The last ones only for a user without any.
        assert_eq!(held.len(), 100);
        assert_eq!(places.take(&claim("new", 3, 999)).unwrap_err(), Reason::TooManyHeld);
    }
}
