//! What Envoy calls: the functions that the module exports (proxy-wasm ABI 0.2.1).
//!
//! Envoy never calls from two threads, but it may call during the filter's own call to Envoy: answering a request can end
//! it.
#![allow(unsafe_code, reason = "the functions are exported under the ABI's names")]

use std::cell::RefCell;

use credence_decision::revocation::watch::MAX_MESSAGE_BYTES;

use super::calls::{self, Envoy};
use super::raw::Buffer;
use crate::contexts::Contexts;
use crate::dispatch::{self, with_plugin};
use crate::host::{Flow, GrpcToken, Host as _, LogLevel, Plugin, RootId, StreamId};
use crate::plugin::{Vm, refuse};

thread_local! {
    static CONTEXTS: RefCell<Contexts> = RefCell::default();
}

/// Tells Envoy the version of the ABI; never called.
#[unsafe(no_mangle)]
extern "C" fn proxy_abi_version_0_2_1() {}

#[unsafe(no_mangle)]
extern "C" fn _initialize() {
    // Without it, the log has only numbers of functions.
    std::panic::set_hook(Box::new(|panic| {
        Envoy.log_error(format_args!("the filter stops: {panic}"))
    }));
    dispatch::install(Box::new(Vm::new(Envoy)));
}

/// A root context has no parent.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_context_create(context: u32, parent: u32) {
    if parent != 0 {
        contexts(|contexts| contexts.add(StreamId(context), RootId(parent)));
    }
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_vm_start(_root: u32, _configuration_size: usize) -> u32 {
    1
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_configure(root: u32, size: usize) -> u32 {
    let _entered = calls::enter(root);
    let accepted = match calls::buffer(Buffer::PluginConfiguration, size) {
        Ok(configuration) => with_plugin(|plugin| plugin.on_configure(RootId(root), &configuration)).unwrap_or(false),
        Err(error) => {
            Envoy.log_error(format_args!("the plugin configuration cannot be read: {error}"));
            false
        }
    };
    accepted.into()
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_tick(root: u32) {
    let _entered = calls::enter(root);
    dispatch::on_tick(RootId(root));
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_request_headers(context: u32, _headers: usize, end_of_stream: u32) -> u32 {
    decide(context, |plugin, root, id| {
        plugin.on_request_headers(root, id, end_of_stream != 0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_request_body(context: u32, size: usize, end_of_stream: u32) -> u32 {
    decide(context, |plugin, root, id| {
        plugin.on_request_body(root, id, size, end_of_stream != 0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_request_trailers(context: u32, _trailers: usize) -> u32 {
    decide(context, |plugin, root, id| plugin.on_request_trailers(root, id))
}

#[cfg(feature = "answers")]
#[unsafe(no_mangle)]
extern "C" fn proxy_on_response_headers(context: u32, _headers: usize, _end_of_stream: u32) -> u32 {
    pass(context, |plugin, root, id| {
        plugin.on_response_headers(root, id);
        Flow::Continue
    })
}

#[cfg(feature = "answers")]
#[unsafe(no_mangle)]
extern "C" fn proxy_on_response_body(context: u32, size: usize, end_of_stream: u32) -> u32 {
    pass(context, |plugin, root, id| {
        plugin.on_response_body(root, id, size, end_of_stream != 0)
    })
}

#[cfg(feature = "answers")]
#[unsafe(no_mangle)]
extern "C" fn proxy_on_response_trailers(context: u32, _trailers: usize) -> u32 {
    pass(context, |plugin, root, id| plugin.on_response_trailers(root, id))
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_grpc_receive(root: u32, token: u32, size: usize) {
    let _entered = calls::enter(root);
    // One byte more than the longest message, so that a larger one is refused without using more memory here.
    match calls::buffer(Buffer::GrpcMessage, size.min(MAX_MESSAGE_BYTES.saturating_add(1))) {
        Ok(message) => {
            with_plugin(|plugin| plugin.on_grpc_message(GrpcToken(token), &message));
        }
        // The stream's own sequence check detects the missing message.
        Err(error) => Envoy.log(
            LogLevel::Error,
            &format!("credence: a gRPC message cannot be read: {error}"),
        ),
    }
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_grpc_close(root: u32, token: u32, status: u32) {
    let _entered = calls::enter(root);
    with_plugin(|plugin| plugin.on_grpc_close(GrpcToken(token), status));
}

/// A request, or a root context, is about to end. Envoy calls it for requests that were reset, too.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_done(context: u32) -> u32 {
    let _entered = calls::enter(context);
    let may_end = match contexts(|contexts| contexts.remove(StreamId(context))) {
        Some(request) => {
            dispatch::on_stream_end(request.root, StreamId(context));
            true
        }
        None => with_plugin(|plugin| plugin.on_drain(RootId(context))).unwrap_or(true),
    };
    may_end.into()
}

/// An answer, unless it is one that the plugin itself gives in the present call.
#[cfg(feature = "answers")]
fn pass(context: u32, rewrite: impl FnOnce(&mut dyn Plugin, RootId, StreamId) -> Flow) -> u32 {
    let _entered = calls::enter(context);
    let id = StreamId(context);
    let request = contexts(|contexts| contexts.get(id));
    let flow = request.and_then(|request| with_plugin(|plugin| rewrite(plugin, request.root, id)));
    flow.unwrap_or(Flow::Continue).into()
}

fn decide(context: u32, decide: impl FnOnce(&mut dyn Plugin, RootId, StreamId) -> Flow) -> u32 {
    let _entered = calls::enter(context);
    let id = StreamId(context);
    let flow = match contexts(|contexts| contexts.get(id)) {
        Some(request) if !request.is_refused => with_plugin(|plugin| decide(plugin, request.root, id)),
        Some(_) => return Flow::Stop.into(),
        None => None,
    };
    let flow = flow.unwrap_or_else(|| {
        contexts(|contexts| contexts.refuse(id));
        dispatch::note_undecided();
        refuse(&Envoy)
    });
    flow.into()
}

impl From<Flow> for u32 {
    fn from(flow: Flow) -> Self {
        const CONTINUE: u32 = 0;
        const PAUSE: u32 = 1;
        match flow {
            Flow::Continue => CONTINUE,
            Flow::Wait | Flow::Stop => PAUSE,
        }
    }
}

/// The closure must not call Envoy, which may call back.
fn contexts<R>(change: impl FnOnce(&mut Contexts) -> R) -> R {
    CONTEXTS.with_borrow_mut(change)
}
