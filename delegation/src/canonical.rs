//! The JSON Canonicalization Scheme (RFC 8785).

use std::cmp::Ordering;

use crate::json::plain_bytes;

/// Appends a number: ECMAScript's Number::toString (RFC 8785, section 3.2.2.3).
pub(crate) fn write_number(number: f64, out: &mut String) {
    out.push_str(ryu_js::Buffer::new().format_finite(number));
}

/// Appends a text. Most need no escapes, and are copied. serde_json escapes as RFC 8785, section 3.2.2.2, requires: the
/// two-letter forms where they exist, `\u00xx` for the other control characters, and nothing else.
pub(crate) fn write_string(text: &str, out: &mut String) {
    if plain_bytes(text.as_bytes()) == text.len() {
        out.push('"');
        out.push_str(text);
        out.push('"');
    } else {
        // Writing a text cannot fail.
        out.push_str(&serde_json::to_string(text).unwrap_or_default());
    }
}

/// The order of member names in canonical form: by UTF-16 code units (RFC 8785, section 3.2.3).
pub(crate) fn canonical_order(a: &str, b: &str) -> Ordering {
    if a.is_ascii() && b.is_ascii() {
        a.cmp(b)
    } else {
        a.encode_utf16().cmp(b.encode_utf16())
    }
}

#[cfg(test)]
mod tests {
    use crate::json::Json;
    use crate::value::{Value, canonicalize};

    fn canonical(text: &str) -> String {
        canonicalize(&Json::parse(text.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn serialises_literals_strings_and_numbers_as_rfc_8785_section_3_2_2_shows() {
        let text = r#"{
            "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
            "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
            "literals": [null, true, false]
        }"#;
        assert_eq!(
            canonical(text),
            "{\"literals\":[null,true,false],\"numbers\":[333333333.3333333,1e+30,4.5,0.002,1e-27],\
             \"string\":\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}"
        );
    }

    #[test]
    fn orders_members_by_utf_16_code_units_as_rfc_8785_section_3_2_3_shows() {
        let text = r#"{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh",
            "1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control",
            "\u00f6":"Latin Small Letter O With Diaeresis"}"#;
        let names: Vec<String> = {
            let canonical = canonical(text);
            let json = Json::parse(canonical.as_bytes()).unwrap();
            json.as_object()
                .unwrap()
                .iter()
                .map(|(name, _)| name.to_owned())
                .collect()
        };
        assert_eq!(names, ["\r", "1", "\u{80}", "ö", "€", "😀", "\u{fb33}"]);
    }

    #[test]
    fn a_value_has_the_canonical_form_of_its_text() {
        for text in [r#"{"b":[1,{"z":null,"a":-1.5e-9}],"a":"\u0007"}"#, "[]", "{}", r#""é""#] {
            let json = Json::parse(text.as_bytes()).unwrap();
            assert_eq!(Value::from_json(&json).unwrap().canonical(), canonical(text));
        }
    }

    #[test]
    fn a_number_beyond_a_double_has_no_canonical_form() {
        assert_eq!(canonicalize(&Json::parse(b"[1e400]").unwrap()), None);
    }
}
