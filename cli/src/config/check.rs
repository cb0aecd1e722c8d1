//! `credence config check`

use std::io::Write;
use std::path::{Path, PathBuf};

use credence_decision::config::{Policy, Requirement};
use credence_delegation::Remark;

use super::documents::{self, Document, Finding};
use super::examples;
use super::plugin::Plugin;
use crate::failure::{Failure, Outcome};
use crate::serve::settings;
use crate::terminal;

/// Check whether the filter, or the control plane, would load a configuration. Print each error with its place and its
/// fix.
///
/// A file is the plugin's configuration, an Envoy configuration that contains it, Istio's WasmPlugin or EnvoyFilter, or
/// Envoy Gateway's EnvoyExtensionPolicy. For the latter ones, the command also checks what happens when the filter
/// fails. A file is YAML, of any number of documents, or JSON if its name ends in .json.
#[derive(Debug, clap::Args)]
pub(crate) struct Check {
    /// The files are configuration files of `credence serve --config`. Like a start, this reports the first error of
    /// each. It does not read the files that they name, such as certificates.
    #[arg(long)]
    control_plane: bool,

    /// The files to check.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

impl Check {
    pub(super) fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        if self.control_plane {
            return self.run_for_control_plane(out);
        }
        let mut wrong = 0usize;
        for path in &self.files {
            let report = match documents::read(path)? {
                Ok(documents) => Report::of(&documents),
                Err(finding) => Report {
                    errors: vec![finding],
                    ..Report::default()
                },
            };
            report.print(path);
            if report.errors.is_empty() {
                match report.plugins {
                    1 => writeln!(out, "{}: loads", path.display())?,
                    several => writeln!(out, "{}: loads, all {several} plugins", path.display())?,
                }
            } else {
                wrong += 1;
            }
        }
        match wrong {
            0 => Ok(Outcome::Done),
            1 => Err(Failure::operation("one file would not load; fix the errors above")),
            _ => Err(Failure::operation(format!(
                "{wrong} files would not load; fix the errors above"
            ))),
        }
    }

    fn run_for_control_plane(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        let mut refused = None;
        for path in &self.files {
            match settings::noted(path) {
                Ok((_, notes)) => {
                    for note in notes {
                        crate::stderr::print(terminal::printable(&note));
                    }
                    writeln!(out, "{}: loads", path.display())?;
                }
                Err(failure) => {
                    // `main` prints the last error and exits.
                    if let Some(earlier) = refused.replace(failure) {
                        crate::stderr::print(format_args!("credence: {}", terminal::printable(&earlier.to_string())));
                    }
                }
            }
        }
        refused.map_or(Ok(Outcome::Done), Err)
    }
}

/// What the check found in one file.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) errors: Vec<Finding>,
    warnings: Vec<Finding>,
    /// What the filter loads, but may not be intended.
    notes: Vec<Finding>,
    /// How many of Credence's filters the file has.
    plugins: usize,
}

impl Report {
    pub(super) fn of(documents: &[Document]) -> Self {
        let mut report = Self::default();
        for document in documents {
            report.plugins += document.plugins.len();
            let around = |remark: &Remark| document.around(remark);
            report.errors.extend(document.around.problems.iter().map(around));
            report.warnings.extend(document.around.notes.iter().map(around));
            if document.around.unlisted > 0 {
                let more = format!("and {} more", document.around.unlisted);
                report.errors.push(document.finding(None, ".".to_owned(), &more));
            }
            for plugin in &document.plugins {
                report.judge(document, plugin);
            }
        }
        report
    }

    /// Prints all findings on standard error, one on each line.
    pub(super) fn print(&self, path: &Path) {
        for (severity, findings) in [
            ("warning: ", &self.warnings),
            ("note: ", &self.notes),
            ("", &self.errors),
        ] {
            for finding in findings {
                finding.print(path, severity);
            }
        }
    }

    fn judge(&mut self, document: &Document, plugin: &Plugin) {
        let Some(configuration) = &plugin.configuration else {
            return;
        };
        let within = |path: &str, message: &str| {
            let line = configuration.line(path, &document.places);
            document.finding(line, configuration.place(path), message)
        };
        match Policy::parse(configuration.json.as_bytes()) {
            Ok(policy) => {
                let mut requirements = policy.routes.iter().filter_map(|rule| rule.requirement.as_ref());
                if requirements.any(Requirement::holds_for_its_body) {
                    self.errors
                        .extend(plugin.bodiless.iter().map(|remark| document.around(remark)));
                }
                if let Some(rule) = policy.needs_answers() {
                    let name = &rule.name;
                    let needs =
                        format!("rule `{name}` needs the module credence-filter-mcp.wasm; another one refuses it");
                    self.notes.push(within("rules", &needs));
                }
                let notes = policy.notes.iter();
                self.notes.extend(notes.map(|note| within(&note.path, &note.message)));
                if policy.control_plane.log_id == examples::LOG_ID {
                    self.notes.push(within("control_plane.log_id", examples::LOG_ID_NOTE));
                }
            }
            Err(error) => {
                let problems = error.problems.iter();
                self.errors
                    .extend(problems.map(|problem| within(&problem.path, &problem.message)));
                if error.unlisted > 0 {
                    self.errors.push(within(".", &format!("and {} more", error.unlisted)));
                }
            }
        }
    }
}
