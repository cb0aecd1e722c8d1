//! `credence revoke --sign-with`: revoking without a credential.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout};

use crate::common::Workbench;

const ISSUER: &str = "https://id.example.com";
const AUDIENCE: &str = "https://revocation.example.com";

struct Served(
    Child,
    #[allow(dead_code, reason = "closed, it would end the server")] BufReader<ChildStdout>,
);

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(bench: &Workbench) -> (Served, String) {
    let jwk = std::fs::read_to_string(bench.path("issuer.pub")).unwrap();
    let settings = format!(
        "audience: [{AUDIENCE}]\ntrust_anchors:\n  - issuer: {ISSUER}\n    asserts_subjects: true\n    jwk: {}\n",
        jwk.trim()
    );
    let serve = [
        "serve",
        "--data",
        "data",
        "--http",
        "127.0.0.1:0",
        "--grpc",
        "127.0.0.1:0",
    ];
    let more = [
        "--config",
        bench.file("settings.yaml", &settings),
        "--log",
        "error",
        "--init",
        "--fresh",
    ];
    let mut child = bench.command(&[&serve[..], &more].concat()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let http = stdout
        .by_ref()
        .lines()
        .find_map(|line| line.unwrap().strip_prefix("http: ").map(str::to_owned));
    (Served(child, stdout), format!("http://{}", http.unwrap()))
}

#[test]
fn each_kind_of_statement_is_signed_sent_and_reported() {
    let bench = Workbench::new();
    bench.keys(&["issuer", "stranger"]);
    let (_server, url) = serve(&bench);
    let revoke = |arguments: &[&str], key: &str| {
        let signed = ["--control-plane", &url, "--sign-with", key, "--audience", AUDIENCE];
        bench.run(&[&["revoke"], arguments, &signed].concat())
    };
    let alice = ["principal", "--issuer", ISSUER, "--subject", "alice"];
    let by_epoch = [&alice[..], &["--epoch", "0"]].concat();
    let done = revoke(&by_epoch, "issuer.jwk").succeeded();
    assert!(done.starts_with(
        "revoked everything granted so far by alice at https://id.example.com (entry 1 of the log, epoch "
    ));
    assert!(revoke(&by_epoch, "issuer.jwk").succeeded().contains("already in force"));
    for (arguments, said) in [
        (
            vec!["delegation", "--issuer", ISSUER, "--subject", "alice", "--id", "leaf"],
            "revoked the delegation leaf",
        ),
        (vec!["issuer", "--issuer", ISSUER], "revoked every root token"),
        (
            vec!["key", "--issuer", ISSUER, "--key", "issuer.pub"],
            "revoked the key",
        ),
    ] {
        let done = revoke(&arguments, "issuer.jwk").succeeded();
        assert!(done.starts_with(said), "{done}");
    }
    revoke(&by_epoch, "stranger.jwk").failed(1, &["403", "the signature does not verify"]);
    revoke(&alice, "issuer.jwk").failed(2, &["give --epoch"]);
}

#[test]
fn a_statement_is_printed_and_nothing_is_sent() {
    let bench = Workbench::new();
    bench.keys(&["issuer"]);
    let principal = ["revoke", "principal", "--issuer", ISSUER, "--epoch", "7", "--print"];
    let signed = [
        "--sign-with",
        "issuer.jwk",
        "--audience",
        AUDIENCE,
        "--control-plane",
        "http://127.0.0.1:1",
    ];
    let statement = bench.run(&[&principal[..], &signed].concat()).succeeded();
    assert_eq!(statement.split('.').count(), 3);
    let without_audience = ["revoke", "principal", "--issuer", ISSUER, "--sign-with", "issuer.jwk"];
    bench.run(&without_audience).failed(2, &["--audience"]);
    let without_anything = ["revoke", "principal", "--issuer", ISSUER];
    bench.run(&without_anything).failed(2, &["--token-file"]);
}
