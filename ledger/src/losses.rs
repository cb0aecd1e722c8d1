//! Whether what is gone from a folder is accounted for: the oldest segments by a note of their pruning, a principal's key by
//! a note of its erasure. The hashes do not tell, for a tree is whole without any of its leaves.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::disk_error::DiskError;
use crate::group::Leaf;
use crate::keys::{KeyFile, Slot};
use crate::record::{Note, RecordBody};
use crate::seal::{OpenError, Opener, key_name};

/// What the leaves of a folder say, as they are read in their order.
pub(crate) struct LossCheck {
    keys: Arc<KeyFile>,
    opener: Opener,
    /// Keys that were erased before the first leaf was read: the notes of it were there by then.
    erased: HashSet<u32>,
    uses: HashMap<u32, Use>,
    /// Keys whose erasure is noted.
    noted: HashSet<u64>,
    /// Below it nothing need be there, as the notes say.
    pruned_below: u64,
}

/// What was found of a key.
struct Use {
    last_index: u64,
    /// Whether the first leaf that is sealed with it could be opened, or is known to be erased.
    opens: bool,
}

// === impl LossCheck ===

impl LossCheck {
    /// Before any leaf is read.
    pub(crate) fn new(keys: &Arc<KeyFile>, origin: &str) -> Result<Self, DiskError> {
        Ok(Self {
            erased: keys.erased()?,
            opener: Opener::new(origin, Arc::clone(keys)),
            keys: Arc::clone(keys),
            uses: HashMap::new(),
            noted: HashSet::new(),
            pruned_below: 0,
        })
    }

    /// Takes in a leaf.
    pub(crate) fn take(&mut self, leaf: Leaf<'_>) {
        let Leaf { index, sealed, .. } = leaf;
        let Some(name) = key_name(sealed) else { return };
        if name == 0 {
            self.note(index, sealed);
        }
        match self.uses.get_mut(&name) {
            Some(known) => known.last_index = index,
            None => {
                // One leaf tells whether the key is the one that it was: to open all takes as long as to read them.
                let opens = !matches!(
                    self.opener.open(index, sealed),
                    Err(OpenError::Damaged { .. } | OpenError::Disk(_))
                );
                let last_index = index;
                self.uses.insert(name, Use { last_index, opens });
            }
        }
    }

    fn note(&mut self, index: u64, leaf: &[u8]) {
        let Ok(RecordBody::Note(note)) = self.opener.open(index, leaf).map(|record| record.body) else {
            return;
        };
        match note.note {
            Some(Note::Erasure(erasure)) => {
                self.noted.insert(erasure.key);
            }
            Some(Note::Pruning(pruning)) => self.pruned_below = self.pruned_below.max(pruning.first),
            Some(Note::Mismatch(_)) | None => {}
        }
    }

    /// Whether everything below this index may be gone.
    pub(crate) fn excuses(&self, first: u64) -> bool {
        first <= self.pruned_below
    }

    /// The keys that are not what the leaves need, the last index that was sealed with each, and what is wrong with it.
    pub(crate) fn unaccounted(&self) -> Vec<(u32, u64, &'static str)> {
        let mut found = Vec::new();
        for (name, used) in &self.uses {
            let wrong = match self.keys.slot(*name) {
                Ok(Slot::Erased) if self.erased.contains(name) && !self.noted.contains(&u64::from(*name)) => {
                    "it was destroyed, and no note in the ledger says that a principal was erased"
                }
                Ok(Slot::Erased) => continue,
                Ok(Slot::Live { .. }) if used.opens => continue,
                Ok(Slot::Live { .. }) => "records that are held do not open with it",
                Ok(Slot::Free) | Err(_) => "records that are held were sealed with it, and it is not there",
            };
            found.push((*name, used.last_index, wrong));
        }
        found.sort_unstable_by_key(|(name, ..)| *name);
        found
    }
}
