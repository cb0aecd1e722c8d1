//! An operator who revokes over the HTTP API, on a connection that is kept open.

use std::net::SocketAddr;
use std::time::{Duration, Instant};
use std::{fs, thread};

use serde::Deserialize;

use crate::control_plane::ControlPlane;
use crate::{Client, Failure, ISSUER, Reply, Request};

/// Whoever revokes.
#[derive(Debug)]
pub struct Operator {
    http: SocketAddr,
    token: String,
    client: Option<Client>,
}

#[derive(Deserialize)]
struct Answer {
    seq: u64,
}

/// When a revocation was asked for and answered.
#[derive(Debug, Clone, Copy)]
pub struct Acknowledged {
    /// Just before the first byte of the request that was acknowledged.
    pub began: Instant,
    /// Just after the last byte of the answer.
    pub at: Instant,
    /// Its number in the log.
    pub seq: u64,
}

impl Operator {
    /// The operator of this control plane, wherever it is restarted on these addresses.
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
        })
    }

    /// Raises the epoch of the person of that name at [`ISSUER`], and waits until that is confirmed: no filter allows
    /// anything any more that was granted before.
    ///
    /// # Errors
    /// If it was not confirmed, for whatever reason.
    pub fn raise(&mut self, subject: &str) -> Result<Acknowledged, Failure> {
        let began = Instant::now();
        let (seq, is_confirmed) = self.post(subject, "applied")?;
        let at = Instant::now();
        let at = if is_confirmed { at } else { self.confirmed(seq)? };
        Ok(Acknowledged { began, at, seq })
    }

    /// The same, but waits for no filter: it is durable, and on its way.
    ///
    /// # Errors
    /// If it was not acknowledged, for whatever reason.
    pub fn commit(&mut self, subject: &str) -> Result<Acknowledged, Failure> {
        let began = Instant::now();
        let (seq, _) = self.post(subject, "committed")?;
        let at = Instant::now();
        Ok(Acknowledged { began, at, seq })
    }

    /// Waits until what has this number in the log is confirmed, and says when that was known here.
    ///
    /// # Errors
    /// If it was not, for whatever reason.
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

    /// Raises again and again until it is confirmed, as callers are told to.
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

    /// Returns its number in the log, and whether it is confirmed.
    fn post(&mut self, subject: &str, wait: &str) -> Result<(u64, bool), Failure> {
        let body = format!(r#"{{"principal": {{"issuer": "{ISSUER}", "subject": "{subject}"}}}}"#);
        let request = Request::new("POST", &format!("/v1/revocations?wait={wait}")).json(body);
        let reply = self.ask(&request)?;
        let refused = || Failure::new(format!("revoking {subject} got {}: {}", reply.status, reply.text()));
        let answer: Answer = match reply.status {
            200 | 202 => serde_json::from_str(&reply.text()).map_err(|_| refused())?,
            _ => return Err(refused()),
        };
        Ok((answer.seq, reply.status == 200))
    }

    fn ask(&mut self, request: &Request) -> Result<Reply, Failure> {
        let request = request
            .clone()
            .header("authorization", format!("Bearer {}", self.token));
        let mut client = match self.client.take() {
            Some(client) => client,
            None => Client::connect(self.http)?,
        };
        let reply = client.send(&request)?;
        // A connection that failed is not used again.
        self.client = Some(client);
        Ok(reply)
    }
}

const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(50);
