//! `credence watch`

use std::io::Write;

use credence_delegation::UnixTime;
use credence_delegation::json::{Json, Object};

use crate::control_plane::ControlPlaneOptions;
use crate::events::Event;
use crate::failure::{Failure, Outcome};
use crate::following::Stream;
use crate::{clock, terminal};

/// Follow the revocations as they happen, one on each line, until interrupted. Reconnects, with the
/// credential that its files hold then, and continues where it was.
#[derive(Debug, clap::Args)]
pub(crate) struct Watch {
    #[command(flatten)]
    control_plane: ControlPlaneOptions,

    /// Begin with everything that is revoked now.
    #[arg(long, conflicts_with = "since")]
    all: bool,

    /// Begin after this event: an id that --json prints. The control plane refuses an id that its log does not know, as
    /// after a restore from a backup; then begin with --all.
    #[arg(long, value_name = "ID")]
    since: Option<String>,

    /// Print one JSON object on each line: {"event", "id" (a position for --since), "data"}.
    #[arg(long)]
    json: bool,
}

impl Watch {
    pub(crate) fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        let from_now = ("from", "now".to_owned());
        let stream = Stream {
            path: "/v1/revocations/stream",
            parameters: if self.all { Vec::new() } else { vec![from_now] },
            position: self.since.clone(),
        };
        stream.follow(&self.control_plane, |event| self.print(event, out))
    }

    fn print(&self, event: &Event, out: &mut impl Write) -> Result<(), Failure> {
        if self.json {
            // The data of an event is JSON on one line.
            if event.name != "alive" {
                let id = event
                    .id
                    .as_deref()
                    .map_or_else(String::new, |id| format!("\"id\":{},", serde_json::json!(id)));
                let name = serde_json::json!(event.name);
                let data = terminal::printable_json(&event.data);
                writeln!(out, "{{\"event\":{name},{id}\"data\":{data}}}")?;
            }
        } else if let Some(line) = line(event) {
            writeln!(out, "{line}")?;
        }
        out.flush()?;
        Ok(())
    }
}

/// An event as text; `None` if there is nothing to print.
fn line(event: &Event) -> Option<String> {
    let json = Json::parse(event.data.as_bytes()).ok()?;
    let data = json.as_object()?;
    let seq = data.member("seq").map(terminal::value).unwrap_or_default();
    match event.name.as_str() {
        "record" => Some(format!("{seq}  {}", record(data))),
        "snapshot_begin" => {
            let records = data.member("records").map(terminal::value).unwrap_or_default();
            Some(format!("{seq}  the whole state, {records} records:"))
        }
        "snapshot_end" => Some(format!("{seq}  end of the state; new revocations follow")),
        "drain" => Some("planned stop of the control plane".to_owned()),
        _ => None,
    }
}

fn record(data: &Object<'_>) -> String {
    let subject = |name| data.object(name);
    let text = |object: &Object<'_>, name| object.text(name).map(terminal::printable).unwrap_or_default();
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
        let epoch = principal.member("epoch").map(terminal::value).unwrap_or_default();
        let disabled = principal.member("disabled").and_then(Json::as_bool) == Some(true);
        let disabled = if disabled { ", disabled" } else { "" };
        format!("principal {}: epoch {epoch}{disabled}", whose(principal))
    } else if let Some(key) = subject("key") {
        format!("key {}", text(key, "thumbprint"))
    } else if let Some(floor) = subject("issuer") {
        format!(
            "issuer {}: everything issued up to {}",
            text(floor, "issuer"),
            up_to(floor)
        )
    } else if let Some(delegation) = subject("delegation") {
        let above = delegation.member("under").and_then(Json::as_array).unwrap_or_default();
        let above = above.iter().filter_map(Json::as_str).map(terminal::printable);
        let path: Vec<_> = above.chain([text(delegation, "id")]).collect();
        format!("delegation {} of {}", path.join(" > "), whose(delegation))
    } else if let Some(floor) = subject("log") {
        format!("every issuer: everything issued up to {}", up_to(floor))
    } else {
        "of a kind unknown to this version".to_owned()
    }
}

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
                "9  issuer https://id: everything issued up to 1970-01-01T00:00:00Z",
            ),
            (
                r#"{"seq":9,"delegation":{"issuer":"https://id","id":"a\u001b"}}"#,
                "9  delegation a\\u{1b} of https://id",
            ),
            (
                r#"{"seq":9,"delegation":{"issuer":"https://id","id":"leaf","under":["root","m\u001b"]}}"#,
                "9  delegation root > m\\u{1b} > leaf of https://id",
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
