//! Reads YAML as JSON.
//!
//! Ambiguous YAML is refused instead of guessed: a configuration must mean the same to Credence, to Envoy and to its
//! reviewers. Numbers keep their text.

pub(crate) mod places;

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

use granit_parser::{Event, Options, Parser, ScalarStyle, ScanError, Tag};

use self::places::Places;

/// Converts each document of a YAML stream to JSON text. Empty documents are left out, but counted.
///
/// # Errors
/// The first error, with its line.
pub(crate) fn documents(yaml: &str) -> Result<Vec<YamlDocument>, YamlError> {
    let mut options = Options::default();
    // Set explicitly, since the default depends on a feature that any dependency may enable.
    options.set_emit_comments(false);
    let mut reader = Reader {
        events: Parser::new_from_str_with_options(yaml, options),
        anchors: HashMap::new(),
        line: 1,
        document: 0,
        path: String::new(),
        places: Places::default(),
    };
    let mut documents = Vec::new();
    loop {
        match reader.next()? {
            Event::StreamEnd => return Ok(documents),
            Event::DocumentStart(..) => {
                reader.anchors.clear();
                reader.document += 1;
                let mut json = String::new();
                let event = reader.next()?;
                reader.record();
                reader.value(event, 0, &mut json)?;
                let places = std::mem::take(&mut reader.places);
                if json != "null" {
                    documents.push(YamlDocument {
                        number: reader.document,
                        json,
                        places,
                    });
                }
            }
            _ => {}
        }
    }
}

/// One document of a YAML stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct YamlDocument {
    /// Counted from 1, including empty documents.
    pub(crate) number: usize,
    /// Its JSON.
    pub(crate) json: String,
    /// The lines of its parts.
    pub(crate) places: Places,
}

/// Why a text is not unambiguous YAML.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub(crate) struct YamlError {
    /// Counted from 1.
    pub(crate) line: usize,
    /// Counted from 1.
    pub(crate) document: usize,
    pub(crate) problem: String,
}

/// Nesting of mappings and sequences. The parser has its own limit for each of the two.
const MAX_DEPTH: usize = 128;

/// Bytes of one document's JSON. Aliases can make a small file large.
const MAX_JSON_BYTES: usize = 8 << 20;

