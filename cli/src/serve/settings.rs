//! The control plane's configuration file.

use std::path::Path;

use credence_control_plane::Settings;
use credence_delegation::Remark;

use crate::failure::Failure;
use crate::settings_file::{self, SettingsFile, placed};

/// Reads the file. An error has its line and its place.
pub(crate) fn read(path: &Path) -> Result<Settings, Failure> {
    noted(path).map(|(settings, _)| settings)
}

/// The same, with notes on a valid file.
pub(crate) fn noted(path: &Path) -> Result<(Settings, Vec<String>), Failure> {
    let Some(SettingsFile { settings, places }) = settings_file::read(path, Settings::check)? else {
        return Ok((Settings::default(), Vec::new()));
    };
    let notes = settings.notes().into_iter().map(|Remark { path: place, message }| {
        placed(path, places.line(&place), format!("note: at {place}: {message}"))
    });
    let notes = notes.collect();
    Ok((settings, notes))
}
