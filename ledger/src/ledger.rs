//! Appends groups of records to the ledger. Each is durable when `append` returns.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use credence_storage::{at, durable};
use prost::Message as _;
use prost::bytes::Bytes;

use crate::disk_error::DiskError;
use crate::entry::{BatchView, EntryKind, EntryView, PrincipalView};
use crate::frames::{FrameFile, HEAD_LEN, TornTail};
use crate::group::{Beginning, GroupHead, LEAF_LENGTH_BYTES, groups_of};
use crate::hashes::{HashFiles, TreeWriter};
use crate::index::{IndexBuilder, IndexSecret, MAX_PLACES, SegmentIndex};
use crate::index_rows::Row;
use crate::indexer::{ErasedRows, Indexer};
use crate::keys::{DataKeys, UNIT};
use crate::known_chains::{KnownChains, expires_at};
use crate::leaf::{RECORD_OVERHEAD, SourceName, StoredBody, StoredRecord};
use crate::ledger_error::LedgerError;
use crate::options::{LedgerOptions, MAX_SEGMENT_BYTES, Retention};
use crate::principal_quota::{Counted, Shares};
use crate::reader::{LedgerReader, Shared};
use crate::record::{Erasure, Note, Pruning, RecordBody, SourceChange, StoredEntry, StoredNote, StoredSourceChange};
use crate::reserve::{Room, reserve_for};
use crate::seal::{MAX_LEAF_BYTES, SEAL_OVERHEAD, Sealer};
use crate::segment::{Paths, Segment};
use crate::sources::{KnownSources, SourceMark, SourceState};
use crate::tree::{Hash, leaf_hash};

/// The open ledger. Only its owner appends.
pub struct Ledger {
    pub(crate) paths: Paths,
    pub(crate) options: LedgerOptions,
    pub(crate) sealer: Sealer,
    pub(crate) keys: DataKeys,
    pub(crate) current: FrameFile,
    pub(crate) segment: Arc<Segment>,
    pub(crate) sources: KnownSources,
    pub(crate) chains: KnownChains,
    pub(crate) shares: Shares,
    pub(crate) tree: TreeWriter,
    pub(crate) secret: IndexSecret,
    pub(crate) shared: Arc<Shared>,
    pub(crate) indexer: Indexer,
    /// Bytes in use at the last count, without the segment that is being appended to.
    pub(crate) settled_bytes: u64,
    pub(crate) reserve: u64,
    /// Entries counted instead of recorded, since the start.
    pub(crate) counted: u64,
}

/// What opening the ledger found.
#[derive(Debug, Default)]
pub struct Opened {
    /// A write that a crash interrupted.
    pub torn: Option<TornTail>,
    /// The number of rebuilt segment indexes.
    pub reindexed: usize,
    /// Whether the tree's hashes were rebuilt from all segments.
    pub rehashed: bool,
}

/// An item to append.
#[derive(Debug, Clone)]
pub enum NewItem {
    /// Entries that a source reported.
    Entries {
        /// The source.
        source: SourceName,
        /// An encoded `credence.v1.Batch` whose entries are all within bounds.
        batch: Bytes,
        /// The number of its entries that the ledger already has.
        skip: usize,
        /// The sequence number of the first entry that the ledger does not have.
        first_sequence: u64,
    },
    /// A change of a source.
    Change {
        /// The source.
        source: SourceName,
        /// The change.
        change: StoredSourceChange,
    },
    /// A note of the control plane.
    Note(StoredNote),
    /// A chain whose leaf is about to be pruned: an encoded `credence.v1.Entry`.
    Chain(Bytes),
}

/// The result of an erasure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Erased {
    /// The name of the destroyed key.
    pub key: u64,
    /// The index of the erasure note.
    pub index: u64,
}

/// The result of pruning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pruned {
    /// The lowest held index.
    pub first: u64,
    /// The number of removed segments.
    pub segments: usize,
    /// The number of destroyed data keys, whose leaves are all removed.
    pub keys: usize,
    /// The number of unexpired chains that were stored again.
    pub chains: usize,
}

