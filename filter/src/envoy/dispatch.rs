//! Whose turn it is when Envoy calls.
//!
//! A call to Envoy may call back into the module before it returns: a cancelled stream reports its close, an opened
//! one its failure. The plugin is then in use. Such calls are put into a short queue and follow as soon as the plugin
//! is free, so that no code has to expect to be interrupted, and nothing can be borrowed twice.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use crate::host::{Flow, GrpcToken, Plugin, RootId, StreamId};

/// The most calls that wait for a busy plugin. A message beyond is dropped, which its stream's own sequence check
/// notices; a close beyond is noticed by the stream's watchdog.
pub(crate) const MAX_WAITING: usize = 64;

/// Makes `plugin` the one of this VM.
pub(crate) fn install(plugin: Box<dyn Plugin>) {
    PLUGIN.set(Some(plugin));
}

/// A context has begun: a root context if it has no parent, otherwise a request of that root context.
pub(crate) fn on_context_create(context: u32, parent: u32) {
    if parent != 0 {
        let mut roots = ROOTS.take();
        roots.insert(context, RootId(parent));
        ROOTS.set(roots);
    }
}

/// See [`Plugin::on_configure`]. Refused if the plugin is busy, which Envoy does not do.
pub(crate) fn on_configure(root: u32, configuration: &[u8]) -> bool {
    with_plugin(|plugin| plugin.on_configure(RootId(root), configuration)).unwrap_or(false)
}

/// See [`Plugin::on_tick`]. Passed over if the plugin is busy: the next one comes.
pub(crate) fn on_tick(root: u32) {
    with_plugin(|plugin| plugin.on_tick(RootId(root), UNDECIDED.take()));
}

/// See [`Plugin::on_request_headers`]. `None` if nobody could decide, and the request must be refused.
pub(crate) fn on_request_headers(context: u32, end_of_stream: bool) -> Option<Flow> {
    let decided = root_of(context)
        .and_then(|root| with_plugin(|plugin| plugin.on_request_headers(root, StreamId(context), end_of_stream)));
    if decided.is_none() {
        UNDECIDED.set(UNDECIDED.get().saturating_add(1));
    }
    decided
}

/// See [`Plugin::on_request_body`]. `None` if nobody could decide, and the request must be refused.
pub(crate) fn on_request_body(context: u32, size: usize, end_of_stream: bool) -> Option<Flow> {
    let root = root_of(context)?;
    with_plugin(|plugin| plugin.on_request_body(root, StreamId(context), size, end_of_stream))
}

/// See [`Plugin::on_request_trailers`]. `None` if the plugin is busy, which Envoy does not do.
pub(crate) fn on_request_trailers(context: u32) -> Option<Flow> {
    let root = root_of(context)?;
    with_plugin(|plugin| plugin.on_request_trailers(root, StreamId(context)))
}

/// See [`Plugin::on_grpc_message`].
pub(crate) fn on_grpc_message(token: u32, message: Vec<u8>) {
    deliver(Event::GrpcMessage(GrpcToken(token), message));
}

/// See [`Plugin::on_grpc_close`].
pub(crate) fn on_grpc_close(token: u32, status: u32) {
    deliver(Event::GrpcClose(GrpcToken(token), status));
}

/// A context is about to end. `true` lets it go.
pub(crate) fn on_done(context: u32) -> bool {
    let mut roots = ROOTS.take();
    let root = roots.remove(&context);
    ROOTS.set(roots);
    match root {
        Some(root) => {
            deliver(Event::StreamEnd(root, StreamId(context)));
            true
        }
        None => with_plugin(|plugin| plugin.on_drain(RootId(context))).unwrap_or(true),
    }
}

/// A call that can wait for a busy plugin.
#[derive(Debug)]
enum Event {
    GrpcMessage(GrpcToken, Vec<u8>),
    GrpcClose(GrpcToken, u32),
    StreamEnd(RootId, StreamId),
}

