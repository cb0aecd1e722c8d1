//! SCIM checked by a third party's conformance tester: scim2-tester, against a real `credence serve`.
//!
//! Without Python the test is skipped, and standard error says so.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::common::Workbench;
use sha2::{Digest, Sha256};

const TOKEN: &str = "the-token-of-an-identity-provider";

#[test]
fn scim2_tester_finds_no_fault() {
    let repository = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let setup = Command::new(repository.join("scripts/setup-interop.sh"))
        .arg("scim")
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(setup.status.success(), "scripts/setup-interop.sh scim failed");
    let said = String::from_utf8(setup.stdout).unwrap();
    // The script has printed why, to a standard error that the test harness does not capture.
    let Some(home) = said.strip_prefix("ready scim ") else {
        return;
    };

    let bench = Workbench::new();
    let served = Served::start(&bench);
    let output = Command::new(PathBuf::from(home.trim()).join("bin/python"))
        .arg("-B")
        .arg(repository.join("interop/scim/conformance.py"))
        .arg(format!("http://{}/scim/v2", served.http))
        .env("SCIM_TOKEN", TOKEN)
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{report}{errors}");
    // Shown with the test's output: the number of checks.
    println!("{report}");
}

/// A control plane with one realm, killed with the test.
struct Served {
    child: Child,
    http: String,
    // Kept open for the server, which prints more lines later.
    _stdout: BufReader<std::process::ChildStdout>,
}

impl Served {
    fn start(bench: &Workbench) -> Self {
        let digest: String = Sha256::digest(TOKEN).iter().map(|byte| format!("{byte:02x}")).collect();
        let settings = format!(
            "access:\n  tokens:\n  - {{name: idp, sha256: \"{digest}\", roles: [provisioner]}}\n\
             scim:\n- {{name: idp, credentials: [idp], issuer: \"https://id.example.com\"}}\n"
        );
        bench.file("credence.yaml", &settings);
        let mut child = bench
            .command(&[
                "serve",
                "--data",
                "data",
                "--http",
                "127.0.0.1:0",
                "--grpc",
                "127.0.0.1:0",
                "--init",
                "--fresh",
                "--config",
                "credence.yaml",
            ])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut http = String::new();
        while !http.starts_with("http: ") {
            http.clear();
            assert_ne!(stdout.read_line(&mut http).unwrap(), 0, "it ended early");
        }
        let http = http.trim_start_matches("http: ").trim().to_owned();
        Self {
            child,
            http,
            _stdout: stdout,
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
