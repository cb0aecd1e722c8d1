//! Conformance: every published test vector that fits, counted.
//!
//! `cargo test -p credence-delegation --test conformance` prints a line for each suite: its cases; how many passed,
//! that is, were decided by what they are about; how many are of other kinds (of key, algorithm or form) than are
//! implemented and were refused for that alone, right or wrong; how many do not apply; and below it every reason with
//! its count. A suite without a single case fails. There is no test harness around it (it would keep the
//! table to itself when all is well), so arguments such as a test's name change nothing.
//!
//! What is short and public in an RFC is typed in here, with its section. The rest is downloaded by
//! `scripts/setup-vectors.sh`; without it those suites say that they are skipped.

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
    // Nobody is left to tell if standard output is closed; the exit code still says it.
    let _ = write!(std::io::stdout(), "\n{}{table}\n", report::heading());
    if suites.iter().any(Suite::failed) {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}
