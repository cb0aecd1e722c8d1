//! The held requests of one configuration, and the handling of further pieces of all requests.
//!
//! Pieces of an allowed request pass. Pieces of a request that was refused or given up do not pass, even if the request
//! could not be answered.

use std::collections::BTreeMap;
use std::time::Duration;

use super::places::{Claim, Place, Places, WhatFor};
use crate::clock::{Began, Monotonic};
use crate::config::Policy;
use crate::decision::Reason;
use crate::engine::Held;
use crate::mcp::presentation;
use crate::usage_sketch::Amount;

/// Requests that wait for their bodies, or for the VM's first snapshot of the revocations, by their stream; and
/// requests of which nothing may pass. `H` is the data of a request that waits for its body.
#[derive(Debug)]
pub struct HeldRequests<K, H = Held> {
    requests: BTreeMap<K, State<H>>,
    body_places: Places,
    body_limit: usize,
    credential_places: Places,
    snapshot_places: Places,
    snapshot_wait: Duration,
}

/// Who sent a request.
#[derive(Debug, Clone, Copy, Default)]
pub struct Client<'a> {
    /// The host's number of its connection, if known.
    pub connection: Option<u64>,
    /// Its address, without a port, if known.
    pub address: Option<&'a [u8]>,
}

/// A waiting request. Nothing of it changes in the meantime: it is held here, and no other filter sees it.
#[derive(Debug)]
pub struct HeldRequest<H = Held> {
    /// What it waits for.
    pub awaits: Awaited<H>,
    /// When its decision began.
    pub began: Began,
    /// Its headers, as the host serialised them.
    pub serialized: Vec<u8>,
    /// Whether a body follows them.
    pub has_body: bool,
    /// Whether only the body waits: the headers have gone on, and the decision on the body is enforced.
    pub headers_are_gone: bool,
}

/// What a request waits for.
#[derive(Debug)]
pub enum Awaited<H = Held> {
    /// Its body, with the findings from its headers.
    Body(H),
    /// The VM's first snapshot, while its body waits in the host. Holds the index of its rule.
    Snapshot(usize),
}

#[derive(Debug)]
enum State<H> {
    Waits(Box<HeldRequest<H>>, Place),
    /// It was refused, or is being decided. Nothing of it passes until it is released or its stream ends.
    Closed,
}

/// What to do with a further piece of a request.
#[derive(Debug)]
pub enum Piece<H = Held> {
    /// The request was allowed: the piece passes.
    PassesOn,
    /// The request still waits.
    Waits,
    /// The request was refused: nothing of it passes.
    Stays,
    /// Decide the request now with the arrived part of its body, or deny it for this reason. Nothing of it passes until
    /// [`HeldRequests::release`].
    Decides(Box<HeldRequest<H>>, Option<Reason>),
}

impl<K: Ord + Copy> HeldRequests<K> {
    /// A place for a request whose body is to be read, or the reason for denying it.
    ///
    /// # Errors
    /// The reason for denying the request.
    pub fn body_place(&mut self, held: &Held, serialized: &[u8], client: Client<'_>) -> Result<Place, Reason> {
        let proof = held.proof();
        let claim = Claim {
            sharers: held.sharers(),
            proof: proof.as_ref().map(|(holder, id)| (holder, *id)),
            connection: client.connection,
            address: None,
            bytes: held_bytes(serialized),
        };
        match held.is_presented() {
            true => self.body_places.take(&claim),
            false => self.credential_places.take(&Claim {
                address: client.address,
                ..claim
            }),
        }
    }
}

impl<K: Ord + Copy, H> HeldRequests<K, H> {
    /// No held requests. The secrets are random.
    pub fn new(policy: &Policy, secrets: [[u8; 16]; 3]) -> Self {
        let [of_bodies, of_credentials, of_snapshots] = secrets;
        let held = policy.limits.held;
        Self {
            requests: BTreeMap::new(),
            body_places: Places::new(of_bodies, held, WhatFor::Body),
            credential_places: Places::new(of_credentials, a_quarter_of(held), WhatFor::Credential),
            body_limit: policy.limits.body_bytes,
            snapshot_places: Places::new(of_snapshots, snapshot_limits(held), WhatFor::Snapshot),
            snapshot_wait: policy.wait_for_snapshot,
        }
    }

    /// The number of waiting requests.
    pub fn len(&self) -> usize {
        let waits = |state: &&State<H>| matches!(state, State::Waits(..));
        self.requests.values().filter(waits).count()
    }

