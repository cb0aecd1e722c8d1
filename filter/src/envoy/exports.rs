//! The functions Envoy calls. Each export costs a VM call whenever its event happens, so that there are no others: in
//! particular `proxy_on_delete` and `proxy_on_log` are left out, because `proxy_on_done` comes before them for every
//! context.
#![allow(unsafe_code, reason = "the host finds exported functions by their plain names")]

use super::calls::{self, BufferType, Envoy};
use super::{abi, dispatch};
use crate::host::{Flow, Host as _, LocalResponse, LogLevel};
use crate::plugin::Vm;

/// Says which ABI this module speaks; never called.
#[unsafe(no_mangle)]
extern "C" fn proxy_abi_version_0_2_1() {}

/// Called before anything else: the VM gets its plugin.
#[unsafe(no_mangle)]
extern "C" fn _initialize() {
    dispatch::install(Box::new(Vm::new(Envoy)));
}

/// Envoy needs memory for the answer to a call.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_memory_allocate(size: usize) -> *mut u8 {
    abi::allocate_answer(size)
}

/// A context has begun.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_context_create(context: u32, parent: u32) {
    dispatch::on_context_create(context, parent);
}

/// The VM has started. Its configuration is not used.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_vm_start(_root: u32, _configuration_size: usize) -> u32 {
    YES
}

/// A plugin configuration has arrived.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_configure(root: u32, configuration_size: usize) -> u32 {
    calls::enter(root);
    match calls::buffer_bytes(BufferType::PluginConfiguration, configuration_size) {
        Ok(configuration) => u32::from(dispatch::on_configure(root, &configuration)),
        Err(error) => {
            Envoy.log(
                LogLevel::Error,
                &format!("the plugin configuration can not be read: {error}"),
            );
            NO
        }
    }
}

/// The tick period of a root context has passed.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_tick(root: u32) {
    calls::enter(root);
    dispatch::on_tick(root);
}

/// A request's headers are complete.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_request_headers(context: u32, _headers: u32, end_of_stream: u32) -> u32 {
    calls::enter(context);
    match dispatch::on_request_headers(context, end_of_stream != 0) {
        Some(Flow::Continue) => CONTINUE,
        Some(Flow::AwaitBody) => STOP_ITERATION,
        Some(Flow::Pause | Flow::Hold) => STOP_ALL,
        None => {
            refuse();
            STOP_ALL
        }
    }
}

/// A part of a request's body has arrived. Costs nothing where there is none.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_request_body(context: u32, size: usize, end_of_stream: u32) -> u32 {
    calls::enter(context);
    match dispatch::on_request_body(context, size, end_of_stream != 0) {
        Some(Flow::Continue) => CONTINUE,
        Some(Flow::AwaitBody) => STOP_AND_BUFFER,
        Some(Flow::Pause | Flow::Hold) => STOP_NO_BUFFER,
        None => {
            refuse();
            STOP_NO_BUFFER
        }
    }
}

/// A request's trailers are complete. Costs nothing where there are none.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_request_trailers(context: u32, _trailers: u32) -> u32 {
    calls::enter(context);
    match dispatch::on_request_trailers(context) {
        Some(Flow::Continue) => CONTINUE,
        // It stays where it is: it was answered, or ends with its timeout.
        Some(Flow::Pause | Flow::AwaitBody | Flow::Hold) | None => STOP_ITERATION,
    }
}

/// A message has arrived on a gRPC stream.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_grpc_receive(context: u32, token: u32, size: usize) {
    calls::enter(context);
    match calls::buffer_bytes(BufferType::GrpcMessage, size) {
        Ok(message) => dispatch::on_grpc_message(token, message),
        // The stream's own sequence check notices what is missing.
        Err(error) => Envoy.log(LogLevel::Error, &format!("a gRPC message can not be read: {error}")),
    }
}

/// A gRPC stream was ended by the other side, or could not be opened.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_grpc_close(context: u32, token: u32, status: u32) {
    calls::enter(context);
    dispatch::on_grpc_close(token, status);
}

/// A context is about to end.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_done(context: u32) -> u32 {
    calls::enter(context);
    u32::from(dispatch::on_done(context))
}

/// Answers a request that nobody could decide about.
fn refuse() {
    let response = LocalResponse {
        status: 503,
        details: "credence_undecided",
        headers: &[("content-type", "application/problem+json")],
        body: br#"{"type":"about:blank","status":503,"title":"Service Unavailable"}"#,
        grpc_status: None,
    };
    if let Err(error) = Envoy.answer(&response) {
        // The request stays paused: it fails by its timeout, and does not pass.
        Envoy.log(LogLevel::Error, &format!("a request could not be answered: {error}"));
    }
}

const NO: u32 = 0;
const YES: u32 = 1;

const CONTINUE: u32 = 0;
/// StopIteration for headers and trailers: no further filter sees them, and the body still comes here.
const STOP_ITERATION: u32 = 1;
/// StopIterationAndBuffer for a body: Envoy keeps it, and answers 413 by itself beyond its own limit.
const STOP_AND_BUFFER: u32 = 1;
/// StopIterationNoBuffer for a body: nobody needs it any more.
const STOP_NO_BUFFER: u32 = 3;
/// StopAllIterationAndWatermark for headers: whatever else of the request arrives does not make it go on.
const STOP_ALL: u32 = 4;
