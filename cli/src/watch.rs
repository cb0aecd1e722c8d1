//! `credence watch`

use std::io::{BufReader, Write};
use std::sync::Arc;
use std::time::Duration;

use credence_delegation::UnixTime;
use credence_delegation::json::{Json, Object};
use tokio::sync::mpsc;

use crate::control_plane::{Client, ControlPlaneOptions, StreamError};
use crate::events::{self, Event};
use crate::failure::{Failure, Outcome};
use crate::{clock, notice, words};

/// Follow the revocations as they happen, a line each, until interrupted. Connects again by itself, and goes on where
/// it was.
#[derive(Debug, clap::Args)]
pub(crate) struct Watch {
    #[command(flatten)]
    control_plane: ControlPlaneOptions,

    /// Begin with everything that is revoked at present.
    #[arg(long, conflicts_with = "since")]
    all: bool,

    /// Begin with what came after this event: the id that --json prints.
    #[arg(long, value_name = "ID")]
    since: Option<String>,

    /// Print a JSON object a line: {"event", "id" (where one can begin again), "data"}.
    #[arg(long)]
    json: bool,
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

impl Watch {
    pub(crate) fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        let client = Arc::new(self.control_plane.client()?);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::operation(format!("the runtime can not be started: {error}")))?;
        runtime.block_on(async {
            tokio::select! {
                interrupted = tokio::signal::ctrl_c() => interrupted
                    .map(|()| Outcome::Done)
                    .map_err(|error| Failure::operation(format!("signals can not be received: {error}"))),
                followed = self.follow(client, out) => followed,
            }
        })
    }

    async fn follow(&self, client: Arc<Client>, out: &mut impl Write) -> Result<Outcome, Failure> {
        let mut position = self.since.clone();
        let mut backoff = FIRST_BACKOFF;
        let mut connected_before = false;
        loop {
            let mut said = read_in_background(Arc::clone(&client), self.path(), position.clone());
            let broken = loop {
                let Ok(next) = tokio::time::timeout(LONGEST_SILENCE, said.recv()).await else {
                    break format!("it has said nothing for {} s", LONGEST_SILENCE.as_secs());
                };
                match next {
                    Some(Said::Connected) => {
                        backoff = FIRST_BACKOFF;
                        if std::mem::replace(&mut connected_before, true) {
                            notice::print("credence: connected again");
                        }
                    }
                    Some(Said::Event(event)) => {
                        self.print(&event, out)?;
                        if event.id.is_some() {
                            position = event.id;
                        }
                    }
                    Some(Said::Refused(failure)) => return Err(failure),
                    Some(Said::Broken(why)) => break why,
                    None => break "the reading thread ended".to_owned(),
                }
            };
            let wait = backoff.as_secs();
            notice::print(format_args!(
                "credence: not connected: {}; nothing is seen until it is back; trying again in {wait} s",
                words::printable(&broken)
            ));
            tokio::time::sleep(backoff).await;
            backoff = (backoff * 2).min(LAST_BACKOFF);
        }
    }

    /// The position, where there is one, goes before what the path asks for.
    fn path(&self) -> &'static str {
        if self.all {
            "/v1/revocations/stream"
        } else {
            "/v1/revocations/stream?from=now"
        }
    }

    fn print(&self, event: &Event, out: &mut impl Write) -> Result<(), Failure> {
        if self.json {
            // What the stream carries is JSON on one line already.
            if event.name != "alive" {
                let id = event
                    .id
                    .as_deref()
                    .map_or_else(String::new, |id| format!("\"id\":{},", serde_json::json!(id)));
                let name = serde_json::json!(event.name);
                writeln!(out, "{{\"event\":{name},{id}\"data\":{}}}", event.data)?;
            }
        } else if let Some(line) = line(event) {
            writeln!(out, "{line}")?;
        }
        out.flush()?;
        Ok(())
    }
}

