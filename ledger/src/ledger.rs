//! Appends to the ledger: groups of records, each durable when `append` returns.

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

/// The open ledger. Its owner is the only one who appends.
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
    /// Bytes that had been used when it was last counted, without the segment that is being appended to.
    pub(crate) settled_bytes: u64,
    pub(crate) reserve: u64,
    /// Entries that were counted instead of recorded, since the start.
    pub(crate) counted: u64,
}

/// What opening the ledger came upon.
#[derive(Debug, Default)]
pub struct Opened {
    /// A write that a crash interrupted.
    pub torn: Option<TornTail>,
    /// Segments whose index was made anew.
    pub reindexed: usize,
    /// Whether the tree's hashes were made anew from all segments.
    pub rehashed: bool,
}

/// Something to append.
#[derive(Debug, Clone)]
pub enum NewItem {
    /// What a source reported.
    Entries {
        /// Who.
        source: SourceName,
        /// An encoded `credence.v1.Batch` whose every entry is within bounds.
        batch: Bytes,
        /// How many of its entries are in the ledger already.
        skip: usize,
        /// The sequence number of the first one that is not.
        first_sequence: u64,
    },
    /// What happened to a source.
    Change {
        /// To which.
        source: SourceName,
        /// What.
        change: StoredSourceChange,
    },
    /// What the control plane has to say.
    Note(StoredNote),
    /// A chain whose leaf is about to be pruned: an encoded `credence.v1.Entry`.
    Chain(Bytes),
}

/// What erasing came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Erased {
    /// The name of the key that was destroyed.
    pub key: u64,
    /// The index of the note that says so.
    pub index: u64,
}

/// What pruning came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pruned {
    /// The lowest index that is still held.
    pub first: u64,
    /// Segments that were removed.
    pub segments: usize,
    /// Data keys that were destroyed, since nothing is left that was sealed with them.
    pub keys: usize,
    /// Chains that had not expired and were stored again.
    pub chains: usize,
}

// === impl Ledger ===

impl Ledger {
    /// Appends items in their order. They are durable and readable on return.
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

    /// Leaves so many bytes free on its file system, or a sixteenth of it if that is less: what is appended beyond that is
    /// refused. With a retention some are left in any case.
    pub fn leave_free(&mut self, bytes: u64) {
        self.reserve = reserve_for(self.options.retention, bytes);
    }

    /// No principal's evidence may fill more than so many hundredths of what the ledger may hold (see `principal_quota`).
    /// 100: it may.
    pub fn share_out(&mut self, percent: u8) {
        let LedgerOptions { bounds, retention, .. } = &self.options;
        self.shares.share_out(percent, bounds.total, *retention);
    }

    /// Entries that were counted instead of recorded, since the start, because their principals hold more than their share.
    pub fn counted(&self) -> u64 {
        self.counted
    }

    /// What is free on its file system, and what of that it leaves to others; nothing where the system does not say.
    pub fn room(&self) -> Option<Room> {
        Room::of(&self.paths.0, self.reserve)
    }

