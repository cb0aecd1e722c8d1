//! Tests pass the time as an argument: `Scene` has its own clock.

use super::*;
use crate::stalls::MIN_TOLERATED_STALLS;

/// S, the longest that a filter may stay fresh.
const MAX_STALENESS: Duration = Duration::from_secs(5);

/// S, with the allowance for clock rates.
const LEASE: Duration = Duration::from_millis(5_050);

const MOMENT: Duration = Duration::from_millis(1);

/// The entries in the log before each test.
const HEAD: u64 = 7;

struct Scene {
    leases: Leases,
    now: Instant,
}

impl Scene {
    fn new() -> Self {
        Self::with(Duration::ZERO, 100)
    }

    fn with(earlier_leases: Duration, max_ended: usize) -> Self {
        let now = Instant::now();
        let metrics = Arc::new(Metrics::new(&mut prometheus_client::registry::Registry::default()));
        Self {
            leases: Leases::new(MAX_STALENESS, earlier_leases, HEAD, max_ended, metrics, now),
            now,
        }
    }

    /// A stream of this client that has applied the whole log and is fresh.
    fn fresh(&self, name: &str) -> StreamLease {
        let stream = self.begin(name, None, &[]);
        assert_eq!(self.echo(&stream), Echo::Granted);
        stream
    }

    /// A stream that has applied the whole log. A secret is one byte here, its own digest.
    fn begin(&self, name: &str, secret: Option<u8>, earlier: &[u8]) -> StreamLease {
        let digest = |secret: u8| [secret; 32];
        let start = StreamStart {
            applied: self.head(),
            digest: secret.map(digest),
            earlier: earlier.iter().copied().map(digest).collect(),
            ..StreamStart::default()
        };
        self.leases.begin(&client(name), start)
    }

    /// Every update has been sent, and a ping arrives.
    fn echo(&self, stream: &StreamLease) -> Echo {
        stream.echo(self.head(), self.now)
    }

    /// Adds an entry to the log. Returns its number.
    fn publish(&self) -> u64 {
        let seq = self.head() + 1;
        self.leases.publish(seq, self.now);
        seq
    }

    fn head(&self) -> u64 {
        self.leases.table().head
    }

    /// Passes time for a running process.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now = (self.now + EXPIRE_INTERVAL).min(end);
            self.leases.expire(self.now);
        }
    }

    /// The process does not run for this time.
    fn stand_still(&mut self, time: Duration) {
        self.now += time;
        self.leases.expire(self.now);
    }

    fn is_confirmed(&self, seq: u64) -> bool {
        let confirmed = *self.leases.0.confirmed.borrow() >= seq;
        assert_eq!(confirmed, self.progress(seq).left.is_zero(), "the progress differs");
        confirmed
    }

    fn progress(&self, seq: u64) -> Progress {
        self.leases.progress(seq, self.now)
    }

    fn stalls(&self) -> u64 {
        self.leases.0.metrics.revocation_stalls.get()
    }
}

fn client(name: &str) -> Client {
    Client::new(Some(name), None)
}

/// Whether the stream has been told that its client is refused.
fn is_refused(stream: &StreamLease) -> bool {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    std::pin::pin!(stream.refused()).poll(&mut context).is_ready()
}

#[test]
fn without_streams_a_revocation_is_confirmed_at_once() {
    let scene = Scene::new();
    let seq = scene.publish();
    assert!(scene.is_confirmed(seq));
}

#[test]
fn a_stream_that_was_never_echoed_owes_nothing() {
    let mut scene = Scene::new();
    let stream = scene.begin("a", None, &[]);
    let seq = scene.publish();
    assert!(scene.is_confirmed(seq));
    scene.pass(APPLY_TIMEOUT);
    drop(stream);
    assert!(scene.is_confirmed(seq));
    assert_eq!(scene.stalls(), 0);
}

#[test]
fn a_stream_that_was_echoed_owes_each_later_update_until_it_has_applied_it() {
    let scene = Scene::new();
    let (one, other) = (scene.fresh("a"), scene.fresh("b"));
    let (first, second) = (scene.publish(), scene.publish());
    one.apply(second);
    assert!(!scene.is_confirmed(first));
    other.apply(first);
    assert!(scene.is_confirmed(first) && !scene.is_confirmed(second));
    other.apply(first - 1);
    assert!(scene.is_confirmed(first), "what was applied stays applied");
    other.apply(second);
    assert!(scene.is_confirmed(second));
}

