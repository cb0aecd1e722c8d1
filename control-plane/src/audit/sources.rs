//! Which sources are here, which may come back, and since when.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// The sources that have not ended: connected, or away and awaited.
#[derive(Debug)]
pub(crate) struct Sources {
    present: Mutex<HashMap<String, Presence>>,
    limit: usize,
}

/// There are as many sources as are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooManySources;

#[derive(Debug)]
struct Presence {
    /// Which of the source's streams this is about; the newest counts.
    generation: u64,
    whereabouts: Whereabouts,
}

#[derive(Debug)]
enum Whereabouts {
    /// Dropping the sender tells the stream that a newer one has taken its place.
    Connected {
        _superseded: oneshot::Sender<()>,
    },
    Away {
        since: Instant,
    },
}

// === impl Sources ===

impl Sources {
    /// `awaited` are sources of an earlier run that never ended.
    pub(crate) fn new(limit: usize, awaited: impl IntoIterator<Item = String>, now: Instant) -> Self {
        let away = |source| {
            (
                source,
                Presence {
                    generation: 0,
                    whereabouts: Whereabouts::Away { since: now },
                },
            )
        };
        Self {
            present: Mutex::new(awaited.into_iter().map(away).collect()),
            limit,
        }
    }

    /// Whether another source, or this one again, may come in.
    pub(crate) fn check_room(&self, returning: Option<&str>) -> Result<(), TooManySources> {
        let present = self.lock();
        let known = returning.is_some_and(|source| present.contains_key(source));
        if known || present.len() < self.limit {
            Ok(())
        } else {
            Err(TooManySources)
        }
    }

    /// A stream of the source has begun. What is returned resolves when a newer stream takes over; at once, if one
    /// already has.
    pub(crate) fn connected(&self, source: &str, generation: u64) -> oneshot::Receiver<()> {
        let (superseded, receiver) = oneshot::channel();
        let mut present = self.lock();
        let newer = present
            .get(source)
            .is_some_and(|presence| presence.generation > generation);
        if !newer {
            let whereabouts = Whereabouts::Connected {
                _superseded: superseded,
            };
            present.insert(
                source.to_owned(),
                Presence {
                    generation,
                    whereabouts,
                },
            );
        }
        receiver
    }

    /// The stream has ended without Bye.
    pub(crate) fn disconnected(&self, source: &str, generation: u64, now: Instant) {
        if let Some(presence) = self.lock().get_mut(source)
            && presence.generation == generation
        {
            presence.whereabouts = Whereabouts::Away { since: now };
        }
    }

    /// The source has ended for good, or has been given up.
    pub(crate) fn remove(&self, source: &str, generation: u64) {
        let mut present = self.lock();
        if present
            .get(source)
            .is_some_and(|presence| presence.generation == generation)
        {
            present.remove(source);
        }
    }

    /// The sources that have been away for longer than `grace`, each with its generation.
    pub(crate) fn overdue(&self, grace: Duration, now: Instant) -> Vec<(String, u64)> {
        let overdue = |presence: &Presence| match presence.whereabouts {
            Whereabouts::Away { since } => now.saturating_duration_since(since) >= grace,
            Whereabouts::Connected { .. } => false,
        };
        let present = self.lock();
        let found = present.iter().filter(|(_, presence)| overdue(presence));
        found
            .map(|(source, presence)| (source.clone(), presence.generation))
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Presence>> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(60);

    #[test]
    fn a_newer_stream_takes_over_and_the_older_ones_end_does_not_matter() {
        let now = Instant::now();
        let sources = Sources::new(10, [], now);
        let mut first = sources.connected("a", 1);
        assert!(
            first
                .try_recv()
                .is_err_and(|error| error == oneshot::error::TryRecvError::Empty)
        );
        let _second = sources.connected("a", 2);
        assert_eq!(first.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        sources.disconnected("a", 1, now);
        assert!(sources.overdue(Duration::ZERO, now).is_empty());
    }

    #[test]
    fn a_source_is_overdue_only_after_its_grace() {
        let now = Instant::now();
        let sources = Sources::new(10, ["old".to_owned()], now);
        assert!(sources.overdue(GRACE, now).is_empty());
        assert_eq!(sources.overdue(GRACE, now + GRACE), [("old".to_owned(), 0)]);
        let _stream = sources.connected("old", 1);
        assert!(sources.overdue(GRACE, now + GRACE).is_empty());
    }

    #[test]
    fn a_known_source_may_return_to_a_full_house() {
        let sources = Sources::new(1, ["old".to_owned()], Instant::now());
        assert_eq!(sources.check_room(None), Err(TooManySources));
        assert_eq!(sources.check_room(Some("new")), Err(TooManySources));
        assert_eq!(sources.check_room(Some("old")), Ok(()));
    }
}
