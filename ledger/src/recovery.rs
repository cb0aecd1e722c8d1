//! Opens the ledger, after a crash too.
//!
//! Only the last segment is read. What lies before it is taken for granted: it was durable, with its keys and hashes,
//! before the last segment began. Whatever follows from the leaves (hashes, index) is made again where it is missing.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use credence_storage::durable;
use credence_storage::frames::{Frame, FrameError, FrameFile, FrameKind, FrameReader, HEAD_LEN, HEADER_LEN};

use crate::chains::KnownChains;
use crate::finisher::{ErasedRows, Finisher, MAX_UNFINISHED, finish};
use crate::group::{Beginning, Group, GroupHead, LEAF_LENGTH_BYTES};
use crate::hashes::{HashFiles, HashWriter, HashesAt};
use crate::index::{IndexBuilder, IndexFile, IndexSecret, KeyHasher};
use crate::keys::DataKeys;
use crate::leaf::StoredBody;
use crate::ledger::{Ledger, LedgerAppendError, LedgerError, LedgerOptions, Opened, Piece, UNREADABLE, create_segment};
use crate::principal_quota::Shares;
use crate::reader::Shared;
use crate::record::Note;
use crate::reserve::Reserve;
use crate::rows::Row;
use crate::seal::{OpenedLeaf, Opener, Sealer, key_name};
use crate::segment::{Paths, Segment, SegmentIndex, parse_segment_name};
use crate::sources::KnownSources;
use crate::tree::{Frontier, Hash, Hashes as _, leaf_hash};
use crate::view::{EntryKind, EntryView};

// === impl Ledger ===

