//! HTTP URIs, as a DPoP proof names its request. An input is one URI, or two with a line feed between them.
//!
//! The reference is a second reading of RFC 3986, which writes the normalised URI as a text.

use credence_delegation::HttpUri;

use super::{Effort, Outcome};

/// Reads the URIs.
pub fn run(input: &[u8], _: Effort) -> Outcome {
    let Ok(text) = std::str::from_utf8(input) else {
        return Outcome::Refused;
    };
    let (one, other) = text.split_once('\n').unwrap_or((text, text));
    let (first, second) = (checked(one), checked(other));
    if let (Some((uri, written)), Some((other, other_written))) = (&first, &second) {
        assert_eq!(uri == other, written == other_written, "{written} {other_written}");
    }
    match first.or(second) {
        Some(_) => Outcome::Accepted,
        None => Outcome::Refused,
    }
}

/// A URI, and its normalised text.
fn checked(text: &str) -> Option<(HttpUri, String)> {
    let uri = HttpUri::parse(text);
    let written = normalized(text);
    assert_eq!(uri.is_some(), written.is_some(), "{text:?}: {written:?}");
    let (uri, written) = (uri?, written?);
    assert_eq!(HttpUri::parse(&written).as_ref(), Some(&uri), "{written}");
    assert_eq!(
        normalized(&written).as_ref(),
        Some(&written),
        "normalised once and for all"
    );
    let (scheme, rest) = written.split_once("://").expect("as it was written");
    let (authority, path) = rest.split_at(rest.find('/').expect("as it was written"));
    assert_eq!(
        HttpUri::new(scheme, authority, path).as_ref(),
        Some(&uri),
        "of its parts"
    );

    let whole = text.split(['?', '#']).next().unwrap_or_default();
    let (has_port, host_end) = (
        authority
            .trim_end_matches(|digit: char| digit.is_ascii_digit())
            .ends_with(':'),
        authority,
    );
    let own_port = if scheme == "https" { ":443" } else { ":80" };
    let mut spellings = vec![
        whole.to_owned(),
        format!("{whole}?a=/b#c"),
        format!("{whole}#c?a"),
        format!("{}://{}{path}", scheme.to_uppercase(), host_end.to_uppercase()),
        format!("{scheme}://{authority}{}", encoded(path)),
    ];
    if !has_port {
        spellings.push(format!("{scheme}://{authority}{own_port}{path}"));
        spellings.push(format!("{scheme}://{authority}:{path}"));
    }
    for same in spellings {
        assert_eq!(HttpUri::parse(&same).as_ref(), Some(&uri), "{same} is {written}");
    }
    let another_scheme = if scheme == "https" { "http" } else { "https" };
    for other in [
        format!("{another_scheme}://{authority}{path}"),
        format!("{scheme}://x{authority}{path}"),
        format!("{written}/"),
        format!("{written}x"),
    ] {
        assert_ne!(HttpUri::parse(&other).as_ref(), Some(&uri), "{other} is not {written}");
    }
    for none in [
        format!("{scheme}://u@{authority}{path}"),
        format!("{written} "),
        format!("{written}%"),
    ] {
        assert_eq!(HttpUri::parse(&none), None, "{none}");
    }
    Some((uri, written))
}

/// RFC 3986, sections 3, 6.2.2.1, 6.2.2.2 and 6.2.3, without query and fragment.
fn normalized(text: &str) -> Option<String> {
    let whole = &text[..text.find(['?', '#']).unwrap_or(text.len())];
    let (scheme, rest) = whole.split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    let own_port = match scheme.as_str() {
        "http" => "80",
        "https" => "443",
        _ => return None,
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let end = match authority.strip_prefix('[') {
        Some(inside) => inside.find(']')? + 2,
        None => authority.find(':').unwrap_or(authority.len()),
    };
    let (host, port) = authority.split_at(end);
    let port = match port.strip_prefix(':') {
        Some(digits) => digits,
        None if port.is_empty() => "",
        None => return None,
    };
    let is_of = |text: &str, others: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || others.contains(c));
    let is_host = match host.strip_prefix('[') {
        Some(inside) => {
            let address = inside.strip_suffix(']')?;
            !address.is_empty() && address.chars().all(|c| c.is_ascii_hexdigit() || c == ':' || c == '.')
        }
        None => !host.is_empty() && is_of(host, "-._~!$&'()*+,;=%"),
    };
    if !is_host || !port.chars().all(|c| c.is_ascii_digit()) {
        return None;
    }
    let port = match port {
        "" => String::new(),
        port if port == own_port => String::new(),
        port => format!(":{port}"),
    };
    let mut segments = String::new();
    let mut rest = path;
    while let Some(first) = rest.chars().next() {
        if !('!'..='~').contains(&first) {
            return None;
        }
        let Some(after) = rest.strip_prefix('%') else {
            segments.push(first);
            rest = &rest[1..];
            continue;
        };
        let digits = after
            .get(..2)
            .filter(|two| two.chars().all(|c| c.is_ascii_hexdigit()))?;
        let byte = u8::from_str_radix(digits, 16).ok()?;
        match char::from(byte) {
            plain if is_of(&plain.to_string(), "-._~") => segments.push(plain),
            _ => segments.push_str(&format!("%{byte:02X}")),
        }
        rest = &after[2..];
    }
    let path = if segments.is_empty() { "/" } else { &segments };
    Some(format!("{scheme}://{}{port}{path}", host.to_ascii_lowercase()))
}

/// Another spelling of a path: each unreserved character is encoded, with digits in lower case.
fn encoded(path: &str) -> String {
    let mut encoded = String::new();
    let mut escape = 0;
    for character in path.chars() {
        if character == '%' {
            escape = 3;
        }
        if escape > 0 {
            escape -= 1;
            encoded.extend(character.to_lowercase());
        } else if character.is_ascii_alphanumeric() || "-._~".contains(character) {
            encoded.push_str(&format!("%{:02x}", u32::from(character)));
        } else {
            encoded.push(character);
        }
    }
    encoded
}
