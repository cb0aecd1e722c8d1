//! Finding Credence's filter in what surrounds it: Envoy's configuration, or the resources of Istio or Envoy Gateway.

use credence_delegation::canonicalize;
use credence_delegation::json::{Json, Object};

use super::envoy_gateway::{self, Patched};
use super::{envoy, istio, routes};
use crate::yaml;
use crate::yaml::places::{self, Places};

/// One filter of ours, found somewhere in a document.
#[derive(Debug, Default)]
pub(super) struct Plugin {
    /// What the filter would be handed; missing where that is not to be had.
    pub(super) configuration: Option<Configuration>,
    /// What is wrong with its surroundings.
    pub(super) refused: Vec<Remark>,
    /// What should be different, but fails closed as it is.
    pub(super) warnings: Vec<Remark>,
    /// Why no rule can read a body here: the proxy would not show it to the filter, and the request would wait in vain.
    pub(super) bodiless: Option<Remark>,
}

/// The configuration of a filter, as JSON text.
#[derive(Debug)]
pub(super) struct Configuration {
    pub(super) json: String,
    /// Where it stands in the document; empty if it is the document.
    pub(super) path: String,
    /// Whether it stands there as a text, which has places of its own.
    pub(super) is_text: bool,
}

/// Something to say about a place in a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Remark {
    pub(super) path: String,
    pub(super) message: String,
}

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

/// Whether any of these says that the filter is ours, by name or by its module's file or address.
pub(super) fn is_named_ours<'a>(names: impl IntoIterator<Item = Option<&'a Json<'a>>>) -> bool {
    names
        .into_iter()
        .flatten()
        .any(|name| name.as_str().is_some_and(|text| text.contains("credence")))
}

impl Plugin {
    /// Takes the configuration that the object at `path` has in this member, or remarks what is wrong with it.
    pub(super) fn configure(&mut self, object: &Object<'_>, path: &str, member: &str) {
        let place = places::member(path, member);
        let configuration = match object.member(member) {
            Some(json @ Json::Object(_)) => Configuration::from_object(json, place),
            Some(_) => Err(Remark::new(
                place,
                "not an object; write the plugin's configuration below it",
            )),
            None => Err(Remark::new(
                place,
                "missing, so that the filter refuses to start; add the plugin's configuration",
            )),
        };
        match configuration {
            Ok(configuration) => self.configuration = Some(configuration),
            Err(remark) => self.refused.push(remark),
        }
    }
}

impl Configuration {
    /// From the object that YAML has in its place. Its numbers pass through doubles on the way to the filter.
    pub(super) fn from_object(object: &Json<'_>, path: String) -> Result<Self, Remark> {
        match canonicalize(object) {
            Some(json) => Ok(Self {
                json,
                path,
                is_text: false,
            }),
            None => Err(Remark::new(path, "a number in it is too large; write a smaller one")),
        }
    }

    /// The path in the document of a path in the configuration.
    pub(super) fn place(&self, inner: &str) -> String {
        let separator = match (inner, self.path.as_str()) {
            (".", "") => return ".".to_owned(),
            (".", _) => return self.path.clone(),
            (_, "") => "",
            _ if self.is_text => ": ",
            _ => ".",
        };
        format!("{}{separator}{inner}", self.path)
    }

    /// The line of a path in the configuration.
    pub(super) fn line(&self, inner: &str, places: &Places) -> Option<usize> {
        let inner = if inner == "." { "" } else { inner };
        if !self.is_text {
            return match (inner, self.path.as_str()) {
                ("", path) => places.line(path),
                (inner, "") => places.line(inner),
                (inner, path) => places.line(&format!("{path}.{inner}")),
            };
        }
        let own = yaml::documents(&self.json).ok();
        let within = own.as_ref().and_then(|own| own.first()?.places.line(inner));
        match (places.literal(&self.path), within) {
            (Some(before), Some(within)) => Some(before + within),
            _ => places.line(&self.path),
        }
    }
}

impl Remark {
    pub(super) fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            message: message.into(),
        }
    }
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

/// Whether an object looks like our configuration.
pub(super) fn is_configuration(json: &Json<'_>) -> bool {
    json.as_object()
        .is_some_and(|object: &Object<'_>| object.member("trust_anchors").is_some())
}
