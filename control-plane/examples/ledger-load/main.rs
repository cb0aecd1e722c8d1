//! The clients of `loadtest/bench-ledger`: sources that report evidence, and a check of the ledger afterwards.
//!
//! ```text
//! ledger-load send ADDRESS SOURCES RATE WARM_UP SECONDS   SOURCES together report RATE events a second (0: as many as
//!                                                         possible), first to warm up, then measured
//! ledger-load check DATA_DIR SOURCE=THROUGH...            checks that a ledger without a running control plane has each
//!                                                         source's entries up to THROUGH, once
//! ```
//!
//! `send` prints `measuring` and `measured` at the start and the end of the measurement. The last line of both commands
//! is one JSON object.

#![allow(clippy::print_stdout, reason = "its output is for the benchmark")]

mod check;
mod events;
mod source;

use std::error::Error;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use events::{EntryWriter, Traffic};
use source::{Pace, Schedule, Sent, Source};

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["send", address, sources, rate, warm_up, seconds] => send(
            address.parse()?,
            sources.parse()?,
            rate.parse()?,
            Duration::from_secs(warm_up.parse()?),
            Duration::from_secs(seconds.parse()?),
        ),
        ["check", folder, sources @ ..] => check::check(folder.as_ref(), sources),
        _ => Err("ledger-load send ADDRESS SOURCES RATE WARM_UP SECONDS, or \
                  ledger-load check DATA_DIR SOURCE=THROUGH..."
            .into()),
    }
}

/// One thread serves all sources, since its time is missing to the measured server.
#[tokio::main(flavor = "current_thread")]
async fn send(
    address: SocketAddr,
    sources: u32,
    rate: u32,
    warm_up: Duration,
    measured: Duration,
) -> Result<(), Failure> {
    let traffic = Rc::new(Traffic::new(PRINCIPALS));
    let bytes_per_event = EntryWriter::new(Rc::clone(&traffic), 0, 1).mean_event_bytes()?;
    let begin = Instant::now();
    let schedule = Schedule {
        measured_from: begin + warm_up,
        measured_until: begin + warm_up + measured,
    };
    let between = (rate > 0).then(|| Duration::from_secs(1) * sources * BATCH_ENTRIES / rate);
    let tasks = tokio::task::LocalSet::new();
    let sending: Vec<_> = (0..sources)
        .map(|number| {
            let entries = EntryWriter::new(Rc::clone(&traffic), number, sources);
            // Filters do not report at the same times.
            let pace = between.map(|between| Pace {
                first: begin + between * number / sources,
                between,
            });
            tasks.spawn_local(async move {
                let source = Source::open(address, number).await?;
                source.send(entries, BATCH_ENTRIES, pace, schedule).await
            })
        })
        .collect();
    let marks = tasks.spawn_local(async move {
        for (instant, word) in [
            (schedule.measured_from, "measuring"),
            (schedule.measured_until, "measured"),
        ] {
            tokio::time::sleep_until(instant.into()).await;
            println!("{word}");
        }
    });
    let sent = tasks
        .run_until(async {
            let mut sent = Vec::new();
            for source in sending {
                sent.push(source.await??);
            }
            marks.await?;
            Ok::<_, Failure>(sent)
        })
        .await?;
    println!("{}", summary(sent, measured, bytes_per_event));
    Ok(())
}

fn summary(sent: Vec<Sent>, measured: Duration, encoded_bytes: f64) -> String {
    let acknowledged: u64 = sent.iter().map(|source| source.acknowledged_while_measured).sum();
    let each_worst = sent.iter().map(|source| percentile(&source.latencies, 0.99));
    let worst_source = each_worst.max().unwrap_or_default();
    let through: serde_json::Map<_, _> = sent
        .iter()
        .map(|source| (source.name.clone(), source.acknowledged.into()))
        .collect();
    let (mut latencies, mut delays) = (Vec::new(), Vec::new());
    for source in sent {
        latencies.extend(source.latencies);
        delays.extend(source.delays);
    }
    let ms = |time: Duration| (time.as_secs_f64() * 10_000.0).round() / 10.0;
    serde_json::json!({
        "events_per_s": (acknowledged as f64 / measured.as_secs_f64()).round(),
        "seconds": measured.as_secs(),
        "ack_p50_ms": ms(percentile(&latencies, 0.5)),
        "ack_p99_ms": ms(percentile(&latencies, 0.99)),
        "ack_max_ms": ms(percentile(&latencies, 1.0)),
        "ack_p99_ms_of_the_worst_source": ms(worst_source),
        "send_delay_p99_ms": ms(percentile(&delays, 0.99)),
        "encoded_bytes_per_event": (encoded_bytes * 10.0).round() / 10.0,
        "sources": through,
    })
    .to_string()
}

fn percentile(times: &[Duration], part: f64) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    let at = (times.len() as f64 * part) as usize;
    times.get(at).or(times.last()).copied().unwrap_or_default()
}

/// The control plane's default limit of a batch.
const BATCH_ENTRIES: u32 = 1_000;
const PRINCIPALS: u32 = 100_000;
