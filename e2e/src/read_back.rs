//! All evidence of a control plane, read over its HTTP API.

use std::collections::HashMap;
use std::fs;

use serde::Deserialize;

use crate::control_plane::ControlPlane;
use crate::reporter::{Told, request_id};
use crate::{Client, Failure, Request};

/// The records of each source in a ledger.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// Sequence numbers and request ids, newest first.
    sources: HashMap<String, Vec<(u64, String)>>,
}

#[derive(Deserialize)]
struct Page {
    events: Vec<Stored>,
    next: Option<u64>,
}

#[derive(Deserialize)]
struct Stored {
    source: String,
    sequence: Option<u64>,
    #[serde(default)]
    request_id: String,
}

impl Holdings {
    /// Reads all records, page by page.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn of(control_plane: &ControlPlane) -> Result<Self, Failure> {
        let token = fs::read_to_string(control_plane.token_file()).map_err(Failure::of("reading the token"))?;
        let mut client = Client::connect(control_plane.http())?;
        let mut this = Self::default();
        let mut before = None;
        loop {
            let from = before
                .map(|before: u64| format!("&before={before}"))
                .unwrap_or_default();
            let request = Request::get(&format!("/v1/audit/events?limit=1000{from}"))
                .header("authorization", format!("Bearer {}", token.trim()));
            let reply = client.send(&request)?;
            let page: Page = serde_json::from_slice(&reply.body)
                .map_err(Failure::of(format_args!("reading evidence back ({})", reply.status)))?;
            for stored in page.events {
                if let Some(sequence) = stored.sequence {
                    let held = this.sources.entry(stored.source).or_default();
                    held.push((sequence, stored.request_id));
                }
            }
            before = page.next;
            if before.is_none() {
                return Ok(this);
            }
        }
    }

    /// Asserts that every entry that the control plane acknowledged to the source is here once, in order.
    ///
    /// # Panics
    /// If not; the message says which.
    pub fn assert_complete(&self, label: &str, told: &Told) {
        let held = self.sources.get(&told.source).map(Vec::as_slice).unwrap_or_default();
        for ((sequence, id), expected) in held.iter().rev().zip(1..) {
            assert_eq!(
                (*sequence, id),
                (expected, &request_id(label, expected)),
                "{label}: entries are missing, doubled or in another order"
            );
        }
        let last = held.first().map_or(0, |(sequence, _)| *sequence);
        assert!(
            last >= told.acknowledged,
            "{label}: {} were acknowledged, {last} are there",
            told.acknowledged
        );
    }
}
