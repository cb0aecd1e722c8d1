//! HTTP/2 (RFC 9113), as little of it as several requests on one connection take: what is sent is written out in full,
//! and of what comes back only the bodies are read, which say enough.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::{AUDIENCE, Failure};

/// A connection.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    next_stream: u32,
}

impl Connection {
    /// Opens one, with prior knowledge (section 3.3).
    ///
    /// # Errors
    /// If nobody answers.
    pub fn open(address: SocketAddr) -> Result<Self, Failure> {
        let open = || {
            let mut stream = TcpStream::connect(address)?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")?;
            stream.write_all(&frame(SETTINGS, 0, 0, &[]))?;
            io::Result::Ok(stream)
        };
        let stream = open().map_err(Failure::of(format_args!("opening HTTP/2 to {address}")))?;
        Ok(Self { stream, next_stream: 1 })
    }

    /// Sends a GET with these headers, and returns the number of its stream.
    ///
    /// # Errors
    /// If the other side does not take it.
    pub fn get(&mut self, path: &str, headers: &[(&str, &str)]) -> Result<u32, Failure> {
        let authority = AUDIENCE.trim_start_matches("https://");
        let pseudo = [
            (":method", "GET"),
            (":scheme", "http"),
            (":authority", authority),
            (":path", path),
        ];
        let block: Vec<u8> = pseudo.iter().chain(headers).flat_map(literal).collect();
        let number = self.next_stream;
        self.next_stream += 2;
        self.stream
            .write_all(&frame(HEADERS, END_STREAM | END_HEADERS, number, &block))
            .map_err(Failure::of(format_args!("sending GET {path} over HTTP/2")))?;
        Ok(number)
    }

    /// Gives a request up.
    ///
    /// # Errors
    /// If the other side does not take it.
    pub fn cancel(&mut self, stream: u32) -> Result<(), Failure> {
        const CANCEL: [u8; 4] = 8_u32.to_be_bytes();
        self.stream
            .write_all(&frame(RST_STREAM, 0, stream, &CANCEL))
            .map_err(Failure::of("cancelling a request over HTTP/2"))
    }

    /// Waits for so many whole replies; the body of each, by the number of its stream.
    ///
    /// # Errors
    /// If they do not come.
    pub fn replies(&mut self, count: usize) -> Result<BTreeMap<u32, String>, Failure> {
        let (mut bodies, mut complete) = (BTreeMap::new(), 0);
        while complete < count {
            let (kind, flags, stream, payload) = self.read().map_err(Failure::of("reading HTTP/2 frames"))?;
            match kind {
                SETTINGS if flags & ACK == 0 => {
                    let acknowledged = self.stream.write_all(&frame(SETTINGS, ACK, 0, &[]));
                    acknowledged.map_err(Failure::of("acknowledging HTTP/2 settings"))?;
                }
                HEADERS | DATA => {
                    let body: &mut String = bodies.entry(stream).or_default();
                    if kind == DATA {
                        body.push_str(&String::from_utf8_lossy(&payload));
                    }
                    complete += usize::from(flags & END_STREAM != 0);
                }
                RST_STREAM | GOAWAY => return Err(Failure::new(format!("stream {stream} was reset: {payload:?}"))),
                _ => {}
            }
        }
        Ok(bodies)
    }

    fn read(&mut self) -> io::Result<(u8, u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head)?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.stream.read_exact(&mut payload)?;
        Ok((kind, flags, u32::from_be_bytes(stream) & 0x7fff_ffff, payload))
    }
}

/// Section 4.1.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    // Nothing here comes near the limit of 2^14 bytes.
    let [_, length @ ..] = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
    [&length[..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A field that is neither indexed nor compressed (RFC 7541, section 6.2.2).
fn literal((name, value): &(&str, &str)) -> Vec<u8> {
    [&[0][..], &string(name), &string(value)].concat()
}

/// RFC 7541, sections 5.1 and 5.2.
fn string(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.len();
    if rest < 0x7f {
        bytes.push(rest as u8);
    } else {
        bytes.push(0x7f);
        rest -= 0x7f;
        while rest >= 0x80 {
            bytes.push((rest % 0x80) as u8 | 0x80);
            rest /= 0x80;
        }
        bytes.push(rest as u8);
    }
    bytes.extend(text.as_bytes());
    bytes
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;

const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

const TIMEOUT: Duration = Duration::from_secs(20);
