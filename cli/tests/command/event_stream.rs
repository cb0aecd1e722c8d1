//! The event stream of revocations, followed by a third party's EventSource: interop/sse.

use std::path::Path;
use std::process::Command;

#[test]
fn an_event_source_misses_nothing_and_sees_nothing_twice_across_disconnects() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let prepared = Command::new(repository.join("scripts/setup-interop.sh"))
        .arg("sse")
        .output()
        .unwrap();
    assert!(prepared.status.success(), "{prepared:?}");
    let answer = String::from_utf8(prepared.stdout).unwrap();
    let Some(home) = answer.trim().strip_prefix("ready sse ") else {
        // Node.js is not installed, or too old; the script's standard error says which.
        eprintln!("{}", String::from_utf8_lossy(&prepared.stderr));
        return;
    };
    let followed = Command::new("node")
        .arg(Path::new(home).join("follow.mjs"))
        .arg(env!("CARGO_BIN_EXE_credence"))
        .output()
        .unwrap();
    assert!(followed.status.success(), "{followed:?}");
}
