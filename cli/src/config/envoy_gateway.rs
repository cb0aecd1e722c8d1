//! Credence's filter in Envoy Gateway's `EnvoyExtensionPolicy`, and the `EnvoyPatchPolicy` beside it, which sets the
//! fields that the former lacks.

use credence_delegation::json::{Json, Object};
use credence_delegation::{Location, Remark};

use super::examples;
use super::plugin::{self, Configuration, Plugin};

/// What the patches in a file add to the filters that Envoy Gateway generates. A patch names a filter by a path or an
/// expression in the generated Envoy configuration, which is not in the file. So the patch is assumed to mean all
/// filters of the same file.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Patched {
    reloads: bool,
    shows_bodies: bool,
    /// Whether a patch lets requests pass without the filter, as `failOpen: true` does.
    opens: bool,
}

/// The elements of `spec.wasm`, if the object is an `EnvoyExtensionPolicy`.
pub(super) fn wasm_extensions<'a>(object: &'a Object<'a>) -> Option<&'a [Json<'a>]> {
    let spec = plugin::spec(object, GROUP, "EnvoyExtensionPolicy")?;
    spec.member("wasm")?.as_array()
}

/// Checks an element of `spec.wasm`, if it is Credence's.
pub(super) fn plugin(extension: &Json<'_>, place: &Location<'_>, patched: Patched) -> Option<Plugin> {
    let extension = extension.as_object()?;
    let source = ["http", "image"]
        .into_iter()
        .find_map(|kind| Some((kind, extension.object("code")?.object(kind)?)));
    let url = source.and_then(|(_, source)| source.member("url"));
    let is_configured = extension.member("config").is_some_and(plugin::is_configuration);
    if !(is_configured || plugin::is_named_ours([extension.member("name"), extension.member("rootID"), url])) {
        return None;
    }
    match extension.member("failOpen") {
        None | Some(Json::Bool(false)) => {}
        Some(_) => place
            .field("failOpen")
            .report("if the filter fails, every request passes; remove failOpen"),
    }
    if patched.opens {
        place.report(OPENED);
    }
    if !patched.reloads {
        place.note(NOT_RELOADING);
    }
    let is_pinned_by_url = url.and_then(Json::as_str).is_some_and(|url| url.contains("@sha256:"));
    if let Some((kind, source)) = source
        && source.member("sha256").is_none()
        && !is_pinned_by_url
    {
        place.field(&format!("code.{kind}.sha256")).note(
            "anyone with write access to url can replace the module that verifies your requests; set it to the SHA-256 \
             of the module, or of the image",
        );
    }
    if let Some((kind, source)) = source
        && source.text("sha256") == Some(examples::DIGEST)
    {
        place.field(&format!("code.{kind}.sha256")).note(examples::DIGEST_NOTE);
    }
    Some(Plugin {
        configuration: Configuration::of_member(extension, place, "config"),
        bodiless: (!patched.shows_bodies).then(|| Remark::new(place.path(), BODILESS)),
    })
}

// === impl Patched ===

impl Patched {
    /// Merges the patches of another document of the file.
    pub(super) fn and(self, document: &Json<'_>) -> Self {
        let object = document.as_object();
        let spec = object.and_then(|object| plugin::spec(object, GROUP, "EnvoyPatchPolicy"));
        let Some(patches) = spec.and_then(|spec| spec.member("jsonPatches")?.as_array()) else {
            return self;
        };
        let sets = |field: &str, wanted: &Json<'_>| {
            let mut operations = patches
                .iter()
                .filter_map(|patch| patch.as_object()?.object("operation"));
            operations.any(|operation| {
                matches!(operation.text("op"), Some("add" | "replace"))
                    && operation.text("path").is_some_and(|path| path.ends_with(field))
                    && operation.member("value") == Some(wanted)
            })
        };
        let text = |text: &'static str| Json::String(text.into());
        Self {
            reloads: self.reloads || sets("/failure_policy", &text("FAIL_RELOAD")),
            shows_bodies: self.shows_bodies || sets("/allow_on_headers_stop_iteration", &Json::Bool(true)),
            opens: self.opens || sets("/failure_policy", &text("FAIL_OPEN")) || sets("/fail_open", &Json::Bool(true)),
        }
    }
}

const GROUP: &str = "gateway.envoyproxy.io/";

const BODILESS: &str = "a rule reads the body, but an EnvoyExtensionPolicy cannot set allow_on_headers_stop_iteration, \
                        without which a filter that holds a request never sees its body; set it by an EnvoyPatchPolicy \
                        in the same file, as envoy-config/envoy-gateway/credence.yaml does, or let the rule \
                        hold only the body: `hold: body`";

const OPENED: &str = "an EnvoyPatchPolicy in the same file lets every request pass if the filter fails; let it set \
                      failure_policy to FAIL_RELOAD";

const NOT_RELOADING: &str = "an EnvoyExtensionPolicy cannot set FAIL_RELOAD, so one failure of the filter denies every \
                             request of its worker until Envoy restarts; set failure_policy by an EnvoyPatchPolicy in \
                             the same file, as envoy-config/envoy-gateway/credence.yaml does";
