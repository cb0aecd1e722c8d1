//! Credence's filter in Istio's `WasmPlugin`. An `EnvoyFilter` is a patch of Envoy's own configuration; `envoy` reads
//! it.

use credence_delegation::json::{Json, Object};
use credence_delegation::{Location, Remark};

use super::examples;
use super::plugin::{self, Configuration, Plugin};

/// The `spec`, if the object is a `WasmPlugin`.
pub(super) fn wasm_plugin<'a>(object: &'a Object<'a>) -> Option<&'a Object<'a>> {
    plugin::spec(object, GROUP, "WasmPlugin")
}

/// Checks a `WasmPlugin`, if it is Credence's. `place` is that of its `spec`.
pub(super) fn plugin(resource: &Object<'_>, spec: &Object<'_>, place: &Location<'_>) -> Option<Plugin> {
    let name = resource.at(&["metadata", "name"]);
    let is_configured = spec.member("pluginConfig").is_some_and(plugin::is_configuration);
    if !(is_configured || plugin::is_named_ours([name, spec.member("pluginName"), spec.member("url")])) {
        return None;
    }
    judge_failure(spec, &place.field("failStrategy"));
    judge_module(spec, place);
    Some(Plugin {
        configuration: Configuration::of_member(spec, place, "pluginConfig"),
        bodiless: Some(Remark::new(place.path(), BODILESS)),
    })
}

fn judge_failure(spec: &Object<'_>, place: &Location<'_>) {
    match spec.member("failStrategy").map(Json::as_str) {
        Some(Some("FAIL_RELOAD")) => {}
        None | Some(Some("FAIL_CLOSE")) => place.note(NOT_RELOADING),
        Some(Some("FAIL_OPEN")) => {
            place.report("FAIL_OPEN lets every request pass if the filter fails or cannot be fetched; set FAIL_RELOAD")
        }
        Some(_) => place.report("not a failure strategy of Istio; set FAIL_RELOAD"),
    }
}

fn judge_module(spec: &Object<'_>, place: &Location<'_>) {
    if spec.text("type") == Some("NETWORK") {
        place
            .field("type")
            .report("the filter reads HTTP requests, which a NETWORK plugin never sees; remove type");
    }
    let url = spec.text("url").unwrap_or_default();
    let is_pinned = spec.member("sha256").is_some() || url.contains("@sha256:");
    if !is_pinned && !url.starts_with("file://") {
        place.field("sha256").note(
            "anyone with write access to url can replace the module that verifies your requests; set it to the \
             module's SHA-256",
        );
    }
    if spec.text("sha256") == Some(examples::DIGEST) {
        place.field("sha256").note(examples::DIGEST_NOTE);
    }
}

const GROUP: &str = "extensions.istio.io/";

const BODILESS: &str = "a rule reads the body, but a WasmPlugin cannot set allow_on_headers_stop_iteration, without \
                        which a filter that holds a request never sees its body; use an EnvoyFilter, as \
                        envoy-config/istio/envoyfilter.yaml does, or let the rule hold only the body: `hold: body`";

const NOT_RELOADING: &str = "without FAIL_RELOAD, one failure of the filter denies every request of its worker until \
                             the proxy restarts; set failStrategy: FAIL_RELOAD";
