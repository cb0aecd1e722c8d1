//! How far verifying again has come, and what it has to know to go on: a file in the ledger's folder.
//!
//! ```text
//! credence verified again 1
//! <index of the next record>
//! <source, 32 hexadecimal digits> <what it trusts, 64 hexadecimal digits, or - if it did not say>     (any number)
//! ```

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;

use credence_storage::folder_lock::FolderWatch;
use credence_storage::small_file;

use credence_runtime::text::hex;

/// Where it goes on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Progress {
    pub(crate) next: u64,
    /// What the sources trust; `None` if one did not say.
    pub(crate) anchors_of: HashMap<String, Option<[u8; 32]>>,
}

/// The file.
#[derive(Debug)]
pub(crate) struct ProgressFile {
    pub(crate) folder: PathBuf,
    pub(crate) watch: FolderWatch,
}

// === impl ProgressFile ===

impl ProgressFile {
    /// `None` if there is none, or none that can be read: what it would have said is made up for from the ledger.
    pub(crate) fn read(&self) -> Option<Progress> {
        let path = self.folder.join(NAME);
        let contents = match small_file::read(&self.folder, NAME, MAX_BYTES) {
            Ok(Some(contents)) => contents.into_parts().0,
            Ok(None) => return None,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "how far evidence was verified again can not be read");
                return None;
            }
        };
        let progress = String::from_utf8(contents).ok().and_then(|text| Progress::parse(&text));
        if progress.is_none() {
            tracing::warn!(path = %path.display(), "how far evidence was verified again is not known: the file is damaged");
        }
        progress
    }

    /// It is durable on return.
    pub(crate) fn write(&self, progress: &Progress) -> io::Result<()> {
        self.watch.check_before_writing()?;
        small_file::write(&self.folder, NAME, progress.to_text().as_bytes())
    }
}

// === impl Progress ===

impl Progress {
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.strip_suffix('\n')?.split('\n');
        if lines.next()? != HEAD {
            return None;
        }
        let next = lines.next()?.parse().ok()?;
        let source = |line: &str| {
            let (source, anchors) = line.split_once(' ')?;
            let anchors = match anchors {
                "-" => None,
                digits => Some(parse_digest(digits)?),
            };
            Some((source.to_owned(), anchors))
        };
        let anchors_of = lines.map(source).collect::<Option<_>>()?;
        Some(Self { next, anchors_of })
    }

    fn to_text(&self) -> String {
        let mut text = format!("{HEAD}\n{}\n", self.next);
        for (source, anchors) in &self.anchors_of {
            let anchors = anchors.map_or_else(|| "-".to_owned(), |anchors| hex(&anchors));
            // A text has room for everything.
            _ = writeln!(text, "{source} {anchors}");
        }
        text
    }
}

fn parse_digest(digits: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    if digits.len() != 64 || !digits.is_ascii() {
        return None;
    }
    for (place, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(2 * place..2 * place + 2)?, 16).ok()?;
    }
    Some(digest)
}

const NAME: &str = "verified-again";
const HEAD: &str = "credence verified again 1";
/// Of as many sources as are remembered.
const MAX_BYTES: u64 = 32 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_back_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = ProgressFile {
            folder: folder.path().to_owned(),
            watch: FolderWatch::of_nothing(),
        };
        assert_eq!(file.read(), None);
        let progress = Progress {
            next: 17,
            anchors_of: HashMap::from([("ab".repeat(16), Some([0xcd; 32])), ("ef".repeat(16), None)]),
        };
        file.write(&progress).unwrap();
        assert_eq!(file.read(), Some(progress));
    }

    #[test]
    fn what_is_damaged_is_nothing() {
        for wrong in [
            "",
            "17\n",
            "credence verified again 1\n",
            "credence verified again 1\n17\nab cd\n",
        ] {
            assert_eq!(Progress::parse(wrong), None, "{wrong}");
        }
    }
}
