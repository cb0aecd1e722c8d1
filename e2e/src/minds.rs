//! How services read a request: habits of widespread servers and frameworks.
//!
//! A request bypasses a filter if the filter and the service read it differently. These functions give the service's
//! reading of a request that has arrived.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use crate::received::Received;

/// The path as read by a server that decodes before it splits, treats `\` as `/`, cuts segments at `;` and strings at
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

/// The same by a server that decodes once more than its proxy expects.
pub fn path_decoded_twice(received: &Received) -> String {
    let target = decoded(&received.target);
    tidied_path(&Received {
        target,
        ..received.clone()
    })
}

/// The path as read by a router that ignores letter case: Express, ASP.NET.
pub fn caseless_path(received: &Received) -> String {
    tidied_path(received).to_lowercase()
}

/// The path as read by a router that ignores a trailing slash, and takes `.json` for a format: Express, Rails, Spring.
pub fn path_without_ending(received: &Received) -> String {
    let path = tidied_path(received);
    path.rsplit_once('.').map_or(path.as_str(), |(path, _)| path).to_owned()
}

/// The method as read by a framework that turns it into capitals: Django, Flask.
pub fn caseless_method(received: &Received) -> String {
    received.method.to_uppercase()
}

/// The query member of that name, the last if there are several. This reader takes `;` for `&` (older HTML), `+` for a
/// space, `name[]`, `[name]`, `x.name` and `Name` for `name` (PHP, the `qs` of Node, ASP.NET), and `a.b` and `a[b` for
/// `a_b` (PHP). It leaves invalid escapes as they are.
pub fn query_member(received: &Received, name: &str) -> Option<String> {
    let (_, query) = received.target.split_once('?')?;
    member(query, name)
}

/// The member of that name in a form. Many frameworks treat it as a query member.
pub fn form_member(received: &Received, name: &str) -> Option<String> {
    member(&received.body, name)
}

/// The header of that name, the last if there are several. This reader takes every character that is no letter or digit
/// for `-` (CGI, in PHP and lighttpd), merges trailers into the headers, and takes the last element of a list.
pub fn header(received: &Received, name: &str) -> Option<String> {
    let fold = |name: &str| name.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let headers = received.headers.iter().chain(&received.trailers);
    let mut values = headers.filter(|(other, _)| fold(other) == fold(name));
    let last = values.next_back()?.1.rsplit(',').next().unwrap_or_default();
    Some(last.trim().to_owned())
}

/// The member of a JSON body, the last if there are several. This reader ignores the media type, letter case and text
/// after the JSON (Go's `encoding/json` with a decoder; JavaScript's `JSON.parse`, except for the last).
pub fn json_member(received: &Received, name: &str) -> Option<String> {
    let body = received.body.trim_start_matches('\u{feff}');
    let mut values = serde_json::Deserializer::from_str(body).into_iter::<Members>();
    let Members(members) = values.next()?.ok()?;
    let mut found = members.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
    found.next_back().map(|(_, value)| value.get().to_owned())
}

/// The method, if a header may override it (Rails, Express with method-override, and others).
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

/// The path, if a header may override it (IIS's rewriting, Symfony, oauth2-proxy, and others).
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

/// The path, if a header says which part of it is not the application's (gunicorn, and a middleware that is common in
/// Flask applications).
pub fn path_in_application(received: &Received) -> String {
    let mut names = ["script-name", "x-script-name", "x-forwarded-prefix"].iter();
    let mounted_at = names.find_map(|name| header(received, name)).unwrap_or_default();
    let rest = received.target.strip_prefix(&mounted_at);
    rest.unwrap_or(&received.target).to_owned()
}

/// The host, if the service trusts headers about the original host (Rails, and others where configured).
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

/// Percent-decoded; invalid escapes stay.
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
