//! The ledger's identity: its origin, and the key that signs its checkpoints.
//!
//! Each origin has one append-only tree. A ledger restored from a backup lacks leaves that a checkpoint of its origin
//! may commit to, and will have others in their place. So its tree continues under another origin and another key.
//! Existing leaves stay sealed under the first origin of the tree.

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
    /// The tree's origins, the oldest first, each with the `log_id` at that time.
    origins: Vec<Origin>,
    signer: NoteSigner,
    /// Whether this opening created origin and key: then nothing can have been published under them.
    is_new: bool,
    /// A file outside of the data folder with a copy of the latest checkpoint. A restore of the folder does not change
    /// it.
    published_note: Option<PathBuf>,
}

/// The inputs of the identity.
#[derive(Debug, Clone)]
pub struct Naming<'a> {
    /// The configured origin, if any.
    pub origin: Option<&'a KeyName>,
    /// The `log_id` of the revocation log beside the ledger. It changes when the log is declared restored.
    pub log_id: &'a str,
}

/// An origin, and the `log_id` at that time.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Origin {
    name: KeyName,
    log_id: String,
}

// === impl LedgerIdentity ===

impl LedgerIdentity {
    /// Reads the identity of the ledger in this folder. A ledger without one gets an origin and a key. If its log was
    /// declared restored, or another origin is configured, it gets a new origin and a new key, and no longer publishes
    /// under the old ones.
    pub fn open(folder: &Path, naming: &Naming<'_>) -> Result<Self, DiskError> {
        Self::open_with(folder, naming, "")
    }

    /// The same for one of several ledgers beside the same revocation log, which have the same configuration. The origin
    /// that it gets ends with a random name.
    pub fn open_among_others(folder: &Path, naming: &Naming<'_>) -> Result<Self, DiskError> {
        let mut name = [0; 4];
        getrandom::fill(&mut name).map_err(|error| at(&folder.join(ORIGIN))(io::Error::other(error)))?;
        Self::open_with(folder, naming, &format!("/{:08x}", u32::from_be_bytes(name)))
    }

