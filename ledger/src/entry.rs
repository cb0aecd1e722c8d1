//! Reads an encoded `credence.v1.Entry` in place: without copies or allocation, and with every part checked against its
//! limits.
//!
//! The ledger keeps an entry's bytes unchanged. It never decodes them on the way in, so that fields of newer clients
//! are kept for versions that know them. Reading gives the same values as decoding the same bytes would, or an error.

use credence_delegation::chain_digest;
use credence_wire::v1;
use prost::encoding::{WireType, decode_key, decode_varint};
use prost::{DecodeError, Message as _};

/// An entry whose parts are all within their limits.
#[derive(Debug, Clone, Copy)]
pub struct EntryView<'a> {
    /// The encoded entry.
    pub encoded: &'a [u8],
    /// Its contents.
    pub kind: EntryKind<'a>,
}

/// The contents of an entry.
#[derive(Debug, Clone, Copy)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every entry is an event, and entries are not stored in this form"
)]
pub enum EntryKind<'a> {
    /// One decision.
    Event(EventView<'a>),
    /// Decisions that were counted.
    Aggregate(AggregateView<'a>),
    /// Evidence that was dropped.
    Gap(v1::Gap),
    /// A chain that was verified.
    Chain(ChainView<'a>),
}

/// `credence.v1.Event`.
#[derive(Debug, Clone, Copy, Default)]
#[expect(missing_docs, reason = "documented in wire/proto/credence/v1/audit.proto")]
pub struct EventView<'a> {
    pub time_unix_nano: u64,
    pub request_id: &'a str,
    pub trace_id: &'a str,
    pub rule: &'a str,
    pub tool: &'a str,
    pub decision: i32,
    pub reason: &'a str,
    pub mode: i32,
    pub principal: Option<PrincipalView<'a>>,
    pub agent: &'a str,
    pub proof: i32,
    delegation_ids: [&'a str; MAX_DELEGATION_IDS],
    delegations: usize,
    pub arguments_hash: &'a [u8],
    pub method: &'a str,
    pub authority: &'a str,
    pub path_template: &'a str,
    pub cache: i32,
    pub decision_ns: u64,
    pub stale_ms: Option<u64>,
    pub expires_at: i64,
    /// 32 bytes, or none.
    pub chain_digest: &'a [u8],
    pub arguments: &'a [u8],
    pub response_status: u32,
    pub client: &'a str,
    pub mcp_method: &'a str,
    actors: [&'a str; MAX_ACTORS],
    acting: usize,
}

/// `credence.v1.Principal`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
#[expect(missing_docs, reason = "documented in wire/proto/credence/v1/revocation.proto")]
pub struct PrincipalView<'a> {
    pub issuer: &'a str,
    pub subject: Option<&'a str>,
}

/// `credence.v1.Aggregate`.
#[derive(Debug, Clone, Copy, Default)]
#[expect(missing_docs, reason = "documented in wire/proto/credence/v1/audit.proto")]
pub struct AggregateView<'a> {
    pub second: i64,
    pub rule: &'a str,
    pub reason: &'a str,
    pub count: u64,
    pub decision: i32,
    pub mode: i32,
    pub principal: Option<PrincipalView<'a>>,
}

/// `credence.v1.PresentedChain`.
#[derive(Debug, Clone, Copy, Default)]
#[expect(missing_docs, reason = "documented in wire/proto/credence/v1/audit.proto")]
pub struct ChainView<'a> {
    pub chain: &'a [u8],
    pub principal: Option<PrincipalView<'a>>,
}

/// An encoded `credence.v1.Batch`.
#[derive(Debug, Clone, Copy)]
pub struct BatchView<'a>(&'a [u8]);

/// Why an entry is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// The bytes are not a message of the contract.
    #[error("cannot be decoded")]
    Malformed,
    /// A part is out of bounds. The text continues "the entry".
    #[error("{0}")]
    Refused(&'static str),
}

/// A field of an encoded message.
#[derive(Debug, Clone, Copy)]
pub enum FieldValue<'a> {
    /// A number of variable length.
    Varint(u64),
    /// Eight bytes.
    Fixed64(u64),
    /// Four bytes.
    Fixed32(u32),
    /// A text, bytes or a message.
    Bytes(&'a [u8]),
}