// === impl Ledger ===

impl Ledger {
    /// Appends items in order. They are durable and readable on return.
    pub fn append(&mut self, items: &[NewItem]) -> Result<(), LedgerError> {
        let needed = items.iter().map(NewItem::bytes).sum::<u64>();
        if self.bytes().saturating_add(needed) > self.options.bounds.total {
            return Err(LedgerError::Full {
                limit: self.options.bounds.total,
            });
        }
        if self.reserve > 0
            && let Some(room) = self.room().filter(|room| !room.is_left(needed))
        {
            return Err(LedgerError::Reserved {
                path: self.paths.0.clone(),
                room,
            });
        }
        self.append_always(items)
    }

    /// Leaves this many bytes free on its file system, or a sixteenth of it if that is less. Beyond that, appending is
    /// refused. With a retention, some bytes are always left.
    pub fn leave_free(&mut self, bytes: u64) {
        self.reserve = reserve_for(self.options.retention, bytes);
    }

    /// Limits the evidence of one principal to this percentage of the ledger's space (see `principal_quota`). 100 means
    /// no limit.
    pub fn limit_shares(&mut self, percent: u8) {
        let LedgerOptions { bounds, retention, .. } = &self.options;
        self.shares.limit_shares(percent, bounds.total, *retention);
    }

    /// Entries counted instead of recorded since the start, because their principals hold more than their share.
    pub fn counted(&self) -> u64 {
        self.counted
    }

    /// The free bytes of its file system, and how many of them it leaves free. None if the system does not tell.
    pub fn room(&self) -> Option<Room> {
        Room::of(&self.paths.0, self.reserve)
    }

    /// Destroys the principal's data key: its evidence becomes unreadable, and every proof still holds. `None` if there
    /// is no evidence about the principal.
    pub fn erase(
        &mut self,
        principal: PrincipalView<'_>,
        by: &str,
        reason: &str,
    ) -> Result<Option<Erased>, LedgerError> {
        // After a failed sync, "nothing is left" is answered only once that is durable.
        self.keys.recover()?;
        let Some(name) = self.keys.known_name(principal) else {
            return Ok(None);
        };
        // This file records that the index must be searched, and the note records the erased key. The next start
        // completes an erasure that a crash interrupted.
        let pending = self.paths.erasing(name);
        let noted = durable::write_path(&pending, &[]).map_err(at(&pending));
        noted.map_err(LedgerError::Erasing)?;
        let note = Note::Erasure(Erasure {
            key: name.into(),
            by: by.to_owned(),
            reason: reason.to_owned(),
        });
        self.append_always(&[NewItem::Note(StoredNote { note: Some(note) })])?;
        let index = self.tree.size() - 1;
        let destroyed = self.keys.erase(name);
        // If a key was overwritten but not synced, its state is unknown: the search for its rows is not started again.
        if self.keys.is_erased(name) {
            self.chains.forget_key(name);
            self.indexer.forget(ErasedRows {
                segments: self.shared.segments().into_iter(),
                failed: false,
                principal: Some((principal.issuer.to_owned(), principal.subject.map(str::to_owned))),
                key: name,
                pending,
            });
        }
        destroyed?;
        Ok(Some(Erased {
            key: name.into(),
            index,
        }))
    }

    /// Removes the segments that are entirely before index `first`, except the last one. `published` is the latest
    /// published tree; `None` stands for the present tree.
    pub fn prune(&mut self, first: u64, published: Option<(u64, Hash)>) -> Result<Pruned, LedgerError> {
        let segments = self.shared.segments();
        let kept = segments
            .iter()
            .rposition(|segment| segment.first() <= first)
            .unwrap_or(0);
        let (Some(kept_from), true) = (segments.get(kept).map(|segment| segment.first()), kept > 0) else {
            return Ok(Pruned {
                first: self.shared.first(),
                ..Pruned::default()
            });
        };
        self.chains.forget_before(kept_from);
        let mut chains = 0;
        for segment in segments.iter().take(kept) {
            let living: Vec<_> = self.living_chains(segment)?.into_iter().map(NewItem::Chain).collect();
            chains += living.len();
            self.append_always(&living)?;
        }
        let (tree_size, root) = published.unwrap_or_else(|| (self.tree.size(), self.tree.root()));
        let note = Note::Pruning(Pruning {
            first: kept_from,
            tree_size,
            root: root.0.to_vec(),
        });
        self.append_always(&[NewItem::Note(StoredNote { note: Some(note) })])?;
        let (segments, keys) = self.remove_before(kept_from)?;
        Ok(Pruned {
            first: kept_from,
            segments,
            keys,
            chains,
        })
    }

