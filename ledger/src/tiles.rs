//! The paths of the tree's tiles and of the bundles of leaves (C2SP tlog-tiles).

use std::fmt;
use std::str::FromStr;

/// A tile of hashes or a bundle of leaves, whole or partial. `Display` gives the path below `tile/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tile {
    /// The contents.
    pub content: TileContent,
    /// Its place in its row. It begins at the row's number `index * 256`.
    pub index: u64,
    /// The number of hashes or leaves: 1 to 256, and 256 if it is whole.
    pub width: u16,
}

/// The contents of a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TileContent {
    /// Hashes of subtrees of 256^level leaves, 32 bytes each.
    Hashes {
        /// 0 to 63, though no tree has 256^8 leaves.
        level: u8,
    },
    /// Leaves, each after its length (u16, big-endian).
    Entries,
}

/// The path does not name a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a tile is <level>/<index> or entries/<index>, the index as in x001/x234/067, followed by .p/<width> if the tile \
     is not whole (C2SP tlog-tiles)"
)]
pub struct TilePathError;

// === impl Tile ===

impl Tile {
    /// Parses a path, also in non-canonical spellings.
    fn parse(path: &str) -> Option<Self> {
        let (content, path) = path.split_once('/')?;
        let content = match content {
            "entries" => TileContent::Entries,
            level => TileContent::Hashes {
                level: level.parse().ok().filter(|level| *level < 64)?,
            },
        };
        let (index, width) = match path.split_once(".p/") {
            None => (path, WHOLE),
            Some((index, width)) => (index, width.parse().ok().filter(|width| (1..WHOLE).contains(width))?),
        };
        let index = index.split('/').try_fold(0_u64, |index, group| {
            let digits = group.strip_prefix('x').unwrap_or(group);
            index.checked_mul(1000)?.checked_add(digits.parse().ok()?)
        })?;
        Some(Self { content, index, width })
    }

    /// Whether a tree of this size has all of it.
    pub fn is_in(&self, size: u64) -> bool {
        u128::from(self.index) * 256 + u128::from(self.width) <= u128::from(self.content.count(size))
    }

    /// The number of its first element in its row.
    pub fn first(&self) -> u64 {
        self.index.saturating_mul(u64::from(WHOLE))
    }

    /// Whether it is complete.
    pub fn is_whole(&self) -> bool {
        self.width == WHOLE
    }

    /// The tiles of this kind in a tree of `size` leaves, in order. The last may be partial.
    pub fn all(content: TileContent, size: u64) -> impl Iterator<Item = Self> {
        let count = content.count(size);
        let whole = u64::from(WHOLE);
        (0..count.div_ceil(whole)).map(move |index| Self {
            content,
            index,
            width: (count - index * whole).min(whole) as u16,
        })
    }
}

// === impl TileContent ===

impl TileContent {
    /// The number of elements in a tree of `size` leaves.
    fn count(self, size: u64) -> u64 {
        match self {
            Self::Hashes { level } => size.checked_shr(8 * u32::from(level)).unwrap_or(0),
            Self::Entries => size,
        }
    }
}

impl FromStr for Tile {
    type Err = TilePathError;

    fn from_str(path: &str) -> Result<Self, TilePathError> {
        // Each path has one canonical spelling.
        let tile = Self::parse(path).filter(|tile| tile.to_string() == path);
        tile.ok_or(TilePathError)
    }
}

impl fmt::Display for Tile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.content {
            TileContent::Hashes { level } => write!(f, "{level}/")?,
            TileContent::Entries => f.write_str("entries/")?,
        }
        let mut groups = vec![self.index % 1000];
        let mut rest = self.index / 1000;
        while rest > 0 {
            groups.push(rest % 1000);
            rest /= 1000;
        }
        for (place, group) in groups.iter().enumerate().rev() {
            match place {
                0 => write!(f, "{group:03}")?,
                _ => write!(f, "x{group:03}/")?,
            }
        }
        match self.width {
            WHOLE => Ok(()),
            width => write!(f, ".p/{width}"),
        }
    }
}

/// The number of hashes or leaves of a whole tile.
const WHOLE: u16 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn tile(path: &str) -> Tile {
        path.parse().unwrap()
    }

    #[test]
    fn paths_are_read_and_written_as_the_specification_has_them() {
        for (path, content, index, width) in [
            ("0/x001/x234/067", TileContent::Hashes { level: 0 }, 1_234_067, 256),
            ("0/000", TileContent::Hashes { level: 0 }, 0, 256),
            ("3/999.p/255", TileContent::Hashes { level: 3 }, 999, 255),
            ("entries/x001/000.p/1", TileContent::Entries, 1000, 1),
            ("63/000", TileContent::Hashes { level: 63 }, 0, 256),
        ] {
            let expected = Tile { content, index, width };
            assert_eq!(path.parse(), Ok(expected));
            assert_eq!(expected.to_string(), path);
        }
    }

    #[test]
    fn every_other_way_of_writing_a_path_is_refused() {
        for path in [
            "",
            "0",
            "0/",
            "0/0",
            "0/00",
            "0/0000",
            "0/x000",
            "0/x001",
            "0/001/x002",
            "0/001/002",
            "00/000",
            "+0/000",
            "64/000",
            "-1/000",
            "0/x000/001",
            "0/x001/02",
            "0/000.p/0",
            "0/000.p/256",
            "0/000.p/01",
            "0/000.p/",
            "0/000.p/1/",
            "0/000/",
            "/0/000",
            "0/ 00",
            "0/+00",
            "entries/000.p/x",
            "Entries/000",
            "data/000",
            "0/x018/x446/x744/x073/x709/x551/616",
        ] {
            assert_eq!(path.parse::<Tile>(), Err(TilePathError), "{path}");
        }
    }

    /// The example of tlog-tiles, "Partial Tiles".
    #[test]
    fn a_tree_of_70_000_has_just_the_tiles_of_the_specifications_example() {
        let count = |level| {
            let tiles: Vec<_> = Tile::all(TileContent::Hashes { level }, 70_000).collect();
            let whole = tiles.iter().filter(|tile| tile.is_whole()).count();
            (whole, tiles.last().map(|tile| tile.width))
        };
        assert_eq!(count(0), (273, Some(112)));
        assert_eq!(count(1), (1, Some(17)));
        assert_eq!(count(2), (0, Some(1)));
        assert_eq!(count(3), (0, None));
        assert_eq!(count(63), (0, None));
        for (path, is_there) in [
            ("0/272", true),
            ("0/273.p/112", true),
            ("0/273.p/113", false),
            ("0/273", false),
            ("1/000", true),
            ("1/001.p/17", true),
            ("1/001.p/18", false),
            ("2/000.p/1", true),
            ("2/000.p/2", false),
            ("3/000.p/1", false),
            ("63/000.p/1", false),
            ("entries/273.p/112", true),
            ("entries/273.p/113", false),
            ("entries/x018/x446/x744/x073/x709/x551/615", false),
        ] {
            assert_eq!(tile(path).is_in(70_000), is_there, "{path}");
        }
    }
}
