//! Which sources are here, which may come back, and since when.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// The sources that have not ended: connected, or away and awaited.
#[derive(Debug)]
pub(crate) struct Sources {
    present: Mutex<Present>,
    limit: usize,
}

#[derive(Debug)]
struct Present {
    by_name: HashMap<String, Presence>,
    /// Places of sources that are being named.
    reserved: usize,
}

/// Room for one source, until it is connected or given up.
#[derive(Debug)]
pub(crate) struct Place {
    sources: Arc<Sources>,
    /// Whether it counts beside the sources that are present.
    counted: bool,
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
    /// It has been away for too long: the ledger is being told.
    GivenUp,
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
            present: Mutex::new(Present {
                by_name: awaited.into_iter().map(away).collect(),
                reserved: 0,
            }),
            limit,
        }
    }

    /// Takes a place for another source, or for this one again.
    pub(crate) fn reserve(self: &Arc<Self>, returning: Option<&str>, now: Instant) -> Result<Place, TooManySources> {
        let mut present = self.lock();
        let known = returning.and_then(|source| present.by_name.get_mut(source));
        let counted = known.is_none();
        if let Some(presence) = known {
            // It has come back, so that its place is not given up while its stream begins.
            if let Whereabouts::Away { since } = &mut presence.whereabouts {
                *since = now;
            }
        } else if present.by_name.len() + present.reserved < self.limit {
            present.reserved += 1;
        } else {
            return Err(TooManySources);
        }
        drop(present);
        Ok(Place {
            sources: Arc::clone(self),
            counted,
        })
    }

    /// A stream of the source has begun. What is returned resolves when a newer stream takes over; at once, if one
    /// already has.
    pub(crate) fn connected(&self, mut place: Place, source: &str, generation: u64) -> oneshot::Receiver<()> {
        let (superseded, receiver) = oneshot::channel();
        let mut present = self.lock();
        if std::mem::take(&mut place.counted) {
            present.reserved -= 1;
        }
        let newer = present
            .by_name
            .get(source)
            .is_some_and(|presence| presence.generation > generation);
        if !newer {
            let whereabouts = Whereabouts::Connected {
                _superseded: superseded,
            };
            present.by_name.insert(
                source.to_owned(),
                Presence {
                    generation,
                    whereabouts,
                },
            );
        }
        receiver
    }

    /// The source reports without a stream: it is away from now on, until it reports again.
    pub(crate) fn attached(&self, mut place: Place, source: &str, generation: u64, now: Instant) {
        let mut present = self.lock();
        if std::mem::take(&mut place.counted) {
            present.reserved -= 1;
        }
        let known = present.by_name.get(source);
        if known.is_none_or(|presence| presence.generation <= generation) {
            let whereabouts = Whereabouts::Away { since: now };
            present.by_name.insert(
                source.to_owned(),
                Presence {
                    generation,
                    whereabouts,
                },
            );
        }
    }

    /// The source's newest stream, if the source is present and not being given up.
    pub(crate) fn generation(&self, source: &str) -> Option<u64> {
        let present = self.lock();
        let known = present.by_name.get(source)?;
        (!matches!(known.whereabouts, Whereabouts::GivenUp)).then_some(known.generation)
    }

    /// The stream has ended without Bye.
    pub(crate) fn disconnected(&self, source: &str, generation: u64, now: Instant) {
        if let Some(presence) = self.lock().by_name.get_mut(source)
            && presence.generation == generation
        {
            presence.whereabouts = Whereabouts::Away { since: now };
        }
    }

    /// The source has ended for good, or has been given up.
    pub(crate) fn remove(&self, source: &str, generation: u64) {
        let mut present = self.lock();
        if present
            .by_name
            .get(source)
            .is_some_and(|presence| presence.generation == generation)
        {
            present.by_name.remove(source);
        }
    }

    /// Gives up the sources that have been away for longer than `grace`: those, each with its generation. They are found
    /// again and again until they are removed or come back.
    pub(crate) fn overdue(&self, grace: Duration, now: Instant) -> Vec<(String, u64)> {
        let overdue = |presence: &Presence| match presence.whereabouts {
            Whereabouts::Away { since } => now.saturating_duration_since(since) >= grace,
            Whereabouts::GivenUp => true,
            Whereabouts::Connected { .. } => false,
        };
        let mut present = self.lock();
        let found = present.by_name.iter_mut().filter(|(_, presence)| overdue(presence));
        found
            .map(|(source, presence)| {
                presence.whereabouts = Whereabouts::GivenUp;
                (source.clone(), presence.generation)
            })
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, Present> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.counted {
            self.sources.lock().reserved -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources_with(limit: usize, awaited: impl IntoIterator<Item = String>, now: Instant) -> Arc<Sources> {
        Arc::new(Sources::new(limit, awaited, now))
    }

    /// A stream of the source, with a place of its own.
    fn connect(sources: &Arc<Sources>, source: &str, generation: u64) -> oneshot::Receiver<()> {
        let place = sources.reserve(Some(source), Instant::now()).unwrap();
        sources.connected(place, source, generation)
    }

    const GRACE: Duration = Duration::from_secs(60);

    #[test]
    fn a_newer_stream_takes_over_and_the_older_ones_end_does_not_matter() {
        let now = Instant::now();
        let sources = sources_with(10, [], now);
        let mut first = connect(&sources, "a", 1);
        assert!(
            first
                .try_recv()
                .is_err_and(|error| error == oneshot::error::TryRecvError::Empty)
        );
        let _second = connect(&sources, "a", 2);
        assert_eq!(first.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        sources.disconnected("a", 1, now);
        assert!(sources.overdue(Duration::ZERO, now).is_empty());
    }

    #[test]
    fn a_source_is_overdue_only_after_its_grace() {
        let now = Instant::now();
        let sources = sources_with(10, ["old".to_owned()], now);
        assert!(sources.overdue(GRACE, now).is_empty());
        assert_eq!(sources.overdue(GRACE, now + GRACE), [("old".to_owned(), 0)]);
        let _stream = connect(&sources, "old", 1);
        assert!(sources.overdue(GRACE, now + GRACE).is_empty());
    }

    #[test]
    fn a_source_without_a_stream_stays_as_long_as_it_reports() {
        let now = Instant::now();
        let sources = sources_with(1, [], now);
        let place = sources.reserve(None, now).unwrap();
        sources.attached(place, "a", 1, now);
        assert!(sources.reserve(None, now).is_err());
        sources.reserve(Some("a"), now + GRACE).unwrap();
        assert!(sources.overdue(GRACE, now + GRACE).is_empty());
        assert_eq!(sources.generation("a"), Some(1));
        let late = now + 2 * GRACE;
        assert_eq!(sources.overdue(GRACE, late), [("a".to_owned(), 1)]);
        assert_eq!(sources.generation("a"), None, "it has to be resumed");
        let place = sources.reserve(Some("a"), late).unwrap();
        sources.attached(place, "a", 2, late);
        sources.remove("a", 1);
        assert_eq!(sources.generation("a"), Some(2));
    }

    #[test]
    fn a_known_source_may_return_to_a_full_house() {
        let now = Instant::now();
        let sources = sources_with(1, ["old".to_owned()], now);
        assert!(sources.reserve(None, now).is_err());
        assert!(sources.reserve(Some("new"), now).is_err());
        sources.reserve(Some("old"), now).unwrap();
    }

    #[test]
    fn a_place_is_taken_as_soon_as_it_was_given() {
        let now = Instant::now();
        let sources = sources_with(1, [], now);
        let place = sources.reserve(None, now).unwrap();
        assert!(sources.reserve(None, now).is_err());
        drop(place);
        let place = sources.reserve(None, now).unwrap();
        let _stream = sources.connected(place, "a", 1);
        assert!(sources.reserve(None, now).is_err());
        sources.remove("a", 1);
        sources.reserve(None, now).unwrap();
    }

    #[test]
    fn a_source_that_is_coming_back_is_not_given_up_meanwhile() {
        let now = Instant::now();
        let sources = sources_with(1, ["old".to_owned()], now);
        let _place = sources.reserve(Some("old"), now + GRACE).unwrap();
        assert!(sources.overdue(GRACE, now + GRACE).is_empty());
    }
}
