//! Everything in one VM.
//!
//! The revocation view and its stream belong to the VM. Configurations with the same log and cluster share them, so
//! that a new configuration starts with the view of the old one. Ring and audit stream belong to the configuration.

use std::collections::BTreeMap;

use credence_decision::clock::{Monotonic, UnixNanos};
use credence_decision::config::{self, ControlPlane, Policy};
use credence_decision::metrics::{VmMetrics, WatchGauges};
use credence_decision::revocation::Watch;
use credence_decision::stream::StreamHandler as _;

use credence_wire::v1::ReportHello;

use super::control_stream::ControlStream;
use super::effects::refuse;
use super::recorder::StartError;
use super::root::Root;
use crate::host::{Flow, GrpcToken, Host, HostError, Plugin, RootId, StreamId};

/// Everything in one VM.
pub(crate) struct Vm<H> {
    host: H,
    /// One for each cluster and log that a configuration names.
    watches: BTreeMap<WatchId, SharedWatch<H>>,
    next_watch: u32,
    /// Requests that were refused because their configuration is absent, and that are not recorded yet.
    undecided: u64,
    configurations: BTreeMap<RootId, Configuration<H>>,
    metrics: VmMetrics,
}

/// A configuration, and the watch that it uses.
struct Configuration<H> {
    root: Root<H>,
    watch: WatchId,
}

/// A watch of this VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct WatchId(u32);

/// A revocation view, and the stream that updates it.
struct SharedWatch<H> {
    control_plane: ControlPlane,
    watch: Watch,
    stream: ControlStream<H>,
    gauges: WatchGauges,
}

impl<H: Host> Plugin for Vm<H> {
    fn on_configure(&mut self, id: RootId, configuration: &[u8]) -> bool {
        let policy = Policy::parse(&config::as_json(configuration))
            .map_err(|error| error.to_string())
            .and_then(check_answers)
            .map_err(|error| format!("the plugin configuration is refused: {error}"));
        if self.configurations.contains_key(&id) {
            self.host
                .log_error("a plugin configuration is refused: this root context already has one");
            return false;
        }
        let added = policy.and_then(|policy| {
            self.add_configuration(id, policy)
                .map_err(|error| format!("the plugin cannot start: {error}"))
        });
        added.inspect_err(|error| self.host.log_error(error)).is_ok()
    }

    fn on_tick(&mut self, id: RootId, undecided: u64) {
        self.undecided = self.undecided.saturating_add(undecided);
        let outcome = self.tick(id).and_then(|is_over| match is_over {
            true => self.host.done(id),
            false => Ok(()),
        });
        if let Err(error) = outcome.and_then(|()| self.end_overdue()) {
            self.host.log_error(format_args!("a tick was cut short: {error}"));
        }
    }

    fn on_request_headers(&mut self, id: RootId, stream: StreamId, end_of_stream: bool) -> Flow {
        self.with_root(id, |root, watch| root.on_request_headers(stream, !end_of_stream, watch))
            .unwrap_or_else(|| {
                self.undecided = self.undecided.saturating_add(1);
                refuse(&self.host)
            })
    }

    fn on_request_body(&mut self, id: RootId, stream: StreamId, size: usize, end_of_stream: bool) -> Flow {
        self.with_root(id, |root, watch| {
            root.on_request_body(stream, size, end_of_stream, watch)
        })
        .unwrap_or_else(|| refuse(&self.host))
    }

    fn on_request_trailers(&mut self, id: RootId, stream: StreamId) -> Flow {
        self.with_root(id, |root, watch| root.on_request_trailers(stream, watch))
            .unwrap_or_else(|| refuse(&self.host))
    }

    #[cfg(any(feature = "answers", test))]
    fn on_response_headers(&mut self, id: RootId, stream: StreamId) {
        self.with_root(id, |root, watch| root.on_response_headers(stream, watch));
    }

    #[cfg(any(feature = "answers", test))]
    fn on_response_body(&mut self, id: RootId, stream: StreamId, size: usize, end_of_stream: bool) -> Flow {
        let pass = |root: &mut Root<H>, watch: &Watch| root.on_response_body(stream, size, end_of_stream, watch);
        self.with_root(id, pass).unwrap_or(Flow::Continue)
    }

    #[cfg(any(feature = "answers", test))]
    fn on_response_trailers(&mut self, id: RootId, stream: StreamId) -> Flow {
        let pass = |root: &mut Root<H>, watch: &Watch| root.on_response_trailers(stream, watch);
        self.with_root(id, pass).unwrap_or(Flow::Continue)
    }

