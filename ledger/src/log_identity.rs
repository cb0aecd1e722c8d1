//! The ledger's identity: its origin, and the key that signs its checkpoints.
//!
//! An origin stands for one append-only tree. A ledger restored from a backup has forgotten leaves that a checkpoint of
//! its origin may have committed to, and will have others in their place. So its tree goes on under another origin and
//! another key: there are never two trees of one origin. Leaves stay sealed as they are, under the first origin that the
//! tree had.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use credence_storage::{at, durable};

use crate::checkpoint::{Checkpoint, SignedCheckpoint};
use crate::disk_error::DiskError;
use crate::note::{KeyName, NoteSigner, VerifierKey};
use crate::tree::empty_root;

/// The ledger's origin and key.
#[derive(Debug)]
pub struct LedgerIdentity {
    folder: PathBuf,
    /// The tree's origins, the first one first, each with the log beside which the tree had it.
    origins: Vec<Origin>,
    signer: NoteSigner,
    /// Whether origin and key were made by this opening: nothing can have been published under them.
    is_new: bool,
    /// A file outside of the folder that has the latest checkpoint too: it is not restored with the folder.
    published_note: Option<PathBuf>,
}

/// What the identity is made from.
#[derive(Debug, Clone)]
pub struct Naming<'a> {
    /// The origin that is configured, if one is.
    pub origin: Option<&'a KeyName>,
    /// The name of the revocation log beside the ledger: it gets another one when it is declared restored.
    pub log_id: &'a str,
}

/// An origin, and the log beside which the tree had it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Origin {
    name: KeyName,
    log_id: String,
}

// === impl LedgerIdentity ===

impl LedgerIdentity {
    /// Reads the identity of the ledger in this folder. One without an identity gets an origin and a key; one whose log was
    /// declared restored, or for which another origin is configured, gets another origin and another key, and what it
    /// had published under the old ones is published no more.
    pub fn open(folder: &Path, naming: &Naming<'_>) -> Result<Self, DiskError> {
        let origins = read_origins(&folder.join(ORIGIN))?;
        let Some(current) = origins.last() else {
            return Self::take(folder, origins, naming);
        };
        let is_restored = current.log_id != naming.log_id;
        let is_renamed = naming
            .origin
            .is_some_and(|configured| origins.iter().all(|origin| origin.name != *configured));
        if is_restored || is_renamed {
            return Self::take(folder, origins, naming);
        }
        let path = folder.join(CHECKPOINT);
        if read_if_there(&path, MAX_CHECKPOINT_LEN)?.is_none() {
            let found = "it is gone, so that it is not known what was published";
            return Err(DiskError::damaged(&path, found).with_cure(
                "Restore it from a backup; or, if the folder is from one, start with --restored, and the tree goes on under another origin",
            ));
        }
        let signer = NoteSigner::new(current.name.clone(), &read_key(&folder.join(KEY))?);
        Ok(Self {
            folder: folder.to_owned(),
            origins,
            signer,
            is_new: false,
            published_note: None,
        })
    }

    /// Has this file remember the latest checkpoint too. It lies where a restored backup of the folder does not take it back.
    pub fn remember_in(&mut self, published_note: PathBuf) {
        self.published_note = Some(published_note);
    }

    /// Whether nothing can have been published under the origin before this opening.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// The first line of every checkpoint.
    pub fn origin(&self) -> &KeyName {
        self.signer.name()
    }

    /// The origin under which the tree began: leaves are sealed with it, under later origins too.
    pub fn first_origin(&self) -> &KeyName {
        self.origins.first().map_or(self.signer.name(), |origin| &origin.name)
    }

    /// What signs checkpoints.
    pub fn signer(&self) -> &NoteSigner {
        &self.signer
    }

    /// The key with which others verify checkpoints.
    pub fn verifier_key(&self) -> VerifierKey {
        self.signer.verifier_key()
    }

    /// The latest checkpoint that was published under this origin.
    pub fn published(&self) -> Result<Option<SignedCheckpoint>, DiskError> {
        let checkpoint = self.last_signed()?;
        Ok(checkpoint.filter(|checkpoint| checkpoint.checkpoint().size > 0))
    }

