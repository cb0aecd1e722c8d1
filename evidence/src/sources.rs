//! The connected and awaited sources, with the time of their last sign of life.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use credence_runtime::client_limits::{Client, NoPlace, Place, Places};

/// The sources that have not ended: connected, or away and awaited.
#[derive(Debug)]
pub struct Sources {
    by_name: Mutex<HashMap<String, Presence>>,
    places: Places,
}

/// A place for one source, until it is connected or given up. Absent for a source that is present and has a place.
pub(crate) type Reserved = Option<Place>;

#[derive(Debug)]
struct Presence {
    /// The generation of the source's stream; the newest counts.
    generation: u64,
    whereabouts: Whereabouts,
    /// The place that it holds until it has ended.
    place: Option<Place>,
}

#[derive(Debug)]
enum Whereabouts {
    /// Dropping the sender tells the stream that a newer one has replaced it.
    Connected {
        _superseded: oneshot::Sender<()>,
    },
    Away {
        since: Instant,
    },
    /// It was away for too long, and the ledger is being told.
    GivenUp,
}

// === impl Sources ===

impl Sources {
    /// `awaited` are sources of an earlier run that never ended. Each has a place, without a known client.
    pub fn new(places: Places, awaited: impl IntoIterator<Item = String>, now: Instant) -> Self {
        let away = |source| {
            let presence = Presence {
                generation: 0,
                whereabouts: Whereabouts::Away { since: now },
                place: Some(places.take_beyond_limits(&Client::default())),
            };
            (source, presence)
        };
        let by_name = awaited.into_iter().map(away).collect();
        Self {
            by_name: Mutex::new(by_name),
            places,
        }
    }

    /// Takes a place for a new source of this client, or for this returning one.
    pub(crate) fn reserve(&self, returning: Option<&str>, client: &Client, now: Instant) -> Result<Reserved, NoPlace> {
        let mut present = self.by_name.lock();
        if let Some(presence) = returning.and_then(|source| present.get_mut(source)) {
            // It has returned, so it must not be given up while its stream begins.
            if let Whereabouts::Away { since } = &mut presence.whereabouts {
                *since = now;
            }
            // A source of an earlier run did not count against any share so far.
            if let Some(place) = &mut presence.place {
                place.attribute_to(client);
            }
            return Ok(None);
        }
        Ok(Some(self.places.take(client)?))
    }

    /// A stream of the source has begun. The returned future resolves when a newer stream takes over; at once, if one
    /// already has.
    pub(crate) fn connected(&self, reserved: Reserved, source: &str, generation: u64) -> oneshot::Receiver<()> {
        let (superseded, receiver) = oneshot::channel();
        let whereabouts = Whereabouts::Connected {
            _superseded: superseded,
        };
        self.note(reserved, source, generation, whereabouts);
        receiver
    }

    /// The source reports without a stream: it counts as away until it reports again.
    pub(crate) fn attached(&self, reserved: Reserved, source: &str, generation: u64, now: Instant) {
        self.note(reserved, source, generation, Whereabouts::Away { since: now });
    }

    /// A source that is present keeps its place. A newer stream than this one stays.
    fn note(&self, reserved: Reserved, source: &str, generation: u64, whereabouts: Whereabouts) {
        let mut present = self.by_name.lock();
        let known = present.get(source);
        if known.is_some_and(|presence| presence.generation > generation) {
            return;
        }
        let place = present.remove(source).and_then(|before| before.place).or(reserved);
        let presence = Presence {
            generation,
            whereabouts,
            place,
        };
        present.insert(source.to_owned(), presence);
    }

    /// The generation of the source's newest stream, if the source is present and not being given up.
    pub(crate) fn generation(&self, source: &str) -> Option<u64> {
        let present = self.by_name.lock();
        let known = present.get(source)?;
        (!matches!(known.whereabouts, Whereabouts::GivenUp)).then_some(known.generation)
    }

    /// The stream has ended without Bye.
    pub(crate) fn disconnected(&self, source: &str, generation: u64, now: Instant) {
        if let Some(presence) = self.by_name.lock().get_mut(source)
            && presence.generation == generation
        {
            presence.whereabouts = Whereabouts::Away { since: now };
        }
    }

