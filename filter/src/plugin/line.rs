//! A gRPC stream to the control plane.

use std::collections::VecDeque;
use std::fmt::Display;

use crate::host::calls::{self, HostError, LogLevel};
use crate::host::{GrpcToken, RootId};
use credence_decision::clock::Monotonic;
use credence_decision::revocation::{self, Watch};

/// The stream of one speaker, opened anew whenever the speaker asks for it.
///
/// A stream belongs to the root context it was opened from, and everything about it has to be done from there.
pub(super) struct Line {
    cluster: String,
    service: &'static str,
    method: &'static str,
    root: Option<RootId>,
    token: Option<GrpcToken>,
}

/// Whoever decides what is said on a line.
pub(super) trait Speaker {
    /// The stream is open.
    fn on_open(&mut self, now: Monotonic) -> Vec<Deed>;
    /// The stream could not be opened or has ended.
    fn on_close(&mut self, now: Monotonic, status: u32, random: u64) -> Vec<Deed>;
}

/// What a speaker wants done.
pub(super) enum Deed {
    Open,
    Send(Vec<u8>),
    Cancel,
    Report(String),
}

impl Line {
    pub(super) fn new(cluster: &str, service: &'static str, method: &'static str) -> Self {
        Self {
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

    pub(super) fn is_of(&self, root: RootId) -> bool {
        self.root == Some(root)
    }

    /// Whether this root context may look after the line: it does so already, or nobody does.
    pub(super) fn is_free_for(&self, root: RootId) -> bool {
        self.root.is_none_or(|owner| owner == root)
    }

    pub(super) fn belongs_to(&mut self, root: RootId) {
        self.root = Some(root);
    }

    /// The present stream has ended.
    pub(super) fn forget(&mut self) {
        self.token = None;
    }

    /// The root context of this line is about to end: the stream is closed, and another may take over.
    pub(super) fn hang_up(&mut self, speaker: &mut impl Speaker, now: Monotonic, random: u64) {
        if self.token.is_some() {
            let deeds = speaker.on_close(now, CANCELLED, random);
            self.cancel();
            self.carry_out(speaker, deeds, now, random);
        }
        self.root = None;
    }

    /// Does what the speaker wants, and what that leads to.
    pub(super) fn carry_out<D: Into<Deed>>(
        &mut self,
        speaker: &mut impl Speaker,
        deeds: Vec<D>,
        now: Monotonic,
        random: u64,
    ) {
        let mut deeds: VecDeque<Deed> = deeds.into_iter().map(Into::into).collect();
        while let Some(deed) = deeds.pop_front() {
            match deed {
                Deed::Open => match self.open() {
                    Ok(()) => deeds.extend(speaker.on_open(now)),
                    Err(error) => {
                        report(&format!(
                            "{} can not be reached: {error}; is there a cluster of this name?",
                            self.cluster
                        ));
                        deeds.extend(speaker.on_close(now, UNAVAILABLE, random));
                    }
                },
                Deed::Send(message) => {
                    if let Err(error) = self.send(&message) {
                        report(&error);
                        self.cancel();
                        deeds.clear();
                        deeds.extend(speaker.on_close(now, UNAVAILABLE, random));
                    }
                }
                Deed::Cancel => self.cancel(),
                Deed::Report(notice) => report(&notice),
            }
        }
    }

    fn open(&mut self) -> Result<(), HostError> {
        let token = self.in_root(|line| calls::grpc_stream(&line.cluster, line.service, line.method))?;
        self.token = Some(token);
        Ok(())
    }

    fn send(&mut self, message: &[u8]) -> Result<(), HostError> {
        match self.token {
            Some(token) => self.in_root(|_| calls::grpc_send(token, message)),
            None => Ok(()),
        }
    }

    fn cancel(&mut self) {
        if let Some(token) = self.token.take() {
            // A stream that is gone already needs no cancelling.
            let _ = self.in_root(|_| calls::grpc_cancel(token));
        }
    }

    fn in_root<R>(&self, call: impl FnOnce(&Self) -> Result<R, HostError>) -> Result<R, HostError> {
        match self.root {
            Some(root) => calls::in_root(root, || call(self))?,
            None => call(self),
        }
    }
}

fn report(notice: &impl Display) {
    calls::log(LogLevel::Warn, &format!("credence: {notice}"));
}

/// gRPC statuses that are ours and not the control plane's.
const CANCELLED: u32 = 1;
const UNAVAILABLE: u32 = 14;

impl Speaker for Watch {
    fn on_open(&mut self, now: Monotonic) -> Vec<Deed> {
        Watch::on_open(self, now).into_iter().map(Into::into).collect()
    }

    fn on_close(&mut self, now: Monotonic, status: u32, random: u64) -> Vec<Deed> {
        Watch::on_close(self, now, status, random)
            .into_iter()
            .map(Into::into)
            .collect()
    }
}

impl From<revocation::Action> for Deed {
    fn from(action: revocation::Action) -> Self {
        match action {
            revocation::Action::Open => Self::Open,
            revocation::Action::Send(message) => Self::Send(message),
            revocation::Action::Cancel => Self::Cancel,
            revocation::Action::Report(notice) => Self::Report(notice.to_string()),
        }
    }
}