    /// The latest checkpoint that was signed under this origin; the first one is of the empty tree, with which every
    /// other one begins.
    pub fn last_signed(&self) -> Result<Option<SignedCheckpoint>, DiskError> {
        let path = self.folder.join(CHECKPOINT);
        let Some(note) = read_if_there(&path, MAX_CHECKPOINT_LEN)? else {
            return Ok(None);
        };
        match SignedCheckpoint::open(&note, &self.verifier_key()) {
            Ok(checkpoint) => Ok(Some(checkpoint)),
            Err(error) => Err(DiskError::damaged(&path, error.to_string())),
        }
    }

    /// The latest checkpoint of this origin that the file outside of the folder remembers, if there is such a file. One of
    /// an origin that the tree had before says nothing about this one.
    pub fn remembered(&self) -> Result<Option<SignedCheckpoint>, DiskError> {
        let Some(path) = self.published_note.clone() else {
            return Ok(None);
        };
        let Some(note) = read_if_there(&path, MAX_CHECKPOINT_LEN)? else {
            return Ok(None);
        };
        let former = self.origins.split_last().map_or(&[][..], |(_, former)| former);
        let is_of = |origin: &Origin| note.starts_with(format!("{}\n", origin.name).as_bytes());
        match SignedCheckpoint::open(&note, &self.verifier_key()) {
            Ok(checkpoint) => Ok(Some(checkpoint)),
            Err(_) if former.iter().any(is_of) => Ok(None),
            Err(error) => {
                let found = format!("it (ledger.published_note) holds no checkpoint of this ledger: {error}");
                Err(DiskError::damaged(&path, found).with_cure(
                    "Name the file that this ledger wrote; or remove it, if you are certain that the data folder was not taken back to an earlier state",
                ))
            }
        }
    }

    /// Writes down a checkpoint, in the folder and where it is remembered outside of it. Durable on return: from then on
    /// every caller may be shown it.
    pub fn publish(&self, checkpoint: &SignedCheckpoint) -> io::Result<()> {
        durable::write_file(&self.folder, CHECKPOINT, checkpoint.note().as_bytes())?;
        self.remember(checkpoint)
    }

    /// Writes it down where it is remembered outside of the folder, if there is such a place.
    pub fn remember(&self, checkpoint: &SignedCheckpoint) -> io::Result<()> {
        let Some(path) = &self.published_note else {
            return Ok(());
        };
        durable::write_path(path, checkpoint.note().as_bytes()).map_err(|error| {
            let text = format!("ledger.published_note: {}: {error}", path.display());
            io::Error::new(error.kind(), text)
        })
    }

    /// The last step, which makes it count, is the origin: a crash before leaves the old one, and all is done again.
    fn take(folder: &Path, mut origins: Vec<Origin>, naming: &Naming<'_>) -> Result<Self, DiskError> {
        let at = |name: &str| at(&folder.join(name));
        let removed = durable::remove_if_present(&folder.join(CHECKPOINT));
        removed
            .and_then(|()| durable::sync_folder(folder))
            .map_err(at(CHECKPOINT))?;
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|error| at(KEY)(io::Error::other(error)))?;
        durable::write_file(folder, KEY, &seed).map_err(at(KEY))?;
        let name = naming.unused(&origins)?;
        let signer = NoteSigner::new(name.clone(), &seed);
        // Before the origin: from then on, a checkpoint that is not there is one that was lost.
        let empty = Checkpoint {
            origin: name.clone(),
            size: 0,
            root: empty_root(),
        };
        let empty = empty
            .sign(&signer)
            .map_err(|error| at(CHECKPOINT)(io::Error::other(error)))?;
        durable::write_file(folder, CHECKPOINT, empty.note().as_bytes()).map_err(at(CHECKPOINT))?;
        origins.push(Origin {
            name,
            log_id: naming.log_id.to_owned(),
        });
        let text: String = origins.iter().map(|origin| format!("{origin}\n")).collect();
        durable::write_file(folder, ORIGIN, text.as_bytes()).map_err(at(ORIGIN))?;
        Ok(Self {
            folder: folder.to_owned(),
            origins,
            signer,
            is_new: true,
            published_note: None,
        })
    }
}

