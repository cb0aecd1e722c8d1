//! `credence watch` with a control plane that stops and starts.

use crate::common::{Running, Workbench};

const ISSUER: &str = "https://id.example.com";

fn serve(bench: &Workbench, http: &str, more: &[&str]) -> (Running, String) {
    let serve = ["serve", "--data", "data", "--http", http, "--grpc", "127.0.0.1:0"];
    let token = [
        "--operator-token-file",
        "token",
        "--drain-promise",
        "0s",
        "--log",
        "error",
    ];
    let mut running = Running::start(bench, &[&serve[..], &token, more].concat());
    running.line();
    let http = running.line().strip_prefix("http: ").unwrap().to_owned();
    running.line();
    (running, http)
}

#[test]
fn revocations_are_followed_across_a_restart_until_interrupted() {
    let bench = Workbench::new();
    let (server, http) = serve(&bench, "127.0.0.1:0", &["--init", "--fresh"]);
    let url = format!("http://{http}");
    let at = ["--control-plane", &url, "--token-file", "token"];
    let revoke = |subject: &str| {
        let principal = ["revoke", "principal", "--issuer", ISSUER, "--subject", subject];
        bench.run(&[&principal[..], &at].concat()).succeeded();
    };
    let watch = |more: &[&str]| Running::start(&bench, &[&["watch"], &at[..], more].concat());
    revoke("alice");

    let mut whole = watch(&["--all"]);
    assert_eq!(whole.line(), "1  the whole state, 1 records:");
    assert!(
        whole
            .line()
            .starts_with("1  principal alice at https://id.example.com: epoch ")
    );
    let mut json = watch(&["--json"]);
    let position = json.line();
    assert!(position.starts_with(r#"{"event":"position","id":""#), "{position}");

    assert_eq!(server.ends_well_on("-TERM"), "");
    let (_server, _) = serve(&bench, &http, &[]);
    revoke("bob");
    let missed = loop {
        let line = json.line();
        if line.contains(r#""event":"record""#) {
            break line;
        }
    };
    assert!(missed.contains(r#""seq":2,"principal":{"issuer":"https://id.example.com","subject":"bob""#));
    let said = json.ends_well_on("-INT");
    assert!(
        said.contains("not connected") && said.contains("connected again"),
        "{said}"
    );

    let (_, rest) = position.split_once(r#""id":""#).unwrap();
    let (id_of_the_first, _) = rest.split_once('"').unwrap();
    let mut since = watch(&["--since", id_of_the_first]);
    assert!(since.line().starts_with("2  principal bob"));
    let refused = bench.run(&[&["watch"], &at[..], &["--since", "another:1"]].concat());
    refused.failed(1, &["409", "another log"]);
}