    /// Whether no request waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether requests may wait for the first snapshot.
    pub fn waits_for_snapshot(&self) -> bool {
        !self.snapshot_wait.is_zero()
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

    /// Holds a request until its body is there, or until the first snapshot or a deadline.
    pub fn hold(&mut self, stream: K, request: HeldRequest<H>, place: Place) {
        self.requests.insert(stream, State::Waits(Box::new(request), place));
    }

    /// Whether the headers of this request have gone on, and its body waits.
    pub fn has_only_headers_gone(&self, stream: K) -> bool {
        matches!(self.requests.get(&stream), Some(State::Waits(request, _)) if request.headers_are_gone)
    }

    /// A request is not held after all.
    pub fn give_back(&mut self, place: Place) {
        match place.what_for {
            WhatFor::Body => self.body_places.release(place),
            WhatFor::Credential => self.credential_places.release(place),
            WhatFor::Snapshot => self.snapshot_places.release(place),
        }
    }

    /// A part of a request's body has arrived; `size` bytes of it are present.
    pub fn on_body(&mut self, stream: K, size: usize, is_complete: bool) -> Piece<H> {
        let (request, place) = match self.requests.get_mut(&stream) {
            None => return Piece::PassesOn,
            Some(State::Closed) => return Piece::Stays,
            Some(State::Waits(request, place)) => (request, place),
        };
        let limit = match place.what_for {
            WhatFor::Credential => self.body_limit.min(presentation::MAX_BYTES),
            WhatFor::Body | WhatFor::Snapshot => self.body_limit,
        };
        let is_too_large = size > limit;
        let bytes = held_bytes(&request.serialized).saturating_add(size);
        let places = match place.what_for {
            WhatFor::Body => &mut self.body_places,
            WhatFor::Credential => &mut self.credential_places,
            WhatFor::Snapshot => &mut self.snapshot_places,
        };
        let refusal = match request.awaits {
            // A request that is decided now is no longer held.
            Awaited::Body(_) if is_complete || is_too_large => None,
            Awaited::Body(_) if places.grow(place, bytes) => return Piece::Waits,
            Awaited::Body(_) => Some(Reason::TooManyHeld),
            // The host buffers the body until then, and answers by itself beyond its own limit.
            Awaited::Snapshot(_) if !is_too_large && places.grow(place, bytes) => return Piece::Waits,
            Awaited::Snapshot(_) => None,
        };
        self.decide(stream, refusal)
    }

    /// A request's trailers have arrived, so its body is complete.
    pub fn on_trailers(&mut self, stream: K) -> Piece<H> {
        match self.requests.get(&stream) {
            Some(State::Waits(request, _)) if matches!(request.awaits, Awaited::Snapshot(_)) => Piece::Waits,
            Some(State::Waits(..)) => self.decide(stream, None),
            Some(State::Closed) => Piece::Stays,
            None => Piece::PassesOn,
        }
    }

    /// A request that no longer waits for the first snapshot: any one if `has_come`, otherwise one whose deadline has
    /// passed.
    pub fn next_settled(&mut self, has_come: bool, now: Monotonic) -> Option<(K, HeldRequest<H>)> {
        let wait = self.snapshot_wait;
        let is_over = |state: &State<H>| match state {
            State::Waits(request, _) => {
                matches!(request.awaits, Awaited::Snapshot(_))
                    && (has_come || request.began.monotonic.plus(wait) <= now)
            }
            State::Closed => false,
        };
        let (stream, _) = self.requests.iter().find(|(_, state)| is_over(state))?;
        let stream = *stream;
        Some((stream, self.close(stream)?))
    }

    /// A request was allowed: its further pieces pass.
    pub fn release(&mut self, stream: K) {
        self.requests.remove(&stream);
    }

    /// A request was refused: nothing else of it passes, even if it could not be answered.
    pub fn close(&mut self, stream: K) -> Option<HeldRequest<H>> {
        let before = self.requests.insert(stream, State::Closed);
        self.vacate(before)
    }

    /// Gives up all requests that wait for their bodies: nothing of them passes.
    pub fn give_up(&mut self) -> Vec<(K, HeldRequest<H>)> {
        let waits =
            |state: &State<H>| matches!(state, State::Waits(request, _) if matches!(request.awaits, Awaited::Body(_)));
        let given_up = self.requests.iter().filter(|(_, state)| waits(state));
        let streams: Vec<K> = given_up.map(|(stream, _)| *stream).collect();
        streams
            .into_iter()
            .filter_map(|stream| Some((stream, self.close(stream)?)))
            .collect()
    }

    /// A request has ended. Returns its data if it was still held.
    pub fn end(&mut self, stream: K) -> Option<HeldRequest<H>> {
        let ended = self.requests.remove(&stream);
        self.vacate(ended)
    }

    fn decide(&mut self, stream: K, refusal: Option<Reason>) -> Piece<H> {
        match self.close(stream) {
            Some(request) => Piece::Decides(Box::new(request), refusal),
            None => Piece::Stays,
        }
    }

    /// Frees the place of a request that no longer waits.
    fn vacate(&mut self, state: Option<State<H>>) -> Option<HeldRequest<H>> {
        let State::Waits(request, place) = state? else {
            return None;
        };
        self.give_back(place);
        Some(*request)
    }
}

/// The memory of a held request's headers: here and in the host.
fn held_bytes(serialized: &[u8]) -> usize {
    serialized.len().saturating_mul(2)
}

/// Requests that wait for the first snapshot have a quarter as many places, besides the others, and no more than the
/// filter settles within four ticks.
fn snapshot_limits(held: Amount) -> Amount {
    let quarter = a_quarter_of(held);
    Amount {
        entries: quarter.entries.min(MAX_AWAITING_SNAPSHOT),
        ..quarter
    }
}

fn a_quarter_of(held: Amount) -> Amount {
    Amount {
        entries: held.entries.div_ceil(4),
        bytes: held.bytes.div_ceil(4),
    }
}

/// The most requests that wait for the first snapshot.
const MAX_AWAITING_SNAPSHOT: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::UnixNanos;
    use crate::samples;

