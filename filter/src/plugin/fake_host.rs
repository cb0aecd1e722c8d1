//! A host for tests. It records the plugin's calls, and fails those that a test selects.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use credence_decision::answer::Answer;
use credence_decision::clock::{Monotonic, UnixNanos};
use credence_decision::metrics::{MetricKind, MetricSink};
use credence_decision::request::serialize_headers;
use credence_decision::shared_store::{SharedStore, StoreFailure, Version};

use super::meter::HostCall;
use crate::host::{GrpcToken, HeaderMap, Host, HostError, LogLevel, RootId, StreamId};

/// An effect that an operator, a client, a service or the control plane would notice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Removed(String),
    RemovedTrailer(String),
    Set(String, String),
    FilterState(String, String),
    Answered {
        status: u32,
        details: String,
        grpc_status: Option<u32>,
    },
    Continued,
    Reset,
    Opened(&'static str, GrpcToken),
    Cancelled(GrpcToken),
    Closed(GrpcToken),
    Done(RootId),
    TickPeriod(u32),
    Logged(LogLevel, String),
}

#[derive(Clone)]
pub(super) struct FakeHost(Rc<RefCell<State>>);

struct State {
    since_start: Duration,
    /// The context of the calls.
    context: u32,
    headers: BTreeMap<u32, Vec<(String, String)>>,
    trailers: BTreeMap<u32, Vec<(String, String)>>,
    responses: BTreeMap<u32, Response>,
    bodies: BTreeMap<u32, Vec<u8>>,
    properties: BTreeMap<String, Vec<u8>>,
    store: BTreeMap<String, (Vec<u8>, u32)>,
    tokens: u32,
    /// The functions that fail.
    refused: BTreeSet<&'static str>,
    effects: Vec<(u32, Effect)>,
    sent: Vec<(GrpcToken, Vec<u8>)>,
    metrics: Vec<String>,
    counted: BTreeMap<String, i64>,
    random: u8,
}

/// Headers, and the present piece of the body.
type Response = (Vec<(String, String)>, Vec<u8>);

/// When the fake host starts, in seconds since the Unix epoch.
pub(super) const START: i64 = 1_800_000_000;

impl FakeHost {
    pub(super) fn new() -> Self {
        Self(Rc::new(RefCell::new(State {
            since_start: Duration::from_secs(60),
            context: 0,
            headers: BTreeMap::new(),
            trailers: BTreeMap::new(),
            responses: BTreeMap::new(),
            bodies: BTreeMap::new(),
            properties: BTreeMap::new(),
            store: BTreeMap::new(),
            tokens: 0,
            refused: BTreeSet::new(),
            effects: Vec::new(),
            sent: Vec::new(),
            metrics: Vec::new(),
            counted: BTreeMap::new(),
            random: 0,
        })))
    }

    pub(super) fn wait(&self, time: Duration) {
        self.0.borrow_mut().since_start += time;
    }

    /// Sets the context of the following calls.
    pub(super) fn enter(&self, context: u32) {
        self.0.borrow_mut().context = context;
    }

    pub(super) fn set_headers(&self, stream: StreamId, headers: &[(&str, &str)]) {
        self.0.borrow_mut().headers.insert(stream.0, owned(headers));
    }

    pub(super) fn set_trailers(&self, stream: StreamId, trailers: &[(&str, &str)]) {
        self.0.borrow_mut().trailers.insert(stream.0, owned(trailers));
    }

    pub(super) fn set_body(&self, stream: StreamId, body: &[u8]) {
        self.0.borrow_mut().bodies.insert(stream.0, body.to_vec());
    }

    pub(super) fn set_response(&self, stream: StreamId, headers: &[(&str, &str)], piece: &[u8]) {
        let response = (owned(headers), piece.to_vec());
        self.0.borrow_mut().responses.insert(stream.0, response);
    }

    pub(super) fn set_property(&self, path: &[&str], value: &[u8]) {
        self.0.borrow_mut().properties.insert(path.join("."), value.to_vec());
    }

    /// Makes this function of the host fail from now on.
    pub(super) fn refuse(&self, call: &'static str) {
        self.0.borrow_mut().refused.insert(call);
    }

    /// Makes it work again.
    pub(super) fn accept(&self, call: &'static str) {
        self.0.borrow_mut().refused.remove(call);
    }

    /// The effects since the last call of this function, with their contexts.
    pub(super) fn effects(&self) -> Vec<(u32, Effect)> {
        std::mem::take(&mut self.0.borrow_mut().effects)
    }

    /// The messages sent since the last call of this function.
    pub(super) fn sent(&self) -> Vec<(GrpcToken, Vec<u8>)> {
        std::mem::take(&mut self.0.borrow_mut().sent)
    }

