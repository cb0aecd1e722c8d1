//! The plugin as Envoy runs it: one per VM, fed by the host's callbacks.
//!
//! | file | its one job |
//! |---|---|
//! | `root` | one configuration: its engine, the requests it holds, its figures |
//! | `clerk` | carries out what was decided, counts it and writes it down |
//! | `line` | a gRPC stream to the control plane, whoever speaks on it |
//! | `world` | what the engine asks of the host |
//!
//! The revocation view and its stream belong to the VM: configurations of one log and cluster share them, so that a
//! new configuration starts with what the old one knew. Ring and audit stream belong to the configuration.

mod clerk;
mod line;
mod root;
mod world;

use std::collections::BTreeMap;

use crate::host::calls::{self, HostError, HostMetrics, LogLevel};
use crate::host::{Flow, GrpcToken, Plugin, RootId, StreamId, take_undecided};
use credence_decision::audit;
use credence_decision::clock::Monotonic;
use credence_decision::config::{self, ControlPlane, Policy};
use credence_decision::metrics::Metrics;
use credence_decision::revocation::{Settings, Watch};

use line::Line;
use root::Root;

/// All that lives in one VM.
#[derive(Default)]
pub(crate) struct Vm {
    /// One for each cluster and log that a configuration names.
    watches: BTreeMap<WatchId, WatchLine>,
    next_watch: u32,
    /// Requests that were refused because the configuration they came for is not there, since somebody last wrote them down.
    undecided: u64,
    roots: BTreeMap<RootId, Root>,
    metrics: Metrics,
}

/// A watch of this VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct WatchId(u32);

/// A revocation view and the stream that keeps it fresh.
struct WatchLine {
    control_plane: ControlPlane,
    watch: Watch,
    line: Line,
}

impl Plugin for Vm {
    fn on_configure(&mut self, id: RootId, configuration: &[u8]) -> bool {
        let policy = match Policy::parse(&config::as_json(configuration)) {
            Ok(policy) => policy,
            Err(error) => {
                calls::log(
                    LogLevel::Error,
                    &format!("credence: the plugin configuration is refused: {error}"),
                );
                return false;
            }
        };
        match self.add_root(id, policy) {
            Ok(()) => true,
            Err(error) => {
                calls::log(LogLevel::Error, &format!("credence: the plugin can not start: {error}"));
                false
            }
        }
    }

    fn on_tick(&mut self, id: RootId) {
        let outcome = match self.tick(id) {
            Ok(true) => calls::done(id),
            Ok(false) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = outcome {
            calls::log(LogLevel::Error, &format!("credence: a tick was cut short: {error}"));
        }
    }

    fn on_request_headers(&mut self, id: RootId, stream: StreamId, end_of_stream: bool) -> Flow {
        self.with_root(id, |root, watch, metrics| {
            root.on_request_headers(stream, !end_of_stream, watch, metrics)
        })
        .unwrap_or_else(|| {
            self.undecided = self.undecided.saturating_add(1);
            clerk::refuse()
        })
    }

    fn on_request_body(&mut self, id: RootId, stream: StreamId, size: usize, end_of_stream: bool) -> Flow {
        self.with_root(id, |root, watch, metrics| {
            root.on_request_body(stream, size, end_of_stream, watch, metrics)
        })
        .unwrap_or_else(clerk::refuse)
    }

    fn on_request_trailers(&mut self, id: RootId, stream: StreamId) -> Flow {
        self.with_root(id, |root, watch, metrics| {
            root.on_request_trailers(stream, watch, metrics)
        })
        .unwrap_or_else(clerk::refuse)
    }

    fn on_grpc_message(&mut self, token: GrpcToken, message: &[u8]) {
        let Ok((now, random)) = instant() else { return };
        if let Some((id, WatchLine { watch, line, .. })) =
            self.watches.iter_mut().find(|(_, watch)| watch.line.is(token))
        {
            let actions = watch.on_message(now, message, random);
            line.carry_out(watch, actions, now, random);
            let mut round_trip = watch.take_round_trip();
            for root in self.roots.values_mut().filter(|root| root.watch == *id) {
                // Once, however many configurations share the watch.
                if let Some(took) = round_trip.take() {
                    root.note_round_trip(took, &mut self.metrics);
                }
                root.settle_unready(now, watch, &mut self.metrics);
            }
        } else if let Some(root) = self.roots.values_mut().find(|root| root.clerk.is_line(token)) {
            root.clerk.on_message(message, now, random);
        }
    }

    fn on_grpc_close(&mut self, token: GrpcToken, status: u32) {
        // Our side has to be closed exactly once, here; of a stream that never opened there is nothing to close.
        let _ = calls::grpc_close(token);
        let Ok((now, random)) = instant() else { return };
        if let Some(WatchLine { watch, line, .. }) = self.watches.values_mut().find(|watch| watch.line.is(token)) {
            line.forget();
            let actions = watch.on_close(now, status, random);
            line.carry_out(watch, actions, now, random);
        } else if let Some(root) = self.roots.values_mut().find(|root| root.clerk.is_line(token)) {
            root.clerk.on_close(status, now, random);
        }
    }

    fn on_stream_end(&mut self, id: RootId, stream: StreamId) {
        if let Some(root) = self.roots.get_mut(&id) {
            root.on_stream_end(stream, &mut self.metrics);
        }
    }

    fn on_drain(&mut self, id: RootId) -> bool {
        let Ok((now, random)) = instant() else { return true };
        // A stream ends with its root context: another configuration's next tick opens one of its own.
        let is_shared = |watch: &WatchId| {
            self.roots
                .iter()
                .any(|(other, root)| *other != id && root.watch == *watch)
        };
        let holds_none = self.roots.get(&id).is_none_or(Root::holds_none);
        for (watch_id, WatchLine { watch, line, .. }) in
            self.watches.iter_mut().filter(|(_, watch)| watch.line.is_of(id))
        {
            // What is held is still decided, by what is known now.
            if holds_none && !is_shared(watch_id) {
                let actions = watch.leave();
                line.carry_out(watch, actions, now, random);
            }
            line.hang_up(watch, now, random);
        }
        let Some(root) = self.roots.get_mut(&id) else {
            return true;
        };
        root.drain(now);
        self.tick(id).unwrap_or_else(|error| {
            calls::log(LogLevel::Error, &format!("credence: draining failed: {error}"));
            true
        })
    }
}

impl Vm {
    /// The configuration of this root context, with the watch that it relies on.
    fn with_root<R>(&mut self, id: RootId, decide: impl FnOnce(&mut Root, &Watch, &mut Metrics) -> R) -> Option<R> {
        let root = self.roots.get_mut(&id)?;
        let WatchLine { watch, .. } = self.watches.get(&root.watch)?;
        Some(decide(root, watch, &mut self.metrics))
    }

