//! Evidence as filters report it, made cheaply: each event is a copy of a template with the changing fields
//! overwritten.

use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::{BufMut as _, Bytes, BytesMut};
use credence_wire::v1;
use prost::Message as _;
use sha2::{Digest as _, Sha256};

use super::Failure;

/// The principals and operations, the same for all sources.
#[derive(Debug)]
pub(crate) struct Traffic {
    principals: Vec<Principal>,
    /// Principals in order of appearance. The principal at rank n appears 1/n as often as the first.
    order: Vec<u32>,
    operations: Vec<Operation>,
}

/// Writes a source's batches.
#[derive(Debug)]
pub(crate) struct EntryWriter {
    traffic: Rc<Traffic>,
    random: Random,
    next_sequence: u64,
    /// An index into `order`.
    next_event: usize,
    /// The next principal whose delegation is presented.
    next_chain: usize,
    /// Buffers of acknowledged batches.
    spare: Vec<BytesMut>,
}

/// The common fields of a principal's events.
#[derive(Debug)]
struct Principal {
    /// Encoded fields 9 to 12.
    whose: Vec<u8>,
    /// Encoded fields 20 and 21.
    chain: Vec<u8>,
}

/// The common fields of a tool's events.
#[derive(Debug)]
struct Operation {
    /// Encoded fields 1 to 8, for an allowed request.
    allowed: Vec<u8>,
    /// The same, for a denied one.
    denied: Vec<u8>,
    /// Encoded fields 13 to 18.
    circumstances: Vec<u8>,
}

/// SplitMix64: fast, and the same in every run.
#[derive(Debug)]
struct Random(u64);

// === impl Traffic ===

impl Traffic {
    pub(crate) fn new(principals: u32) -> Self {
        let mut random = Random(7);
        Self {
            principals: (0..principals).map(Principal::new).collect(),
            order: (0..1 << 20).map(|_| by_rank(principals, &mut random)).collect(),
            operations: OPERATIONS.map(Operation::new).into(),
        }
    }
}

/// A rank from 0, with a probability proportional to 1/(rank + 1). Within each power of e, all ranks are equally
/// likely.
fn by_rank(ranks: u32, random: &mut Random) -> u32 {
    let even = random.next() as f64 / u64::MAX as f64;
    let rank = (even * f64::from(ranks + 1).ln()).exp() as u32;
    rank.clamp(1, ranks) - 1
}

// === impl Principal ===

impl Principal {
    fn new(number: u32) -> Self {
        let mut random = Random(u64::from(number) << 20);
        let chain = presented_chain(number);
        let tokens: Vec<u8> = chain.split(|byte| *byte == b'~').flat_map(Sha256::digest).collect();
        let whose = v1::Event {
            principal: Some(principal(number)),
            agent: random.text(43),
            proof: v1::ProofKind::Pop.into(),
            delegation_ids: (0..delegations(number)).map(|_| random.text(22)).collect(),
            ..Default::default()
        };
        let chain = v1::Event {
            expires_at: i64::try_from(since_epoch_ns() / 1_000_000_000).unwrap_or_default() + 3600,
            chain_digest: Sha256::digest(tokens).to_vec(),
            ..Default::default()
        };
        Self {
            whose: whose.encode_to_vec(),
            chain: chain.encode_to_vec(),
        }
    }
}

fn principal(number: u32) -> v1::Principal {
    v1::Principal {
        issuer: "https://id.example.com".to_owned(),
        subject: Some(format!("user-{number:07}")),
    }
}

/// The chain's tokens: a root, and up to three derived ones; on average two.
fn delegations(number: u32) -> usize {
    [1, 1, 2, 2, 2, 2, 3, 3, 4, 1][number as usize % 10]
}

/// As long as a signed one, and as little compressible.
fn presented_chain(number: u32) -> Vec<u8> {
    let mut random = Random(u64::from(number) << 20 | 1);
    let tokens: Vec<String> = (0..delegations(number)).map(|_| random.text(TOKEN_BYTES)).collect();
    tokens.join("~").into_bytes()
}

// === impl Operation ===

impl Operation {
    fn new((rule, tool, method, path): (&str, &str, &str, &str)) -> Self {
        let opening = |decision: v1::Decision, reason: &str| v1::Event {
            time_unix_nano: 1,
            request_id: "00000000-0000-4000-8000-000000000000".to_owned(),
            trace_id: "0".repeat(32),
            rule: rule.to_owned(),
            tool: tool.to_owned(),
            decision: decision.into(),
            reason: reason.to_owned(),
            mode: v1::Mode::Enforce.into(),
            ..Default::default()
        };
        let circumstances = v1::Event {
            arguments_hash: vec![0; ARGUMENTS_HASH_BYTES],
            method: method.to_owned(),
            authority: "shop.example.com".to_owned(),
            path_template: path.to_owned(),
            cache: v1::CacheLevel::L1.into(),
            // Any number whose encoding has three bytes.
            decision_ns: 1 << 14,
            ..Default::default()
        };
        Self {
            allowed: opening(v1::Decision::Allow, "delegated").encode_to_vec(),
            denied: opening(v1::Decision::Deny, "argument_not_allowed").encode_to_vec(),
            circumstances: circumstances.encode_to_vec(),
        }
    }
}

