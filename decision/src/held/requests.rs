//! The requests of one configuration that are held, and what becomes of each further piece of a request.

use std::time::Duration;

use super::awaiting_body::{self, AwaitingBody};
use super::awaiting_snapshot::AwaitingSnapshot;
use super::places::{Claim, Place, PlaceLimits, Places};
use crate::clock::{Began, Monotonic};
use crate::config::Policy;
use crate::decision::Reason;
use crate::engine::Held;

/// Requests that wait for their bodies, or for the VM's first snapshot of the revocations, by their stream.
#[derive(Debug)]
pub struct HeldRequests<K> {
    bodies: AwaitingBody<K, (AwaitsBody, Place)>,
    body_places: Places,
    body_limit: usize,
    snapshots: AwaitingSnapshot<K, (AwaitsSnapshot, Place)>,
    snapshot_places: Places,
    snapshot_wait: Duration,
}

/// A request that waits for its body. Nothing of it changes meanwhile: it stands here, and no other filter sees it.
#[derive(Debug)]
pub struct AwaitsBody {
    /// What its headers have established.
    pub held: Held,
    /// When its decision was begun.
    pub began: Began,
    /// Its headers, as the host handed them over.
    pub serialized: Vec<u8>,
}

/// A request that waits for the VM's first snapshot. Its headers stand here too, and its body waits in the host.
#[derive(Debug)]
pub struct AwaitsSnapshot {
    /// The place of its rule.
    pub rule_index: usize,
    /// When its decision was begun.
    pub began: Began,
    /// Its headers, as the host handed them over.
    pub serialized: Vec<u8>,
    /// Whether a body follows them.
    pub has_body: bool,
}

/// What becomes of a further piece of a request.
#[derive(Debug)]
pub enum Piece {
    /// The request was let through: it goes on.
    PassesOn,
    /// The request still waits.
    Waits,
    /// The request was refused: nothing of it goes on.
    Stays,
    /// The request is to be decided now by what of its body is there, or denied for this reason. Nothing of it goes on until
    /// [`HeldRequests::release`].
    Decides(Box<AwaitsBody>, Option<Reason>),
    /// The request waits for the first snapshot no longer.
    Settles(AwaitsSnapshot),
}

impl<K: Ord + Copy> HeldRequests<K> {
    /// Nothing is held. The secrets are random.
    pub fn new(policy: &Policy, secrets: [[u8; 16]; 2]) -> Self {
        let [of_bodies, of_snapshots] = secrets;
        Self {
            bodies: AwaitingBody::default(),
            body_places: Places::new(of_bodies, policy.limits.held),
            body_limit: policy.limits.body_bytes,
            snapshots: AwaitingSnapshot::default(),
            snapshot_places: Places::new(of_snapshots, snapshot_limits(policy.limits.held)),
            snapshot_wait: policy.wait_for_snapshot,
        }
    }

    /// How many requests wait.
    pub fn len(&self) -> usize {
        self.bodies.len().saturating_add(self.snapshots.len())
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.bodies.is_empty() && self.snapshots.is_empty()
    }

    /// Whether a request may wait for the first snapshot at all.
    pub fn waits_for_snapshot(&self) -> bool {
        !self.snapshot_wait.is_zero()
    }

    /// A place for a request whose body is to be read, or the reason why it gets none. `connection` is the host's number of
    /// the connection it came by, if the host tells.
    ///
    /// # Errors
    /// The reason for which the request is to be denied.
    pub fn body_place(&mut self, held: &Held, serialized: &[u8], connection: Option<u64>) -> Result<Place, Reason> {
        let proof = held.proof();
        let claim = Claim {
            sharers: Some(held.sharers()),
            proof: proof.as_ref().map(|(holder, id)| (holder, *id)),
            connection,
            bytes: held_bytes(serialized),
        };
        self.body_places.take(&claim)
    }

    /// A place for a request that is to wait for the first snapshot, if there is one.
    pub fn snapshot_place(&mut self, serialized: &[u8], connection: Option<u64>) -> Option<Place> {
        let claim = Claim {
            connection,
            bytes: held_bytes(serialized),
            ..Claim::default()
        };
        self.snapshot_places.take(&claim).ok()
    }

    /// Holds a request for its body.
    pub fn hold_for_body(&mut self, stream: K, waits: AwaitsBody, place: Place) {
        self.bodies.hold(stream, (waits, place));
    }

