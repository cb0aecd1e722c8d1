//! Credence's filter as Envoy Gateway's `EnvoyExtensionPolicy` has it, and the `EnvoyPatchPolicy` beside it that says what the
//! former can not.

use credence_delegation::json::{Json, Object};

use super::plugins::{self, Plugin, Remark};
use crate::yaml::places;

/// What the patches of a file add to the filters that Envoy Gateway makes. A patch names a filter by a path or an expression in
/// Envoy's configuration, which is not there to be looked at: it is taken to mean the filters of the same file.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Patched {
    reloads: bool,
    shows_bodies: bool,
    /// What `failOpen: true` would have said.
    opens: bool,
}

/// The elements of `spec.wasm`, if the object is an `EnvoyExtensionPolicy`.
pub(super) fn wasm_extensions<'a>(object: &'a Object<'a>) -> Option<&'a [Json<'a>]> {
    let spec = spec(object, "EnvoyExtensionPolicy")?;
    match spec.member("wasm") {
        Some(Json::Array(extensions)) => Some(extensions),
        _ => None,
    }
}

/// Judges an element of `spec.wasm`, if it is ours.
pub(super) fn plugin(extension: &Json<'_>, path: &str, patched: Patched) -> Option<Plugin> {
    let extension = extension.as_object()?;
    let code = extension.member("code").and_then(Json::as_object);
    let source = ["http", "image"]
        .into_iter()
        .find_map(|kind| Some((kind, code?.member(kind)?.as_object()?)));
    let url = source.and_then(|(_, source)| source.member("url"));
    let is_configured = extension.member("config").is_some_and(plugins::is_configuration);
    if !(is_configured || plugins::is_named_ours([extension.member("name"), extension.member("rootID"), url])) {
        return None;
    }
    let mut plugin = Plugin {
        bodiless: (!patched.shows_bodies).then(|| Remark::new(path, BODILESS)),
        ..Plugin::default()
    };
    match extension.member("failOpen") {
        None | Some(Json::Bool(false)) => {}
        Some(_) => plugin.refused.push(Remark::new(
            places::member(path, "failOpen"),
            "without the filter every request would pass; remove failOpen",
        )),
    }
    if patched.opens {
        plugin.refused.push(Remark::new(path, OPENED));
    }
    if !patched.reloads {
        plugin.warnings.push(Remark::new(path, NOT_RELOADING));
    }
    let is_pinned_by_url = url.and_then(Json::as_str).is_some_and(|url| url.contains("@sha256:"));
    if let Some((kind, source)) = source
        && source.member("sha256").is_none()
        && !is_pinned_by_url
    {
        plugin.warnings.push(Remark::new(
            places::member(path, &format!("code.{kind}.sha256")),
            "without it, whoever can change what lies at url decides what verifies your requests; set it to the SHA-256 of \
             the module, or of the image",
        ));
    }
    plugin.configure(extension, path, "config");
    Some(plugin)
}

// === impl Patched ===

impl Patched {
    /// Together with what a further document of the file adds.
    pub(super) fn and(self, document: &Json<'_>) -> Self {
        let patches = document
            .as_object()
            .and_then(|object| spec(object, "EnvoyPatchPolicy"))
            .and_then(|spec| spec.member("jsonPatches"));
        let Some(Json::Array(patches)) = patches else {
            return self;
        };
        let sets = |field: &str, wanted: &dyn Fn(&Json<'_>) -> bool| {
            patches.iter().any(|patch| {
                let operation = patch
                    .as_object()
                    .and_then(|patch| patch.member("operation")?.as_object());
                operation.is_some_and(|operation| {
                    let text = |name: &str| operation.member(name).and_then(Json::as_str);
                    matches!(text("op"), Some("add" | "replace"))
                        && text("path").is_some_and(|path| path.ends_with(field))
                        && operation.member("value").is_some_and(wanted)
                })
            })
        };
        Self {
            reloads: self.reloads || sets("/failure_policy", &|value| value.as_str() == Some("FAIL_RELOAD")),
            shows_bodies: self.shows_bodies
                || sets("/allow_on_headers_stop_iteration", &|value| {
                    matches!(value, Json::Bool(true))
                }),
            opens: self.opens
                || sets("/failure_policy", &|value| value.as_str() == Some("FAIL_OPEN"))
                || sets("/fail_open", &|value| matches!(value, Json::Bool(true))),
        }
    }
}

fn spec<'a>(object: &'a Object<'a>, kind: &str) -> Option<&'a Object<'a>> {
    let text = |name: &str| object.member(name).and_then(Json::as_str);
    let is_meant = text("kind") == Some(kind) && text("apiVersion").is_some_and(|group| group.starts_with(GROUP));
    object.member("spec").and_then(Json::as_object).filter(|_| is_meant)
}

const GROUP: &str = "gateway.envoyproxy.io/";

const BODILESS: &str = "a rule reads the body, which an EnvoyExtensionPolicy alone never shows to a filter that holds a request \
                        (it can not set allow_on_headers_stop_iteration); set it by an EnvoyPatchPolicy in the same file, as \
                        envoy-config/envoy-gateway/credence.yaml does";

const OPENED: &str = "an EnvoyPatchPolicy in the same file says that without the filter every request passes; have it set \
                      failure_policy to FAIL_RELOAD";

const NOT_RELOADING: &str = "an EnvoyExtensionPolicy can not say FAIL_RELOAD, so that one failure of the filter denies every \
                             request of its worker until Envoy restarts; set failure_policy by an EnvoyPatchPolicy in the \
                             same file, as envoy-config/envoy-gateway/credence.yaml does";