    fn add_root(&mut self, id: RootId, policy: Policy) -> Result<(), StartError> {
        let node = text_property(&["xds", "node", "id"])?;
        let plugin = text_property(&["plugin_root_id"])?;
        let watch = self.watch_for(&policy.control_plane, &node)?;
        let settings = audit::Settings {
            node,
            plugin,
            anchors_digest: policy.trust_anchors.digest(),
        };
        let root = Root::new(id, policy, watch, settings, &mut self.metrics)?;
        self.roots.insert(id, root);
        calls::set_tick_period(TICK_MS)?;
        Ok(())
    }

    /// The watch of this cluster and log: the one that another configuration has, or a new one.
    fn watch_for(&mut self, control_plane: &ControlPlane, node: &str) -> Result<WatchId, HostError> {
        let mut watches = self.watches.iter();
        if let Some((id, _)) = watches.find(|(_, watch)| watch.control_plane == *control_plane) {
            return Ok(*id);
        }
        let settings = Settings {
            log_id: control_plane.log_id.clone(),
            node: node.to_owned(),
            max_subjects: control_plane.max_subjects,
            max_staleness: control_plane.max_staleness,
            ping_interval: control_plane.ping_interval,
        };
        let id = WatchId(self.next_watch);
        self.next_watch = self.next_watch.wrapping_add(1);
        let watch = WatchLine {
            control_plane: control_plane.clone(),
            watch: Watch::new(settings, calls::random()?),
            line: Line::new(&control_plane.cluster, "credence.v1.RevocationService", "Watch"),
        };
        self.watches.insert(id, watch);
        Ok(id)
    }

    /// `true` once a drained configuration has nothing left to do, and is gone.
    fn tick(&mut self, id: RootId) -> Result<bool, HostError> {
        let (now, random) = instant()?;
        let wall = calls::unix_time()?;
        let Some(root) = self.roots.get_mut(&id) else {
            return Ok(false);
        };
        let undecided = std::mem::take(&mut self.undecided).saturating_add(take_undecided());
        if undecided > 0 {
            root.clerk.note_undecided(undecided, &mut self.metrics);
        }
        if let Some(WatchLine { watch, line, .. }) = self.watches.get_mut(&root.watch) {
            if !root.is_draining() && line.is_free_for(id) {
                line.belongs_to(id);
                let actions = watch.on_tick(now, wall, random);
                line.carry_out(watch, actions, now, random);
            }
            root.settle_unready(now, watch, &mut self.metrics);
            root.share_chains(watch, wall);
            root.report_figures(watch, now, &mut self.metrics);
        }
        let is_finished = root.on_tick(now, wall, random, &mut self.metrics);
        if is_finished {
            root.withdraw_figures(&mut self.metrics);
        }
        self.metrics.flush(&mut HostMetrics)?;
        if is_finished {
            self.roots.remove(&id);
            // A view that no configuration relies on may be large.
            let roots = &self.roots;
            self.watches
                .retain(|watch, _| roots.values().any(|root| root.watch == *watch));
        }
        Ok(is_finished)
    }
}

/// Why a configuration without mistakes can not be served.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Ring(#[from] audit::RingError),
    #[error("the memory of used proofs in Envoy's shared data is not ours: give this plugin a vm_id of its own")]
    ReplayMemory,
}

/// The present, and a random number for whoever has to wait.
fn instant() -> Result<(Monotonic, u64), HostError> {
    Ok((calls::monotonic()?, u64::from_le_bytes(calls::random()?)))
}

fn text_property(path: &[&str]) -> Result<String, HostError> {
    Ok(calls::property(path)?
        .map(|value| String::from_utf8_lossy(&value).into_owned())
        .unwrap_or_default())
}

/// How often streams, aggregates and figures are looked after. An event waits at most this long for its batch.
const TICK_MS: u32 = 50;
