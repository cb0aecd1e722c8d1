//! Visits the records oldest first. The control plane returns them newest first, so this asks for windows of the
//! ledger, and reverses each of them in memory.

use super::super::conditions::Conditions;
use super::super::ledger_record::Record;
use super::super::query::newest;
use crate::control_plane::Client;
use crate::failure::Failure;

/// The index after the last record to export: `before`, or one after the newest record.
pub(super) fn end(client: &Client, conditions: &Conditions, from: u64, before: Option<u64>) -> Result<u64, Failure> {
    let size_of = |conditions: &Conditions| -> Result<u64, Failure> {
        let newest = newest(client, conditions, None, None, 1)?;
        Ok(newest.first().map_or(0, |record| record.index + 1))
    };
    let size = size_of(&Conditions::default())?.max(size_of(&conditions.of_kind())?);
    // If the ledger is shorter than `from`, there is nothing to export, and --from-index stays as it was.
    Ok(before.unwrap_or(u64::MAX).min(size).max(from))
}

/// Visits the records from index `from` up to `end`, oldest first. Returns their number.
pub(super) fn visit(
    client: &Client,
    conditions: &Conditions,
    from: u64,
    end: u64,
    mut visit: impl FnMut(&Record) -> Result<(), Failure>,
) -> Result<u64, Failure> {
    let (mut next, mut visited) = (from, 0);
    // Indexes in the next window. It grows where few records meet the conditions.
    let mut width = PAGE;
    while next < end {
        let until = next.saturating_add(width).min(end);
        let limit = usize::try_from(MOST_AT_ONCE).unwrap_or(usize::MAX);
        let records = newest(client, conditions, Some(until), next.checked_sub(1), limit)?;
        let found = records.len() as u64;
        if found >= MOST_AT_ONCE && width > MOST_AT_ONCE {
            // There may be more than fit into memory.
            width = (width / 4).max(MOST_AT_ONCE);
            continue;
        }
        next = until;
        if found < PAGE / 4 {
            width = width.saturating_mul(4);
        } else if found > PAGE {
            width = (width / 2).max(PAGE);
        }
        records.iter().rev().try_for_each(&mut visit)?;
        visited += found;
    }
    Ok(visited)
}

/// Records on one page of the control plane.
const PAGE: u64 = 1_000;
/// Records in memory: less than 200 MiB, because the largest have 16 KiB.
const MOST_AT_ONCE: u64 = 10_000;
