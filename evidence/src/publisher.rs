//! Publishes the ledger's latest checkpoint (C2SP tlog-checkpoint).
//!
//! A checkpoint is signed at most once a second, over durable leaves, and only if it continues the previous one: even
//! if files were lost or changed, two different trees of one origin are never signed. It is on disk before it is shown.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use credence_ledger::DiskError;
use credence_ledger::checkpoint::{Checkpoint, SignedCheckpoint};
use credence_ledger::continuation::{ContinuationError, LogTree, check_continuation};
use credence_ledger::cosignature::WitnessKey;
use credence_ledger::log_identity::LedgerIdentity;
use credence_ledger::note::{NoteError, VerifierKey};
use credence_ledger::tree::root_of;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::metrics::Metrics;
use credence_runtime::time::unix_seconds;
use credence_storage::folder_lock::FolderWatch;

/// Signs checkpoints of a tree, and shows the latest one.
#[derive(Debug)]
pub struct Publisher<T> {
    /// None if the ledger could not be opened.
    identity: Option<LedgerIdentity>,
    /// Nothing is written once this is another folder.
    folder: FolderWatch,
    tree: T,
    latest: watch::Sender<Option<Arc<SignedCheckpoint>>>,
    /// Held while a checkpoint or a cosignature is written.
    writing: Mutex<()>,
    /// The checkpoints for which witnesses may still answer, the latest last. It changes only while `writing` is held.
    /// It is never locked during disk access, because requests read it.
    recent: Mutex<VecDeque<Arc<SignedCheckpoint>>>,
    /// Why nothing more is signed, if so.
    fault: Mutex<Option<String>>,
    /// Set while nothing is signed because no witness has answered yet.
    awaits_witness: AtomicBool,
    metrics: Arc<Metrics>,
}

// === impl Publisher ===

impl<T: LogTree> Publisher<T> {
    /// Continues from the last published checkpoint. If the tree does not, the ledger is damaged, and nothing more is
    /// signed or shown.
    pub fn open(identity: LedgerIdentity, tree: T, folder: FolderWatch, metrics: Arc<Metrics>) -> Self {
        let published = last_published(&identity, &tree);
        Self::new(Some(identity), published, tree, folder, metrics)
    }

    /// Shows nothing, because the ledger cannot be opened.
    pub fn damaged(why: &str, tree: T, metrics: Arc<Metrics>) -> Self {
        Self::new(None, Err(why.to_owned()), tree, FolderWatch::of_nothing(), metrics)
    }

    fn new(
        identity: Option<LedgerIdentity>,
        published: Result<Option<SignedCheckpoint>, String>,
        tree: T,
        folder: FolderWatch,
        metrics: Arc<Metrics>,
    ) -> Self {
        let this = Self {
            identity,
            folder,
            tree,
            latest: watch::Sender::new(None),
            writing: Mutex::default(),
            recent: Mutex::default(),
            fault: Mutex::new(None),
            awaits_witness: AtomicBool::new(false),
            metrics,
        };
        match published {
            Ok(published) => published.into_iter().for_each(|published| this.show(published)),
            Err(fault) => this.give_up(fault),
        }
        this
    }

    /// Signs nothing until a witness has confirmed that it has not seen a later checkpoint: the data folder may have
    /// been rolled back. A new origin cannot have a later one.
    pub fn await_witness(&self) {
        self.awaits_witness.store(self.is_to_be_confirmed(), Ordering::Release);
    }

    /// Whether a later checkpoint than the present one may have been published.
    pub(crate) fn is_to_be_confirmed(&self) -> bool {
        self.identity.as_ref().is_some_and(|identity| !identity.is_new())
    }

    /// A witness has seen no later checkpoint.
    pub(crate) fn confirm(&self) {
        self.awaits_witness.store(false, Ordering::Release);
    }

    /// The latest signed checkpoint, possibly of the empty tree.
    pub(crate) fn last_signed(&self) -> Option<Arc<SignedCheckpoint>> {
        self.latest()
            .or_else(|| Some(Arc::new(self.identity.as_ref()?.last_signed().ok()??)))
    }