#[test]
fn a_client_that_leaves_owes_nothing_until_its_next_echo() {
    let scene = Scene::new();
    let stream = scene.fresh("a");
    let first = scene.publish();
    stream.leave();
    assert!(scene.is_confirmed(first));
    let second = scene.publish();
    assert!(scene.is_confirmed(second));
    stream.apply(second);
    assert_eq!(scene.echo(&stream), Echo::Granted);
    let third = scene.publish();
    assert!(!scene.is_confirmed(third));
}

#[test]
fn a_lease_ends_max_staleness_and_one_percent_after_the_last_echo_even_if_the_stream_has_ended() {
    for ends in [false, true] {
        let mut scene = Scene::new();
        let mut stream = Some(scene.fresh("a"));
        scene.pass(Duration::from_secs(1));
        assert_eq!(scene.echo(stream.as_ref().unwrap()), Echo::Granted);
        let seq = scene.publish();
        if ends {
            stream = None;
        }
        scene.pass(LEASE - MOMENT);
        assert!(!scene.is_confirmed(seq), "ends: {ends}");
        scene.pass(MOMENT);
        assert!(scene.is_confirmed(seq), "ends: {ends}");
        assert_eq!(scene.leases.table().leases.len(), usize::from(stream.is_some()));
    }
}

#[test]
fn a_stream_whose_lease_is_over_owes_again_after_its_next_echo() {
    let mut scene = Scene::new();
    let stream = scene.fresh("a");
    scene.pass(LEASE);
    let first = scene.publish();
    assert!(scene.is_confirmed(first));
    stream.apply(first);
    assert_eq!(scene.echo(&stream), Echo::Granted);
    let second = scene.publish();
    assert!(!scene.is_confirmed(second));
}

#[test]
fn a_client_that_returns_with_its_secret_takes_over_its_debt_with_what_it_has_applied() {
    for has_applied in [false, true] {
        let mut scene = Scene::new();
        let stream = scene.begin("a", Some(1), &[]);
        scene.echo(&stream);
        let seq = scene.publish();
        drop(stream);
        scene.pass(MOMENT);
        assert!(!scene.is_confirmed(seq));

        let start = StreamStart {
            applied: if has_applied { seq } else { seq - 1 },
            digest: Some([2; 32]),
            earlier: vec![[9; 32], [1; 32]],
            ..StreamStart::default()
        };
        let stream = scene.leases.begin(&client("a"), start);
        assert_eq!(scene.is_confirmed(seq), has_applied);
        assert_eq!(
            scene.progress(seq).unknown,
            usize::from(!has_applied),
            "it is one filter"
        );
        stream.apply(seq);
        assert!(scene.is_confirmed(seq));
        // It was not echoed here, but may still be fresh from an earlier echo.
        let next = scene.publish();
        assert!(!scene.is_confirmed(next));
        scene.pass(LEASE - MOMENT);
        assert!(scene.is_confirmed(next), "no longer than by that");
    }
}

#[test]
fn applied_entries_count_even_if_the_client_starts_from_a_snapshot_again() {
    let scene = Scene::new();
    let stream = scene.begin("a", Some(1), &[]);
    scene.echo(&stream);
    let first = scene.publish();
    stream.apply(first);
    drop(stream);
    let start = StreamStart {
        earlier: vec![[1; 32]],
        ..StreamStart::default()
    };
    let _stream = scene.leases.begin(&client("a"), start);
    assert!(scene.is_confirmed(first));
}

#[test]
fn a_stream_whose_client_has_returned_on_another_is_echoed_no_more() {
    let scene = Scene::new();
    let old = scene.begin("a", Some(1), &[]);
    scene.echo(&old);
    let new = scene.begin("a", Some(2), &[1]);
    let seq = scene.publish();
    old.apply(seq);
    assert!(!scene.is_confirmed(seq), "only the new one counts for the client");
    assert_eq!(scene.echo(&old), Echo::Withheld);
    new.apply(seq);
    drop(old);
    assert!(scene.is_confirmed(seq));
    assert_eq!(scene.leases.table().ended, 0);
}

#[test]
fn without_the_secret_a_return_releases_nothing() {
    let mut scene = Scene::new();
    let stream = scene.begin("a", Some(1), &[]);
    scene.echo(&stream);
    let seq = scene.publish();
    drop(stream);
    let _none = scene.begin("a", Some(2), &[]);
    let _wrong = scene.begin("a", Some(3), &[9]);
    // An eavesdropper can read the digest, but not the secret.
    let copied = scene.begin("b", Some(1), &[]);
    copied.leave();
    let _returned = scene.begin("a", Some(4), &[1]);
    assert!(!scene.is_confirmed(seq));
    scene.pass(LEASE);
    assert!(scene.is_confirmed(seq));
}

