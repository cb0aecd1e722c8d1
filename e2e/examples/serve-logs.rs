//! Serves revocation logs of so many principals each, for as long as its standard input is open: for measurements that
//! would take long to fill them. Prints their ports and the name that all of them have, as one JSON object.

use std::io::{self, Read as _};

use credence_e2e::Failure;
use credence_e2e::stand_in::{Log, StandIn};

#[allow(clippy::print_stdout, reason = "what it is for")]
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

/// Where every log is.
const SEQ: u64 = 2;