thread_local! {
    /// Empty while the plugin is in use.
    static PLUGIN: Cell<Option<Box<dyn Plugin>>> = const { Cell::new(None) };
    /// Requests that were refused since the last tick because the plugin was busy or did not know them.
    static UNDECIDED: Cell<u64> = const { Cell::new(0) };
    static WAITING: Cell<VecDeque<Event>> = const { Cell::new(VecDeque::new()) };
    /// The root context of each request.
    static ROOTS: Cell<Roots> = Cell::default();
}

/// The root context of a request.
fn root_of(context: u32) -> Option<RootId> {
    let roots = ROOTS.take();
    let root = roots.get(&context).copied();
    ROOTS.set(roots);
    root
}

/// Hands an event to the plugin, now or as soon as it is free.
fn deliver(event: Event) {
    let Some(mut plugin) = PLUGIN.take() else {
        let mut waiting = WAITING.take();
        if waiting.len() < MAX_WAITING {
            waiting.push_back(event);
        }
        WAITING.set(waiting);
        return;
    };
    event.reach(plugin.as_mut());
    release(plugin);
}

/// Gives the plugin the call it returns from; `None` if it is busy, or there is none.
fn with_plugin<R>(call: impl FnOnce(&mut dyn Plugin) -> R) -> Option<R> {
    let mut plugin = PLUGIN.take()?;
    let outcome = call(plugin.as_mut());
    release(plugin);
    Some(outcome)
}

/// The plugin is free, except for what has come in meanwhile.
fn release(mut plugin: Box<dyn Plugin>) {
    // An event may cause further ones. Should they never end, the rest waits for the next call.
    for _ in 0..MAX_WAITING {
        let mut waiting = WAITING.take();
        let next = waiting.pop_front();
        WAITING.set(waiting);
        match next {
            Some(event) => event.reach(plugin.as_mut()),
            None => break,
        }
    }
    PLUGIN.set(Some(plugin));
}

// === impl Event ===

impl Event {
    fn reach(self, plugin: &mut dyn Plugin) {
        match self {
            Self::GrpcMessage(token, message) => plugin.on_grpc_message(token, &message),
            Self::GrpcClose(token, status) => plugin.on_grpc_close(token, status),
            Self::StreamEnd(root, stream) => plugin.on_stream_end(root, stream),
        }
    }
}

type Roots = HashMap<u32, RootId, BuildHasherDefault<ContextHasher>>;

/// Envoy numbers contexts one after the other, and nobody else has a say in it: one multiplication spreads them.
#[derive(Debug, Default)]
struct ContextHasher(u64);

impl Hasher for ContextHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u32(&mut self, context: u32) {
        self.0 = u64::from(context).wrapping_mul(SPREAD);
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(SPREAD);
        }
    }
}

