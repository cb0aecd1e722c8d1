//! The keys with which filters authenticate shared cache entries and the ids of MCP sessions (`CacheKeys` of the contract).
//!
//! Keys are derived, not stored: from the secret in the data folder, the number of the period and, for cache entries, the
//! node's name. So every filter of a node gets the same keys, another node gets others for its entries and the same for
//! sessions, and a restarted control plane gives out the same keys again.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use credence_wire::v1;
use hmac::{Hmac, KeyInit, Mac as _};
use sha2::Sha256;
use tokio::sync::watch;

use credence_runtime::time::unix_seconds;

/// Derives the keys, and announces changes.
#[derive(Clone)]
pub(crate) struct CacheKeys {
    entries: Hmac<Sha256>,
    sessions: Hmac<Sha256>,
    /// In whole seconds, at least one.
    rotation: i64,
    period: Arc<watch::Sender<i64>>,
}

// === impl CacheKeys ===

impl CacheKeys {
    /// Keys that change at this interval, in whole seconds.
    pub(crate) fn new(secret: [u8; 32], rotation: Duration) -> Self {
        let rotation = i64::try_from(rotation.as_secs()).unwrap_or(i64::MAX).max(1);
        // RFC 2104: a key shorter than the hash's block is filled up with zeros.
        let mut block = [0; 64];
        block[..secret.len()].copy_from_slice(&secret);
        let keyed_for = |context: &[u8]| {
            let mut mac = <Hmac<Sha256> as KeyInit>::new(&block.into());
            mac.update(context);
            mac.update(&rotation.to_be_bytes());
            mac
        };
        Self {
            entries: keyed_for(ENTRIES),
            sessions: keyed_for(SESSIONS),
            rotation,
            period: Arc::new(watch::Sender::new(unix_seconds().div_euclid(rotation))),
        }
    }

    /// Resolves when the keys change. The present keys count as seen.
    pub(crate) fn rotations(&self) -> watch::Receiver<i64> {
        self.period.subscribe()
    }

    /// The keys of a node in a period.
    pub(crate) fn of(&self, node: &str, period: i64) -> v1::CacheKeys {
        v1::CacheKeys {
            current: derive(&self.entries, node, period),
            previous: derive(&self.entries, node, period - 1),
            session_current: derive(&self.sessions, "", period),
            session_previous: derive(&self.sessions, "", period - 1),
        }
    }

    /// Follows the wall clock, and notifies the streams when a period ends.
    pub(crate) async fn rotate(self) {
        loop {
            let now = unix_seconds();
            let period = now.div_euclid(self.rotation);
            let changed = |known: &mut i64| std::mem::replace(known, period) != period;
            if self.period.send_if_modified(changed) {
                tracing::debug!(period, "the keys of the filters' shared caches have been rotated");
            }
            let left = self.rotation - now.rem_euclid(self.rotation);
            // The sleep is limited, because the clock may be set meanwhile.
            let left = Duration::from_secs(left.unsigned_abs()).min(LOOK_AGAIN);
            tokio::time::sleep(left).await;
        }
    }
}

impl fmt::Debug for CacheKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("CacheKeys(..)")
    }
}

fn derive(secret: &Hmac<Sha256>, node: &str, period: i64) -> Vec<u8> {
    // The input before the name has a fixed length, so that no two inputs are the same bytes.
    let mac = secret.clone().chain_update(period.to_be_bytes()).chain_update(node);
    mac.finalize().into_bytes().to_vec()
}

/// Separates these keys from each other, and from any other use of the secret.
const ENTRIES: &[u8] = b"credence filter cache keys v1\0";
const SESSIONS: &[u8] = b"credence mcp session keys v1\0";

/// How long a change of the wall clock may go unnoticed.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn a_periods_key_is_accepted_for_one_period_more() {
        let keys = CacheKeys::new([7; 32], DAY);
        let (one, two, three) = (keys.of("node", 1), keys.of("node", 2), keys.of("node", 3));
        assert_eq!((two.previous, three.previous), (one.current.clone(), two.current));
        assert!(![three.current, one.previous].contains(&one.current));
    }

    #[test]
    fn another_node_or_log_gets_another_key() {
        let given = CacheKeys::new([7; 32], DAY).of("node", 20_000).current;
        assert_eq!(given.len(), 32);
        assert_eq!(
            CacheKeys::new([7; 32], DAY).of("node", 20_000).current,
            given,
            "after a restart"
        );
        for other in [
            CacheKeys::new([8; 32], DAY).of("node", 20_000),
            CacheKeys::new([7; 32], DAY).of("node2", 20_000),
            CacheKeys::new([7; 32], DAY).of("", 20_000),
            CacheKeys::new([7; 32], 2 * DAY).of("node", 20_000),
        ] {
            assert_ne!(other.current, given);
        }
    }

    #[test]
    fn all_nodes_get_the_same_keys_for_sessions_and_no_other_key_is_that() {
        let keys = CacheKeys::new([7; 32], DAY);
        let (one, other, later) = (keys.of("node", 5), keys.of("node2", 5), keys.of("node", 6));
        assert_eq!(one.session_current, other.session_current);
        assert_eq!(one.session_current, later.session_previous);
        assert_ne!(one.session_current, later.session_current);
        assert_ne!(one.session_current, keys.of("", 5).current);
        let of_another_log = CacheKeys::new([8; 32], DAY).of("node", 5);
        assert_ne!(one.session_current, of_another_log.session_current);
    }

    #[test]
    fn no_key_is_printed() {
        let keys = CacheKeys::new([7; 32], DAY);
        let printed = format!("{keys:?} {:?}", keys.of("node", 1));
        assert_eq!(printed, "CacheKeys(..) CacheKeys(..)");
    }
}
