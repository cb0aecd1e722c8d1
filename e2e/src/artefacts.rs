//! Paths of the built programs under test.

use std::env;
use std::path::PathBuf;

use crate::Failure;

/// Paths of the built programs.
#[derive(Debug, Clone)]
pub struct Artefacts {
    /// The Envoy program, from `CREDENCE_ENVOY`.
    pub envoy: PathBuf,
    /// The filter, from `CREDENCE_WASM`.
    pub filter: PathBuf,
    /// The `credence` program, from `CREDENCE_BIN`.
    pub credence: PathBuf,
}

impl Artefacts {
    /// Reads the paths from the environment. The Makefile sets them.
    ///
    /// # Errors
    /// If a variable is not set, or names no file.
    pub fn from_environment() -> Result<Self, Failure> {
        Ok(Self {
            envoy: path("CREDENCE_ENVOY")?,
            filter: path("CREDENCE_WASM")?,
            credence: path("CREDENCE_BIN")?,
        })
    }

    /// The filter that also reads answers, which is built beside the other.
    ///
    /// # Errors
    /// If the file does not exist.
    pub fn filter_of_answers(&self) -> Result<PathBuf, Failure> {
        self.beside("credence-filter-mcp.wasm", "wasm")
    }

    /// The test plugin of e2e/neighbour, which reads and writes the memory that the filter's workers share. It is built
    /// beside the filter.
    ///
    /// # Errors
    /// If the file does not exist.
    pub fn neighbour(&self) -> Result<PathBuf, Failure> {
        self.beside("neighbour.wasm", "test")
    }

    /// A module that this target builds.
    fn beside(&self, name: &str, target: &str) -> Result<PathBuf, Failure> {
        let path = self.filter.with_file_name(name);
        if path.is_file() {
            Ok(path)
        } else {
            let path = path.display();
            Err(Failure::new(format!("there is no {path}: run `make {target}`")))
        }
    }
}

fn path(variable: &str) -> Result<PathBuf, Failure> {
    const CURE: &str = "run `make test` or `make run`, which build everything and set these variables";
    let path = env::var_os(variable)
        .map(PathBuf::from)
        .ok_or_else(|| Failure::new(format!("{variable} is not set: {CURE}")))?;
    if path.is_file() {
        Ok(path)
    } else {
        let path = path.display();
        Err(Failure::new(format!(
            "{variable} is {path}, and there is no such file: {CURE}"
        )))
    }
}
