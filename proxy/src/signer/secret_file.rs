//! Files with secrets.

use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use zeroize::Zeroizing;

use super::error::SignerError;

/// Reads a small file that only its owner, or its group, may read.
pub(crate) fn read_secret(path: &Path) -> Result<Zeroizing<Vec<u8>>, SignerError> {
    let failed = |error| SignerError::File {
        path: path.to_owned(),
        error,
    };
    let file = std::fs::File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.mode() & 0o007 != 0 {
        return Err(SignerError::Readable(path.to_owned()));
    }
    let mut contents = Zeroizing::new(Vec::new());
    file.take(MAX_SECRET_BYTES).read_to_end(&mut contents).map_err(failed)?;
    Ok(contents)
}

const MAX_SECRET_BYTES: u64 = 64 << 10;