impl Ledger {
    /// Opens the ledger in `folder`, which exists. An error means that something is missing or damaged; nothing was changed
    /// that could be restored.
    pub fn open(folder: &Path, options: LedgerOptions) -> Result<(Self, Opened), LedgerError> {
        let paths = Paths(folder.to_owned());
        let mut opened = Opened {
            unsealed: move_unsealed(&paths)?,
            ..Opened::default()
        };
        for folder in [paths.segments(), paths.indexes(), paths.hashes()] {
            durable::create_folder(&folder).map_err(at(&folder))?;
        }
        let mut found = list_segments(&paths)?;
        drop_empty_last(&paths, &mut found)?;
        remove_forsaken_indexes(&paths, &found)?;
        if found.is_empty() && !paths.keys().exists() {
            DataKeys::create(&paths.keys())?;
        }
        let keys = DataKeys::open(&paths.keys(), options.bounds.keys, |name| {
            found.iter().any(|first| seals_with(&paths.segment(*first), name))
        })?;
        let origin = options.origin.clone();
        let secret = read_or_create(&paths.0, "index-key", 32, || {
            let mut secret = vec![0; 32];
            getrandom::fill(&mut secret).map_err(io::Error::other)?;
            Ok(secret)
        })?;
        let secret = IndexSecret(secret.try_into().map_err(|_| LedgerError::Stranger {
            path: paths.0.join("index-key"),
        })?);
        let hash_files = Arc::new(HashFiles::open(&paths.hashes())?);
        let shared = Arc::new(Shared::new(origin.clone(), keys.file(), Arc::clone(&hash_files)));
        let Some(last) = found.pop() else {
            if let Some((published, _)) = options.published.filter(|(size, _)| *size > 0) {
                return Err(LedgerError::Gone { published, size: 0 });
            }
            // Hashes are written of records only.
            let found = hash_files.size()?;
            if found > 0 {
                let path = paths.segments();
                return Err(LedgerError::Missing {
                    expected: 0,
                    found,
                    path,
                });
            }
            return Self::begin(paths, options, keys, &origin, secret, shared).map(|ledger| (ledger, opened));
        };
        let mut expected = None;
        let mut shares = Shares::default();
        let mut unfinished = Vec::new();
        for (at, first) in found.iter().enumerate() {
            let next = found.get(at + 1).copied().unwrap_or(last);
            let (segment, made) = open_full(&paths, *first, next, &secret, &shared)?;
            let behind = first_frame(&paths.segment(next), next)?;
            shares.remember(
                *first,
                behind.beginning.map(|beginning| beginning.shares).unwrap_or_default(),
            );
            let segment = Arc::new(segment);
            // A disk that is full now is no reason to be without a ledger once it is not: it is tried again.
            match finish(&segment) {
                Err(error) if unfinished.len() >= MAX_UNFINISHED => return Err(error.into()),
                Err(_) => unfinished.push(Arc::clone(&segment)),
                Ok(()) => {}
            }
            opened.reindexed += usize::from(made);
            shared.begin(segment);
            expected = Some(next);
        }
        debug_assert!(expected.is_none_or(|expected| expected == last));
        let beginning = first_frame(&paths.segment(last), last)?;
        let held_from = found.first().copied().unwrap_or(last);
        let (frontier, hashes, rehashed) = restore_tree(&paths, &shared, &hash_files, held_from, last, &beginning)?;
        opened.rehashed = rehashed;
        let index = SegmentIndex::Growing(IndexBuilder::new(&secret, last));
        let segment = Arc::new(Segment::new(last, &paths, beginning.received_unix_nano, index));
        let mut replay = Replay {
            opener: shared.opener(),
            keys,
            segment: Arc::clone(&segment),
            sources: KnownSources::default(),
            chains: KnownChains::default(),
            shares,
            published: options.published.filter(|(size, _)| *size > frontier.size()),
            frontier,
            hashes,
            first_held: 0,
            erased: Vec::new(),
            failed: None,
        };
        if let Some((size, root)) = options.published.filter(|(size, _)| *size <= replay.frontier.size()) {
            let hashes = HashesAt {
                files: &hash_files,
                size: replay.frontier.size(),
            };
            expect_root(size, root, Frontier::restore(size, &hashes)?.root())?;
        }
        let scanned = FrameFile::open(
            &paths.segment(last),
            FrameKind::SealedLedger,
            || Ok(()),
            |frame| replay.take(frame),
        );
        if let Some(failed) = replay.failed.take() {
            return Err(failed);
        }
        let (current, torn) = scanned?;
        opened.torn = torn;
        if let Some((published, _)) = replay.published {
            let size = replay.frontier.size();
            return Err(LedgerError::Gone { published, size });
        }
        if held_from > replay.first_held {
            return Err(LedgerError::Missing {
                expected: replay.first_held,
                found: held_from,
                path: paths.segment(held_from),
            });
        }
        replay.hashes.flush()?;
        segment.grown((replay.frontier.size() - last) as u32, current.end());
        shared.begin(Arc::clone(&segment));
        shared.grown(replay.frontier.size());
        let mut ledger = Self {
            sealer: Sealer::new(&origin).map_err(at(&paths.0))?,
            finisher: Finisher::start(unfinished).map_err(at(&paths.0))?,
            paths,
            options,
            keys: replay.keys,
            current,
            segment,
            sources: replay.sources,
            chains: replay.chains,
            frontier: replay.frontier,
            hashes: replay.hashes,
            hasher: KeyHasher::new(&secret),
            secret,
            shared,
            piece: Piece::default(),
            settled_bytes: 0,
            reserve: Reserve::default(),
            shares: replay.shares,
            counted: 0,
        };
        ledger.settle_bytes();
        // What a note announced, and a crash kept from being done.
        let mut unfinished = ledger.paths.being_erased().map_err(at(&ledger.paths.0))?;
        for key in replay.erased {
            if ledger.keys.erase(key)? {
                unfinished.push(key);
            }
            ledger.chains.forget_key(key);
        }
        unfinished.sort_unstable();
        unfinished.dedup();
        for key in unfinished {
            ledger.finish_erasing(key)?;
        }
        if replay.first_held > held_from {
            ledger.remove_before(replay.first_held).map_err(|error| match error {
                LedgerAppendError::Keys(error) => LedgerError::Keys(error),
                other => at(&ledger.paths.segments())(io::Error::other(other)),
            })?;
        } else {
            // The segments may be gone, and the keys not yet.
            ledger.keys.destroy_unused(replay.first_held)?;
        }
        Ok((ledger, opened))
    }