    /// The source has ended, or has been given up.
    pub(crate) fn remove(&self, source: &str, generation: u64) {
        let mut present = self.by_name.lock();
        if present
            .get(source)
            .is_some_and(|presence| presence.generation == generation)
        {
            present.remove(source);
        }
    }

    /// The source reports to another replica: its stream here ends.
    pub(crate) fn depart(&self, source: &str) {
        self.by_name.lock().remove(source);
    }

    /// Gives up the sources that have been away for longer than `grace`. Returns them with their generations, again at
    /// each call until they are removed or return.
    pub(crate) fn overdue(&self, grace: Duration, now: Instant) -> Vec<(String, u64)> {
        let overdue = |presence: &Presence| match presence.whereabouts {
            Whereabouts::Away { since } => now.saturating_duration_since(since) >= grace,
            Whereabouts::GivenUp => true,
            Whereabouts::Connected { .. } => false,
        };
        let mut present = self.by_name.lock();
        let found = present.iter_mut().filter(|(_, presence)| overdue(presence));
        found
            .map(|(source, presence)| {
                presence.whereabouts = Whereabouts::GivenUp;
                (source.clone(), presence.generation)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use credence_runtime::client_limits::{Bounds, ShareMetrics, SharedLimit};

    fn sources_with(limit: usize, awaited: impl IntoIterator<Item = String>, now: Instant) -> Arc<Sources> {
        let bounds = Bounds {
            all: limit,
            credential: limit,
            address: limit,
        };
        let places = Places::new(
            SharedLimit::AuditSources,
            bounds,
            &ShareMetrics::new(&mut prometheus_client::registry::Registry::default()),
        );
        Arc::new(Sources::new(places, awaited, now))
    }

    fn reserve(sources: &Sources, returning: Option<&str>, now: Instant) -> Result<Reserved, NoPlace> {
        sources.reserve(returning, &Client::default(), now)
    }

    /// A stream of the source, with its own place.
    fn connect(sources: &Arc<Sources>, source: &str, generation: u64) -> oneshot::Receiver<()> {
        let place = reserve(sources, Some(source), Instant::now()).unwrap();
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
        let place = reserve(&sources, None, now).unwrap();
        sources.attached(place, "a", 1, now);
        assert!(reserve(&sources, None, now).is_err());
        reserve(&sources, Some("a"), now + GRACE).unwrap();
        assert!(sources.overdue(GRACE, now + GRACE).is_empty());
        assert_eq!(sources.generation("a"), Some(1));
        let late = now + 2 * GRACE;
        assert_eq!(sources.overdue(GRACE, late), [("a".to_owned(), 1)]);
        assert_eq!(sources.generation("a"), None, "it must be resumed");
        let place = reserve(&sources, Some("a"), late).unwrap();
        sources.attached(place, "a", 2, late);
        sources.remove("a", 1);
        assert_eq!(sources.generation("a"), Some(2));
    }

    #[test]
    fn a_known_source_may_return_when_all_places_are_taken() {
        let now = Instant::now();
        let sources = sources_with(1, ["old".to_owned()], now);
        assert!(reserve(&sources, None, now).is_err());
        assert!(reserve(&sources, Some("new"), now).is_err());
        reserve(&sources, Some("old"), now).unwrap();
    }

    #[test]
    fn a_place_is_taken_as_soon_as_it_was_given() {
        let now = Instant::now();
        let sources = sources_with(1, [], now);
        let place = reserve(&sources, None, now).unwrap();
        assert!(reserve(&sources, None, now).is_err());
        drop(place);
        let place = reserve(&sources, None, now).unwrap();
        let _stream = sources.connected(place, "a", 1);
        assert!(reserve(&sources, None, now).is_err());
        sources.remove("a", 1);
        reserve(&sources, None, now).unwrap();
    }

    #[test]
    fn a_source_that_is_coming_back_is_not_given_up_meanwhile() {
        let now = Instant::now();
        let sources = sources_with(1, ["old".to_owned()], now);
        let _place = reserve(&sources, Some("old"), now + GRACE).unwrap();
        assert!(sources.overdue(GRACE, now + GRACE).is_empty());
    }
}
