//! Reading published test data.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use credence_delegation::json::{Json, Object};

/// A publication that `scripts/setup-vectors.sh` downloads.
pub(crate) struct Downloaded {
    folder: PathBuf,
}

impl Downloaded {
    /// The vectors of the Wycheproof project; an error says why they cannot be used.
    pub(crate) fn wycheproof() -> Result<Self, String> {
        Self::find("vectors-wycheproof", "WYCHEPROOF_VERSION")
    }

    /// The vectors of RFC 8785's author; an error says why they cannot be used.
    pub(crate) fn json_canonicalization() -> Result<Self, String> {
        Self::find("vectors-jcs", "JCS_VECTORS_VERSION")
    }

    fn find(name: &str, version: &str) -> Result<Self, String> {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        // The one file that pins versions.
        let pins = std::fs::read_to_string(repository.join("scripts/versions.sh")).unwrap();
        let version = pins
            .lines()
            .find_map(|line| line.strip_prefix(version)?.strip_prefix('='))
            .unwrap();
        let folder = format!(".tools/{name}-{version}");
        let found = repository.join(&folder);
        if found.is_dir() {
            Ok(Self { folder: found })
        } else {
            Err(format!(
                "{folder} does not exist; scripts/setup-vectors.sh downloads it (needs Go)"
            ))
        }
    }

    /// A file of the publication.
    pub(crate) fn file(&self, path: &str) -> Vec<u8> {
        let path = self.folder.join(path);
        std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}

pub(crate) fn object<'a, 'b>(json: &'a Json<'b>) -> &'a Object<'b> {
    json.as_object()
        .unwrap_or_else(|| panic!("an object expected: {json:?}"))
}

/// The array of that name. It must exist.
pub(crate) fn array<'a, 'b>(object: &'a Object<'b>, name: &str) -> &'a [Json<'b>] {
    let member = object.member(name).and_then(Json::as_array);
    member.unwrap_or_else(|| panic!("an array \"{name}\" expected: {object:?}"))
}

/// The string of that name. It must exist.
pub(crate) fn string<'a>(object: &'a Object<'_>, name: &str) -> &'a str {
    let member = object.member(name).and_then(Json::as_str);
    member.unwrap_or_else(|| panic!("a string \"{name}\" expected: {object:?}"))
}

/// The integer of that name. It must exist.
pub(crate) fn integer(object: &Object<'_>, name: &str) -> usize {
    let member = object.member(name).and_then(Json::as_integer);
    let number = member.and_then(|number| usize::try_from(number).ok());
    number.unwrap_or_else(|| panic!("a number \"{name}\" expected: {object:?}"))
}

/// Bytes in hexadecimal; ignores spaces and line breaks between them.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter(|character| !character.is_whitespace())
        .map(|digit| digit.to_digit(16).unwrap() as u8)
        .collect();
    assert!(digits.len().is_multiple_of(2), "half a byte: {text}");
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// The same for exactly `N` bytes.
pub(crate) fn hex_array<const N: usize>(text: &str) -> [u8; N] {
    hex(text).try_into().unwrap()
}

pub(crate) fn base64url(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

pub(crate) fn from_base64url(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}