    /// Drops the rows of what was sealed with a key that was erased. One that was not was asked for and never noted.
    fn finish_erasing(&self, key: u32) -> Result<(), LedgerError> {
        let pending = self.paths.erasing(key);
        if self.keys.is_erased(key) {
            let rows = ErasedRows {
                principal: None,
                key,
                pending,
            };
            self.finisher.forget(self.shared.segments(), rows);
            Ok(())
        } else {
            std::fs::remove_file(&pending).map_err(at(&pending))
        }
    }

    fn begin(
        paths: Paths,
        options: LedgerOptions,
        keys: DataKeys,
        origin: &str,
        secret: IndexSecret,
        shared: Arc<Shared>,
    ) -> Result<Self, LedgerError> {
        let frontier = Frontier::new();
        let beginning = Beginning {
            root: frontier.root().0.to_vec(),
            ..Beginning::default()
        };
        let hashes = shared.hashes.writer(0);
        let created = create_segment(&paths, beginning, IndexBuilder::new(&secret, 0));
        let (current, segment) = created.map_err(|error| at(&paths.segments())(io::Error::other(error)))?;
        shared.begin(Arc::clone(&segment));
        Ok(Self {
            sealer: Sealer::new(origin).map_err(at(&paths.0))?,
            finisher: Finisher::start(Vec::new()).map_err(at(&paths.0))?,
            paths,
            options,
            keys,
            current,
            segment,
            sources: KnownSources::default(),
            chains: KnownChains::default(),
            frontier,
            hashes,
            hasher: KeyHasher::new(&secret),
            secret,
            shared,
            piece: Piece::default(),
            settled_bytes: 0,
            reserve: Reserve::default(),
            shares: Shares::default(),
            counted: 0,
        })
    }
}

/// Takes in the last segment, frame by frame.
struct Replay {
    opener: Opener,
    keys: DataKeys,
    segment: Arc<Segment>,
    sources: KnownSources,
    chains: KnownChains,
    shares: Shares,
    frontier: Frontier,
    hashes: HashWriter,
    /// What is yet to be come upon.
    published: Option<(u64, Hash)>,
    first_held: u64,
    /// Keys that a note says are erased.
    erased: Vec<u32>,
    failed: Option<LedgerError>,
}

// === impl Replay ===