    /// Destroys the principal's data key: what is known of the principal cannot be read any more, and every proof
    /// holds. `None` if nothing is known of the principal.
    pub fn erase(
        &mut self,
        principal: PrincipalView<'_>,
        by: &str,
        reason: &str,
    ) -> Result<Option<Erased>, LedgerError> {
        // After a failed sync, the answer that nothing is left is given only once that is durable.
        self.keys.recover()?;
        let Some(name) = self.keys.known_name(principal) else {
            return Ok(None);
        };
        // Whether the index has to be looked through is known from this file, and what is erased from the note: an erasure
        // that a crash interrupts is completed at the next start.
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
        // A key that was overwritten and could not be synced is not known any more: its rows are not asked for again.
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

    /// Removes the segments that lie before index `first` as a whole, except the last one. `published` is the latest tree
    /// that others know; without one it is the tree as it is now.
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

    /// Removes the oldest of what the retention does not ask for any more: about as much as one segment has, since it is read
    /// for that while evidence waits. There may be more of it. Of what lies beyond `published`, the latest tree that
    /// others know, nothing is removed: they could not tell what it was.
    pub fn retain(&mut self, published: Option<(u64, Hash)>) -> Result<Option<Pruned>, LedgerError> {
        let Retention { age, bytes } = self.options.retention;
        let segments = self.shared.segments();
        // Hashes and keys stay, so that they are no reason to remove anything.
        let mut excess = bytes.map_or(0, |limit| self.evidence_bytes().saturating_sub(limit));
        let horizon = age.map_or(0, |age| {
            now().saturating_sub(age.as_nanos().try_into().unwrap_or(u64::MAX))
        });
        let at_once = self.options.bounds.segment.min(MAX_SEGMENT_BYTES);
        let (mut first, mut removed) = (0, 0);
        for (segment, next) in segments.iter().zip(segments.iter().skip(1)) {
            // Nothing in a segment is newer than the beginning of the next.
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

    /// Reads it beside the writer.
    pub fn reader(&self) -> LedgerReader {
        LedgerReader(Ok(Arc::clone(&self.shared)))
    }

    /// What is known of a source.
    pub fn source(&self, source: &SourceName) -> Option<SourceState> {
        self.sources.get(source)
    }

    /// The sources that may still come back and have not been given up.
    pub fn awaited(&self) -> Vec<SourceName> {
        self.sources.awaited()
    }

    /// Size of all its files, in bytes.
    pub fn bytes(&self) -> u64 {
        let hashes = HashFiles::bytes(self.tree.size());
        self.evidence_bytes() + self.keys.bytes() + hashes
    }

    /// Of the segments and their indexes.
    fn evidence_bytes(&self) -> u64 {
        self.settled_bytes + self.current.end()
    }

    /// Data keys that there are, those that were erased included.
    pub fn data_keys(&self) -> usize {
        self.keys.count()
    }

    /// Within the room that is kept for what must not fail for want of it.
    fn append_always(&mut self, items: &[NewItem]) -> Result<(), LedgerError> {
        // After a write or a sync that failed, as soon as the disk lets us.
        self.keys.recover()?;
        self.current.recover()?;
        // What an earlier group left in memory; nothing is taken in while it cannot be written.
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

    /// Writes what there is, if it is enough for a frame, or if the next record is to begin a segment.
    fn make_room(&mut self, piece: &mut Piece) -> Result<(), LedgerError> {
        // What was counted becomes durable with the marks of its sources.
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

    /// Whether the piece is written before the next record is added.
    fn is_due(&self, piece: &Piece) -> bool {
        let is_enough = piece.bundle.len() >= PIECE_BYTES || piece.leaves.len() >= PIECE_RECORDS;
        is_enough || self.begins_segment(piece)
    }

    /// Whether the entry is only counted: its principal holds more than its share.
    fn is_counted(&mut self, principal: PrincipalView<'_>, entry: &EntryView<'_>) -> bool {
        let held = self.evidence_bytes();
        if !self.shares.is_short(held) {
            return false;
        }
        // One that has no key holds nothing.
        let Some(key) = self.keys.known_name(principal) else {
            return false;
        };
        let bytes = (entry.encoded.len() + RECORD_OVERHEAD + SEAL_OVERHEAD) as u64;
        self.shares.counts(key, bytes, held, now())
    }

    /// Adds what stands in the place of the entries that were counted: of all sources together, so that neither their
    /// number nor that of their reports makes more of it.
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

    /// Makes a piece durable and readable, and empties it.
    fn write(&mut self, piece: &mut Piece) -> Result<(), LedgerError> {
        if piece.head.entries == 0 {
            return Ok(());
        }
        piece.head.first_index = self.tree.size();
        // A key is on disk before anything is that only it opens.
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
        // What could not be written is durable all the same: it is written before the next group, or made again at the
        // next start.
        if self.tree.flush().is_ok() {
            self.shared.grown(size);
        }
        Ok(())
    }

    /// Whether the thread has panicked that indexes full segments: then the ledger cannot go on for long.
    pub fn has_lost_its_indexer(&self) -> bool {
        self.indexer.is_lost()
    }

    /// Begins the segment of the next record.
    fn begin_segment(&mut self) -> Result<(), LedgerError> {
        self.indexer.make_room()?;
        // A start takes for granted what lies before the last segment.
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

    /// What of the chains that were stored in a segment has not expired.
    fn living_chains(&self, segment: &Segment) -> Result<Vec<Bytes>, DiskError> {
        let now = (now() / 1_000_000_000) as i64;
        let mut opener = self.shared.opener();
        let mut living = Vec::new();
        for group in groups_of(&segment.path)? {
            let group = group?;
            let is_chain = |place: u32| group.head.chains.contains(&place);
            for (_, leaf) in (0..).zip(group.leaves()).filter(|(place, _)| is_chain(*place)) {
                // One that was erased, or that does not open, is not carried on.
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

    /// Removes segments that a note says are pruned. Returns how many there were, and how many keys were destroyed.
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

/// Makes the file of the segment with this index, which has no records; it is durable on return.
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
    // An earlier attempt may have left such a file, which holds nothing else.
    let file = FrameFile::create(&paths.segment(first), &head.encode_length_delimited_to_vec())?;
    let segment = Segment::new(first, paths, head.received_unix_nano, SegmentIndex::Growing(index));
    segment.grown(0, file.end());
    Ok((file, Arc::new(segment)))
}

/// What will be one frame.
#[derive(Default)]
pub(crate) struct Piece {
    head: GroupHead,
    bundle: Vec<u8>,
    leaves: Vec<NewLeaf>,
    /// By what the leaves can be found: hashes, one leaf's behind the other's.
    rows: Vec<u64>,
    /// Chains that are not in the ledger yet, their records' indexes and keys.
    chains: Vec<([u8; 32], u64, u32)>,
    /// What is counted and not yet among the leaves.
    counts: Counted,
    /// Entries that are counted in it.
    counted: u64,
}

struct NewLeaf {
    /// What it is sealed with.
    key: u32,
    /// Of the leaf and its length.
    bytes: u32,
    /// In the bundle.
    begin: u32,
    hash: Hash,
    /// The earliest and the latest instant that it is about.
    span: (u64, u64),
    /// Its rows end here, and the next one's begin.
    rows_end: u32,
}

// === impl Piece ===

impl Piece {
    /// What is taken in at this time.
    fn new(received_unix_nano: u64) -> Self {
        Self {
            head: GroupHead {
                received_unix_nano,
                ..GroupHead::default()
            },
            ..Self::default()
        }
    }

    /// The source has come this far.
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
    /// How many records it becomes, at most.
    pub fn records(&self) -> u64 {
        match self {
            Self::Entries { batch, skip, .. } => BatchView::of(batch).entries().skip(*skip).count() as u64,
            Self::Change { .. } | Self::Note(_) | Self::Chain(_) => 1,
        }
    }

    /// Bytes that it takes on disk, at most.
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

/// A frame is written once it has as much; with the largest leaf it still fits one.
const PIECE_BYTES: usize = 4 << 20;
/// About 150 bytes of memory each.
const PIECE_RECORDS: usize = 1 << 14;
/// With a retention by age, a segment ends after this part of it, so that what is kept is at most as much too long.
const SEGMENTS_IN_RETENTION: u128 = 16;