// === impl EntryWriter ===

impl EntryWriter {
    /// For the source of this number, out of so many.
    pub(crate) fn new(traffic: Rc<Traffic>, number: u32, sources: u32) -> Self {
        let part = |whole: usize| whole / sources as usize * number as usize;
        Self {
            random: Random(u64::from(number) << 40),
            next_sequence: 1,
            next_event: part(traffic.order.len()),
            next_chain: part(traffic.principals.len()),
            spare: Vec::new(),
            traffic,
        }
    }

    /// The next batch as a gRPC message with its prefix: a `ReportRequest` with this many entries. The last two are a
    /// count and a delegation.
    pub(crate) fn batch(&mut self, entries: u32) -> Bytes {
        let mut batch = self.spare.pop().unwrap_or_default();
        batch.clear();
        batch.reserve(HEAD_BYTES + entries as usize * EVENT_BYTES + PRESENTED_BYTES);
        batch.put_bytes(0, HEAD_BYTES);
        let now = since_epoch_ns();
        for place in 0..entries.saturating_sub(2) {
            self.put_event(&mut batch, now + u64::from(place));
        }
        if entries >= 2 {
            put_entry(&mut batch, &v1::entry::Entry::Aggregate(refusals(now)));
            put_entry(&mut batch, &v1::entry::Entry::Chain(self.presented()));
        }
        let first_sequence = self.next_sequence;
        self.next_sequence += u64::from(entries);
        with_head(batch, first_sequence)
    }

    /// Reuses this batch's buffer for another one.
    pub(crate) fn reuse(&mut self, batch: Bytes) {
        self.spare.extend(batch.try_into_mut());
    }

    /// The mean size of an encoded event. Checks that it decodes as one.
    pub(crate) fn mean_event_bytes(&mut self) -> Result<f64, Failure> {
        let batch = self.batch(1_000).slice(GRPC_PREFIX_BYTES..);
        let Some(v1::report_request::Message::Batch(batch)) = v1::ReportRequest::decode(batch)?.message else {
            return Err("a batch that was written is read as something else".into());
        };
        let mut lengths = Vec::new();
        for entry in batch.entries {
            if let Some(v1::entry::Entry::Event(event)) = entry.entry {
                let is_whole = event.time_unix_nano > 1
                    && event.decision_ns >= 1 << 14
                    && event.principal.is_some()
                    && event.chain_digest.len() == 32;
                if !is_whole {
                    return Err(format!("an event is read otherwise than it was written: {event:?}").into());
                }
                lengths.push(event.encoded_len());
            }
        }
        Ok(lengths.iter().sum::<usize>() as f64 / lengths.len() as f64)
    }

    fn put_event(&mut self, batch: &mut BytesMut, time: u64) {
        let traffic = &self.traffic;
        self.next_event = (self.next_event + 1) % traffic.order.len();
        let principal = &traffic.principals[traffic.order[self.next_event] as usize];
        let dice = self.random.next();
        let operation = &traffic.operations[dice as usize % traffic.operations.len()];
        let opening = if (dice >> 32) % 100 < DENIED_IN_100 {
            &operation.denied
        } else {
            &operation.allowed
        };
        let circumstances = &operation.circumstances;
        let length = opening.len() + principal.whose.len() + circumstances.len() + principal.chain.len();
        put_length_delimited(batch, BATCH_ENTRIES, length + key_length(length));
        put_length_delimited(batch, ENTRY_EVENT, length);

        let start = batch.len();
        batch.put_slice(opening);
        batch[start..][TIME].copy_from_slice(&time.to_le_bytes());
        for digits in REQUEST_ID.into_iter().chain(TRACE_ID) {
            self.random.write_hex(&mut batch[start..][digits]);
        }
        batch.put_slice(&principal.whose);
        let start = batch.len();
        batch.put_slice(circumstances);
        for word in batch[start..][ARGUMENTS_HASH].chunks_exact_mut(8) {
            word.copy_from_slice(&self.random.next().to_le_bytes());
        }
        let decision_ns = batch.len() - 3;
        batch[decision_ns] = dice as u8 | 0x80;
        batch.put_slice(&principal.chain);
    }

    fn presented(&mut self) -> v1::PresentedChain {
        self.next_chain = (self.next_chain + 1) % self.traffic.principals.len();
        let number = u32::try_from(self.next_chain).unwrap_or_default();
        v1::PresentedChain {
            chain: presented_chain(number),
            principal: Some(principal(number)),
        }
    }
}

