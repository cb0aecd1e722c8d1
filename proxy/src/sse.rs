//! Server-sent events (HTML, section 9.2), as far as MCP uses them: the data of messages.

/// Collects the data of events.
#[derive(Debug)]
pub(crate) struct Events {
    line: Vec<u8>,
    data: Option<Vec<u8>>,
    max_bytes: usize,
    /// A line end of two bytes may be in two parts.
    ended_by_return: bool,
}

// === impl Events ===

impl Events {
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self {
            line: Vec::new(),
            data: None,
            max_bytes,
            ended_by_return: false,
        }
    }

    /// Takes the next bytes. Returns the data of the events that are complete.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut complete = Vec::new();
        for byte in bytes {
            let follows_return = std::mem::replace(&mut self.ended_by_return, *byte == b'\r');
            match byte {
                b'\n' if follows_return => {}
                b'\n' | b'\r' => complete.extend(self.end_line()),
                byte => self.line.push(*byte),
            }
        }
        complete
    }

    /// Whether an event is longer than it may be.
    pub(crate) fn is_too_long(&self) -> bool {
        self.line.len().saturating_add(self.data.as_ref().map_or(0, Vec::len)) > self.max_bytes
    }

    fn end_line(&mut self) -> Option<Vec<u8>> {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            return self.data.take().filter(|data| !data.is_empty());
        }
        if let Some(value) = line.strip_prefix(b"data:") {
            let value = value.strip_prefix(b" ").unwrap_or(value);
            match &mut self.data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend(value);
                }
                None => self.data = Some(value.to_vec()),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(parts: &[&str]) -> Vec<String> {
        let mut events = Events::new(1_000);
        let all = parts.iter().flat_map(|part| events.push(part.as_bytes()));
        all.map(|data| String::from_utf8(data).unwrap()).collect()
    }

    #[test]
    fn events_end_with_an_empty_line_however_they_are_cut() {
        let text = ": hello\r\nid: 1\r\nevent: message\r\ndata: {\"a\":\r\ndata:1}\r\n\r\ndata: x\n\ndata: y\r\rid: 3\n\ndata: z";
        let expected = ["{\"a\":\n1}", "x", "y"];
        assert_eq!(read(&[text]), expected);
        let bytes: Vec<&str> = text.split("").filter(|part| !part.is_empty()).collect();
        assert_eq!(read(&bytes), expected);
    }

    #[test]
    fn a_long_event_is_noticed() {
        let mut events = Events::new(8);
        events.push(b"data: 123456789");
        assert!(events.is_too_long());
    }
}
