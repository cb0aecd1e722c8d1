//! Sends generated requests through the filter to real services for a given time: `soak-oracles SECONDS [SEED
//! [REQUESTS]]`.
//!
//! `make soak-oracles` runs it. Disagreements go to standard error as command lines. The last line of the output is one
//! JSON object, [`Report`](credence_e2e::oracles::run::Report). The exit code is 1 if there is a disagreement.

use std::env;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use credence_e2e::Failure;
use credence_e2e::oracles::run::{Plan, run};
use credence_e2e::oracles::services::Services;

fn main() -> Result<ExitCode, Failure> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let number = |place: usize, default: u64| {
        arguments.get(place).map_or(Ok(default), |text| {
            text.parse().map_err(Failure::of(format_args!(
                "reading {text:?}; usage: soak-oracles SECONDS [SEED [REQUESTS]]"
            )))
        })
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let plan = Plan {
        time: Duration::from_secs(number(0, 600)?),
        seed: number(1, now.map_or(0, |now| now.as_secs()))?,
        requests: number(2, u64::MAX)?,
    };
    eprintln!("seed {}", plan.seed);
    let report = run(&Services::start()?, plan)?;
    for finding in &report.findings {
        eprintln!("\n{finding}");
    }
    let line = serde_json::to_string(&report).map_err(Failure::of("writing the report"))?;
    writeln!(io::stdout(), "{line}").map_err(Failure::of("printing the report"))?;
    let agree = report.disagreements == 0 && report.controls_failed == 0;
    Ok(if agree { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
