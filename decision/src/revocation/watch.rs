//! The stream to the control plane: the client side of `RevocationService.Watch`, for one VM.

use std::collections::VecDeque;
use std::time::Duration;

use credence_wire::v1::{self, watch_request, watch_response};
use prost::Message as _;
use sha2::{Digest as _, Sha256};

use super::forgetting::SlowestClock;
use super::lease::{Freshness, Lease};
use super::local_view::{Subjects, Unapplied, View, too_many_subjects};
use super::seal_keys::SealKeys;
use crate::backoff::Backoff;
use crate::clock::{Monotonic, UnixNanos};
use crate::config::ControlPlane;
use crate::stream::{StreamAction, StreamHandler, Violation, decode};

/// Follows one revocation log over one stream at a time, and owns the view and its lease.
///
/// [`Watch::on_tick`] provides the time; the rest is its [`StreamHandler`].
///
/// Every protocol violation by the control plane resets the stream. The view stays, but the lease is not renewed, so
/// requests are denied after its end.
#[derive(Debug)]
pub struct Watch {
    settings: ControlPlane,
    /// Envoy's node name, for the operator of the control plane.
    node: String,
    secret: [u8; 16],
    phase: Phase,
    view: Option<View>,
    /// The memory of the last view or snapshot, to be freed.
    remains: Option<Subjects>,
    /// The last log entry that was ever applied here. It outlives the view: no log that ends earlier is accepted.
    applied: Option<Position>,
    /// The keys from the present or last stream.
    keys: Keys,
    /// The longest token lifetime, from the present or last stream; `None` if the log forgets nothing.
    token_lifetime: Option<u64>,
    clock: SlowestClock,
    /// Whether the view has forgotten too much to be continued.
    needs_snapshot: bool,
    /// The highest revision of any view of this VM.
    revision: u64,
    lease: Lease,
    /// The secrets of earlier streams, since the last welcome; newest last.
    earlier_secrets: VecDeque<[u8; 32]>,
    /// The time of the last echo; `None` after it was read.
    round_trip: Option<Duration>,
    backoff: Backoff,
    /// Counters.
    pub(crate) counters: Counters,
}

/// An action on the stream; messages are encoded `WatchRequest`s.
pub type Action = StreamAction;

/// Counters since the VM's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Attempts to open a stream.
    pub opened: u64,
    /// Streams reset because of a protocol violation.
    pub violations: u64,
    /// Revoked delegations forgotten because no token can carry their ids any more.
    pub forgotten: u64,
}

#[derive(Debug)]
enum Phase {
    Closed { retry_at: Monotonic },
    Open { stream: Stream, stage: Stage },
}

#[derive(Clone, Copy, Debug)]
struct Stream {
    last_heard: Monotonic,
    /// The control plane sent all later messages after this time.
    answered_since: Monotonic,
    last_ping: Option<Monotonic>,
    /// The last log entry that this stream has announced.
    known_head: u64,
    /// The last log entry that the last echo named. It must arrive before the next echo.
    owed: u64,
    /// The control plane waits for confirmations from this log entry on; `None` if it does not wait.
    confirmed_from: Option<u64>,
    /// Proves on the next stream that both belong to this client.
    secret: [u8; 32],
}

#[derive(Debug)]
enum Stage {
    Connecting,
    AwaitingWelcome,
    Pulling(Box<Pull>),
    Following,
}

#[derive(Debug)]
struct Pull {
    subjects: Subjects,
    position: Position,
    chunks: u32,
    next: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    seq: u64,
    digest: [u8; 32],
    /// The control plane's proof that it gave this position out; returned unchanged.
    proof: Option<[u8; 16]>,
}

/// More streams than are tried during one lease. After that lease, an earlier stream owes nothing.
const MAX_EARLIER_SECRETS: usize = 8;

/// The longest accepted drain promise.
pub const MAX_PROMISE: Duration = Duration::from_secs(10);

/// The largest accepted message: the protocol's largest is a chunk of 64 KiB with its framing.
pub const MAX_MESSAGE_BYTES: usize = 80 * 1024;

/// The most chunks a snapshot may have: 4 GiB encoded.
pub const MAX_CHUNKS: u32 = 65_536;

