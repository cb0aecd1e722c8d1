//! The chains that the ledger has stored, as far as memory allows. Each is stored once, however many clients present
//! it.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

/// The recently stored chains, by digest.
#[derive(Debug, Default)]
pub(crate) struct KnownChains {
    by_digest: HashMap<[u8; 32], Stored>,
}

#[derive(Debug, Clone, Copy)]
struct Stored {
    index: u64,
    key: u32,
}

// === impl KnownChains ===

impl KnownChains {
    /// Whether the chain was stored, sealed with this key.
    pub(crate) fn contains(&self, digest: &[u8; 32], key: u32) -> bool {
        self.by_digest.get(digest).is_some_and(|stored| stored.key == key)
    }

    /// Notes that the record with this index holds the chain. Beyond the limit, the sixteenth that was stored first is
    /// forgotten. If such a chain is presented again, it is stored again.
    pub(crate) fn add(&mut self, digest: [u8; 32], index: u64, key: u32) {
        self.by_digest.insert(digest, Stored { index, key });
        if self.by_digest.len() > MAX_KNOWN_CHAINS {
            let mut indexes: Vec<u64> = self.by_digest.values().map(|stored| stored.index).collect();
            let (_, first, _) = indexes.select_nth_unstable(MAX_KNOWN_CHAINS / 16);
            self.forget_before(*first);
        }
    }

    /// Forgets chains stored before this index.
    pub(crate) fn forget_before(&mut self, first: u64) {
        self.by_digest.retain(|_, stored| stored.index >= first);
    }

    /// Forgets chains sealed with this key.
    pub(crate) fn forget_key(&mut self, key: u32) {
        self.by_digest.retain(|_, stored| stored.key != key);
    }
}

/// When a chain expires, in seconds since the Unix epoch: the earliest `exp` of its tokens. `None` if it is not a
/// chain.
pub(crate) fn expires_at(chain: &[u8]) -> Option<i64> {
    #[derive(Deserialize)]
    struct Claims {
        exp: i64,
    }
    let mut earliest = i64::MAX;
    for token in chain.split(|byte| *byte == b'~') {
        let payload = token.split(|byte| *byte == b'.').nth(1)?;
        let claims: Claims = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()?;
        earliest = earliest.min(claims.exp);
    }
    Some(earliest)
}

/// The number of remembered chains, at about 130 bytes each.
const MAX_KNOWN_CHAINS: usize = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn token(claims: &str) -> String {
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims))
    }

    #[test]
    fn a_chain_expires_with_its_first_token() {
        let chain = [token(r#"{"exp":30,"sub":"a"}"#), token(r#"{"iat":1,"exp":20}"#)].join("~");
        assert_eq!(expires_at(chain.as_bytes()), Some(20));
        for wrong in ["", "a.b.c", &token("{}"), &format!("{chain}~")] {
            assert_eq!(expires_at(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn a_chain_is_known_until_its_key_or_its_place_is_gone() {
        let mut chains = KnownChains::default();
        chains.add([1; 32], 5, 1);
        chains.add([2; 32], 6, 2);
        assert!(chains.contains(&[1; 32], 1) && !chains.contains(&[1; 32], 2));
        chains.forget_key(1);
        assert!(!chains.contains(&[1; 32], 1));
        chains.forget_before(7);
        assert!(!chains.contains(&[2; 32], 2) && chains.by_digest.is_empty());
    }

    #[test]
    fn the_number_of_known_chains_is_bounded() {
        let mut chains = KnownChains::default();
        for number in 0..=MAX_KNOWN_CHAINS as u64 {
            let mut digest = [0; 32];
            digest[..8].copy_from_slice(&number.to_be_bytes());
            chains.add(digest, number, 0);
        }
        assert_eq!(chains.by_digest.len(), MAX_KNOWN_CHAINS + 1 - MAX_KNOWN_CHAINS / 16);
        let oldest = chains.by_digest.values().map(|stored| stored.index).min();
        assert_eq!(oldest, Some(MAX_KNOWN_CHAINS as u64 / 16));
    }
}
