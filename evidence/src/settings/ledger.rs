//! `ledger` in the configuration file: access to the ledger, and its witnesses.

use std::path::PathBuf;

use credence_ledger::cosignature::WitnessKey;
use credence_ledger::note::KeyName;
use schemars::JsonSchema;
use serde::Deserialize;

use credence_runtime::outbound::is_safe;
use credence_runtime::settings::{SettingsError, present};

/// What others may see of the ledger, and who vouches for it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LedgerSettings {
    /// Name on checkpoints. Default: the earlier one, or `credence.invalid/ledger/` and the `log_id`.
    #[serde(deserialize_with = "present")]
    #[schemars(extend("minLength" = 1, "maxLength" = MAX_ORIGIN_BYTES, "pattern" = NAME))]
    pub origin: Option<String>,
    /// Who may read `/ledger`. Default: `public`.
    pub tiles: TileAccess,
    /// File outside the data folder with the latest checkpoint. It detects a data folder that was rolled back.
    #[serde(deserialize_with = "present")]
    pub published_note: Option<PathBuf>,
    /// Who is asked to cosign checkpoints (C2SP tlog-witness).
    #[schemars(extend("maxItems" = MAX_WITNESSES))]
    pub witnesses: Vec<WitnessSettings>,
}

/// The callers that may read the checkpoint, the tiles and the sealed entries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TileAccess {
    /// All clients that reach the port: entries are sealed.
    #[default]
    Public,
    /// Callers that may read evidence.
    Private,
}

/// A witness.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WitnessSettings {
    /// Submission prefix. `http` only on this machine.
    pub url: String,
    /// Verifier key: `name+hash+base64`.
    pub key: String,
    /// PEM file: CAs of its server. Default: the system's.
    #[serde(default, deserialize_with = "present")]
    pub ca: Option<PathBuf>,
}

// === impl LedgerSettings ===

impl LedgerSettings {
    /// # Errors
    /// The first invalid member.
    pub fn check(&self) -> Result<(), SettingsError> {
        self.origin()?;
        if self.witnesses.len() > MAX_WITNESSES {
            return Err(SettingsError::at(
                "ledger.witnesses",
                format!("name at most {MAX_WITNESSES}"),
            ));
        }
        let mut names = Vec::new();
        for (index, witness) in self.witnesses.iter().enumerate() {
            let place = format!("ledger.witnesses[{index}]");
            if !is_safe(&witness.url) {
                return Err(SettingsError::at(
                    format!("{place}.url"),
                    "write an https URL; http is for this machine only (127.0.0.1, [::1], localhost)",
                ));
            }
            let key = witness.key(&place)?;
            if names.contains(key.name()) {
                return Err(SettingsError::at(
                    format!("{place}.key"),
                    format!("another witness is called {} already", key.name()),
                ));
            }
            names.push(key.name().clone());
        }
        Ok(())
    }

    /// The configured origin.
    pub fn origin(&self) -> Result<Option<KeyName>, SettingsError> {
        let Some(origin) = &self.origin else { return Ok(None) };
        if origin.len() > MAX_ORIGIN_BYTES {
            return Err(SettingsError::at(
                "ledger.origin",
                format!("write at most {MAX_ORIGIN_BYTES} bytes"),
            ));
        }
        match origin.parse() {
            Ok(origin) => Ok(Some(origin)),
            Err(error) => Err(SettingsError::at(
                "ledger.origin",
                format!("{error}; write a name such as audit.example/ledger"),
            )),
        }
    }
}

// === impl WitnessSettings ===

impl WitnessSettings {
    /// Its key; `place` is its place in the file.
    pub(crate) fn key(&self, place: &str) -> Result<WitnessKey, SettingsError> {
        self.key
            .parse()
            .map_err(|error| SettingsError::at(format!("{place}.key"), format!("{error}")))
    }
}

/// Each witness signs every checkpoint that it can, and a note has room for 64 signatures.
const MAX_WITNESSES: usize = 16;
/// With `/` and a log's name, it still fits the limit of witnesses (C2SP tlog-cosignature: 255 bytes).
const MAX_ORIGIN_BYTES: usize = 200;
/// Without spaces, control characters and pluses.
const NAME: &str = r"^[^\s\u0000-\u001f\u007f-\u009f+]+$";

#[cfg(test)]
mod tests {
    use super::*;

    /// Made for this test from the seed of 32 twos.
    const KEY: &str = "witness.example/w1+";

    fn check(text: &str) -> Result<(), SettingsError> {
        serde_json::from_str::<LedgerSettings>(text).unwrap().check()
    }

    #[test]
    fn an_error_names_its_place() {
        check("{}").unwrap();
        check(r#"{"origin": "audit.example/ledger", "tiles": "private"}"#).unwrap();
        for (text, place) in [
            (r#"{"origin": ""}"#.to_owned(), "ledger.origin"),
            (r#"{"origin": "audit example"}"#.to_owned(), "ledger.origin"),
            (r#"{"origin": "audit+example"}"#.to_owned(), "ledger.origin"),
            (format!(r#"{{"origin": "{}"}}"#, "a".repeat(201)), "ledger.origin"),
            (
                format!(r#"{{"witnesses": [{{"url": "https://w", "key": "{KEY}"}}]}}"#),
                "ledger.witnesses[0].key",
            ),
            (
                format!(r#"{{"witnesses": [{{"url": "http://w", "key": "{KEY}"}}]}}"#),
                "ledger.witnesses[0].url",
            ),
        ] {
            assert_eq!(check(&text).unwrap_err().place, place, "{text}");
        }
    }
}