    pub(super) fn counted(&self, metric: &str) -> i64 {
        self.0.borrow().counted.get(metric).copied().unwrap_or_default()
    }

    fn does(&self, call: &'static str, effect: Effect) -> Result<(), HostError> {
        let mut state = self.0.borrow_mut();
        if state.refused.contains(call) {
            return Err(HostError { call, status: 2 });
        }
        let context = state.context;
        state.effects.push((context, effect));
        Ok(())
    }

    fn check(&self, call: &'static str) -> Result<(), HostError> {
        match self.0.borrow().refused.contains(call) {
            true => Err(HostError { call, status: 10 }),
            false => Ok(()),
        }
    }

    fn in_context<R>(&self, context: u32, calls: impl FnOnce() -> R) -> Result<R, HostError> {
        self.check("in_context")?;
        let previous = std::mem::replace(&mut self.0.borrow_mut().context, context);
        let outcome = calls();
        self.0.borrow_mut().context = previous;
        Ok(outcome)
    }
}

impl Host for FakeHost {
    fn monotonic(&self) -> Result<Monotonic, HostError> {
        let _call = HostCall::begin();
        self.check("monotonic")?;
        Ok(Monotonic::default().plus(self.0.borrow().since_start))
    }

    fn unix_time(&self) -> Result<UnixNanos, HostError> {
        let _call = HostCall::begin();
        self.check("unix_time")?;
        let start = Duration::from_secs(START as u64);
        let now = start + self.0.borrow().since_start - Duration::from_secs(60);
        Ok(UnixNanos(now.as_nanos() as u64))
    }

    fn random<const N: usize>(&self) -> Result<[u8; N], HostError> {
        let _call = HostCall::begin();
        self.check("random")?;
        let mut state = self.0.borrow_mut();
        state.random = state.random.wrapping_add(1);
        Ok([state.random; N])
    }

    fn log(&self, level: LogLevel, message: &str) {
        let _call = HostCall::begin();
        let _ = self.does("log", Effect::Logged(level, message.to_owned()));
    }

    fn memory_bytes(&self) -> u64 {
        1 << 20
    }

    fn set_tick_period(&self, milliseconds: u32) -> Result<(), HostError> {
        self.does("set_tick_period", Effect::TickPeriod(milliseconds))
    }

    fn header_map(&self, map: HeaderMap) -> Result<Vec<u8>, HostError> {
        let _call = HostCall::begin();
        self.check("header_map")?;
        let state = self.0.borrow();
        let headers = match map {
            HeaderMap::RequestHeaders => state.headers.get(&state.context),
            HeaderMap::RequestTrailers => state.trailers.get(&state.context),
            HeaderMap::ResponseHeaders => state.responses.get(&state.context).map(|(headers, _)| headers),
        };
        Ok(headers.map_or_else(Vec::new, |headers| serialize_headers(headers)))
    }

    fn set_header(&self, _map: HeaderMap, name: &str, value: &str) -> Result<(), HostError> {
        let _call = HostCall::begin();
        self.does("set_header", Effect::Set(name.to_owned(), value.to_owned()))
    }

    fn remove_header(&self, map: HeaderMap, name: &[u8]) -> Result<(), HostError> {
        let _call = HostCall::begin();
        let name = String::from_utf8_lossy(name).into_owned();
        self.does(
            "remove_header",
            match map {
                HeaderMap::RequestHeaders | HeaderMap::ResponseHeaders => Effect::Removed(name),
                HeaderMap::RequestTrailers => Effect::RemovedTrailer(name),
            },
        )
    }

    fn request_body(&self, max_size: usize) -> Result<Vec<u8>, HostError> {
        let _call = HostCall::begin();
        self.check("request_body")?;
        let state = self.0.borrow();
        let body = state.bodies.get(&state.context).cloned().unwrap_or_default();
        Ok(body.into_iter().take(max_size).collect())
    }

    fn replace_request_body(&self, body: &[u8]) -> Result<(), HostError> {
        let body = String::from_utf8_lossy(body).into_owned();
        self.does("replace_request_body", Effect::Set("body".to_owned(), body))
    }

    fn response_body(&self, size: usize) -> Result<Vec<u8>, HostError> {
        self.check("response_body")?;
        let state = self.0.borrow();
        let piece = state.responses.get(&state.context).map(|(_, piece)| piece.clone());
        Ok(piece.unwrap_or_default().into_iter().take(size).collect())
    }

    fn replace_response_body(&self, body: &[u8]) -> Result<(), HostError> {
        let body = String::from_utf8_lossy(body).into_owned();
        self.does("replace_response_body", Effect::Set("body".to_owned(), body))
    }

    fn reset_request(&self) -> Result<(), HostError> {
        self.does("reset_request", Effect::Reset)
    }

