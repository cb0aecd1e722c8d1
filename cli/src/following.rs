//! Follows one of the control plane's event streams. It reconnects, and continues where it was.

use std::io::BufReader;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::control_plane::{Client, ControlPlaneOptions, StreamError};
use crate::events::{self, Event};
use crate::failure::{Failure, Outcome};
use crate::{stderr, terminal};

/// The stream to follow.
pub(crate) struct Stream {
    pub(crate) path: &'static str,
    pub(crate) parameters: Vec<(&'static str, String)>,
    /// The event to continue after. If present, it takes precedence over `parameters`.
    pub(crate) position: Option<String>,
}

/// A message of the reading thread: `None` once it is connected, then each event.
type Said = Result<Option<Event>, StreamError>;

// === impl Stream ===

impl Stream {
    /// Passes every event to `visit`, until interrupted. Each connection shows the credential that the files hold then.
    pub(crate) fn follow(
        self,
        control_plane: &ControlPlaneOptions,
        visit: impl FnMut(&Event) -> Result<(), Failure>,
    ) -> Result<Outcome, Failure> {
        let first = control_plane.client()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::operation(format!("the runtime cannot be started: {error}")))?;
        runtime.block_on(async {
            tokio::select! {
                interrupted = tokio::signal::ctrl_c() => interrupted
                    .map(|()| Outcome::Done)
                    .map_err(|error| Failure::operation(format!("signals cannot be received: {error}"))),
                followed = self.connect_again_and_again(first, control_plane, visit) => followed,
            }
        })
    }

    async fn connect_again_and_again(
        mut self,
        first: Client,
        control_plane: &ControlPlaneOptions,
        mut visit: impl FnMut(&Event) -> Result<(), Failure>,
    ) -> Result<Outcome, Failure> {
        let mut backoff = FIRST_BACKOFF;
        let mut connected_before = false;
        let mut client = first;
        loop {
            let mut said = self.read_in_background(client);
            let broken = loop {
                let Ok(next) = tokio::time::timeout(LONGEST_SILENCE, said.recv()).await else {
                    break format!("it was silent for {} s", LONGEST_SILENCE.as_secs());
                };
                match next {
                    Some(Ok(None)) => {
                        backoff = FIRST_BACKOFF;
                        if std::mem::replace(&mut connected_before, true) {
                            stderr::print("credence: connected again");
                        }
                    }
                    Some(Ok(Some(event))) => {
                        visit(&event)?;
                        if event.id.is_some() {
                            self.position = event.id;
                        }
                    }
                    Some(Err(StreamError::Refused(failure))) => return Err(failure),
                    Some(Err(StreamError::Unavailable(failure))) => break failure.to_string(),
                    None => break "the reading thread has ended".to_owned(),
                }
            };
            let wait = backoff.as_secs();
            stderr::print(format_args!(
                "credence: not connected: {}; no events until it is back; trying again in {wait} s",
                terminal::printable(&broken)
            ));
            tokio::time::sleep(backoff).await;
            backoff = (backoff * 2).min(LAST_BACKOFF);
            client = control_plane.client()?;
        }
    }

    /// Reads the stream in a thread, which ends with the stream or when its receiver is dropped.
    fn read_in_background(&self, client: Client) -> mpsc::Receiver<Said> {
        let (sender, receiver) = mpsc::channel(EVENTS_IN_FLIGHT);
        let (path, parameters, position) = (self.path, self.parameters.clone(), self.position.clone());
        std::thread::spawn(move || {
            let read = || {
                let mut stream = BufReader::new(client.stream(path, &parameters, position.as_deref())?);
                let mut said = None;
                while sender.blocking_send(Ok(said)).is_ok() {
                    let event = events::next(&mut stream).map_err(|error| broken(error.to_string()))?;
                    said = Some(event.ok_or_else(|| broken("the stream ended".to_owned()))?);
                }
                Ok(())
            };
            if let Err(error) = read() {
                let _ = sender.blocking_send(Err(error));
            }
        });
        receiver
    }
}

fn broken(why: String) -> StreamError {
    StreamError::Unavailable(Failure::Operation(why))
}

const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const LAST_BACKOFF: Duration = Duration::from_secs(16);
/// The control plane sends a message every second; connecting takes at most 10 s.
const LONGEST_SILENCE: Duration = Duration::from_secs(12);
const EVENTS_IN_FLIGHT: usize = 64;
