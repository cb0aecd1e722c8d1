//! The SDK's contexts, which Envoy calls.

use credence_decision::revocation::watch::MAX_MESSAGE_BYTES;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, BufferType};

use super::calls::{self, Envoy};
use crate::dispatch::{self, with_plugin};
use crate::host::{Flow, GrpcToken, Host as _, LogLevel, Plugin, RootId, StreamId};
use crate::plugin::{Vm, refuse};

proxy_wasm::main! {{
    dispatch::install(Box::new(Vm::new(Envoy)));
    proxy_wasm::set_root_context(|id| Box::new(Root(RootId(id))));
    proxy_wasm::set_http_context(|id, root| Box::new(Request { id: StreamId(id), root: RootId(root), is_refused: false }));
}}

/// A plugin configuration.
struct Root(RootId);

/// A request.
struct Request {
    id: StreamId,
    root: RootId,
    /// The filter refused it without a decision. Nothing of it may pass, even if it was not answered.
    is_refused: bool,
}

impl Context for Root {
    fn on_grpc_stream_message(&mut self, token: u32, size: usize) {
        calls::enter(self.0.0);
        // One byte more than the longest message, so that a larger one is refused without using more memory here.
        match calls::buffer(
            BufferType::GrpcReceiveBuffer,
            size.min(MAX_MESSAGE_BYTES.saturating_add(1)),
        ) {
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

    fn on_grpc_stream_close(&mut self, token: u32, status: u32) {
        calls::enter(self.0.0);
        with_plugin(|plugin| plugin.on_grpc_close(GrpcToken(token), status));
    }

    fn on_done(&mut self) -> bool {
        calls::enter(self.0.0);
        with_plugin(|plugin| plugin.on_drain(self.0)).unwrap_or(true)
    }
}

impl RootContext for Root {
    fn on_configure(&mut self, size: usize) -> bool {
        calls::enter(self.0.0);
        match calls::buffer(BufferType::PluginConfiguration, size) {
            Ok(configuration) => with_plugin(|plugin| plugin.on_configure(self.0, &configuration)).unwrap_or(false),
            Err(error) => {
                let message = format!("credence: the plugin configuration cannot be read: {error}");
                Envoy.log(LogLevel::Error, &message);
                false
            }
        }
    }

    fn on_tick(&mut self) {
        calls::enter(self.0.0);
        dispatch::on_tick(self.0);
    }
}

impl Context for Request {
    fn on_done(&mut self) -> bool {
        calls::enter(self.id.0);
        dispatch::on_stream_end(self.root, self.id);
        true
    }
}

impl HttpContext for Request {
    fn on_http_request_headers(&mut self, _headers: usize, end_of_stream: bool) -> Action {
        self.decide(|plugin, root, id| plugin.on_request_headers(root, id, end_of_stream))
    }

    fn on_http_request_body(&mut self, size: usize, end_of_stream: bool) -> Action {
        self.decide(|plugin, root, id| plugin.on_request_body(root, id, size, end_of_stream))
    }

    fn on_http_request_trailers(&mut self, _trailers: usize) -> Action {
        self.decide(|plugin, root, id| plugin.on_request_trailers(root, id))
    }
}

impl Request {
    fn decide(&mut self, decide: impl FnOnce(&mut dyn Plugin, RootId, StreamId) -> Flow) -> Action {
        calls::enter(self.id.0);
        if self.is_refused {
            return Action::Pause;
        }
        let flow = with_plugin(|plugin| decide(plugin, self.root, self.id)).unwrap_or_else(|| {
            self.is_refused = true;
            dispatch::note_undecided();
            refuse(&Envoy)
        });
        match flow {
            Flow::Continue => Action::Continue,
            Flow::Wait | Flow::Stop => Action::Pause,
        }
    }
}
