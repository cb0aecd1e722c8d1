//! Small files with a checksum in their first line. A flipped bit, a cut, or another file's contents are an error,
//! never another value.
//!
//! ```text
//! file     = "credence-file 1 " name " " checksum "\n" contents
//! checksum = CRC-32C of name "\n" contents, as 8 lower-case hexadecimal digits
//! ```
//!
//! The name is the file's own, so that a file is never read as another one. A file that an operator wrote has no such
//! line: all of it is contents, and its reader validates it.

use std::io;
use std::path::Path;

use crate::durable;

/// Why a small file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SmallFileError {
    /// The system's error.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file is damaged.
    #[error("its first line does not match its contents")]
    Damaged,
}

/// The bytes of a file `name` with these contents.
pub fn encode(name: &str, contents: &[u8]) -> Vec<u8> {
    let mut file = first_line(name, contents).into_bytes();
    file.extend_from_slice(contents);
    file
}

/// Replaces `folder/name`, as [`durable::write_file`] does.
///
/// # Errors
/// The system's error.
pub fn write(folder: &Path, name: &str, contents: &[u8]) -> io::Result<()> {
    durable::write_file(folder, name, &encode(name, contents))
}

/// Reads `folder/name`, whose contents have at most `limit` bytes. Returns `None` if there is no such file.
///
/// # Errors
/// See [`SmallFileError`].
pub fn read(folder: &Path, name: &str, limit: u64) -> Result<Option<Vec<u8>>, SmallFileError> {
    let first_line_bytes = first_line(name, &[]).len() as u64;
    let file = match durable::read_small_file(&folder.join(name), limit.saturating_add(first_line_bytes)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    if !file.starts_with(MAGIC.as_bytes()) {
        return Ok(Some(file));
    }
    let end = file
        .iter()
        .position(|byte| *byte == b'\n')
        .ok_or(SmallFileError::Damaged)?;
    let (line, contents) = file.split_at(end + 1);
    // Compared as text: another spelling of the same checksum is damage too.
    match line == first_line(name, contents).as_bytes() {
        true => Ok(Some(contents.to_vec())),
        false => Err(SmallFileError::Damaged),
    }
}

fn first_line(name: &str, contents: &[u8]) -> String {
    let of_name = crc32c::crc32c(format!("{name}\n").as_bytes());
    let checksum = crc32c::crc32c_append(of_name, contents);
    format!("{MAGIC}{name} {checksum:08x}\n")
}

const MAGIC: &str = "credence-file 1 ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path(), "clock", 64).unwrap(), None);
        for contents in [b"1800000000\n".as_slice(), b"", &[0, 10, 255]] {
            write(folder.path(), "clock", contents).unwrap();
            let read = read(folder.path(), "clock", 64).unwrap();
            assert_eq!(read, Some(contents.to_vec()));
        }
    }

    #[test]
    fn no_flipped_bit_and_no_cut_is_read_as_other_contents() {
        let folder = tempfile::tempdir().unwrap();
        let whole = encode("clock", b"1800000000\n");
        let is_refused = |bytes: &[u8]| {
            std::fs::write(folder.path().join("clock"), bytes).unwrap();
            // Without its magic, the first line is part of the contents, which every reader refuses.
            match read(folder.path(), "clock", 64) {
                Ok(read) => read.unwrap() == bytes && !bytes.starts_with(MAGIC.as_bytes()),
                Err(_) => true,
            }
        };
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(is_refused(&flipped), "bit {bit}");
        }
        for length in 0..whole.len() {
            assert!(is_refused(&whole[..length]), "{length} bytes");
        }
        assert!(!is_refused(&whole));
    }

    #[test]
    fn one_file_is_not_read_as_another() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("clock"), encode("cursor", b"7\n")).unwrap();
        assert!(matches!(read(folder.path(), "clock", 64), Err(SmallFileError::Damaged)));
    }

    #[test]
    fn a_file_without_the_first_line_is_plain() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("clock"), "1800000000\n").unwrap();
        let plain = b"1800000000\n".to_vec();
        assert_eq!(read(folder.path(), "clock", 64).unwrap(), Some(plain));
    }

    #[test]
    fn a_file_beyond_the_limit_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "clock", &[b'1'; 65]).unwrap();
        assert!(read(folder.path(), "clock", 64).is_err());
    }
}
