//! Authorization details (RFC 9396) and their templates. An input has lines: the settings of the type `t`, after `=`; an
//! entry of that type; and invocations.
//!
//! The reference fills the template here. The entry must grant exactly what the filled template grants as an entry of the
//! draft's own type.

use credence_delegation::constraint::Constraint;
use credence_delegation::json::{Json, Object};
use credence_delegation::{Capabilities, Denial, Number, Step, TrustAnchors, Value, canonicalize};

use super::access_token::{HEADER, anchors_with, claims_with, verify_at};
use super::cast::{NOW, Person};
use super::script::{self, Script, quoted};
use super::{Effort, Outcome};

/// Reads the settings and the entry.
pub fn run(input: &[u8], effort: Effort) -> Outcome {
    let Some((settings, rest)) = std::str::from_utf8(input)
        .ok()
        .and_then(|text| text.strip_prefix('=')?.split_once('\n'))
    else {
        return Outcome::Refused;
    };
    let (entry_text, invocations) = rest.split_once('\n').unwrap_or((rest, ""));
    let all = format!(r#"{{"authorization_details":{{"t":{settings}}}}}"#);
    let (Some(anchors), Ok(settings)) = (anchors_with(&all), Json::parse(settings.as_bytes())) else {
        return Outcome::Refused;
    };
    let Ok(Json::Object(entry)) = Json::parse(entry_text.as_bytes()) else {
        return Outcome::Refused;
    };
    let settings = settings.as_object().expect("an object, since it was accepted");
    if entry.text("type") != Some("t") {
        return Outcome::Refused;
    }

    let granted = granted(&anchors, &[entry_text]);
    let expected = match tools_of(settings, &entry) {
        Some(tools) => self::granted(
            &anchors,
            &[&format!(r#"{{"type":"attenuating_agent_token","tools":{tools}}}"#)],
        ),
        None => Ok(Capabilities::default()),
    };
    // Of several errors, the template's order decides which one is named.
    assert_eq!(
        granted.as_ref().ok(),
        expected.as_ref().ok(),
        "{granted:?} {expected:?}"
    );
    let Ok(capabilities) = granted else {
        return Outcome::Refused;
    };
    let template = settings.object("tools").expect("a template, since it was accepted");
    let has_tool = |tool| reference(template).is_some() || template.member(tool).is_some();
    assert!(capabilities.tools().all(has_tool), "{capabilities:?}");
    for (tool, arguments) in &Script::read(invocations).invocations {
        let token = token(&[entry_text]);
        let verified = verify_at(&anchors, &token, NOW).expect("as before");
        assert!(verified.permits(tool, arguments).is_err() || capabilities.tool(tool).is_some());
    }
    if effort.makes(0, 2, input) {
        check_twins(&anchors, &entry, entry_text, &capabilities);
    }
    if effort.makes(1, 2, input) {
        check_others(&anchors, settings, entry_text);
    }
    if capabilities.tools().next().is_some() {
        Outcome::Accepted
    } else {
        Outcome::Refused
    }
}

fn token(entries: &[&str]) -> String {
    let claims = claims_with("authorization_details", &format!("[{}]", entries.join(",")));
    script::sign(Person(0), Some(HEADER), "", &claims)
}

/// What a token with these entries grants. It is denied only for the entries.
fn granted(anchors: &TrustAnchors, entries: &[&str]) -> Result<Capabilities, Denial> {
    let verified = verify_at(anchors, &token(entries), NOW);
    let granted = verified.map(|chain| chain.leaf().capabilities().expect("an access token has some").clone());
    if let Err(denial) = &granted {
        let is_of_entries = matches!(denial.step, Step::S3m | Step::S3n | Step::S2a | Step::S3b);
        assert!(is_of_entries, "{denial:?}");
    }
    granted
}

/// The same entry in canonical form or twice, or beside an entry of another type.
fn check_twins(anchors: &TrustAnchors, entry: &Object<'_>, text: &str, capabilities: &Capabilities) {
    let json = Json::Object(entry.clone());
    if let Ok(value) = Value::from_json(&json) {
        assert_eq!(
            granted(anchors, &[&value.canonical()]).as_ref(),
            Ok(capabilities),
            "canonical"
        );
    }
    for entries in [&[text, text][..], &[r#"{"type":"other"}"#, text], &[text, r#"{"x":1}"#]] {
        match granted(anchors, entries) {
            Ok(same) => assert_eq!(same, *capabilities, "{entries:?}"),
            Err(denial) => assert_eq!(denial.step, Step::S2a, "too long: {denial}"),
        }
    }
}

/// An entry of another type, or with a member that the settings do not name, grants nothing.
fn check_others(anchors: &TrustAnchors, settings: &Object<'_>, text: &str) {
    let nothing = Ok(Capabilities::default());
    let inner = text.trim().strip_prefix('{').expect("an object");
    let is_named = canonicalize(&Json::Object(settings.clone())).is_none_or(|text| text.contains("unnamed"));
    if !is_named && !text.contains("unnamed") {
        for more in ["1", "{}", "null", r#"{"x":{}}"#] {
            let with_more = format!(r#"{{"unnamed":{more},{inner}"#);
            assert_eq!(granted(anchors, &[&with_more]), nothing, "{with_more}");
        }
    }
}

/// The filled template of this entry; `None` if the entry grants nothing.
fn tools_of(settings: &Object<'_>, entry: &Object<'_>) -> Option<String> {
    let template = settings.member("tools")?;
    let mut named = vec!["/type".to_owned()];
    collect(template, &mut named);
    for (pointer, constraint) in settings.object("requires").iter().flat_map(|requires| requires.iter()) {
        let (constraint, _) = Constraint::parse_entry(constraint).expect("well-formed, since it was accepted");
        let value = Value::from_json(at(entry, pointer)?).ok()?;
        if !constraint.check(&value) {
            return None;
        }
        named.push(pointer.to_owned());
    }
    let ignored = settings.array("ignore").unwrap_or_default();
    named.extend(ignored.iter().filter_map(Json::as_str).map(str::to_owned));
    if !are_named(entry, "", &named) {
        return None;
    }
    let mut filled = String::new();
    fill(template, entry, &mut filled)?;
    Some(filled)
}

fn are_named(object: &Object<'_>, place: &str, named: &[String]) -> bool {
    object.iter().all(|(name, json)| {
        let escaped: String = name
            .chars()
            .map(|character| match character {
                '~' => "~0".to_owned(),
                '/' => "~1".to_owned(),
                other => other.to_string(),
            })
            .collect();
        let place = format!("{place}/{escaped}");
        let is_inside = || {
            let inner = json.as_object();
            inner.is_some_and(|inner| !inner.is_empty() && are_named(inner, &place, named))
        };
        named.contains(&place) || is_inside()
    })
}

/// `from` or `number_from`, and the pointer.
fn reference<'t>(object: &'t Object<'_>) -> Option<(&'t str, &'t str)> {
    let members: Vec<(&str, &Json<'_>)> = object.iter().collect();
    match members.as_slice() {
        [(name @ ("from" | "number_from"), Json::String(pointer))] => Some((name, pointer)),
        _ => None,
    }
}

fn collect(template: &Json<'_>, pointers: &mut Vec<String>) {
    match template {
        Json::Object(object) => match reference(object) {
            Some((_, pointer)) => pointers.push(pointer.to_owned()),
            None => object.iter().for_each(|(_, inner)| collect(inner, pointers)),
        },
        Json::Array(elements) => elements.iter().for_each(|inner| collect(inner, pointers)),
        _ => {}
    }
}

/// RFC 6901, section 4, from object to object.
fn at<'o, 'a>(object: &'o Object<'a>, pointer: &str) -> Option<&'o Json<'a>> {
    let (first, rest) = match pointer.strip_prefix('/')?.split_once('/') {
        Some((first, rest)) => (first, Some(format!("/{rest}"))),
        None => (&pointer[1..], None),
    };
    let found = object.member(&first.replace("~1", "/").replace("~0", "~"))?;
    match rest {
        Some(rest) => at(found.as_object()?, &rest),
        None => Some(found),
    }
}

fn fill(template: &Json<'_>, entry: &Object<'_>, out: &mut String) -> Option<()> {
    match template {
        Json::Object(object) => match reference(object) {
            Some(("from", pointer)) => write(at(entry, pointer)?, out),
            Some((_, pointer)) => out.push_str(Number::parse(at(entry, pointer)?.as_str()?)?.text()),
            None => {
                out.push('{');
                for (index, (name, inner)) in object.iter().enumerate() {
                    out.push_str(if index > 0 { "," } else { "" });
                    out.push_str(&quoted(name));
                    out.push(':');
                    fill(inner, entry, out)?;
                }
                out.push('}');
            }
        },
        Json::Array(elements) => {
            out.push('[');
            for (index, inner) in elements.iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                fill(inner, entry, out)?;
            }
            out.push(']');
        }
        other => write(other, out),
    }
    Some(())
}

/// A JSON text of this value, with numbers as written.
fn write(json: &Json<'_>, out: &mut String) {
    match json {
        Json::Null => out.push_str("null"),
        Json::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Json::Number(number) => out.push_str(number.text()),
        Json::String(text) => out.push_str(&quoted(text)),
        Json::Array(elements) => {
            out.push('[');
            for (index, element) in elements.iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                write(element, out);
            }
            out.push(']');
        }
        Json::Object(object) => {
            out.push('{');
            for (index, (name, value)) in object.iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                out.push_str(&quoted(name));
                out.push(':');
                write(value, out);
            }
            out.push('}');
        }
    }
}