/// The origins that a ledger's folder says its tree had, the present one last.
pub fn origins_of(folder: &Path) -> Result<Vec<KeyName>, DiskError> {
    let origins = read_origins(&folder.join(ORIGIN))?;
    Ok(origins.into_iter().map(|origin| origin.name).collect())
}

/// The key of a ledger's folder. Reads its secrets.
pub fn verifier_key_of(folder: &Path) -> Result<VerifierKey, DiskError> {
    let path = folder.join(ORIGIN);
    let Some(current) = read_origins(&path)?.pop() else {
        let found = "it is not there: no control plane has used this ledger yet";
        return Err(damaged(&path, found));
    };
    Ok(NoteSigner::new(current.name, &read_key(&folder.join(KEY))?).verifier_key())
}

// === impl Naming and Origin ===

impl Naming<'_> {
    /// An origin that the tree did not have before. A configured name that it had is told apart by the log's.
    fn unused(&self, origins: &[Origin]) -> Result<KeyName, DiskError> {
        let is_unused = |name: &KeyName| origins.iter().all(|origin| origin.name != *name);
        let log_id = self.log_id;
        let configured = self.origin.cloned();
        let name = self.origin.map_or(DEFAULT_ORIGIN, KeyName::as_str);
        let apart = format!("{name}/{log_id}");
        let apart = apart.parse().ok().filter(is_unused);
        configured
            .filter(is_unused)
            .or(apart)
            .ok_or_else(|| damaged(Path::new(ORIGIN), "the ledger had this log's name before"))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = format!("{} {}", self.name, self.log_id);
        write!(f, "{line} {:08x}", crc32c::crc32c(line.as_bytes()))
    }
}

fn read_origins(path: &Path) -> Result<Vec<Origin>, DiskError> {
    let damaged = |found| damaged(path, found);
    let Some(text) = read_if_there(path, MAX_ORIGINS_LEN)? else {
        return Ok(Vec::new());
    };
    let text = str::from_utf8(&text).map_err(|_| damaged("it is not UTF-8"))?;
    let lines = text
        .strip_suffix('\n')
        .ok_or(damaged("its last line has no end"))?
        .split('\n');
    lines
        .map(|line| {
            let (line, checksum) = line.rsplit_once(' ')?;
            if format!("{:08x}", crc32c::crc32c(line.as_bytes())) != checksum {
                return None;
            }
            let (name, log_id) = line.split_once(' ')?;
            let is_log_id = !log_id.is_empty() && log_id.bytes().all(|byte| byte.is_ascii_hexdigit());
            let name = name.parse().ok().filter(|_| is_log_id)?;
            Some(Origin {
                name,
                log_id: log_id.to_owned(),
            })
        })
        .collect::<Option<_>>()
        .ok_or(damaged(
            "a line of it is not an origin, the name of a log and their checksum",
        ))
}

fn read_key(path: &Path) -> Result<[u8; 32], DiskError> {
    read_if_there(path, 32)?
        .and_then(|seed| seed.try_into().ok())
        .ok_or_else(|| damaged(path, "the 32 bytes of the key that signs checkpoints are not there"))
}

fn damaged(path: &Path, found: &'static str) -> DiskError {
    DiskError::damaged(path, found).with_cure(
        "Restore it from a backup, or set ledger.origin to a name that the ledger did not have before: the tree goes on under it, with a new key",
    )
}

