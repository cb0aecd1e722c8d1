//! `credence token`, and a control plane with the printed entry in its configuration.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStdout, Command};
use std::time::{Duration, Instant};

use crate::common::{Ran, Workbench};
use sha2::{Digest, Sha256};

const ISSUER: &str = "https://id.example.com";

/// A control plane with the file `credence.yaml`, killed with the test.
struct Served<'a> {
    bench: &'a Workbench,
    child: Child,
    http: String,
    // Kept open for the server.
    _stdout: BufReader<ChildStdout>,
}

impl<'a> Served<'a> {
    fn start(bench: &'a Workbench) -> Self {
        let addresses = ["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"];
        let folder = ["serve", "--data", "data", "--init", "--fresh", "--log", "off"];
        let configured = ["--config", "credence.yaml"];
        let mut child = bench
            .command(&[&folder[..], &addresses, &configured].concat())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut http = String::new();
        while !http.starts_with("http: ") {
            http.clear();
            assert_ne!(stdout.read_line(&mut http).unwrap(), 0, "it did not start");
        }
        Self {
            bench,
            child,
            http: http.replace("http: ", "http://").trim().to_owned(),
            _stdout: stdout,
        }
    }

    fn revoke(&self, issuer: &str, token_file: &str) -> Ran {
        let what = ["revoke", "principal", "--issuer", issuer, "--subject", "alice"];
        let place = ["--control-plane", &self.http, "--token-file", token_file];
        self.bench.run(&[&what[..], &place].concat())
    }

    fn audit(&self, token_file: &str) -> Ran {
        let what = ["audit", "query"];
        let place = ["--control-plane", &self.http, "--token-file", token_file];
        self.bench.run(&[&what[..], &place].concat())
    }

    fn hang_up(&self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-HUP", &id]).status().unwrap().success());
    }
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Makes a token, in a file of its name; returns the printed entry as a part of the configuration file.
fn entry(bench: &Workbench, name: &str, more: &[&str]) -> String {
    let made = bench.run(&[&["token", "--name", name, "--out", name][..], more].concat());
    let lines: Vec<_> = made.succeeded().lines().map(|line| format!("    {line}\n")).collect();
    lines.concat()
}

fn configuration(entries: &[&str]) -> String {
    format!("access:\n  tokens:\n{}", entries.concat())
}

#[test]
fn a_token_is_random_in_a_file_that_only_its_owner_can_read_and_only_its_digest_is_printed() {
    let bench = Workbench::new();
    let printed = entry(&bench, "oncall", &["--role", "revoker"]);
    let token = std::fs::read_to_string(bench.path("oncall")).unwrap();
    let token = token.trim();
    assert!(token.starts_with("crd_") && token.len() == 47, "{token}");
    let mode = std::fs::metadata(bench.path("oncall")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let digest: String = Sha256::digest(token).iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(printed.contains(&digest) && !printed.contains(token), "{printed}");
    entry(&bench, "other", &["--role", "revoker"]);
    assert_ne!(std::fs::read_to_string(bench.path("other")).unwrap().trim(), token);
}

#[test]
fn invalid_options_of_a_token_are_refused_and_nothing_is_written() {
    let bench = Workbench::new();
    for (more, said) in [
        (&["--name", "x", "--role", "owner"][..], "admin, revoker, watcher"),
        (&["--name", "", "--role", "admin"], "1 to 64 bytes"),
        (&["--name", "x", "--role", "admin", "--ttl", "0s"], "at least 1s"),
        (&["--name", "x"], "--role"),
    ] {
        bench.run(&[&["token", "--out", "t"], more].concat()).failed(2, &[said]);
        assert!(!bench.path("t").exists());
    }
    entry(&bench, "t", &["--role", "admin"]);
    bench
        .run(&["token", "--name", "t", "--role", "admin", "--out", "t"])
        .failed(1, &["exists already"]);
}

#[test]
fn a_token_works_as_its_entry_says_until_the_entry_is_removed() {
    let bench = Workbench::new();
    let oncall = entry(&bench, "oncall", &["--role", "revoker", "--issuer", ISSUER]);
    let auditor = entry(&bench, "auditor", &["--role", "auditor", "--ttl", "90d"]);
    let brief = entry(&bench, "brief", &["--role", "auditor", "--ttl", "1s"]);
    bench.file("credence.yaml", &configuration(&[&oncall, &auditor, &brief]));
    let served = Served::start(&bench);

    served.revoke(ISSUER, "oncall").succeeded();
    served.revoke("https://other.example", "oncall").failed(1, &["403"]);
    served.audit("oncall").failed(1, &["403", "admin, auditor"]);
    served.audit("auditor").succeeded();
    served.revoke(ISSUER, "auditor").failed(1, &["403", "admin, revoker"]);
    until("the token to expire", || {
        let ran = served.audit("brief");
        ran.code == 1 && ran.stderr.contains("has expired")
    });

    // An error changes nothing; later valid settings are applied.
    bench.file("credence.yaml", "access: {tokens: 1}");
    served.hang_up();
    bench.file("credence.yaml", &configuration(&[&auditor]));
    served.hang_up();
    until("the token to be worth nothing", || {
        let ran = served.revoke(ISSUER, "oncall");
        ran.code == 1 && ran.stderr.contains("401")
    });
    served.audit("auditor").succeeded();
}

fn until(what: &str, happened: impl Fn() -> bool) {
    let begin = Instant::now();
    while !happened() {
        assert!(begin.elapsed() < Duration::from_secs(20), "waited 20 s for {what}");
    }
}
