//! The parts of gRPC and Protocol Buffers that the tests need to read the control plane's streams.

use bytes::{Buf as _, Bytes, BytesMut};
use h2::RecvStream;

/// The messages of a gRPC stream, in order.
#[derive(Debug)]
pub(crate) struct Messages {
    body: RecvStream,
    arrived: BytesMut,
}

// === impl Messages ===

impl Messages {
    pub(crate) fn of(body: RecvStream) -> Self {
        Self {
            body,
            arrived: BytesMut::new(),
        }
    }

    /// The next message; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, h2::Error> {
        loop {
            if let Some(message) = self.take() {
                return Ok(Some(message));
            }
            let Some(part) = self.body.data().await else {
                return Ok(None);
            };
            let part = part?;
            self.body.flow_control().release_capacity(part.len())?;
            self.arrived.extend_from_slice(&part);
        }
    }

    /// The trailers.
    pub(crate) async fn trailers(&mut self) -> Result<Option<http::HeaderMap>, h2::Error> {
        self.body.trailers().await
    }

    fn take(&mut self) -> Option<Bytes> {
        let length = self.arrived.get(1..PREFIX_BYTES)?;
        let length = length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        if self.arrived.len() < PREFIX_BYTES + length {
            return None;
        }
        self.arrived.advance(PREFIX_BYTES);
        Some(self.arrived.split_to(length).freeze())
    }
}

/// A field of bytes. The field number must be below 16.
pub(crate) fn bytes_field(number: u8, content: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2], &varint(content.len() as u64)[..], content].concat()
}

/// A field with a number. The field number must be below 16.
pub(crate) fn number_field(number: u8, value: u64) -> Vec<u8> {
    [&[number << 3], &varint(value)[..]].concat()
}

/// The number of a message's first field; with a `oneof`, its only one.
pub(crate) fn first_field(message: &[u8]) -> Option<u64> {
    Some(read_varint(&mut &message[..])? >> 3)
}

/// The last bytes field of this number.
pub(crate) fn find_bytes(mut message: &[u8], number: u64) -> Option<&[u8]> {
    let mut found = None;
    while !message.is_empty() {
        match read_field(&mut message)? {
            (other, Value::Bytes(bytes)) if other == number => found = Some(bytes),
            _ => {}
        }
    }
    found
}

/// The last number field of this number; 0 if there is none, which is the default in Protocol Buffers.
pub(crate) fn find_number(mut message: &[u8], number: u64) -> Option<u64> {
    let mut found = 0;
    while !message.is_empty() {
        match read_field(&mut message)? {
            (other, Value::Number(value)) if other == number => found = value,
            _ => {}
        }
    }
    Some(found)
}

enum Value<'m> {
    Number(u64),
    Bytes(&'m [u8]),
}

fn read_field<'m>(message: &mut &'m [u8]) -> Option<(u64, Value<'m>)> {
    let tag = read_varint(message)?;
    match tag & 7 {
        0 => Some((tag >> 3, Value::Number(read_varint(message)?))),
        2 => {
            let length = usize::try_from(read_varint(message)?).ok()?;
            let (bytes, rest) = message.split_at_checked(length)?;
            *message = rest;
            Some((tag >> 3, Value::Bytes(bytes)))
        }
        // The proto files use no other wire types.
        _ => None,
    }
}

fn read_varint(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = message.split_first()?;
        *message = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

const PREFIX_BYTES: usize = 5;
