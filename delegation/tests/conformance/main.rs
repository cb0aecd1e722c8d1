//! Conformance: every published test vector that applies, counted.
//!
//! `cargo test -p credence-delegation --test conformance` prints a line for each suite: its cases; those that passed,
//! which means that the crate decided them for the reason that they test; those of another kind (of key, algorithm or
//! form), which the crate refuses only because it does not implement it; and those that do not apply. Below each line
//! is every reason with its count. A suite without a case fails. There is no test harness around it, since that would
//! hide the table of a passing run. So arguments such as a test's name have no effect.
//!
//! Short vectors of an RFC are in the source, with their section. `scripts/setup-vectors.sh` downloads the others;
//! without them, those suites print that they are skipped.

mod data;
mod report;
mod rfc7515;
mod rfc7520;
mod rfc7638;
mod rfc8032;
mod rfc8037;
mod rfc8785;
mod rfc8812;
mod wycheproof_jose;
mod wycheproof_signatures;

use std::io::Write;
use std::process::ExitCode;

use report::Suite;

fn main() -> ExitCode {
    let suites = [
        wycheproof_signatures::ed25519(),
        wycheproof_signatures::p256(),
        wycheproof_signatures::secp256k1(),
        wycheproof_jose::signatures(),
        wycheproof_jose::keys(),
        wycheproof_jose::crypto(),
        rfc7515::suite(),
        rfc7520::suite(),
        rfc7638::suite(),
        rfc8032::suite(),
        rfc8037::suite(),
        rfc8812::suite(),
        rfc8785::sections(),
        rfc8785::files(),
        rfc8785::numbers(),
    ];
    let table: String = suites.iter().map(Suite::lines).collect();
    // If standard output is closed, only the exit code tells the result.
    let _ = write!(std::io::stdout(), "\n{}{table}\n", report::heading());
    if suites.iter().any(Suite::failed) {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}