    fn property(&self, path: &[&str]) -> Result<Option<Vec<u8>>, HostError> {
        let _call = HostCall::begin();
        self.check("property")?;
        Ok(self.0.borrow().properties.get(&path.join(".")).cloned())
    }

    fn set_filter_state(&self, name: &str, value: &str) -> Result<(), HostError> {
        let _call = HostCall::begin();
        self.does(
            "set_filter_state",
            Effect::FilterState(name.to_owned(), value.to_owned()),
        )
    }

    fn answer(&self, answer: &Answer, details: &str) -> Result<(), HostError> {
        let _call = HostCall::begin();
        // To a client of MCP, it is in a JSON-RPC error.
        let types = ["application/problem+json", "application/json"];
        let is_problem = |(name, value): &(&str, String)| *name == "content-type" && types.contains(&value.as_str());
        assert_eq!(
            answer.headers.iter().any(is_problem),
            answer.grpc_status.is_none(),
            "HTTP clients get a problem, and its type"
        );
        assert!(!answer.body.is_empty());
        self.does(
            "answer",
            Effect::Answered {
                status: answer.status.into(),
                details: details.to_owned(),
                grpc_status: answer.grpc_status,
            },
        )
    }

    fn continue_request(&self) -> Result<(), HostError> {
        let _call = HostCall::begin();
        self.does("continue_request", Effect::Continued)
    }

    fn open_stream(&self, _cluster: &str, _service: &str, method: &str) -> Result<GrpcToken, HostError> {
        let _call = HostCall::begin();
        self.check("open_stream")?;
        let token = {
            let mut state = self.0.borrow_mut();
            state.tokens += 1;
            GrpcToken(state.tokens)
        };
        let method = if method == "Watch" { "Watch" } else { "Report" };
        self.does("open_stream", Effect::Opened(method, token))?;
        Ok(token)
    }

    fn send(&self, token: GrpcToken, message: &[u8]) -> Result<(), HostError> {
        let _call = HostCall::begin();
        self.check("send")?;
        self.0.borrow_mut().sent.push((token, message.to_vec()));
        Ok(())
    }

    fn cancel(&self, token: GrpcToken) -> Result<(), HostError> {
        let _call = HostCall::begin();
        self.does("cancel", Effect::Cancelled(token))
    }

    fn close(&self, token: GrpcToken) -> Result<(), HostError> {
        let _call = HostCall::begin();
        self.does("close", Effect::Closed(token))
    }

    fn done(&self, root: RootId) -> Result<(), HostError> {
        let _call = HostCall::begin();
        self.does("done", Effect::Done(root))
    }

    fn in_root<R>(&self, root: RootId, calls: impl FnOnce() -> R) -> Result<R, HostError> {
        self.in_context(root.0, calls)
    }

    fn in_stream<R>(&self, stream: StreamId, calls: impl FnOnce() -> R) -> Result<R, HostError> {
        self.in_context(stream.0, calls)
    }
}

impl SharedStore for FakeHost {
    fn read(&mut self, key: &str) -> Result<Option<(Vec<u8>, Version)>, StoreFailure> {
        let _call = HostCall::begin();
        self.check("read").map_err(|_| StoreFailure)?;
        let state = self.0.borrow();
        Ok(state
            .store
            .get(key)
            .map(|(value, version)| (value.clone(), Version(*version))))
    }

    fn write(&mut self, key: &str, value: &[u8], expected: Option<Version>) -> Result<bool, StoreFailure> {
        let _call = HostCall::begin();
        self.check("write").map_err(|_| StoreFailure)?;
        let mut state = self.0.borrow_mut();
        let version = state.store.get(key).map(|(_, version)| Version(*version));
        if version != expected {
            return Ok(false);
        }
        let next = version.map_or(1, |version| version.0 + 1);
        state.store.insert(key.to_owned(), (value.to_vec(), next));
        Ok(true)
    }
}

impl MetricSink for FakeHost {
    type Error = HostError;

    fn define(&mut self, _kind: MetricKind, name: &str) -> Result<u32, HostError> {
        let _call = HostCall::begin();
        self.check("define")?;
        let mut state = self.0.borrow_mut();
        state.metrics.push(name.to_owned());
        Ok(state.metrics.len() as u32 - 1)
    }

    fn increment(&mut self, id: u32, by: i64) -> Result<(), HostError> {
        let _call = HostCall::begin();
        let mut state = self.0.borrow_mut();
        let name = state.metrics[id as usize].clone();
        *state.counted.entry(name).or_default() += by;
        Ok(())
    }

    fn record(&mut self, _id: u32, _value: u64) -> Result<(), HostError> {
        let _call = HostCall::begin();
        Ok(())
    }
}

fn owned(headers: &[(&str, &str)]) -> Vec<(String, String)> {
    headers
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}
