//! A stream of server-sent events, as it passes: ids get seals, and messages may be read.
//!
//! Lines pass as they come, except those that are changed. A line, or an event, that never ends holds no more than a
//! limit of memory. All ends of lines become `\n`, which means the same.

/// What happens to ids and messages in a stream.
pub(super) trait Rewrite {
    /// The id for the client; `None` if it gets none.
    fn id(&mut self, id: &str) -> Option<String>;
    /// Whether messages are read.
    fn reads_messages(&self) -> bool;
    /// Whether a message passes unread that is longer than the limit.
    fn passes_unread(&self) -> bool;
    /// The message for the client.
    fn message(&mut self, message: Vec<u8>) -> Vec<u8>;
}

/// A stream that has not ended.
#[derive(Debug, Default)]
pub(super) struct EventStream {
    /// The beginning of the present line, unless that passes.
    held: Vec<u8>,
    /// Whether the rest of the present line passes.
    is_passing: bool,
    /// Whether the first line has ended.
    has_begun: bool,
    /// Whether the last byte was a carriage return, so that a line feed belongs to it.
    after_return: bool,
    /// The lines of the present event's message, each with its end, if messages are read.
    message: Vec<u8>,
    /// Whether the rest of the present event's message passes unread.
    is_unread: bool,
}

/// A line or a message is longer than a limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

impl EventStream {
    /// What the client gets of a piece.
    pub(super) fn pass(&mut self, piece: &[u8], limit: usize, to: &mut dyn Rewrite) -> Result<Vec<u8>, TooLong> {
        let mut out = Vec::with_capacity(piece.len());
        let mut rest = piece;
        while let Some(first) = rest.first() {
            if std::mem::take(&mut self.after_return) && *first == b'\n' {
                rest = rest.get(1..).unwrap_or_default();
                continue;
            }
            let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let (part, after) = rest.split_at_checked(end.unwrap_or(rest.len())).unwrap_or((rest, &[]));
            self.add(part, limit, to, &mut out)?;
            if let Some((last, after)) = after.split_first() {
                self.after_return = *last == b'\r';
                self.end_line(limit, to, &mut out)?;
                rest = after;
            } else {
                rest = after;
            }
        }
        Ok(out)
    }

    fn add(&mut self, part: &[u8], limit: usize, to: &dyn Rewrite, out: &mut Vec<u8>) -> Result<(), TooLong> {
        if self.is_passing {
            out.extend_from_slice(part);
            return Ok(());
        }
        self.held.extend_from_slice(part);
        let mark = if self.has_begun { 0 } else { MARK.len() };
        let field = self.field();
        let is_data = field.starts_with(DATA);
        let is_changed = field.starts_with(ID) || (to.reads_messages() && !self.is_unread && is_data);
        if !is_changed && self.held.len() >= DATA.len().saturating_add(mark) {
            out.append(&mut self.held);
            self.is_passing = true;
        }
        let is_too_long = |events: &Self| events.held.len().saturating_add(events.message.len()) > limit;
        if is_too_long(self) && to.passes_unread() {
            self.leave_unread(out);
        }
        match is_too_long(self) {
            true if is_data && to.passes_unread() => {
                out.append(&mut self.held);
                self.is_passing = true;
                Ok(())
            }
            true => Err(TooLong),
            false => Ok(()),
        }
    }

    /// The message so far, and the rest of it, pass.
    fn leave_unread(&mut self, out: &mut Vec<u8>) {
        self.is_unread = true;
        let mut message = std::mem::take(&mut self.message);
        if message.pop().is_some() {
            write_lines(&message, out);
        }
    }

    /// The present line, without the mark that a stream may begin with.
    fn field(&self) -> &[u8] {
        let unmarked = self.held.strip_prefix(MARK).filter(|_| !self.has_begun);
        unmarked.unwrap_or(&self.held)
    }

    fn end_line(&mut self, limit: usize, to: &mut dyn Rewrite, out: &mut Vec<u8>) -> Result<(), TooLong> {
        if std::mem::take(&mut self.is_passing) {
            self.has_begun = true;
            out.push(b'\n');
            return Ok(());
        }
        let line = self.field().to_vec();
        self.held.clear();
        self.has_begun = true;
        match Field::of(&line) {
            Field::None => {
                let message = std::mem::take(&mut self.message);
                if !message.is_empty() {
                    write_message(message, to, out);
                }
                self.is_unread = false;
                out.push(b'\n');
            }
            Field::Id(id) => {
                let id = std::str::from_utf8(id).ok();
                let sealed = match id {
                    Some("") => Some(String::new()),
                    id => id.and_then(|id| to.id(id)),
                };
                if let Some(sealed) = sealed {
                    out.extend_from_slice(&[b"id: ", sealed.as_bytes(), b"\n"].concat());
                }
            }
            Field::Data(data) if to.reads_messages() && !self.is_unread => {
                self.message.extend_from_slice(data);
                self.message.push(b'\n');
                match self.message.len() > limit {
                    true if to.passes_unread() => self.leave_unread(out),
                    true => return Err(TooLong),
                    false => {}
                }
            }
            Field::Data(_) | Field::Other => out.extend_from_slice(&[&line, &b"\n"[..]].concat()),
        }
        Ok(())
    }
}

fn write_message(mut message: Vec<u8>, to: &mut dyn Rewrite, out: &mut Vec<u8>) {
    // The end of the last line is none of the message.
    message.pop();
    write_lines(&to.message(message), out);
}

