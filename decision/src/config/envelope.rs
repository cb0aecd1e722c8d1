//! The form in which Envoy hands a configuration over.
//!
//! A `google.protobuf.StringValue`, which Istio sends, arrives as its text. A `google.protobuf.Struct`, which is how
//! YAML is written straight into an Envoy configuration, arrives in its binary encoding (seen in Envoy 1.40, whatever
//! its documentation says), and is written out as JSON here.

use std::borrow::Cow;

use prost::Message;
use prost_types::value::Kind;
use prost_types::{Struct, Value};
use serde::de::IgnoredAny;

/// The configuration as JSON text, if it is an encoded `Struct`; as it is otherwise.
///
/// No encoded `Struct` is valid JSON: after its first key it has the byte 0x12, which JSON allows nowhere.
pub fn as_json(configuration: &[u8]) -> Cow<'_, [u8]> {
    if serde_json::from_slice::<IgnoredAny>(configuration).is_ok() {
        return Cow::Borrowed(configuration);
    }
    match Struct::decode(configuration) {
        Ok(decoded) => {
            let mut text = String::new();
            write_object(&decoded, &mut text);
            Cow::Owned(text.into_bytes())
        }
        // Then it is JSON with a mistake, which the reader of JSON describes best.
        Err(_) => Cow::Borrowed(configuration),
    }
}

fn write_object(object: &Struct, out: &mut String) {
    out.push('{');
    for (index, (name, value)) in object.fields.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        write_string(name, out);
        out.push(':');
        write_value(value, out);
    }
    out.push('}');
}

/// Nesting is bounded by prost, which decodes a hundred levels at most.
fn write_value(value: &Value, out: &mut String) {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => out.push_str("null"),
        Some(Kind::BoolValue(value)) => out.push_str(if *value { "true" } else { "false" }),
        // An infinity or NaN becomes a word that JSON does not know, and so a mistake.
        Some(Kind::NumberValue(number)) => out.push_str(&number.to_string()),
        Some(Kind::StringValue(text)) => write_string(text, out),
        Some(Kind::StructValue(object)) => write_object(object, out),
        Some(Kind::ListValue(list)) => {
            out.push('[');
            for (index, value) in list.values.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_value(value, out);
            }
            out.push(']');
        }
    }
}

fn write_string(text: &str, out: &mut String) {
    // A string always serialises; were it left out, the text would be a mistake, not another configuration.
    out.push_str(&serde_json::to_string(text).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(kind: Kind) -> Value {
        Value { kind: Some(kind) }
    }

    #[test]
    fn a_struct_becomes_the_json_it_was_written_as() {
        let inner = Struct {
            fields: [("x\"y".to_owned(), value(Kind::BoolValue(true)))].into(),
        };
        let list = prost_types::ListValue {
            values: vec![
                value(Kind::NumberValue(5.0)),
                value(Kind::NumberValue(1e21)),
                value(Kind::NumberValue(0.5)),
                value(Kind::NullValue(0)),
            ],
        };
        let outer = Struct {
            fields: [
                ("a".to_owned(), value(Kind::ListValue(list))),
                ("b".to_owned(), value(Kind::StructValue(inner))),
                ("c".to_owned(), value(Kind::StringValue("5s".into()))),
            ]
            .into(),
        };
        assert_eq!(
            std::str::from_utf8(&as_json(&outer.encode_to_vec())).unwrap(),
            r#"{"a":[5,1000000000000000000000,0.5,null],"b":{"x\"y":true},"c":"5s"}"#
        );
    }

    #[test]
    fn text_stays_as_it_is_even_with_mistakes() {
        for text in [" \n{\"a\": 1}", "{\"a\": }", "\n{\"a\"", "no"] {
            assert_eq!(as_json(text.as_bytes()), text.as_bytes());
        }
    }
}