#[test]
fn a_ping_is_not_echoed_before_every_update_was_sent() {
    let scene = Scene::new();
    let stream = scene.fresh("a");
    let seq = scene.publish();
    assert_eq!(stream.echo(seq - 1, scene.now), Echo::Behind);
    assert_eq!(stream.echo(seq, scene.now), Echo::Granted);
}

#[test]
fn a_client_with_an_update_unapplied_for_half_a_second_gets_no_echo_until_it_has_caught_up() {
    let mut scene = Scene::new();
    let stream = scene.fresh("a");
    let begun = scene.now;
    let first = scene.publish();
    scene.pass(APPLY_TIMEOUT - MOMENT);
    assert_eq!(scene.echo(&stream), Echo::Granted);
    let second = scene.publish();
    scene.pass(MOMENT);
    assert_eq!(scene.echo(&stream), Echo::Withheld);
    stream.apply(first);
    assert_eq!(scene.echo(&stream), Echo::Granted, "the second is not due yet");
    scene.pass(APPLY_TIMEOUT);
    assert_eq!(scene.echo(&stream), Echo::Withheld);
    scene.pass(begun + APPLY_TIMEOUT + LEASE - scene.now);
    assert!(scene.is_confirmed(second), "it is waited for once");
    stream.apply(second);
    assert_eq!(scene.echo(&stream), Echo::Granted);
}

#[test]
fn a_confirmed_revocation_stays_confirmed_when_clients_connect() {
    let scene = Scene::new();
    let newcomer = scene.leases.begin(&client("a"), StreamStart::default());
    assert!(scene.is_confirmed(HEAD));
    assert_eq!(scene.echo(&newcomer), Echo::Withheld);
    assert!(scene.is_confirmed(HEAD));
    newcomer.apply(HEAD);
    assert_eq!(scene.echo(&newcomer), Echo::Granted);
    assert!(scene.is_confirmed(HEAD));
}

#[test]
fn nothing_is_confirmed_while_filters_of_earlier_processes_may_be_fresh() {
    let earlier_leases = Duration::from_secs(10);
    let mut scene = Scene::with(earlier_leases, 100);
    let stream = scene.fresh("a");
    let seq = scene.publish();
    stream.apply(seq);
    let (applied, unknown) = (1, 0);
    let left = earlier_leases;
    assert_eq!(scene.progress(seq), Progress { applied, unknown, left });
    assert!(
        !scene.is_confirmed(HEAD),
        "nor earlier entries that they may not have applied"
    );
    scene.pass(Duration::from_secs(5));
    assert_eq!(scene.echo(&stream), Echo::Granted);
    scene.pass(earlier_leases - Duration::from_secs(5) - MOMENT);
    assert!(!scene.is_confirmed(seq));
    scene.pass(MOMENT);
    assert!(scene.is_confirmed(seq));
    assert_eq!(scene.stalls(), 0, "no client of this process held it up");
}

#[test]
fn more_ended_streams_than_are_told_apart_are_waited_for_as_one() {
    let mut scene = Scene::with(Duration::ZERO, 2);
    let begun = scene.now;
    for secret in 1..=5 {
        let stream = scene.begin("a", Some(secret), &[]);
        assert_eq!(scene.echo(&stream), Echo::Granted);
        drop(stream);
        scene.pass(Duration::from_secs(1));
    }
    let seq = scene.publish();
    assert_eq!(
        scene.leases.table().leases.len(),
        3,
        "the first two, and the others together"
    );
    // A client can return for a lease that is tracked one by one. For the merged ones it makes no difference.
    for earlier in 1..=5 {
        scene.begin("a", Some(9), &[earlier]).leave();
    }
    assert_eq!(scene.progress(seq).unknown, 0);
    assert!(!scene.is_confirmed(seq));
    scene.pass(begun + Duration::from_secs(4) + LEASE - MOMENT - scene.now);
    assert!(!scene.is_confirmed(seq), "the last of them was echoed then");
    scene.pass(MOMENT);
    assert!(scene.is_confirmed(seq));
    let table = scene.leases.table();
    assert_eq!(
        (table.leases.len(), table.ended, table.active_by_applied.len()),
        (0, 0, 0)
    );
}

