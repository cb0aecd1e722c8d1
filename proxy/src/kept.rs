//! A grant across restarts: a file with the refresh token. It is bound to the credential's key (RFC 9449, section 5), so the
//! file alone is of no use.

use std::path::PathBuf;

use credence_storage::durable;

use crate::signer::read_secret;

/// The file.
#[derive(Debug)]
pub(crate) struct Kept(pub(crate) PathBuf);

// === impl Kept ===

impl Kept {
    /// The refresh token, if there is one.
    pub(crate) fn read(&self, credential: &str) -> Option<String> {
        if !self.0.exists() {
            return None;
        }
        let read = read_secret(&self.0).map_err(|error| error.to_string());
        let text = read.and_then(|text| String::from_utf8(text.to_vec()).map_err(|error| error.to_string()));
        let text = text.inspect_err(|error| tracing::warn!(credential, error, "the kept grant cannot be read"));
        text.ok()
            .map(|text| text.trim().to_owned())
            .filter(|text| !text.is_empty())
    }

    /// Replaces it, durably: the issuer counts the earlier one as used.
    pub(crate) fn write(&self, credential: &str, refresh_token: &str) {
        if let Err(error) = durable::write_path(&self.0, refresh_token.as_bytes()) {
            let path = self.0.display();
            tracing::error!(credential, %path, %error, "the grant cannot be kept: after a restart, a person is asked again");
        }
    }

    pub(crate) fn remove(&self) {
        let _ = durable::remove_if_present(&self.0);
    }
}
