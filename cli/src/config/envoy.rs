//! Credence's filter in an Envoy configuration, and what Envoy does when the filter fails.

use credence_delegation::json::{Json, Object};
use credence_delegation::{Location, Remark};

use super::plugin::{self, Configuration, Plugin};

/// The `config` of a Wasm filter and its place, if the object is a Wasm filter. Patches often wrap it in a
/// `TypedStruct`.
pub(super) fn wasm_filter<'a, 'f>(
    object: &'a Object<'a>,
    place: &Location<'f>,
) -> Option<(&'a Object<'a>, Location<'f>)> {
    let url = object.text("@type")?;
    if url.ends_with(WASM_FILTER) {
        return Some((object.object("config")?, place.field("config")));
    }
    if !(url.ends_with(".TypedStruct") && object.text("type_url")?.ends_with(WASM_FILTER)) {
        return None;
    }
    let config = object.at(&["value", "config"])?.as_object()?;
    Some((config, place.field("value.config")))
}

/// Checks a Wasm filter, if it is Credence's.
pub(super) fn plugin(config: &Object<'_>, place: &Location<'_>) -> Option<Plugin> {
    if !is_ours(config) {
        return None;
    }
    judge_failure(config, place);
    let shows_bodies = matches!(config.member(HOLD), Some(Json::Bool(true)));
    Some(Plugin {
        configuration: configuration(config, &place.field("configuration")),
        bodiless: (!shows_bodies).then(|| Remark::new(place.field(HOLD).path(), BODILESS)),
    })
}

/// The file may contain other Wasm filters. Credence's is recognised by its name, its module's file or its
/// configuration.
fn is_ours(config: &Object<'_>) -> bool {
    let is_configured = match config.at(&["configuration", "value"]) {
        Some(Json::String(text)) => text.contains("trust_anchors"),
        Some(value) => plugin::is_configuration(value),
        None => false,
    };
    let filename = config.at(&["vm_config", "code", "local", "filename"]);
    is_configured || plugin::is_named_ours([config.member("name"), config.member("root_id"), filename])
}

fn judge_failure(config: &Object<'_>, place: &Location<'_>) {
    match config.member("fail_open") {
        None | Some(Json::Bool(false)) => {}
        Some(_) => place
            .field("fail_open")
            .report("if the filter fails, every request passes; remove fail_open and set failure_policy: FAIL_RELOAD"),
    }
    let place = place.field("failure_policy");
    // Envoy accepts the name or the number of an enum value.
    let policy = config.member("failure_policy");
    match policy.map(|policy| (policy.as_str(), policy.as_integer())) {
        Some((Some("FAIL_RELOAD"), _) | (_, Some(1))) => {}
        Some((Some("FAIL_OPEN"), _) | (_, Some(3))) => {
            place.report("FAIL_OPEN lets every request pass if the filter fails; set FAIL_RELOAD");
        }
        None | Some((Some("UNSPECIFIED" | "FAIL_CLOSED"), _) | (_, Some(0 | 2))) => place.note(NOT_RELOADING),
        Some(_) => place.report("not a failure policy of Envoy; set FAIL_RELOAD"),
    }
}

/// The text that Envoy passes to the filter (`anyToBytes`): the value of a `StringValue` as it is, a `Struct` as JSON.
fn configuration(config: &Object<'_>, place: &Location<'_>) -> Option<Configuration> {
    let json = place.take(
        config
            .member("configuration")
            .ok_or("missing; the filter does not start without it; add it"),
    )?;
    let any = place.take(json.as_object().ok_or_else(|| format!("not an object; {HOW}")))?;
    let url = any.text("@type").unwrap_or_default();
    let is_text = url.ends_with("google.protobuf.StringValue");
    if !is_text && !url.ends_with("google.protobuf.Struct") {
        place
            .field("@type")
            .report(format!("the filter cannot read {url:?}; {HOW}"));
        return None;
    }
    let place = place.field("value");
    match any.member("value") {
        None => place.report(format!("missing; {HOW}")),
        Some(Json::String(text)) if is_text => {
            return Some(Configuration {
                json: text.clone().into_owned(),
                path: place.path().to_owned(),
                is_text,
            });
        }
        Some(_) if is_text => place.report(format!("a StringValue holds a string, not an object; {HOW}")),
        Some(value @ Json::Object(_)) => return Configuration::from_object(value, &place),
        Some(_) => place.report(format!("a Struct holds an object; {HOW}")),
    }
    None
}

/// The field of Envoy's `PluginConfig` that lets a filter see the body of a request that it holds.
const HOLD: &str = "allow_on_headers_stop_iteration";

const WASM_FILTER: &str = "envoy.extensions.filters.http.wasm.v3.Wasm";

const HOW: &str = "write \"@type\": type.googleapis.com/google.protobuf.Struct and the plugin's configuration as value";

const BODILESS: &str = "a rule reads the body, which Envoy shows to a filter that holds a request only if this is \
                        true; set allow_on_headers_stop_iteration: true, or every such request waits until it times \
                        out";

const NOT_RELOADING: &str = "without FAIL_RELOAD, one failure of the filter denies every request of its worker until \
                             Envoy restarts; set failure_policy: FAIL_RELOAD";
