//! What is Istio's, by its paths.

use std::env;
use std::fs;
use std::path::PathBuf;

use crate::Failure;
use crate::artefacts::Artefacts;

/// Where Istio's programs are, and Envoy.
#[derive(Debug, Clone)]
pub struct Tools {
    /// pilot-discovery, which is istiod.
    pub istiod: PathBuf,
    /// pilot-agent.
    pub agent: PathBuf,
    /// istioctl.
    pub istioctl: PathBuf,
    /// What Istio's agent makes Envoy's first configuration of.
    bootstrap: PathBuf,
    /// Envoy as it is released, not Istio's own build.
    pub envoy: PathBuf,
}

impl Tools {
    /// Reads the paths from the environment, where the Makefile puts them: `CREDENCE_ISTIO` is the folder.
    ///
    /// # Errors
    /// If it is not set, or Istio is not there.
    pub fn from_environment() -> Result<Self, Failure> {
        let folder = env::var_os("CREDENCE_ISTIO").map(PathBuf::from).ok_or_else(|| {
            Failure::new("CREDENCE_ISTIO is not set: run `make test-mesh`, which builds Istio and says where it is")
        })?;
        let path = |name: &str| {
            let path = folder.join(name);
            path.is_file().then_some(path).ok_or_else(|| {
                Failure::new(format!(
                    "CREDENCE_ISTIO is {:?}, and has no {name}: run `make test-mesh`, which builds Istio and says where it is",
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

    /// What the agent makes Envoy's first configuration of, without the extension that only Istio's build of Envoy has, and
    /// that waypoints begin with.
    ///
    /// # Errors
    /// If it is not as it was.
    pub fn bootstrap(&self) -> Result<String, Failure> {
        let text = fs::read_to_string(&self.bootstrap).map_err(Failure::of("reading Istio's bootstrap"))?;
        let condition = "{{- if .metadata_discovery }}";
        if !text.contains(condition) {
            return Err(Failure::new(format!("Istio's bootstrap has no {condition} any more")));
        }
        Ok(text.replace(condition, "{{- if false }}"))
    }
}
