//! Constraints in words, and foreign text made fit for a terminal.

use std::borrow::Cow;

use credence_delegation::canonicalize;
use credence_delegation::json::{Json, Object};

/// Says what an argument may be under a constraint that nobody has verified: any JSON at all.
pub(crate) fn constraint(json: &Json<'_>) -> String {
    let Some(object) = json.as_object() else {
        return not_a_constraint(json);
    };
    let member = |name: &str| object.member(name);
    let known = match member("constraint_type").and_then(Json::as_str) {
        Some("exact") => member("value").map(|exact| format!("is exactly {}", value(exact))),
        Some("range") => Some(range(object)),
        Some("one_of") => list(member("values")).map(|values| format!("is one of {values}")),
        Some("not_one_of") => list(member("excluded")).map(|values| format!("is anything but {values}")),
        Some("contains") => list(member("required")).map(|values| format!("is a list that has {values}")),
        Some("subset") => list(member("allowed")).map(|values| format!("is a list of nothing but {values}")),
        Some("wildcard") => Some("is anything".to_owned()),
        Some("all") => clauses(member("constraints"), " and "),
        Some("any") => clauses(member("constraints"), " or "),
        Some(_) | None => None,
    };
    known.unwrap_or_else(|| not_a_constraint(json))
}

/// A JSON value on one line of a terminal.
pub(crate) fn value(json: &Json<'_>) -> String {
    canonicalize(json).map_or_else(|| "a number that is too large".to_owned(), |text| printable(&text))
}

/// Text from elsewhere without what could control a terminal or reorder what it shows.
pub(crate) fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if matches!(character, '"' | '\'' | '\\') {
            out.push(character);
        } else {
            out.extend(character.escape_debug());
        }
    }
    out
}

/// JSON text that means the same and can not control a terminal or reorder what it shows. What could stands within strings,
/// where an escape may take its place; JSON itself has only those below U+0020 escaped.
pub(crate) fn printable_json(text: &str) -> Cow<'_, str> {
    let is_control = |character: char| {
        matches!(
            character,
            '\u{7f}'..='\u{9f}' | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
    };
    if !text.chars().any(is_control) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 64);
    for character in text.chars() {
        match is_control(character) {
            true => out.push_str(&format!("\\u{:04x}", u32::from(character))),
            false => out.push(character),
        }
    }
    Cow::Owned(out)
}

/// A message that quotes foreign text, of which each long word is cut, and the whole after a thousand characters: a
/// number or a name may fill megabytes.
pub(crate) fn shortened(message: &str) -> String {
    let mut out = String::new();
    let mut word = 0;
    for (index, character) in message.chars().enumerate() {
        if index == MOST_OF_A_MESSAGE {
            out.push('…');
            break;
        }
        word = if character.is_whitespace() { 0 } else { word + 1 };
        match word {
            ..=MOST_OF_A_WORD => out.push(character),
            CUT => out.push('…'),
            _ => {}
        }
    }
    out
}

fn range(object: &Object<'_>) -> String {
    let bound = |name: &str, inclusive: &str, words: (&str, &str)| {
        let exclusive = object.member(inclusive).and_then(Json::as_bool) == Some(false);
        object
            .member(name)
            .map(|bound| format!("{} {}", if exclusive { words.1 } else { words.0 }, value(bound)))
    };
    let min = bound("min", "min_inclusive", ("at least", "more than"));
    let max = bound("max", "max_inclusive", ("at most", "less than"));
    match (min, max) {
        (Some(min), Some(max)) => format!("is a number, {min} and {max}"),
        (Some(one), None) | (None, Some(one)) => format!("is a number, {one}"),
        (None, None) => "is a number".to_owned(),
    }
}

fn list(values: Option<&Json<'_>>) -> Option<String> {
    let values: Vec<_> = values?.as_array()?.iter().map(value).collect();
    Some(if values.is_empty() {
        "nothing".to_owned()
    } else {
        values.join(", ")
    })
}

