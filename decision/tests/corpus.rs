//! Replays the inputs of the fuzz target for MCP messages. `fuzz/README.md` says where they come from.

use std::fs;
use std::path::Path;

#[path = "../../fuzz/src/mcp.rs"]
#[allow(unreachable_pub)] // a library there, a module here
#[allow(clippy::disallowed_types)] // a second reading of the same text
mod mcp;

#[test]
fn every_input_is_replayed_and_enough_of_them_are_allowed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/mcp");
    let (mut allowed, mut denied) = (0, 0);
    for entry in fs::read_dir(folder).expect("the corpus is there") {
        let path = entry.expect("readable").path();
        let input = fs::read(&path).expect("readable");
        let outcome = std::panic::catch_unwind(|| mcp::run(&input));
        match outcome.unwrap_or_else(|_| panic!("the input that finds the fault: {}", path.display())) {
            true => allowed += 1,
            false => denied += 1,
        }
    }
    assert!(allowed >= 13 && denied >= 7, "{allowed} allowed, {denied} denied");
}
