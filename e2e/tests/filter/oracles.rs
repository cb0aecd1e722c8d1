//! Real services behind the real filter read every generated request as the filter did.
//!
//! The services are in interop/oracles; [`credence_e2e::oracles`] has the requests, and what must hold of each.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use credence_e2e::oracles::run::{Plan, Report, run};
use credence_e2e::oracles::services::Services;

/// Ordinary requests, known bypasses, and some generated ones: the same in every run.
#[test]
fn real_services_read_requests_as_the_filter_does() {
    let report = check(Plan {
        seed: 20,
        requests: 6_000,
        time: Duration::from_secs(40),
    });
    assert!(report.evidence_compared > 0, "{report:?}");
}

#[test]
#[ignore = "long: make soak runs it"]
fn real_services_read_fifty_thousand_requests_as_the_filter_does() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let report = check(Plan {
        seed: now.as_secs(),
        requests: 50_000,
        time: Duration::from_secs(3_600),
    });
    assert!(report.requests >= 50_000, "{report:?}");
}

/// Every ordinary request arrives, and no request is read differently.
fn check(plan: Plan) -> Report {
    let services = Services::start().unwrap();
    assert!(!services.reached.is_empty(), "no service can run here");
    let report = run(&services, plan).unwrap();
    // Shown if the check fails, with the command line that repeats it.
    for finding in &report.findings {
        eprintln!("\n{finding}");
    }
    eprintln!("seed {}; left out: {:?}", report.seed, report.left_out);
    assert_eq!((report.controls_failed, report.disagreements), (0, 0));
    report
}