    fn open_with(folder: &Path, naming: &Naming<'_>, suffix: &str) -> Result<Self, DiskError> {
        let origins = read_origins(&folder.join(ORIGIN))?;
        let Some(current) = origins.last() else {
            return Self::take(folder, origins, naming, suffix);
        };
        let is_restored = current.log_id != naming.log_id;
        let is_of = |origin: &Origin, configured: &KeyName| {
            let rest = origin.name.as_str().strip_prefix(configured.as_str());
            rest.is_some_and(|rest| rest.len() == suffix.len())
        };
        let is_renamed = naming
            .origin
            .is_some_and(|configured| !origins.iter().any(|origin| is_of(origin, configured)));
        if is_restored || is_renamed {
            return Self::take(folder, origins, naming, suffix);
        }
        let path = folder.join(CHECKPOINT);
        if read_if_there(&path, MAX_CHECKPOINT_LEN)?.is_none() {
            let found = "it is missing, so the published state is unknown";
            return Err(DiskError::damaged(&path, found).with_cure(
                "Restore it from a backup; or, if the folder is from one, start with --restored, and the tree continues under another origin",
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

    /// Keeps a copy of the latest checkpoint in this file. It must be in a place that a restore of the data folder does
    /// not change.
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

    /// The tree's first origin. Leaves are sealed with it, under later origins too.
    pub fn first_origin(&self) -> &KeyName {
        self.origins.first().map_or(self.signer.name(), |origin| &origin.name)
    }

    /// The signer of checkpoints.
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

    /// The latest checkpoint signed under this origin. The first one is of the empty tree.
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

    /// The latest checkpoint of this origin in the file outside of the folder, if there is one. A checkpoint of an
    /// earlier origin does not count.
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
                let found = format!("this file (ledger.published_note) holds no checkpoint of this ledger: {error}");
                Err(DiskError::damaged(&path, found).with_cure(
                    "Set ledger.published_note to the file that this ledger wrote; or remove the file, if you are certain that the data folder was not rolled back to an earlier state",
                ))
            }
        }
    }

    /// Saves a checkpoint, in the folder and in the file outside of it. Durable on return: from then on it may be
    /// served.
    pub fn publish(&self, checkpoint: &SignedCheckpoint) -> io::Result<()> {
        durable::write_file(&self.folder, CHECKPOINT, checkpoint.note().as_bytes())?;
        self.remember(checkpoint)
    }

    /// Saves a checkpoint in the file outside of the folder, if there is one.
    pub fn remember(&self, checkpoint: &SignedCheckpoint) -> io::Result<()> {
        let Some(path) = &self.published_note else {
            return Ok(());
        };
        durable::write_path(path, checkpoint.note().as_bytes()).map_err(|error| {
            let text = format!("ledger.published_note: {}: {error}", path.display());
            io::Error::new(error.kind(), text)
        })
    }

    /// Writes the origin last. A crash before that leaves the old one, and the next start repeats all steps.
    fn take(folder: &Path, mut origins: Vec<Origin>, naming: &Naming<'_>, suffix: &str) -> Result<Self, DiskError> {
        let at = |name: &str| at(&folder.join(name));
        let removed = durable::remove_if_present(&folder.join(CHECKPOINT));
        removed
            .and_then(|()| durable::sync_folder(folder))
            .map_err(at(CHECKPOINT))?;
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|error| at(KEY)(io::Error::other(error)))?;
        durable::write_file(folder, KEY, &seed).map_err(at(KEY))?;
        let name = naming.unused(&origins, suffix)?;
        let signer = NoteSigner::new(name.clone(), &seed);
        // Written before the origin: from then on, a missing checkpoint is a lost one.
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

/// The origins that the tree in a folder had, the present one last.
pub fn origins_of(folder: &Path) -> Result<Vec<KeyName>, DiskError> {
    let origins = read_origins(&folder.join(ORIGIN))?;
    Ok(origins.into_iter().map(|origin| origin.name).collect())
}

/// The key of a ledger's folder. Reads its secrets.
pub fn verifier_key_of(folder: &Path) -> Result<VerifierKey, DiskError> {
    let path = folder.join(ORIGIN);
    let Some(current) = read_origins(&path)?.pop() else {
        let found = "it is missing: no control plane has used this ledger yet";
        return Err(damaged(&path, found));
    };
    Ok(NoteSigner::new(current.name, &read_key(&folder.join(KEY))?).verifier_key())
}

// === impl Naming and Origin ===

impl Naming<'_> {
    /// An origin that the tree has not had before. A configured name that it has had is extended with the `log_id`.
    fn unused(&self, origins: &[Origin], suffix: &str) -> Result<KeyName, DiskError> {
        let is_unused = |name: &KeyName| origins.iter().all(|origin| origin.name != *name);
        let log_id = self.log_id;
        let named = |name: String| name.parse().ok().filter(is_unused);
        let configured = self.origin.and_then(|name| named(format!("{name}{suffix}")));
        let name = self.origin.map_or(DEFAULT_ORIGIN, KeyName::as_str);
        configured
            .or_else(|| named(format!("{name}/{log_id}{suffix}")))
            .ok_or_else(|| damaged(Path::new(ORIGIN), "the ledger had this log_id before"))
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
        .ok_or(damaged("its last line does not end with a newline"))?
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
        .ok_or_else(|| damaged(path, "the 32 bytes of the key that signs checkpoints are missing"))
}

fn damaged(path: &Path, found: &'static str) -> DiskError {
    DiskError::damaged(path, found).with_cure(
        "Restore it from a backup, or set ledger.origin to a name that the ledger has not had before: the tree continues under it, with a new key",
    )
}

fn read_if_there(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, DiskError> {
    match durable::read_small_file(path, limit) {
        Ok(contents) => Ok(Some(contents)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(at(path)(error).into()),
    }
}

/// The origins, one per line: the origin, the `log_id`, and the CRC-32C of both.
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
    fn a_restored_ledger_continues_under_another_origin_and_key() {
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
    fn a_restored_ledger_gets_one_new_origin_wherever_a_crash_interrupts_it() {
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
    fn another_configured_origin_is_used_and_without_one_the_origin_stays() {
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
