//! `tools/list` without the tools that a delegation does not grant.
//!
//! Only the list is written anew; all other text stays as the server wrote it.

use credence_delegation::json::Json;
use serde_json::value::RawValue;

use crate::members::Members;

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
        Json::Array(_) => {
            let batch: Vec<&RawValue> = read(text)?;
            let written = batch.into_iter().map(|message| of_message(message.get(), is_granted));
            joined(written.collect::<Result<Vec<_>, _>>()?.iter().map(String::as_str), "[", "]")
        }
        _ => of_message(text, is_granted)?,
    };
    Ok(Some(written))
}

fn of_message(text: &str, is_granted: &dyn Fn(&str) -> bool) -> Result<String, Unreadable> {
    with_members(text, |name, value| match name {
        "result" => of_result(value, is_granted).map(Some),
        _ => Ok(None),
    })
}

fn of_result(text: &str, is_granted: &dyn Fn(&str) -> bool) -> Result<String, Unreadable> {
    // A result of another kind, such as null.
    if !text.starts_with('{') {
        return Ok(text.to_owned());
    }
    with_members(text, |name, value| match name {
        "tools" => of_tools(value, is_granted).map(Some),
        // What one principal may see is not for all.
        "cacheScope" => Ok(Some("\"private\"".to_owned())),
        _ => Ok(None),
    })
}

fn of_tools(text: &str, is_granted: &dyn Fn(&str) -> bool) -> Result<String, Unreadable> {
    let tools: Vec<&RawValue> = read(text)?;
    let is_shown = |tool: &&str| {
        let tool = Json::parse(tool.as_bytes());
        let name = tool.as_ref().ok().and_then(|tool| tool.as_object()?.text("name"));
        name.is_some_and(is_granted)
    };
    Ok(joined(tools.into_iter().map(RawValue::get).filter(is_shown), "[", "]"))
}

/// An object in which some members have the values that `change` returns.
fn with_members(
    text: &str,
    change: impl Fn(&str, &str) -> Result<Option<String>, Unreadable>,
) -> Result<String, Unreadable> {
    let Members(members) = read::<Members<&RawValue>>(text)?;
    let written = members.iter().map(|(name, value)| {
        let changed = change(name, value.get())?;
        let name = serde_json::to_string(name).map_err(|_| Unreadable)?;
        Ok([&name, ":", changed.as_deref().unwrap_or(value.get())].concat())
    });
    let written = written.collect::<Result<Vec<_>, _>>()?;
    Ok(joined(written.iter().map(String::as_str), "{", "}"))
}

fn read<'t, T: serde::Deserialize<'t>>(text: &'t str) -> Result<T, Unreadable> {
    serde_json::from_str(text).map_err(|_| Unreadable)
}

fn joined<'t>(parts: impl Iterator<Item = &'t str>, open: &str, close: &str) -> String {
    let mut joined = open.to_owned();
    for (index, part) in parts.enumerate() {
        if index > 0 {
            joined.push(',');
        }
        joined.push_str(part);
    }
    joined.push_str(close);
    joined
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
