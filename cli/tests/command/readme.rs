//! The commands of docs/start/agents.md, in order.

use std::path::Path;
use std::process::Command;

use crate::common::Workbench;

#[test]
fn its_commands_make_the_keys_the_chain_and_the_proof_of_the_later_ones() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/start/agents.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, section) = page.split_once("\n## Mint, hand on, prove, revoke\n").unwrap();
    let (_, shown) = section.split_once("\n```sh\n").unwrap();
    // The rest needs a running Envoy and control plane: e2e/tests/documentation/walk.rs runs it. Here no process has
    // just started, so the wait is left out.
    let (offline, _) = shown.split_once("\ncurl ").unwrap();
    let offline = offline.replace("\nsleep 5\n", "\n");
    let (_, of_the_issuer) = section.split_once("once there is a key: `").unwrap();
    let (of_the_issuer, _) = of_the_issuer.split_once('`').unwrap();

    let bench = Workbench::new();
    let program = Path::new(env!("CARGO_BIN_EXE_credence"));
    let output = Command::new("sh")
        .args([
            "-e",
            "-c",
            &format!("{of_the_issuer}\n{offline}\necho \"$NARROWER\" > chain; echo \"$PROOF\" > proof"),
        ])
        .env("PATH", format!("{}:/usr/bin:/bin", program.parent().unwrap().display()))
        .current_dir(bench.path(""))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");

    let asked = [
        "verify",
        "--anchor",
        "https://id.example.com=issuer.pub",
        "--chain",
        "@chain",
    ];
    let used = [
        "--tool",
        "payments.charge",
        "--arg",
        "account=a1",
        "--arg-json",
        "amount=15",
    ];
    let proven = ["--proof", "@proof", "--audience", "https://payments.example"];
    let ran = bench.run(&[&asked[..], &used, &proven].concat());
    assert_eq!(ran.succeeded(), "decision: allow");

    // The programs of the next section read these files; a second keygen would refuse to overwrite the keys.
    let (_, programs) = section.split_once("\n## Mint with a JOSE library\n").unwrap();
    assert!(!programs.contains("credence keygen --out"));
    assert!(
        std::fs::read_to_string(bench.path("planner.pub"))
            .unwrap()
            .starts_with('{')
    );
}
