//! The ids of sessions and of events in streams, as clients get them.
//!
//! Before 2026-07-28, any client that knows a session's id can act in it. So a client gets `<id>.<seal>`, and only requests for
//! the same principal and holder, under the same rule, may present that. The server gets its own id back.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use credence_delegation::VerifiedChain;

use crate::revocation::seal_keys::{Seal, SealKeys};

/// Who may present an id: a principal and a holder, under a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner(Vec<u8>);

/// What an id names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// A session: `Mcp-Session-Id`.
    Session,
    /// An event in a stream: `id` and `Last-Event-ID`.
    Event,
}

impl Owner {
    /// The owner of what is named in answers to requests with this delegation.
    pub fn new(rule: &str, chain: &VerifiedChain) -> Self {
        let principal = chain.principal();
        let user = chain.user();
        let subject = principal.subject.as_deref();
        let parts = [rule, &principal.issuer, subject.unwrap_or_default()].map(str::as_bytes);
        // Lengths first, so that no two owners have the same bytes.
        let mut bytes = vec![u8::from(subject.is_some())];
        for part in parts.into_iter().chain([&*user]) {
            bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
            bytes.extend_from_slice(part);
        }
        Self(bytes)
    }

    /// The id for the client. `None` for one that is too long, or no text that a header can have.
    pub fn seal(&self, keys: &SealKeys, named: Named, id: &str) -> Option<String> {
        let is_visible = id.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        (id.len() <= MAX_ID_BYTES && is_visible).then(|| {
            let seal = keys.seal(&self.sealed(named, id));
            [id, ".", &URL_SAFE_NO_PAD.encode(seal)].concat()
        })
    }

    /// The server's id in one that a client presents. `None` if it is not this owner's.
    pub fn open<'i>(&self, keys: &SealKeys, named: Named, presented: &'i str) -> Option<&'i str> {
        let (id, seal) = presented.rsplit_once('.')?;
        let seal: Seal = URL_SAFE_NO_PAD.decode(seal).ok()?.try_into().ok()?;
        keys.check(&self.sealed(named, id), &seal).map(|_| id)
    }

    fn sealed<'a>(&'a self, named: Named, id: &'a str) -> [&'a [u8]; 3] {
        let named: &[u8] = match named {
            Named::Session => b"session\0",
            Named::Event => b"event\0",
        };
        [named, &self.0, id.as_bytes()]
    }
}

/// The headers with ids.
pub const SESSION_HEADERS: [(&str, Named); 2] = [("mcp-session-id", Named::Session), ("last-event-id", Named::Event)];

/// Of a server's id. UUIDs have 36, JWTs some hundreds.
pub const MAX_ID_BYTES: usize = 2_048;

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(current: u8, previous: &[u8]) -> SealKeys {
        SealKeys::parse(&[current; 32], previous).unwrap()
    }

    fn owner(bytes: &[u8]) -> Owner {
        Owner(bytes.to_vec())
    }

    #[test]
    fn only_its_owner_opens_an_id_and_only_as_what_it_is() {
        let (ada, keys) = (owner(b"ada"), keys(1, &[]));
        for id in ["", "7", "a.b", "with blank", "eyJhbGciOi.J9.x"] {
            let sealed = ada.seal(&keys, Named::Session, id).unwrap();
            assert_eq!(ada.open(&keys, Named::Session, &sealed), Some(id));
            assert_eq!(ada.open(&keys, Named::Event, &sealed), None, "{id}");
            assert_eq!(owner(b"bob").open(&keys, Named::Session, &sealed), None, "{id}");
            let other = format!("x{sealed}");
            assert_eq!(ada.open(&keys, Named::Session, &other), None, "{id}");
        }
        for presented in ["", "7", "7.", ".", "7.AAAA", &format!("7.{}", "A".repeat(43))] {
            assert_eq!(ada.open(&keys, Named::Session, presented), None, "{presented}");
        }
    }

    #[test]
    fn an_id_counts_until_its_key_is_replaced_twice() {
        let ada = owner(b"ada");
        let sealed = ada.seal(&keys(1, &[]), Named::Session, "7").unwrap();
        assert_eq!(ada.open(&keys(2, &[1; 32]), Named::Session, &sealed), Some("7"));
        assert_eq!(ada.open(&keys(3, &[2; 32]), Named::Session, &sealed), None);
    }

    #[test]
    fn an_id_that_no_header_can_have_gets_no_seal() {
        let long = "x".repeat(MAX_ID_BYTES + 1);
        for id in ["a\nb", "\u{7f}", "é", &long] {
            assert_eq!(owner(b"ada").seal(&keys(1, &[]), Named::Event, id), None);
        }
    }
}