fn refusals(now: u64) -> v1::Aggregate {
    v1::Aggregate {
        second: i64::try_from(now / 1_000_000_000).unwrap_or_default(),
        rule: OPERATIONS[0].0.to_owned(),
        reason: "delegation_missing".to_owned(),
        count: 3,
        decision: v1::Decision::Deny.into(),
        mode: v1::Mode::Enforce.into(),
        principal: None,
    }
}

fn put_entry(batch: &mut BytesMut, entry: &v1::entry::Entry) {
    let entry = v1::Entry {
        entry: Some(entry.clone()),
    };
    put_length_delimited(batch, BATCH_ENTRIES, entry.encoded_len());
    // A BytesMut grows.
    let _ = entry.encode(batch);
}

/// Writes the prefix and the batch's head into the space that was left for them.
fn with_head(mut batch: BytesMut, first_sequence: u64) -> Bytes {
    let entries = batch.len() - HEAD_BYTES;
    let mut first = BytesMut::new();
    first.put_u8(BATCH_FIRST_SEQUENCE << 3);
    prost::encoding::encode_varint(first_sequence, &mut first);
    let mut request = BytesMut::new();
    put_length_delimited(&mut request, REQUEST_BATCH, first.len() + entries);
    let message = request.len() + first.len() + entries;
    let mut head = BytesMut::new();
    head.put_u8(0);
    head.put_u32(u32::try_from(message).unwrap_or(u32::MAX));
    head.put_slice(&request);
    head.put_slice(&first);
    let start = HEAD_BYTES - head.len();
    batch[start..HEAD_BYTES].copy_from_slice(&head);
    batch.freeze().slice(start..)
}

fn put_length_delimited(message: &mut BytesMut, field: u8, length: usize) {
    message.put_u8(field << 3 | 2);
    prost::encoding::encode_varint(length as u64, message);
}

fn key_length(length: usize) -> usize {
    1 + prost::encoding::encoded_len_varint(length as u64)
}

fn since_epoch_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

// === impl Random ===

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Base64url digits.
    fn text(&mut self, length: usize) -> String {
        const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let digits = (0..length.div_ceil(10)).flat_map(|_| {
            let drawn = self.next();
            (0..10).map(move |place| DIGITS[(drawn >> (6 * place)) as usize % 64] as char)
        });
        digits.take(length).collect()
    }

    /// Up to 16 hexadecimal digits.
    fn write_hex(&mut self, digits: &mut [u8]) {
        let mut drawn = self.next();
        for digit in digits {
            *digit = b"0123456789abcdef"[drawn as usize % 16];
            drawn >>= 4;
        }
    }
}

/// Rule, tool, method and path template.
const OPERATIONS: [(&str, &str, &str, &str); 8] = [
    ("read-catalog", "catalog.read", "GET", "/v1/catalog/{item}"),
    ("search-catalog", "catalog.search", "GET", "/v1/catalog"),
    ("read-orders", "orders.read", "GET", "/v1/orders/{order}"),
    ("place-order", "orders.place", "POST", "/v1/orders"),
    ("cancel-order", "orders.cancel", "DELETE", "/v1/orders/{order}"),
    ("pay", "payments.transfer", "POST", "/v1/accounts/{account}/transfers"),
    (
        "read-mail",
        "mail.read",
        "GET",
        "/v1/mailboxes/{mailbox}/messages/{message}",
    ),
    ("send-mail", "mail.send", "POST", "/v1/mailboxes/{mailbox}/messages"),
];
const DENIED_IN_100: u64 = 3;
const TOKEN_BYTES: usize = 700;
const ARGUMENTS_HASH_BYTES: usize = 48;

// The offsets of the changing parts in an operation's encoded fields. Field 1 is a key and 8 bytes; fields 2, 3 and 13
// are a key, a length of one byte, and a text. The digits of a UUID's version and variant stay.
const TIME: std::ops::Range<usize> = 1..9;
const REQUEST_ID: [std::ops::Range<usize>; 4] = [11..19, 20..24, 26..29, 35..47];
const TRACE_ID: [std::ops::Range<usize>; 2] = [49..65, 65..81];
const ARGUMENTS_HASH: std::ops::Range<usize> = 2..2 + ARGUMENTS_HASH_BYTES;

// Field numbers of audit.proto.
const REQUEST_BATCH: u8 = 2;
const BATCH_FIRST_SEQUENCE: u8 = 1;
const BATCH_ENTRIES: u8 = 2;
const ENTRY_EVENT: u8 = 1;

const GRPC_PREFIX_BYTES: usize = 5;
/// Space for the prefix, two keys with a length each, and a sequence number.
const HEAD_BYTES: usize = 32;
/// Space for one event, on average; and for one delegation.
const EVENT_BYTES: usize = 480;
const PRESENTED_BYTES: usize = 4 << 10;
