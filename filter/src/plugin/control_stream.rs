//! A gRPC stream to the control plane.

use std::collections::VecDeque;
use std::fmt::Display;

use credence_decision::clock::Monotonic;
use credence_decision::stream::{StreamAction, StreamHandler};

use crate::host::{GrpcToken, Host, HostError, LogLevel, RootId};

/// The stream of one handler, opened anew whenever the handler asks for it.
///
/// A stream belongs to the root context it was opened from, and everything about it has to be done from there.
pub(super) struct ControlStream<H> {
    host: H,
    cluster: String,
    service: &'static str,
    method: &'static str,
    /// The root context that looks after the stream.
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

    /// Whether `token` is the present stream. What arrives on any other is from the past.
    pub(super) fn is(&self, token: GrpcToken) -> bool {
        self.token == Some(token)
    }

    /// The present stream was ended by the other side.
    pub(super) fn on_close(&mut self, handler: &mut impl StreamHandler, now: Monotonic, status: u32, random: u64) {
        self.token = None;
        let actions = handler.on_close(now, status, random);
        self.carry_out(handler, actions, now, random);
    }

    /// The root context of this stream is about to end: the stream is closed, and another may take over.
    pub(super) fn hang_up(&mut self, handler: &mut impl StreamHandler, now: Monotonic, random: u64) {
        if self.token.is_some() {
            let actions = handler.on_close(now, CANCELLED, random);
            self.cancel();
            self.carry_out(handler, actions, now, random);
        }
        self.root = None;
    }

    /// Does what the handler wants, and what that leads to.
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
            // A stream that is gone already needs no cancelling.
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

/// gRPC statuses that are ours and not the control plane's.
const CANCELLED: u32 = 1;
const UNAVAILABLE: u32 = 14;
