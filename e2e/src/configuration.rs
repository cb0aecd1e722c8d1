//! envoy-config/envoy.yaml, with the values replaced that differ between runs.
//!
//! The tests use the file that users get, so that they test it too.

use std::path::Path;

use crate::Failure;

/// A replacement in the configuration. The text must occur exactly `times` times.
#[derive(Debug, Clone)]
pub struct Replacement {
    /// The text in the file.
    pub text: String,
    /// How often.
    pub times: usize,
    /// Its replacement.
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

/// The values that each run replaces.
#[derive(Debug, Clone)]
pub(crate) struct Values<'a> {
    pub(crate) service_port: u16,
    pub(crate) control_plane_port: u16,
    pub(crate) filter: &'a Path,
    pub(crate) log_id: &'a str,
    /// The member `x` of the trust anchor's public key.
    pub(crate) anchor: &'a str,
}

/// The file's text with the `others` replaced first, and then these values.
pub(crate) fn render(values: &Values<'_>, others: &[Replacement]) -> Result<String, Failure> {
    let port = |port: u16| format!("port_value: {port}");
    // With port 0, Envoy takes free ports and reports them.
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
            "x: yYBm-rE6VHWP5Wqf-hF5cS2bUSil1mkmgEUrOfsixqc",
            format!("x: {}", values.anchor),
        ),
    ];
    replace(FILE, others.iter().chain(&ours))
}

/// The text with these replacements. Each text must occur as often as it says.
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

/// Which part of the configuration Envoy watches a file for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watching {
    /// The filter and its configuration (ECDS, as in Istio). Connections stay open.
    Filter,
    /// The whole listener (LDS): connections end with it.
    Listener,
}

/// A configuration split into two files.
pub(crate) struct Apart {
    /// The static part, with the path of the watched file.
    pub(crate) rest: String,
    /// The watched part.
    pub(crate) watched: String,
}

/// Moves the watched part of a configuration into a file of its own.
pub(crate) fn apart(whole: &str, watching: Watching, file: &Path) -> Result<Apart, Failure> {
    match watching {
        Watching::Filter => filter_apart(whole, file),
        Watching::Listener => listener_apart(whole, file),
    }
}

fn listener_apart(whole: &str, file: &Path) -> Result<Apart, Failure> {
    const BEGIN: &str = "static_resources:\n  listeners:\n    - name: ingress\n";
    const END: &str = "\n  clusters:\n";
    let (before, listener, after) = cut(whole, BEGIN, END)?;
    let file = file.display();
    Ok(Apart {
        rest: format!(
            r#"{NODE}dynamic_resources: {{lds_config: {{path_config_source: {{path: "{file}"}}}}}}
{before}static_resources:{END}{after}"#
        ),
        watched: format!(
            r#"resources:
    - "@type": type.googleapis.com/envoy.config.listener.v3.Listener
      name: ingress
{listener}"#
        ),
    })
}

/// Splits the text at `begin` and `end`.
fn cut<'t>(whole: &'t str, begin: &str, end: &str) -> Result<(&'t str, &'t str, &'t str), Failure> {
    whole
        .split_once(begin)
        .and_then(|(before, rest)| rest.split_once(end).map(|(inside, after)| (before, inside, after)))
        .ok_or_else(|| Failure::new(format!("envoy-config/envoy.yaml does not have {begin:?} and {end:?}")))
}

/// Envoy watches files only if it has a node name.
const NODE: &str = "node: {id: e2e, cluster: e2e}\n";

fn filter_apart(whole: &str, file: &Path) -> Result<Apart, Failure> {
    const BEGIN: &str = "                  - name: credence\n                    typed_config:\n";
    const END: &str = "                  - name: envoy.filters.http.router\n";
    let (before, filter, after) = cut(whole, BEGIN, END)?;
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
        watched: format!(
            r#"resources:
- "@type": type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig
  name: credence
  typed_config:
{filter}"#
        ),
    })
}

const FILE: &str = include_str!("../../envoy-config/envoy.yaml");
