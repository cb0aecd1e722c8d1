//! `credence config`

mod envoy;
mod yaml;

use std::io::Write;
use std::path::{Path, PathBuf};

use credence_delegation::json::Json;
use credence_filter::config::Policy;

use crate::failure::{Failure, Outcome};
use crate::{files, words};

/// Work with the filter's configuration.
#[derive(Debug, clap::Args)]
pub(crate) struct Config {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ConfigCommand {
    Check(Check),
}

/// Say whether the filter would load a configuration, and if not, every mistake with its place and its cure.
///
/// A file is the plugin's configuration itself, or an Envoy configuration (or Istio EnvoyFilter) that has it; then what
/// Envoy does when the filter fails is judged too. YAML, or JSON where the name ends in .json.
#[derive(Debug, clap::Args)]
struct Check {
    /// The files to check.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

impl Config {
    pub(crate) fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        match &self.command {
            ConfigCommand::Check(check) => check.run(out),
        }
    }
}

impl Check {
    fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        let mut wrong = 0usize;
        for path in &self.files {
            let findings = check(path)?;
            for warning in &findings.warnings {
                eprintln!("{}: warning: {}", path.display(), words::printable(warning));
            }
            for note in &findings.notes {
                eprintln!("{}: note: {}", path.display(), words::printable(note));
            }
            for mistake in &findings.mistakes {
                eprintln!("{}: {}", path.display(), words::printable(mistake));
            }
            if findings.mistakes.is_empty() {
                writeln!(out, "{}: {}", path.display(), findings.summary)?;
            } else {
                wrong += 1;
            }
        }
        match wrong {
            0 => Ok(Outcome::Done),
            1 => Err(Failure::operation("one file would not load; correct it as said above")),
            _ => Err(Failure::operation(format!(
                "{wrong} files would not load; correct them as said above"
            ))),
        }
    }
}

/// What there is to say about one file.
#[derive(Debug, Default)]
struct Findings {
    mistakes: Vec<String>,
    warnings: Vec<String>,
    /// What the filter loads, but may not be what was meant.
    notes: Vec<String>,
    summary: String,
}

fn check(path: &Path) -> Result<Findings, Failure> {
    let text = files::read(path, "a configuration")?;
    let Ok(text) = std::str::from_utf8(&text) else {
        return Ok(Findings::mistake("not UTF-8; write the file in UTF-8"));
    };
    let documents = if path.extension().is_some_and(|extension| extension == "json") {
        vec![text.to_owned()]
    } else {
        match yaml::to_json(text) {
            Ok(documents) => documents,
            Err(error) => return Ok(Findings::mistake(error.to_string())),
        }
    };
    if documents.is_empty() {
        return Ok(Findings::mistake("empty; write a configuration"));
    }
    let mut findings = Findings::default();
    let mut plugins = 0;
    for document in &documents {
        // A text that is not JSON is the filter's own parser to explain.
        match Json::parse(document.as_bytes()) {
            Ok(json) if envoy::is_envoy(&json) => {
                for plugin in envoy::plugins(&json) {
                    plugins += 1;
                    findings.judge(&plugin);
                }
            }
            Ok(_) | Err(_) => {
                plugins += 1;
                findings.load(document, "");
            }
        }
    }
    if plugins == 0 {
        return Ok(Findings::mistake(
            "an Envoy configuration without Credence's filter: no envoy.filters.http.wasm is named credence, loads a \
             module of that name, or has trust_anchors in its configuration",
        ));
    }
    findings.summary = if plugins == 1 {
        "loads".to_owned()
    } else {
        format!("loads, all {plugins} plugins")
    };
    Ok(findings)
}

impl Findings {
    fn mistake(text: impl Into<String>) -> Self {
        Self {
            mistakes: vec![text.into()],
            ..Self::default()
        }
    }

    fn judge(&mut self, plugin: &envoy::Plugin) {
        let prefix = format!("{}.", plugin.path);
        self.mistakes
            .extend(plugin.refused.iter().map(|problem| format!("{prefix}{problem}")));
        self.warnings
            .extend(plugin.warnings.iter().map(|problem| format!("{prefix}{problem}")));
        match &plugin.configuration {
            Ok(configuration) => self.load(configuration, &format!("{prefix}configuration.value: ")),
            Err(problem) => self.mistakes.push(format!("{prefix}{problem}")),
        }
    }

    fn load(&mut self, configuration: &str, place: &str) {
        match Policy::parse(configuration.as_bytes()) {
            Ok(policy) => self
                .notes
                .extend(policy.notes.iter().map(|note| format!("{place}{note}"))),
            Err(error) => self
                .mistakes
                .extend(error.to_string().lines().map(|problem| format!("{place}{problem}"))),
        }
    }
}