/// The fields of an encoded message, one by one. Groups, which the contract does not have, are malformed.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a>(&'a [u8]);

// === impl BatchView ===

impl<'a> BatchView<'a> {
    /// A batch with these bytes.
    pub fn of(encoded: &'a [u8]) -> Self {
        Self(encoded)
    }

    /// The encoded entries, in order. Ends at the first malformed one.
    pub fn entries(&self) -> impl Iterator<Item = Result<&'a [u8], EntryError>> + use<'a> {
        Fields(self.0).filter_map(|field| match field {
            Ok((BATCH_ENTRIES, value)) => Some(value.bytes()),
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        })
    }

    /// The sequence number of the first entry.
    pub fn first_sequence(&self) -> Result<u64, EntryError> {
        let mut first_sequence = 0;
        for field in Fields(self.0) {
            let (tag, value) = field?;
            if tag == BATCH_FIRST_SEQUENCE {
                first_sequence = value.varint()?;
            }
        }
        Ok(first_sequence)
    }
}

// === impl EntryView ===

impl<'a> EntryView<'a> {
    /// Reads an entry and checks every bound.
    pub fn parse(encoded: &'a [u8]) -> Result<Self, EntryError> {
        if encoded.len() > MAX_CHAIN_ENTRY_BYTES {
            return Err(EntryError::Refused("is larger than 62000 bytes"));
        }
        let mut found = None;
        for field in Fields(encoded) {
            let (tag, value) = field?;
            let kind = match tag {
                ENTRY_EVENT => EntryKind::Event(EventView::parse(value.bytes()?)?),
                ENTRY_AGGREGATE => EntryKind::Aggregate(AggregateView::parse(value.bytes()?)?),
                ENTRY_GAP => EntryKind::Gap(v1::Gap::decode(value.bytes()?)?),
                ENTRY_CHAIN => EntryKind::Chain(ChainView::parse(value.bytes()?)?),
                _ => continue,
            };
            if found.replace(kind).is_some() {
                return Err(EntryError::Refused("has more than one kind"));
            }
        }
        let kind = found.ok_or(EntryError::Refused(
            "is of a kind that this control plane does not know; upgrade it before the filters",
        ))?;
        if encoded.len() > MAX_ENTRY_BYTES && !matches!(kind, EntryKind::Chain(_)) {
            return Err(EntryError::Refused("is larger than 16384 bytes"));
        }
        Ok(Self { encoded, kind })
    }

    /// The entry's principal, if it has one. The entry is sealed with its key.
    pub fn principal(&self) -> Option<PrincipalView<'a>> {
        match &self.kind {
            EntryKind::Event(event) => event.principal,
            EntryKind::Chain(chain) => chain.principal,
            EntryKind::Aggregate(aggregate) => aggregate.principal,
            EntryKind::Gap(_) => None,
        }
    }
}

// === impl EventView ===

