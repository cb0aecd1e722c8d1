//! Following one of the control plane's event streams: connects again by itself, and goes on where it was.

use std::io::BufReader;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::control_plane::{Client, StreamError};
use crate::events::{self, Event};
use crate::failure::{Failure, Outcome};
use crate::{stderr, terminal};

/// What is followed.
pub(crate) struct Stream {
    pub(crate) path: &'static str,
    pub(crate) parameters: Vec<(&'static str, String)>,
    /// The event behind which it begins; where there is one, it counts before what the parameters ask for.
    pub(crate) position: Option<String>,
}

/// What the thread that reads the stream has to say.
enum Said {
    Connected,
    Event(Event),
    /// Nothing can be read any more; the text says why.
    Broken(String),
    /// It will never be.
    Refused(Failure),
}

// === impl Stream ===

impl Stream {
    /// Hands every event to `visit`, until interrupted.
    pub(crate) fn follow(
        self,
        client: Client,
        visit: impl FnMut(&Event) -> Result<(), Failure>,
    ) -> Result<Outcome, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::operation(format!("the runtime cannot be started: {error}")))?;
        runtime.block_on(async {
            tokio::select! {
                interrupted = tokio::signal::ctrl_c() => interrupted
                    .map(|()| Outcome::Done)
                    .map_err(|error| Failure::operation(format!("signals cannot be received: {error}"))),
                followed = self.connect_again_and_again(Arc::new(client), visit) => followed,
            }
        })
    }

    async fn connect_again_and_again(
        mut self,
        client: Arc<Client>,
        mut visit: impl FnMut(&Event) -> Result<(), Failure>,
    ) -> Result<Outcome, Failure> {
        let mut backoff = FIRST_BACKOFF;
        let mut connected_before = false;
        loop {
            let mut said = self.read_in_background(Arc::clone(&client));
            let broken = loop {
                let Ok(next) = tokio::time::timeout(LONGEST_SILENCE, said.recv()).await else {
                    break format!("it has said nothing for {} s", LONGEST_SILENCE.as_secs());
                };
                match next {
                    Some(Said::Connected) => {
                        backoff = FIRST_BACKOFF;
                        if std::mem::replace(&mut connected_before, true) {
                            stderr::print("credence: connected again");
                        }
                    }
                    Some(Said::Event(event)) => {
                        visit(&event)?;
                        if event.id.is_some() {
                            self.position = event.id;
                        }
                    }
                    Some(Said::Refused(failure)) => return Err(failure),
                    Some(Said::Broken(why)) => break why,
                    None => break "the reading thread ended".to_owned(),
                }
            };
            let wait = backoff.as_secs();
            stderr::print(format_args!(
                "credence: not connected: {}; nothing is seen until it is back; trying again in {wait} s",
                terminal::printable(&broken)
            ));
            tokio::time::sleep(backoff).await;
            backoff = (backoff * 2).min(LAST_BACKOFF);
        }
    }

    /// Reads the stream in a thread of its own, which ends with the stream or when its receiver is gone.
    fn read_in_background(&self, client: Arc<Client>) -> mpsc::Receiver<Said> {
        let (sender, receiver) = mpsc::channel(EVENTS_IN_FLIGHT);
        let (path, parameters, position) = (self.path, self.parameters.clone(), self.position.clone());
        std::thread::spawn(move || {
            let stream = match client.stream(path, &parameters, position.as_deref()) {
                Ok(stream) => stream,
                Err(StreamError::Refused(failure)) => return drop(sender.blocking_send(Said::Refused(failure))),
                Err(StreamError::Unavailable(failure)) => {
                    return drop(sender.blocking_send(Said::Broken(failure.to_string())));
                }
            };
            let mut stream = BufReader::new(stream);
            let mut said = Said::Connected;
            while sender.blocking_send(said).is_ok() {
                said = match events::next(&mut stream) {
                    Ok(Some(event)) => Said::Event(event),
                    Ok(None) => return drop(sender.blocking_send(Said::Broken("the stream ended".to_owned()))),
                    Err(error) => return drop(sender.blocking_send(Said::Broken(error.to_string()))),
                };
            }
        });
        receiver
    }
}

const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const LAST_BACKOFF: Duration = Duration::from_secs(16);
/// The control plane says every second that it is there; connecting takes at most 10 s.
const LONGEST_SILENCE: Duration = Duration::from_secs(12);
const EVENTS_IN_FLIGHT: usize = 64;