/// The longest silence of a stream; six tenths of `max_staleness` if that is less. Then enough of the lease is left to
/// reach another replica.
pub const MAX_SILENCE: Duration = Duration::from_secs(10);

/// The operator's message if forgotten revocations may matter again.
const FORGOT_TOO_MUCH: &str = "the revocation snapshot is requested again: the filter has forgotten revoked \
                               delegations that a token could still carry, because the wall clock was set back or the \
                               control plane now accepts longer lifetimes. Tokens issued before the forgotten \
                               revocations are denied until the snapshot has arrived";

/// gRPC status FAILED_PRECONDITION.
const FAILED_PRECONDITION: u32 = 9;

// === impl Watch ===

impl Watch {
    /// A watch that opens its first stream on its first tick. `secret` must be random and never leave the VM.
    pub fn new(settings: ControlPlane, node: &str, secret: [u8; 16]) -> Self {
        Self {
            lease: Lease::new(settings.max_staleness),
            settings,
            node: node.to_owned(),
            secret,
            phase: Phase::Closed {
                retry_at: Monotonic::default(),
            },
            view: None,
            remains: None,
            applied: None,
            keys: Keys::default(),
            token_lifetime: None,
            clock: SlowestClock::default(),
            needs_snapshot: false,
            revision: 0,
            earlier_secrets: VecDeque::new(),
            round_trip: None,
            backoff: Backoff::default(),
            counters: Counters::default(),
        }
    }

    /// The revocations; `None` before the first snapshot. Decisions may use it only if `freshness` permits.
    pub fn view(&self) -> Option<&View> {
        self.view.as_ref()
    }

    /// Whether the view is fresh enough for decisions.
    pub fn freshness(&self, now: Monotonic) -> Freshness {
        match self.view {
            None => Freshness::NeverSynced,
            Some(_) => self.lease.freshness(now),
        }
    }

    /// Time since the last complete update of the view; `None` if there was none.
    pub fn lease_age(&self, now: Monotonic) -> Option<Duration> {
        self.lease.age(now)
    }

    /// The time of the latest echo from its ping, unless it was read before. The echo comes after every update that the
    /// control plane had sent by then, so a revocation takes less time.
    pub fn take_round_trip(&mut self) -> Option<Duration> {
        self.round_trip.take()
    }

    /// The keys that seal this node's shared entries; `None` until the control plane has sent keys. They stay valid
    /// after the end of the stream, until the other filters have newer ones.
    pub fn cache_keys(&self) -> Option<&SealKeys> {
        self.keys.entries.as_ref()
    }

    /// The keys for the ids of MCP sessions; `None` if the control plane has sent none.
    pub fn session_keys(&self) -> Option<&SealKeys> {
        self.keys.sessions.as_ref()
    }

    /// Time has passed. Streams are opened only here. `random` must be uniform over `u64`.
    pub fn on_tick(&mut self, now: Monotonic, wall: UnixNanos, random: u64) -> Vec<Action> {
        self.clock.observe(now, wall);
        self.forget_some(now);
        self.remains = self.remains.take().and_then(Subjects::dismantle_some);
        match &self.phase {
            Phase::Closed { retry_at } if now < *retry_at => Vec::new(),
            Phase::Closed { .. } => self.open(now),
            Phase::Open { stream, stage } => {
                let silence = now.since(stream.last_heard);
                let is_ping_due = matches!(stage, Stage::Following)
                    && stream
                        .last_ping
                        .is_none_or(|sent| now.since(sent) >= self.settings.ping_interval);
                if self.needs_snapshot && matches!(stage, Stage::Following) {
                    let wait = self.backoff.after_failure(random);
                    self.reset(now, wait, FORGOT_TOO_MUCH.to_owned())
                } else if silence > self.max_silence() {
                    let wait = self.backoff.after_failure(random);
                    let notice = format!(
                        "revocation stream reset: nothing was received for {} ms; check that the control plane answers pings",
                        silence.as_millis()
                    );
                    self.reset(now, wait, notice)
                } else if is_ping_due {
                    self.ping(now)
                } else {
                    Vec::new()
                }
            }
        }
    }

