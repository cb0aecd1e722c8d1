//! Mutations that keep JSON valid: most targets read JSON and refuse it for one wrong byte.
//!
//! An input may contain several JSON texts, with other text around them. Anything that looks like a JSON value counts
//! as one.

use std::ops::Range;

/// Mutates the first `length` bytes of `input` in place, to at most `room` bytes, and returns the new length. Every
/// other time, or if the input has no JSON, it uses `bytes`, which is libFuzzer's own mutation.
pub fn json(
    input: &mut [u8],
    length: usize,
    room: usize,
    seed: u32,
    bytes: impl Fn(&mut [u8], usize, usize) -> usize,
) -> usize {
    let mut random = Random::new(seed);
    if random.below(2) == 0 {
        return bytes(input, length, room);
    }
    let mut text = input.get(..length).unwrap_or_default().to_vec();
    for _ in 0..=random.below(3) {
        if let Some(mutated) = mutated(&text, &mut random) {
            text = mutated;
        }
    }
    let fits = text.len() <= room.min(input.len());
    if !fits || text.is_empty() || input.get(..length) == Some(&text) {
        return bytes(input, length, room);
    }
    input[..text.len()].copy_from_slice(&text);
    text.len()
}

fn mutated(text: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    if random.below(8) == 0 {
        return with_other_lines(text, random);
    }
    let spans = spans(text);
    let values: Vec<&Span> = spans.iter().filter(|span| span.kind != Kind::Name).collect();
    let value = random.pick(&values)?.range.clone();
    let replaced = |range: Range<usize>, by: &[u8]| Some([&text[..range.start], by, &text[range.end..]].concat());
    match random.below(9) {
        // By another value of the input. This gives a child its parent's constraint.
        0 | 1 => replaced(value, &text[random.pick(&values)?.range.clone()]),
        2 => replaced(value, random.pick(FRAGMENTS)?.as_bytes()),
        3 => {
            let wrapped = [b"[".as_slice(), &text[value.clone()], b"]"].concat();
            replaced(value, &wrapped)
        }
        4 => {
            let kind = random.pick(&["all", "any"])?;
            let inner = String::from_utf8_lossy(&text[value.clone()]).into_owned();
            let wrapped = format!(r#"{{"constraint_type":"{kind}","constraints":[{inner}]}}"#);
            replaced(value, wrapped.as_bytes())
        }
        5 => {
            let names: Vec<&Span> = spans.iter().filter(|span| span.kind == Kind::Name).collect();
            let by = match random.below(2) {
                0 => random.pick(NAMES)?.as_bytes(),
                _ => &text[random.pick(&names)?.range.clone()],
            };
            replaced(random.pick(&names)?.range.clone(), by)
        }
        6 => {
            let numbers: Vec<&Span> = spans.iter().filter(|span| span.kind == Kind::Bare).collect();
            let number = random.pick(&numbers)?.range.clone();
            let found: i64 = std::str::from_utf8(&text[number.clone()]).ok()?.parse().ok()?;
            let near = match random.below(4) {
                0 => found.saturating_add(1),
                1 => found.saturating_sub(1),
                2 => found / 2,
                _ => found.saturating_neg(),
            };
            replaced(number, near.to_string().as_bytes())
        }
        7 => without(text, &spans, value),
        _ => with_one_more(text, &values, random),
    }
}

/// Without this value, its name if it has one, and a comma.
fn without(text: &[u8], spans: &[Span], value: Range<usize>) -> Option<Vec<u8>> {
    let mut start = value.start;
    if start.checked_sub(1).and_then(|before| text.get(before)) == Some(&b':') {
        start = spans
            .iter()
            .find(|span| span.kind == Kind::Name && span.range.end == start - 1)?
            .range
            .start;
    }
    let mut end = value.end;
    if text.get(end) == Some(&b',') {
        end += 1;
    } else if start > 0 && text[start - 1] == b',' {
        start -= 1;
    }
    Some([&text[..start], &text[end..]].concat())
}

/// Adds a member or element at the front of an object or array.
fn with_one_more(text: &[u8], values: &[&Span], random: &mut Random) -> Option<Vec<u8>> {
    let containers: Vec<&&Span> = values
        .iter()
        .filter(|span| matches!(span.kind, Kind::Object | Kind::Array))
        .collect();
    let container = random.pick(&containers)?;
    let mut more = Vec::new();
    if container.kind == Kind::Object {
        more.extend_from_slice(random.pick(NAMES)?.as_bytes());
        more.push(b':');
    }
    match random.below(2) {
        0 => more.extend_from_slice(random.pick(FRAGMENTS)?.as_bytes()),
        _ => more.extend_from_slice(&text[random.pick(values)?.range.clone()]),
    }
    let inside = container.range.start + 1;
    if inside + 1 < container.range.end {
        more.push(b',');
    }
    Some([&text[..inside], &more, &text[inside..]].concat())
}

/// Duplicates, drops or moves a line.
fn with_other_lines(text: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    let mut lines: Vec<&[u8]> = text.split(|&byte| byte == b'\n').collect();
    let (from, to) = (random.below(lines.len()), random.below(lines.len()));
    match random.below(3) {
        0 => lines.insert(to, lines[from]),
        1 if lines.len() > 1 => drop(lines.remove(from)),
        _ => lines.swap(from, to),
    }
    Some(lines.join(&b'\n'))
}

struct Span {
    range: Range<usize>,
    kind: Kind,
}

#[derive(PartialEq, Eq)]
enum Kind {
    /// A string before a colon.
    Name,
    String,
    Array,
    Object,
    /// A number or a literal.
    Bare,
}

/// Everything in the text that looks like a JSON value or a member's name.
fn spans(text: &[u8]) -> Vec<Span> {
    let (mut spans, mut open) = (Vec::new(), Vec::new());
    let mut place = 0;
    while let Some(&byte) = text.get(place) {
        let start = place;
        place += 1;
        match byte {
            b'"' => {
                while let Some(&byte) = text.get(place) {
                    place += if byte == b'\\' { 2 } else { 1 };
                    if byte == b'"' {
                        break;
                    }
                }
                let end = place.min(text.len());
                let kind = if text.get(end) == Some(&b':') {
                    Kind::Name
                } else {
                    Kind::String
                };
                spans.push(Span {
                    range: start..end,
                    kind,
                });
            }
            b'[' | b'{' => open.push(start),
            b']' | b'}' => {
                if let Some(start) = open.pop() {
                    let kind = if byte == b']' { Kind::Array } else { Kind::Object };
                    spans.push(Span {
                        range: start..place,
                        kind,
                    });
                }
            }
            b'-' | b'0'..=b'9' | b'a'..=b'z' => {
                let is_bare = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
                place += text[place..].iter().take_while(|byte| is_bare(byte)).count();
                spans.push(Span {
                    range: start..place,
                    kind: Kind::Bare,
                });
            }
            _ => {}
        }
    }
    spans
}

/// Pseudo-random numbers from a seed.
struct Random(u64);

impl Random {
    fn new(seed: u32) -> Self {
        Self(u64::from(seed))
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, or 0.
    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    fn pick<'a, T>(&mut self, several: &'a [T]) -> Option<&'a T> {
        several.get(self.below(several.len()))
    }
}