/// 2^64 divided by the golden ratio, odd.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    /// Writes down every call; what a call to Envoy would cause is caused by the tick.
    struct Recorder {
        calls: Rc<RefCell<Vec<String>>>,
        during_tick: fn(),
    }

    impl Recorder {
        fn install(during_tick: fn()) -> Rc<RefCell<Vec<String>>> {
            let calls = Rc::new(RefCell::new(Vec::new()));
            install(Box::new(Self {
                calls: calls.clone(),
                during_tick,
            }));
            calls
        }

        fn note(&self, call: &str) {
            self.calls.borrow_mut().push(call.to_owned());
        }
    }

    impl Plugin for Recorder {
        fn on_configure(&mut self, _root: RootId, configuration: &[u8]) -> bool {
            configuration == b"good"
        }

        fn on_tick(&mut self, _root: RootId, undecided: u64) {
            if undecided > 0 {
                self.note(&format!("{undecided} undecided"));
            }
            self.note("tick begins");
            (self.during_tick)();
            self.note("tick ends");
        }

        fn on_request_headers(&mut self, root: RootId, stream: StreamId, end_of_stream: bool) -> Flow {
            self.note(&format!("headers {} {}", root.0, stream.0));
            if end_of_stream { Flow::Continue } else { Flow::Hold }
        }

        fn on_request_body(&mut self, root: RootId, stream: StreamId, size: usize, end_of_stream: bool) -> Flow {
            self.note(&format!("body {} {} {size} {end_of_stream}", root.0, stream.0));
            Flow::AwaitBody
        }

        fn on_request_trailers(&mut self, root: RootId, stream: StreamId) -> Flow {
            self.note(&format!("trailers {} {}", root.0, stream.0));
            Flow::Pause
        }

        fn on_grpc_message(&mut self, token: GrpcToken, message: &[u8]) {
            self.note(&format!("message {} {message:?}", token.0));
        }

        fn on_grpc_close(&mut self, token: GrpcToken, status: u32) {
            self.note(&format!("close {} {status}", token.0));
        }

        fn on_stream_end(&mut self, root: RootId, stream: StreamId) {
            self.note(&format!("end {} {}", root.0, stream.0));
        }

        fn on_drain(&mut self, root: RootId) -> bool {
            self.note(&format!("drain {}", root.0));
            false
        }
    }

    #[test]
    fn a_request_knows_its_root_until_it_ends() {
        let calls = Recorder::install(|| ());
        on_context_create(1, 0);
        on_context_create(7, 1);
        on_context_create(9, 2);
        assert_eq!(on_request_headers(7, true), Some(Flow::Continue));
        assert_eq!(on_request_headers(9, false), Some(Flow::Hold));
        assert!(on_done(7));
        assert_eq!(*calls.borrow(), ["headers 1 7", "headers 2 9", "end 1 7"]);
        assert_eq!(on_request_headers(7, true), None);
    }

    #[test]
    fn bodies_and_trailers_reach_the_plugin_unless_it_is_busy() {
        let calls = Recorder::install(|| {
            assert_eq!(on_request_body(7, 1, false), None);
            assert_eq!(on_request_trailers(7), None);
        });
        on_context_create(7, 1);
        assert_eq!(on_request_body(7, 20, true), Some(Flow::AwaitBody));
        assert_eq!(on_request_trailers(7), Some(Flow::Pause));
        on_tick(1);
        assert_eq!(
            *calls.borrow(),
            ["body 1 7 20 true", "trailers 1 7", "tick begins", "tick ends"]
        );
    }

    #[test]
    fn a_request_of_no_known_context_is_not_decided() {
        Recorder::install(|| ());
        assert_eq!(on_request_headers(7, true), None);
        assert_eq!(on_request_body(7, 1, true), None);
        assert_eq!(on_request_trailers(7), None);
    }

    #[test]
    fn without_a_plugin_nothing_is_accepted() {
        on_context_create(7, 1);
        assert_eq!(on_request_headers(7, true), None);
        assert!(!on_configure(1, b"good"));
    }

    #[test]
    fn the_plugin_decides_about_its_configuration_and_its_end() {
        Recorder::install(|| ());
        assert!(on_configure(1, b"good"));
        assert!(!on_configure(1, b"bad"));
        assert!(!on_done(1), "a root context ends when it is drained");
    }

    #[test]
    fn calls_from_within_a_call_follow_in_order() {
        let calls = Recorder::install(|| {
            on_grpc_close(3, 14);
            on_grpc_message(4, vec![1]);
            on_context_create(9, 1);
            on_done(9);
        });
        on_tick(1);
        let expected = ["tick begins", "tick ends", "close 3 14", "message 4 [1]", "end 1 9"];
        assert_eq!(*calls.borrow(), expected);
    }

    #[test]
    fn a_request_from_within_a_call_is_refused() {
        let calls = Recorder::install(|| {
            on_context_create(9, 1);
            assert_eq!(on_request_headers(9, true), None);
            assert!(!on_configure(1, b"good"));
        });
        on_tick(1);
        assert_eq!(*calls.borrow(), ["tick begins", "tick ends"]);
        calls.borrow_mut().clear();
        on_tick(1);
        assert_eq!(
            calls.borrow().first().map(String::as_str),
            Some("1 undecided"),
            "and recorded"
        );
    }

    #[test]
    fn waiting_calls_are_bounded() {
        let calls = Recorder::install(|| {
            for _ in 0..MAX_WAITING * 2 {
                on_grpc_close(3, 14);
            }
        });
        on_tick(1);
        assert_eq!(calls.borrow().len(), 2 + MAX_WAITING);
    }
}
