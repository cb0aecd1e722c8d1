//! The running HTTP API against its own description, by a fuzzer that others wrote: interop/openapi.

mod common;

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command};

use common::Workbench;

/// Kills the control plane with the test.
struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_schema_driven_fuzzer_finds_the_api_as_it_is_described() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let prepared = Command::new(repository.join("scripts/setup-interop.sh"))
        .arg("openapi")
        .output()
        .unwrap();
    assert!(prepared.status.success(), "{prepared:?}");
    let answer = String::from_utf8(prepared.stdout).unwrap();
    let Some(home) = answer.trim().strip_prefix("ready openapi ") else {
        // Python is not installed, or too old; standard error of the script says which.
        eprintln!("{}", String::from_utf8_lossy(&prepared.stderr));
        return;
    };

    let bench = Workbench::new();
    bench.keys(&["issuer"]);
    let jwk = std::fs::read_to_string(bench.path("issuer.pub")).unwrap();
    let settings = format!(
        "audience: [https://revocation.example.com]\ntrust_anchors:\n  - issuer: https://id.example.com\n    jwk: {}\n",
        jwk.trim()
    );
    let serve = ["serve", "--data", "data", "--init", "--fresh", "--log", "error"];
    let addresses = [
        "--http",
        "127.0.0.1:0",
        "--grpc",
        "127.0.0.1:0",
        "--operator-token-file",
        "token",
    ];
    let config = ["--config", bench.file("settings.yaml", &settings)];
    let mut child = bench
        .command(&[&serve[..], &addresses, &config].concat())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let _served = Served(child);
    let http = stdout
        .by_ref()
        .lines()
        .find_map(|line| line.unwrap().strip_prefix("http: ").map(str::to_owned))
        .unwrap();
    let token = std::fs::read_to_string(bench.path("token")).unwrap();

    let sources = repository.join("interop/openapi");
    let fuzzed = Command::new(Path::new(home).join("bin/python"))
        .arg("-B")
        .arg(Path::new(home).join("bin/schemathesis"))
        .arg("--config-file")
        .arg(sources.join("schemathesis.toml"))
        .args(["run", &format!("http://{http}/openapi.json"), "--no-color"])
        .args(["--header", &format!("Authorization: Bearer {}", token.trim())])
        .args(["--exclude-path-regex", NOT_FUZZED])
        .args(["--max-examples", EXAMPLES, "--seed", "1"])
        .env("SCHEMATHESIS_HOOKS", "hooks")
        .env("PYTHONPATH", &sources)
        // It keeps what it found beside it.
        .current_dir(bench.path(""))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&fuzzed.stdout);
    assert!(
        fuzzed.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&fuzzed.stderr)
    );
}

/// Of each operation, besides those that the description's limits suggest.
const EXAMPLES: &str = "40";

/// The event stream, whose answer has no end; and what is described but not served yet.
const NOT_FUZZED: &str = "^/(v1/revocations/stream|v1/principals|v1/security-events|scim/)";
