//! One JSON-RPC message from a client, read strictly: what one parser ignores, another one may obey.

use credence_delegation::json::{Json, Object};

use crate::arguments::about;
use crate::decision::{Denial, Reason};

/// A message from a client to a server.
#[derive(Debug)]
pub(super) struct Message<'j> {
    pub(super) kind: Kind,
    /// The method. `responses` for an answer to a request of the server.
    pub(super) method: &'j str,
    pub(super) params: Option<&'j Object<'j>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Request,
    Notification,
    /// To a request of the server.
    Response,
}

/// The id of a request, as JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageId(String);

impl<'j> Message<'j> {
    /// Reads a message. `id` becomes that of a request as soon as it is known.
    ///
    /// # Errors
    /// [`Reason::McpMessageInvalid`], with the place.
    pub(super) fn read(json: &'j Json<'j>, id: &mut Option<MessageId>) -> Result<Self, Denial> {
        // Also a batch, which versions before 2025-06-18 allow.
        let object = json.as_object().ok_or_else(|| invalid(""))?;
        *id = MessageId::of(object)?;
        for (name, value) in object.iter() {
            let is_known = match name {
                "jsonrpc" => value.as_str() == Some("2.0"),
                "method" => value.as_str().is_some(),
                "params" => value.as_object().is_some(),
                "id" | "result" | "error" => true,
                _ => false,
            };
            if !is_known {
                return Err(invalid(&format!("/{name}")));
            }
        }
        if object.member("jsonrpc").is_none() {
            return Err(invalid("/jsonrpc"));
        }
        let (method, params) = (object.text("method"), object.object("params"));
        let has = |name| object.member(name).is_some();
        let (kind, method) = match (method, id.is_some()) {
            (Some(method), has_id) if !has("result") && !has("error") => {
                // A server may take one for the other.
                let is_notification = method.starts_with("notifications/");
                match (is_notification, has_id) {
                    (true, false) => (Kind::Notification, method),
                    (false, true) => (Kind::Request, method),
                    _ => return Err(invalid("/id")),
                }
            }
            (None, true) if has("result") != has("error") && !has("params") => (Kind::Response, RESPONSES),
            _ => return Err(invalid("")),
        };
        Ok(Self { kind, method, params })
    }

    /// The member of its metadata with this name.
    pub(super) fn meta(&self, name: &str) -> Option<&'j Json<'j>> {
        self.params?.object("_meta")?.member(name)
    }
}

impl MessageId {
    /// A string or an integer; a notification has none.
    fn of(object: &Object<'_>) -> Result<Option<Self>, Denial> {
        let text = match object.member("id") {
            None => return Ok(None),
            Some(Json::String(text)) => serde_json::to_string(text).ok(),
            Some(Json::Number(number)) => number.integer().map(|_| number.text().to_owned()),
            Some(_) => None,
        };
        let text = text.filter(|text| text.len() <= MAX_ID_BYTES);
        Ok(Some(Self(text.ok_or_else(|| invalid("/id"))?)))
    }

    /// The JSON text.
    pub fn json(&self) -> &str {
        &self.0
    }
}

pub(super) fn invalid(place: &str) -> Denial {
    about(Reason::McpMessageInvalid, place)
}

/// The name of all answers to requests of the server.
pub(super) const RESPONSES: &str = "responses";

/// Of an id, as JSON.
const MAX_ID_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Option<String>, Result<(Kind, String), String>) {
        let json = Json::parse(text.as_bytes()).unwrap();
        let mut id = None;
        let read = Message::read(&json, &mut id).map(|message| (message.kind, message.method.to_owned()));
        let read = read.map_err(|denial| {
            assert_eq!(denial.reason, Reason::McpMessageInvalid);
            denial.argument.unwrap()
        });
        (id.map(|id| id.0), read)
    }

    #[test]
    fn requests_notifications_and_responses_are_told_apart() {
        let cases = [
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
                "1",
                Kind::Request,
                "ping",
            ),
            (
                r#"{"method":"tools/call","params":{},"id":"a\"","jsonrpc":"2.0"}"#,
                r#""a\"""#,
                Kind::Request,
                "tools/call",
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
                "",
                Kind::Notification,
                "notifications/initialized",
            ),
            (
                r#"{"jsonrpc":"2.0","id":-7,"result":{}}"#,
                "-7",
                Kind::Response,
                "responses",
            ),
            (
                r#"{"jsonrpc":"2.0","id":0,"error":{}}"#,
                "0",
                Kind::Response,
                "responses",
            ),
        ];
        for (text, id, kind, method) in cases {
            let (found, read) = read(text);
            assert_eq!(found.unwrap_or_default(), id, "{text}");
            assert_eq!(read, Ok((kind, method.to_owned())), "{text}");
        }
    }

    #[test]
    fn anything_else_is_denied_with_its_place() {
        let long = format!(
            r#"{{"jsonrpc":"2.0","id":"{}","method":"ping"}}"#,
            "x".repeat(MAX_ID_BYTES)
        );
        let cases = [
            (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, ""),
            ("7", ""),
            ("{}", "/jsonrpc"),
            (r#"{"id":1,"method":"ping"}"#, "/jsonrpc"),
            (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, "/jsonrpc"),
            (r#"{"jsonrpc":2.0,"id":1,"method":"ping"}"#, "/jsonrpc"),
            (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, "/id"),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, "/id"),
            (r#"{"jsonrpc":"2.0","id":1e2,"method":"ping"}"#, "/id"),
            (r#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#, "/id"),
            (&long, "/id"),
            // A call that a server could run without answering it.
            (r#"{"jsonrpc":"2.0","method":"tools/call","params":{}}"#, "/id"),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"notifications/initialized"}"#,
                "/id",
            ),
            (r#"{"jsonrpc":"2.0","id":1,"method":["ping"]}"#, "/method"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#, "/params"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":null}"#, "/params"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping","Method":"x"}"#, "/Method"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}"#, ""),
            (r#"{"jsonrpc":"2.0","id":1}"#, ""),
            (r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#, ""),
            (r#"{"jsonrpc":"2.0","result":{}}"#, ""),
            (r#"{"jsonrpc":"2.0","id":1,"result":{},"params":{}}"#, ""),
        ];
        for (text, place) in cases {
            assert_eq!(read(text).1, Err(place.to_owned()), "{text}");
        }
    }
}
