//! Reads a file of configurations: its documents, and Credence's filters in them.

use std::cell::RefCell;
use std::path::Path;

use credence_delegation::json::Json;
use credence_delegation::{Findings, Location, Remark};

use super::envoy_gateway::Patched;
use super::plugin::{Configuration, Plugin};
use super::search;
use crate::failure::Failure;
use crate::yaml;
use crate::yaml::places::Places;
use crate::{files, stderr, terminal};

/// One document of a file, and Credence's filters in it.
#[derive(Debug)]
pub(super) struct Document {
    /// Counted from 1; absent if the file has one document.
    pub(super) number: Option<usize>,
    pub(super) places: Places,
    pub(super) plugins: Vec<Plugin>,
    /// Findings about the configuration around the filters.
    pub(super) around: Findings,
}

/// A finding about a file: `plugin.yaml:14: document 2: rules[0].name: …`.
#[derive(Debug)]
pub(super) struct Finding {
    pub(super) line: Option<usize>,
    /// Absent if the file has one document.
    pub(super) document: Option<usize>,
    /// `.` is the whole document.
    pub(super) path: String,
    pub(super) message: String,
}

/// Reads a file. Invalid YAML, or invalid JSON if the name ends in .json, is a finding.
///
/// # Errors
/// [`Failure`] if the file cannot be read.
pub(super) fn read(path: &Path) -> Result<Result<Vec<Document>, Finding>, Failure> {
    let text = files::read_up_to(MAX_BYTES, path, "a configuration")?;
    let Ok(text) = std::str::from_utf8(&text) else {
        return Ok(Err(Finding::whole("not UTF-8; write the file in UTF-8")));
    };
    let is_json = path.extension().is_some_and(|extension| extension == "json");
    let documents = match yaml::documents(text) {
        // The filter's own parser reads JSON. YAML only adds the lines of its parts.
        found if is_json => vec![yaml::YamlDocument {
            number: 1,
            json: text.to_owned(),
            places: found
                .ok()
                .and_then(|found| Some(found.into_iter().next()?.places))
                .unwrap_or_default(),
        }],
        Ok(found) => found,
        Err(error) => {
            return Ok(Err(Finding {
                line: Some(error.line),
                document: (error.document > 1).then_some(error.document),
                path: ".".to_owned(),
                message: error.problem,
            }));
        }
    };
    let patched = documents.iter().fold(Patched::default(), |patched, document| {
        Json::parse(document.json.as_bytes()).map_or(patched, |json| patched.and(&json))
    });
    let has_several = documents.len() > 1 || documents.iter().any(|document| document.number > 1);
    let documents: Vec<_> = documents
        .into_iter()
        .map(|document| Document::of(document, has_several, patched))
        .collect();
    if documents.is_empty() {
        return Ok(Err(Finding::whole("empty; write a configuration")));
    }
    if documents.iter().all(|document| document.plugins.is_empty()) {
        return Ok(Err(Finding::whole(
            "a configuration without Credence's filter: no Wasm filter, WasmPlugin or EnvoyExtensionPolicy has the \
             name credence, loads a module of that name, or has trust_anchors in its configuration",
        )));
    }
    Ok(Ok(documents))
}

impl Document {
    fn of(document: yaml::YamlDocument, is_numbered: bool, patched: Patched) -> Self {
        let around = RefCell::default();
        let mut plugins = Vec::new();
        match Json::parse(document.json.as_bytes()) {
            Ok(json) if search::surrounds(&json) => {
                search::search(&json, &Location::root(&around), patched, &mut plugins);
            }
            // If the text is not JSON, the filter's own parser reports why.
            Ok(_) | Err(_) => plugins.push(Plugin {
                configuration: Some(Configuration {
                    json: document.json.clone(),
                    path: String::new(),
                    is_text: false,
                }),
                bodiless: None,
            }),
        }
        Self {
            number: is_numbered.then_some(document.number),
            places: document.places,
            plugins,
            around: around.into_inner(),
        }
    }

    /// A remark about a place in this document.
    pub(super) fn around(&self, remark: &Remark) -> Finding {
        self.finding(self.places.line(&remark.path), remark.path.clone(), &remark.message)
    }

    pub(super) fn finding(&self, line: Option<usize>, path: String, message: &str) -> Finding {
        Finding {
            line,
            document: self.number,
            path,
            message: message.to_owned(),
        }
    }
}

impl Finding {
    fn whole(message: impl Into<String>) -> Self {
        Self {
            line: None,
            document: None,
            path: ".".to_owned(),
            message: message.into(),
        }
    }

    /// Prints the finding on standard error, after the file's name.
    pub(super) fn print(&self, file: &Path, severity: &str) {
        let line = self.line.map_or_else(String::new, |line| format!(":{line}"));
        let document = self
            .document
            .map_or_else(String::new, |document| format!("document {document}: "));
        let path = match self.path.as_str() {
            "." => String::new(),
            path => format!("{}: ", terminal::printable(path)),
        };
        let message = terminal::printable(&self.message);
        stderr::print(format_args!(
            "{}{line}: {severity}{document}{path}{message}",
            file.display()
        ));
    }
}

/// Bytes of a file. More than the filter accepts, because YAML may need more than JSON.
const MAX_BYTES: u64 = 32 << 20;
