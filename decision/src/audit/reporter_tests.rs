//! The tests play the control plane message by message, so that each of them can break one thing.

use std::time::Duration;

use super::*;
use crate::audit::{Kind, Owner, Trust};

use crate::config::Overflow;

const WALL: UnixNanos = UnixNanos(1_000_000_000);

struct Scene {
    reporter: Reporter,
    now: Monotonic,
}

impl Scene {
    fn new() -> Self {
        let limit = Amount {
            entries: 10_000,
            bytes: 4 * 1024 * 1024,
        };
        Self {
            reporter: Reporter::new(
                v1::ReportHello {
                    node: "node".to_owned(),
                    plugin: "plugin".to_owned(),
                    resume: None,
                    anchors_digest: vec![7; 32],
                    acknowledged: 0,
                },
                Ring::new(limit, Overflow::Shed).unwrap(),
            ),
            now: Monotonic(1),
        }
    }

    /// A source after its welcome.
    fn welcomed() -> Self {
        let mut scene = Self::new();
        scene.open();
        assert_eq!(scene.hear(welcome(0)), []);
        scene
    }

    fn wait(&mut self, milliseconds: u64) {
        self.now = self.now.plus(Duration::from_millis(milliseconds));
    }

    fn tick(&mut self) -> Vec<Action> {
        self.reporter.on_tick(self.now, WALL, u64::MAX)
    }

    fn open(&mut self) -> v1::ReportHello {
        assert_eq!(self.tick(), [Action::Open]);
        match &requests(&self.reporter.on_open(self.now))[..] {
            [report_request::Message::Hello(hello)] => hello.clone(),
            other => panic!("expected a hello, found {other:?}"),
        }
    }

    fn close(&mut self, status: u32) -> Vec<Action> {
        self.reporter.on_close(self.now, status, u64::MAX)
    }

    fn reopen(&mut self) -> v1::ReportHello {
        self.wait(5_000);
        self.open()
    }

    fn hear(&mut self, message: report_response::Message) -> Vec<Action> {
        let response = v1::ReportResponse { message: Some(message) };
        let bytes = response.encode_to_vec();
        self.reporter.on_message(self.now, &bytes, u64::MAX)
    }

    fn push(&mut self, names: &[&str]) {
        for name in names {
            let event = v1::Event {
                request_id: (*name).to_owned(),
                ..Default::default()
            };
            let owner = Owner {
                trust: Trust::Verified,
                share: None,
            };
            self.reporter.ring.push(&event.encode_to_vec(), owner, WALL);
        }
    }

    fn drain(&mut self) {
        self.reporter.drain(self.now.plus(Duration::from_secs(8)));
    }
}

fn welcome(acknowledged: u64) -> report_response::Message {
    welcome_with_limits(acknowledged, 1_000, 1_000_000)
}

fn welcome_with_limits(acknowledged: u64, max_batch_entries: u32, max_batch_bytes: u32) -> report_response::Message {
    report_response::Message::Welcome(v1::ReportWelcome {
        ticket: Some(ticket()),
        arrived: false,
        acknowledged,
        max_batch_entries,
        max_batch_bytes,
    })
}

fn ticket() -> v1::SourceTicket {
    v1::SourceTicket {
        source: "source-1".to_owned(),
        secret: vec![1; 32],
    }
}

fn acknowledgement(through: u64) -> report_response::Message {
    report_response::Message::Acknowledgement(v1::Acknowledgement { through })
}

fn requests(actions: &[Action]) -> Vec<report_request::Message> {
    actions
        .iter()
        .map(|action| match action {
            Action::Send(bytes) => v1::ReportRequest::decode(bytes.as_slice()).unwrap().message.unwrap(),
            other => panic!("expected only messages to be sent, found {other:?}"),
        })
        .collect()
}

/// The first entry's number of each sent batch, and the names of its events.
fn batches(actions: &[Action]) -> Vec<(u64, Vec<String>)> {
    requests(actions)
        .into_iter()
        .map(|request| match request {
            report_request::Message::Batch(batch) => {
                let names = batch.entries.into_iter().map(|entry| match entry.entry.unwrap() {
                    v1::entry::Entry::Event(event) => event.request_id,
                    other => format!("{other:?}"),
                });
                (batch.first_sequence, names.collect())
            }
            other => panic!("expected batches, found {other:?}"),
        })
        .collect()
}

fn one_batch(first: u64, names: &[&str]) -> Vec<(u64, Vec<String>)> {
    vec![(first, names.iter().map(|name| (*name).to_owned()).collect())]
}

