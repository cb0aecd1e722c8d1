//! Measures how a filter loads a revocation log with this many subjects, and prints the figures as one JSON object.

use std::env;

use credence_e2e::{Failure, at_scale};

#[allow(clippy::print_stdout, reason = "the result")]
fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [subjects] = &arguments[..] else {
        return Err(Failure::new("usage: load-snapshot SUBJECTS"));
    };
    let subjects = subjects.parse().map_err(Failure::of("reading SUBJECTS"))?;
    println!("{}", at_scale::measure(subjects)?);
    Ok(())
}
