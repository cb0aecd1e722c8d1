//! Reads the files of envoy-config/istio, as users get them, and changes the few values that differ in a mesh on one
//! machine.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::Failure;
use crate::configuration::Replacement;

/// One of the files.
///
/// # Errors
/// If there is no file of that name.
pub fn read(name: &str) -> Result<String, Failure> {
    let path = folder().join(name);
    fs::read_to_string(&path).map_err(Failure::of(format_args!("reading {}", path.display())))
}

/// One of the files with these changes. Each must occur as often as it says.
///
/// # Errors
/// If a change does not fit.
pub fn adapted(name: &str, changes: &[Replacement]) -> Result<String, Failure> {
    let mut text = read(name)?;
    for Replacement { text: old, times, by } in changes {
        let found = text.matches(old.as_str()).count();
        if found != *times {
            return Err(Failure::new(format!(
                "envoy-config/istio/{name} has {old:?} {found} times and not {times}: change the file and this together"
            )));
        }
        text = text.replace(old.as_str(), by);
    }
    Ok(text)
}

/// All of them, by path.
///
/// # Errors
/// If they cannot be listed.
pub fn all() -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for folder in [folder(), folder().join("control-plane")] {
        let entries = fs::read_dir(folder).map_err(Failure::of("listing envoy-config/istio"))?;
        files.extend(entries.flatten().map(|entry| entry.path()));
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    // For Kustomize, not for Istio.
    files.retain(|file| !file.ends_with("kustomization.yaml"));
    files.sort();
    Ok(files)
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../envoy-config/istio")
}

/// What the pod of the control plane has in an Istio mesh.
#[derive(Debug)]
pub struct ControlPlanePod {
    /// The agent's settings: `proxyMetadata` of the annotation `proxy.istio.io/config` in
    /// envoy-config/kubernetes/control-plane.yaml.
    pub environment: BTreeMap<String, String>,
    /// `credence.yaml`, which `credence serve --config` reads, of control-plane/settings.yaml.
    pub settings: String,
}

impl ControlPlanePod {
    /// Reads it from the texts of the two files.
    ///
    /// # Errors
    /// If a file has no such settings.
    pub fn parse(manifest: &str, settings: &str) -> Result<Self, Failure> {
        let template = documents("kubernetes/control-plane.yaml", manifest)?
            .into_iter()
            .find_map(|document| document.spec?.template)
            .ok_or_else(|| Failure::new("kubernetes/control-plane.yaml has no pod"))?;
        let annotation = template.metadata.annotations.config;
        let config: ProxyConfig =
            serde_saphyr::from_str(&annotation).map_err(Failure::of("reading proxy.istio.io/config"))?;
        let Data { settings } = documents("control-plane/settings.yaml", settings)?
            .into_iter()
            .find_map(|document| document.data)
            .ok_or_else(|| Failure::new("control-plane/settings.yaml has no settings"))?;
        Ok(Self {
            environment: config.proxy_metadata,
            settings,
        })
    }
}

fn documents(name: &str, yaml: &str) -> Result<Vec<Document>, Failure> {
    serde_saphyr::from_multiple(yaml).map_err(Failure::of(format_args!("reading {name}")))
}

#[derive(Deserialize)]
struct Document {
    spec: Option<Spec>,
    data: Option<Data>,
}

#[derive(Deserialize)]
struct Spec {
    template: Option<Template>,
}

#[derive(Deserialize)]
struct Template {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    annotations: Annotations,
}

#[derive(Deserialize)]
struct Annotations {
    #[serde(rename = "proxy.istio.io/config")]
    config: String,
}

#[derive(Deserialize)]
struct ProxyConfig {
    #[serde(rename = "proxyMetadata")]
    proxy_metadata: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Data {
    #[serde(rename = "credence.yaml")]
    settings: String,
}
