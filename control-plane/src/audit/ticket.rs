//! Proof that the server gave a source its name.

use credence_wire::v1;
use hmac::{Hmac, KeyInit, Mac as _};
use sha2::Sha256;

/// Makes and checks the secrets of source tickets. They survive restarts, for the key is in the data folder.
#[derive(Clone)]
pub(crate) struct TicketKey(Hmac<Sha256>);

// === impl TicketKey ===

impl TicketKey {
    pub(crate) fn new(key: [u8; 32]) -> Self {
        // RFC 2104: a key shorter than the hash's block is filled up with zeros.
        let mut block = [0; 64];
        block[..key.len()].copy_from_slice(&key);
        let mut mac = <Hmac<Sha256> as KeyInit>::new(&block.into());
        mac.update(CONTEXT);
        Self(mac)
    }

    pub(crate) fn ticket(&self, source: &str) -> v1::SourceTicket {
        let secret = self.0.clone().chain_update(source).finalize().into_bytes().to_vec();
        v1::SourceTicket {
            source: source.to_owned(),
            secret,
        }
    }

    /// Whether the ticket is one of ours; takes the same time wherever the secret differs.
    pub(crate) fn accepts(&self, ticket: &v1::SourceTicket) -> bool {
        self.0
            .clone()
            .chain_update(&ticket.source)
            .verify_slice(&ticket.secret)
            .is_ok()
    }
}

impl std::fmt::Debug for TicketKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("TicketKey(..)")
    }
}

/// Keeps these MACs apart from any other use of the key.
const CONTEXT: &[u8] = b"credence audit source v1\0";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_untouched_ticket_is_accepted() {
        let key = TicketKey::new([7; 32]);
        let ticket = key.ticket("source");
        assert!(key.accepts(&ticket));
        assert!(!key.accepts(&v1::SourceTicket {
            source: "other".to_owned(),
            ..ticket.clone()
        }));
        assert!(!key.accepts(&v1::SourceTicket {
            secret: ticket.secret[..31].to_vec(),
            ..ticket.clone()
        }));
        assert!(!key.accepts(&v1::SourceTicket {
            secret: Vec::new(),
            ..ticket.clone()
        }));
        assert!(!TicketKey::new([8; 32]).accepts(&ticket));
    }
}
