//! Foreign text, made safe for a terminal.

use std::borrow::Cow;

use credence_delegation::canonicalize;
pub use credence_delegation::inspect::printable;
use credence_delegation::json::Json;

/// A JSON value on one line of a terminal.
pub fn value(json: &Json<'_>) -> String {
    canonicalize(json).map_or_else(|| "a number that is too large".to_owned(), |text| printable(&text))
}

/// A string without its quotes, anything else as JSON.
pub fn unquoted(json: &Json<'_>) -> String {
    json.as_str().map_or_else(|| value(json), printable)
}

/// Equivalent JSON text without the characters that control a terminal or reorder its text. Outside strings JSON has
/// none of them; within strings they become escapes.
pub fn printable_json(text: &str) -> Cow<'_, str> {
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

/// A message that quotes foreign text. Long words are cut, and the whole after a thousand characters, since a number or
/// a name may have megabytes.
pub fn shortened(message: &str) -> String {
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

/// Characters of a word. The longest legitimate one, the thumbprint of a key as a URI (RFC 9278), has 87.
const MOST_OF_A_WORD: usize = 100;
const CUT: usize = MOST_OF_A_WORD + 1;

/// Characters of a message, including quotes.
const MOST_OF_A_MESSAGE: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_quotes_in_a_message_are_cut() {
        let (word, longer) = ("é".repeat(100), "é".repeat(101));
        assert_eq!(shortened(&format!("a {word} b")), format!("a {word} b"));
        assert_eq!(shortened(&format!("a {longer} b")), format!("a {word}… b"));
        let many = "word ".repeat(1_000);
        assert_eq!(shortened(&many), format!("{}…", &many[..1_000]));
    }

    #[test]
    fn printable_json_is_equivalent_and_cannot_control_the_terminal() {
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
    fn foreign_text_cannot_control_the_terminal() {
        let text = printable("a\u{1b}[2Jb\u{202e}c\u{9b}d \"é\" \\");
        assert_eq!(text, "a\\u{1b}[2Jb\\u{202e}c\\u{9b}d \"é\" \\");
    }
}