fn violation(actions: &[Action]) -> String {
    match actions {
        [Action::Cancel, Action::Report(notice)] => notice.strip_prefix("audit stream reset: ").unwrap().to_owned(),
        other => panic!("expected a reset stream, found {other:?}"),
    }
}

// Sending

#[test]
fn a_new_source_asks_for_a_ticket() {
    let hello = Scene::new().open();
    assert_eq!(
        (hello.node.as_str(), hello.plugin.as_str(), hello.resume),
        ("node", "plugin", None)
    );
    assert_eq!(hello.anchors_digest, [7; 32], "what it trusts");
}

/// The operator sees this grow while the control plane is down.
#[test]
fn the_lag_is_the_age_of_the_oldest_unacknowledged_entry() {
    let mut scene = Scene::welcomed();
    let lag = |scene: &Scene| scene.reporter.lag(scene.now).as_millis();
    assert_eq!(lag(&scene), 0);
    scene.push(&["a", "b"]);
    scene.tick();
    scene.wait(300);
    scene.push(&["c"]);
    scene.tick();
    scene.wait(100);
    assert_eq!(lag(&scene), 400);
    scene.hear(acknowledgement(1));
    assert_eq!(lag(&scene), 400, "b is not acknowledged");
    scene.hear(acknowledgement(2));
    assert_eq!(lag(&scene), 100);
    scene.hear(acknowledgement(3));
    assert_eq!(lag(&scene), 0);
    scene.tick();
    scene.wait(200);
    assert_eq!(lag(&scene), 0, "nothing waits");
}

#[test]
fn a_very_long_lag_is_known() {
    let mut scene = Scene::welcomed();
    for _ in 0..3 * MAX_MARKS {
        scene.push(&["a"]);
        scene.tick();
        scene.wait(10);
    }
    assert_eq!(scene.reporter.lag(scene.now).as_millis(), 30 * MAX_MARKS as u128);
    assert!(scene.reporter.arrivals.marks.len() <= MAX_MARKS);
}

#[test]
fn waiting_entries_are_sent_after_the_welcome_and_numbered_from_one() {
    let mut scene = Scene::new();
    scene.push(&["a", "b"]);
    scene.open();
    assert_eq!(batches(&scene.hear(welcome(0))), one_batch(1, &["a", "b"]));
}

#[test]
fn entries_are_sent_once_and_leave_the_ring_when_they_are_on_disk() {
    let mut scene = Scene::welcomed();
    scene.push(&["a", "b"]);
    assert_eq!(batches(&scene.tick()), one_batch(1, &["a", "b"]));
    scene.push(&["c"]);
    assert_eq!(batches(&scene.tick()), one_batch(3, &["c"]));
    assert_eq!(scene.tick(), []);
    assert_eq!(scene.reporter.ring.len(), 3);
    scene.hear(acknowledgement(2));
    assert_eq!(scene.reporter.ring.len(), 1);
    scene.hear(acknowledgement(3));
    assert!(scene.reporter.ring.is_empty());
    assert_eq!(scene.reporter.counters.acknowledged, 3);
}

#[test]
fn an_acknowledgement_may_end_within_a_batch() {
    let mut scene = Scene::welcomed();
    scene.push(&["a", "b", "c"]);
    scene.tick();
    assert_eq!(scene.hear(acknowledgement(2)), []);
    assert_eq!(scene.reporter.ring.len(), 1);
    scene.push(&["d"]);
    assert_eq!(batches(&scene.tick()), one_batch(4, &["d"]));
}

