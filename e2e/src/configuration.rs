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
    replace(FILE, others.iter().chain(&ours))
}

/// The text with these changes, each of which has to fit.
pub(crate) fn replace<'r>(text: &str, changes: impl IntoIterator<Item = &'r Replacement>) -> Result<String, Failure> {
    let mut text = text.to_owned();
    for Replacement { text: old, times, by } in changes {
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

/// A configuration in two files.
pub(crate) struct Apart {
    /// All but the filter, for which it says where to look.
    pub(crate) rest: String,
    /// The filter's.
    pub(crate) filter: String,
}

/// Takes the filter out of a configuration, to stand in a file that Envoy watches (ECDS, from the file system).
pub(crate) fn apart(whole: &str, file: &Path) -> Result<Apart, Failure> {
    // Who watches files must have a name.
    const NODE: &str = "node: {id: e2e, cluster: e2e}\n";
    const BEGIN: &str = "                  - name: credence\n                    typed_config:\n";
    const END: &str = "                  - name: envoy.filters.http.router\n";
    let parts = whole
        .split_once(BEGIN)
        .and_then(|(before, rest)| Some((before, rest.split_once(END)?)));
    let (before, (filter, after)) =
        parts.ok_or_else(|| Failure::new("envoy-config/envoy.yaml does not have the filter where it is looked for"))?;
    let file = file.display();
    let elsewhere = format!(
        r#"                  - name: credence
                    config_discovery:
                      config_source: {{path_config_source: {{path: "{file}"}}}}
                      type_urls: [type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm]
"#
    );
    Ok(Apart {
        rest: [NODE, before, &elsewhere, END, after].concat(),
        filter: format!(
            r#"resources:
- "@type": type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig
  name: credence
  typed_config:
{filter}"#
        ),
    })
}

const FILE: &str = include_str!("../../envoy-config/envoy.yaml");
