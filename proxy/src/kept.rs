//! A grant across restarts: a file with the refresh token. It is bound to the credential's key (RFC 9449, section 5), so the
//! file alone is of no use.

use std::path::PathBuf;

use credence_storage::durable;

use crate::signer::read_secret;

/// The file: the URL of the issuer, which alone gets the token, then a space and the token.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) path: PathBuf,
    pub(crate) issuer: String,
}

// === impl Kept ===

impl Kept {
    /// The refresh token, if there is one.
    pub(crate) fn read(&self, credential: &str) -> Option<String> {
        if !self.path.exists() {
            return None;
        }
        let read = read_secret(&self.path).map_err(|error| error.to_string());
        let text = read.and_then(|text| String::from_utf8(text.to_vec()).map_err(|error| error.to_string()));
        let text = text.inspect_err(|error| tracing::warn!(credential, error, "the kept grant cannot be read"));
        let text = text.ok()?;
        let (issuer, refresh_token) = text.trim().split_once(' ')?;
        (issuer == self.issuer).then(|| refresh_token.to_owned())
    }

    /// Replaces it, durably: the issuer counts the earlier one as used.
    pub(crate) fn write(&self, credential: &str, refresh_token: &str) {
        let text = format!("{} {refresh_token}", self.issuer);
        if let Err(error) = durable::write_path(&self.path, text.as_bytes()) {
            let path = self.path.display();
            tracing::error!(credential, %path, %error, "the grant cannot be kept: after a restart, a person is asked again");
        }
    }

    pub(crate) fn remove(&self) {
        let _ = durable::remove_if_present(&self.path);
    }
}