    fn on_grpc_message(&mut self, token: GrpcToken, message: &[u8]) {
        let Ok((now, random)) = self.instant() else { return };
        if let Some((id, shared)) = self.watches.iter_mut().find(|(_, watch)| watch.stream.is(token)) {
            let SharedWatch {
                watch, stream, gauges, ..
            } = shared;
            let actions = watch.on_message(now, message, random);
            stream.carry_out(watch, actions, now, random);
            if let Some(took) = watch.take_round_trip() {
                gauges.observe_round_trip(took);
            }
            let mut settled = 0;
            let sharing = self.configurations.values_mut();
            for Configuration { root, .. } in sharing.filter(|configuration| configuration.watch == *id) {
                root.settle_unready(now, watch, &mut settled);
            }
        } else if let Some(root) = self.root_with_stream(token) {
            root.effects.recorder.on_message(message, now, random);
        }
    }

    fn on_grpc_close(&mut self, token: GrpcToken, status: u32) {
        // The filter's side has to be closed exactly once, here. A stream that never opened needs no close.
        let _ = self.host.close(token);
        let Ok((now, random)) = self.instant() else { return };
        let mut watches = self.watches.values_mut();
        if let Some(SharedWatch { watch, stream, .. }) = watches.find(|watch| watch.stream.is(token)) {
            stream.on_close(watch, now, status, random);
        } else if let Some(root) = self.root_with_stream(token) {
            root.effects.recorder.on_close(status, now, random);
        }
    }

    fn on_stream_end(&mut self, id: RootId, stream: StreamId) {
        if let Some(Configuration { root, .. }) = self.configurations.get_mut(&id) {
            root.on_stream_end(stream);
        }
    }

    fn on_drain(&mut self, id: RootId) -> bool {
        let Ok((now, random)) = self.instant() else { return true };
        let Ok(wall) = self.host.unix_time() else { return true };
        self.hand_streams_over(id, now, wall, random);
        let Some(Configuration { root, .. }) = self.configurations.get_mut(&id) else {
            return true;
        };
        root.drain(now);
        self.tick(id).unwrap_or_else(|error| {
            self.host.log_error(format_args!("draining failed: {error}"));
            true
        })
    }
}

/// Whether this module sees the answers that the policy needs to rewrite.
fn check_answers(policy: Policy) -> Result<Policy, String> {
    match policy.needs_answers() {
        Some(rule) if !cfg!(any(feature = "answers", test)) => Err(format!(
            "rule `{}`: `hold: body`, and sessions and `hide_ungranted` of MCP, need credence-filter-mcp.wasm, which also sees \
             answers; this is credence-filter.wasm. Load that module, or change the rule",
            rule.name
        )),
        _ => Ok(policy),
    }
}

impl<H: Host> Vm<H> {
    pub(crate) fn new(host: H) -> Self {
        Self {
            host,
            watches: BTreeMap::new(),
            next_watch: 0,
            undecided: 0,
            configurations: BTreeMap::new(),
            metrics: VmMetrics::default(),
        }
    }

    /// The configuration of this root context, with its watch.
    fn with_root<R>(&mut self, id: RootId, decide: impl FnOnce(&mut Root<H>, &Watch) -> R) -> Option<R> {
        let Configuration { root, watch } = self.configurations.get_mut(&id)?;
        let SharedWatch { watch, .. } = self.watches.get(watch)?;
        Some(decide(root, watch))
    }

    /// The configuration that this audit stream belongs to.
    fn root_with_stream(&mut self, token: GrpcToken) -> Option<&mut Root<H>> {
        let mut roots = self
            .configurations
            .values_mut()
            .map(|configuration| &mut configuration.root);
        roots.find(|root| root.effects.recorder.stream.is(token))
    }

    #[inline(never)]
    fn add_configuration(&mut self, id: RootId, policy: Policy) -> Result<(), StartError> {
        let node = self.host.text_property(&["xds", "node", "id"])?;
        let plugin = self.host.text_property(&["plugin_root_id"])?;
        let watch = self.watch_for(&policy.control_plane, &node)?;
        let hello = ReportHello {
            node,
            plugin,
            resume: None,
            anchors_digest: policy.trust_anchors.digest().to_vec(),
            acknowledged: 0,
        };
        let root = Root::new(self.host.clone(), id, policy, hello, &self.metrics)?;
        self.configurations.insert(id, Configuration { root, watch });
        self.host.set_tick_period(TICK_MS)?;
        Ok(())
    }