impl<'a> EventView<'a> {
    fn parse(encoded: &'a [u8]) -> Result<Self, EntryError> {
        let mut event = Self::default();
        for field in Fields(encoded) {
            let (tag, value) = field?;
            match tag {
                1 => event.time_unix_nano = value.fixed64()?,
                2 => event.request_id = value.text()?,
                3 => event.trace_id = value.text()?,
                4 => event.rule = value.text()?,
                5 => event.tool = value.text()?,
                6 => event.decision = value.varint()? as i32,
                7 => event.reason = value.text()?,
                8 => event.mode = value.varint()? as i32,
                9 => event.principal.get_or_insert_default().merge(value.bytes()?)?,
                10 => event.agent = value.text()?,
                11 => event.proof = value.varint()? as i32,
                12 => {
                    let Some(next) = event.delegation_ids.get_mut(event.delegations) else {
                        return Err(EntryError::Refused(
                            "names more than 9 delegations; a chain has at most 9 tokens",
                        ));
                    };
                    *next = value.name("has a delegation id of more than 256 bytes")?;
                    event.delegations += 1;
                }
                13 => event.arguments_hash = value.short_bytes()?,
                14 => event.method = value.text()?,
                15 => event.authority = value.text()?,
                16 => event.path_template = value.text()?,
                17 => event.cache = value.varint()? as i32,
                18 => event.decision_ns = value.varint()?,
                19 => event.stale_ms = Some(value.varint()?),
                20 => event.expires_at = value.varint()? as i64,
                21 => {
                    event.chain_digest = value.bytes()?;
                    if !matches!(event.chain_digest.len(), 0 | 32) {
                        return Err(EntryError::Refused("has a chain digest of other than 32 bytes"));
                    }
                }
                22 => {
                    event.arguments = value.at_most(MAX_ARGUMENTS_BYTES, "has arguments of more than 4096 bytes")?;
                }
                23 => event.response_status = value.varint()? as u32,
                24 => event.client = value.name("has a client of more than 256 bytes")?,
                25 => {
                    let Some(next) = event.actors.get_mut(event.acting) else {
                        return Err(EntryError::Refused("names more than 8 actors"));
                    };
                    *next = value.name("has an actor of more than 256 bytes")?;
                    event.acting += 1;
                }
                26 => event.mcp_method = value.name("has an MCP method of more than 256 bytes")?,
                _ => {}
            }
        }
        Ok(event)
    }

    /// The `jti` of every token of the chain, root first.
    pub fn delegation_ids(&self) -> &[&'a str] {
        self.delegation_ids.get(..self.delegations).unwrap_or_default()
    }

    /// The actors of the access token, the present one first.
    pub fn actors(&self) -> &[&'a str] {
        self.actors.get(..self.acting).unwrap_or_default()
    }

    /// The decision; unspecified if this version does not know it.
    pub fn decision(&self) -> v1::Decision {
        v1::Decision::try_from(self.decision).unwrap_or_default()
    }
}

// === impl PrincipalView ===

impl<'a> PrincipalView<'a> {
    /// If a message field occurs twice, the two are merged, as protobuf requires.
    fn merge(&mut self, encoded: &'a [u8]) -> Result<(), EntryError> {
        for field in Fields(encoded) {
            let (tag, value) = field?;
            match tag {
                1 => self.issuer = value.text()?,
                2 => self.subject = Some(value.name("has a subject of more than 256 bytes")?),
                _ => {}
            }
        }
        Ok(())
    }

    /// As a message of the contract.
    pub fn to_wire(&self) -> v1::Principal {
        v1::Principal {
            issuer: self.issuer.to_owned(),
            subject: self.subject.map(str::to_owned),
        }
    }
}

// === impl AggregateView ===

impl<'a> AggregateView<'a> {
    /// The decision; unspecified if this version does not know it.
    pub fn decision(&self) -> v1::Decision {
        v1::Decision::try_from(self.decision).unwrap_or_default()
    }

    fn parse(encoded: &'a [u8]) -> Result<Self, EntryError> {
        let mut aggregate = Self::default();
        for field in Fields(encoded) {
            let (tag, value) = field?;
            match tag {
                1 => aggregate.second = value.varint()? as i64,
                2 => aggregate.rule = value.text()?,
                3 => aggregate.reason = value.text()?,
                4 => aggregate.count = value.varint()?,
                5 => aggregate.decision = value.varint()? as i32,
                6 => aggregate.mode = value.varint()? as i32,
                7 => aggregate.principal.get_or_insert_default().merge(value.bytes()?)?,
                _ => {}
            }
        }
        Ok(aggregate)
    }
}

// === impl ChainView ===

impl<'a> ChainView<'a> {
    fn parse(encoded: &'a [u8]) -> Result<Self, EntryError> {
        let mut chain = Self::default();
        for field in Fields(encoded) {
            let (tag, value) = field?;
            match tag {
                1 => chain.chain = value.at_most(MAX_CHAIN_BYTES, "has a chain of more than 60000 bytes")?,
                2 => chain.principal.get_or_insert_default().merge(value.bytes()?)?,
                _ => {}
            }
        }
        Ok(chain)
    }