    /// Removes the oldest records that the retention no longer requires. It removes about one segment at a time,
    /// because it reads that much while evidence waits; more may remain. It removes nothing beyond `published`, the
    /// latest published tree, because others could not verify it.
    pub fn retain(&mut self, published: Option<(u64, Hash)>) -> Result<Option<Pruned>, LedgerError> {
        let Retention { age, bytes } = self.options.retention;
        let segments = self.shared.segments();
        // Hashes and keys stay in any case, so they do not count here.
        let mut excess = bytes.map_or(0, |limit| self.evidence_bytes().saturating_sub(limit));
        let horizon = age.map_or(0, |age| {
            now().saturating_sub(age.as_nanos().try_into().unwrap_or(u64::MAX))
        });
        let at_once = self.options.bounds.segment.min(MAX_SEGMENT_BYTES);
        let (mut first, mut removed) = (0, 0);
        for (segment, next) in segments.iter().zip(segments.iter().skip(1)) {
            // Everything in a segment is older than the beginning of the next.
            let is_published = published.is_none_or(|(size, _)| next.first() <= size);
            if !is_published || (excess == 0 && next.began_unix_nano >= horizon) || removed >= at_once {
                break;
            }
            excess = excess.saturating_sub(segment.bytes());
            removed += segment.bytes();
            first = next.first();
        }
        if first == 0 {
            Ok(None)
        } else {
            self.prune(first, published).map(Some)
        }
    }

    /// A reader that works concurrently with the writer.
    pub fn reader(&self) -> LedgerReader {
        LedgerReader(Ok(Arc::clone(&self.shared)))
    }

    /// The state of a source.
    pub fn source(&self, source: &SourceName) -> Option<SourceState> {
        self.sources.get(source)
    }

    /// The sources that may still return, and are not given up.
    pub fn awaited(&self) -> Vec<SourceName> {
        self.sources.awaited()
    }

    /// The size of all its files, in bytes.
    pub fn bytes(&self) -> u64 {
        let hashes = HashFiles::bytes(self.tree.size());
        self.evidence_bytes() + self.keys.bytes() + hashes
    }

    /// The size of the segments and their indexes.
    fn evidence_bytes(&self) -> u64 {
        self.settled_bytes + self.current.end()
    }

    /// The number of data keys, with erased ones.
    pub fn data_keys(&self) -> usize {
        self.keys.count()
    }

    /// Appends with the reserved space, for records that must not fail when the ledger is full.
    fn append_always(&mut self, items: &[NewItem]) -> Result<(), LedgerError> {
        // Recovers after a failed write or sync, as soon as the disk allows it.
        self.keys.recover()?;
        self.current.recover()?;
        // Hashes of an earlier group that are still in memory. Nothing is accepted while they cannot be written.
        if self.tree.pending() > 0 {
            self.tree.flush()?;
            self.shared.grown(self.tree.size());
        }
        let mut piece = Piece::new(now());
        let appended = items
            .iter()
            .try_for_each(|item| self.add(item, &mut piece))
            .and_then(|()| self.add_counted(&mut piece))
            .and_then(|()| self.write(&mut piece));
        if appended.is_err() {
            // Indexes that were sealed under this session may be used again.
            self.sealer.renew().map_err(at(&self.paths.0))?;
        }
        appended
    }