#[test]
fn batches_keep_the_control_planes_limits_and_four_are_in_flight() {
    let mut scene = Scene::new();
    scene.push(&["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]);
    scene.open();
    let sent = batches(&scene.hear(welcome_with_limits(0, 2, 1_000_000)));
    let firsts: Vec<u64> = sent.iter().map(|(first, _)| *first).collect();
    assert_eq!(firsts, [1, 3, 5, 7]);
    assert_eq!(scene.tick(), []);
    assert_eq!(batches(&scene.hear(acknowledgement(2))), one_batch(9, &["i", "j"]));
}

#[test]
fn a_batch_with_all_its_fields_keeps_the_limit_in_bytes() {
    let mut scene = Scene::new();
    let name = "x".repeat(1_000);
    for _ in 0..500 {
        scene.push(&[&name]);
    }
    scene.open();
    let limit = u32::try_from(MIN_BATCH_BYTES).unwrap();
    let actions = scene.hear(welcome_with_limits(0, 1_000, limit));
    for request in requests(&actions) {
        let report_request::Message::Batch(batch) = request else {
            panic!("expected a batch");
        };
        assert!(batch.encoded_len() <= MIN_BATCH_BYTES);
        assert!(batch.encoded_len() > MIN_BATCH_BYTES - 1_100, "and is nearly full");
    }
}

#[test]
fn a_full_batch_need_not_wait_for_the_tick() {
    let mut scene = Scene::welcomed();
    scene.push(&["a"]);
    assert_eq!(scene.reporter.flush_full(scene.now), []);
    for _ in 0..1_000 {
        scene.push(&["b"]);
    }
    assert_eq!(scene.reporter.flush_full(scene.now).len(), 1);
    assert_eq!(scene.reporter.flush_full(scene.now), []);
}

/// A message costs as much as many entries. A control plane that answers at once must not receive each entry
/// individually.
#[test]
fn an_acknowledgement_does_not_send_a_partial_batch_early() {
    let mut scene = Scene::welcomed();
    scene.push(&["a"]);
    assert_eq!(scene.tick().len(), 1);
    scene.push(&["b"]);
    assert_eq!(scene.hear(acknowledgement(1)), []);
    assert_eq!(scene.tick().len(), 1);
}

// New connections

#[test]
fn unacknowledged_entries_are_sent_again_under_the_same_numbers() {
    let mut scene = Scene::welcomed();
    scene.push(&["a", "b", "c"]);
    scene.tick();
    scene.hear(acknowledgement(1));
    scene.close(14);
    assert_eq!(scene.reopen().resume, Some(ticket()));
    assert_eq!(batches(&scene.hear(welcome(1))), one_batch(2, &["b", "c"]));
}

#[test]
fn durable_entries_without_an_acknowledgement_are_not_sent_again() {
    let mut scene = Scene::welcomed();
    scene.push(&["a", "b", "c"]);
    scene.tick();
    scene.close(14);
    scene.reopen();
    assert_eq!(batches(&scene.hear(welcome(2))), one_batch(3, &["c"]));
}

#[test]
fn a_forgotten_source_starts_again_with_the_waiting_entries() {
    let mut scene = Scene::welcomed();
    scene.push(&["a", "b"]);
    scene.tick();
    scene.hear(acknowledgement(1));
    let actions = scene.close(UNAUTHENTICATED);
    assert!(
        matches!(&actions[..], [Action::Report(notice)] if notice.contains("as a new source; 1 waiting entries")),
        "{actions:?}"
    );
    assert_eq!(scene.reopen().resume, None);
    assert_eq!(batches(&scene.hear(welcome(0))), one_batch(1, &["b"]));
}

#[test]
fn a_control_plane_that_lost_what_it_acknowledged_gets_a_new_source() {
    let mut scene = Scene::welcomed();
    scene.push(&["a", "b"]);
    scene.tick();
    scene.hear(acknowledgement(2));
    scene.push(&["c"]);
    scene.close(14);
    scene.reopen();
    let violation = violation(&scene.hear(welcome(1)));
    assert_eq!(violation, wrong_acknowledgement(1, 2, 2).what);
    assert_eq!(scene.reopen().resume, None);
    assert_eq!(batches(&scene.hear(welcome(0))), one_batch(1, &["c"]));
}

#[test]
fn an_unreachable_control_plane_is_retried_after_the_back_off() {
    let mut scene = Scene::new();
    assert_eq!(scene.tick(), [Action::Open]);
    assert!(matches!(
        &scene.close(14)[..],
        [Action::Report(notice)] if notice.contains("closed with gRPC status 14")
    ));
    assert_eq!(scene.tick(), []);
    scene.wait(100);
    assert_eq!(scene.tick(), [Action::Open]);
}

// Faults

#[test]
fn an_unsent_entry_cannot_be_acknowledged() {
    let mut scene = Scene::welcomed();
    scene.push(&["a"]);
    scene.tick();
    scene.push(&["b"]);
    let violation = violation(&scene.hear(acknowledgement(2)));
    assert!(
        violation.contains("entries up to 2 are on disk; expected a number"),
        "{violation}"
    );
    assert_eq!(scene.reporter.ring.len(), 2);
}

#[test]
fn an_entry_of_an_earlier_stream_cannot_be_acknowledged_on_this_one() {
    let mut scene = Scene::welcomed();
    scene.push(&["a", "b", "c", "d"]);
    scene.tick();
    scene.close(14);
    scene.reopen();
    scene.hear(welcome_with_limits(0, 1, 1_000_000));
    scene.push(&["e"]);
    let violation = violation(&scene.hear(acknowledgement(5)));
    assert!(violation.contains("are on disk; expected a number"), "{violation}");
    assert_eq!(scene.reporter.ring.len(), 5);
}

#[test]
fn acknowledgements_do_not_go_backwards() {
    let mut scene = Scene::welcomed();
    scene.push(&["a", "b"]);
    scene.tick();
    scene.hear(acknowledgement(2));
    violation(&scene.hear(acknowledgement(1)));
}

#[test]
fn a_new_source_has_nothing_on_disk() {
    let mut scene = Scene::new();
    scene.push(&["a"]);
    scene.open();
    violation(&scene.hear(welcome(1)));
    assert_eq!(scene.reporter.ring.len(), 1);
}

#[test]
fn a_second_welcome_resets_the_stream() {
    let mut scene = Scene::welcomed();
    assert_eq!(violation(&scene.hear(welcome(0))), "received an unexpected welcome");
}

#[test]
fn limits_too_low_for_the_largest_entry_are_refused() {
    for (entries, bytes) in [(0, 1_000_000), (1, 16_000)] {
        let mut scene = Scene::new();
        scene.open();
        let violation = violation(&scene.hear(welcome_with_limits(0, entries, bytes)));
        assert!(
            violation.contains(&format!("at most {entries} entries and {bytes} bytes")),
            "{violation}"
        );
    }
}

#[test]
fn garbage_resets_the_stream_and_loses_nothing() {
    for bytes in [&b"\xff\xff\xff"[..], b"", &[0; MAX_MESSAGE_BYTES + 1]] {
        let mut scene = Scene::welcomed();
        scene.push(&["a"]);
        violation(&scene.reporter.on_message(scene.now, bytes, 0));
        assert_eq!(scene.reporter.ring.len(), 1);
    }
}

#[test]
fn a_missing_acknowledgement_resets_the_stream() {
    let mut scene = Scene::welcomed();
    scene.push(&["a"]);
    scene.tick();
    scene.wait(10_000);
    assert_eq!(scene.tick(), []);
    scene.wait(1);
    let actions = scene.tick();
    assert!(
        matches!(&actions[..], [Action::Cancel, Action::Report(notice)] if notice.contains("no answer for")),
        "{actions:?}"
    );
}

#[test]
fn an_idle_stream_may_be_silent() {
    let mut scene = Scene::welcomed();
    scene.wait(3_600_000);
    assert_eq!(scene.tick(), []);
}

// The end

#[test]
fn a_drained_source_says_goodbye_when_everything_is_on_disk() {
    let mut scene = Scene::welcomed();
    scene.push(&["a"]);
    let kind = Kind {
        rule: "charge",
        reason: "malformed",
        decision: v1::Decision::Deny,
        mode: v1::Mode::Enforce,
    };
    scene.reporter.ring.count(&kind, 1, WALL);
    scene.drain();
    assert_eq!(batches(&scene.tick())[0].1.len(), 2, "the open aggregate is part of it");
    assert_eq!(scene.tick(), []);
    scene.hear(acknowledgement(2));
    assert_eq!(requests(&scene.tick()), [report_request::Message::Bye(v1::Bye {})]);
    assert!(!scene.reporter.is_finished());
    scene.close(0);
    assert!(scene.reporter.is_finished());
    assert_eq!(scene.tick(), []);
}

#[test]
fn an_unknown_source_ends_at_once() {
    let mut scene = Scene::new();
    scene.drain();
    assert_eq!(scene.tick(), []);
    assert!(scene.reporter.is_finished());
}

#[test]
fn a_drained_source_connects_again_to_deliver() {
    let mut scene = Scene::welcomed();
    scene.push(&["a"]);
    scene.tick();
    scene.close(14);
    scene.drain();
    scene.reopen();
    assert_eq!(batches(&scene.hear(welcome(0))), one_batch(1, &["a"]));
}

#[test]
fn a_drained_source_gives_up_at_its_deadline_and_reports_the_loss() {
    let mut scene = Scene::welcomed();
    scene.push(&["a"]);
    scene.tick();
    scene.drain();
    scene.wait(8_000);
    let actions = scene.tick();
    assert!(
        matches!(&actions[..], [Action::Cancel, Action::Report(notice)] if notice.contains("1 entries are lost")),
        "{actions:?}"
    );
    assert!(scene.reporter.is_finished());
}