    /// The same entry, encoded without the chain. It is stored if the ledger already has the chain.
    pub(crate) fn reference(&self) -> Vec<u8> {
        let reference = v1::PresentedChain {
            chain: Vec::new(),
            principal: self.principal.map(|principal| principal.to_wire()),
        };
        v1::Entry {
            entry: Some(v1::entry::Entry::Chain(reference)),
        }
        .encode_to_vec()
    }

    /// The digest by which events refer to the chain.
    pub fn digest(&self) -> [u8; 32] {
        chain_digest(self.chain)
    }
}

// === impl FieldValue ===

impl<'a> FieldValue<'a> {
    /// An error if the field has another wire type than in the contract.
    pub fn varint(self) -> Result<u64, EntryError> {
        let Self::Varint(number) = self else {
            return Err(EntryError::Malformed);
        };
        Ok(number)
    }

    /// As above.
    pub fn fixed64(self) -> Result<u64, EntryError> {
        let Self::Fixed64(number) = self else {
            return Err(EntryError::Malformed);
        };
        Ok(number)
    }

    /// As above.
    pub fn bytes(self) -> Result<&'a [u8], EntryError> {
        let Self::Bytes(bytes) = self else {
            return Err(EntryError::Malformed);
        };
        Ok(bytes)
    }

    fn at_most(self, limit: usize, too_long: &'static str) -> Result<&'a [u8], EntryError> {
        let bytes = self.bytes()?;
        match bytes.len() <= limit {
            true => Ok(bytes),
            false => Err(EntryError::Refused(too_long)),
        }
    }

    fn short_bytes(self) -> Result<&'a [u8], EntryError> {
        self.at_most(MAX_TEXT_BYTES, "has a text of more than 1024 bytes")
    }

    fn text(self) -> Result<&'a str, EntryError> {
        std::str::from_utf8(self.short_bytes()?).map_err(|_| EntryError::Malformed)
    }

    fn name(self, too_long: &'static str) -> Result<&'a str, EntryError> {
        std::str::from_utf8(self.at_most(MAX_NAME_BYTES, too_long)?).map_err(|_| EntryError::Malformed)
    }
}

// === impl Fields ===

impl<'a> Fields<'a> {
    #[inline]
    fn next_field(&mut self) -> Result<Option<(u32, FieldValue<'a>)>, EntryError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let (tag, wire_type) = decode_key(&mut self.0)?;
        let value = match wire_type {
            WireType::Varint => FieldValue::Varint(decode_varint(&mut self.0)?),
            WireType::SixtyFourBit => FieldValue::Fixed64(u64::from_le_bytes(self.array()?)),
            WireType::LengthDelimited => {
                let length = usize::try_from(decode_varint(&mut self.0)?).map_err(|_| EntryError::Malformed)?;
                let (bytes, rest) = self.0.split_at_checked(length).ok_or(EntryError::Malformed)?;
                self.0 = rest;
                FieldValue::Bytes(bytes)
            }
            WireType::ThirtyTwoBit => FieldValue::Fixed32(u32::from_le_bytes(self.array()?)),
            WireType::StartGroup | WireType::EndGroup => return Err(EntryError::Malformed),
        };
        Ok(Some((tag, value)))
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], EntryError> {
        let (array, rest) = self.0.split_first_chunk().ok_or(EntryError::Malformed)?;
        self.0 = rest;
        Ok(*array)
    }
}

/// Ends at the first malformed field.
impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, FieldValue<'a>), EntryError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let field = self.next_field();
        if field.is_err() {
            self.0 = &[];
        }
        field.transpose()
    }
}

impl From<DecodeError> for EntryError {
    fn from(_: DecodeError) -> Self {
        Self::Malformed
    }
}

// Field numbers of audit.proto.
const BATCH_FIRST_SEQUENCE: u32 = 1;
const BATCH_ENTRIES: u32 = 2;
const ENTRY_EVENT: u32 = 1;
const ENTRY_AGGREGATE: u32 = 2;
const ENTRY_GAP: u32 = 3;
const ENTRY_CHAIN: u32 = 4;