#[test]
fn progress_counts_applied_and_unknown_filters_and_the_longest_wait() {
    let mut scene = Scene::new();
    let (one, _never_echoed) = (scene.fresh("a"), scene.begin("a", None, &[]));
    scene.pass(Duration::from_secs(1));
    let (two, three) = (scene.fresh("a"), scene.fresh("b"));
    let seq = scene.publish();
    let progress = |applied, unknown, left| Progress { applied, unknown, left };
    assert_eq!(scene.progress(seq), progress(0, 3, LEASE));
    two.apply(seq);
    three.apply(seq);
    assert_eq!(scene.progress(seq), progress(2, 1, LEASE - Duration::from_secs(1)));
    drop(two);
    assert_eq!(scene.progress(seq).applied, 2, "it may still be fresh");
    one.apply(seq);
    assert_eq!(scene.progress(seq), progress(3, 0, Duration::ZERO));
}

#[test]
fn a_stall_is_noted_once_however_long_it_lasts() {
    let mut scene = Scene::new();
    let stream = scene.fresh("a");
    let first = scene.publish();
    scene.pass(APPLY_TIMEOUT - MOMENT);
    assert_eq!(scene.stalls(), 0);
    for _ in 0..3 {
        scene.pass(MOMENT);
        scene.publish();
        scene.pass(APPLY_TIMEOUT);
    }
    assert_eq!(scene.stalls(), 1);
    stream.apply(first);
    scene.pass(MOMENT);
    assert_eq!(scene.stalls(), 1, "it has not caught up yet");
    stream.apply(scene.head());
    scene.publish();
    scene.pass(APPLY_TIMEOUT);
    assert_eq!(scene.stalls(), 2);
}

#[test]
fn a_client_that_stalls_more_often_than_is_tolerated_is_refused_and_its_stalled_stream_ends() {
    let mut scene = Scene::new();
    let (stalling, other) = (scene.fresh("a"), scene.fresh("b"));
    let lively = scene.fresh("a");
    for time in 1..=MIN_TOLERATED_STALLS + 1 {
        assert_eq!(scene.leases.refused(&client("a"), scene.now), None);
        let seq = scene.publish();
        other.apply(seq);
        lively.apply(seq);
        scene.pass(APPLY_TIMEOUT);
        assert_eq!(is_refused(&stalling), time > MIN_TOLERATED_STALLS);
        stalling.apply(seq);
        for _ in 0..6 {
            for stream in [&stalling, &other, &lively] {
                assert_eq!(scene.echo(stream), Echo::Granted);
            }
            scene.pass(Duration::from_secs(1));
        }
    }
    assert!(scene.leases.refused(&client("a"), scene.now).is_some());
    assert_eq!(scene.leases.refused(&client("b"), scene.now), None);
    assert!(!is_refused(&other) && !is_refused(&lively));
}

#[test]
fn a_refused_client_that_stalls_on_another_stream_loses_all_of_them() {
    let mut scene = Scene::new();
    let other = scene.fresh("b");
    let streams: Vec<_> = (0..MIN_TOLERATED_STALLS + 3).map(|_| scene.fresh("a")).collect();
    for stalling in 0..streams.len() {
        let seq = scene.publish();
        let applying = streams.iter().enumerate().filter(|(number, _)| *number > stalling);
        for stream in applying.map(|(_, stream)| stream).chain([&other]) {
            stream.apply(seq);
        }
        scene.pass(APPLY_TIMEOUT);
        let client_is_refused = scene.leases.refused(&client("a"), scene.now).is_some();
        assert_eq!(client_is_refused, stalling >= MIN_TOLERATED_STALLS as usize);
        for (number, stream) in streams.iter().enumerate() {
            let was_refused = stalling > MIN_TOLERATED_STALLS as usize;
            assert_eq!(
                is_refused(stream),
                (client_is_refused && number <= stalling) || was_refused,
                "{stalling}: {number}"
            );
        }
        if stalling > MIN_TOLERATED_STALLS as usize {
            break;
        }
        for _ in 0..6 {
            for stream in streams.iter().chain([&other]) {
                scene.echo(stream);
            }
            scene.pass(Duration::from_secs(1));
        }
    }
    assert!(!is_refused(&other));
}