/// Values with a meaning in these formats.
const FRAGMENTS: &[&str] = &[
    "null",
    "true",
    "false",
    "0",
    "-0",
    "1",
    "5",
    "1.5",
    "5e-324",
    "1e400",
    "9007199254740993",
    "9223372036854775808",
    "\"a\"",
    "\"\"",
    "\"\\u0061\"",
    "\"\\ud83d\\ude00\"",
    "[]",
    "{}",
    "[1,\"a\"]",
    r#"{"constraint_type":"exact","value":5}"#,
    r#"{"constraint_type":"range","min":1,"max":10,"max_inclusive":false}"#,
    r#"{"constraint_type":"range"}"#,
    r#"{"constraint_type":"one_of","values":[1,"a",[1]]}"#,
    r#"{"constraint_type":"not_one_of","excluded":[1,"a"]}"#,
    r#"{"constraint_type":"contains","required":[1]}"#,
    r#"{"constraint_type":"subset","allowed":[1,"a"]}"#,
    r#"{"constraint_type":"wildcard"}"#,
    r#"{"constraint_type":"wildcard","optional":true}"#,
];

/// Member names with a meaning in these formats.
const NAMES: &[&str] = &[
    "\"a\"",
    "\"*\"",
    "\"optional\"",
    "\"aud\"",
    "\"exp\"",
    "\"iat\"",
    "\"jti\"",
    "\"del_depth\"",
    "\"del_max_depth\"",
    "\"x5t#S256\"",
    "\"spiffe\"",
    "\"kid\"",
    "\"crit\"",
    "\"k\"",
    "\"oth\"",
    "\"use\"",
    "\"key_ops\"",
    "\"alg\"",
    "\"d\"",
    "\"\\u0061\"",
    "\"\u{e000}\"",
    "\"\u{10000}\"",
];