    /// Publishes every second, for as long as it is polled.
    pub async fn keep(self: Arc<Self>)
    where
        T: Send + Sync + 'static,
    {
        let mut ticks = tokio::time::interval(PUBLISH_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            Arc::clone(&self).publish().await;
        }
    }

    /// Publishes durable records that are not published yet.
    pub async fn publish(self: Arc<Self>)
    where
        T: Send + Sync + 'static,
    {
        // A panic was already reported; the next round tries again.
        let _ = tokio::task::spawn_blocking(move || self.publish_blocking()).await;
    }

    fn publish_blocking(&self) {
        let Some(identity) = self.identity.as_ref().filter(|_| self.fault().is_none()) else {
            return;
        };
        if self.awaits_witness.load(Ordering::Acquire) {
            return;
        }
        let _writing = self.writing.lock();
        if self.folder.check().is_err() {
            return;
        }
        let size = self.tree.size();
        let latest = self.latest();
        if latest.as_ref().is_some_and(|latest| latest.checkpoint().size == size) {
            return;
        }
        let root = match &latest {
            Some(latest) => check_continuation(latest.checkpoint(), size, &self.tree),
            None => root_of(size, &self.tree).map_err(ContinuationError::Hashes),
        };
        let root = match root {
            Ok(root) => root,
            Err(ContinuationError::Hashes(error)) => {
                self.metrics.ledger_publish_failures.inc();
                tracing::error!(%error, "the ledger's tree cannot be read, so no checkpoint is signed; it will be \
                    tried again");
                return;
            }
            Err(damage) => {
                self.give_up(damage.to_string());
                return;
            }
        };
        let checkpoint = Checkpoint {
            origin: identity.origin().clone(),
            size,
            root,
        };
        let published = checkpoint
            .sign(identity.signer())
            .map_err(|error| error.to_string())
            .and_then(|signed| {
                identity.publish(&signed).map_err(|error| error.to_string())?;
                Ok(signed)
            });
        match published {
            Ok(signed) => {
                self.metrics.ledger_published_time.set(unix_seconds());
                self.show(signed);
            }
            Err(error) => {
                self.metrics.ledger_publish_failures.inc();
                tracing::error!(
                    error,
                    "the ledger's checkpoint could not be written and is not published; it will be tried again"
                );
            }
        }
    }

    /// Adds the cosignature in a witness's answer to a checkpoint. From then on, the note on disk and the published one
    /// have it, unless a later checkpoint has replaced them.
    pub(crate) fn add_cosignature(
        &self,
        of: &Checkpoint,
        witness: &WitnessKey,
        answer: &[u8],
    ) -> Result<(), NoteError> {
        let _writing = self.writing.lock();
        if self.folder.check().is_err() {
            return Ok(());
        }
        let find = |recent: &VecDeque<Arc<SignedCheckpoint>>| {
            let at = recent.iter().rposition(|recent| recent.checkpoint() == of)?;
            let note = SignedCheckpoint::clone(recent.get(at)?);
            Some((at, at + 1 == recent.len(), note))
        };
        let Some((at, is_latest, mut checkpoint)) = find(&self.recent.lock()) else {
            return Ok(());
        };
        witness.add_to(&mut checkpoint, answer)?;
        if is_latest && let Some(Err(error)) = self.identity.as_ref().map(|identity| identity.publish(&checkpoint)) {
            self.metrics.ledger_publish_failures.inc();
            tracing::warn!(%error, "a witness's cosignature could not be saved and is not published");
            return Ok(());
        }
        let checkpoint = Arc::new(checkpoint);
        let mut recent = self.recent.lock();
        let Some(cosigned) = recent.get_mut(at) else {
            return Ok(());
        };
        *cosigned = Arc::clone(&checkpoint);
        if is_latest {
            self.latest.send_replace(Some(checkpoint));
        }
        Ok(())
    }

    /// The latest checkpoint; none while there is a fault, and before the first.
    pub fn latest(&self) -> Option<Arc<SignedCheckpoint>> {
        self.latest.borrow().clone()
    }