struct Reader<'a> {
    events: Parser<'a, granit_parser::StrInput<'a>>,
    /// The JSON of anchored nodes, by the parser's number for the anchor.
    anchors: HashMap<usize, String>,
    /// The line of the last event.
    line: usize,
    /// The document that is being read, counted from 1.
    document: usize,
    /// The place in the document.
    path: String,
    places: Places,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<Event<'a>, YamlError> {
        match self.events.next_event() {
            Some(Ok((event, span))) => {
                self.line = span.start.line();
                Ok(event)
            }
            Some(Err(error)) => Err(self.syntax(&error)),
            None => Ok(Event::StreamEnd),
        }
    }

    /// Records that the node at the path begins on this line.
    fn record(&mut self) {
        self.places.lines.insert(self.path.clone(), self.line);
    }

    fn value(&mut self, event: Event<'a>, depth: usize, out: &mut String) -> Result<(), YamlError> {
        if depth > MAX_DEPTH {
            return Err(self.wrong(format!("nested deeper than {MAX_DEPTH} levels")));
        }
        let start = out.len();
        let anchor = match event {
            Event::Scalar(text, style, anchor, tag) => {
                if style == ScalarStyle::Literal {
                    // The event's line is that of the first line that is not empty.
                    let empty = text.bytes().take_while(|byte| *byte == b'\n').count();
                    let before = self.line.saturating_sub(empty + 1);
                    self.places.literals.insert(self.path.clone(), before);
                }
                self.scalar(&text, style, tag.as_deref(), out)?;
                anchor
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.refuse_tag(tag.as_deref())?;
                self.sequence(depth, out)?;
                anchor
            }
            Event::MappingStart(_, anchor, tag) => {
                self.refuse_tag(tag.as_deref())?;
                self.mapping(depth, out)?;
                anchor
            }
            Event::Alias(anchor) => {
                let Some(json) = self.anchors.get(&anchor) else {
                    return Err(self.wrong("the alias is inside its own node; write the node out"));
                };
                out.push_str(json);
                0
            }
            Event::DocumentEnd | Event::StreamEnd => {
                out.push_str("null");
                0
            }
            _ => return Err(self.wrong("unexpected YAML; write plain mappings, sequences and scalars")),
        };
        if out.len() > MAX_JSON_BYTES {
            return Err(self.wrong(format!(
                "the document is longer than {MAX_JSON_BYTES} bytes once aliases are expanded"
            )));
        }
        if anchor != 0 {
            self.anchors
                .insert(anchor, out.get(start..).unwrap_or_default().to_owned());
        }
        Ok(())
    }

    fn sequence(&mut self, depth: usize, out: &mut String) -> Result<(), YamlError> {
        out.push('[');
        let around = self.path.len();
        for index in 0.. {
            match self.next()? {
                Event::SequenceEnd => break,
                event => {
                    if index > 0 {
                        out.push(',');
                    }
                    self.path = places::element(&self.path, index);
                    self.record();
                    self.value(event, depth + 1, out)?;
                    self.path.truncate(around);
                }
            }
        }
        out.push(']');
        Ok(())
    }

    fn mapping(&mut self, depth: usize, out: &mut String) -> Result<(), YamlError> {
        let mut names: BTreeSet<Cow<'a, str>> = BTreeSet::new();
        let around = self.path.len();
        out.push('{');
        loop {
            let name = match self.next()? {
                Event::MappingEnd => break,
                Event::Scalar(name, _, 0, None) => name,
                _ => return Err(self.wrong("a field's name must be a plain or quoted string")),
            };
            if !names.is_empty() {
                out.push(',');
            }
            push_string(&name, out);
            out.push(':');
            if names.contains(&name) {
                return Err(self.wrong(format!(
                    "the field \"{name}\" occurs twice in one mapping; keep one of them"
                )));
            }
            self.path = places::member(&self.path, &name);
            self.record();
            names.insert(name);
            let event = self.next()?;
            self.value(event, depth + 1, out)?;
            self.path.truncate(around);
        }
        out.push('}');
        Ok(())
    }

    fn scalar(&self, text: &str, style: ScalarStyle, tag: Option<&Tag>, out: &mut String) -> Result<(), YamlError> {
        let is_string = tag.is_some_and(|tag| tag.core_suffix() == Some("str"));
        if !is_string {
            self.refuse_tag(tag)?;
        }
        if is_string || style != ScalarStyle::Plain {
            push_string(text, out);
            return Ok(());
        }
        match plain(text) {
            Plain::Literal(json) => out.push_str(json),
            Plain::Text => push_string(text, out),
            Plain::Ambiguous => {
                return Err(self.wrong(format!(
                    "YAML readers disagree whether {text} is a string; write \"{text}\" in quotes for a string, or \
                     true, false or a decimal number without leading zeros"
                )));
            }
        }
        Ok(())
    }

    fn refuse_tag(&self, tag: Option<&Tag>) -> Result<(), YamlError> {
        match tag {
            None => Ok(()),
            Some(tag) => Err(self.wrong(format!("the tag {} is not supported; remove it", tag.original()))),
        }
    }

    fn wrong(&self, problem: impl Into<String>) -> YamlError {
        YamlError {
            line: self.line,
            document: self.document.max(1),
            problem: problem.into(),
        }
    }

    fn syntax(&self, error: &ScanError) -> YamlError {
        YamlError {
            line: error.marker().line(),
            ..self.wrong(format!("not YAML: {}", error.info()))
        }
    }
}

/// The type of a scalar without quotes.
#[derive(Debug, PartialEq, Eq)]
enum Plain<'a> {
    /// A JSON literal or number.
    Literal(&'a str),
    Text,
    /// A string to some readers, a boolean or a number to others.
    Ambiguous,
}

/// Resolves a plain scalar where the core schema of YAML 1.2 (section 10.3), YAML 1.1 and Envoy's reader agree.
fn plain(text: &str) -> Plain<'_> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Plain::Literal("null"),
        "true" | "True" | "TRUE" => return Plain::Literal("true"),
        "false" | "False" | "FALSE" => return Plain::Literal("false"),
        _ => {}
    }
    if ["y", "n", "yes", "no", "on", "off", "true", "false", "null"]
        .iter()
        .any(|word| text.eq_ignore_ascii_case(word))
    {
        return Plain::Ambiguous;
    }
    if credence_delegation::Number::parse(text).is_some() {
        return Plain::Literal(text);
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let special = [".inf", ".nan"].iter().any(|word| unsigned.eq_ignore_ascii_case(word));
    let radix = ["0x", "0o", "0b"].into_iter().any(|prefix| {
        unsigned
            .strip_prefix(prefix)
            .is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
    });
    let starts_like_a_number = unsigned.starts_with(|first: char| first == '.' || first.is_ascii_digit());
    if special || radix || (starts_like_a_number && unsigned.replace('_', "").parse::<f64>().is_ok()) {
        return Plain::Ambiguous;
    }
    Plain::Text
}