    /// The position to continue from on a new stream.
    fn continued(&self) -> Option<Position> {
        match self.view {
            Some(_) if !self.needs_snapshot => self.applied,
            Some(_) | None => None,
        }
    }

    fn forget_some(&mut self, now: Monotonic) {
        if let (Some(view), Some(time)) = (&mut self.view, self.clock.at(now)) {
            let forgotten = view.forget_some(time) as u64;
            self.counters.forgotten = self.counters.forgotten.saturating_add(forgotten);
            self.needs_snapshot |= view.has_forgotten_too_much(time);
        }
    }

    fn open(&mut self, now: Monotonic) -> Vec<Action> {
        self.counters.opened = self.counters.opened.saturating_add(1);
        self.phase = Phase::Open {
            stream: Stream {
                last_heard: now,
                answered_since: now,
                last_ping: None,
                known_head: 0,
                owed: 0,
                confirmed_from: None,
                // It reveals nothing about the VM's secret.
                secret: Sha256::new()
                    .chain_update(b"credence: the secret of a stream")
                    .chain_update(self.secret)
                    .chain_update(self.counters.opened.to_be_bytes())
                    .finalize()
                    .into(),
            },
            stage: Stage::Connecting,
        };
        vec![Action::Open]
    }

    fn reset(&mut self, now: Monotonic, wait: Duration, notice: String) -> Vec<Action> {
        self.close(now, wait);
        vec![Action::Cancel, Action::Report(notice)]
    }

    /// Drops an arriving snapshot with the phase; the active view stays.
    fn close(&mut self, now: Monotonic, wait: Duration) {
        let closed = Phase::Closed {
            retry_at: now.plus(wait),
        };
        if let Phase::Open { stream, stage } = std::mem::replace(&mut self.phase, closed) {
            if self.earlier_secrets.len() >= MAX_EARLIER_SECRETS {
                self.earlier_secrets.pop_front();
            }
            self.earlier_secrets.push_back(stream.secret);
            if let Stage::Pulling(pull) = stage {
                self.remains = Some(pull.subjects);
            }
        }
        self.lease.forget_pings();
    }

    fn receive(&mut self, now: Monotonic, bytes: &[u8]) -> Result<Vec<Action>, Violation> {
        let message = decode(
            bytes,
            MAX_MESSAGE_BYTES,
            "WatchResponse",
            |response: v1::WatchResponse| response.message,
        )?;
        if let Phase::Open { stream, .. } = &mut self.phase {
            stream.last_heard = now;
        }
        match message {
            watch_response::Message::Welcome(welcome) => {
                let actions = self.on_welcome(now, &welcome)?;
                Ok(self.limit_lease(&welcome).into_iter().chain(actions).collect())
            }
            watch_response::Message::Chunk(chunk) => self.on_chunk(now, &chunk),
            watch_response::Message::Update(update) => self.on_update(now, &update),
            watch_response::Message::Pong(pong) => self.on_pong(now, &pong),
            watch_response::Message::Drain(drain) => {
                self.on_drain(&drain);
                Ok(Vec::new())
            }
            watch_response::Message::CacheKeys(keys) => self.on_cache_keys(&keys),
        }
    }

