//! One of Credence's filters in a configuration file: its configuration, and findings about what surrounds it.

use credence_delegation::json::{Json, Object};
use credence_delegation::{Location, Remark, canonicalize};

use crate::yaml;
use crate::yaml::places::{self, Places};

/// One of Credence's filters, found in a document.
#[derive(Debug)]
pub(super) struct Plugin {
    /// What Envoy would pass to the filter; absent if it cannot be read.
    pub(super) configuration: Option<Configuration>,
    /// Why no rule can read a body here: the proxy would not show it to the filter, and the request would time out.
    pub(super) bodiless: Option<Remark>,
}

/// The configuration of a filter, as JSON text.
#[derive(Debug)]
pub(super) struct Configuration {
    pub(super) json: String,
    /// Where it is in the document; empty if it is the whole document.
    pub(super) path: String,
    /// Whether the document holds it as a string, which has places of its own.
    pub(super) is_text: bool,
}

/// The `spec` of a Kubernetes object, if the object is of this API group and kind.
pub(super) fn spec<'a>(object: &'a Object<'a>, group: &str, kind: &str) -> Option<&'a Object<'a>> {
    let is_meant = object.text("kind")? == kind && object.text("apiVersion")?.starts_with(group);
    object.object("spec").filter(|_| is_meant)
}

/// Whether one of these names, files or addresses is that of Credence's filter.
pub(super) fn is_named_ours<'a>(names: impl IntoIterator<Item = Option<&'a Json<'a>>>) -> bool {
    names
        .into_iter()
        .flatten()
        .any(|name| name.as_str().is_some_and(|text| text.contains("credence")))
}

/// Whether an object looks like a configuration of Credence's filter.
pub(super) fn is_configuration(json: &Json<'_>) -> bool {
    json.as_object()
        .is_some_and(|object| object.member("trust_anchors").is_some())
}

impl Configuration {
    /// The configuration in this member of the object at `place`, as an object.
    pub(super) fn of_member(object: &Object<'_>, place: &Location<'_>, member: &str) -> Option<Self> {
        let place = place.field(member);
        match object.member(member) {
            Some(json @ Json::Object(_)) => return Self::from_object(json, &place),
            Some(_) => place.report("not an object; write the plugin's configuration under it"),
            None => place.report("missing; the filter does not start without it; add the plugin's configuration"),
        }
        None
    }

    /// From an object in the YAML. Its numbers become doubles on the way to the filter.
    pub(super) fn from_object(object: &Json<'_>, place: &Location<'_>) -> Option<Self> {
        let json = place.take(canonicalize(object).ok_or("a number in it is too large; write a smaller one"))?;
        Some(Self {
            json,
            path: place.path().to_owned(),
            is_text: false,
        })
    }

    /// The path in the document of a path in the configuration.
    pub(super) fn place(&self, inner: &str) -> String {
        match (inner, self.path.as_str()) {
            (".", "") => ".".to_owned(),
            (".", path) => path.to_owned(),
            (inner, path) if self.is_text => format!("{path}: {inner}"),
            (inner, path) => places::member(path, inner),
        }
    }

    /// The line of a path in the configuration.
    pub(super) fn line(&self, inner: &str, places: &Places) -> Option<usize> {
        let inner = if inner == "." { "" } else { inner };
        if !self.is_text {
            return match inner {
                "" => places.line(&self.path),
                inner => places.line(&places::member(&self.path, inner)),
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