    fn add(&mut self, item: &NewItem, piece: &mut Piece) -> Result<(), LedgerError> {
        match item {
            NewItem::Entries {
                source,
                batch,
                skip,
                first_sequence,
            } => {
                let name = source.to_bytes();
                let fresh = BatchView::of(batch).entries().skip(*skip);
                for (sequence, encoded) in (*first_sequence..).zip(fresh) {
                    self.make_room(piece)?;
                    let encoded = encoded?;
                    let entry = EntryView::parse(encoded)?;
                    let counted = entry.principal();
                    match counted.filter(|principal| self.is_counted(*principal, &entry)) {
                        Some(principal) => {
                            let received = (piece.head.received_unix_nano / 1_000_000_000) as i64;
                            piece.counts.add(principal, &entry, received);
                        }
                        None => self.add_entry(&name, sequence, entry, batch.slice_ref(encoded), piece)?,
                    }
                    piece.mark(*source, sequence);
                }
            }
            NewItem::Chain(entry) => {
                self.make_room(piece)?;
                self.add_entry(&Bytes::new(), 0, EntryView::parse(entry)?, entry.clone(), piece)?;
            }
            NewItem::Change { source, change } => {
                self.make_room(piece)?;
                let body = StoredBody::Change(change.clone());
                self.seal(0, &source.to_bytes(), body, Row::Change, piece)?;
                let mark = SourceMark::new(*source, change.last_sequence, change.change());
                piece.head.sources.push(mark);
            }
            NewItem::Note(note) => {
                self.make_room(piece)?;
                self.seal(0, &Bytes::new(), StoredBody::Note(note.clone()), Row::Note, piece)?;
            }
        }
        Ok(())
    }

    /// Writes the piece if it is large enough for a frame, or if the next record begins a segment.
    fn make_room(&mut self, piece: &mut Piece) -> Result<(), LedgerError> {
        // Counts become durable with the marks of their sources.
        if self.is_due(piece) {
            self.add_counted(piece)?;
        }
        if self.begins_segment(piece) {
            self.write(piece)?;
            self.begin_segment()?;
        } else if self.is_due(piece) {
            self.write(piece)?;
        }
        Ok(())
    }

    fn begins_segment(&self, piece: &Piece) -> bool {
        let next = self.tree.size() + u64::from(piece.head.entries);
        next.is_multiple_of(UNIT) && self.segment_is_full(piece, next)
    }

    /// Whether to write the piece before the next record is added.
    fn is_due(&self, piece: &Piece) -> bool {
        let is_enough = piece.bundle.len() >= PIECE_BYTES || piece.leaves.len() >= PIECE_RECORDS;
        is_enough || self.begins_segment(piece)
    }

    /// Whether to count the entry only, because its principal holds more than its share.
    fn is_counted(&mut self, principal: PrincipalView<'_>, entry: &EntryView<'_>) -> bool {
        let held = self.evidence_bytes();
        if !self.shares.is_short(held) {
            return false;
        }
        // A principal without a key has no evidence.
        let Some(key) = self.keys.known_name(principal) else {
            return false;
        };
        let bytes = (entry.encoded.len() + RECORD_OVERHEAD + SEAL_OVERHEAD) as u64;
        self.shares.counts(key, bytes, held, now())
    }

    /// Adds the entries that replace counted ones. They are merged over all sources, so that neither the number of
    /// sources nor that of reports increases them.
    fn add_counted(&mut self, piece: &mut Piece) -> Result<(), LedgerError> {
        let (entries, counts) = piece.counts.take();
        for entry in counts {
            let entry = Bytes::from(entry);
            self.add_entry(&Bytes::new(), 0, EntryView::parse(&entry)?, entry.clone(), piece)?;
        }
        piece.counted += entries;
        Ok(())
    }

