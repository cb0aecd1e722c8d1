//! Finding Credence's filter in what surrounds it: Envoy's configuration, or the resources of Istio or Envoy Gateway.

use credence_delegation::json::Json;

use super::envoy_gateway::{self, Patched};
use super::plugin::Plugin;
use super::{envoy, istio, routes};
use crate::yaml::places;

/// Finds every filter of ours in a document, however deep.
pub(super) fn plugins(document: &Json<'_>, patched: Patched) -> Vec<Plugin> {
    let mut found = Vec::new();
    search(document, "", patched, &mut found);
    found
}

/// Whether the document is an Envoy configuration or a Kubernetes resource, and not the plugin's configuration itself.
pub(super) fn surrounds(document: &Json<'_>) -> bool {
    let members = [
        "static_resources",
        "dynamic_resources",
        "@type",
        "apiVersion",
        "resources",
        "http_filters",
    ];
    document
        .as_object()
        .is_some_and(|object| members.iter().any(|name| object.member(name).is_some()))
}

fn search(json: &Json<'_>, path: &str, patched: Patched, found: &mut Vec<Plugin>) {
    match json {
        Json::Object(object) => {
            if let Some((config, path)) = envoy::wasm_filter(object, path) {
                found.extend(envoy::plugin(config, &path));
            } else if let Some(spec) = istio::wasm_plugin(object) {
                found.extend(istio::plugin(object, spec, &places::member(path, "spec")));
            } else if let Some(extensions) = envoy_gateway::wasm_extensions(object) {
                let place = places::member(path, "spec.wasm");
                for (index, extension) in extensions.iter().enumerate() {
                    let place = places::element(&place, index);
                    found.extend(envoy_gateway::plugin(extension, &place, patched));
                }
            } else {
                let before = found.len();
                for (name, value) in object.iter() {
                    search(value, &places::member(path, name), patched, found);
                }
                let is_manager = object.member("http_filters").is_some();
                if let Some(plugin) = found.get_mut(before..).and_then(<[Plugin]>::first_mut)
                    && is_manager
                {
                    plugin.warnings.extend(routes::remarks(object, path));
                }
            }
        }
        Json::Array(elements) => {
            for (index, element) in elements.iter().enumerate() {
                search(element, &places::element(path, index), patched, found);
            }
        }
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
    }
}
