//! Creates large logs quickly, for tests and benchmarks: the data folder that a million revocations would leave.

use std::path::Path;

use crate::compaction::is_worth_compacting;
use crate::data_dir::{DataDir, take_lock};
use crate::limits::InitOptions;
use crate::plan::{Plan, Room};
use crate::provenance::Provenance;
use crate::state::State;
use crate::store::LogStore as _;
use crate::store::group::{EncodedRecord, Group};
use crate::subject::{Operation, Order, PrincipalName, Requester, Source};
use credence_runtime::time::unix_seconds;
use prost::Message as _;

/// Initialises an empty data folder and raises this many principals of `issuer`, `user-0000000` and so on, `rounds`
/// times each. On failure, returns the message of a control plane's start.
pub fn fill_log(data_dir: &Path, issuer: &str, principals: usize, rounds: usize) -> Result<(), String> {
    fill(data_dir, issuer, principals, rounds, |_, _| false).map(drop)
}

/// As [`fill_log`], but raises principals until one more group would cause a compaction. This is the longest log with
/// which a control plane may have to start. Returns the number of its entries.
pub fn fill_log_to_the_brim(data_dir: &Path, issuer: &str, principals: usize) -> Result<u64, String> {
    let above = COMPACT_ABOVE_BYTES;
    fill(data_dir, issuer, principals, usize::MAX, |bytes, needed| {
        is_worth_compacting(bytes, needed, above)
    })
}

/// Adds groups until `is_enough` returns true. Its arguments are the bytes of the log after one more group, and the
/// bytes that it needs.
fn fill(
    data_dir: &Path,
    issuer: &str,
    principals: usize,
    rounds: usize,
    is_enough: impl Fn(u64, u64) -> bool,
) -> Result<u64, String> {
    let words = |error: &dyn std::fmt::Display| error.to_string();
    let now = unix_seconds();
    let lock = take_lock(data_dir, true, None).map_err(|error| words(&error))?;
    let folder = DataDir::open(lock, Some(InitOptions { floor: false }), now).map_err(|error| words(&error))?;
    let store = folder.open_store().map_err(|error| words(&error))?;
    let mut head = store.beginning();
    let mut state = State::default();
    let mut seq = 0;
    for _ in 0..rounds {
        for first in (0..principals).step_by(GROUP) {
            let before = store.bytes();
            let mut records = Vec::with_capacity(GROUP);
            let mut provenance = Vec::with_capacity(GROUP);
            for number in first..principals.min(first + GROUP) {
                let name = PrincipalName::parse(issuer.to_owned(), Some(format!("user-{number:07}")))
                    .map_err(|error| words(&error))?;
                let order = Order {
                    operation: Operation::Raise {
                        principal: name,
                        from: None,
                    },
                    by: Requester {
                        source: Source::Operator,
                        name: "fill".to_owned(),
                    },
                    reason: None,
                };
                let room = Room {
                    max_subjects: usize::MAX,
                    planned: 0,
                };
                let plan = state.plan(&order.operation, order.by.source, now, number as u32, room);
                if let Plan::Change { record, .. } = plan.map_err(|error| words(&error))? {
                    seq += 1;
                    records.push(EncodedRecord::from(record.clone()));
                    state.apply(seq, record)?;
                    provenance.push(Provenance::of(&order, now).encode_to_vec().into());
                }
            }
            let group = Group::following(head, records, provenance);
            store.append(head, &group).map_err(|error| words(&error))?;
            head = group.head().unwrap_or(head);
            // After one more group of that size.
            let bytes = 2 * store.bytes() - before;
            if is_enough(bytes, state.bytes + (seq + 1) * 8) {
                return Ok(seq);
            }
        }
    }
    Ok(seq)
}

/// The default of `limits.compact_above_bytes`.
const COMPACT_ABOVE_BYTES: u64 = 64 << 20;
/// Records in one group.
const GROUP: usize = 2_048;