    fn segment_is_full(&self, piece: &Piece, next: u64) -> bool {
        let records = next - self.segment.first();
        if records == 0 {
            return false;
        }
        let lived = piece
            .head
            .received_unix_nano
            .saturating_sub(self.segment.began_unix_nano);
        let age = self.options.retention.age;
        let is_old = age.is_some_and(|age| u128::from(lived) > age.as_nanos() / SEGMENTS_IN_RETENTION);
        let bytes = self.current.end() + piece.bundle.len() as u64;
        let limit = self.options.bounds.segment.min(MAX_SEGMENT_BYTES);
        is_old || bytes >= limit || records + UNIT > u64::from(MAX_PLACES) || self.segment.index().is_full()
    }

    fn add_entry(
        &mut self,
        source: &Bytes,
        sequence: u64,
        entry: EntryView<'_>,
        encoded: Bytes,
        piece: &mut Piece,
    ) -> Result<(), LedgerError> {
        let name = self.keys.name_for(entry.principal(), self.segment.first())?;
        let mut stored = StoredEntry {
            sequence,
            entry: encoded,
            known_chain: Bytes::new(),
        };
        let mut row = Row::Entry(entry);
        if let EntryKind::Chain(chain) = &entry.kind {
            let digest = chain.digest();
            let is_new = |(known, _, key): &([u8; 32], u64, u32)| *known == digest && *key == name;
            if self.chains.contains(&digest, name) || piece.chains.iter().any(is_new) {
                if source.is_empty() {
                    return Ok(());
                }
                stored.entry = chain.reference().into();
                stored.known_chain = Bytes::copy_from_slice(&digest);
                row = Row::KnownChain(entry);
            } else {
                let index = self.tree.size() + u64::from(piece.head.entries);
                piece.chains.push((digest, index, name));
                piece.head.chains.push(piece.head.entries);
            }
        }
        self.seal(name, source, StoredBody::Entry(stored), row, piece)
    }

    fn seal(
        &mut self,
        name: u32,
        source: &Bytes,
        body: StoredBody,
        row: Row<'_>,
        piece: &mut Piece,
    ) -> Result<(), LedgerError> {
        let record = StoredRecord {
            received_unix_nano: piece.head.received_unix_nano,
            source: source.clone(),
            body: Some(body),
        };
        let index = self.tree.size() + u64::from(piece.head.entries);
        let begin = piece.bundle.len();
        piece.bundle.extend_from_slice(&[0; LEAF_LENGTH_BYTES]);
        let sealed = self
            .sealer
            .seal(name, self.keys.key(name)?, index, &mut piece.bundle, &record);
        let at = begin + LEAF_LENGTH_BYTES;
        let length = piece.bundle.len() - at;
        if sealed.is_err() || length > MAX_LEAF_BYTES {
            piece.bundle.truncate(begin);
            return Err(LedgerError::TooLarge);
        }
        piece.bundle[begin..at].copy_from_slice(&(length as u16).to_be_bytes());
        let hash = leaf_hash(&piece.bundle[at..]);
        let keys = row.keys();
        let indexed = keys.iter().filter(|key| key.is_indexed());
        piece.rows.extend(indexed.map(|key| self.secret.hash(key)));
        piece.leaves.push(NewLeaf {
            key: name,
            bytes: (LEAF_LENGTH_BYTES + length) as u32,
            begin: begin as u32,
            hash,
            span: row.span(piece.head.received_unix_nano),
            rows_end: piece.rows.len() as u32,
        });
        piece.head.entries += 1;
        Ok(())
    }