    fn on_welcome(&mut self, now: Monotonic, welcome: &v1::Welcome) -> Result<Vec<Action>, Violation> {
        let applied = self.applied;
        let first = self.first_position();
        let is_continued = self.continued().is_some();
        let (stream, stage) = expect(&mut self.phase, "a welcome", |stage| {
            matches!(stage, Stage::AwaitingWelcome)
        })?;
        stream.known_head = welcome.head;
        if welcome.log_id != self.settings.log_id {
            return Err(Violation::lasting(format!(
                "the control plane serves log {:?}; the configuration pins control_plane.log_id {:?}",
                welcome.log_id, self.settings.log_id
            )));
        }
        if let Some(applied) = applied {
            check_no_rollback(applied.seq, welcome.head)?;
        }
        stream.confirmed_from = (welcome.max_staleness_ms > 0).then_some(welcome.head);
        self.earlier_secrets.clear();
        self.keys = welcome.cache_keys.as_ref().map_or(Ok(Keys::default()), Keys::parse)?;
        self.token_lifetime = (welcome.max_token_lifetime_s > 0).then_some(welcome.max_token_lifetime_s);
        if let Some(view) = &mut self.view {
            view.expect_lifetime(self.token_lifetime);
        }
        match &welcome.snapshot {
            None => {
                // A client without a view starts before the first entry, with an empty view and the digest of nothing;
                // every update is checked against it.
                if !is_continued {
                    if applied.is_some_and(|applied| applied.seq > 0) {
                        let stage = "without a view to continue";
                        return Err(out_of_order("a welcome without a snapshot", stage));
                    }
                    self.take_over(Subjects::new(&self.secret, self.settings.max_subjects), first);
                }
                Ok(self.follow(now))
            }
            Some(snapshot) => {
                let position = parse_position(snapshot.position.as_ref())?;
                if position.seq > welcome.head {
                    return Err(Violation::new(format!(
                        "the snapshot is at {}, after the log's announced end {}",
                        position.seq, welcome.head
                    )));
                }
                for known in applied.into_iter().chain([first]) {
                    check_no_rollback(known.seq, position.seq)?;
                    if known.seq == position.seq && known.digest != position.digest {
                        return Err(diverged(known.seq));
                    }
                }
                if snapshot.chunks > MAX_CHUNKS {
                    return Err(Violation::new(format!(
                        "the snapshot has {} chunks; expected at most {MAX_CHUNKS}",
                        snapshot.chunks
                    )));
                }
                // Only a hint, which is not relied upon. But a snapshot that is announced as too large need not be
                // requested.
                let max_subjects = self.settings.max_subjects;
                if usize::try_from(snapshot.subjects).map_or(true, |subjects| subjects > max_subjects) {
                    return Err(Violation::lasting(too_many_subjects(max_subjects)));
                }
                let subjects = Subjects::new(&self.secret, max_subjects);
                // There is memory for two snapshots.
                self.remains = None;
                if snapshot.chunks == 0 {
                    self.take_over(subjects, position);
                    return Ok(self.follow(now));
                }
                *stage = Stage::Pulling(Box::new(Pull {
                    subjects,
                    position,
                    chunks: snapshot.chunks,
                    next: 0,
                }));
                Ok(vec![pull(0)])
            }
        }
    }

    /// Applies the lower one of the control plane's limit and the configured one. Reports if that is the control
    /// plane's.
    fn limit_lease(&mut self, welcome: &v1::Welcome) -> Option<Action> {
        let own = self.settings.max_staleness;
        let limit = match welcome.max_staleness_ms {
            0 => own,
            limit => own.min(Duration::from_millis(limit)),
        };
        let is_changed = self.lease.limit(limit);
        (is_changed && limit < own).then(|| {
            Action::Report(format!(
                "requests are denied {} ms after the last echo, as the control plane asks (its --max-staleness), and \
                 not only after the {} ms of control_plane.max_staleness",
                limit.as_millis(),
                own.as_millis()
            ))
        })
    }

    fn on_chunk(&mut self, now: Monotonic, chunk: &v1::SnapshotChunk) -> Result<Vec<Action>, Violation> {
        let (_, stage) = expect(&mut self.phase, "a snapshot chunk", |stage| {
            matches!(stage, Stage::Pulling(_))
        })?;
        let Stage::Pulling(arriving) = stage else {
            return Ok(Vec::new());
        };
        if chunk.index != arriving.next {
            return Err(Violation::new(format!(
                "received snapshot chunk {}; pulled chunk {}",
                chunk.index, arriving.next
            )));
        }
        for record in &chunk.records {
            arriving.subjects.apply(record, None)?;
        }
        arriving.next = arriving.next.saturating_add(1);
        if arriving.next < arriving.chunks {
            return Ok(vec![pull(arriving.next)]);
        }
        if let Stage::Pulling(complete) = std::mem::replace(stage, Stage::Following) {
            self.take_over(complete.subjects, complete.position);
        }
        Ok(self.follow(now))
    }