#[test]
fn clients_are_not_blamed_for_the_time_in_which_this_process_does_not_run() {
    let mut scene = Scene::new();
    let stream = scene.fresh("a");
    let seq = scene.publish();
    scene.now += 2 * APPLY_TIMEOUT;
    assert_eq!(
        scene.echo(&stream),
        Echo::Granted,
        "a ping may be read before the next look"
    );
    scene.leases.expire(scene.now);
    assert_eq!(scene.stalls(), 0);
    scene.pass(APPLY_TIMEOUT - MOMENT);
    assert_eq!(scene.echo(&stream), Echo::Granted);
    // Only once for each entry: the process stands still again, and the entry is due.
    scene.stand_still(2 * APPLY_TIMEOUT);
    assert_eq!(scene.stalls(), 1);
    assert_eq!(scene.echo(&stream), Echo::Withheld);
    stream.apply(seq);
    // An entry published after a quiet time is due as usual.
    scene.pass(Duration::from_secs(1));
    scene.stand_still(Duration::from_secs(1));
    scene.publish();
    scene.pass(APPLY_TIMEOUT);
    assert_eq!(scene.stalls(), 2);
}

#[test]
fn another_client_takes_nothing_over_with_a_secret_that_it_has_read() {
    let mut scene = Scene::new();
    let stream = scene.begin("a", Some(1), &[]);
    scene.echo(&stream);
    let seq = scene.publish();
    drop(stream);
    let thief = scene.begin("b", Some(2), &[1]);
    thief.leave();
    assert!(!scene.is_confirmed(seq));
    scene.pass(LEASE);
    assert!(scene.is_confirmed(seq));
}

#[test]
fn streams_that_end_all_the_time_hold_no_revocation_up_for_longer_than_two_leases() {
    let mut scene = Scene::with(Duration::ZERO, 2);
    for _ in 0..10 {
        churn(&mut scene);
    }
    let seq = scene.publish();
    let begun = scene.now;
    while !scene.is_confirmed(seq) {
        churn(&mut scene);
        assert!(
            scene.now < begun + 2 * LEASE + APPLY_TIMEOUT,
            "held up for {:?}",
            scene.now - begun
        );
    }
    let table = scene.leases.table();
    assert!(table.leases.len() <= 5, "{}", table.leases.len());
}

/// Streams that begin, are echoed and end, in a fifth of a second.
fn churn(scene: &mut Scene) {
    for _ in 0..5 {
        let stream = scene.fresh("a");
        scene.leases.table().end(stream.id, scene.now, MAX_STALENESS);
        std::mem::forget(stream);
    }
    scene.pass(Duration::from_millis(200));
}

#[tokio::test]
async fn waiters_are_notified_once_the_last_filter_has_applied_it() {
    let scene = Scene::new();
    let (one, other) = (scene.fresh("a"), scene.fresh("b"));
    let seq = scene.publish();
    let leases = scene.leases.clone();
    let waiting = tokio::spawn(async move { leases.confirmed(seq).await });
    one.apply(seq);
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    other.apply(seq);
    waiting.await.unwrap();
}

/// The other replicas, by name, and what their filters have applied.
fn replicas(applied: &[(&str, u64)]) -> BTreeMap<String, u64> {
    applied
        .iter()
        .map(|(name, applied)| ((*name).to_owned(), *applied))
        .collect()
}

#[test]
fn a_revocation_is_confirmed_when_the_filters_of_every_replica_have_applied_it() {
    let scene = Scene::new();
    let stream = scene.fresh("ours");
    scene
        .leases
        .follow_replicas(HEAD, &replicas(&[("a", HEAD), ("b", HEAD)]), scene.now);
    let seq = scene.publish();
    stream.apply(seq);
    assert_eq!(*scene.leases.confirmed_here().borrow(), seq);
    assert!(!scene.is_confirmed(seq));
    scene
        .leases
        .follow_replicas(seq, &replicas(&[("a", seq), ("b", HEAD)]), scene.now);
    assert!(!scene.is_confirmed(seq));
    scene
        .leases
        .follow_replicas(seq, &replicas(&[("a", seq), ("b", seq)]), scene.now);
    assert!(scene.is_confirmed(seq));
    assert_eq!(
        (scene.progress(seq).applied, scene.progress(seq).unknown),
        (1, 0),
        "our filters"
    );
}