fn read_if_there(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, DiskError> {
    match durable::read_small_file(path, limit) {
        Ok(contents) => Ok(Some(contents)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(at(path)(error).into()),
    }
}

/// Its origins, a line each: the origin, the log's name, and the CRC-32C of the two.
const ORIGIN: &str = "origin";
const KEY: &str = "log-key";
const CHECKPOINT: &str = "checkpoint";
/// Names that end in `.invalid` are never assigned (RFC 2606).
const DEFAULT_ORIGIN: &str = "credence.invalid/ledger";
const MAX_CHECKPOINT_LEN: u64 = 256 << 10;
const MAX_ORIGINS_LEN: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::tree::leaf_hash;

    fn open(folder: &Path, origin: Option<&str>, log_id: &str) -> LedgerIdentity {
        let origin = origin.map(|origin| origin.parse().unwrap());
        let naming = Naming {
            origin: origin.as_ref(),
            log_id,
        };
        LedgerIdentity::open(folder, &naming).unwrap()
    }

    fn publish(identity: &LedgerIdentity) -> SignedCheckpoint {
        let checkpoint = Checkpoint {
            origin: identity.origin().clone(),
            size: 1,
            root: leaf_hash(b"one"),
        };
        let signed = checkpoint.sign(identity.signer()).unwrap();
        identity.publish(&signed).unwrap();
        signed
    }

    #[test]
    fn the_first_start_makes_an_origin_and_a_key_and_the_next_one_finds_them() {
        let folder = tempfile::tempdir().unwrap();
        let first = open(folder.path(), None, "ab12");
        assert_eq!(first.origin().as_str(), "credence.invalid/ledger/ab12");
        let published = publish(&first);
        let mode = folder.path().join(KEY).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let next = open(folder.path(), None, "ab12");
        assert_eq!(next.verifier_key(), first.verifier_key());
        assert_eq!(next.published().unwrap(), Some(published));
        assert_eq!(verifier_key_of(folder.path()).unwrap(), first.verifier_key());
    }

    #[test]
    fn a_restored_ledger_goes_on_under_another_origin_and_key() {
        for configured in [None, Some("audit.example/ledger")] {
            let folder = tempfile::tempdir().unwrap();
            let before = open(folder.path(), configured, "ab12");
            publish(&before);
            let after = open(folder.path(), configured, "cd34");
            assert_ne!(after.origin(), before.origin());
            assert!(after.origin().as_str().ends_with("/cd34"));
            assert_ne!(after.verifier_key(), before.verifier_key());
            assert_eq!(after.first_origin(), before.origin());
            assert_eq!(after.published().unwrap(), None);
            let later = open(folder.path(), configured, "cd34");
            assert_eq!(later.verifier_key(), after.verifier_key());
            assert_eq!(later.first_origin(), before.origin());
        }
    }

    #[test]
    fn a_restored_ledger_has_one_new_origin_wherever_a_crash_ends_its_making() {
        let folder = tempfile::tempdir().unwrap();
        let before = open(folder.path(), None, "ab12");
        publish(&before);
        std::fs::remove_file(folder.path().join(CHECKPOINT)).unwrap();
        std::fs::write(folder.path().join(KEY), [9; 32]).unwrap();
        let after = open(folder.path(), None, "cd34");
        assert_eq!(after.origins.len(), 2);
        assert_ne!(after.verifier_key(), before.verifier_key());
    }

    #[test]
    fn another_configured_origin_is_taken_and_the_absence_of_one_keeps_what_is() {
        let folder = tempfile::tempdir().unwrap();
        open(folder.path(), Some("audit.example/a"), "ab12");
        let renamed = open(folder.path(), Some("audit.example/b"), "ab12");
        assert_eq!(renamed.origin().as_str(), "audit.example/b");
        assert_eq!(open(folder.path(), None, "ab12").verifier_key(), renamed.verifier_key());
    }

    #[test]
    fn a_damaged_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let identity = open(folder.path(), None, "ab12");
        publish(&identity);
        let naming = Naming {
            origin: None,
            log_id: "ab12",
        };
        for (file, contents) in [
            (KEY, &b"short"[..]),
            (ORIGIN, b"x\n"),
            (ORIGIN, b"credence.invalid/l ab12"),
        ] {
            let whole = std::fs::read(folder.path().join(file)).unwrap();
            std::fs::write(folder.path().join(file), contents).unwrap();
            let error = LedgerIdentity::open(folder.path(), &naming).unwrap_err();
            assert!(error.to_string().contains(file), "{error}");
            std::fs::write(folder.path().join(file), whole).unwrap();
        }
        let path = folder.path().join(CHECKPOINT);
        let mut note = std::fs::read(&path).unwrap();
        note[3] ^= 1;
        std::fs::write(&path, note).unwrap();
        assert!(identity.published().unwrap_err().to_string().contains("checkpoint"));
    }
}
