//! HTTP/1.1 messages (RFC 9112): as much as a client that may send invalid requests needs, and a service that only
//! Envoy connects to.

use std::io::{self, BufRead, Read};

/// A request or a response.
#[derive(Debug, Clone, Default)]
pub(crate) struct Message {
    /// `GET / HTTP/1.1` or `HTTP/1.1 200 OK`.
    pub(crate) start: String,
    /// In order, as written. Bytes beyond ASCII become U+FFFD.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// The trailers of a chunked body, likewise.
    pub(crate) trailers: Vec<(String, String)>,
}

impl Message {
    /// Reads a request; `None` if the client has closed the connection instead.
    pub(crate) fn read_request(reader: &mut impl BufRead) -> io::Result<Option<Self>> {
        if reader.fill_buf()?.is_empty() {
            return Ok(None);
        }
        let mut message = Self::read_head(reader)?;
        message.read_body(reader, false)?;
        Ok(Some(message))
    }

    /// Reads the response to a request that was not a HEAD.
    pub(crate) fn read_response(reader: &mut impl BufRead) -> io::Result<Self> {
        let mut message = Self::read_head(reader)?;
        let status = message.start.split(' ').nth(1).unwrap_or_default();
        let has_body = !(status.starts_with('1') || status == "204" || status == "304");
        if has_body {
            message.read_body(reader, true)?;
        }
        Ok(message)
    }

    /// The first header of that name; letter case is ignored.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(other, _)| other.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    fn read_head(reader: &mut impl BufRead) -> io::Result<Self> {
        Ok(Self {
            start: line(reader)?,
            headers: fields(reader)?,
            ..Self::default()
        })
    }

    /// A response without a length lasts until the connection is closed.
    fn read_body(&mut self, reader: &mut impl BufRead, is_response: bool) -> io::Result<()> {
        if self
            .header("transfer-encoding")
            .is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"))
        {
            loop {
                let size = line(reader)?;
                let size = size.split(';').next().unwrap_or_default().trim();
                let size = u64::from_str_radix(size, 16).map_err(|_| malformed("a chunk without a size"))?;
                if size == 0 {
                    self.trailers = fields(reader)?;
                    return Ok(());
                }
                reader.by_ref().take(size).read_to_end(&mut self.body)?;
                line(reader)?;
            }
        }
        match self.header("content-length").map(str::parse) {
            Some(Ok(length)) => {
                let read = reader.by_ref().take(length).read_to_end(&mut self.body)?;
                if read as u64 == length {
                    Ok(())
                } else {
                    Err(io::ErrorKind::UnexpectedEof.into())
                }
            }
            Some(Err(_)) => Err(malformed("a content-length that is not a number")),
            None if is_response => reader.read_to_end(&mut self.body).map(|_| ()),
            None => Ok(()),
        }
    }
}

/// Headers or trailers, up to the empty line that ends them.
fn fields(reader: &mut impl BufRead) -> io::Result<Vec<(String, String)>> {
    let mut fields = Vec::new();
    loop {
        let line = line(reader)?;
        if line.is_empty() {
            return Ok(fields);
        }
        let (name, value) = line
            .split_once(':')
            .ok_or_else(|| malformed("a header without a colon"))?;
        fields.push((name.to_owned(), value.trim().to_owned()));
    }
}

fn line(reader: &mut impl BufRead) -> io::Result<String> {
    let mut bytes = Vec::new();
    reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut bytes)?;
    match bytes.strip_suffix(b"\r\n") {
        Some(line) => Ok(String::from_utf8_lossy(line).into_owned()),
        None if bytes.is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
        None => Err(malformed("a line without an end")),
    }
}

fn malformed(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

const MAX_LINE_BYTES: u64 = 1 << 20;