    #[test]
    fn nothing_of_a_request_passes_that_was_refused_at_once() {
        let mut held = nothing_held();
        held.close(1);
        assert_eq!(on_trailers(&mut held, 1), "stays");
        assert!(held.end(1).is_none());
        assert_eq!(on_trailers(&mut held, 1), "passes on", "another stream of that number");
    }

    #[test]
    fn a_request_that_was_never_held_passes() {
        let mut held = nothing_held();
        assert_eq!(on_body(&mut held, 1, false), "passes on");
        assert_eq!(on_body(&mut held, 1, true), "passes on");
        assert_eq!(on_trailers(&mut held, 1), "passes on");
    }

    #[test]
    fn a_held_request_waits_until_a_piece_decides_it() {
        let mut held = nothing_held();
        hold_for_body(&mut held, 1);
        assert_eq!(on_body(&mut held, 1, false), "waits");
        assert_eq!(on_body(&mut held, 1, true), "decides");
        held.release(1);
        assert_eq!(on_trailers(&mut held, 1), "passes on");
        hold_for_body(&mut held, 2);
        assert_eq!(on_trailers(&mut held, 2), "decides", "its body ends before them");
    }

    #[test]
    fn nothing_of_a_request_passes_that_was_not_released() {
        let mut held = nothing_held();
        hold_for_body(&mut held, 1);
        assert_eq!(on_body(&mut held, 1, true), "decides");
        assert_eq!(on_body(&mut held, 1, false), "stays", "a further piece");
        assert_eq!(on_trailers(&mut held, 1), "stays", "or its trailers");
        assert!(held.end(1).is_none());
        assert_eq!(
            on_body(&mut held, 1, true),
            "passes on",
            "another request of the same number"
        );
    }

    #[test]
    fn nothing_of_a_request_passes_that_was_given_up() {
        let mut held = nothing_held();
        hold_for_body(&mut held, 1);
        hold_for_snapshot(&mut held, 2, 0);
        assert!(
            matches!(held.give_up()[..], [(1, _)]),
            "requests that wait for the snapshot are decided in time"
        );
        assert_eq!(held.len(), 1);
        assert_eq!(on_body(&mut held, 1, false), "stays");
        assert_eq!(on_trailers(&mut held, 1), "stays");
        assert!(held.end(1).is_none());
    }

    #[test]
    fn the_end_of_a_held_stream_is_reported() {
        let mut held = nothing_held();
        hold_for_body(&mut held, 1);
        hold_for_snapshot(&mut held, 2, 0);
        for stream in [1, 2] {
            assert!(held.end(stream).is_some());
            assert!(held.end(stream).is_none());
        }
        assert!(held.is_empty());
    }

