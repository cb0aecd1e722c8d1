//! Checks what a control plane publishes: every tile and every entry against the checkpoint (C2SP tlog-tiles).

use std::collections::BTreeMap;

use credence_ledger::checkpoint::{Checkpoint, SignedCheckpoint};
use credence_ledger::note::VerifierKey;
use credence_ledger::tiles::{Tile, TileContent};
use credence_ledger::tree::{Frontier, Hash, leaf_hash};

use crate::control_plane::Client;
use crate::failure::Failure;

/// The result.
pub(super) struct Published {
    pub(super) signed: SignedCheckpoint,
    /// The first entry that was not pruned.
    pub(super) first: u64,
    pub(super) problems: Vec<String>,
}

/// Reads every tile and entry, and checks them against the root that the key has signed.
pub(super) fn check(client: &Client, key: &VerifierKey, since: &[SignedCheckpoint]) -> Result<Published, Failure> {
    let signed = self::checkpoint(client, "/ledger/checkpoint", key)?;
    let checkpoint = signed.checkpoint().clone();
    let mut reading = Reading {
        client,
        frontier: Frontier::new(),
        levels: BTreeMap::new(),
        first: 0,
        last_held: None,
        problems: Vec::new(),
    };
    let commitments: Vec<_> = since
        .iter()
        .map(SignedCheckpoint::checkpoint)
        .chain([&checkpoint])
        .collect();
    if let Some(longer) = commitments.iter().find(|earlier| earlier.size > checkpoint.size) {
        let problem = format!(
            "the earlier checkpoint has {} records, and the present one has only {}",
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
        signed,
        first: reading.first,
        problems: reading.problems,
    })
}

/// A checkpoint that this key has signed.
pub(super) fn checkpoint(client: &Client, path: &str, key: &VerifierKey) -> Result<SignedCheckpoint, Failure> {
    let note = client.get(path, &[])?;
    SignedCheckpoint::open(note.as_bytes(), key)
        .map_err(|error| Failure::operation(format!("the published checkpoint: {error}")))
}

struct Reading<'a> {
    client: &'a Client,
    frontier: Frontier,
    /// The hashes computed from the entries, from level 1 on.
    levels: BTreeMap<u8, Vec<Hash>>,
    /// The first entry that was not pruned, as far as the bundles were read.
    first: u64,
    /// The last bundle that was read.
    last_held: Option<Tile>,
    problems: Vec<String>,
}

impl Reading<'_> {
    /// The hashes of the entries in a bundle, after comparing them with their tile. For a pruned bundle, the hashes of
    /// the tile.
    fn entries(&mut self, bundle: Tile) -> Result<Vec<Hash>, Failure> {
        let tile = Tile {
            content: TileContent::Hashes { level: 0 },
            ..bundle
        };
        let tiled = self.hashes(&tile)?;
        let Some(contents) = self.client.fetch(&path(&bundle))? else {
            self.gone(bundle)?;
            return Ok(tiled);
        };
        self.last_held = Some(bundle);
        let hashes = leaves(&contents).ok_or_else(|| {
            Failure::operation(format!(
                "{} is not a bundle of entries (C2SP tlog-tiles)",
                path(&bundle)
            ))
        })?;
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
            self.problems.push(format!(
                "entry {index} does not have the hash that {} records",
                path(&tile)
            ));
        }
        // The tree is that of the hashes. The wrong entries are reported above.
        Ok(tiled)
    }

    /// Only the oldest bundles are ever pruned. If a bundle is gone but an older one is present, the log withholds it.
    fn gone(&mut self, bundle: Tile) -> Result<(), Failure> {
        self.first = bundle.first().saturating_add(u64::from(bundle.width));
        if let Some(held) = self.last_held.take()
            // Unless all older bundles were pruned in the meantime.
            && self.client.fetch(&path(&held))?.is_some()
        {
            self.problems.push(format!(
                "{} is gone (410), but {}, which is older, is present",
                path(&bundle),
                path(&held)
            ));
        }
        Ok(())
    }

    fn push(&mut self, leaf: Hash) {
        let levels = &mut self.levels;
        self.frontier.push(leaf, &mut |level, hash| {
            if level > 0 {
                levels.entry(level).or_default().push(hash);
            }
        });
    }

    fn compare_root(&mut self, commitments: &[&Checkpoint]) {
        let size = self.frontier.size();
        for commitment in commitments.iter().filter(|commitment| commitment.size == size) {
            let root = self.frontier.root();
            if root != commitment.root {
                self.problems.push(format!(
                    "the first {size} records have the root {root}, but the signed root is {}, by {}",
                    commitment.root, commitment.origin
                ));
            }
        }
    }

    /// Compares the tiles from level 1 on with the hashes of the entries.
    fn tiles_above(&mut self, size: u64) -> Result<(), Failure> {
        for (level, expected) in std::mem::take(&mut self.levels) {
            for (tile, expected) in Tile::all(TileContent::Hashes { level }, size).zip(expected.chunks(256)) {
                if self.hashes(&tile)? != expected {
                    self.problems
                        .push(format!("{} does not match the hashes of the entries", path(&tile)));
                }
            }
        }
        Ok(())
    }

    fn hashes(&self, tile: &Tile) -> Result<Vec<Hash>, Failure> {
        let path = path(tile);
        let contents = self.client.fetch(&path)?.unwrap_or_default();
        let hashes: Vec<_> = contents
            .chunks(32)
            .filter_map(|hash| hash.try_into().ok().map(Hash))
            .collect();
        if hashes.len() == usize::from(tile.width) && contents.len() == 32 * hashes.len() {
            return Ok(hashes);
        }
        Err(Failure::operation(format!(
            "{path} does not hold {} hashes of 32 bytes",
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
