//! Server-sent events (WHATWG HTML section 9.2.6), the part that the control plane uses.

use std::io::{self, BufRead, Read};

/// One event.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    /// The position after the event, if it has one.
    pub(crate) id: Option<String>,
    pub(crate) name: String,
    pub(crate) data: String,
}

/// Reads the next event; `None` at the end of the stream. Drops an incomplete event at the end, as the specification
/// requires.
pub(crate) fn next(stream: &mut impl BufRead) -> io::Result<Option<Event>> {
    let mut event = Event::default();
    loop {
        let mut line = Vec::new();
        if stream.take(MAX_LINE_BYTES).read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        let Some(line) = line.strip_suffix(b"\n") else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a line does not end"));
        };
        let line = std::str::from_utf8(line.strip_suffix(b"\r").unwrap_or(line))
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "a line is not UTF-8"))?;
        if line.is_empty() {
            if event.data.is_empty() {
                event = Event::default();
                continue;
            }
            return Ok(Some(event));
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => event.id = Some(value.to_owned()),
            "event" => value.clone_into(&mut event.name),
            "data" => event.data += value,
            _ => {}
        }
    }
}

/// Longer than any record: a chain has at most 60,000 bytes, and an escaped byte takes six characters.
const MAX_LINE_BYTES: u64 = 512 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_until_the_stream_ends() {
        let mut stream =
            "retry: 1000\n\n: a comment\nid: log:7\r\nevent: record\r\ndata: {}\n\nevent: alive\ndata:1\n\ndata: cut"
                .as_bytes();
        let event = |id: Option<&str>, name: &str, data: &str| Event {
            id: id.map(str::to_owned),
            name: name.to_owned(),
            data: data.to_owned(),
        };
        assert_eq!(next(&mut stream).unwrap(), Some(event(Some("log:7"), "record", "{}")));
        assert_eq!(next(&mut stream).unwrap(), Some(event(None, "alive", "1")));
        assert!(next(&mut stream).is_err());
        assert_eq!(next(&mut stream).unwrap(), None);
    }

    #[test]
    fn a_line_without_an_end_is_refused() {
        assert!(next(&mut io::BufReader::new(io::repeat(b'x'))).is_err());
    }
}