/// Filters keep every entry below this, except chains.
pub const MAX_ENTRY_BYTES: usize = 16 << 10;
/// A chain, its principal and their encoding. The sealed entry must fit a leaf of at most 65,535 bytes.
pub const MAX_CHAIN_ENTRY_BYTES: usize = 62_000;
/// As in the delegation header.
pub const MAX_CHAIN_BYTES: usize = 60_000;
/// A root and eight derivations.
pub const MAX_DELEGATION_IDS: usize = 9;

/// Actors of an access token.
const MAX_ACTORS: usize = 8;
/// Limit for delegation ids and subjects, as in tokens.
const MAX_NAME_BYTES: usize = 256;
const MAX_TEXT_BYTES: usize = 1 << 10;
const MAX_ARGUMENTS_BYTES: usize = 4 << 10;

#[cfg(test)]
mod tests {
    use credence_wire::v1::entry::Entry as Kind;
    use proptest::prelude::*;

    use ring::digest::{SHA256, digest};

    use super::*;

    /// The message that a view represents.
    fn decoded(view: &EntryView<'_>) -> v1::Entry {
        let principal = |principal: Option<PrincipalView<'_>>| principal.map(|principal| principal.to_wire());
        let kind = match &view.kind {
            EntryKind::Event(event) => Kind::Event(v1::Event {
                time_unix_nano: event.time_unix_nano,
                request_id: event.request_id.to_owned(),
                trace_id: event.trace_id.to_owned(),
                rule: event.rule.to_owned(),
                tool: event.tool.to_owned(),
                decision: event.decision,
                reason: event.reason.to_owned(),
                mode: event.mode,
                principal: principal(event.principal),
                agent: event.agent.to_owned(),
                proof: event.proof,
                delegation_ids: event.delegation_ids().iter().map(|id| (*id).to_owned()).collect(),
                arguments_hash: event.arguments_hash.to_vec(),
                method: event.method.to_owned(),
                authority: event.authority.to_owned(),
                path_template: event.path_template.to_owned(),
                mcp_method: event.mcp_method.to_owned(),
                cache: event.cache,
                decision_ns: event.decision_ns,
                stale_ms: event.stale_ms,
                expires_at: event.expires_at,
                chain_digest: event.chain_digest.to_vec(),
                arguments: event.arguments.to_vec(),
                response_status: event.response_status,
                client: event.client.to_owned(),
                actors: event.actors().iter().map(|name| (*name).to_owned()).collect(),
            }),
            EntryKind::Aggregate(aggregate) => Kind::Aggregate(v1::Aggregate {
                second: aggregate.second,
                rule: aggregate.rule.to_owned(),
                reason: aggregate.reason.to_owned(),
                count: aggregate.count,
                decision: aggregate.decision,
                mode: aggregate.mode,
                principal: aggregate.principal.map(|principal| v1::Principal {
                    issuer: principal.issuer.to_owned(),
                    subject: principal.subject.map(str::to_owned),
                }),
            }),
            EntryKind::Gap(gap) => Kind::Gap(*gap),
            EntryKind::Chain(chain) => Kind::Chain(v1::PresentedChain {
                chain: chain.chain.to_vec(),
                principal: principal(chain.principal),
            }),
        };
        v1::Entry { entry: Some(kind) }
    }

    fn event(change: impl FnOnce(&mut v1::Event)) -> Vec<u8> {
        let mut event = v1::Event {
            time_unix_nano: 1,
            decision_ns: 300,
            principal: Some(v1::Principal {
                issuer: "i".repeat(1024),
                subject: Some("s".repeat(256)),
            }),
            delegation_ids: vec!["d".repeat(256); 9],
            ..Default::default()
        };
        change(&mut event);
        encode(Kind::Event(event))
    }

    fn encode(kind: Kind) -> Vec<u8> {
        v1::Entry { entry: Some(kind) }.encode_to_vec()
    }

    fn refused(encoded: &[u8]) -> String {
        EntryView::parse(encoded).unwrap_err().to_string()
    }

    fn principals() -> impl Strategy<Value = Option<v1::Principal>> {
        let principal = (".{0,40}", prop::option::of(".{0,40}"));
        prop::option::of(principal.prop_map(|(issuer, subject)| v1::Principal { issuer, subject }))
    }

