//! The chains that a data folder's ledger has, read without its control plane.

use std::path::{Path, PathBuf};

use credence_ledger::group::StoredGroup;
use credence_ledger::record::RecordBody;
use credence_storage::frames::{FrameKind, FrameReader};
use credence_wire::v1::entry::Entry;
use prost::Message as _;

use crate::failure::Failure;

/// Records that were written together.
#[derive(Debug)]
pub(super) struct Block {
    path: PathBuf,
    offset: u64,
    payload: Vec<u8>,
}

impl Block {
    /// The chains among the records, each with its record's index.
    pub(super) fn chains(self) -> Result<Vec<(u64, String)>, Failure> {
        let damaged = |what: &str| {
            Failure::operation(format!(
                "{}: at byte {}: {what}; restore the file from a backup",
                self.path.display(),
                self.offset
            ))
        };
        let group = StoredGroup::decode(self.payload.as_slice()).map_err(|_| damaged("the records can not be read"))?;
        let mut chains = Vec::new();
        for record in group.into_records() {
            if let RecordBody::Entry { entry, .. } = record.body
                && let Some(Entry::Chain(presented)) = entry.entry
            {
                let joined = String::from_utf8(presented.chain).map_err(|_| damaged("a chain is not text"))?;
                chains.push((record.index, joined));
            }
        }
        Ok(chains)
    }
}

/// Hands out every block, oldest first.
pub(super) fn blocks(data: &Path, mut visit: impl FnMut(Block)) -> Result<(), Failure> {
    let folder = data.join(LEDGER);
    let unreadable = |error: &dyn std::fmt::Display| {
        Failure::input(format!(
            "{}: {error}; give --data a control plane's data folder",
            folder.display()
        ))
    };
    let mut segments = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(|error| unreadable(&error))? {
        let path = entry.map_err(|error| unreadable(&error))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit()) {
            segments.push(path);
        }
    }
    segments.sort_unstable();
    for path in segments {
        FrameReader::open(&path, FrameKind::Ledger)
            .and_then(|reader| {
                reader.scan(|frame| {
                    visit(Block {
                        path: path.clone(),
                        offset: frame.offset,
                        payload: frame.payload,
                    });
                    Ok(())
                })
            })
            .map_err(|error| Failure::operation(error.to_string()))?;
    }
    Ok(())
}

/// The ledger's folder in a data folder.
const LEDGER: &str = "ledger";