    /// Of the checkpoints of about the last minute, the one with the most cosignatures; of several, the latest.
    pub fn witnessed(&self) -> Option<Arc<SignedCheckpoint>> {
        // `max_by_key` returns the last of equal ones, which is the latest.
        let recent = self.recent.lock();
        recent.iter().max_by_key(|signed| signed.signatures()).cloned()
    }

    /// Watches later checkpoints and cosignatures.
    pub fn follow(&self) -> watch::Receiver<Option<Arc<SignedCheckpoint>>> {
        self.latest.subscribe()
    }

    /// The tree of these checkpoints.
    pub fn tree(&self) -> &T {
        &self.tree
    }

    /// The key with which others verify the checkpoints; none if the ledger could not be opened.
    pub fn verifier_key(&self) -> Option<VerifierKey> {
        self.identity.as_ref().map(LedgerIdentity::verifier_key)
    }

    /// Why nothing more is signed: the ledger is damaged.
    pub fn fault(&self) -> Option<String> {
        self.fault.lock().clone()
    }

    fn show(&self, signed: SignedCheckpoint) {
        self.metrics
            .ledger_published
            .set(i64::try_from(signed.checkpoint().size).unwrap_or(i64::MAX));
        let checkpoint = Arc::new(signed);
        let mut recent = self.recent.lock();
        if recent.len() >= MAX_RECENT {
            recent.pop_front();
        }
        recent.push_back(Arc::clone(&checkpoint));
        drop(recent);
        self.latest.send_replace(Some(checkpoint));
    }

    /// Signs and shows nothing any more.
    pub(crate) fn give_up(&self, fault: String) {
        tracing::error!(
            fault,
            "the ledger is damaged: checkpoints are no longer signed or published"
        );
        self.metrics.ledger_publish_failures.inc();
        // Earlier checkpoints are not shown either: neither as witnessed ones, nor because a witness answers late.
        self.recent.lock().clear();
        self.latest.send_replace(None);
        *self.fault.lock() = Some(fault);
    }
}

/// The latest published checkpoint that the tree continues: from the folder or from the file outside of it, whichever
/// is later.
fn last_published<T: LogTree>(identity: &LedgerIdentity, tree: &T) -> Result<Option<SignedCheckpoint>, String> {
    let text = |error: DiskError| error.to_string();
    let mut published = identity.published().map_err(text)?;
    let mut remembered = identity.remembered().map_err(text)?;
    for checkpoint in published.iter().chain(&remembered) {
        check_continuation(checkpoint.checkpoint(), tree.size(), tree).map_err(|error| error.to_string())?;
    }
    let size = |signed: &Option<SignedCheckpoint>| signed.as_ref().map(|signed| signed.checkpoint().size);
    if size(&remembered) > size(&published) {
        std::mem::swap(&mut published, &mut remembered);
    } else if size(&remembered) < size(&published)
        && let Some(published) = &published
    {
        // The next checkpoint is not shown before it is saved outside of the folder.
        if let Err(error) = identity.remember(published) {
            tracing::error!(%error, "the published checkpoint could not be saved in ledger.published_note; it is tried \
                again with the next one");
        }
    }
    Ok(published.filter(|published| published.checkpoint().size > 0))
}

