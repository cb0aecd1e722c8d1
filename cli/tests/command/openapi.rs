//! The running HTTP API against its own description, by a third party's fuzzer: interop/openapi.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command};

use crate::common::Workbench;
use sha2::{Digest, Sha256};

/// A control plane with every setting that adds routes, killed with the test.
struct Served {
    child: Child,
    http: String,
    // Kept open for the server, which prints more lines later.
    _stdout: BufReader<ChildStdout>,
}

impl Served {
    fn start(bench: &Workbench) -> Self {
        bench.keys(&["issuer", "transmitter"]);
        let key = |name: &str| std::fs::read_to_string(bench.path(name)).unwrap().trim().to_owned();
        bench.file("jwks.json", &format!("{{\"keys\": [{}]}}", key("transmitter.pub")));
        let digest: String = Sha256::digest(TOKEN).iter().map(|byte| format!("{byte:02x}")).collect();
        let settings = format!(
            "access:\n  tokens:\n  - {{name: everything, sha256: \"{digest}\", roles: [admin, provisioner, transmitter]}}\n\
             audience: [https://revocation.example.com]\n\
             trust_anchors:\n- issuer: https://id.example.com\n  jwk: {}\n\
             scim:\n- {{name: staff, credentials: [everything], issuer: \"https://id.example.com\"}}\n\
             security_events:\n- {{name: idp, credentials: [everything], issuer: \"https://idp.example.com\", \
             audience: \"https://credence.example.com\", principal_issuer: \"https://id.example.com\", \
             jwks: {{file: jwks.json}}}}\n",
            key("issuer.pub")
        );
        let serve = ["serve", "--data", "data", "--init", "--fresh", "--log", "error"];
        let addresses = ["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"];
        let config = ["--config", bench.file("settings.yaml", &settings)];
        let mut child = bench
            .command(&[&serve[..], &addresses, &config].concat())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let http = stdout
            .by_ref()
            .lines()
            .find_map(|line| line.unwrap().strip_prefix("http: ").map(str::to_owned))
            .unwrap();
        Self {
            child,
            http,
            _stdout: stdout,
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
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
        // Python is not installed, or too old; the script's standard error says which.
        eprintln!("{}", String::from_utf8_lossy(&prepared.stderr));
        return;
    };

    let bench = Workbench::new();
    let served = Served::start(&bench);

    let sources = repository.join("interop/openapi");
    let fuzzed = Command::new(Path::new(home).join("bin/python"))
        .arg("-B")
        .arg(Path::new(home).join("bin/schemathesis"))
        .arg("--config-file")
        .arg(sources.join("schemathesis.toml"))
        .args(["run", &format!("http://{}/openapi.json", served.http), "--no-color"])
        .args(["--header", &format!("Authorization: Bearer {TOKEN}")])
        .args(["--exclude-path-regex", NOT_FUZZED])
        .args(["--max-examples", EXAMPLES, "--seed", "1"])
        .env("SCHEMATHESIS_HOOKS", "hooks")
        .env("PYTHONPATH", &sources)
        // It writes its findings to the current directory.
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

/// For each operation, besides the examples that the description's limits suggest.
const EXAMPLES: &str = "10";

/// The event streams, whose answers have no end.
const NOT_FUZZED: &str = "^/v1/(revocations|audit)/stream$";

/// The token of a credential with every role.
const TOKEN: &str = "the-token-that-is-good-for-everything";