impl Replay {
    fn take(&mut self, frame: Frame) -> Result<(), &'static str> {
        let group = Group::parse(&frame.payload).ok_or(UNREADABLE)?;
        if group.head.first_index != self.frontier.size() {
            return Err("its records do not follow the ones before them");
        }
        if let Some(beginning) = &group.head.beginning {
            self.first_held = self.first_held.max(beginning.first_held);
            beginning.sources.iter().for_each(|mark| self.sources.apply(mark));
        }
        let payload_offset = frame.offset + HEAD_LEN;
        for (offset, leaf) in group.leaves() {
            let offset = u32::try_from(payload_offset + offset as u64).map_err(|_| UNREADABLE)?;
            if let Err(error) = self.leaf(offset, leaf, &group.head) {
                self.failed = Some(error);
                return Err(UNREADABLE);
            }
        }
        group.head.sources.iter().for_each(|mark| self.sources.apply(mark));
        Ok(())
    }

    fn leaf(&mut self, offset: u32, leaf: &[u8], head: &GroupHead) -> Result<(), LedgerError> {
        let index = self.frontier.size();
        if let Some(name) = key_name(leaf) {
            self.keys.was_used(name, self.segment.first())?;
            self.shares.add(name, (LEAF_LENGTH_BYTES + leaf.len()) as u64);
        }
        // A leaf that does not open is for who asks for it to complain about: the tree shows whether it is as it was.
        let opened = self.opener.open(index, leaf);
        let segment = Arc::clone(&self.segment);
        let added = segment.with_index(|segment_index| {
            let SegmentIndex::Growing(builder) = segment_index else {
                return Ok(());
            };
            match &opened {
                Ok(OpenedLeaf::Record(record)) => match &record.body {
                    Some(StoredBody::Entry(stored)) => match EntryView::parse(&stored.entry) {
                        Ok(view) => self.entry(index, leaf, view, !stored.known_chain.is_empty()).add(
                            builder,
                            offset,
                            record.received_unix_nano,
                        ),
                        Err(_) => Row::Erased.add(builder, offset, head.received_unix_nano),
                    },
                    Some(StoredBody::Change(_)) => Row::Change.add(builder, offset, record.received_unix_nano),
                    Some(StoredBody::Note(note)) => {
                        self.note(note.note.as_ref());
                        Row::Note.add(builder, offset, record.received_unix_nano)
                    }
                    None => Row::Erased.add(builder, offset, head.received_unix_nano),
                },
                Ok(OpenedLeaf::Erased) | Err(_) => Row::Erased.add(builder, offset, head.received_unix_nano),
            }
        });
        added?;
        let hashes = &mut self.hashes;
        self.frontier
            .push(leaf_hash(leaf), &mut |level, hash| hashes.push(level, hash));
        if self.hashes.pending() >= PENDING_HASHES {
            self.hashes.flush()?;
        }
        if let Some((size, root)) = self.published.take_if(|(size, _)| *size == self.frontier.size()) {
            expect_root(size, root, self.frontier.root())?;
        }
        Ok(())
    }

    fn entry<'a>(&mut self, index: u64, leaf: &[u8], view: EntryView<'a>, is_known: bool) -> Row<'a> {
        if is_known {
            return Row::KnownChain(view);
        }
        if let EntryKind::Chain(chain) = &view.kind
            && let Some(key) = key_name(leaf)
        {
            self.chains.add(chain.digest(), index, key);
        }
        Row::Entry(view)
    }

    fn note(&mut self, note: Option<&Note>) {
        match note {
            Some(Note::Erasure(erasure)) => self.erased.extend(u32::try_from(erasure.key)),
            Some(Note::Pruning(pruning)) => self.first_held = self.first_held.max(pruning.first),
            Some(Note::Mismatch(_)) | None => {}
        }
    }
}

/// Whether a segment has a leaf that is sealed with the key of this name. What cannot be read may be such a leaf; but not
/// an end that a crash has cut short.
fn seals_with(segment: &Path, name: u32) -> bool {
    let mut found = false;
    let scanned = FrameReader::open(segment, FrameKind::SealedLedger).and_then(|reader| {
        reader.scan(|frame| {
            let group = Group::parse(&frame.payload).ok_or(UNREADABLE)?;
            found |= group.leaves().any(|(_, leaf)| key_name(leaf) == Some(name));
            Ok(())
        })
    });
    found || scanned.is_err()
}

/// Opens a segment that is full, and makes its index again if need be.
fn open_full(
    paths: &Paths,
    first: u64,
    next: u64,
    secret: &IndexSecret,
    shared: &Shared,
) -> Result<(Segment, bool), LedgerError> {
    let path = paths.segment(first);
    let head = first_frame(&path, first)?;
    let bytes = path.metadata().map_err(at(&path))?.len();
    let known = IndexFile::open(&paths.index(first), secret).ok();
    let known = known.filter(|file| file.first() == first && first + u64::from(file.places()) == next);
    let made = known.is_none();
    let segment = match known {
        Some(file) => Segment::new(first, paths, head.received_unix_nano, SegmentIndex::File(file)),
        None => {
            let index = SegmentIndex::Growing(index_again(&path, first, next, secret, shared.opener())?);
            Segment::new(first, paths, head.received_unix_nano, index)
        }
    };
    segment.grown((next - first) as u32, bytes);
    Ok((segment, made))
}