/// Reads the stream in a thread of its own, which ends with the stream or when nobody listens any more.
fn read_in_background(client: Arc<Client>, path: &'static str, position: Option<String>) -> mpsc::Receiver<Said> {
    let (sender, receiver) = mpsc::channel(EVENTS_IN_FLIGHT);
    std::thread::spawn(move || {
        let stream = match client.stream(path, position.as_deref()) {
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

/// An event in words; none where there is nothing to say.
fn line(event: &Event) -> Option<String> {
    let json = Json::parse(event.data.as_bytes()).ok()?;
    let data = json.as_object()?;
    let seq = data.member("seq").map(words::value).unwrap_or_default();
    match event.name.as_str() {
        "record" => Some(format!("{seq}  {}", record(data))),
        "snapshot_begin" => {
            let records = data.member("records").map(words::value).unwrap_or_default();
            Some(format!("{seq}  the whole state, {records} records:"))
        }
        "snapshot_end" => Some(format!("{seq}  that was all; from here on as it happens")),
        "drain" => Some("the control plane stops as planned".to_owned()),
        _ => None,
    }
}

fn record(data: &Object<'_>) -> String {
    let subject = |name| data.member(name).and_then(Json::as_object);
    let text = |object: &Object<'_>, name| {
        let text = object.member(name).and_then(Json::as_str);
        text.map(words::printable).unwrap_or_default()
    };
    let whose = |object: &Object<'_>| match object.member("subject") {
        Some(_) => format!("{} at {}", text(object, "subject"), text(object, "issuer")),
        None => text(object, "issuer"),
    };
    let up_to = |object: &Object<'_>| {
        let instant = object.member("issued_up_to").and_then(Json::as_integer);
        instant
            .map(|seconds| clock::rfc3339(UnixTime(seconds)))
            .unwrap_or_default()
    };
    if let Some(principal) = subject("principal") {
        let epoch = principal.member("epoch").map(words::value).unwrap_or_default();
        let disabled = principal.member("disabled").and_then(Json::as_bool) == Some(true);
        let disabled = if disabled { ", disabled" } else { "" };
        format!("principal {}: epoch {epoch}{disabled}", whose(principal))
    } else if let Some(key) = subject("key") {
        format!("key {}", text(key, "thumbprint"))
    } else if let Some(floor) = subject("issuer") {
        format!(
            "issuer {}: all that was issued up to {}",
            text(floor, "issuer"),
            up_to(floor)
        )
    } else if let Some(delegation) = subject("delegation") {
        format!("delegation {} of {}", text(delegation, "id"), whose(delegation))
    } else if let Some(floor) = subject("log") {
        format!("every issuer: all that was issued up to {}", up_to(floor))
    } else {
        "of a kind that this version does not know".to_owned()
    }
}

const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const LAST_BACKOFF: Duration = Duration::from_secs(16);
/// The control plane says every second that it is there; connecting takes at most 10 s.
const LONGEST_SILENCE: Duration = Duration::from_secs(12);
const EVENTS_IN_FLIGHT: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_record_has_a_line() {
        for (data, expected) in [
            (
                r#"{"seq":7,"principal":{"issuer":"https://id","subject":"alice","epoch":9,"disabled":true}}"#,
                "7  principal alice at https://id: epoch 9, disabled",
            ),
            (r#"{"seq":8,"key":{"thumbprint":"t"}}"#, "8  key t"),
            (
                r#"{"seq":9,"issuer":{"issuer":"https://id","issued_up_to":0}}"#,
                "9  issuer https://id: all that was issued up to 1970-01-01T00:00:00Z",
            ),
            (
                r#"{"seq":9,"delegation":{"issuer":"https://id","id":"a\u001b"}}"#,
                "9  delegation a\\u{1b} of https://id",
            ),
        ] {
            let event = Event {
                id: None,
                name: "record".to_owned(),
                data: data.to_owned(),
            };
            assert_eq!(line(&event).as_deref(), Some(expected));
        }
    }
}
