//! envoy-config/envoy.yaml, with the few values replaced that differ from run to run.
//!
//! It is the file that users are given: what the tests show of it, it does.

use std::path::Path;

use crate::Failure;

/// A text of the configuration and what stands in its place. It must occur exactly `times` times.
#[derive(Debug, Clone)]
pub struct Replacement {
    /// As in the file.
    pub text: String,
    /// How often.
    pub times: usize,
    /// What it becomes.
    pub by: String,
}

impl Replacement {
    /// Replaces a text that occurs once.
    pub fn once(text: impl Into<String>, by: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            times: 1,
            by: by.into(),
        }
    }
}

/// What a run has to replace.
#[derive(Debug, Clone)]
pub(crate) struct Values<'a> {
    pub(crate) service_port: u16,
    pub(crate) control_plane_port: u16,
    pub(crate) filter: &'a Path,
    pub(crate) log_id: &'a str,
    /// The member `x` of the trust anchor's public key.
    pub(crate) anchor: &'a str,
}

/// The file's text with these values, and these other replacements made first.
pub(crate) fn render(values: &Values<'_>, others: &[Replacement]) -> Result<String, Failure> {
    let port = |port: u16| format!("port_value: {port}");
    // Envoy takes free ports and says which.
    let ours = [
        Replacement::once(port(8080), port(0)),
        Replacement::once(port(9901), port(0)),
        Replacement::once(port(9000), port(values.service_port)),
        Replacement::once(port(7071), port(values.control_plane_port)),
        Replacement::once(
            "filename: build/credence-filter.wasm",
            format!("filename: {}", values.filter.display()),
        ),
        Replacement::once(
            "log_id: 0123456789abcdef0123456789abcdef",
            format!("log_id: {}", values.log_id),
        ),
        Replacement::once(
            "x: 11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
            format!("x: {}", values.anchor),
        ),
    ];
    let mut text = FILE.to_owned();
    for Replacement { text: old, times, by } in others.iter().chain(&ours) {
        let found = text.matches(old.as_str()).count();
        if found != *times {
            return Err(Failure::new(format!(
                "envoy-config/envoy.yaml has {old:?} {found} times and not {times}: change the file and this together"
            )));
        }
        text = text.replace(old.as_str(), by);
    }
    Ok(text)
}

/// Takes the listeners out of a configuration into a file of their own, which Envoy watches: `(configuration, listeners)`.
pub(crate) fn with_watched_listeners(configuration: &str, folder: &Path) -> Result<(String, String), Failure> {
    let changed = || Failure::new("envoy-config/envoy.yaml has another outline: change the file and this together");
    let (before, rest) = configuration.split_once("  listeners:\n").ok_or_else(changed)?;
    let (listeners, after) = rest.split_once("  clusters:\n").ok_or_else(changed)?;
    let (comment, listener) = listeners.split_once("    - name: ingress\n").ok_or_else(changed)?;
    let folder_path = folder.display();
    let bootstrap = format!(
        "node: {{id: e2e, cluster: e2e}}\n\
         dynamic_resources:\n  \
           lds_config:\n    \
             resource_api_version: V3\n    \
             path_config_source: {{path: {folder_path}/{LISTENERS}, watched_directory: {{path: {folder_path}}}}}\n\
         {before}  clusters:\n{after}"
    );
    let listeners = format!(
        "resources:\n{comment}    - \"@type\": type.googleapis.com/envoy.config.listener.v3.Listener\n      name: ingress\n{listener}"
    );
    Ok((bootstrap, listeners))
}

/// The file that Envoy watches for listeners.
pub(crate) const LISTENERS: &str = "listeners.yaml";

const FILE: &str = include_str!("../../envoy-config/envoy.yaml");