    fn on_update(&mut self, now: Monotonic, update: &v1::Update) -> Result<Vec<Action>, Violation> {
        let time = self.clock.at(now);
        let (stream, _) = expect(&mut self.phase, "an update", |stage| matches!(stage, Stage::Following))?;
        let position = parse_position(update.position.as_ref())?;
        stream.known_head = stream.known_head.max(position.seq);
        let no_record = || Violation::new(format!("update {} has no record", position.seq));
        let (Some(applied), Some(view)) = (&mut self.applied, &mut self.view) else {
            // Following starts with a view; without one, no update may be applied.
            return Err(no_record());
        };
        let expected = applied.seq.saturating_add(1);
        if position.seq != expected {
            return Err(Violation::new(format!(
                "received update {}; expected {expected}",
                position.seq
            )));
        }
        let record = update.record.as_ref().ok_or_else(no_record)?;
        // The protocol's records have one encoding (fields in the order of their tags, no unknown ones). A record with
        // unknown fields is encoded without them here, so its digest differs. So it is refused instead of being partly
        // interpreted.
        if position.digest != next_digest(&applied.digest, record) {
            return Err(diverged(position.seq));
        }
        match view.apply(record, time) {
            Ok(()) => {
                *applied = position;
                Ok(self.confirm().into_iter().collect())
            }
            Err(error) => {
                if matches!(error, Unapplied::NoRoom(_)) {
                    self.discard_view();
                }
                Err(error.into())
            }
        }
    }

    fn on_pong(&mut self, now: Monotonic, pong: &v1::Pong) -> Result<Vec<Action>, Violation> {
        let settled = self.lease.settle(pong.id);
        let applied = self.applied.map_or(0, |position| position.seq);
        let (stream, _) = expect(&mut self.phase, "a pong", |stage| matches!(stage, Stage::Following))?;
        let sent = settled.ok_or_else(|| {
            Violation::new(format!(
                "received a pong for ping {}, which was not sent on this stream or already answered",
                pong.id
            ))
        })?;
        check_no_rollback(applied, pong.head)?;
        // Otherwise it would never be requested again, and the lease would never be renewed.
        if applied < stream.owed {
            return Err(Violation::new(format!(
                "updates up to {} were due before the last echo, and those after {applied} have not come",
                stream.owed
            )));
        }
        stream.owed = pong.head;
        stream.answered_since = sent;
        stream.known_head = stream.known_head.max(pong.head);
        self.round_trip = Some(now.since(sent));
        if pong.head == applied {
            self.lease.renew(sent);
            self.backoff.succeeded();
        }
        Ok(Vec::new())
    }

    /// Confirms applied entries at once. Until the head that the welcome named, it does not: the server has announced
    /// that it does not wait for earlier ones.
    fn confirm(&self) -> Option<Action> {
        let Phase::Open { stream, .. } = &self.phase else {
            return None;
        };
        let seq = self.applied?.seq;
        (seq >= stream.confirmed_from?).then(|| send(watch_request::Message::Applied(v1::Applied { seq })))
    }

    /// Gives up the lease, so that the control plane does not wait for this client: no configuration uses this watch
    /// any more.
    pub fn leave(&mut self) -> Vec<Action> {
        self.lease.revoke();
        match &self.phase {
            Phase::Open { stream, .. } if stream.confirmed_from.is_some() => {
                vec![send(watch_request::Message::Leaving(v1::Leaving {}))]
            }
            Phase::Open { .. } | Phase::Closed { .. } => Vec::new(),
        }
    }

    /// The stream's owner is about to end. That is no failure of the control plane: another owner opens the next stream
    /// at once.
    pub fn hand_over(&mut self, now: Monotonic) {
        if matches!(self.phase, Phase::Open { .. }) {
            self.close(now, Duration::ZERO);
        }
    }

    /// The promise counts from its sending. That was after the last answered ping was sent, which is the latest certain
    /// time. Counting from the arrival would extend the promise by its transit time.
    fn on_drain(&mut self, drain: &v1::Drain) {
        let Phase::Open { stream, stage } = &mut self.phase else {
            return;
        };
        if !matches!(stage, Stage::Following) {
            // Without a view in step with the log, there is nothing to keep fresh.
            return;
        }
        let applied = self.applied.map_or(0, |position| position.seq);
        if applied >= stream.known_head {
            let promise = Duration::from_millis(u64::from(drain.promise_ms)).min(MAX_PROMISE);
            self.lease.promise(stream.answered_since.plus(promise));
        }
    }