#[test]
fn a_revocation_is_not_confirmed_before_all_replicas_are_known_that_were_there_before_it() {
    let scene = Scene::new();
    scene.leases.follow_replicas(HEAD, &replicas(&[]), scene.now);
    let seq = scene.publish();
    assert!(!scene.is_confirmed(seq));
    scene.leases.follow_replicas(seq, &replicas(&[("a", HEAD)]), scene.now);
    assert!(!scene.is_confirmed(seq));
    scene.leases.follow_replicas(seq, &replicas(&[("a", seq)]), scene.now);
    assert!(scene.is_confirmed(seq));
}

#[test]
fn a_silent_replica_holds_each_revocation_up_for_one_lease() {
    let mut scene = Scene::new();
    scene.leases.follow_replicas(HEAD, &replicas(&[("a", HEAD)]), scene.now);
    let first = scene.publish();
    scene.pass(Duration::from_secs(1));
    let second = scene.publish();
    let others = replicas(&[("a", HEAD)]);
    scene.leases.follow_replicas(second, &others, scene.now);
    scene.pass(LEASE - Duration::from_secs(1) - MOMENT);
    assert!(!scene.is_confirmed(first));
    scene.pass(MOMENT + EXPIRE_INTERVAL);
    assert!(scene.is_confirmed(first) && !scene.is_confirmed(second));
    assert_eq!(
        *scene.leases.confirmed_here().borrow(),
        second,
        "of ours, none lacks it"
    );
    scene.pass(Duration::from_secs(1));
    assert!(scene.is_confirmed(second));
}

#[test]
fn a_replica_that_has_gone_is_waited_for_until_its_filters_are_stale_and_no_longer() {
    let mut scene = Scene::new();
    scene.leases.follow_replicas(HEAD, &replicas(&[("a", HEAD)]), scene.now);
    scene.leases.follow_replicas(HEAD, &replicas(&[]), scene.now);
    scene.pass(Duration::from_secs(1));
    let seq = scene.publish();
    scene.leases.follow_replicas(seq, &replicas(&[]), scene.now);
    scene.pass(LEASE - Duration::from_secs(1) - MOMENT);
    assert!(!scene.is_confirmed(seq));
    scene.pass(MOMENT + EXPIRE_INTERVAL);
    assert!(scene.is_confirmed(seq));
    let next = scene.publish();
    scene.leases.follow_replicas(next, &replicas(&[]), scene.now);
    assert!(scene.is_confirmed(next));
}

#[test]
fn a_replica_that_comes_back_is_waited_for_again() {
    let mut scene = Scene::new();
    let there = replicas(&[("a", HEAD)]);
    scene.leases.follow_replicas(HEAD, &there, scene.now);
    scene.leases.follow_replicas(HEAD, &replicas(&[]), scene.now);
    scene.pass(Duration::from_secs(1));
    scene.leases.follow_replicas(HEAD, &there, scene.now);
    scene.pass(LEASE);
    let seq = scene.publish();
    scene.leases.follow_replicas(seq, &there, scene.now);
    assert!(!scene.is_confirmed(seq));
}

/// The others count them by themselves.
#[test]
fn the_filters_of_earlier_replicas_hold_up_our_revocations_but_not_those_of_others() {
    let mut scene = Scene::new();
    scene.leases.follow_earlier_replicas(scene.now + LEASE);
    scene.leases.follow_replicas(HEAD, &replicas(&[]), scene.now);
    scene.pass(Duration::from_secs(1));
    let seq = scene.publish();
    scene.leases.follow_replicas(seq, &replicas(&[]), scene.now);
    assert_eq!(*scene.leases.confirmed_here().borrow(), seq);
    assert!(!scene.is_confirmed(seq));
    assert_eq!(scene.progress(seq).left, LEASE - Duration::from_secs(1));
    scene.pass(LEASE - Duration::from_secs(1) + EXPIRE_INTERVAL);
    assert!(scene.is_confirmed(seq));
}

/// Of an embedded log that was imported, with a promise for its planned stop.
#[test]
fn what_an_earlier_process_promised_is_waited_for_even_if_it_is_longer_than_a_lease() {
    let mut scene = Scene::new();
    scene.leases.follow_earlier_replicas(scene.now + 2 * LEASE);
    scene.leases.follow_replicas(HEAD, &replicas(&[]), scene.now);
    let seq = scene.publish();
    scene.leases.follow_replicas(seq, &replicas(&[]), scene.now);
    assert_eq!(scene.progress(seq).left, 2 * LEASE);
    scene.pass(2 * LEASE - MOMENT);
    assert!(!scene.is_confirmed(seq));
    scene.pass(MOMENT + EXPIRE_INTERVAL);
    assert!(scene.is_confirmed(seq));
}