    /// Holds a request for the first snapshot, until its time is over.
    pub fn hold_for_snapshot(&mut self, stream: K, waits: AwaitsSnapshot, place: Place) {
        let deadline = waits.began.monotonic.plus(self.snapshot_wait);
        self.snapshots.hold(stream, deadline, (waits, place));
    }

    /// Some of a request's body has arrived, `size` bytes of it by now.
    pub fn on_body(&mut self, stream: K, size: usize, is_complete: bool) -> Piece {
        let is_too_large = size > self.body_limit;
        let Self {
            bodies,
            body_places,
            snapshots,
            snapshot_places,
            ..
        } = self;
        if let Some((waits, place)) = snapshots.waiting(stream) {
            let bytes = held_bytes(&waits.serialized).saturating_add(size);
            // The host keeps the body until then, and answers by itself beyond a limit of its own.
            if !is_too_large && snapshot_places.grow(place, bytes) {
                return Piece::Waits;
            }
        }
        if let Some((waits, place)) = snapshots.end(stream) {
            snapshot_places.release(place);
            return Piece::Settles(waits);
        }
        // What is decided now is held no longer.
        let is_enough = is_complete || is_too_large;
        if !is_enough
            && let Some((waits, place)) = bodies.waiting(stream)
            && !body_places.grow(place, held_bytes(&waits.serialized).saturating_add(size))
        {
            return self.on_piece(stream, true, Some(Reason::TooManyHeld));
        }
        self.on_piece(stream, is_enough, None)
    }

    /// A request's trailers have arrived: its body ends before them.
    pub fn on_trailers(&mut self, stream: K) -> Piece {
        match self.snapshots.waiting(stream) {
            Some(_) => Piece::Waits,
            None => self.on_piece(stream, true, None),
        }
    }

    fn on_piece(&mut self, stream: K, is_enough: bool, refusal: Option<Reason>) -> Piece {
        match self.bodies.piece(stream, is_enough) {
            awaiting_body::Piece::PassesOn => Piece::PassesOn,
            awaiting_body::Piece::Waits => Piece::Waits,
            awaiting_body::Piece::Stays => Piece::Stays,
            awaiting_body::Piece::Decides((waits, place)) => {
                self.body_places.release(place);
                Piece::Decides(Box::new(waits), refusal)
            }
        }
    }

    /// A request that waits for the first snapshot no longer: any once that `has_come`, else one whose time is over.
    pub fn next_settled(&mut self, has_come: bool, now: Monotonic) -> Option<(K, AwaitsSnapshot)> {
        let (stream, (waits, place)) = self.snapshots.next(has_come, now)?;
        self.snapshot_places.release(place);
        Some((stream, waits))
    }

    /// A request was let through: what else arrives of it goes on.
    pub fn release(&mut self, stream: K) {
        self.bodies.release(stream);
    }

    /// A request was refused: nothing else of it goes on, whether or not it could be answered.
    pub fn close(&mut self, stream: K) {
        self.bodies.close(stream);
    }

    /// Gives up on all that wait for their bodies: none of them goes on.
    pub fn give_up(&mut self) -> Vec<(K, AwaitsBody)> {
        let Self {
            bodies, body_places, ..
        } = self;
        let given_up = bodies.give_up().into_iter();
        given_up
            .map(|(stream, (waits, place))| {
                body_places.release(place);
                (stream, waits)
            })
            .collect()
    }

    /// A request has ended. Returns what it waited with, if it was still held.
    pub fn end(&mut self, stream: K) -> (Option<AwaitsBody>, Option<AwaitsSnapshot>) {
        let body = self.bodies.end(stream).map(|(waits, place)| {
            self.body_places.release(place);
            waits
        });
        let snapshot = self.snapshots.end(stream).map(|(waits, place)| {
            self.snapshot_places.release(place);
            waits
        });
        (body, snapshot)
    }
}

/// What the headers of a held request take: they are here, and in the host.
fn held_bytes(serialized: &[u8]) -> usize {
    serialized.len().saturating_mul(2)
}

/// Requests that wait for the first snapshot have a quarter as many places beside the others, and no more of them than a
/// shell settles within four ticks.
fn snapshot_limits(held: PlaceLimits) -> PlaceLimits {
    PlaceLimits {
        requests: held.requests.div_ceil(4).min(MAX_AWAITING_SNAPSHOT),
        bytes: held.bytes.div_ceil(4),
    }
}

/// Requests that wait for the first snapshot at most.
const MAX_AWAITING_SNAPSHOT: usize = 256;