    fn events() -> impl Strategy<Value = Kind> {
        let texts = prop::collection::vec(".{0,20}", 11);
        let digests = prop_oneof![Just(0), Just(32)].prop_flat_map(|length| prop::collection::vec(any::<u8>(), length));
        let bytes = (prop::collection::vec(any::<u8>(), 0..80), digests);
        let numbers = (
            any::<u64>(),
            any::<i32>(),
            any::<i64>(),
            any::<u32>(),
            any::<Option<u64>>(),
        );
        let ids = prop::collection::vec(".{0,20}", 0..=9);
        let actors = prop::collection::vec(".{0,20}", 0..=8);
        (texts, principals(), (ids, actors), bytes, numbers).prop_map(
            |(texts, principal, (delegation_ids, actors), (arguments, chain_digest), numbers)| {
                let mut texts = texts.into_iter();
                let mut text = || texts.next().unwrap();
                let (wide, enumeration, signed, narrow, stale_ms) = numbers;
                Kind::Event(v1::Event {
                    time_unix_nano: wide,
                    request_id: text(),
                    trace_id: text(),
                    rule: text(),
                    tool: text(),
                    decision: enumeration,
                    reason: text(),
                    mode: enumeration,
                    principal,
                    agent: text(),
                    proof: enumeration,
                    delegation_ids,
                    arguments_hash: arguments.clone(),
                    method: text(),
                    authority: text(),
                    path_template: text(),
                    mcp_method: text(),
                    cache: enumeration,
                    decision_ns: wide,
                    stale_ms,
                    expires_at: signed,
                    chain_digest,
                    arguments,
                    response_status: narrow,
                    client: text(),
                    actors,
                })
            },
        )
    }

