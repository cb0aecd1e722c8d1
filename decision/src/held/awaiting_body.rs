//! Requests that are held for their bodies, and those of them that may never go on.
//!
//! What arrives of a request that was let through goes on; what arrives of one that was refused, or given up, does not,
//! whether or not it could be answered.

use std::collections::{BTreeMap, BTreeSet};

/// Held requests by their stream, each with what it waits with.
#[derive(Debug)]
pub struct AwaitingBody<K, T> {
    waiting: BTreeMap<K, T>,
    /// Refused: nothing of them goes on until their stream ends.
    closed: BTreeSet<K>,
}

/// What becomes of a further piece of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece<T> {
    /// The request was let through: it goes on.
    PassesOn,
    /// The request is still held.
    Waits,
    /// This piece was waited for: the request is to be decided now. Until [`AwaitingBody::release`] nothing of it goes on.
    Decides(T),
    /// The request was refused: nothing of it goes on.
    Stays,
}

impl<K: Ord + Copy, T> AwaitingBody<K, T> {
    /// How many requests wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Holds a request.
    pub fn hold(&mut self, stream: K, waiting: T) {
        self.waiting.insert(stream, waiting);
    }

    /// What a request waits with, if it does.
    pub fn waiting(&mut self, stream: K) -> Option<&mut T> {
        self.waiting.get_mut(&stream)
    }

    /// A piece of a request has arrived; `is_enough` if it need not wait for more.
    pub fn piece(&mut self, stream: K, is_enough: bool) -> Piece<T> {
        if self.closed.contains(&stream) {
            return Piece::Stays;
        }
        if !is_enough && self.waiting.contains_key(&stream) {
            return Piece::Waits;
        }
        match self.waiting.remove(&stream) {
            Some(waiting) => {
                self.closed.insert(stream);
                Piece::Decides(waiting)
            }
            None => Piece::PassesOn,
        }
    }

    /// A request was refused that is not held here: nothing else that arrives of it goes on.
    pub fn close(&mut self, stream: K) {
        self.closed.insert(stream);
    }

    /// A request that was held is let through: what else arrives of it goes on.
    pub fn release(&mut self, stream: K) {
        self.closed.remove(&stream);
    }

    /// Gives up on all that wait: none of them goes on.
    pub fn give_up(&mut self) -> Vec<(K, T)> {
        let waiting = std::mem::take(&mut self.waiting);
        self.closed.extend(waiting.keys());
        waiting.into_iter().collect()
    }

    /// A stream has ended. Returns what it waited with, if it was still held.
    pub fn end(&mut self, stream: K) -> Option<T> {
        self.closed.remove(&stream);
        self.waiting.remove(&stream)
    }
}

impl<K: Ord + Copy, T> Default for AwaitingBody<K, T> {
    /// Nothing is held.
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            closed: BTreeSet::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_goes_on_of_a_request_that_was_refused_at_once() {
        let mut holding: AwaitingBody<u32, ()> = AwaitingBody::default();
        holding.close(1);
        assert_eq!(holding.piece(1, true), Piece::Stays);
        assert_eq!(holding.end(1), None);
        assert_eq!(holding.piece(1, true), Piece::PassesOn, "another stream of that number");
    }

    #[test]
    fn a_request_that_was_never_held_goes_on() {
        let mut holding: AwaitingBody<u32, ()> = AwaitingBody::default();
        assert_eq!(holding.piece(1, false), Piece::PassesOn);
        assert_eq!(holding.piece(1, true), Piece::PassesOn);
    }

    #[test]
    fn a_held_request_waits_until_a_piece_decides_it() {
        let mut holding = AwaitingBody::default();
        holding.hold(1, "one");
        assert_eq!(holding.piece(1, false), Piece::Waits);
        assert_eq!(holding.piece(1, true), Piece::Decides("one"));
        holding.release(1);
        assert_eq!(holding.piece(1, true), Piece::PassesOn, "its trailers, say");
    }

    #[test]
    fn nothing_of_a_request_goes_on_that_was_not_released() {
        let mut holding = AwaitingBody::default();
        holding.hold(1, "one");
        assert_eq!(holding.piece(1, true), Piece::Decides("one"));
        assert_eq!(holding.piece(1, false), Piece::Stays, "a further piece");
        assert_eq!(holding.piece(1, true), Piece::Stays, "or its trailers");
        assert_eq!(holding.end(1), None);
        assert_eq!(
            holding.piece(1, true),
            Piece::PassesOn,
            "another request of the same number"
        );
    }

    #[test]
    fn nothing_of_a_request_goes_on_that_was_given_up() {
        let mut holding = AwaitingBody::default();
        holding.hold(1, "one");
        assert_eq!(holding.give_up(), [(1, "one")]);
        assert!(holding.is_empty());
        assert_eq!(holding.piece(1, false), Piece::Stays);
        assert_eq!(holding.piece(1, true), Piece::Stays);
        assert_eq!(holding.end(1), None);
    }

    #[test]
    fn a_stream_that_ends_while_it_is_held_says_so() {
        let mut holding = AwaitingBody::default();
        holding.hold(1, "one");
        assert_eq!((holding.end(1), holding.len()), (Some("one"), 0));
    }
}
