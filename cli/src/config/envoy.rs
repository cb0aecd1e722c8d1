//! Finding Credence's filter in an Envoy configuration, and judging what surrounds it.

use credence_delegation::canonicalize;
use credence_delegation::json::{Json, Object};

/// One Wasm filter of ours, found somewhere in the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plugin {
    /// Where its `config` stands, such as `static_resources.listeners[0].….config`.
    pub(super) path: String,
    /// The text that Envoy hands to the filter, or why it would hand over none that can be read.
    pub(super) configuration: Result<String, String>,
    /// What Envoy must not do when the filter fails, and how to stop it.
    pub(super) refused: Vec<String>,
    /// What should be different, but fails closed as it is.
    pub(super) warnings: Vec<String>,
}

/// Finds every filter of ours in a document, however deep: Envoy's own configuration, or an Istio `EnvoyFilter` around
/// pieces of it.
pub(super) fn plugins(document: &Json<'_>) -> Vec<Plugin> {
    let mut found = Vec::new();
    search(document, String::new(), &mut found);
    found
}

/// Whether the document is an Envoy configuration or a Kubernetes resource, and not the plugin's configuration itself.
pub(super) fn is_envoy(document: &Json<'_>) -> bool {
    let surrounds = [
        "static_resources",
        "dynamic_resources",
        "@type",
        "apiVersion",
        "resources",
        "http_filters",
    ];
    document
        .as_object()
        .is_some_and(|object| surrounds.iter().any(|name| object.member(name).is_some()))
}

fn search(json: &Json<'_>, path: String, found: &mut Vec<Plugin>) {
    match json {
        Json::Object(object) => {
            let is_wasm = object
                .member("@type")
                .and_then(Json::as_str)
                .is_some_and(|url| url.ends_with(WASM_FILTER));
            if let Some(config) = object.member("config").and_then(Json::as_object).filter(|_| is_wasm) {
                if is_ours(config) {
                    found.push(plugin(config, join(&path, "config")));
                }
                return;
            }
            for (name, value) in object.iter() {
                search(value, join(&path, name), found);
            }
        }
        Json::Array(elements) => {
            for (index, element) in elements.iter().enumerate() {
                search(element, format!("{path}[{index}]"), found);
            }
        }
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
    }
}

/// Other Wasm filters may live in the same file. Ours is known by its name, its module's file or its configuration.
fn is_ours(config: &Object<'_>) -> bool {
    let named = |json: &Json<'_>| json.as_str().is_some_and(|text| text.contains("credence"));
    let filename = config.member("vm_config").and_then(|json| {
        json.as_object()?
            .member("code")?
            .as_object()?
            .member("local")?
            .as_object()?
            .member("filename")
    });
    let configured = config.member("configuration").is_some_and(|json| match json {
        Json::Object(object) => match object.member("value") {
            Some(Json::String(text)) => text.contains("trust_anchors"),
            Some(value) => value
                .as_object()
                .is_some_and(|value| value.member("trust_anchors").is_some()),
            None => false,
        },
        _ => false,
    });
    ["name", "root_id"]
        .into_iter()
        .filter_map(|name| config.member(name))
        .chain(filename)
        .any(named)
        || configured
}

fn plugin(config: &Object<'_>, path: String) -> Plugin {
    let mut refused = Vec::new();
    let mut warnings = Vec::new();
    match config.member("fail_open") {
        None | Some(Json::Bool(false)) => {}
        Some(_) => refused.push(
            "fail_open: without the filter every request would pass; remove fail_open and set failure_policy: \
             FAIL_RELOAD"
                .to_owned(),
        ),
    }
    // Envoy takes an enum's name or its number.
    match config
        .member("failure_policy")
        .map(|policy| (policy.as_str(), policy.as_integer()))
    {
        Some((Some("FAIL_RELOAD"), _) | (_, Some(1))) => {}
        Some((Some("FAIL_OPEN"), _) | (_, Some(3))) => refused.push(
            "failure_policy: FAIL_OPEN lets every request pass when the filter fails; set FAIL_RELOAD".to_owned(),
        ),
        None | Some((Some("UNSPECIFIED" | "FAIL_CLOSED"), _) | (_, Some(0 | 2))) => warnings.push(
            "failure_policy: it is not FAIL_RELOAD, so that one failure of the filter denies every request of its \
             worker until Envoy restarts; set failure_policy: FAIL_RELOAD"
                .to_owned(),
        ),
        Some(_) => refused.push("failure_policy: not a policy that Envoy knows; set FAIL_RELOAD".to_owned()),
    }
    Plugin {
        path,
        configuration: configuration(config),
        refused,
        warnings,
    }
}

/// What Envoy hands to the filter (`anyToBytes`): the value of a `StringValue` as it is, that of a `Struct` as JSON.
fn configuration(config: &Object<'_>) -> Result<String, String> {
    let any = config
        .member("configuration")
        .ok_or_else(|| "configuration: missing, so that the filter refuses to start; add it".to_owned())?
        .as_object()
        .ok_or_else(|| format!("configuration: not an object; {HOW}"))?;
    let url = any.member("@type").and_then(Json::as_str).unwrap_or_default();
    let value = any
        .member("value")
        .ok_or_else(|| format!("configuration.value: missing; {HOW}"))?;
    if url.ends_with("google.protobuf.StringValue") {
        value
            .as_str()
            .map(str::to_owned)
            .ok_or_else(|| format!("configuration.value: a StringValue has a text, not an object; {HOW}"))
    } else if url.ends_with("google.protobuf.Struct") {
        match value {
            Json::Object(_) => {
                canonicalize(value).ok_or_else(|| "configuration.value: a number in it is too large".to_owned())
            }
            _ => Err(format!("configuration.value: a Struct has an object; {HOW}")),
        }
    } else {
        Err(format!("configuration.@type: the filter can not read {url:?}; {HOW}"))
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

const WASM_FILTER: &str = "envoy.extensions.filters.http.wasm.v3.Wasm";

const HOW: &str = "write \"@type\": type.googleapis.com/google.protobuf.Struct and the plugin's configuration as value";
