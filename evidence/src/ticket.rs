//! Tickets that prove that the server gave a source its name.

use credence_wire::v1;
use hmac::{Hmac, KeyInit, Mac as _};
use sha2::Sha256;

/// Issues and verifies the secrets of source tickets. They survive restarts, because the key is in the data folder.
#[derive(Clone)]
pub struct TicketKey(Hmac<Sha256>);

// === impl TicketKey ===

impl TicketKey {
    pub fn new(key: [u8; 32]) -> Self {
        // RFC 2104: a key shorter than the hash's block is filled up with zeros.
        let mut block = [0; 64];
        block[..key.len()].copy_from_slice(&key);
        let mut mac = <Hmac<Sha256> as KeyInit>::new(&block.into());
        mac.update(CONTEXT);
        Self(mac)
    }

    /// If the peer has proven this name, no other peer can use the ticket.
    pub(crate) fn ticket(&self, source: &str, peer: Option<&str>) -> v1::SourceTicket {
        let secret = self.bound(source, peer).finalize().into_bytes().to_vec();
        v1::SourceTicket {
            source: source.to_owned(),
            secret,
        }
    }

    /// Whether the ticket is from this server, and for this peer or for any peer: tickets from before peers had to
    /// authenticate stay valid. Takes constant time.
    pub(crate) fn accepts(&self, ticket: &v1::SourceTicket, peer: Option<&str>) -> bool {
        self.is_of(ticket, None) || peer.is_some() && self.is_of(ticket, peer)
    }

    /// Whether the ticket is for this peer only, or for a peer without a name.
    pub(crate) fn is_of(&self, ticket: &v1::SourceTicket, peer: Option<&str>) -> bool {
        let bound = self.bound(&ticket.source, peer);
        // A source's name has no zero byte, which separates it from the peer's.
        !ticket.source.contains('\0') && bound.verify_slice(&ticket.secret).is_ok()
    }

    fn bound(&self, source: &str, peer: Option<&str>) -> Hmac<Sha256> {
        let mac = self.0.clone().chain_update(source);
        match peer {
            Some(peer) => mac.chain_update([0]).chain_update(peer),
            None => mac,
        }
    }
}

impl std::fmt::Debug for TicketKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("TicketKey(..)")
    }
}

/// Separates these MACs from any other use of the key.
const CONTEXT: &[u8] = b"credence audit source v1\0";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_untouched_ticket_is_accepted() {
        let key = TicketKey::new([7; 32]);
        let ticket = key.ticket("source", None);
        assert!(key.accepts(&ticket, None));
        let touched = |source: &str, secret: &[u8]| v1::SourceTicket {
            source: source.to_owned(),
            secret: secret.to_vec(),
        };
        assert!(!key.accepts(&touched("other", &ticket.secret), None));
        assert!(!key.accepts(&touched("source", &ticket.secret[..31]), None));
        assert!(!key.accepts(&touched("source", &[]), None));
        assert!(!TicketKey::new([8; 32]).accepts(&ticket, None));
    }

    #[test]
    fn a_ticket_is_valid_for_its_peer_only() {
        let key = TicketKey::new([7; 32]);
        let ticket = key.ticket("source", Some("spiffe://mesh/a"));
        assert!(key.accepts(&ticket, Some("spiffe://mesh/a")));
        assert!(!key.accepts(&ticket, Some("spiffe://mesh/b")));
        assert!(!key.accepts(&ticket, None));
        assert!(key.is_of(&ticket, Some("spiffe://mesh/a")) && !key.is_of(&ticket, Some("spiffe://mesh/b")));
        assert!(!key.is_of(&key.ticket("source", None), Some("spiffe://mesh/a")));
    }

    #[test]
    fn a_ticket_from_before_peers_had_names_stays_valid() {
        let key = TicketKey::new([7; 32]);
        assert!(key.accepts(&key.ticket("source", None), Some("spiffe://mesh/a")));
    }

    #[test]
    fn a_zero_byte_in_a_ticket_does_not_bypass_its_peer() {
        let key = TicketKey::new([7; 32]);
        let ticket = key.ticket("source", Some("a"));
        let forged = v1::SourceTicket {
            source: "source\0a".to_owned(),
            ..ticket
        };
        assert!(!key.accepts(&forged, None));
    }
}