    #[test]
    fn each_waits_for_the_snapshot_until_its_own_deadline() {
        let mut held = nothing_held();
        hold_for_snapshot(&mut held, 1, 100);
        hold_for_snapshot(&mut held, 2, 50);
        hold_for_body(&mut held, 3);
        assert!(held.next_settled(false, at(549)).is_none());
        assert!(matches!(held.next_settled(false, at(550)), Some((2, _))));
        assert!(held.next_settled(false, at(550)).is_none());
        assert_eq!(on_body(&mut held, 2, true), "stays", "it is being decided");
        held.release(2);
        assert_eq!(on_body(&mut held, 2, true), "passes on");
        assert!(matches!(held.next_settled(false, at(700)), Some((1, _))));
        assert_eq!(held.len(), 1);
    }

    #[test]
    fn no_request_waits_for_a_snapshot_that_has_arrived() {
        let mut held = nothing_held();
        hold_for_snapshot(&mut held, 1, 100);
        hold_for_snapshot(&mut held, 2, 50);
        assert!(matches!(held.next_settled(true, at(0)), Some((1, _))));
        assert!(matches!(held.next_settled(true, at(0)), Some((2, _))));
        assert!(held.next_settled(true, at(0)).is_none());
    }

    #[test]
    fn further_pieces_of_a_request_that_waits_for_the_snapshot_wait_too() {
        let mut held = nothing_held();
        hold_for_snapshot(&mut held, 1, 0);
        assert_eq!(on_body(&mut held, 1, true), "waits");
        assert_eq!(on_trailers(&mut held, 1), "waits");
        let limit = held.body_limit;
        assert!(matches!(held.on_body(1, limit + 1, false), Piece::Decides(_, None)));
    }

    #[test]
    fn every_end_of_a_request_frees_its_place() {
        let mut held = nothing_held();
        for ending in [HeldRequests::end, HeldRequests::close] {
            for stream in 0..10_000 {
                let place = held.snapshot_place(b"", None).expect("a place");
                held.hold(stream, request(Awaited::Snapshot(0), 0), place);
                assert!(ending(&mut held, stream).is_some());
                let place = held.body_places.take(&Claim::default()).expect("a place");
                held.hold(stream, request(Awaited::Body(()), 0), place);
                assert!(ending(&mut held, stream).is_some());
            }
        }
    }

    fn nothing_held() -> HeldRequests<u32, ()> {
        let key = samples::key(1).public().to_jwk();
        let policy = format!(
            r#"{{"audience": ["{}"], "trust_anchors": [{{"issuer": "{}", "jwk": {key}}}],
                "control_plane": {{"cluster": "credence", "log_id": "0123456789abcdef0123456789abcdef"}},
                "rules": [{{"name": "health", "match": {{"path": "/healthz"}}, "public": true}}]}}"#,
            samples::AUDIENCE,
            samples::ISSUER
        );
        HeldRequests::new(&Policy::parse(policy.as_bytes()).unwrap(), [[1; 16], [2; 16], [3; 16]])
    }

    fn hold_for_body(held: &mut HeldRequests<u32, ()>, stream: u32) {
        let place = held.body_places.take(&Claim::default()).unwrap();
        held.hold(stream, request(Awaited::Body(()), 0), place);
    }

    fn hold_for_snapshot(held: &mut HeldRequests<u32, ()>, stream: u32, since_ms: u64) {
        let place = held.snapshot_place(b"", None).unwrap();
        held.hold(stream, request(Awaited::Snapshot(0), since_ms), place);
    }

    fn request(awaits: Awaited<()>, since_ms: u64) -> HeldRequest<()> {
        HeldRequest {
            awaits,
            began: Began::new(at(since_ms), UnixNanos::default()),
            serialized: Vec::new(),
            has_body: true,
            headers_are_gone: false,
        }
    }

    fn at(millis: u64) -> Monotonic {
        Monotonic(0).plus(Duration::from_millis(millis))
    }

    fn on_body(held: &mut HeldRequests<u32, ()>, stream: u32, is_complete: bool) -> &'static str {
        in_words(&held.on_body(stream, 1, is_complete))
    }

    fn on_trailers(held: &mut HeldRequests<u32, ()>, stream: u32) -> &'static str {
        in_words(&held.on_trailers(stream))
    }

    fn in_words(piece: &Piece<()>) -> &'static str {
        match piece {
            Piece::PassesOn => "passes on",
            Piece::Waits => "waits",
            Piece::Stays => "stays",
            Piece::Decides(_, None) => "decides",
            Piece::Decides(_, Some(_)) => "denies",
        }
    }
}
