//! Paths of Istio's programs and of Envoy.

use std::env;
use std::fs;
use std::path::PathBuf;

use crate::Failure;
use crate::artefacts::Artefacts;

/// Paths of Istio's programs and of Envoy.
#[derive(Debug, Clone)]
pub struct Tools {
    /// pilot-discovery, the program of istiod.
    pub istiod: PathBuf,
    /// pilot-agent.
    pub agent: PathBuf,
    /// istioctl.
    pub istioctl: PathBuf,
    /// The template of Envoy's bootstrap.
    bootstrap: PathBuf,
    /// The released Envoy, not Istio's build.
    pub envoy: PathBuf,
}

impl Tools {
    /// Reads the paths from the environment. The Makefile sets them; `CREDENCE_ISTIO` is the folder.
    ///
    /// # Errors
    /// If it is not set, or the folder lacks a program.
    pub fn from_environment() -> Result<Self, Failure> {
        let folder = env::var_os("CREDENCE_ISTIO").map(PathBuf::from).ok_or_else(|| {
            Failure::new("CREDENCE_ISTIO is not set: run `make test-mesh`, which builds Istio and sets this variable")
        })?;
        let path = |name: &str| {
            let path = folder.join(name);
            path.is_file().then_some(path).ok_or_else(|| {
                Failure::new(format!(
                    "CREDENCE_ISTIO is {:?}, and has no {name}: run `make test-mesh`, which builds Istio and sets this variable",
                    folder.display().to_string()
                ))
            })
        };
        Ok(Self {
            istiod: path("pilot-discovery")?,
            agent: path("pilot-agent")?,
            istioctl: path("istioctl")?,
            bootstrap: path("envoy_bootstrap.json")?,
            envoy: Artefacts::from_environment()?.envoy,
        })
    }

    /// The template of Envoy's bootstrap, without the bootstrap extension that only Istio's Envoy has and that
    /// waypoints need.
    ///
    /// # Errors
    /// If the template has changed.
    pub fn bootstrap(&self) -> Result<String, Failure> {
        let text = fs::read_to_string(&self.bootstrap).map_err(Failure::of("reading Istio's bootstrap"))?;
        let condition = "{{- if .metadata_discovery }}";
        if !text.contains(condition) {
            return Err(Failure::new(format!("Istio's bootstrap has no {condition} any more")));
        }
        Ok(text.replace(condition, "{{- if false }}"))
    }
}
