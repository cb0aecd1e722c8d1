//! The records in order. The control plane is asked for them newest first; so the ledger is gone through in windows, each
//! of which is held in memory and turned round.

use super::super::conditions::Conditions;
use super::super::ledger_record::Record;
use super::super::query::newest;
use crate::control_plane::Client;
use crate::failure::Failure;

/// Runs of records, oldest first.
pub(super) struct Windows<'a> {
    client: &'a Client,
    conditions: &'a Conditions,
    next: u64,
    end: u64,
    /// Indexes of the next window. Grows where few records meet the conditions.
    width: u64,
}

// === impl Windows ===

impl<'a> Windows<'a> {
    /// From index `next` on, up to `before` or what is the newest now.
    pub(super) fn new(
        client: &'a Client,
        conditions: &'a Conditions,
        next: u64,
        before: Option<u64>,
    ) -> Result<Self, Failure> {
        let size_of = |conditions: &Conditions| -> Result<u64, Failure> {
            let newest = newest(client, conditions, None, None, 1)?;
            Ok(newest.first().map_or(0, |record| record.index + 1))
        };
        let size = size_of(&Conditions::default())?.max(size_of(&conditions.of_kind())?);
        Ok(Self {
            client,
            conditions,
            next,
            // A ledger that is shorter than what was asked for has nothing more, and --from-index stays as it was.
            end: before.unwrap_or(u64::MAX).min(size).max(next),
            width: PAGE,
        })
    }

    /// The index behind the last window.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// The next window; none behind the last.
    pub(super) fn next(&mut self) -> Result<Option<Vec<Record>>, Failure> {
        while self.next < self.end {
            let until = self.next.saturating_add(self.width).min(self.end);
            let limit = usize::try_from(MOST_AT_ONCE).unwrap_or(usize::MAX);
            let after = self.next.checked_sub(1);
            let mut records = newest(self.client, self.conditions, Some(until), after, limit)?;
            let found = records.len() as u64;
            if found >= MOST_AT_ONCE && self.width > MOST_AT_ONCE {
                // There may be more than can be held.
                self.width = (self.width / 4).max(MOST_AT_ONCE);
                continue;
            }
            self.next = until;
            if found < PAGE / 4 {
                self.width = self.width.saturating_mul(4);
            } else if found > PAGE {
                self.width = (self.width / 2).max(PAGE);
            }
            records.reverse();
            return Ok(Some(records));
        }
        Ok(None)
    }
}

/// What the control plane puts on one page.
const PAGE: u64 = 1_000;
/// Records in memory: at 16 KiB for the largest, less than 200 MiB.
const MOST_AT_ONCE: u64 = 10_000;
