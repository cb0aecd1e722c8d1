//! Server-sent events (HTML, section 9.2), as far as MCP uses them: the data of messages.

/// Collects the data of events.
#[derive(Debug, Default)]
pub(crate) struct Events {
    line: Vec<u8>,
    data: Option<Vec<u8>>,
    /// A line end of two bytes may be in two parts.
    ended_by_return: bool,
}

// === impl Events ===

impl Events {
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

    /// The bytes of an event that is not complete.
    pub(crate) fn waiting(&self) -> usize {
        self.line.len().saturating_add(self.data.as_ref().map_or(0, Vec::len))
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
        let mut events = Events::default();
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
    fn what_waits_for_its_end_is_counted() {
        let mut events = Events::default();
        events.push(b"data: 1234\ndata: 5");
        assert_eq!(events.waiting(), 11);
        events.push(b"\n\n");
        assert_eq!(events.waiting(), 0);
    }
}