    /// Makes a piece durable and readable, and clears it.
    fn write(&mut self, piece: &mut Piece) -> Result<(), LedgerError> {
        if piece.head.entries == 0 {
            return Ok(());
        }
        piece.head.first_index = self.tree.size();
        // A key is on disk before anything that is sealed with it.
        self.keys.sync()?;
        let head = piece.head.encode_length_delimited_to_vec();
        let offset = self.current.append([&head, &piece.bundle])?;
        let bundle_offset = (offset + HEAD_LEN) as u32 + head.len() as u32;
        piece.head.sources.iter().for_each(|mark| self.sources.apply(mark));
        for (digest, index, key) in piece.chains.drain(..) {
            self.chains.add(digest, index, key);
        }
        self.segment.with_growing(|builder| {
            let mut rows = piece.rows.iter().copied();
            let mut taken = 0;
            for leaf in &piece.leaves {
                let of_leaf = rows.by_ref().take((leaf.rows_end - taken) as usize);
                taken = leaf.rows_end;
                builder.add_hashed(bundle_offset + leaf.begin, leaf.span, of_leaf);
            }
        });
        self.counted += piece.counted;
        for leaf in &piece.leaves {
            self.shares.add(leaf.key, u64::from(leaf.bytes));
            self.tree.push(leaf.hash);
        }
        *piece = Piece::new(piece.head.received_unix_nano);
        let size = self.tree.size();
        self.segment
            .grown((size - self.segment.first()) as u32, self.current.end());
        // The leaves are durable even if this fails: the hashes are written before the next group, or rebuilt at the
        // next start.
        if self.tree.flush().is_ok() {
            self.shared.grown(size);
        }
        Ok(())
    }

    /// Whether the indexer's thread has panicked. Then the ledger cannot continue for long.
    pub fn has_lost_its_indexer(&self) -> bool {
        self.indexer.is_lost()
    }

    /// Begins the segment of the next record.
    fn begin_segment(&mut self) -> Result<(), LedgerError> {
        self.indexer.make_room()?;
        // A start relies on everything before the last segment.
        self.keys.sync_always()?;
        self.tree.flush()?;
        self.tree.sync()?;
        let first = self.tree.size();
        let index = match &*self.segment.index() {
            SegmentIndex::Growing(full) => IndexBuilder::following(full),
            SegmentIndex::File(_) => IndexBuilder::new(&self.secret, first),
        };
        let largest = self.shares.largest();
        let beginning = Beginning {
            root: self.tree.root().0.to_vec(),
            first_held: self.shared.first(),
            sources: self.sources.marks(),
            shares: largest.clone(),
        };
        let (file, segment) = create_segment(&self.paths, beginning, index)?;
        self.shares.segment_is_full(self.segment.first(), largest);
        let full = std::mem::replace(&mut self.segment, segment);
        self.current = file;
        self.shared.begin(Arc::clone(&self.segment));
        self.indexer.finish(full);
        self.settle_bytes();
        Ok(())
    }

    pub(crate) fn settle_bytes(&mut self) {
        let current = self.segment.first();
        let segments = self.shared.segments();
        let full = segments.iter().filter(|segment| segment.first() != current);
        self.settled_bytes = full.map(|segment| segment.bytes()).sum();
    }

    /// The unexpired chains in a segment.
    fn living_chains(&self, segment: &Segment) -> Result<Vec<Bytes>, DiskError> {
        let now = (now() / 1_000_000_000) as i64;
        let mut opener = self.shared.opener();
        let mut living = Vec::new();
        for group in groups_of(&segment.path)? {
            let group = group?;
            let is_chain = |place: u32| group.head.chains.contains(&place);
            for (_, leaf) in (0..).zip(group.leaves()).filter(|(place, _)| is_chain(*place)) {
                // A chain that was erased, or that does not open, is not stored again.
                if let Ok(record) = opener.open(leaf.index, leaf.sealed)
                    && let RecordBody::Entry(stored) = record.body
                    && let Some(EntryKind::Chain(chain)) = stored.view().map(|view| view.kind)
                    && expires_at(chain.chain).is_some_and(|expires_at| expires_at > now)
                {
                    living.push(stored.entry.clone());
                }
            }
        }
        Ok(living)
    }

    /// Removes segments that a note declares as pruned. Returns the number of segments, and of destroyed keys.
    pub(crate) fn remove_before(&mut self, first: u64) -> Result<(usize, usize), LedgerError> {
        let removed = self.shared.prune(first);
        for segment in &removed {
            for file in [&segment.index_path, &segment.path] {
                durable::remove_if_present(file).map_err(at(file))?;
            }
        }
        let folder = self.paths.segments();
        durable::sync_folder(&folder).map_err(at(&folder))?;
        let keys = self.keys.destroy_unused(first)?;
        self.shares.forget_before(first);
        self.settle_bytes();
        Ok((removed.len(), keys))
    }
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = formatter.debug_struct("Ledger");
        debug.field("folder", &self.paths.0).field("size", &self.tree.size());
        debug.finish_non_exhaustive()
    }
}

