//! `tools/list` without the tools that a delegation does not grant.
//!
//! Only the list is written anew; all other text stays as the server wrote it.

use credence_delegation::json::Json;
use serde_json::value::RawValue;

use crate::members::{Written, rewritten};

/// An answer that is no JSON-RPC message that could be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unreadable;

/// A message, or a batch, with only those tools that `is_granted` says. `None` if it lists no tools.
pub(super) fn granted(text: &[u8], is_granted: &dyn Fn(&str) -> bool) -> Result<Option<String>, Unreadable> {
    // Strict first: another parser might find a list where this one finds none.
    let json = Json::parse(text).map_err(|_| Unreadable)?;
    let lists = |json: &Json<'_>| {
        let result = json.as_object().and_then(|message| message.object("result"));
        result.is_some_and(|result| result.member("tools").is_some())
    };
    let messages: &[Json<'_>] = match &json {
        Json::Array(messages) => messages,
        message => std::slice::from_ref(message),
    };
    if !messages.iter().any(lists) {
        return Ok(None);
    }
    let text = std::str::from_utf8(text).map_err(|_| Unreadable)?;
    let written = match &json {
        Json::Array(_) => each(text, |message| of_message(message, is_granted).map(Some)),
        _ => of_message(text, is_granted),
    };
    written.map(Some).ok_or(Unreadable)
}

fn of_message(text: &str, is_granted: &dyn Fn(&str) -> bool) -> Option<String> {
    rewritten(text, |name, value| match name {
        // Not a result of another kind, such as null.
        "result" if value.starts_with('{') => of_result(value, is_granted).map(Written::As),
        _ => Some(Written::Same),
    })
}

fn of_result(text: &str, is_granted: &dyn Fn(&str) -> bool) -> Option<String> {
    rewritten(text, |name, value| match name {
        "tools" => of_tools(value, is_granted).map(Written::As),
        // What one principal may see is not for all.
        "cacheScope" => Some(Written::As("\"private\"".to_owned())),
        _ => Some(Written::Same),
    })
}

fn of_tools(text: &str, is_granted: &dyn Fn(&str) -> bool) -> Option<String> {
    each(text, |tool| {
        let json = Json::parse(tool.as_bytes()).ok()?;
        let name = json.as_object().and_then(|tool| tool.text("name"));
        Some(name.is_some_and(is_granted).then(|| tool.to_owned()))
    })
}

/// The text of an array, with what `change` says in place of each element. None if it is none, or if `change` fails.
fn each(text: &str, change: impl Fn(&str) -> Option<Option<String>>) -> Option<String> {
    let elements: Vec<&RawValue> = serde_json::from_str(text).ok()?;
    let changed = elements.into_iter().map(|element| change(element.get()));
    let kept: Vec<String> = changed.collect::<Option<Vec<_>>>()?.into_iter().flatten().collect();
    Some(["[", &kept.join(","), "]"].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only_a(text: &str) -> Result<Option<String>, Unreadable> {
        granted(text.as_bytes(), &|name| name == "a" || name == "ö")
    }

    #[test]
    fn only_granted_tools_stay_and_all_other_text_too() {
        let listed = r#"{"jsonrpc":"2.0","id":9007199254740993,"result":{"nextCursor":"x","ttlMs":1e3,
            "tools":[{"name":"a","inputSchema":{"const":1.50}},{"name":"b"},{"title":"a"},{"name":["a"]},7,{"name":"\u00f6"}],
            "cacheScope":"public"}}"#;
        let shown = r#"{"jsonrpc":"2.0","id":9007199254740993,"result":{"nextCursor":"x","ttlMs":1e3,"tools":[{"name":"a","inputSchema":{"const":1.50}},{"name":"\u00f6"}],"cacheScope":"private"}}"#;
        assert_eq!(only_a(listed), Ok(Some(shown.to_owned())));
    }

    #[test]
    fn each_message_of_a_batch_is_read() {
        let batch = r#"[{"id":1,"result":{"tools":[{"name":"b"}]}},{"id":2,"result":null},{"id":3,"result":{}}]"#;
        let shown = r#"[{"id":1,"result":{"tools":[]}},{"id":2,"result":null},{"id":3,"result":{}}]"#;
        assert_eq!(only_a(batch), Ok(Some(shown.to_owned())));
    }

    #[test]
    fn an_answer_without_a_list_stays_as_it_is() {
        for text in [
            "[]",
            "7",
            r#"{"id":1,"error":{"code":1,"message":"tools"}}"#,
            r#"{"id":1,"result":{"content":[{"tools":[{"name":"b"}]}]}}"#,
            r#"{"method":"notifications/tools/list_changed"}"#,
        ] {
            assert_eq!(only_a(text), Ok(None), "{text}");
        }
    }

    #[test]
    fn what_another_parser_could_read_otherwise_is_unreadable() {
        for text in [
            "",
            "{",
            r#"{"result":{"tools":[]},"result":{"tools":[{"name":"b"}]}}"#,
            r#"{"result":{"tools":{"name":"b"}}}"#,
            r#"{"result":{"tools":null}}"#,
            "{\"result\":{\"tools\":[{\"name\":\"b\"}]}} {}",
            "\u{feff}{\"result\":{\"tools\":[{\"name\":\"b\"}]}}",
        ] {
            assert_eq!(only_a(text), Err(Unreadable), "{text}");
        }
    }
}
