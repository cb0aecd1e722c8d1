//! Checks what a control plane publishes: every tile and every entry against the checkpoint (C2SP tlog-tiles).

use credence_ledger::checkpoint::{Checkpoint, SignedCheckpoint};
use credence_ledger::note::VerifierKey;
use credence_ledger::tiles::{Tile, TileContent};
use credence_ledger::tree::{Frontier, Hash, leaf_hash};

use crate::control_plane::Client;
use crate::failure::Failure;

/// What was found.
pub(super) struct Published {
    pub(super) checkpoint: Checkpoint,
    /// How many entries are still held.
    pub(super) held: u64,
    pub(super) problems: Vec<String>,
}

/// Reads everything. Whatever is checked, is checked against the root that the key has signed.
pub(super) fn check(client: &Client, key: &VerifierKey, since: &[SignedCheckpoint]) -> Result<Published, Failure> {
    let note = client.get("/ledger/checkpoint", &[])?;
    let signed = SignedCheckpoint::open(note.as_bytes(), key)
        .map_err(|error| Failure::operation(format!("the published checkpoint: {error}")))?;
    let checkpoint = signed.checkpoint().clone();
    let mut reading = Reading {
        client,
        frontier: Frontier::new(),
        levels: Vec::new(),
        held: 0,
        problems: Vec::new(),
    };
    let commitments: Vec<_> = since
        .iter()
        .map(SignedCheckpoint::checkpoint)
        .chain([&checkpoint])
        .collect();
    if let Some(longer) = commitments.iter().find(|earlier| earlier.size > checkpoint.size) {
        let problem = format!(
            "a checkpoint of {} records was published earlier, and now one of {}",
            longer.size, checkpoint.size
        );
        reading.problems.push(problem);
    }
    reading.compare_root(&commitments);
    for tile in Tile::all(TileContent::Entries, checkpoint.size) {
        for hash in reading.entries(tile)? {
            reading.push(hash);
            reading.compare_root(&commitments);
        }
    }
    reading.tiles_above(checkpoint.size)?;
    Ok(Published {
        checkpoint,
        held: reading.held,
        problems: reading.problems,
    })
}

struct Reading<'a> {
    client: &'a Client,
    frontier: Frontier,
    /// The hashes that the entries lead to, from level 1 on.
    levels: Vec<Vec<Hash>>,
    held: u64,
    problems: Vec<String>,
}

impl Reading<'_> {
    /// The hashes of the entries in a bundle, after they were compared with their tile; of pruned ones, the tile's.
    fn entries(&mut self, bundle: Tile) -> Result<Vec<Hash>, Failure> {
        let tile = Tile {
            content: TileContent::Hashes { level: 0 },
            ..bundle
        };
        let tiled = self.hashes(&tile)?;
        let Some(contents) = self.client.fetch(&path(&bundle))? else {
            return Ok(tiled);
        };
        let hashes = leaves(&contents).ok_or_else(|| {
            Failure::operation(format!("{} is no bundle of entries (C2SP tlog-tiles)", path(&bundle)))
        })?;
        self.held += hashes.len() as u64;
        if hashes.len() != tiled.len() {
            self.problems.push(format!(
                "{} has {} entries instead of {}",
                path(&bundle),
                hashes.len(),
                tiled.len()
            ));
        }
        let first_wrong = hashes
            .iter()
            .zip(&tiled)
            .position(|(found, expected)| found != expected);
        if let Some(place) = first_wrong {
            let index = bundle.first() + place as u64;
            self.problems
                .push(format!("entry {index} is not the one whose hash is in {}", path(&tile)));
        }
        // The tree is that of the hashes: of entries that are wrong has been told.
        Ok(tiled)
    }

    fn push(&mut self, leaf: Hash) {
        let levels = &mut self.levels;
        self.frontier.push(leaf, &mut |level, hash| {
            if let Some(above) = usize::from(level).checked_sub(1) {
                levels.resize_with(levels.len().max(above + 1), Vec::new);
                if let Some(level) = levels.get_mut(above) {
                    level.push(hash);
                }
            }
        });
    }

    fn compare_root(&mut self, commitments: &[&Checkpoint]) {
        let size = self.frontier.size();
        for commitment in commitments.iter().filter(|commitment| commitment.size == size) {
            let root = self.frontier.root();
            if root != commitment.root {
                self.problems.push(format!(
                    "the first {size} records have the root {root}, but {} was signed as {}",
                    commitment.root, commitment.origin
                ));
            }
        }
    }

    /// Compares the tiles from level 1 on with what the entries lead to.
    fn tiles_above(&mut self, size: u64) -> Result<(), Failure> {
        for (level, expected) in (1..).zip(std::mem::take(&mut self.levels)) {
            for (tile, expected) in Tile::all(TileContent::Hashes { level }, size).zip(expected.chunks(256)) {
                if self.hashes(&tile)? != expected {
                    self.problems
                        .push(format!("{} is not what the entries lead to", path(&tile)));
                }
            }
        }
        Ok(())
    }

    fn hashes(&self, tile: &Tile) -> Result<Vec<Hash>, Failure> {
        let path = path(tile);
        let contents = self.client.fetch(&path)?;
        let hashes: Vec<_> = contents
            .unwrap_or_default()
            .chunks(32)
            .filter_map(|hash| hash.try_into().ok().map(Hash))
            .collect();
        if hashes.len() == usize::from(tile.width) {
            return Ok(hashes);
        }
        Err(Failure::operation(format!(
            "{path} does not have {} hashes of 32 bytes",
            tile.width
        )))
    }
}

/// The hashes of the entries in a bundle.
fn leaves(mut bundle: &[u8]) -> Option<Vec<Hash>> {
    let mut hashes = Vec::new();
    while let Some((length, rest)) = bundle.split_first_chunk() {
        let (leaf, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        hashes.push(leaf_hash(leaf));
        bundle = rest;
    }
    bundle.is_empty().then_some(hashes)
}

fn path(tile: &Tile) -> String {
    format!("/ledger/tile/{tile}")
}