fn clauses(clauses: Option<&Json<'_>>, word: &str) -> Option<String> {
    let clauses: Vec<_> = clauses?.as_array()?.iter().map(constraint).collect();
    Some(if clauses.len() == 1 {
        clauses.join(word)
    } else {
        format!("({})", clauses.join(word))
    })
}

fn not_a_constraint(json: &Json<'_>) -> String {
    format!(
        "has no constraint that verifiers know, so the token is denied: {}",
        value(json)
    )
}

/// Characters of a word that are shown: the thumbprint of a key as a URI (RFC 9278) has 87.
const MOST_OF_A_WORD: usize = 100;
const CUT: usize = MOST_OF_A_WORD + 1;

/// Characters of a message, whatever it quotes.
const MOST_OF_A_MESSAGE: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> String {
        constraint(&Json::parse(text.as_bytes()).unwrap())
    }

    #[test]
    fn every_constraint_has_its_words() {
        for (text, expected) in [
            (r#"{"constraint_type":"exact","value":"pdf"}"#, r#"is exactly "pdf""#),
            (
                r#"{"constraint_type":"range","min":1,"max":9,"max_inclusive":false}"#,
                "is a number, at least 1 and less than 9",
            ),
            (r#"{"constraint_type":"range","max":20}"#, "is a number, at most 20"),
            (r#"{"constraint_type":"range"}"#, "is a number"),
            (
                r#"{"constraint_type":"one_of","values":["a",2]}"#,
                r#"is one of "a", 2"#,
            ),
            (
                r#"{"constraint_type":"not_one_of","excluded":["a"]}"#,
                r#"is anything but "a""#,
            ),
            (
                r#"{"constraint_type":"contains","required":["a"]}"#,
                r#"is a list that has "a""#,
            ),
            (
                r#"{"constraint_type":"subset","allowed":["a"]}"#,
                r#"is a list of nothing but "a""#,
            ),
            (r#"{"constraint_type":"wildcard","optional":true}"#, "is anything"),
            (
                r#"{"constraint_type":"all","constraints":[{"constraint_type":"wildcard"},
                    {"constraint_type":"any","constraints":[{"constraint_type":"exact","value":1},
                    {"constraint_type":"exact","value":2}]}]}"#,
                "(is anything and (is exactly 1 or is exactly 2))",
            ),
        ] {
            assert_eq!(words(text), expected);
        }
    }

    #[test]
    fn what_is_no_constraint_is_said_to_be_denied() {
        for text in [
            "7",
            "{}",
            r#"{"constraint_type":"regex","pattern":".*"}"#,
            r#"{"constraint_type":"one_of"}"#,
        ] {
            assert!(words(text).contains("denied"), "{text}");
        }
    }

    #[test]
    fn what_a_message_quotes_is_cut_where_it_is_long() {
        let (word, longer) = ("é".repeat(100), "é".repeat(101));
        assert_eq!(shortened(&format!("a {word} b")), format!("a {word} b"));
        assert_eq!(shortened(&format!("a {longer} b")), format!("a {word}… b"));
        let many = "word ".repeat(1_000);
        assert_eq!(shortened(&many), format!("{}…", &many[..1_000]));
    }

    #[test]
    fn json_that_can_not_control_the_terminal_means_the_same() {
        let text = "{\"a\":\"\u{9b}2J\u{202e}é \\u001b\"}";
        let printable = printable_json(text);
        assert_eq!(printable, "{\"a\":\"\\u009b2J\\u202eé \\u001b\"}");
        assert_eq!(
            Json::parse(printable.as_bytes()).unwrap(),
            Json::parse(text.as_bytes()).unwrap()
        );
        assert!(matches!(printable_json("{\"a\":\"é\"}"), Cow::Borrowed(_)));
    }

    #[test]
    fn foreign_text_can_not_control_the_terminal() {
        let text = printable("a\u{1b}[2Jb\u{202e}c\u{9b}d \"é\" \\");
        assert_eq!(text, "a\\u{1b}[2Jb\\u{202e}c\\u{9b}d \"é\" \\");
    }
}
