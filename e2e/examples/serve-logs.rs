//! Serves revocation logs with this many principals each, until its standard input ends. For measurements: filling real
//! logs would take long. Prints their ports and their common log id as one JSON object.

use std::io::{self, Read as _};

use credence_e2e::Failure;
use credence_e2e::stand_in::{Log, StandIn};

#[allow(clippy::print_stdout, reason = "the result")]
fn main() -> Result<(), Failure> {
    let mut served = Vec::new();
    for argument in std::env::args().skip(1) {
        let subjects = argument
            .parse()
            .map_err(Failure::of(format_args!("reading {argument}")))?;
        served.push(StandIn::serve(Log::of_principals(SEQ, subjects))?);
    }
    if served.is_empty() {
        return Err(Failure::new("usage: serve-logs SUBJECTS..."));
    }
    let ports: Vec<u16> = served.iter().map(StandIn::port).collect();
    println!(r#"{{"log_id": "{}", "ports": {ports:?}}}"#, StandIn::LOG_ID);
    io::stdin()
        .read_to_end(&mut Vec::new())
        .map_err(Failure::of("waiting for the end of the input"))?;
    Ok(())
}

/// The position of every log.
const SEQ: u64 = 2;