/// Makes the index of a full segment from its records.
pub(crate) fn index_again(
    path: &Path,
    first: u64,
    next: u64,
    secret: &IndexSecret,
    mut opener: Opener,
) -> Result<IndexBuilder, LedgerError> {
    let mut builder = IndexBuilder::new(secret, first);
    let mut failed = None;
    let scanned = FrameReader::open(path, FrameKind::SealedLedger)?.scan(|frame| {
        let group = Group::parse(&frame.payload).ok_or(UNREADABLE)?;
        for (offset, leaf) in group.leaves() {
            let offset = u32::try_from(frame.offset + HEAD_LEN + offset as u64).map_err(|_| UNREADABLE)?;
            let index = first + u64::from(builder.places());
            let record = match opener.open(index, leaf) {
                Ok(OpenedLeaf::Record(record)) => Some(record),
                Ok(OpenedLeaf::Erased) | Err(_) => None,
            };
            let received = record
                .as_ref()
                .map_or(group.head.received_unix_nano, |record| record.received_unix_nano);
            let row = match record.as_ref().and_then(|record| record.body.as_ref()) {
                Some(StoredBody::Entry(stored)) => match EntryView::parse(&stored.entry) {
                    Ok(view) if stored.known_chain.is_empty() => Row::Entry(view),
                    Ok(view) => Row::KnownChain(view),
                    Err(_) => Row::Erased,
                },
                Some(StoredBody::Change(_)) => Row::Change,
                Some(StoredBody::Note(_)) => Row::Note,
                None => Row::Erased,
            };
            if let Err(error) = row.add(&mut builder, offset, received) {
                failed = Some(error);
                return Err(UNREADABLE);
            }
        }
        Ok(())
    });
    if let Some(failed) = failed {
        return Err(failed.into());
    }
    scanned?;
    let found = first + u64::from(builder.places());
    if found != next {
        return Err(LedgerError::Missing {
            expected: found,
            found: next,
            path: path.to_owned(),
        });
    }
    Ok(builder)
}

/// The tree of what lies before the last segment, which says what its root is.
fn restore_tree(
    paths: &Paths,
    shared: &Shared,
    files: &Arc<HashFiles>,
    held_from: u64,
    last: u64,
    beginning: &GroupHead,
) -> Result<(Frontier, HashWriter, bool), LedgerError> {
    let root = beginning.beginning.as_ref().map(|beginning| beginning.root.as_slice());
    let is_right = |frontier: &Frontier| Some(&frontier.root().0[..]) == root;
    if files.size()? >= last {
        let restored = Frontier::restore(last, &HashesAt { files, size: last })?;
        if is_right(&restored) {
            return Ok((restored, files.writer(last), false));
        }
    }
    // From the hashes of the pruned leaves, and from the leaves that are held.
    let lost = || LedgerError::HashesLost { path: paths.hashes() };
    let level_0 = HashesAt { files, size: held_from };
    let mut frontier = Frontier::new();
    let mut writer = files.writer(0);
    // Those of the leaves are written over by themselves: nowhere else are they.
    for first in (0..held_from).step_by(PENDING_HASHES as usize) {
        let count = PENDING_HASHES.min(held_from - first) as usize;
        for leaf in level_0.read(0, first, count).map_err(|_| lost())? {
            frontier.push(leaf, &mut |level, hash| writer.push(level, hash));
        }
        writer.flush()?;
    }
    for segment in shared.segments() {
        let mut failed = None;
        let scanned = FrameReader::open(segment.path(), FrameKind::SealedLedger)?.scan(|frame| {
            let group = Group::parse(&frame.payload).ok_or(UNREADABLE)?;
            for (_, leaf) in group.leaves() {
                frontier.push(leaf_hash(leaf), &mut |level, hash| writer.push(level, hash));
            }
            writer.flush().map_err(|error| {
                failed = Some(error);
                UNREADABLE
            })
        });
        if let Some(failed) = failed {
            return Err(failed.into());
        }
        scanned?;
    }
    if frontier.size() != last || !is_right(&frontier) {
        return Err(lost());
    }
    writer.sync()?;
    Ok((frontier, writer, true))
}

/// What a segment begins with.
fn first_frame(path: &Path, first: u64) -> Result<GroupHead, LedgerError> {
    let reader = FrameReader::open(path, FrameKind::SealedLedger)?;
    let length = path.metadata().map_err(at(path))?.len();
    let frame = reader.frame(HEADER_LEN, length)?;
    let head = Group::parse(&frame.payload).map(|group| group.head);
    let head = head.filter(|head| head.first_index == first && head.beginning.is_some());
    Ok(head.ok_or_else(|| reader.corrupt(HEADER_LEN, "it is not what a segment of this name begins with"))?)
}