fn write_lines(message: &[u8], out: &mut Vec<u8>) {
    for line in message.split(|byte| *byte == b'\n') {
        out.extend_from_slice(&[b"data: ", line, b"\n"].concat());
    }
}

/// A line.
enum Field<'l> {
    /// The end of an event.
    None,
    Id(&'l [u8]),
    Data(&'l [u8]),
    Other,
}

impl<'l> Field<'l> {
    /// By the WHATWG's standard: a colon, and one space if it is there.
    fn of(line: &'l [u8]) -> Self {
        let value = |value: &'l [u8]| value.strip_prefix(b" ").unwrap_or(value);
        match line {
            b"" => Self::None,
            b"id" => Self::Id(b""),
            b"data" => Self::Data(b""),
            line => match (line.strip_prefix(ID), line.strip_prefix(DATA)) {
                (Some(id), _) => Self::Id(value(id)),
                (_, Some(data)) => Self::Data(value(data)),
                _ => Self::Other,
            },
        }
    }
}

const ID: &[u8] = b"id:";
const DATA: &[u8] = b"data:";
/// A stream may begin with it, and clients skip it.
const MARK: &[u8] = "\u{feff}".as_bytes();

#[cfg(test)]
mod tests {
    use super::*;

    /// Puts ids in brackets, drops those with an x, and writes messages in capitals.
    struct Marked {
        reads_messages: bool,
        passes_unread: bool,
    }

    impl Rewrite for Marked {
        fn id(&mut self, id: &str) -> Option<String> {
            (!id.contains('x')).then(|| format!("[{id}]"))
        }
        fn reads_messages(&self) -> bool {
            self.reads_messages
        }
        fn passes_unread(&self) -> bool {
            self.passes_unread
        }
        fn message(&mut self, message: Vec<u8>) -> Vec<u8> {
            message.to_ascii_uppercase()
        }
    }

    /// The same for every way to cut the stream in two, and byte by byte.
    fn passed(stream: &str, reads_messages: bool) -> String {
        let marked = || Marked {
            reads_messages,
            passes_unread: true,
        };
        let passed_in = |pieces: &[&[u8]]| {
            let mut events = EventStream::default();
            let mut out = Vec::new();
            for piece in pieces {
                out.extend(events.pass(piece, 100, &mut marked()).unwrap());
            }
            String::from_utf8(out).unwrap()
        };
        let bytes = stream.as_bytes();
        let whole = passed_in(&[bytes]);
        for cut in 0..bytes.len() {
            assert_eq!(passed_in(&[&bytes[..cut], &bytes[cut..]]), whole, "{stream:?} at {cut}");
        }
        assert_eq!(passed_in(&bytes.chunks(1).collect::<Vec<_>>()), whole);
        whole
    }

    #[test]
    fn ids_are_rewritten_whatever_ends_their_lines() {
        for end in ["\n", "\r\n", "\r"] {
            let stream = ["id: 1", "data: a", "", "id:2", ": id: 3", "idx: 4", "Id: 5", "id", ""].join(end);
            assert_eq!(
                passed(&stream, false),
                "id: [1]\ndata: a\n\nid: [2]\n: id: 3\nidx: 4\nId: 5\nid: \n"
            );
        }
        assert_eq!(passed("id: x\nid:  6\n", false), "id: [ 6]\n");
    }

    #[test]
    fn a_mark_at_the_beginning_hides_no_id() {
        assert_eq!(
            passed("\u{feff}id: 1\n\u{feff}id: 2\n", false),
            "id: [1]\n\u{feff}id: 2\n"
        );
        assert_eq!(passed("\u{feff}\ndata:\n", true), "\n");
        assert_eq!(passed("\u{feff}event: a\n", false), "\u{feff}event: a\n");
    }

    #[test]
    fn messages_are_read_whole() {
        let stream = "event: message\ndata: a\ndata:b\nid: 1\ndata\n\n: c\n\ndata: never ends";
        assert_eq!(
            passed(stream, true),
            "event: message\nid: [1]\ndata: A\ndata: B\ndata: \n\n: c\n\n"
        );
        assert_eq!(
            passed("data:\n\n", true),
            "data: \n\n",
            "an event without a message has an id for the client"
        );
    }

    #[test]
    fn no_line_and_no_message_holds_more_than_the_limit() {
        let long = "y".repeat(101);
        let whole = |reads_messages, stream: &str| {
            let stream = stream.as_bytes();
            let mut marked = Marked {
                reads_messages,
                passes_unread: false,
            };
            EventStream::default().pass(stream, 100, &mut marked)
        };
        assert_eq!(whole(false, &format!("id: {long}")), Err(TooLong));
        assert_eq!(whole(true, &format!("data: {long}")), Err(TooLong));
        assert_eq!(whole(true, &"data: 0123456789\n".repeat(10)), Err(TooLong));
        for long in [
            format!("data: {long}\n"),
            "data: 0123456789\n".repeat(10),
            format!("data: x\ndata: {long}\n"),
        ] {
            let passed = passed(&format!("{long}data: x\n\ndata: y\n\n"), true);
            assert_eq!(passed, format!("{long}data: x\n\ndata: Y\n\n"));
        }
        // An id after a long message is no reason to end the stream.
        let almost = "y".repeat(95);
        assert_eq!(
            passed(&format!("data: {almost}\nid: 1234567\n\n"), true),
            format!("data: {almost}\nid: [1234567]\n\n")
        );
        assert!(whole(false, &format!("data: {long}\nevent: {long}")).is_ok());
        assert!(whole(true, &"data: 0123456789\n\n".repeat(10)).is_ok());
    }
}
