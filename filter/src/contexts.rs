//! The requests of this VM, and the root context of each, which Envoy names only when it creates a request's context.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::host::{RootId, StreamId};

/// The requests that have not ended.
#[derive(Debug, Default)]
pub(crate) struct Contexts {
    requests: HashMap<StreamId, Request, BuildHasherDefault<NumberHasher>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) root: RootId,
    /// It was refused without a decision. Nothing of it may pass, even if it was not answered.
    pub(crate) is_refused: bool,
}

/// Spreads numbers that follow each other. Clients do not choose them.
#[derive(Debug, Default)]
struct NumberHasher(u64);

// === impl Contexts ===

impl Contexts {
    pub(crate) fn add(&mut self, stream: StreamId, root: RootId) {
        let request = Request {
            root,
            is_refused: false,
        };
        self.requests.insert(stream, request);
    }

    /// The request has ended. None if this is no request, but a root context.
    pub(crate) fn remove(&mut self, stream: StreamId) -> Option<Request> {
        self.requests.remove(&stream)
    }

    pub(crate) fn get(&self, stream: StreamId) -> Option<Request> {
        self.requests.get(&stream).copied()
    }

    pub(crate) fn refuse(&mut self, stream: StreamId) {
        if let Some(request) = self.requests.get_mut(&stream) {
            request.is_refused = true;
        }
    }
}

// === impl NumberHasher ===

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = u64::from(number).wrapping_mul(SPREAD);
    }

    /// Not used for numbers.
    fn write(&mut self, bytes: &[u8]) {
        let add = |sum: u64, byte: &u8| sum.wrapping_add(u64::from(*byte)).wrapping_mul(SPREAD);
        self.0 = bytes.iter().fold(self.0, add);
    }
}

/// 2^64 divided by the golden ratio, odd.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_keeps_its_root_context_until_it_ends() {
        let mut contexts = Contexts::default();
        for number in 3..1_000 {
            contexts.add(StreamId(number), RootId(1 + number % 2));
        }
        contexts.refuse(StreamId(7));
        for number in 3..1_000 {
            let expected = Some(Request {
                root: RootId(1 + number % 2),
                is_refused: number == 7,
            });
            assert_eq!(contexts.get(StreamId(number)), expected);
            assert_eq!(contexts.remove(StreamId(number)), expected);
            assert_eq!(contexts.get(StreamId(number)), None);
        }
        assert_eq!(contexts.remove(StreamId(1)), None, "a root context");
    }
}
