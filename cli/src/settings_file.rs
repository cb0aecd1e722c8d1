//! Configuration files of servers.

use std::path::Path;

use credence_control_plane::SettingsError;
use serde::de::DeserializeOwned;

use crate::failure::Failure;
use crate::yaml::places::Places;
use crate::{files, yaml};

/// A valid file, and where each setting is in it.
pub(crate) struct SettingsFile<T> {
    pub(crate) settings: T,
    pub(crate) places: Places,
}

/// Reads a file and checks it. An error has its line and its place. `None` if the file is empty.
pub(crate) fn read<T: DeserializeOwned>(
    path: &Path,
    check: impl Fn(&T) -> Result<(), SettingsError>,
) -> Result<Option<SettingsFile<T>>, Failure> {
    let refuse = |line, message| Failure::input(placed(path, line, message));
    let text = files::read(path, "the configuration file")?;
    let text = std::str::from_utf8(&text).map_err(|_| refuse(None, "it is not UTF-8".to_owned()))?;
    let mut documents = yaml::documents(text).map_err(|error| refuse(Some(error.line), error.problem))?;
    let document = match (documents.pop(), documents.pop()) {
        (Some(document), None) => document,
        (None, _) => return Ok(None),
        (Some(_), Some(_)) => return Err(refuse(None, "it has several documents; write one".to_owned())),
    };
    let settings = parse(&document.json, &document.places, check).map_err(|(line, message)| refuse(line, message))?;
    Ok(Some(SettingsFile {
        settings,
        places: document.places,
    }))
}

/// A message about a line of the file.
pub(crate) fn placed(path: &Path, line: Option<usize>, message: String) -> String {
    let line = line.map_or_else(String::new, |line| format!("{line}:"));
    format!("{}:{line} {message}", path.display())
}

fn parse<T: DeserializeOwned>(
    json: &str,
    places: &Places,
    check: impl Fn(&T) -> Result<(), SettingsError>,
) -> Result<T, (Option<usize>, String)> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let settings: T = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let place = error.path().to_string();
        // After " at line" comes a place in the converted JSON, which the operator has not written.
        let message = error.inner().to_string();
        let message = message.split(" at line ").next().unwrap_or_default();
        let shown = match place.as_str() {
            // A member of the whole file is missing.
            "." => message.to_owned(),
            place => format!("at {place}: {message}"),
        };
        (places.line(&place).filter(|_| place != "."), shown)
    })?;
    check(&settings).map_err(|error| (places.line(&error.place), error.to_string()))?;
    Ok(settings)
}
