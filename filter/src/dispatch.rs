//! The plugin of this VM, and the order of Envoy's calls.
//!
//! A call to Envoy may end a request before it returns, and Envoy reports that at once, while the plugin is in use.
//! Such ends wait in a queue until the plugin is free, so that nothing is borrowed twice.

use std::cell::Cell;

use crate::host::{Plugin, RootId, StreamId};

thread_local! {
    /// Empty while the plugin is in use.
    static PLUGIN: Cell<Option<Box<dyn Plugin>>> = const { Cell::new(None) };
    /// Requests that ended while the plugin was in use.
    static ENDED: Cell<Vec<(RootId, StreamId)>> = const { Cell::new(Vec::new()) };
    /// Requests that were refused since the last tick because the plugin was in use, or because their context is unknown.
    static UNDECIDED: Cell<u64> = const { Cell::new(0) };
}

/// Installs the plugin of this VM.
pub(crate) fn install(plugin: Box<dyn Plugin>) {
    PLUGIN.set(Some(plugin));
}

/// Calls the plugin; `None` if it is in use, or if there is none.
pub(crate) fn with_plugin<R>(call: impl FnOnce(&mut dyn Plugin) -> R) -> Option<R> {
    let mut plugin = PLUGIN.take()?;
    let outcome = call(plugin.as_mut());
    // Handling the end of a request may end other ones.
    loop {
        let ended = ENDED.take();
        if ended.is_empty() {
            break;
        }
        for (root, stream) in ended {
            plugin.on_stream_end(root, stream);
        }
    }
    PLUGIN.set(Some(plugin));
    Some(outcome)
}

/// The tick period of a root context has passed. Skipped if the plugin is in use: the next tick follows.
pub(crate) fn on_tick(root: RootId) {
    with_plugin(|plugin| plugin.on_tick(root, UNDECIDED.take()));
}

/// A request was refused because the plugin was in use, or because its context is unknown.
pub(crate) fn note_undecided() {
    UNDECIDED.set(UNDECIDED.get().saturating_add(1));
}

/// A request has ended, possibly during a call of the plugin.
pub(crate) fn on_stream_end(root: RootId, stream: StreamId) {
    if with_plugin(|plugin| plugin.on_stream_end(root, stream)).is_none() {
        let mut ended = ENDED.take();
        ended.push((root, stream));
        ENDED.set(ended);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;
    use crate::host::{Flow, GrpcToken};

    /// Records every call. During a tick it calls `during_tick`, as Envoy may call back.
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
        fn on_configure(&mut self, _root: RootId, _configuration: &[u8]) -> bool {
            true
        }

        fn on_tick(&mut self, _root: RootId, undecided: u64) {
            self.note(&format!("tick begins, {undecided} undecided"));
            (self.during_tick)();
            self.note("tick ends");
        }

        fn on_request_headers(&mut self, root: RootId, stream: StreamId, _end_of_stream: bool) -> Flow {
            self.note(&format!("headers {} {}", root.0, stream.0));
            Flow::Continue
        }

        fn on_request_body(&mut self, _: RootId, _: StreamId, _size: usize, _end_of_stream: bool) -> Flow {
            Flow::Continue
        }

        fn on_request_trailers(&mut self, _root: RootId, _stream: StreamId) -> Flow {
            Flow::Continue
        }

        fn on_response_headers(&mut self, _root: RootId, _stream: StreamId) {}

        fn on_response_body(&mut self, _: RootId, _: StreamId, _size: usize, _end_of_stream: bool) -> Flow {
            Flow::Continue
        }

        fn on_response_trailers(&mut self, _root: RootId, _stream: StreamId) -> Flow {
            Flow::Continue
        }

        fn on_grpc_message(&mut self, _token: GrpcToken, _message: &[u8]) {}

        fn on_grpc_close(&mut self, _token: GrpcToken, _status: u32) {}

        fn on_stream_end(&mut self, root: RootId, stream: StreamId) {
            self.note(&format!("end {} {}", root.0, stream.0));
            if stream == StreamId(9) {
                on_stream_end(root, StreamId(10));
            }
        }

        fn on_drain(&mut self, _root: RootId) -> bool {
            true
        }
    }

    fn headers() -> Option<Flow> {
        with_plugin(|plugin| plugin.on_request_headers(RootId(1), StreamId(7), true))
    }

    #[test]
    fn without_a_plugin_no_request_is_decided() {
        assert_eq!(headers(), None);
    }

    #[test]
    fn ends_during_a_call_follow_in_order() {
        let calls = Recorder::install(|| {
            on_stream_end(RootId(1), StreamId(8));
            on_stream_end(RootId(1), StreamId(9));
        });
        on_tick(RootId(1));
        let expected = [
            "tick begins, 0 undecided",
            "tick ends",
            "end 1 8",
            "end 1 9",
            "end 1 10",
        ];
        assert_eq!(*calls.borrow(), expected);
    }

    #[test]
    fn a_request_during_a_call_is_not_decided_and_is_counted() {
        let calls = Recorder::install(|| {
            assert_eq!(headers(), None);
            note_undecided();
        });
        on_tick(RootId(1));
        calls.borrow_mut().clear();
        on_tick(RootId(1));
        assert_eq!(
            calls.borrow().first().map(String::as_str),
            Some("tick begins, 1 undecided")
        );
        assert_eq!(headers(), Some(Flow::Continue));
    }
}
