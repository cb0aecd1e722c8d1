//! Sends requests to an Envoy, at a rate or as fast as they are answered, and prints the result as one JSON object.
//!
//! At a rate, the time of each request is fixed in advance, and its latency counts from that time. So a request that is
//! sent late because earlier answers were slow counts as slow, as it is for independent users. (wrk and most other load
//! generators do not count that delay.) Every latency is kept, so percentiles are exact.

use std::fmt;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use credence_e2e::Failure;

#[allow(clippy::print_stdout, reason = "the result")]
fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let load = Load::from_arguments(&arguments)?;
    // Sleep to the microsecond; threads inherit it. If the kernel does not allow it, every latency is about 50 µs
    // longer.
    let _ = fs::write("/proc/self/timerslack_ns", "1");
    println!("{}", load.run()?);
    Ok(())
}

const USAGE: &str = "usage: paced-load FILE in-turn|random|once RATE SECONDS CONNECTIONS PORT...\n\
    FILE has requests without bodies, one behind the other. RATE is of all connections together, a second; 0: as fast as \
    they are answered. Connections take the ports in turn. `once` ends with the last request of the file at the latest.";

/// A connection that waits longer for an answer is closed.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// The time for all connections to open.
const HEAD_START: Duration = Duration::from_millis(50);

struct Load {
    requests: Requests,
    order: Order,
    /// The time from one request to the next; `None`: as fast as they are answered.
    interval: Option<Duration>,
    duration: Duration,
    connections: usize,
    ports: Vec<u16>,
}

#[derive(Clone, Copy, PartialEq)]
enum Order {
    InTurn,
    Random,
    Once,
}

/// The encoded requests.
struct Requests {
    text: Vec<u8>,
    /// The end of each one.
    ends: Vec<usize>,
}

/// The result.
#[derive(Default)]
struct Outcome {
    /// Of each request, in nanoseconds; sorted at the end.
    latencies: Vec<u64>,
    took: Duration,
}

// === impl Load ===

impl Load {
    fn from_arguments(arguments: &[String]) -> Result<Self, Failure> {
        let [file, order, rate, seconds, connections, ports @ ..] = arguments else {
            return Err(Failure::new(USAGE));
        };
        let order = match order.as_str() {
            "in-turn" => Order::InTurn,
            "random" => Order::Random,
            "once" => Order::Once,
            _ => return Err(Failure::new(USAGE)),
        };
        let rate: f64 = rate.parse().map_err(Failure::of("reading RATE"))?;
        let seconds: f64 = seconds.parse().map_err(Failure::of("reading SECONDS"))?;
        let ports = ports.iter().map(|port| port.parse()).collect::<Result<Vec<u16>, _>>();
        let load = Self {
            requests: Requests::from_file(&PathBuf::from(file))?,
            order,
            interval: (rate > 0.0).then(|| Duration::from_secs_f64(1.0 / rate)),
            duration: Duration::from_secs_f64(seconds),
            connections: connections.parse().map_err(Failure::of("reading CONNECTIONS"))?,
            ports: ports.map_err(Failure::of("reading PORT"))?,
        };
        if load.ports.is_empty() || load.requests.ends.is_empty() {
            return Err(Failure::new(USAGE));
        }
        Ok(load)
    }

    fn run(&self) -> Result<Outcome, Failure> {
        let next = AtomicUsize::new(0);
        let start = Instant::now() + HEAD_START;
        let parts: Vec<Result<Outcome, Failure>> = thread::scope(|scope| {
            let senders: Vec<_> = (0..self.connections)
                .map(|number| {
                    scope.spawn({
                        let next = &next;
                        move || self.send(number, start, next)
                    })
                })
                .collect();
            let joined = senders.into_iter().map(|sender| sender.join());
            joined
                .map(|part| part.unwrap_or_else(|_| Err(Failure::new("a sender has panicked"))))
                .collect()
        });
        let mut outcome = Outcome::default();
        for part in parts {
            outcome.latencies.extend(part?.latencies);
        }
        outcome.took = start.elapsed();
        outcome.latencies.sort_unstable();
        Ok(outcome)
    }

