//! How Envoy passes a configuration to the plugin.
//!
//! A `google.protobuf.StringValue`, which Istio sends, arrives as its text. A `google.protobuf.Struct`, which YAML in
//! an Envoy configuration becomes, arrives in its binary encoding (observed in Envoy 1.40, although its documentation
//! says otherwise), and is converted to JSON here.

use std::borrow::Cow;

use credence_delegation::{Double, Value};
use prost::Message;
use prost_types::Struct;
use prost_types::value::Kind;
use serde::de::IgnoredAny;

/// The configuration as JSON text if it is an encoded `Struct`; otherwise unchanged.
///
/// No encoded `Struct` is valid JSON: after its first key it has the byte 0x12, which JSON does not allow anywhere.
pub fn as_json(configuration: &[u8]) -> Cow<'_, [u8]> {
    if serde_json::from_slice::<IgnoredAny>(configuration).is_ok() {
        return Cow::Borrowed(configuration);
    }
    match Struct::decode(configuration) {
        Ok(decoded) => Cow::Owned(object(decoded).canonical().into_bytes()),
        // Then it is invalid JSON, and the JSON parser reports the error best.
        Err(_) => Cow::Borrowed(configuration),
    }
}

fn object(object: Struct) -> Value {
    Value::object(object.fields.into_iter().map(|(name, member)| (name, value(member))))
}

/// prost bounds the nesting: it decodes at most a hundred levels.
fn value(value: prost_types::Value) -> Value {
    match value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(value)) => Value::Bool(value),
        // An infinity or NaN becomes null, which is an error.
        Some(Kind::NumberValue(number)) => Double::new(number).map_or(Value::Null, Value::Number),
        Some(Kind::StringValue(text)) => Value::String(text),
        Some(Kind::StructValue(members)) => object(members),
        Some(Kind::ListValue(list)) => Value::Array(list.values.into_iter().map(self::value).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(kind: Kind) -> prost_types::Value {
        prost_types::Value { kind: Some(kind) }
    }

    #[test]
    fn a_struct_becomes_its_json() {
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
            r#"{"a":[5,1e+21,0.5,null],"b":{"x\"y":true},"c":"5s"}"#
        );
    }

    #[test]
    fn text_stays_unchanged_even_with_errors() {
        for text in [" \n{\"a\": 1}", "{\"a\": }", "\n{\"a\"", "no"] {
            assert_eq!(as_json(text.as_bytes()), text.as_bytes());
        }
    }
}
