//! Finds Credence's filters in the surrounding configuration: Envoy's, or resources of Istio or Envoy Gateway.

use credence_delegation::Location;
use credence_delegation::json::Json;

use super::envoy_gateway::{self, Patched};
use super::plugin::Plugin;
use super::{envoy, istio, routes};

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

/// Finds all of Credence's filters below this place, at any depth, and reports what is wrong around them. A problem
/// keeps a filter from loading. A note is about a setting that should be different, but fails closed.
pub(super) fn search(json: &Json<'_>, place: &Location<'_>, patched: Patched, found: &mut Vec<Plugin>) {
    match json {
        Json::Object(object) => {
            if let Some((config, place)) = envoy::wasm_filter(object, place) {
                found.extend(envoy::plugin(config, &place));
            } else if let Some(spec) = istio::wasm_plugin(object) {
                found.extend(istio::plugin(object, spec, &place.field("spec")));
            } else if let Some(extensions) = envoy_gateway::wasm_extensions(object) {
                let place = place.field("spec.wasm");
                for (index, extension) in extensions.iter().enumerate() {
                    found.extend(envoy_gateway::plugin(extension, &place.element(index), patched));
                }
            } else {
                let before = found.len();
                for (name, value) in object.iter() {
                    search(value, &place.field(name), patched, found);
                }
                if found.len() > before && object.member("http_filters").is_some() {
                    routes::judge(object, place);
                }
            }
        }
        Json::Array(elements) => {
            for (index, element) in elements.iter().enumerate() {
                search(element, &place.element(index), patched, found);
            }
        }
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
    }
}
