//! A grant across restarts: a file with the refresh token. It is bound to the credential's key (RFC 9449, section 5), so the
//! file alone is of no use.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use crate::signer::read_secret;

/// The file.
#[derive(Debug)]
pub(crate) struct Kept(PathBuf);

// === impl Kept ===

impl Kept {
    pub(crate) fn at(path: PathBuf) -> Self {
        Self(path)
    }

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
        if let Err(error) = self.try_write(refresh_token) {
            let path = self.0.display();
            tracing::error!(credential, %path, %error, "the grant cannot be kept: after a restart, a person is asked again");
        }
    }

    pub(crate) fn remove(&self) {
        let _ = fs::remove_file(&self.0);
    }

    fn try_write(&self, refresh_token: &str) -> io::Result<()> {
        let mut new = self.0.clone().into_os_string();
        new.push(".new");
        // One that is there is an earlier attempt's, or someone else's.
        let _ = fs::remove_file(&new);
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(refresh_token.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &self.0)?;
        let folder = self.0.parent().filter(|folder| !folder.as_os_str().is_empty());
        fs::File::open(folder.unwrap_or(".".as_ref()))?.sync_all()
    }
}