/// A last segment without its first frame was begun when the machine stopped: nothing is in it.
fn drop_empty_last(paths: &Paths, found: &mut Vec<u64>) -> Result<(), LedgerError> {
    let Some(last) = found.last().copied() else {
        return Ok(());
    };
    let path = paths.segment(last);
    let mut frames = 0;
    let scanned = FrameReader::open(&path, FrameKind::SealedLedger).and_then(|reader| {
        let length = path.metadata().map_err(|error| FrameError::Io {
            path: path.clone(),
            error,
        })?;
        match reader.frame(HEADER_LEN, length.len()) {
            Ok(_) => frames += 1,
            // What follows a frame that is not whole is for the one who opens the file to judge.
            Err(FrameError::Corrupt { .. }) if length.len() > HEADER_LEN + MAX_TORN_BEGINNING => frames += 1,
            Err(FrameError::Corrupt { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    });
    scanned?;
    if frames == 0 {
        std::fs::remove_file(&path).map_err(at(&path))?;
        durable::sync_folder(&paths.segments()).map_err(at(&path))?;
        found.pop();
    }
    Ok(())
}

/// The segments that there are, oldest first.
fn list_segments(paths: &Paths) -> Result<Vec<u64>, LedgerError> {
    let folder = paths.segments();
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(at(&folder))? {
        let path = entry.map_err(at(&folder))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.ends_with(".new") {
            // A segment whose creation was interrupted; its name will be used again.
            continue;
        }
        found.push(parse_segment_name(name).ok_or_else(|| LedgerError::Stranger { path: path.clone() })?);
    }
    found.sort_unstable();
    Ok(found)
}

/// Removes indexes of segments that are not there: one was being written while its segment was pruned.
fn remove_forsaken_indexes(paths: &Paths, segments: &[u64]) -> Result<(), LedgerError> {
    let folder = paths.indexes();
    for entry in std::fs::read_dir(&folder).map_err(at(&folder))? {
        let path = entry.map_err(at(&folder))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let first = parse_segment_name(name.strip_suffix(".new").unwrap_or(name));
        if first.is_some_and(|first| segments.binary_search(&first).is_err()) {
            std::fs::remove_file(&path).map_err(at(&path))?;
        }
    }
    Ok(())
}

/// Moves the segments of a version before entries were sealed out of the way. Returns where to, if there were any.
fn move_unsealed(paths: &Paths) -> Result<Option<PathBuf>, LedgerError> {
    let mut moved = None;
    for entry in std::fs::read_dir(&paths.0).map_err(at(&paths.0))? {
        let path = entry.map_err(at(&paths.0))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if parse_segment_name(name).is_some() {
            let target = paths.unsealed();
            durable::create_folder(&target).map_err(at(&target))?;
            std::fs::rename(&path, target.join(name)).map_err(at(&path))?;
            moved = Some(target);
        }
    }
    if let Some(target) = &moved {
        for folder in [target, &paths.0] {
            durable::sync_folder(folder).map_err(at(folder))?;
        }
    }
    Ok(moved)
}

fn read_or_create(
    folder: &Path,
    name: &str,
    limit: u64,
    make: impl FnOnce() -> io::Result<Vec<u8>>,
) -> Result<Vec<u8>, LedgerError> {
    let path = folder.join(name);
    match durable::read_small_file(&path, limit) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let made = make().map_err(at(&path))?;
            durable::write_file(folder, name, &made).map_err(at(&path))?;
            Ok(made)
        }
        other => other.map_err(at(&path)),
    }
}

fn expect_root(size: u64, expected: Hash, found: Hash) -> Result<(), LedgerError> {
    if found == expected {
        return Ok(());
    }
    Err(LedgerError::OtherRoot { size, expected, found })
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> LedgerError {
    let path = path.to_owned();
    |error| LedgerError::Io { path, error }
}

/// Hashes that wait in memory while the last segment is read.
const PENDING_HASHES: u64 = 1 << 15;
/// The largest first frame: all sources that may be known.
const MAX_TORN_BEGINNING: u64 = HEAD_LEN + credence_storage::frames::MAX_PAYLOAD as u64;
