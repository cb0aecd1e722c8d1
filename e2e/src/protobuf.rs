//! The Protocol Buffers encoding: the parts that the stand-in needs.

/// A message being written, field by field in the order of their numbers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Message(Vec<u8>);

/// A message being read. Malformed fields are skipped.
#[derive(Debug)]
pub(crate) struct Fields<'a>(&'a [u8]);

enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

// === impl Message ===

impl Message {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// A number; 0 is omitted, as the encoding requires.
    pub(crate) fn number(mut self, field: u32, value: u64) -> Self {
        if value != 0 {
            self.varint(u64::from(field) << 3);
            self.varint(value);
        }
        self
    }

    /// A number of eight bytes.
    pub(crate) fn fixed(mut self, field: u32, value: u64) -> Self {
        self.varint(u64::from(field) << 3 | EIGHT_BYTES);
        self.and_encoded(&value.to_le_bytes())
    }

    pub(crate) fn bytes(mut self, field: u32, value: &[u8]) -> Self {
        self.varint(u64::from(field) << 3 | LENGTH_DELIMITED);
        self.varint(value.len() as u64);
        self.and_encoded(value)
    }

    pub(crate) fn message(self, field: u32, message: &Self) -> Self {
        self.bytes(field, &message.0)
    }

    /// Further fields, already encoded.
    pub(crate) fn and_encoded(mut self, fields: &[u8]) -> Self {
        self.0.extend_from_slice(fields);
        self
    }

    pub(crate) fn encoded(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

// === impl Fields ===

impl<'a> Fields<'a> {
    pub(crate) fn of(message: &'a [u8]) -> Self {
        Self(message)
    }

    /// The number in this field; 0 if there is none.
    pub(crate) fn number(&self, field: u32) -> u64 {
        match self.find(field) {
            Some(Value::Number(number)) => number,
            Some(Value::Bytes(_)) | None => 0,
        }
    }

    pub(crate) fn bytes(&self, field: u32) -> Option<&'a [u8]> {
        match self.find(field)? {
            Value::Bytes(bytes) => Some(bytes),
            Value::Number(_) => None,
        }
    }

    fn find(&self, field: u32) -> Option<Value<'a>> {
        let mut rest = self.0;
        loop {
            let key = take_varint(&mut rest)?;
            let value = if key & 7 == LENGTH_DELIMITED {
                let length = take_varint(&mut rest)?;
                let (bytes, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
                rest = after;
                Value::Bytes(bytes)
            } else {
                Value::Number(take_varint(&mut rest)?)
            };
            if key >> 3 == u64::from(field) {
                return Some(value);
            }
        }
    }
}

fn take_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

const EIGHT_BYTES: u64 = 1;
const LENGTH_DELIMITED: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        let inner = Message::new().number(1, u64::MAX).number(2, 0).bytes(3, b"");
        let outer = Message::new().number(7, 300).message(16, &inner);
        assert_eq!(
            outer.encoded()[..3],
            [0x38, 0xac, 0x02],
            "as the specification's example has it"
        );
        let outer = Fields::of(outer.encoded());
        assert_eq!((outer.number(7), outer.number(8)), (300, 0));
        let inner = Fields::of(outer.bytes(16).unwrap());
        assert_eq!(inner.number(1), u64::MAX);
        assert_eq!(inner.bytes(3), Some(&b""[..]));
        assert_eq!(inner.bytes(2), None);
    }
}