    /// A rotation may happen while a snapshot arrives.
    fn on_cache_keys(&mut self, keys: &v1::CacheKeys) -> Result<Vec<Action>, Violation> {
        expect(&mut self.phase, "keys for the shared cache", |stage| {
            matches!(stage, Stage::Pulling(_) | Stage::Following)
        })?;
        self.keys = Keys::parse(keys)?;
        Ok(Vec::new())
    }

    /// Activates the snapshot, and drops the previous view.
    fn take_over(&mut self, subjects: Subjects, position: Position) {
        let last = self.view.as_ref().map_or(self.revision, View::revision);
        self.revision = last.saturating_add(1);
        let view = View::new(subjects, self.revision, self.token_lifetime);
        self.remains = self.view.replace(view).map(|view| view.subjects);
        self.applied = Some(position);
        self.needs_snapshot = false;
    }

    fn discard_view(&mut self) {
        if let Some(view) = self.view.take() {
            self.revision = view.revision();
            self.remains = Some(view.subjects);
        }
        self.lease.revoke();
    }

    /// Updates follow. The first ping is sent at once, because a new VM waits for its echo.
    fn follow(&mut self, now: Monotonic) -> Vec<Action> {
        if let Phase::Open { stage, .. } = &mut self.phase {
            *stage = Stage::Following;
        }
        self.confirm().into_iter().chain(self.ping(now)).collect()
    }

    fn ping(&mut self, now: Monotonic) -> Vec<Action> {
        let Phase::Open { stream, .. } = &mut self.phase else {
            return Vec::new();
        };
        let Some(id) = self.lease.ping(now) else {
            return Vec::new();
        };
        stream.last_ping = Some(now);
        vec![send(watch_request::Message::Ping(v1::Ping { id }))]
    }

    /// The position before the first entry.
    fn first_position(&self) -> Position {
        Position {
            seq: 0,
            digest: Sha256::digest(self.settings.log_id.as_bytes()).into(),
            proof: None,
        }
    }

    fn max_silence(&self) -> Duration {
        self.settings.max_staleness.mul_f32(0.6).min(MAX_SILENCE)
    }
}

impl StreamHandler for Watch {
    fn on_open(&mut self, now: Monotonic) -> Vec<Action> {
        let Phase::Open { stream, stage } = &mut self.phase else {
            // The stream was reset in the meantime.
            return vec![Action::Cancel];
        };
        *stage = Stage::AwaitingWelcome;
        stream.last_heard = now;
        stream.answered_since = now;
        let secret_digest = Sha256::digest(stream.secret).to_vec();
        // Without a view there is nothing to continue, even if updates were once applied: a snapshot is needed.
        let applied = self.continued().map(|position| v1::Position {
            seq: position.seq,
            digest: position.digest.to_vec(),
            proof: position.proof.map_or_else(Vec::new, |proof| proof.to_vec()),
        });
        vec![send(watch_request::Message::Hello(v1::WatchHello {
            log_id: self.settings.log_id.clone(),
            applied,
            node: self.node.clone(),
            secret_digest,
            earlier_secrets: self.earlier_secrets.iter().map(|secret| secret.to_vec()).collect(),
            confirms: true,
        }))]
    }

    fn on_message(&mut self, now: Monotonic, bytes: &[u8], random: u64) -> Vec<Action> {
        if matches!(self.phase, Phase::Closed { .. }) {
            return Vec::new();
        }
        match self.receive(now, bytes) {
            Ok(actions) => actions,
            Err(violation) => {
                self.counters.violations = self.counters.violations.saturating_add(1);
                let wait = if violation.is_lasting {
                    self.backoff.after_lasting_failure(random)
                } else {
                    self.backoff.after_failure(random)
                };
                self.reset(now, wait, format!("revocation stream reset: {}", violation.what))
            }
        }
    }

