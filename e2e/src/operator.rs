//! An operator who revokes over the HTTP API, on a connection that is kept open.

use std::net::SocketAddr;
use std::time::{Duration, Instant};
use std::{fs, thread};

use crate::control_plane::ControlPlane;
use crate::{Client, Failure, ISSUER, Reply, Request};

/// Whoever revokes.
#[derive(Debug)]
pub struct Operator {
    http: SocketAddr,
    token: String,
    client: Option<Client>,
}

/// When a revocation was asked for and acknowledged.
#[derive(Debug, Clone, Copy)]
pub struct Acknowledged {
    /// Just before the first byte of the request that was acknowledged.
    pub began: Instant,
    /// Just after the last byte of the answer.
    pub at: Instant,
}

impl Operator {
    /// The operator of this control plane, wherever it is restarted on these addresses.
    ///
    /// # Errors
    /// If the token can not be read.
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

    /// Raises the epoch of the person of that name at [`ISSUER`].
    ///
    /// # Errors
    /// If it was not acknowledged, for whatever reason.
    pub fn raise(&mut self, subject: &str) -> Result<Acknowledged, Failure> {
        let body = format!(r#"{{"principal": {{"issuer": "{ISSUER}", "subject": "{subject}"}}}}"#);
        let (reply, acknowledged) = self.ask(body)?;
        match reply.status {
            200 => Ok(acknowledged),
            status => Err(Failure::new(format!(
                "revoking {subject} got {status}: {}",
                reply.text()
            ))),
        }
    }

    /// Raises again and again until it is acknowledged, as callers are told to.
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

    fn ask(&mut self, body: String) -> Result<(Reply, Acknowledged), Failure> {
        let request = Request::new("POST", "/v1/revocations")
            .header("authorization", format!("Bearer {}", self.token))
            .json(body);
        let mut client = match self.client.take() {
            Some(client) => client,
            None => Client::connect(self.http)?,
        };
        let began = Instant::now();
        let reply = client.send(&request)?;
        let at = Instant::now();
        // A connection that failed is not used again.
        self.client = Some(client);
        Ok((reply, Acknowledged { began, at }))
    }
}

const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(50);
