//! Credence's filter as Envoy's configuration has it, and what Envoy does when it fails.

use credence_delegation::Remark;
use credence_delegation::json::{Json, Object};

use super::plugin::{self, Configuration, Plugin};
use crate::yaml::places;

/// The `config` of a Wasm filter and its path, if the object is a Wasm filter: as itself, or in the `TypedStruct` that
/// patches are often written with.
pub(super) fn wasm_filter<'a>(object: &'a Object<'a>, path: &str) -> Option<(&'a Object<'a>, String)> {
    let url = object.text("@type")?;
    if url.ends_with(WASM_FILTER) {
        return Some((object.object("config")?, places::member(path, "config")));
    }
    if !(url.ends_with(".TypedStruct") && object.text("type_url")?.ends_with(WASM_FILTER)) {
        return None;
    }
    let config = object.at(&["value", "config"])?.as_object()?;
    Some((config, places::member(path, "value.config")))
}

/// Judges a Wasm filter, if it is ours.
pub(super) fn plugin(config: &Object<'_>, path: &str) -> Option<Plugin> {
    if !is_ours(config) {
        return None;
    }
    let mut plugin = Plugin::default();
    judge_failure(config, path, &mut plugin);
    if !matches!(config.member(HOLD), Some(Json::Bool(true))) {
        plugin.bodiless = Some(Remark::new(places::member(path, HOLD), BODILESS));
    }
    plugin.configure(configuration(config, path));
    Some(plugin)
}

/// Other Wasm filters may live in the same file. Ours is known by its name, its module's file or its configuration.
fn is_ours(config: &Object<'_>) -> bool {
    let is_configured = match config.at(&["configuration", "value"]) {
        Some(Json::String(text)) => text.contains("trust_anchors"),
        Some(value) => plugin::is_configuration(value),
        None => false,
    };
    let filename = config.at(&["vm_config", "code", "local", "filename"]);
    is_configured || plugin::is_named_ours([config.member("name"), config.member("root_id"), filename])
}

fn judge_failure(config: &Object<'_>, path: &str, plugin: &mut Plugin) {
    match config.member("fail_open") {
        None | Some(Json::Bool(false)) => {}
        Some(_) => plugin.refuse(
            places::member(path, "fail_open"),
            "without the filter every request would pass; remove fail_open and set failure_policy: FAIL_RELOAD",
        ),
    }
    let place = places::member(path, "failure_policy");
    // Envoy takes an enum's name or its number.
    let policy = config.member("failure_policy");
    match policy.map(|policy| (policy.as_str(), policy.as_integer())) {
        Some((Some("FAIL_RELOAD"), _) | (_, Some(1))) => {}
        Some((Some("FAIL_OPEN"), _) | (_, Some(3))) => plugin.refuse(
            place,
            "FAIL_OPEN lets every request pass when the filter fails; set FAIL_RELOAD",
        ),
        None | Some((Some("UNSPECIFIED" | "FAIL_CLOSED"), _) | (_, Some(0 | 2))) => plugin.warn(place, NOT_RELOADING),
        Some(_) => plugin.refuse(place, "not a policy that Envoy knows; set FAIL_RELOAD"),
    }
}

/// What Envoy hands to the filter (`anyToBytes`): the value of a `StringValue` as it is, that of a `Struct` as JSON.
fn configuration(config: &Object<'_>, path: &str) -> Result<Configuration, Remark> {
    let path = places::member(path, "configuration");
    let json = config
        .member("configuration")
        .ok_or_else(|| Remark::new(&path, "missing, so that the filter refuses to start; add it"))?;
    let any = json
        .as_object()
        .ok_or_else(|| Remark::new(&path, format!("not an object; {HOW}")))?;
    let url = any.text("@type").unwrap_or_default();
    let place = places::member(&path, "value");
    let is_text = url.ends_with("google.protobuf.StringValue");
    if !is_text && !url.ends_with("google.protobuf.Struct") {
        let message = format!("the filter cannot read {url:?}; {HOW}");
        return Err(Remark::new(places::member(&path, "@type"), message));
    }
    match any.member("value") {
        None => Err(Remark::new(place, format!("missing; {HOW}"))),
        Some(Json::String(text)) if is_text => Ok(Configuration {
            json: text.clone().into_owned(),
            path: place,
            is_text,
        }),
        Some(_) if is_text => Err(Remark::new(
            place,
            format!("a StringValue has a text, not an object; {HOW}"),
        )),
        Some(value @ Json::Object(_)) => Configuration::from_object(value, place),
        Some(_) => Err(Remark::new(place, format!("a Struct has an object; {HOW}"))),
    }
}

/// The field of Envoy's `PluginConfig` without which a request that a filter holds has no body for it.
const HOLD: &str = "allow_on_headers_stop_iteration";

const WASM_FILTER: &str = "envoy.extensions.filters.http.wasm.v3.Wasm";

const HOW: &str = "write \"@type\": type.googleapis.com/google.protobuf.Struct and the plugin's configuration as value";

const BODILESS: &str = "a rule reads the body, which Envoy shows to a filter that holds a request only if this is true; set \
                        allow_on_headers_stop_iteration: true, or every such request waits until it times out";

const NOT_RELOADING: &str = "it is not FAIL_RELOAD, so that one failure of the filter denies every request of its worker until \
                             Envoy restarts; set failure_policy: FAIL_RELOAD";
