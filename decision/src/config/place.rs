//! Names the place of a byte in a JSON text, as `rules[0].match.path`.
//!
//! serde_json tells only line and column of an error. A deserializer that notes the path on its way would double the
//! code for each type.

/// The path of the value that is read at this byte, in a text that is JSON up to there: of the value that ends just
/// before it, or of the innermost one that has begun; or of the member whose name ends just before it.
pub(super) fn path_before(json: &[u8], end: usize) -> String {
    let read = json.get(..end).unwrap_or(json);
    let mut around: Vec<Step> = Vec::new();
    let mut is_name = false;
    let mut rest = read.iter().enumerate();
    while let Some((at, byte)) = rest.next() {
        match byte {
            b'"' => {
                let length = string_length(read.get(at..).unwrap_or_default());
                if is_name && let Some(Step::Member(name)) = around.last_mut() {
                    let text = read.get(at..at.saturating_add(length)).unwrap_or_default();
                    *name = serde_json::from_slice(text).ok();
                    is_name = false;
                }
                if let Some(others) = length.checked_sub(2) {
                    rest.nth(others);
                }
            }
            b'{' => {
                around.push(Step::Member(None));
                is_name = true;
            }
            b'[' => around.push(Step::Element(0)),
            b',' => match around.last_mut() {
                Some(Step::Element(index)) => *index = index.saturating_add(1),
                Some(Step::Member(name)) => {
                    *name = None;
                    is_name = true;
                }
                None => {}
            },
            // An error in an object or array that has just ended concerns the whole.
            b'}' | b']' => {
                around.pop();
                is_name = false;
            }
            _ => {}
        }
    }
    let mut path = String::new();
    for step in around {
        match step {
            Step::Member(Some(name)) => {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(&name);
            }
            Step::Member(None) => {}
            Step::Element(index) => path.push_str(&format!("[{index}]")),
        }
    }
    if path.is_empty() {
        path.push('.');
    }
    path
}

/// A step into a value.
enum Step {
    /// The member of this name; none before the name.
    Member(Option<String>),
    Element(usize),
}

/// The bytes of the string with which a text begins, including its quotes.
fn string_length(text: &[u8]) -> usize {
    let mut is_escaped = false;
    let end = text.iter().enumerate().skip(1).find(|(_, byte)| {
        let ends = **byte == b'"' && !is_escaped;
        is_escaped = **byte == b'\\' && !is_escaped;
        ends
    });
    end.map_or(text.len(), |(end, _)| end.saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `^` marks the byte.
    fn path(marked: &str) -> String {
        let end = marked.find('^').unwrap();
        path_before(marked.replace('^', "").as_bytes(), end)
    }

    #[test]
    fn a_place_is_named_by_members_and_elements() {
        for (marked, expected) in [
            ("5^", "."),
            (r#"{"a": 5^}"#, "a"),
            (r#"{"a": {"b,": [1, {"c": "x\"}" ^}]}}"#, "a.b,[1].c"),
            (r#"{"a": {"b": 1}, "c"^: 2}"#, "c"),
            (r#"{"a": {"b": 1}, ^"c": 2}"#, "."),
            (r#"{"a": {"b": [1, 2]}^}"#, "a"),
            (r#"{"a": [[], [1, 2^]]}"#, "a[1][1]"),
            (r#"{"a\u0062": true^}"#, "ab"),
        ] {
            assert_eq!(path(marked), expected, "{marked}");
        }
    }
}
