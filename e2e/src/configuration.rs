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
            "x: yYBm-rE6VHWP5Wqf-hF5cS2bUSil1mkmgEUrOfsixqc",
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

/// What of the configuration Envoy watches a file for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watching {
    /// The filter and its configuration (ECDS, as Istio does): connections do not notice.
    Filter,
    /// The whole listener (LDS): connections end with it.
    Listener,
}

/// A configuration in two files.
pub(crate) struct Apart {
    /// All but what is watched, for which it says where to look.
    pub(crate) rest: String,
    /// What is watched.
    pub(crate) watched: String,
}

/// Takes what is watched out of a configuration, to stand in a file of its own.
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

/// Cuts the text out that is between `begin` and `end`.
fn cut<'t>(whole: &'t str, begin: &str, end: &str) -> Result<(&'t str, &'t str, &'t str), Failure> {
    whole
        .split_once(begin)
        .and_then(|(before, rest)| rest.split_once(end).map(|(inside, after)| (before, inside, after)))
        .ok_or_else(|| Failure::new(format!("envoy-config/envoy.yaml does not have {begin:?} and {end:?}")))
}

/// Who watches files must have a name.
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
