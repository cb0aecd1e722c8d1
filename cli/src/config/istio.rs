//! Credence's filter as Istio's `WasmPlugin` has it. An `EnvoyFilter` is a patch of Envoy's own configuration, and read
//! as such.

use credence_delegation::json::{Json, Object};

use super::plugins::{self, Plugin, Remark};
use crate::yaml::places;

/// The `spec`, if the object is a `WasmPlugin`.
pub(super) fn wasm_plugin<'a>(object: &'a Object<'a>) -> Option<&'a Object<'a>> {
    let text = |name: &str| object.member(name).and_then(Json::as_str);
    let is_wasm_plugin =
        text("kind") == Some("WasmPlugin") && text("apiVersion").is_some_and(|group| group.starts_with(GROUP));
    object
        .member("spec")
        .and_then(Json::as_object)
        .filter(|_| is_wasm_plugin)
}

/// Judges a `WasmPlugin`, if it is ours. The path is that of its `spec`.
pub(super) fn plugin(resource: &Object<'_>, spec: &Object<'_>, path: &str) -> Option<Plugin> {
    let name = resource
        .member("metadata")
        .and_then(|metadata| metadata.as_object()?.member("name"));
    let is_configured = spec.member("pluginConfig").is_some_and(plugins::is_configuration);
    if !(is_configured || plugins::is_named_ours([name, spec.member("pluginName"), spec.member("url")])) {
        return None;
    }
    let mut plugin = Plugin {
        bodiless: Some(Remark::new(path, BODILESS)),
        ..Plugin::default()
    };
    judge_failure(spec, path, &mut plugin);
    judge_module(spec, path, &mut plugin);
    plugin.configure(spec, path, "pluginConfig");
    Some(plugin)
}

fn judge_failure(spec: &Object<'_>, path: &str, plugin: &mut Plugin) {
    let place = places::member(path, "failStrategy");
    let Some(strategy) = spec.member("failStrategy") else {
        plugin.warnings.push(Remark::new(place, NOT_RELOADING));
        return;
    };
    match strategy.as_str() {
        Some("FAIL_RELOAD") => {}
        Some("FAIL_CLOSE") => plugin.warnings.push(Remark::new(place, NOT_RELOADING)),
        Some("FAIL_OPEN") => plugin.refused.push(Remark::new(
            place,
            "FAIL_OPEN lets every request pass when the filter fails, or can not be fetched; set FAIL_RELOAD",
        )),
        Some(_) | None => plugin
            .refused
            .push(Remark::new(place, "not a strategy that Istio knows; set FAIL_RELOAD")),
    }
}

fn judge_module(spec: &Object<'_>, path: &str, plugin: &mut Plugin) {
    if spec.member("type").and_then(Json::as_str) == Some("NETWORK") {
        plugin.refused.push(Remark::new(
            places::member(path, "type"),
            "the filter reads HTTP requests, which a NETWORK plugin never sees; remove type",
        ));
    }
    let url = spec.member("url").and_then(Json::as_str).unwrap_or_default();
    let is_pinned = spec.member("sha256").is_some() || url.contains("@sha256:");
    if !is_pinned && !url.starts_with("file://") {
        plugin.warnings.push(Remark::new(
            places::member(path, "sha256"),
            "without it, whoever can change what lies at url decides what verifies your requests; set it to the \
             module's SHA-256",
        ));
    }
}

const GROUP: &str = "extensions.istio.io/";

const BODILESS: &str = "a rule reads the body, which a WasmPlugin never shows to a filter that holds a request (it can not \
                        set allow_on_headers_stop_iteration); use an EnvoyFilter, as envoy-config/istio/envoyfilter.yaml \
                        does";

const NOT_RELOADING: &str = "it is not FAIL_RELOAD, so that one failure of the filter denies every request of its \
                             worker until the proxy restarts; set failStrategy: FAIL_RELOAD";