    /// Sends one request after the other on one connection: always the next one that is due.
    fn send(&self, number: usize, start: Instant, next: &AtomicUsize) -> Result<Outcome, Failure> {
        let port = self.ports.get(number % self.ports.len()).copied().unwrap_or_default();
        let mut connection = Connection::open(port)?;
        let mut random = Random::new(number);
        let mut outcome = Outcome::default();
        thread::sleep(start.saturating_duration_since(Instant::now()));
        loop {
            let turn = next.fetch_add(1, Ordering::Relaxed);
            let due = match self.interval {
                Some(interval) => start + interval.mul_f64(turn as f64),
                None => Instant::now(),
            };
            if due.saturating_duration_since(start) >= self.duration {
                return Ok(outcome);
            }
            let index = match self.order {
                Order::Random => random.below(self.requests.ends.len()),
                Order::InTurn => turn % self.requests.ends.len(),
                Order::Once => turn,
            };
            let Some(request) = self.requests.get(index) else {
                return Ok(outcome);
            };
            thread::sleep(due.saturating_duration_since(Instant::now()));
            connection.exchange(request)?;
            let latency = due.elapsed().as_nanos();
            outcome.latencies.push(u64::try_from(latency).unwrap_or(u64::MAX));
        }
    }
}

// === impl Requests ===

impl Requests {
    fn from_file(file: &PathBuf) -> Result<Self, Failure> {
        let text = fs::read(file).map_err(Failure::of(format_args!("reading {}", file.display())))?;
        let ends = (END.len()..=text.len())
            .filter(|&end| text[..end].ends_with(END))
            .collect();
        Ok(Self { text, ends })
    }

    fn get(&self, index: usize) -> Option<&[u8]> {
        let begin = index
            .checked_sub(1)
            .and_then(|before| self.ends.get(before))
            .copied()
            .unwrap_or_default();
        self.text.get(begin..*self.ends.get(index)?)
    }
}

/// Ends the head of a request or a response.
const END: &[u8] = b"\r\n\r\n";

struct Connection(TcpStream);

// === impl Connection ===

impl Connection {
    fn open(port: u16) -> Result<Self, Failure> {
        let attempt = format!("connecting to port {port}");
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map_err(Failure::of(&attempt))?;
        stream.set_nodelay(true).map_err(Failure::of(&attempt))?;
        stream
            .set_read_timeout(Some(ANSWER_LIMIT))
            .map_err(Failure::of(&attempt))?;
        Ok(Self(stream))
    }

    /// Fails unless the answer is 200 without a body, which Envoy itself sends.
    fn exchange(&mut self, request: &[u8]) -> Result<(), Failure> {
        self.0.write_all(request).map_err(Failure::of("sending a request"))?;
        let mut answer = [0; 4096];
        let mut length = 0;
        loop {
            let room = answer.get_mut(length..).unwrap_or_default();
            let read = self.0.read(room).map_err(Failure::of("waiting for an answer"))?;
            length += read;
            let received = answer.get(..length).unwrap_or_default();
            if received.ends_with(END) && received.starts_with(b"HTTP/1.1 200 ") {
                return Ok(());
            }
            if read == 0 || received.windows(END.len()).any(|window| window == END) {
                let what = String::from_utf8_lossy(received);
                return Err(Failure::new(format!(
                    "expected an answer 200 without a body, got {what:?}"
                )));
            }
        }
    }
}

/// Pseudo-random numbers, the same in every run (Marsaglia's xorshift).
struct Random(u64);

// === impl Random ===

impl Random {
    fn new(number: usize) -> Self {
        Self(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(number as u64 + 1))
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

// === impl Outcome ===

impl Outcome {
    /// The latency in milliseconds that this many of a thousand requests did not exceed.
    fn percentile_ms(&self, of_thousand: usize) -> f64 {
        let rank = (self.latencies.len() * of_thousand).div_ceil(1000);
        let latency = self.latencies.get(rank.saturating_sub(1)).copied().unwrap_or_default();
        latency as f64 / 1e6
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let requests = self.latencies.len();
        write!(
            formatter,
            r#"{{"requests": {requests}, "rps": {:.1}, "p50_ms": {:.4}, "p99_ms": {:.4}, "p99_9_ms": {:.4}, "max_ms": {:.4}}}"#,
            requests as f64 / self.took.as_secs_f64(),
            self.percentile_ms(500),
            self.percentile_ms(990),
            self.percentile_ms(999),
            self.percentile_ms(1000),
        )
    }
}
