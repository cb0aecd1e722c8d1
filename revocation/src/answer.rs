//! The messages to revocation streams. Chunks and updates stay encoded, because they are encoded once for all streams.

use bytes::Bytes;
use credence_wire::v1;

/// `credence.v1.WatchResponse` with encoded chunks and updates: on the wire, messages and bytes are the same.
#[derive(Clone, PartialEq, prost::Message)]
pub struct WatchAnswer {
    #[prost(oneof = "Outgoing", tags = "1, 2, 3, 4, 5, 6")]
    pub message: Option<Outgoing>,
}

/// A message to a stream.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Outgoing {
    #[prost(message, tag = "1")]
    Welcome(v1::Welcome),
    /// An encoded `credence.v1.SnapshotChunk`.
    #[prost(bytes = "bytes", tag = "2")]
    Chunk(Bytes),
    /// An encoded `credence.v1.Update`.
    #[prost(bytes = "bytes", tag = "3")]
    Update(Bytes),
    #[prost(message, tag = "4")]
    Pong(v1::Pong),
    #[prost(message, tag = "5")]
    Drain(v1::Drain),
    #[prost(message, tag = "6")]
    CacheKeys(v1::CacheKeys),
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    #[test]
    fn every_answer_is_one_of_the_contract() {
        use v1::watch_response::Message;
        let chunk = v1::SnapshotChunk {
            index: 3,
            records: vec![v1::Record::default()],
        };
        let update = v1::Update {
            position: Some(v1::Position::default()),
            record: Some(v1::Record::default()),
        };
        for (ours, theirs) in [
            (Outgoing::Chunk(chunk.encode_to_vec().into()), Message::Chunk(chunk)),
            (Outgoing::Update(update.encode_to_vec().into()), Message::Update(update)),
            (
                Outgoing::Pong(v1::Pong { id: 1, head: 2 }),
                Message::Pong(v1::Pong { id: 1, head: 2 }),
            ),
        ] {
            let encoded = WatchAnswer { message: Some(ours) }.encode_to_vec();
            let decoded = v1::WatchResponse::decode(encoded.as_slice()).unwrap();
            assert_eq!(decoded.message, Some(theirs));
        }
    }
}
