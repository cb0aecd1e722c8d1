//! A gRPC stream to the control plane.

use std::collections::VecDeque;
use std::fmt::Display;

use credence_decision::clock::Monotonic;
use credence_decision::stream::{StreamAction, StreamHandler};

use crate::host::{GrpcToken, Host, HostError, LogLevel, RootId};

/// The stream of one handler, which reopens it when needed.
///
/// A stream belongs to the root context that opened it; all calls about it must come from there.
pub(super) struct ControlStream<H> {
    host: H,
    cluster: String,
    service: &'static str,
    method: &'static str,
    /// The root context that owns the stream.
    pub(super) root: Option<RootId>,
    token: Option<GrpcToken>,
}

impl<H: Host> ControlStream<H> {
    pub(super) fn new(host: H, cluster: &str, service: &'static str, method: &'static str) -> Self {
        Self {
            host,
            cluster: cluster.to_owned(),
            service,
            method,
            root: None,
            token: None,
        }
    }

    /// Whether `token` is the present stream. Messages of other streams are outdated.
    pub(super) fn is(&self, token: GrpcToken) -> bool {
        self.token == Some(token)
    }

    /// The peer ended the present stream.
    pub(super) fn on_close(&mut self, handler: &mut impl StreamHandler, now: Monotonic, status: u32, random: u64) {
        self.token = None;
        let actions = handler.on_close(now, status, random);
        self.carry_out(handler, actions, now, random);
    }

    /// The stream's root context is about to end: closes the stream, so that another context can open one. The handler
    /// is not told.
    pub(super) fn hang_up(&mut self) {
        self.cancel();
        self.root = None;
    }

    /// Carries out the handler's actions, and their consequences.
    pub(super) fn carry_out(
        &mut self,
        handler: &mut impl StreamHandler,
        actions: Vec<StreamAction>,
        now: Monotonic,
        random: u64,
    ) {
        let mut actions = VecDeque::from(actions);
        while let Some(action) = actions.pop_front() {
            match action {
                StreamAction::Open => match self.open() {
                    Ok(()) => actions.extend(handler.on_open(now)),
                    Err(error) => {
                        self.report(&format!(
                            "{} cannot be reached: {error}; is there a cluster of this name?",
                            self.cluster
                        ));
                        actions.extend(handler.on_close(now, UNAVAILABLE, random));
                    }
                },
                StreamAction::Send(message) => {
                    if let Err(error) = self.send(&message) {
                        self.report(&error);
                        self.cancel();
                        actions.clear();
                        actions.extend(handler.on_close(now, UNAVAILABLE, random));
                    }
                }
                StreamAction::Cancel => self.cancel(),
                StreamAction::Report(notice) => self.report(&notice),
            }
        }
    }

    fn open(&mut self) -> Result<(), HostError> {
        let token = self.in_root(|| self.host.open_stream(&self.cluster, self.service, self.method))?;
        self.token = Some(token);
        Ok(())
    }

    fn send(&mut self, message: &[u8]) -> Result<(), HostError> {
        match self.token {
            Some(token) => self.in_root(|| self.host.send(token, message)),
            None => Ok(()),
        }
    }

    fn cancel(&mut self) {
        if let Some(token) = self.token.take() {
            // A stream that has ended needs no reset.
            let _ = self.in_root(|| self.host.cancel(token));
        }
    }

    fn in_root<R>(&self, call: impl FnOnce() -> Result<R, HostError>) -> Result<R, HostError> {
        match self.root {
            Some(root) => self.host.in_root(root, call)?,
            None => call(),
        }
    }

    fn report(&self, notice: &impl Display) {
        self.host.log(LogLevel::Warn, &format!("credence: {notice}"));
    }
}

/// A gRPC status from the filter, not from the control plane.
const UNAVAILABLE: u32 = 14;