    /// The watch of this cluster and log: an existing one, or a new one.
    #[inline(never)]
    fn watch_for(&mut self, control_plane: &ControlPlane, node: &str) -> Result<WatchId, HostError> {
        let mut watches = self.watches.iter();
        if let Some((id, _)) = watches.find(|(_, watch)| watch.control_plane == *control_plane) {
            return Ok(*id);
        }
        let id = WatchId(self.next_watch);
        self.next_watch = self.next_watch.wrapping_add(1);
        let host = self.host.clone();
        let watch = SharedWatch {
            control_plane: control_plane.clone(),
            watch: Watch::new(control_plane.clone(), node, host.random()?),
            stream: ControlStream::new(host, &control_plane.cluster, "credence.v1.RevocationService", "Watch"),
            gauges: WatchGauges::new(&self.metrics),
        };
        self.watches.insert(id, watch);
        Ok(id)
    }

    /// Closes the revocation streams that belong to this root context, which is about to end. A stream ends with its
    /// root context; another configuration opens a new one at once.
    #[inline(never)]
    fn hand_streams_over(&mut self, id: RootId, now: Monotonic, wall: UnixNanos, random: u64) {
        let configurations = &self.configurations;
        let sharing = |watch: WatchId| {
            let others = configurations.iter().filter(move |(other, _)| **other != id);
            others.filter(move |(_, configuration)| configuration.watch == watch)
        };
        let holds_none = configurations.get(&id).is_none_or(|own| own.root.holds_none());
        for (watch_id, SharedWatch { watch, stream, .. }) in &mut self.watches {
            if stream.root != Some(id) {
                continue;
            }
            // Held requests are still decided, with the present state.
            if holds_none && sharing(*watch_id).next().is_none() {
                let actions = watch.leave();
                stream.carry_out(watch, actions, now, random);
            }
            watch.hand_over(now);
            stream.hang_up();
            if let Some((next, _)) = sharing(*watch_id).find(|(_, other)| !other.root.is_draining()) {
                stream.root = Some(*next);
                let actions = watch.on_tick(now, wall, random);
                stream.carry_out(watch, actions, now, random);
            }
        }
    }

    /// Returns `true` once a drained configuration is finished and removed.
    fn tick(&mut self, id: RootId) -> Result<bool, HostError> {
        let (now, random) = self.instant()?;
        let wall = self.host.unix_time()?;
        let Some(Configuration { root, watch }) = self.configurations.get_mut(&id) else {
            return Ok(false);
        };
        // A configuration that drains may have closed its ring.
        if self.undecided > 0 && !root.is_draining() {
            root.effects
                .recorder
                .record_undecided(std::mem::take(&mut self.undecided));
        }
        if let Some(shared) = self.watches.get_mut(watch) {
            let SharedWatch {
                watch, stream, gauges, ..
            } = shared;
            if !root.is_draining() && *stream.root.get_or_insert(id) == id {
                let actions = watch.on_tick(now, wall, random);
                stream.carry_out(watch, actions, now, random);
            }
            root.settle_unready(now, watch, &mut 0);
            root.end_exchanges(now, watch);
            root.share_chains(watch, wall);
            gauges.report(watch, now);
        }
        root.report_gauges(now);
        let is_finished = root.on_tick(now, wall, random);
        if is_finished {
            root.gauges.withdraw();
            self.configurations.remove(&id);
            // Envoy would wake this root context forever.
            let stopped = self.host.in_root(id, || self.host.set_tick_period(0));
            if let Ok(Err(error)) = stopped {
                self.host
                    .log_error(format_args!("ticks of an ended configuration go on: {error}"));
            }
            // The view may be large, and no configuration uses it.
            let configurations = &self.configurations;
            self.watches.retain(|watch, _| {
                configurations
                    .values()
                    .any(|configuration| configuration.watch == *watch)
            });
        }
        self.metrics.borrow_mut().flush(&mut self.host)?;
        Ok(is_finished)
    }

    /// Ends configurations whose own ticks have stopped.
    fn end_overdue(&mut self) -> Result<(), HostError> {
        if self.configurations.len() < 2 {
            return Ok(());
        }
        let now = self.host.monotonic()?;
        let configurations = self.configurations.iter();
        let overdue = configurations.filter(|(_, configuration)| configuration.root.is_overdue(now));
        let overdue: Vec<RootId> = overdue.map(|(id, _)| *id).collect();
        overdue.into_iter().try_for_each(|id| self.tick(id).map(|_| ()))
    }

    /// The present time, and a random number for the backoff of a stream.
    fn instant(&self) -> Result<(Monotonic, u64), HostError> {
        Ok((self.host.monotonic()?, u64::from_le_bytes(self.host.random()?)))
    }
}

/// Interval of work on streams, counters and gauges. An event waits at most this long for its batch.
const TICK_MS: u32 = 50;
