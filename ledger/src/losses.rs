//! Checks that missing parts of a folder are accounted for: the oldest segments by a pruning note, a principal's key by
//! an erasure note. Hashes do not show such losses, because the tree is complete without its leaves.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::disk_error::DiskError;
use crate::group::Leaf;
use crate::keys::{KeyFile, Slot};
use crate::record::{Note, RecordBody};
use crate::seal::{OpenError, Opener, key_name};

/// Collects the notes and keys of a folder's leaves, in order.
pub(crate) struct LossCheck {
    keys: Arc<KeyFile>,
    opener: Opener,
    /// Keys that were erased before the first leaf was read. Their notes existed by then.
    erased: HashSet<u32>,
    uses: HashMap<u32, Use>,
    /// Keys with an erasure note.
    noted: HashSet<u64>,
    /// Nothing below this index need exist, according to the notes.
    pruned_below: u64,
}

/// The use of a key.
struct Use {
    last_index: u64,
    /// Whether the first leaf sealed with the key could be opened, or the key is known to be erased.
    opens: bool,
}

// === impl LossCheck ===

impl LossCheck {
    /// Call this before reading any leaf.
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

    /// Adds a leaf.
    pub(crate) fn take(&mut self, leaf: Leaf<'_>) {
        let Leaf { index, sealed, .. } = leaf;
        let Some(name) = key_name(sealed) else { return };
        if name == 0 {
            self.note(index, sealed);
        }
        match self.uses.get_mut(&name) {
            Some(known) => known.last_index = index,
            None => {
                // One leaf shows whether the key is the right one. Opening all would double the time.
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

    /// Whether a note accounts for the loss of everything below this index.
    pub(crate) fn excuses(&self, first: u64) -> bool {
        first <= self.pruned_below
    }

    /// The keys that do not fit the leaves, the last index sealed with each, and the problem.
    pub(crate) fn unaccounted(&self) -> Vec<(u32, u64, &'static str)> {
        let mut found = Vec::new();
        for (name, used) in &self.uses {
            let wrong = match self.keys.slot(*name) {
                Ok(Slot::Erased) if self.erased.contains(name) && !self.noted.contains(&u64::from(*name)) => {
                    "it was destroyed, and no note in the ledger records an erasure"
                }
                Ok(Slot::Erased) => continue,
                Ok(Slot::Live { .. }) if used.opens => continue,
                Ok(Slot::Live { .. }) => "existing records do not open with it",
                Ok(Slot::Free) | Err(_) => "existing records were sealed with it, and it is missing",
            };
            found.push((*name, used.last_index, wrong));
        }
        found.sort_unstable_by_key(|(name, ..)| *name);
        found
    }
}
