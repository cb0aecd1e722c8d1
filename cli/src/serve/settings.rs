//! The control plane's configuration file.

use std::path::Path;

use credence_control_plane::Settings;
use credence_delegation::Remark;

use crate::failure::Failure;
use crate::yaml::places::Places;
use crate::{files, yaml};

/// Reads the file. An error has its line and its place.
pub(crate) fn read(path: &Path) -> Result<Settings, Failure> {
    noted(path).map(|(settings, _)| settings)
}

/// The same, with notes on a valid file.
pub(crate) fn noted(path: &Path) -> Result<(Settings, Vec<String>), Failure> {
    let placed = |line: Option<usize>, message: String| {
        let line = line.map_or_else(String::new, |line| format!("{line}:"));
        format!("{}:{line} {message}", path.display())
    };
    let refuse = |line, message| Failure::input(placed(line, message));
    let text = files::read(path, "the configuration file")?;
    let text = std::str::from_utf8(&text).map_err(|_| refuse(None, "it is not UTF-8".to_owned()))?;
    let mut documents = yaml::documents(text).map_err(|error| refuse(Some(error.line), error.problem))?;
    let document = match (documents.pop(), documents.pop()) {
        (Some(document), None) => document,
        (None, _) => return Ok((Settings::default(), Vec::new())),
        (Some(_), Some(_)) => return Err(refuse(None, "it has several documents; write one".to_owned())),
    };
    let settings = parse(&document.json, &document.places).map_err(|(line, message)| refuse(line, message))?;
    let notes = settings.notes().into_iter().map(|Remark { path: place, message }| {
        placed(document.places.line(&place), format!("note: at {place}: {message}"))
    });
    let notes = notes.collect();
    Ok((settings, notes))
}

fn parse(json: &str, places: &Places) -> Result<Settings, (Option<usize>, String)> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let settings: Settings = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let place = error.path().to_string();
        // After " at line" comes a place in the converted JSON, which the operator has not written.
        let message = error.inner().to_string();
        let message = message.split(" at line ").next().unwrap_or_default();
        (places.line(&place), format!("at {place}: {message}"))
    })?;
    settings
        .check()
        .map_err(|error| (places.line(&error.place), error.to_string()))?;
    Ok(settings)
}