    fn kinds() -> impl Strategy<Value = Kind> {
        let aggregates = (any::<i64>(), ".{0,20}", ".{0,20}", any::<u64>(), any::<i32>());
        let gaps = any::<[u64; 5]>();
        let chains = (prop::collection::vec(any::<u8>(), 0..200), principals());
        prop_oneof![
            events(),
            aggregates.prop_map(
                |(second, rule, reason, count, decision)| Kind::Aggregate(v1::Aggregate {
                    second,
                    rule,
                    reason,
                    count,
                    decision,
                    mode: decision,
                    principal: (count % 2 == 1).then(|| v1::Principal {
                        issuer: "https://id".to_owned(),
                        subject: (second % 2 == 1).then(|| "alice".to_owned()),
                    }),
                })
            ),
            gaps.prop_map(|[shed, first, last, shed_counts, shed_chains]| Kind::Gap(v1::Gap {
                shed,
                first_time_unix_nano: first,
                last_time_unix_nano: last,
                shed_counts,
                shed_chains,
            })),
            chains.prop_map(|(chain, principal)| Kind::Chain(v1::PresentedChain { chain, principal })),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn what_clients_encode_reads_as_it_decodes(kind in kinds()) {
            let encoded = encode(kind.clone());
            let view = EntryView::parse(&encoded).unwrap();
            prop_assert_eq!(decoded(&view), v1::Entry { entry: Some(kind) });
        }

        /// Bytes are changed, removed, doubled and inserted. If the result can be read at all, it reads as it decodes.
        #[test]
        fn damaged_bytes_read_as_they_decode_or_not_at_all(
            kind in kinds(),
            edits in prop::collection::vec((any::<prop::sample::Index>(), 0..4, any::<u8>()), 1..6),
        ) {
            let mut encoded = encode(kind);
            for (place, edit, byte) in edits {
                let at = place.index(encoded.len().max(1)).min(encoded.len().saturating_sub(1));
                match edit {
                    0 if !encoded.is_empty() => encoded[at] = byte,
                    1 if !encoded.is_empty() => drop(encoded.remove(at)),
                    2 => encoded.insert(at, byte),
                    _ => encoded.extend_from_within(at..),
                }
            }
            if let Ok(view) = EntryView::parse(&encoded) {
                prop_assert_eq!(v1::Entry::decode(encoded.as_slice()).unwrap(), decoded(&view));
            }
        }

        #[test]
        fn any_bytes_read_as_they_decode_or_not_at_all(encoded in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(view) = EntryView::parse(&encoded) {
                prop_assert_eq!(v1::Entry::decode(encoded.as_slice()).unwrap(), decoded(&view));
            }
        }
    }

    #[test]
    fn an_entry_with_fields_of_a_newer_client_is_accepted() {
        let newer = |field: u8| [vec![field << 3 | 2, 3], b"new".to_vec()].concat();
        let mut entry = event(|_| {});
        entry.extend(newer(15));
        EntryView::parse(&entry).unwrap();
        // Field 30 of an aggregate, whose key takes two bytes.
        let aggregate = [0xf2, 0x01, 3, b'n', b'e', b'w'];
        let entry = [&[0x12, aggregate.len() as u8][..], &aggregate].concat();
        assert!(matches!(
            EntryView::parse(&entry).unwrap().kind,
            EntryKind::Aggregate(_)
        ));
    }

    #[test]
    fn each_part_of_an_event_is_bounded() {
        let cases = [
            (event(|event| event.delegation_ids.push(String::new())), "more than 9"),
            (event(|event| event.delegation_ids[8].push('d')), "delegation id"),
            (event(|event| event.tool = "t".repeat(1025)), "a text"),
            (event(|event| event.arguments_hash = vec![0; 1025]), "a text"),
            (event(|event| event.arguments = vec![0; 4097]), "4096 bytes"),
            (event(|event| event.chain_digest = vec![0; 31]), "32 bytes"),
            (
                event(|event| event.principal.get_or_insert_default().subject = Some("s".repeat(257))),
                "a subject",
            ),
            (
                event(|event| event.principal.get_or_insert_default().issuer = "i".repeat(1025)),
                "a text",
            ),
            (Vec::new(), "does not know"),
            ([event(|_| {}), event(|_| {})].concat(), "more than one kind"),
        ];
        for (entry, reason) in cases {
            assert!(refused(&entry).contains(reason), "{}", refused(&entry));
        }
        EntryView::parse(&event(|_| {})).unwrap();
    }

    #[test]
    fn entries_are_bounded_and_chains_have_a_bound_of_their_own() {
        let long = [event(|_| {}), vec![0x7a, 0xff, 0x7f], vec![0; 16383]].concat();
        assert!(refused(&long).contains("16384"));
        let chain = |bytes| {
            encode(Kind::Chain(v1::PresentedChain {
                chain: vec![b'c'; bytes],
                principal: None,
            }))
        };
        EntryView::parse(&chain(60_000)).unwrap();
        assert!(refused(&chain(60_001)).contains("60000"));
        assert!(refused(&chain(70_000)).contains("62000"));
    }

    #[test]
    fn a_batch_is_read_as_it_decodes() {
        let entries = vec![v1::Entry::decode(event(|_| {}).as_slice()).unwrap(); 3];
        let batch = v1::Batch {
            first_sequence: 300,
            entries: entries.clone(),
        };
        let encoded = batch.encode_to_vec();
        let view = BatchView::of(&encoded);
        assert_eq!(view.first_sequence(), Ok(300));
        let read = view.entries().map(|entry| v1::Entry::decode(entry.unwrap()).unwrap());
        assert_eq!(read.collect::<Vec<_>>(), entries);
        let cut = BatchView::of(&encoded[..encoded.len() - 1]);
        assert!(cut.entries().last().unwrap().is_err());
        assert_eq!(cut.entries().count(), 3);
    }

    #[test]
    fn a_text_is_utf_8_or_the_entry_is_malformed() {
        let entry = [0x12, 4, 0x12, 2, 0xc3, 0x28];
        assert_eq!(EntryView::parse(&entry).unwrap_err(), EntryError::Malformed);
    }

    #[test]
    fn a_chains_digest_is_the_hash_of_its_tokens_hashes() {
        let token = |text: &[u8]| digest(&SHA256, text).as_ref().to_vec();
        let expected = token(&[token(b"root"), token(b"leaf")].concat());
        let chain = ChainView {
            chain: b"root~leaf",
            principal: None,
        };
        assert_eq!(chain.digest().as_slice(), expected);
    }
}
