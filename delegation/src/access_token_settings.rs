//! `access_tokens` of a trust anchor: what the issuer's access tokens grant, read from a configuration.

use serde_json::value::RawValue;

use crate::access_token::{AccessTokens, ScopeClaim};
use crate::authorization_details::{DetailType, DetailTypes};
use crate::by_name::ByName;
use crate::capabilities::Capabilities;
use crate::constraint::Constraint;
use crate::denial::Step;
use crate::findings::Location;
use crate::json::{Json, Object};

/// Reads the field. Problems are reported at their places.
pub(crate) fn read(place: &Location<'_>, text: &RawValue) -> Option<AccessTokens> {
    let json = place.take(Json::parse(text.get().as_bytes()))?;
    let settings = object(place, &json)?;
    only(
        place,
        settings,
        &[
            "typ",
            "scope_claim",
            "scopes",
            "authorization_details",
            "delegation_depth",
        ],
    );
    let tokens = AccessTokens {
        untyped: match named(place, settings, "typ", &["at+jwt", "JWT"]) {
            Some(name) => name == "JWT",
            None => false,
        },
        scope_claim: named(place, settings, "scope_claim", &ScopeClaim::ALL.map(ScopeClaim::name))
            .and_then(|name| ScopeClaim::ALL.into_iter().find(|claim| claim.name() == name))
            .unwrap_or_default(),
        scopes: members(place, settings, "scopes", MAX_SCOPES, |place, json| tools(place, json)),
        details: DetailTypes::new(members(
            place,
            settings,
            "authorization_details",
            MAX_DETAIL_TYPES,
            detail_type,
        )),
        delegation_depth: depth(place, settings),
    };
    for scope in settings
        .object("scopes")
        .into_iter()
        .flat_map(Object::iter)
        .map(|(name, _)| name)
    {
        // RFC 6749, section 3.3.
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
        if scope.is_empty() || !scope.bytes().all(is_plain) {
            let scope = scope.escape_debug();
            place.field("scopes").report(format!(
                "`{scope}` is not a scope (RFC 6749, section 3.3); write visible ASCII without quotes and backslashes"
            ));
        }
    }
    if settings.member("scopes").is_none() && settings.member("authorization_details").is_none() {
        place
            .note("neither `scopes` nor `authorization_details`: only entries of type `attenuating_agent_token` grant");
    }
    Some(tokens)
}

/// The `tools` of a delegation.
fn tools(place: &Location<'_>, json: &Json<'_>) -> Option<Capabilities> {
    let tools = object(place, json)?;
    if tools.is_empty() {
        place.report("no tool; name the tools as the `tools` of a delegation do, such as `{orders.read: {}}`");
    }
    let read = Capabilities::parse(tools, Step::S3m, Step::S3n);
    let read = read.map_err(|denial| format!("{}; write it as the `tools` of a delegation", denial.cause));
    place.take(read)
}

fn detail_type(place: &Location<'_>, json: &Json<'_>) -> Option<DetailType> {
    let settings = object(place, json)?;
    only(place, settings, &["tools", "requires", "ignore"]);
    let Some(tools) = settings.object("tools") else {
        place.report("no `tools`: name the tools that an entry of this type grants");
        return None;
    };
    let requires = members(place, settings, "requires", MAX_POINTERS, |place, json| {
        let constraint = Constraint::parse_entry(json).map(|(constraint, _)| constraint);
        place.take(constraint.map_err(|fault| fault.to_string()))
    });
    let requires: Vec<(Box<str>, Constraint)> = requires.into_iter().collect();
    let ignore = place.field("ignore");
    let ignored = match settings.member("ignore") {
        None => Vec::new(),
        Some(Json::Array(pointers)) if pointers.iter().all(|pointer| pointer.as_str().is_some()) => {
            pointers.iter().filter_map(Json::as_str).collect()
        }
        Some(_) => {
            ignore.report("a list of JSON pointers is needed, such as `[/creditorName]`");
            Vec::new()
        }
    };
    let built = DetailType::new(tools, requires, &ignored).map_err(|denial| denial.cause.to_string());
    let built = place.field("tools").take(built)?;
    for pointer in built.pointers().filter(|pointer| !pointer.starts_with('/')) {
        place.report(format!("`{pointer}` is no JSON pointer (RFC 6901); it starts with `/`"));
    }
    Some(built)
}

fn depth(place: &Location<'_>, settings: &Object<'_>) -> u32 {
    let Some(json) = settings.member("delegation_depth") else {
        return 0;
    };
    let depth = json.as_integer().and_then(|depth| u32::try_from(depth).ok());
    let depth = depth.filter(|depth| *depth <= MAX_DEPTH);
    depth.unwrap_or_else(|| {
        place
            .field("delegation_depth")
            .report(format!("a number from 0 to {MAX_DEPTH} is needed"));
        0
    })
}

/// The values of an object's members by name.
fn members<'f, V>(
    place: &Location<'f>,
    settings: &Object<'_>,
    name: &str,
    most: usize,
    read: impl Fn(&Location<'f>, &Json<'_>) -> Option<V>,
) -> ByName<V> {
    let place = place.field(name);
    let Some(object) = settings.member(name).and_then(|json| object(&place, json)) else {
        return ByName::default();
    };
    let all: Vec<_> = object.iter().collect();
    if !place.at_most(most, &all) {
        return ByName::default();
    }
    let read = all
        .into_iter()
        .filter_map(|(name, json)| Some((name.into(), read(&place.field(name), json)?)));
    read.collect()
}

fn named<'s>(place: &Location<'_>, settings: &'s Object<'_>, name: &str, known: &[&str]) -> Option<&'s str> {
    let json = settings.member(name)?;
    let found = json.as_str().filter(|found| known.contains(found));
    if found.is_none() {
        let written = json.as_str().unwrap_or("this value");
        let known = known.join(", ");
        place
            .field(name)
            .report(format!("`{written}` is not supported; write one of: {known}"));
    }
    found
}

fn object<'j, 'a>(place: &Location<'_>, json: &'j Json<'a>) -> Option<&'j Object<'a>> {
    let object = json.as_object();
    if object.is_none() {
        place.report("a mapping is needed");
    }
    object
}

fn only(place: &Location<'_>, settings: &Object<'_>, known: &[&str]) {
    for (name, _) in settings.iter().filter(|(name, _)| !known.contains(name)) {
        place
            .field(name)
            .report(format!("unknown field; the fields here are {}", known.join(", ")));
    }
}

const MAX_SCOPES: usize = 256;
const MAX_DETAIL_TYPES: usize = 32;
const MAX_POINTERS: usize = 32;
const MAX_DEPTH: u32 = 8;
