//! Reads files that the command line names, and writes secrets.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use zeroize::Zeroizing;

use crate::failure::Failure;

/// Bytes of any file or standard input that is read whole: four times the longest chain.
pub(crate) const MAX_BYTES: u64 = 1 << 20;

/// Reads a small file whole. `what` names its content in an error. The memory is erased when dropped, since it may hold
/// a private key.
pub(crate) fn read(path: &Path, what: &str) -> Result<Zeroizing<Vec<u8>>, Failure> {
    read_up_to(MAX_BYTES, path, what)
}

/// The same for a larger file.
pub(crate) fn read_up_to(max_bytes: u64, path: &Path, what: &str) -> Result<Zeroizing<Vec<u8>>, Failure> {
    if path.as_os_str().is_empty() {
        return Err(Failure::input(format!(
            "the name of a file is empty; give the file that has {what}"
        )));
    }
    let place = format!("the file {}", path.display());
    let file = File::open(path).map_err(|error| {
        refuse_jwk(path).err().unwrap_or_else(|| {
            Failure::input(format!(
                "{place} cannot be opened: {error}; give the file that has {what}"
            ))
        })
    })?;
    read_bounded(max_bytes, file, &place, what)
}

/// Reads an argument: the text itself, `@FILE`, or `-` for standard input. Trims white space.
pub(crate) fn read_argument(argument: &str, what: &str) -> Result<String, Failure> {
    let bytes = if argument == "-" {
        read_bounded(MAX_BYTES, io::stdin().lock(), "standard input", what)?
    } else if let Some(path) = argument.strip_prefix('@') {
        read(Path::new(path), what)?
    } else {
        return Ok(argument.trim().to_owned());
    };
    match std::str::from_utf8(&bytes) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(_) => Err(Failure::input(format!("{argument}: not text; it must have {what}"))),
    }
}

/// Whether a text seems to be a JWK, or a part of one. It may be a private key, so no error may repeat it.
pub(crate) fn looks_like_a_jwk(text: &str) -> bool {
    text.contains('{') || text.contains(PRIVATE_MEMBER)
}

/// Refuses a file name that looks like a JWK, without repeating it.
pub(crate) fn refuse_jwk(path: &Path) -> Result<(), Failure> {
    if looks_like_a_jwk(&path.to_string_lossy()) {
        return Err(Failure::input(
            "expected the name of a file, but found what looks like a JWK; give its file. It is not repeated here: if \
             it is a private key, replace it, because other users of this machine can see command lines",
        ));
    }
    Ok(())
}

/// Creates a file that only its owner can read, and that did not exist before.
pub(crate) fn create_secret(path: &Path, contents: &str) -> Result<(), Failure> {
    refuse_jwk(path)?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(|error| {
            if error.kind() == io::ErrorKind::AlreadyExists {
                Failure::operation(format!(
                    "the file {} exists already and is not overwritten; choose another name, or remove it first",
                    path.display()
                ))
            } else {
                Failure::operation(format!("the file {} cannot be created: {error}", path.display()))
            }
        })?;
    file.write_all(contents.as_bytes())
        .and_then(|()| file.sync_all())
        .map_err(|error| {
            // A partly written secret is useless, and would block the next attempt.
            let _ = std::fs::remove_file(path);
            Failure::operation(format!("the file {} cannot be written: {error}", path.display()))
        })
}

fn read_bounded(max_bytes: u64, source: impl Read, place: &str, what: &str) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let mut bytes = Zeroizing::new(Vec::new());
    source
        .take(max_bytes + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::input(format!("{place} cannot be read: {error}")))?;
    if bytes.len() as u64 > max_bytes {
        return Err(Failure::input(format!(
            "{place} is longer than {max_bytes} bytes; it must have {what}"
        )));
    }
    Ok(bytes)
}

/// A member of private JWKs that public ones lack (RFC 7518, section 6; RFC 8037, section 2).
pub(crate) const PRIVATE_MEMBER: &str = "\"d\"";