/// Creates the file of the segment with this index, without records. Durable on return.
pub(crate) fn create_segment(
    paths: &Paths,
    beginning: Beginning,
    index: IndexBuilder,
) -> Result<(FrameFile, Arc<Segment>), LedgerError> {
    let first = index.first();
    let head = GroupHead {
        first_index: first,
        received_unix_nano: now(),
        beginning: Some(beginning),
        ..GroupHead::default()
    };
    // An earlier attempt may have left this file, without records.
    let file = FrameFile::create(&paths.segment(first), &head.encode_length_delimited_to_vec())?;
    let segment = Segment::new(first, paths, head.received_unix_nano, SegmentIndex::Growing(index));
    segment.grown(0, file.end());
    Ok((file, Arc::new(segment)))
}

/// The contents of the next frame.
#[derive(Default)]
pub(crate) struct Piece {
    head: GroupHead,
    bundle: Vec<u8>,
    leaves: Vec<NewLeaf>,
    /// The hashes of the leaves' keys, leaf by leaf.
    rows: Vec<u64>,
    /// Chains that the ledger does not have yet, with their records' indexes and keys.
    chains: Vec<([u8; 32], u64, u32)>,
    /// Counts that are not yet among the leaves.
    counts: Counted,
    /// The number of entries counted in it.
    counted: u64,
}

struct NewLeaf {
    /// The key that seals it.
    key: u32,
    /// The size of the leaf and its length.
    bytes: u32,
    /// Its offset in the bundle.
    begin: u32,
    hash: Hash,
    /// Its earliest and latest time.
    span: (u64, u64),
    /// The end of its rows.
    rows_end: u32,
}

// === impl Piece ===

impl Piece {
    /// A piece received at this time.
    fn new(received_unix_nano: u64) -> Self {
        Self {
            head: GroupHead {
                received_unix_nano,
                ..GroupHead::default()
            },
            ..Self::default()
        }
    }

    /// Notes the last sequence number of the source.
    fn mark(&mut self, source: SourceName, last_sequence: u64) {
        match self.head.sources.last_mut() {
            Some(mark) if mark.name == source.0 && mark.change() == SourceChange::Unspecified => {
                mark.last_sequence = last_sequence;
            }
            _ => {
                let mark = SourceMark::new(source, last_sequence, SourceChange::Unspecified);
                self.head.sources.push(mark);
            }
        }
    }
}

// === impl NewItem ===

impl NewItem {
    /// The largest number of records that it becomes.
    pub fn records(&self) -> u64 {
        match self {
            Self::Entries { batch, skip, .. } => BatchView::of(batch).entries().skip(*skip).count() as u64,
            Self::Change { .. } | Self::Note(_) | Self::Chain(_) => 1,
        }
    }

    /// The largest number of bytes that it takes on disk.
    pub fn bytes(&self) -> u64 {
        let overhead = (LEAF_LENGTH_BYTES + SEAL_OVERHEAD + RECORD_OVERHEAD) as u64;
        match self {
            Self::Entries { batch, .. } => batch.len() as u64 + self.records() * overhead,
            Self::Change { change, .. } => change.encoded_len() as u64 + overhead,
            Self::Note(note) => note.encoded_len() as u64 + overhead,
            Self::Chain(entry) => entry.len() as u64 + overhead,
        }
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// A frame is written at this size. With the largest leaf it still fits one frame.
const PIECE_BYTES: usize = 4 << 20;
/// A record takes about 150 bytes of memory.
const PIECE_RECORDS: usize = 1 << 14;
/// With a retention by age, a segment ends after this fraction of it. So records are kept at most that much too long.
const SEGMENTS_IN_RETENTION: u128 = 16;
