//! The clients of `loadtest/bench-log`: they fill a large log, and pull its snapshot on many streams.
//!
//! ```text
//! log-load fill DIR SUBJECTS              a data folder in which so many principals have been raised, and some of them
//!                                         again, until one more would have the log compacted
//! log-load pull ADDRESS LOG_ID STREAMS    so many streams at once, each of which pulls one whole snapshot
//! ```

#![allow(clippy::print_stdout, reason = "its output is for the benchmark")]

use std::error::Error;
use std::path::Path;

use credence_wire::v1;
use credence_wire::v1::revocation_service_client::RevocationServiceClient;
use credence_wire::v1::watch_request::Message as Request;
use credence_wire::v1::watch_response::Message as Answer;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["fill", folder, subjects] => {
            let entries = credence_control_plane::fill_log_to_the_brim(Path::new(folder), ISSUER, subjects.parse()?)?;
            println!("{entries}");
            Ok(())
        }
        ["pull", address, log_id, streams] => {
            let pulls: Vec<_> = (0..streams.parse()?)
                .map(|_| tokio::spawn(pull((*address).to_owned(), (*log_id).to_owned())))
                .collect();
            let mut bytes = 0;
            for pull in pulls {
                bytes += pull.await??;
            }
            println!("{bytes}");
            Ok(())
        }
        _ => Err("log-load fill DIR SUBJECTS, or log-load pull ADDRESS LOG_ID STREAMS".into()),
    }
}

/// Pulls one snapshot, chunk after chunk as a filter does. Returns its number of records.
async fn pull(address: String, log_id: String) -> Result<usize, Box<dyn Error + Send + Sync>> {
    let mut client = RevocationServiceClient::connect(format!("http://{address}")).await?;
    let (requests, queue) = mpsc::channel(4);
    let say = |message| v1::WatchRequest { message: Some(message) };
    let hello = v1::WatchHello {
        log_id,
        node: "bench".to_owned(),
        ..Default::default()
    };
    requests.send(say(Request::Hello(hello))).await?;
    let mut answers = client.watch(ReceiverStream::new(queue)).await?.into_inner();
    let mut chunks = 0;
    let mut pulled = 0;
    let mut records = 0;
    while let Some(answer) = answers.message().await? {
        match answer.message {
            Some(Answer::Welcome(welcome)) => chunks = welcome.snapshot.map_or(0, |snapshot| snapshot.chunks),
            Some(Answer::Chunk(chunk)) => {
                records += chunk.records.len();
                pulled += 1;
            }
            _ => continue,
        }
        if pulled == chunks {
            return Ok(records);
        }
        // If the control plane has ended the stream, the request fails; the last answer says why.
        let pull = say(Request::Pull(v1::PullChunk { index: pulled }));
        let _ = requests.send(pull).await;
    }
    Err("the stream ended before its snapshot was pulled".into())
}

const ISSUER: &str = "https://id.example.com";
