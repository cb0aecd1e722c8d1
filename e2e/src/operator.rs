//! An operator who revokes over the HTTP API, on a kept connection.

use std::net::SocketAddr;
use std::time::{Duration, Instant};
use std::{fs, thread};

use serde::Deserialize;

use crate::control_plane::ControlPlane;
use crate::{Client, Failure, ISSUER, Reply, Request, waiting};

/// The operator.
#[derive(Debug)]
pub struct Operator {
    http: SocketAddr,
    token: String,
    client: Option<Client>,
    patience: Duration,
}

#[derive(Deserialize)]
struct Answer {
    seq: u64,
    epoch: u64,
}

#[derive(Deserialize)]
struct State {
    epoch: u64,
}

/// The time of a revocation's request and of its answer.
#[derive(Debug, Clone, Copy)]
pub struct Acknowledged {
    /// Just before the first byte of the acknowledged request.
    pub began: Instant,
    /// Just after the last byte of the answer.
    pub at: Instant,
    /// Its sequence number in the log.
    pub seq: u64,
    /// The subject's epoch since then.
    pub epoch: u64,
}

/// What is done to a subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// What was granted so far is revoked.
    Raise,
    /// Nothing is allowed until it is enabled.
    Disable,
}

/// When the answer comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Once every filter has applied it.
    Applied,
    /// Once it is durable.
    Committed,
}

impl Operator {
    /// The operator of this control plane. Works across restarts on the same addresses.
    ///
    /// # Errors
    /// If the token cannot be read.
    pub fn of(control_plane: &ControlPlane) -> Result<Self, Failure> {
        let token = fs::read_to_string(control_plane.token_file());
        Ok(Self {
            http: control_plane.http(),
            token: token
                .map_err(Failure::of("reading the operator's token"))?
                .trim()
                .to_owned(),
            client: None,
            patience: waiting::PATIENCE,
        })
    }

    /// The same operator on a connection of its own.
    #[must_use]
    pub fn again(&self) -> Self {
        Self {
            http: self.http,
            token: self.token.clone(),
            client: None,
            patience: self.patience,
        }
    }

    /// The same operator, who waits no longer than this for an answer.
    #[must_use]
    pub fn patient_for(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Raises the epoch of this subject at [`ISSUER`], and waits for the confirmation that every filter denies the
    /// delegations issued before.
    ///
    /// # Errors
    /// If it was not confirmed.
    pub fn raise(&mut self, subject: &str) -> Result<Acknowledged, Failure> {
        self.revoke(subject, Action::Raise, Wait::Applied)
    }

    /// The same, but waits for no filter: the revocation is durable and will be sent.
    ///
    /// # Errors
    /// If it was not acknowledged.
    pub fn commit(&mut self, subject: &str) -> Result<Acknowledged, Failure> {
        self.revoke(subject, Action::Raise, Wait::Committed)
    }

    /// Does this to the subject, and waits for the answer.
    ///
    /// # Errors
    /// If it was not acknowledged.
    pub fn revoke(&mut self, subject: &str, action: Action, wait: Wait) -> Result<Acknowledged, Failure> {
        let began = Instant::now();
        let (Answer { seq, epoch }, is_confirmed) = self.post(subject, action, wait)?;
        let at = Instant::now();
        let at = match (wait, is_confirmed) {
            (Wait::Applied, false) => self.confirmed(seq)?,
            _ => at,
        };
        Ok(Acknowledged { began, at, seq, epoch })
    }

    /// Waits until the entry of this number is confirmed, and returns when the answer came.
    ///
    /// # Errors
    /// If it was not confirmed.
    pub fn confirmed(&mut self, seq: u64) -> Result<Instant, Failure> {
        loop {
            let reply = self.ask(&Request::get(&format!("/v1/revocations/{seq}")))?;
            match reply.status {
                200 => return Ok(Instant::now()),
                202 => {}
                status => {
                    let said = reply.text();
                    return Err(Failure::new(format!("revocation {seq} got {status}: {said}")));
                }
            }
        }
    }

    /// The epoch of this subject at [`ISSUER`], as the control plane knows it.
    ///
    /// # Errors
    /// If it does not say.
    pub fn epoch_of(&mut self, subject: &str) -> Result<u64, Failure> {
        let target = format!("/v1/principals?issuer={ISSUER}&subject={subject}");
        let reply = self.ask(&Request::get(&target))?;
        let answer: Result<State, _> = serde_json::from_slice(&reply.body);
        answer
            .map(|state| state.epoch)
            .map_err(Failure::of(format_args!("reading the state of {subject}")))
    }

    /// Repeats the revocation until it is confirmed, as the API asks callers to.
    ///
    /// # Errors
    /// If it is not within `limit`.
    pub fn raise_in_the_end(&mut self, subject: &str, limit: Duration) -> Result<Acknowledged, Failure> {
        let begun = Instant::now();
        loop {
            match self.raise(subject) {
                Err(_) if begun.elapsed() < limit => thread::sleep(BETWEEN_ATTEMPTS),
                outcome => return outcome,
            }
        }
    }

    /// Returns the answer, and whether it is confirmed.
    fn post(&mut self, subject: &str, action: Action, wait: Wait) -> Result<(Answer, bool), Failure> {
        let (action, wait) = (action.name(), wait.name());
        let body =
            format!(r#"{{"principal": {{"issuer": "{ISSUER}", "subject": "{subject}"}}, "action": "{action}"}}"#);
        let request = Request::new("POST", &format!("/v1/revocations?wait={wait}")).json(body);
        let reply = self.ask(&request)?;
        let refused = || Failure::new(format!("revoking {subject} got {}: {}", reply.status, reply.text()));
        let answer: Answer = match reply.status {
            200 | 202 => serde_json::from_str(&reply.text()).map_err(|_| refused())?,
            _ => return Err(refused()),
        };
        Ok((answer, reply.status == 200))
    }

    fn ask(&mut self, request: &Request) -> Result<Reply, Failure> {
        let request = request
            .clone()
            .header("authorization", format!("Bearer {}", self.token));
        let mut client = match self.client.take() {
            Some(client) => client,
            None => Client::connect_for(self.http, self.patience)?,
        };
        let reply = client.send(&request)?;
        // A failed connection is not used again.
        self.client = Some(client);
        Ok(reply)
    }
}

impl Action {
    fn name(self) -> &'static str {
        match self {
            Self::Raise => "raise",
            Self::Disable => "disable",
        }
    }
}

impl Wait {
    fn name(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Committed => "committed",
        }
    }
}

const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(50);
