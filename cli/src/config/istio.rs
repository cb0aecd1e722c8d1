//! Credence's filter as Istio's `WasmPlugin` has it. An `EnvoyFilter` is a patch of Envoy's own configuration, and read
//! as such.

use credence_delegation::Remark;
use credence_delegation::json::{Json, Object};

use super::plugin::{self, Configuration, Plugin};
use crate::yaml::places;

/// The `spec`, if the object is a `WasmPlugin`.
pub(super) fn wasm_plugin<'a>(object: &'a Object<'a>) -> Option<&'a Object<'a>> {
    let is_wasm_plugin = object.text("kind")? == "WasmPlugin" && object.text("apiVersion")?.starts_with(GROUP);
    object.object("spec").filter(|_| is_wasm_plugin)
}

/// Judges a `WasmPlugin`, if it is ours. The path is that of its `spec`.
pub(super) fn plugin(resource: &Object<'_>, spec: &Object<'_>, path: &str) -> Option<Plugin> {
    let name = resource.at(&["metadata", "name"]);
    let is_configured = spec.member("pluginConfig").is_some_and(plugin::is_configuration);
    if !(is_configured || plugin::is_named_ours([name, spec.member("pluginName"), spec.member("url")])) {
        return None;
    }
    let mut plugin = Plugin {
        bodiless: Some(Remark::new(path, BODILESS)),
        ..Plugin::default()
    };
    judge_failure(spec, path, &mut plugin);
    judge_module(spec, path, &mut plugin);
    plugin.configure(Configuration::of_member(spec, path, "pluginConfig"));
    Some(plugin)
}

fn judge_failure(spec: &Object<'_>, path: &str, plugin: &mut Plugin) {
    let place = places::member(path, "failStrategy");
    match spec.member("failStrategy").map(Json::as_str) {
        Some(Some("FAIL_RELOAD")) => {}
        None | Some(Some("FAIL_CLOSE")) => plugin.warn(place, NOT_RELOADING),
        Some(Some("FAIL_OPEN")) => plugin.refuse(
            place,
            "FAIL_OPEN lets every request pass when the filter fails, or cannot be fetched; set FAIL_RELOAD",
        ),
        Some(_) => plugin.refuse(place, "not a strategy that Istio knows; set FAIL_RELOAD"),
    }
}

fn judge_module(spec: &Object<'_>, path: &str, plugin: &mut Plugin) {
    if spec.text("type") == Some("NETWORK") {
        plugin.refuse(
            places::member(path, "type"),
            "the filter reads HTTP requests, which a NETWORK plugin never sees; remove type",
        );
    }
    let url = spec.text("url").unwrap_or_default();
    let is_pinned = spec.member("sha256").is_some() || url.contains("@sha256:");
    if !is_pinned && !url.starts_with("file://") {
        plugin.warn(
            places::member(path, "sha256"),
            "without it, write access to url is enough to replace the module that verifies your requests; set it to the \
             module's SHA-256",
        );
    }
}

const GROUP: &str = "extensions.istio.io/";

const BODILESS: &str = "a rule reads the body, which a WasmPlugin never shows to a filter that holds a request (it cannot \
                        set allow_on_headers_stop_iteration); use an EnvoyFilter, as envoy-config/istio/envoyfilter.yaml \
                        does";

const NOT_RELOADING: &str = "it is not FAIL_RELOAD, so that one failure of the filter denies every request of its \
                             worker until the proxy restarts; set failStrategy: FAIL_RELOAD";
