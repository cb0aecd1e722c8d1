//! What services make of a request: the habits of widespread servers and frameworks, each of which is somebody's.
//!
//! A request that is one thing to the filter and another to the service behind it is how a filter is passed by. Here the
//! other reading is shown, on what has really arrived.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use crate::received::Received;

/// The path as a server reads it that decodes first and then splits, takes `\` for `/`, cuts segments at `;`, strings at
/// NUL, merges slashes and resolves dots: Windows, Tomcat, C.
pub fn tidied_path(received: &Received) -> String {
    let path = received.target.split(['?', '#']).next().unwrap_or_default();
    let decoded = decoded(path).replace('\\', "/");
    let decoded = decoded.split('\0').next().unwrap_or_default();
    let mut segments = Vec::new();
    for segment in decoded.split('/') {
        match segment.split(';').next().unwrap_or_default() {
            "" | "." => {}
            ".." => _ = segments.pop(),
            segment => segments.push(segment),
        }
    }
    format!("/{}", segments.join("/"))
}

/// The same by one who decodes once more than his proxy expects.
pub fn path_decoded_twice(received: &Received) -> String {
    let target = decoded(&received.target);
    tidied_path(&Received {
        target,
        ..received.clone()
    })
}

/// The path as a router reads it that ignores letter case: Express, ASP.NET.
pub fn caseless_path(received: &Received) -> String {
    tidied_path(received).to_lowercase()
}

/// The path as a router reads it that ignores a trailing slash, and takes `.json` for a format: Express, Rails, Spring.
pub fn path_without_ending(received: &Received) -> String {
    let path = tidied_path(received);
    path.rsplit_once('.').map_or(path.as_str(), |(path, _)| path).to_owned()
}

/// The method as a framework reads it that puts it in capitals: Django, Flask.
pub fn caseless_method(received: &Received) -> String {
    received.method.to_uppercase()
}

/// The query member of that name, the last if there are several, by one who takes `;` for `&` (the older HTML), `+` for a
/// space, `name[]`, `[name]`, `x.name` and `Name` for `name` (PHP, the `qs` of Node, ASP.NET), `a.b` and `a[b` for `a_b`
/// (PHP), and leaves escapes that are none as they are.
pub fn query_member(received: &Received, name: &str) -> Option<String> {
    let (_, query) = received.target.split_once('?')?;
    member(query, name)
}

/// The member of that name in a form, which many a framework takes for one of the query.
pub fn form_member(received: &Received, name: &str) -> Option<String> {
    member(&received.body, name)
}

/// The header of that name, the last if there are several, by a service that can tell no character from `-` that is no
/// letter or digit (CGI, as PHP and lighttpd do it), merges trailers into the headers, and of a list takes the last element.
pub fn header(received: &Received, name: &str) -> Option<String> {
    let fold = |name: &str| name.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let headers = received.headers.iter().chain(&received.trailers);
    let mut values = headers.filter(|(other, _)| fold(other) == fold(name));
    let last = values.next_back()?.1.rsplit(',').next().unwrap_or_default();
    Some(last.trim().to_owned())
}

/// The member of a JSON body, the last if there are several, by one who asks neither for a media type nor for letter
/// case, nor for the end of the text (Go's `encoding/json` with a decoder, JavaScript's `JSON.parse` but for the last).
pub fn json_member(received: &Received, name: &str) -> Option<String> {
    let body = received.body.trim_start_matches('\u{feff}');
    let mut values = serde_json::Deserializer::from_str(body).into_iter::<Members>();
    let Members(members) = values.next()?.ok()?;
    let mut found = members.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
    found.next_back().map(|(_, value)| value.get().to_owned())
}

/// The method, by one who lets a header replace it (Rails, Express with method-override, and so on).
pub fn method(received: &Received) -> String {
    let overrides = [
        "x-http-method-override",
        "x-http-method",
        "x-method-override",
        "x-forwarded-method",
        "x-original-method",
    ];
    let by_header = overrides.iter().find_map(|name| header(received, name));
    by_header.unwrap_or_else(|| received.method.clone())
}

/// The path, by one who lets a header replace it (IIS's rewriting, Symfony, oauth2-proxy, and so on).
pub fn rewritten_path(received: &Received) -> String {
    let names = [
        "x-original-url",
        "x-original-uri",
        "x-rewrite-url",
        "x-forwarded-uri",
        "x-matched-path",
        "x-invoke-path",
    ];
    let by_header = names.iter().find_map(|name| header(received, name));
    by_header.unwrap_or_else(|| received.target.clone())
}

/// The path, by one who lets a header say how much of it is not the application's (gunicorn, and the middleware that many a
/// Flask application has).
pub fn path_in_application(received: &Received) -> String {
    let mut names = ["script-name", "x-script-name", "x-forwarded-prefix"].iter();
    let mounted_at = names.find_map(|name| header(received, name)).unwrap_or_default();
    let rest = received.target.strip_prefix(&mounted_at);
    rest.unwrap_or(&received.target).to_owned()
}

/// The host, by one who believes whoever says for which host the request was before (Rails, and others where they are told
/// to).
pub fn host(received: &Received) -> Option<String> {
    let forwarded = header(received, "forwarded").and_then(|forwarded| {
        forwarded
            .split(';')
            .find_map(|pair| Some(pair.trim().strip_prefix("host=")?.to_owned()))
    });
    let mut names = [
        "x-forwarded-host",
        "x-forwarded-server",
        "x-original-host",
        "x-host",
        "x-http-host",
        "x-http-host-override",
        "x-real-host",
        "$wssn",
        "host",
    ]
    .iter();
    forwarded.or_else(|| names.find_map(|name| header(received, name)))
}

fn member(members: &str, name: &str) -> Option<String> {
    let mut found = members.split(['&', ';']).filter_map(|member| {
        let (other, value) = member.split_once('=').unwrap_or((member, ""));
        let other = decoded(&other.replace('+', " "));
        let mut spellings = other
            .split(['[', ']', '.', ' ', '!', '$'])
            .chain([other.trim_start_matches('_')])
            .map(str::to_owned)
            .chain([other.trim().replace(['[', '.', ' '], "_")]);
        spellings
            .any(|spelling| spelling.eq_ignore_ascii_case(name))
            .then(|| decoded(&value.replace('+', " ")))
    });
    found.next_back()
}

/// Percent-decoded, as far as there is something to decode.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&byte, after)) = rest.split_first() {
        let escaped = after.get(..2).filter(|_| byte == b'%');
        let value = escaped.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        decoded.push(value.unwrap_or(byte));
        rest = if value.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// The members of an object; serde_json keeps the last of one name.
#[derive(serde::Deserialize)]
struct Members(BTreeMap<String, Box<RawValue>>);