const PUBLISH_INTERVAL: Duration = Duration::from_secs(1);
/// About a minute of checkpoints in a busy log.
const MAX_RECENT: usize = 64;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use credence_ledger::log_identity::Naming;

    use super::super::memory_tree::MemoryTree;
    use super::*;

    fn identity(folder: &Path) -> LedgerIdentity {
        let naming = Naming {
            origin: None,
            log_id: "ab12",
        };
        LedgerIdentity::open(folder, &naming).unwrap()
    }

    fn publisher(folder: &Path, tree: MemoryTree) -> Publisher<MemoryTree> {
        Publisher::open(
            identity(folder),
            tree,
            FolderWatch::of_nothing(),
            Arc::new(Metrics::new(&mut prometheus_client::registry::Registry::default())),
        )
    }

    fn size(publisher: &Publisher<MemoryTree>) -> Option<u64> {
        publisher.latest().map(|latest| latest.checkpoint().size)
    }

    #[test]
    fn a_shown_checkpoint_is_on_disk_and_a_restart_continues_from_it() {
        let folder = tempfile::tempdir().unwrap();
        let first = publisher(folder.path(), MemoryTree::default());
        assert_eq!(size(&first), None);
        for grown in [0..0, 0..5, 5..5, 5..700] {
            let end = grown.end;
            first.tree().grow(grown);
            first.publish_blocking();
            assert_eq!(size(&first), Some(end));
            let on_disk = std::fs::read(folder.path().join("checkpoint")).unwrap();
            assert_eq!(first.latest().unwrap().note().as_bytes(), on_disk);
        }
        let next = publisher(folder.path(), MemoryTree::of(0..900));
        assert_eq!(size(&next), Some(700), "the published checkpoint is shown at once");
        next.publish_blocking();
        assert_eq!(size(&next), Some(900));
        assert_eq!(next.fault(), None);
    }

    #[test]
    fn over_a_tree_that_does_not_continue_the_published_one_nothing_is_signed_or_shown() {
        for damaged in [MemoryTree::of(0..699), MemoryTree::of(1..801)] {
            let folder = tempfile::tempdir().unwrap();
            publisher(folder.path(), MemoryTree::of(0..700)).publish_blocking();
            let before = std::fs::read(folder.path().join("checkpoint")).unwrap();
            let next = publisher(folder.path(), damaged);
            assert!(next.fault().unwrap().contains("published last"));
            next.publish_blocking();
            assert_eq!(size(&next), None);
            assert_eq!(std::fs::read(folder.path().join("checkpoint")).unwrap(), before);
        }
    }

    #[test]
    fn nothing_is_signed_below_the_checkpoint_outside_of_the_folder() {
        let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let note = outside.path().join("published");
        let open = |tree| {
            let mut identity = identity(folder.path());
            identity.remember_in(note.clone());
            Publisher::open(
                identity,
                tree,
                FolderWatch::of_nothing(),
                Arc::new(Metrics::new(&mut prometheus_client::registry::Registry::default())),
            )
        };
        let first = open(MemoryTree::of(0..600));
        first.publish_blocking();
        let backup = std::fs::read(folder.path().join("checkpoint")).unwrap();
        first.tree().grow(600..700);
        first.publish_blocking();
        assert_eq!(std::fs::read(&note).unwrap(), first.latest().unwrap().note().as_bytes());
        // An earlier state that has grown differently.
        for taken_back in [MemoryTree::of(0..600), MemoryTree::of(0..699), other_from(600)] {
            std::fs::write(folder.path().join("checkpoint"), &backup).unwrap();
            let next = open(taken_back);
            assert!(next.fault().unwrap().contains("--restored"));
            next.publish_blocking();
            assert_eq!(size(&next), None);
            assert_eq!(std::fs::read(folder.path().join("checkpoint")).unwrap(), backup);
        }
        // Only the note in the folder is old: every leaf is there.
        let whole = open(MemoryTree::of(0..800));
        assert_eq!(size(&whole), Some(700));
        whole.publish_blocking();
        assert_eq!((size(&whole), whole.fault()), (Some(800), None));
        std::fs::write(&note, "no note").unwrap();
        assert!(
            open(MemoryTree::of(0..800))
                .fault()
                .unwrap()
                .contains("ledger.published_note")
        );
        // A missing file is created.
        std::fs::remove_file(&note).unwrap();
        assert_eq!(open(MemoryTree::of(0..800)).fault(), None);
        assert_eq!(
            std::fs::read(&note).unwrap(),
            std::fs::read(folder.path().join("checkpoint")).unwrap()
        );
    }

    #[test]
    fn a_note_that_cannot_be_written_at_a_start_is_written_with_the_next_checkpoint() {
        let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        publisher(folder.path(), MemoryTree::of(0..3)).publish_blocking();
        // A folder blocks the path of the new file.
        let aside = outside.path().join("published.new");
        std::fs::create_dir(&aside).unwrap();
        let note = outside.path().join("published");
        let mut identity = identity(folder.path());
        identity.remember_in(note.clone());
        let next = Publisher::open(
            identity,
            MemoryTree::of(0..4),
            FolderWatch::of_nothing(),
            Arc::new(Metrics::new(&mut prometheus_client::registry::Registry::default())),
        );
        assert_eq!((next.fault(), size(&next)), (None, Some(3)));
        next.publish_blocking();
        assert_eq!(size(&next), Some(3), "nothing more is shown without the note");
        assert_eq!(next.metrics.ledger_publish_failures.get(), 1);
        std::fs::remove_dir(&aside).unwrap();
        next.publish_blocking();
        assert_eq!(size(&next), Some(4));
        assert_eq!(std::fs::read(&note).unwrap(), next.latest().unwrap().note().as_bytes());
    }

    /// A tree of 800 leaves that differs from this index on.
    fn other_from(index: u64) -> MemoryTree {
        let tree = MemoryTree::of(0..index);
        tree.grow(10_000..10_800 - index);
        tree
    }

    #[test]
    fn a_missing_checkpoint_does_not_start_a_new_tree() {
        let folder = tempfile::tempdir().unwrap();
        publisher(folder.path(), MemoryTree::of(0..700)).publish_blocking();
        std::fs::remove_file(folder.path().join("checkpoint")).unwrap();
        let naming = Naming {
            origin: None,
            log_id: "ab12",
        };
        let gone = LedgerIdentity::open(folder.path(), &naming).unwrap_err();
        assert!(gone.to_string().contains("--restored"), "{gone}");
        // If it is declared restored, the tree continues under another origin.
        let restored = Naming {
            log_id: "cd34",
            ..naming
        };
        let identity = LedgerIdentity::open(folder.path(), &restored).unwrap();
        let next = Publisher::open(
            identity,
            MemoryTree::of(0..650),
            FolderWatch::of_nothing(),
            Arc::new(Metrics::new(&mut prometheus_client::registry::Registry::default())),
        );
        next.publish_blocking();
        assert_eq!((size(&next), next.fault()), (Some(650), None));
    }

    #[test]
    fn once_the_tree_is_found_changed_no_checkpoint_is_shown_any_more() {
        let folder = tempfile::tempdir().unwrap();
        let publisher = publisher(folder.path(), MemoryTree::of(0..700));
        publisher.publish_blocking();
        assert!(publisher.witnessed().is_some());
        publisher.tree().damage();
        publisher.tree().grow(700..701);
        publisher.publish_blocking();
        assert!(publisher.fault().unwrap().contains("published last"));
        assert_eq!(size(&publisher), None);
        assert!(publisher.witnessed().is_none());
    }

    #[test]
    fn while_the_disk_hangs_the_latest_checkpoint_is_still_shown() {
        let folder = tempfile::tempdir().unwrap();
        let publisher = Arc::new(publisher(folder.path(), MemoryTree::of(0..3)));
        publisher.publish_blocking();
        // Writing into a pipe blocks until another process reads.
        let aside = folder.path().join("checkpoint.new");
        let made = std::process::Command::new("mkfifo").arg(&aside).status().unwrap();
        assert!(made.success());
        publisher.tree().grow(3..4);
        let hanging = Arc::clone(&publisher);
        let hanging = std::thread::spawn(move || hanging.publish_blocking());
        while publisher.writing.try_lock().is_some() {
            std::thread::yield_now();
        }
        let (shown, showing) = std::sync::mpsc::channel();
        let asked = Arc::clone(&publisher);
        std::thread::spawn(move || shown.send(asked.witnessed().map(|shown| shown.checkpoint().size)));
        let shown = showing.recv_timeout(Duration::from_secs(10));
        drop(std::fs::File::open(&aside).unwrap());
        hanging.join().unwrap();
        assert_eq!(shown, Ok(Some(3)));
    }

    #[test]
    fn a_checkpoint_that_cannot_be_written_is_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let publisher = publisher(folder.path(), MemoryTree::of(0..3));
        // A folder blocks the path of the new file.
        let aside = folder.path().join("checkpoint.new");
        std::fs::create_dir(&aside).unwrap();
        publisher.publish_blocking();
        assert_eq!(size(&publisher), None);
        assert_eq!(publisher.metrics.ledger_publish_failures.get(), 1);
        std::fs::remove_dir(&aside).unwrap();
        publisher.publish_blocking();
        assert_eq!(size(&publisher), Some(3));
    }
}