fn push_string(text: &str, out: &mut String) {
    out.push_str(&credence_delegation::Value::from(text).canonical());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(yaml: &str) -> String {
        let documents = documents(yaml).unwrap();
        let texts: Vec<_> = documents.into_iter().map(|document| document.json).collect();
        texts.join("\n")
    }

    fn error(yaml: &str) -> String {
        documents(yaml).unwrap_err().to_string()
    }

    #[test]
    fn numbers_keep_their_text_and_quotes_make_texts() {
        assert_eq!(
            json(
                "a: 9007199254740993\nb: 1.50\nc: \"1\"\nd: 'no'\ne: null\nf:\ng: true\nh: 1.2.3\ni: 5s\nj: 2024-01-01\n"
            ),
            r#"{"a":9007199254740993,"b":1.50,"c":"1","d":"no","e":null,"f":null,"g":true,"h":"1.2.3","i":"5s","j":"2024-01-01"}"#
        );
        assert_eq!(
            json("- !!str 5\n- |\n  {\"a\": 1}\n- {x: [1, -2e3]}\n"),
            r#"["5","{\"a\": 1}\n",{"x":[1,-2e3]}]"#
        );
    }

    #[test]
    fn ambiguous_yaml_is_refused_with_its_line() {
        for text in [
            "yes", "No", "on", "off", "y", "tRUE", "010", "0x1F", "0o17", "+1", ".5", "1.", ".inf", "-.NaN", "1_000",
        ] {
            assert!(
                error(&format!("a: 1\nb: {text}\n")).starts_with("line 2: YAML readers disagree"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_repeated_field_is_refused_at_every_depth() {
        assert_eq!(
            error("rules:\n  - name: a\n    \"name\": b\n"),
            "line 3: the field \"name\" occurs twice in one mapping; keep one of them"
        );
    }

    #[test]
    fn aliases_are_expanded_up_to_a_limit() {
        assert_eq!(
            json("a: &x [1, {b: 2}]\nc: *x\n"),
            r#"{"a":[1,{"b":2}],"c":[1,{"b":2}]}"#
        );
        let mut bomb = "a0: &a0 [xxxxxxxxxxxxxxxx, xxxxxxxxxxxxxxxx]\n".to_owned();
        for level in 1..30 {
            let below = level - 1;
            bomb += &format!("a{level}: &a{level} [*a{below}, *a{below}]\n");
        }
        assert!(error(&bomb).contains("once aliases are expanded"));
        assert!(error("a: &x [*x]\n").contains("alias"));
    }

    #[test]
    fn tags_deep_nesting_and_broken_syntax_are_refused() {
        assert!(error("a: !ignore b\n").contains("tag"));
        assert!(error(&"- ".repeat(200)).contains("nested deeper"));
        assert!(documents(&"[".repeat(100_000)).is_err());
        assert!(error("a: [1\nb: 2\n").contains("not YAML"));
        assert!(error("? [a]\n: b\n").contains("field's name"));
    }

    #[test]
    fn a_stream_has_any_number_of_documents() {
        let found = documents("---\na: 1\n---\n# nothing\n---\nb: 2\n").unwrap();
        let numbered: Vec<_> = found
            .iter()
            .map(|document| (document.number, document.json.as_str()))
            .collect();
        assert_eq!(numbered, [(1, r#"{"a":1}"#), (3, r#"{"b":2}"#)]);
        assert_eq!(documents("").unwrap(), []);
        assert_eq!(documents("---\na: 1\n---\nb: yes\n").unwrap_err().document, 2);
    }

    #[test]
    fn every_part_has_the_line_that_it_starts_on() {
        let yaml = "# a comment\nrules:\n  - name: a\n    args:\n      b.c: {path: x}\n\n  - *x\nlast: 1\n";
        let yaml = yaml.replace("{path: x}", "&x {path: x}");
        let places = &documents(&yaml).unwrap()[0].places;
        for (path, line) in [
            ("", 2),
            ("rules", 2),
            ("rules[0]", 3),
            ("rules[0].args", 4),
            ("rules[0].args.b.c.path", 5),
            ("rules[1].path", 7),
            ("last", 8),
        ] {
            assert_eq!(places.line(path), Some(line), "{path}");
        }
    }

    #[test]
    fn the_lines_of_a_literal_block_follow_its_mark() {
        for text in ["one", "\n    one", "# no comment"] {
            let yaml = format!("a:\n  text: |\n    {text}\n    two\n  folded: >\n    x\n");
            let places = &documents(&yaml).unwrap()[0].places;
            assert_eq!(
                (places.literal("a.text"), places.literal("a.folded")),
                (Some(2), None),
                "{text}"
            );
        }
    }
}