    fn on_close(&mut self, now: Monotonic, status: u32, random: u64) -> Vec<Action> {
        if matches!(self.phase, Phase::Closed { .. }) {
            return Vec::new();
        }
        let (wait, notice) = if status == FAILED_PRECONDITION {
            let notice = format!(
                "the control plane refused to continue revocation log {:?} (FAILED_PRECONDITION): it serves another \
                 log, or one restored from an old copy. Requests are denied after the lease ends. Set \
                 control_plane.cluster to the right control plane, or, if the log was deliberately created anew, pin \
                 its new log_id in the plugin configuration",
                self.settings.log_id
            );
            (self.backoff.after_lasting_failure(random), notice)
        } else {
            let retry_in = self.backoff.after_failure(random);
            let notice = format!(
                "revocation stream closed with gRPC status {status}; trying again in {} ms",
                retry_in.as_millis()
            );
            (retry_in, notice)
        };
        self.close(now, wait);
        vec![Action::Report(notice)]
    }
}

// === impl Stage ===

impl Stage {
    fn activity(&self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::AwaitingWelcome => "waiting for the welcome",
            Self::Pulling(_) => "pulling the snapshot",
            Self::Following => "following updates",
        }
    }
}

/// The stream and its stage, if `message` is allowed in it.
fn expect<'a>(
    phase: &'a mut Phase,
    message: &'static str,
    is_expected: impl FnOnce(&Stage) -> bool,
) -> Result<(&'a mut Stream, &'a mut Stage), Violation> {
    let Phase::Open { stream, stage } = phase else {
        return Err(out_of_order(message, "closed"));
    };
    if is_expected(stage) {
        Ok((stream, stage))
    } else {
        Err(out_of_order(message, stage.activity()))
    }
}

fn out_of_order(message: &str, stage: &str) -> Violation {
    Violation::new(format!("received {message} while {stage}"))
}

fn diverged(seq: u64) -> Violation {
    Violation::lasting(format!(
        "entry {seq} of the log has another digest than the history applied here: the log has forked"
    ))
}

impl From<Unapplied> for Violation {
    fn from(unapplied: Unapplied) -> Self {
        let (Unapplied::Invalid(what) | Unapplied::NoRoom(what)) = unapplied;
        Self::lasting(what)
    }
}

/// What the control plane has sent.
#[derive(Debug, Default)]
struct Keys {
    /// For this node's shared entries.
    entries: Option<SealKeys>,
    sessions: Option<SealKeys>,
}

impl Keys {
    fn parse(keys: &v1::CacheKeys) -> Result<Self, Violation> {
        let parse = |current, previous| {
            let parsed = SealKeys::parse(current, previous);
            parsed
                .map(Some)
                .ok_or_else(|| Violation::new("received keys that are not 32 bytes long"))
        };
        Ok(Self {
            entries: parse(&keys.current, &keys.previous)?,
            sessions: match keys.session_current.as_slice() {
                [] => None,
                current => parse(current, &keys.session_previous)?,
            },
        })
    }
}

fn check_no_rollback(applied: u64, head: u64) -> Result<(), Violation> {
    if head < applied {
        return Err(Violation::lasting(format!(
            "the log ends at {head}, but {applied} was already applied: it lost entries or was restored from an old \
             copy"
        )));
    }
    Ok(())
}

fn parse_position(position: Option<&v1::Position>) -> Result<Position, Violation> {
    let malformed = || Violation::new("a message lacks its position, or the position its 32-byte digest");
    let position = position.ok_or_else(malformed)?;
    let digest = <[u8; 32]>::try_from(position.digest.as_slice()).map_err(|_| malformed())?;
    Ok(Position {
        seq: position.seq,
        digest,
        // A proof of another length is ignored.
        proof: position.proof.as_slice().try_into().ok(),
    })
}

fn next_digest(digest: &[u8; 32], record: &v1::Record) -> [u8; 32] {
    Sha256::new()
        .chain_update(digest)
        .chain_update(record.encode_to_vec())
        .finalize()
        .into()
}

fn pull(index: u32) -> Action {
    send(watch_request::Message::Pull(v1::PullChunk { index }))
}

fn send(message: watch_request::Message) -> Action {
    let request = v1::WatchRequest { message: Some(message) };
    Action::Send(request.encode_to_vec())
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
