//! `credence serve`, and `revoke` and `audit` with it.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::common::{Ran, Workbench};
use credence_wire::v1;
use credence_wire::v1::audit_service_client::AuditServiceClient;
use credence_wire::v1::entry::Entry as Kind;
use credence_wire::v1::report_request::Message;
use credence_wire::v1::report_response::Message as Answer;
use tokio_stream::StreamExt;

const ISSUER: &str = "https://id.example.com";

/// A control plane in its own folder, killed with the test.
struct Served<'a> {
    bench: &'a Workbench,
    child: KilledAtTheEnd,
    stdout: BufReader<ChildStdout>,
    log_id: String,
    http: String,
    grpc: String,
}

impl<'a> Served<'a> {
    fn start(bench: &'a Workbench, more: &[&str]) -> Self {
        Self::start_logging(bench, more, "error", Stdio::inherit())
    }

    fn start_logging(bench: &'a Workbench, more: &[&str], level: &str, log: Stdio) -> Self {
        let serve = [
            "serve",
            "--data",
            "data",
            "--http",
            "127.0.0.1:0",
            "--grpc",
            "127.0.0.1:0",
        ];
        let token = [
            "--operator-token-file",
            "token",
            "--drain-promise",
            "0s",
            "--log",
            level,
        ];
        let mut command = bench.command(&[&serve[..], &token, more].concat());
        let mut child = KilledAtTheEnd(command.stderr(log).spawn().unwrap());
        let mut stdout = BufReader::new(child.0.stdout.take().unwrap());
        let mut announced = |name: &str| {
            let mut line = String::new();
            stdout.read_line(&mut line).unwrap();
            line.trim()
                .strip_prefix(name)
                .unwrap_or_else(|| panic!("{name} expected, not {line:?}"))
                .to_owned()
        };
        let log_id = announced("log_id: ");
        let http = announced("http: ");
        let grpc = announced("grpc: ");
        Self {
            bench,
            child,
            stdout,
            log_id,
            http: format!("http://{http}"),
            grpc: format!("http://{grpc}"),
        }
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        self.bench
            .run(&[arguments, &["--control-plane", &self.http, "--token-file", "token"]].concat())
    }

    /// Reports entries as a filter would, and waits until all are on disk.
    fn report(&self, entries: Vec<Kind>) {
        let last = entries.len() as u64;
        let entries = entries
            .into_iter()
            .map(|entry| v1::Entry { entry: Some(entry) })
            .collect();
        let hello = v1::ReportHello {
            node: "node-1".to_owned(),
            plugin: "credence".to_owned(),
            resume: None,
            anchors_digest: Vec::new(),
            acknowledged: 0,
        };
        let batch = v1::Batch {
            first_sequence: 1,
            entries,
        };
        let messages = [Message::Hello(hello), Message::Batch(batch)];
        let requests = messages.map(|message| v1::ReportRequest { message: Some(message) });
        let url = self.grpc.clone();
        tokio::runtime::Runtime::new().unwrap().block_on(async move {
            let mut client = AuditServiceClient::connect(url).await.unwrap();
            // The stream stays open until the acknowledgement: the control plane may take a half-closed one for an end.
            let requests = tokio_stream::iter(requests).chain(tokio_stream::pending());
            let mut responses = client.report(requests).await.unwrap().into_inner();
            while let Some(response) = responses.message().await.unwrap() {
                if matches!(response.message, Some(Answer::Acknowledgement(answer)) if answer.through == last) {
                    return;
                }
            }
            panic!("the stream ended before everything was acknowledged");
        });
    }

    /// Stops it and waits; returns its exit code.
    fn stop(mut self) -> i32 {
        let asked = Command::new("kill")
            .args(["-TERM", &self.child.0.id().to_string()])
            .status()
            .unwrap();
        assert!(asked.success());
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        self.child.0.wait().unwrap().code().unwrap()
    }
}

/// A program that would run forever.
struct KilledAtTheEnd(Child);

impl Drop for KilledAtTheEnd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn it_prints_its_addresses_stops_on_a_signal_and_restarts_with_the_same_log() {
    let bench = Workbench::new();
    let served = Served::start(&bench, &["--init", "--fresh"]);
    let log_id = served.log_id.clone();
    assert_eq!(log_id.len(), 32);
    assert_eq!(served.stop(), 0);
    let served = Served::start(&bench, &[]);
    assert_eq!(served.log_id, log_id);
    assert_eq!(served.stop(), 0);
}

#[test]
fn the_first_start_makes_a_token_that_only_its_owner_can_read() {
    let bench = Workbench::new();
    let served = Served::start(&bench, &["--init"]);
    let mode = std::fs::metadata(bench.path("token")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(
        std::fs::read_to_string(bench.path("token")).unwrap().trim().len(),
        "crd_".len() + 43
    );
    drop(served);
}

#[test]
fn an_empty_folder_is_no_log_without_init() {
    let bench = Workbench::new();
    std::fs::create_dir(bench.path("data")).unwrap();
    bench.file("token", &"x".repeat(40));
    std::fs::set_permissions(bench.path("token"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let ran = bench.run(&[
        "serve",
        "--data",
        "data",
        "--operator-token-file",
        "token",
        "--http",
        "127.0.0.1:0",
        "--grpc",
        "127.0.0.1:0",
    ]);
    ran.failed(1, &["data holds no log", "--init"]);
    bench
        .run(&["serve", "--data", "data", "--operator-token-file", "token", "--fresh"])
        .failed(2, &["--init"]);
}

#[test]
fn the_history_of_a_principal_is_printed_newest_first() {
    let bench = Workbench::new();
    let served = Served::start(&bench, &["--init", "--fresh"]);
    let alice = ["principal", "--issuer", ISSUER, "--subject", "alice"];
    assert_eq!(served.run(&alice).succeeded(), "epoch: 0\nnever raised");
    for more in [&[][..], &["--disable"]] {
        served.run(&[&["revoke"], &alice[..], more].concat()).succeeded();
    }
    let said = served.run(&alice).succeeded();
    let lines: Vec<_> = said.lines().collect();
    assert!(lines[0].starts_with("epoch: ") && lines[0] != "epoch: 0", "{said}");
    assert_eq!(lines[1], "disabled by: operator");
    assert!(lines[2].starts_with("last raised: 20"), "{said}");
    assert!(
        lines[3].contains("entry 2: disable to epoch") && lines[3].ends_with("by operator operator"),
        "{said}"
    );
    assert!(lines[4].contains("entry 1: raise to epoch"), "{said}");
    let json = served.run(&[&alice[..], &["--json"]].concat()).succeeded();
    assert!(json.contains("\"history\":[{\"seq\":2,"), "{json}");
}

#[test]
fn each_kind_of_subject_is_revoked_and_the_entry_is_named() {
    let bench = Workbench::new();
    bench.keys(&["issuer", "agent"]);
    let served = Served::start(&bench, &["--init", "--fresh"]);
    let revoked = |arguments: &[&str]| served.run(&[&["revoke"], arguments].concat()).succeeded();

    let said = revoked(&["principal", "--issuer", ISSUER, "--subject", "alice"]);
    assert!(
        said.starts_with(&format!(
            "revoked everything granted so far by alice at {ISSUER} (entry 1 of the log, epoch "
        )),
        "{said}"
    );
    assert!(revoked(&["principal", "--issuer", ISSUER, "--disable"]).starts_with("disabled https://id.example.com"));
    assert!(revoked(&["principal", "--issuer", ISSUER, "--enable"]).starts_with("enabled"));
    assert!(revoked(&["key", "--key", "agent.pub"]).starts_with("revoked the key "));
    assert!(revoked(&["key", "--key", "agent.jwk"]).contains("already in force"));
    let private = std::fs::read_to_string(bench.path("agent.jwk")).unwrap();
    assert!(revoked(&["key", "--key", private.trim()]).contains("already in force"));
    assert!(
        revoked(&["issuer", "--issuer", ISSUER])
            .contains("revoked every root token that https://id.example.com issued up to 2")
    );
    assert!(
        revoked(&["delegation", "--issuer", ISSUER, "--subject", "alice", "--id", "t-1"]).contains("t-1 of alice at")
    );

    assert!(revoked(&["issuer", "--issuer", ISSUER, "--no-wait"]).ends_with("; confirmed; no filter had to apply it"));
    let json = revoked(&["principal", "--issuer", ISSUER, "--json"]);
    assert!(
        json.starts_with('{') && json.contains("\"epoch\":") && json.contains(&served.log_id),
        "{json}"
    );
}

#[test]
fn the_log_says_what_was_revoked_and_why_and_who_claims_another_history() {
    let bench = Workbench::new();
    let mut served = Served::start_logging(&bench, &["--init", "--fresh"], "info", Stdio::piped());
    let mut log = served.child.0.stderr.take().unwrap();
    let revoked = |more: &[&str]| served.run(&[&["revoke"], more].concat()).succeeded();
    let alice = ["--issuer", ISSUER, "--subject", "alice\nEve"];
    revoked(&[&["principal"], &alice[..], &["--reason", "incident 7"]].concat());
    let deleted = ["--id", "t-2", "--under", "t-1", "--reason", "incident 8"];
    revoked(&[&["delegation"], &alice[..], &deleted].concat());
    revoked(&["key", "--key", "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs"]);
    revoked(&["issuer", "--issuer", ISSUER, "--reason", "incident 9"]);
    let history = served.run(&[&["principal"], &alice[..], &["--json"]].concat());
    assert!(history.succeeded().contains("\"reason\":\"incident 7\""));
    let refused = served.run(&["revoke", "issuer", "--issuer", ISSUER, "--reason", ""]);
    refused.failed(1, &["at reason: write 1 to 512 bytes"]);
    let claimed = format!("{}:99:AAAA", served.log_id);
    served.run(&["watch", "--since", &claimed]).failed(1, &["entry 99"]);
    served.stop();
    let mut said = String::new();
    log.read_to_string(&mut said).unwrap();
    for line in [
        r#"subject="principal alice\nEve at https://id.example.com" reason="incident 7""#,
        r#"subject="delegation t-1 > t-2 of alice\nEve at https://id.example.com" reason="incident 8""#,
        r#"subject="key NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs" source="operator""#,
        r#"subject="issuer https://id.example.com" reason="incident 9""#,
        r#"claim positions that this log does not know attempts=1 credential="operator" address="#,
    ] {
        assert!(said.contains(line), "{line} is not in: {said}");
    }
}

#[test]
fn a_delegation_is_named_by_its_chain_under_both_readings_of_its_principal() {
    let bench = Workbench::new();
    bench.keys(&["issuer", "agent"]);
    let chain = bench
        .run(&[
            "mint",
            "--key",
            "issuer.jwk",
            "--issuer",
            ISSUER,
            "--subject",
            "alice",
            "--holder",
            "agent.pub",
            "--tool",
            "t",
            "--id",
            "t-1",
        ])
        .succeeded();
    let served = Served::start(&bench, &["--init", "--fresh"]);
    let said = served.run(&["revoke", "delegation", "--chain", &chain]).succeeded();
    assert_eq!(
        said,
        "revoked the delegation t-1 of https://id.example.com (entry 1 of the log) and of alice at \
         https://id.example.com (entry 2 of the log); confirmed; no filter had to apply it"
    );
    let json = served
        .run(&["revoke", "delegation", "--chain", &chain, "--json"])
        .succeeded();
    let unchanged = json.lines().filter(|line| line.contains(r#""changed":false"#));
    assert_eq!(unchanged.count(), 2, "{json}");
    served
        .run(&["revoke", "delegation", "--chain", &chain, "--token", "2"])
        .failed(2, &["numbered from 1 to 1"]);
}

#[test]
fn a_delegation_is_named_by_those_above_it_too() {
    let bench = Workbench::new();
    bench.keys(&["issuer", "agent"]);
    let root = bench.mint_root(&["--tool", "t", "--id", "root", "--max-depth", "1"]);
    let derive = [
        "derive",
        "--parent",
        &root,
        "--key",
        "agent.jwk",
        "--holder",
        "agent.pub",
    ];
    let chain = bench
        .run(&[&derive[..], &["--same-tools", "--id", "leaf"]].concat())
        .succeeded();
    let served = Served::start(&bench, &["--init", "--fresh"]);
    let revoke = |arguments: &[&str]| {
        served
            .run(&[&["revoke", "delegation", "--json"], arguments].concat())
            .succeeded()
    };
    assert!(revoke(&["--chain", &chain]).contains(r#""changed":true"#));
    let named = ["--issuer", ISSUER, "--id", "leaf"];
    let again = revoke(&[&named[..], &["--under", "root"]].concat());
    assert!(again.contains(r#""seq":1,"changed":false"#), "{again}");
    // The id alone is another subject: it counts in any chain.
    assert!(revoke(&named).contains(r#""seq":2,"changed":true"#));
    let said = served
        .run(&["revoke", "delegation", "--chain", &chain, "--token", "1"])
        .succeeded();
    assert_eq!(
        said,
        "revoked the delegation root of https://id.example.com (entry 3 of the log); confirmed; no filter had to apply it"
    );
}

/// A server with fixed answers: one connection for each answer, closed afterwards.
fn scripted(answers: &'static [&'static str]) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for answer in answers {
            let (mut connection, _) = listener.accept().unwrap();
            // The request is complete once its JSON has ended.
            let mut request = Vec::new();
            while !request.ends_with(b"}}") {
                let mut byte = [0];
                connection.read_exact(&mut byte).unwrap();
                request.extend(byte);
            }
            connection.write_all(answer.as_bytes()).unwrap();
        }
    });
    url
}

const DONE: &str = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{\"seq\":1,\"changed\":true}";
const BUSY: &str = "HTTP/1.1 503 Busy\r\nconnection: close\r\n\r\n{\"detail\":\"busy\"}";
const NO_ANSWER: &str = "";

#[test]
fn a_partial_revocation_says_which_part_is_done() {
    let bench = Workbench::new();
    bench.keys(&["issuer", "agent"]);
    bench.file("token", &"x".repeat(40));
    let chain = bench.mint_root(&["--subject", "alice", "--tool", "t", "--id", "t-1"]);
    let revoke = |url: &str| {
        let revoke = ["revoke", "delegation", "--chain", &chain, "--token-file", "token"];
        bench.run(&[&revoke[..], &["--control-plane", url]].concat())
    };
    let busy = "credence: the control plane refused (503): busy. ";
    for (answers, outcome) in [
        (
            &[BUSY][..],
            "Revoked: nothing; not known to be revoked: that of https://id.example.com and of alice at \
             https://id.example.com. Repeat the command",
        ),
        (
            &[DONE, BUSY],
            "Revoked: that of https://id.example.com; not known to be revoked: that of alice at \
             https://id.example.com. Repeat the command",
        ),
    ] {
        revoke(&scripted(answers)).failed(1, &[&format!("{busy}{outcome}")]);
    }
}

#[test]
fn a_revocation_without_an_answer_has_an_unknown_outcome() {
    let bench = Workbench::new();
    bench.file("token", &"x".repeat(40));
    let url = scripted(&[NO_ANSWER]);
    let revoke = ["revoke", "issuer", "--issuer", ISSUER, "--token-file", "token"];
    bench.run(&[&revoke[..], &["--control-plane", &url]].concat()).failed(
        1,
        &["the outcome is unknown", "no answer came", "repeating it is harmless"],
    );
}

#[test]
fn a_time_that_the_log_cannot_keep_is_refused_with_the_range() {
    let bench = Workbench::new();
    bench.file("token", &"x".repeat(40));
    for time in ["-1", "4294967296", "1700000000000", "now"] {
        let revoke = ["revoke", "issuer", "--issuer", ISSUER, "--token-file", "token"];
        bench
            .run(&[&revoke[..], &["--issued-up-to", time]].concat())
            .failed(2, &["--issued-up-to", "from 0 to 4294967295"]);
    }
}

#[test]
fn a_refusal_is_passed_on_with_its_cure() {
    let bench = Workbench::new();
    let served = Served::start(&bench, &["--init", "--fresh"]);
    served
        .run(&["revoke", "issuer", "--issuer", ISSUER, "--issued-up-to", "4000000000"])
        .failed(1, &["refused (400)"]);
    bench.file("wrong", &"y".repeat(40));
    let wrong = ["--control-plane", &served.http, "--token-file", "wrong"];
    bench
        .run(&[&["revoke", "principal", "--issuer", ISSUER][..], &wrong].concat())
        .failed(1, &["refused (401)", "--token-file"]);
    bench
        .run(&[&["audit", "query"][..], &wrong].concat())
        .failed(1, &["refused (401)"]);
}

#[test]
fn the_audit_of_a_new_ledger_is_an_empty_table() {
    let bench = Workbench::new();
    let served = Served::start(&bench, &["--init", "--fresh"]);
    assert_eq!(served.run(&["audit", "query", "--json"]).succeeded(), "");
    let table = served
        .run(&["audit", "query", "--tool", "pay", "--decision", "deny"])
        .succeeded();
    assert!(table.starts_with("INDEX  TIME  DECISION  REASON"), "{table}");
}

/// A decision about alice, a counted denial, and a gap: records 1 to 3, after the source's start.
fn evidence() -> Vec<Kind> {
    let principal = v1::Principal {
        issuer: ISSUER.to_owned(),
        subject: Some("ali\u{1b}ce".to_owned()),
    };
    let event = v1::Event {
        time_unix_nano: 1_800_000_000_000_000_000,
        decision: v1::Decision::Allow.into(),
        reason: "allowed".to_owned(),
        rule: "charge".to_owned(),
        tool: "payments.charge".to_owned(),
        principal: Some(principal),
        proof: v1::ProofKind::Pop.into(),
        cache: v1::CacheLevel::L1.into(),
        decision_ns: 35_999,
        stale_ms: None,
        expires_at: 0,
        ..Default::default()
    };
    let aggregate = v1::Aggregate {
        second: 1_800_000_001,
        reason: "no_delegation".to_owned(),
        count: 9,
        decision: v1::Decision::Deny.into(),
        ..Default::default()
    };
    vec![
        Kind::Event(event),
        Kind::Aggregate(aggregate),
        Kind::Gap(v1::Gap {
            shed: 3,
            ..Default::default()
        }),
    ]
}

#[test]
fn evidence_is_a_table_newest_first_that_cannot_control_the_terminal() {
    let bench = Workbench::new();
    let served = Served::start(&bench, &["--init", "--fresh"]);
    served.report(evidence());
    let table = served.run(&["audit", "query"]).succeeded();
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    let decision = [
        "1",
        "2027-01-15T08:00:00Z",
        "allow",
        "allowed",
        "charge",
        "payments.charge",
        "ali\\u{1b}ce",
        "at",
        ISSUER,
        "pop",
        "l1",
        "35",
    ];
    assert_eq!(rows[0][..3], ["INDEX", "TIME", "DECISION"]);
    assert_eq!(
        rows[1][..6],
        ["3", "1970-01-01T00:00:00Z", "gap", "3", "events", "shed"]
    );
    assert_eq!(
        rows[2][..5],
        ["2", "2027-01-15T08:00:01Z", "deny", "x9", "no_delegation"]
    );
    assert_eq!(rows[3], decision);
    assert_eq!(
        (rows[4][0], rows[4][2], rows[4][3]),
        ("0", "source", "started"),
        "{table}"
    );
}

#[test]
fn shadow_decisions_are_told_from_enforced_ones() {
    let bench = Workbench::new();
    let served = Served::start(&bench, &["--init", "--fresh"]);
    let in_shadow = |mut entry: Kind| {
        match &mut entry {
            Kind::Event(event) => event.mode = v1::Mode::Shadow.into(),
            Kind::Aggregate(aggregate) => aggregate.mode = v1::Mode::Shadow.into(),
            _ => {}
        }
        entry
    };
    served.report(evidence().into_iter().map(in_shadow).collect());
    let table = served.run(&["audit", "query"]).succeeded();
    for decision in ["  deny x9 (shadow)  ", "  allow (shadow)  "] {
        assert!(table.contains(decision), "{table}");
    }
}

#[test]
fn evidence_is_found_by_its_conditions_and_page_by_page() {
    let bench = Workbench::new();
    let served = Served::start(&bench, &["--init", "--fresh"]);
    served.report(evidence());
    let indexes = |more: &[&str]| -> Vec<String> {
        let lines = served.run(&[&["audit", "query", "--json"], more].concat()).succeeded();
        lines
            .lines()
            .map(|line| line.split([':', ',']).nth(1).unwrap().to_owned())
            .collect()
    };
    assert_eq!(indexes(&[]), ["3", "2", "1", "0"]);
    assert_eq!(indexes(&["--limit", "2"]), ["3", "2"]);
    assert_eq!(indexes(&["--before", "2"]), ["1", "0"]);
    assert_eq!(indexes(&["--tool", "payments.charge"]), ["1"]);
    assert_eq!(indexes(&["--decision", "deny"]), ["2"]);
    assert_eq!(indexes(&["--issuer", "https://other.example"]), Vec::<String>::new());
}

#[test]
fn tail_shows_the_last_records_and_then_each_new_one() {
    let bench = Workbench::new();
    let served = Served::start(&bench, &["--init", "--fresh"]);
    served.report(evidence());
    let place = ["--control-plane", &served.http, "--token-file", "token"];
    let tail = [
        &["audit", "tail", "--json", "--last", "1", "--tool", "payments.charge"][..],
        &place,
    ]
    .concat();
    let mut child = KilledAtTheEnd(bench.command(&tail).spawn().unwrap());
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().starts_with(r#"{"index":1,"#));
    served.report(evidence());
    assert!(lines.next().unwrap().unwrap().contains(r#""tool":"payments.charge""#));
}

#[test]
fn a_control_plane_that_is_not_there_is_named_with_its_cure() {
    let bench = Workbench::new();
    bench.file("token", &"x".repeat(40));
    let at = |url: &str| {
        bench.run(&[
            "revoke",
            "principal",
            "--issuer",
            ISSUER,
            "--token-file",
            "token",
            "--control-plane",
            url,
        ])
    };
    // A port that was free a moment ago, without a listener.
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    at(&format!("http://{closed}")).failed(1, &["cannot be reached", "`credence serve`", "--control-plane"]);
    at("https://127.0.0.1:1").failed(2, &["--ca"]);
    at("ftp://127.0.0.1:1").failed(2, &["http:// or https://"]);
    bench
        .run(&["revoke", "principal", "--issuer", ISSUER])
        .failed(2, &["--token-file"]);
}

/// A planned stop publishes all records; the next start shows them at once.
fn stop_and_start<'a>(served: Served<'a>) -> Served<'a> {
    let bench = served.bench;
    assert_eq!(served.stop(), 0);
    Served::start(bench, &[])
}

#[test]
fn the_ledger_is_verified_offline_online_and_by_a_proof_and_damage_is_named() {
    let bench = Workbench::new();
    let served = Served::start(&bench, &["--init", "--fresh"]);
    for _ in 0..3 {
        served.report(evidence());
    }
    let served = stop_and_start(served);
    let key = served.run(&["audit", "key"]).succeeded().trim().to_owned();
    assert_eq!(bench.run(&["audit", "key", "--data", "data"]).succeeded().trim(), key);
    let online = served.run(&["audit", "verify", "--key", &key]).succeeded();
    assert!(online.ends_with("verified"), "{online}");
    let proof = served.run(&["audit", "prove", "1", "--key", &key]).succeeded();
    bench.file("proof", &format!("{proof}\n"));
    let proven = bench
        .run(&["audit", "verify", "--proof", "proof", "--key", &key])
        .succeeded();
    assert!(proven.contains("record: 1 is in the ledger"), "{proven}");
    // While the control plane runs.
    let offline = ["audit", "verify", "--data", "data", "--key", &key];
    let found = bench.run(&offline).succeeded();
    assert!(found.ends_with("verified"), "{found}");
    assert_eq!(served.stop(), 0);

    let segment = bench.path("data/ledger/segments/00000000000000000000");
    let mut bytes = std::fs::read(&segment).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    std::fs::write(&segment, bytes).unwrap();
    let damaged = bench.run(&offline);
    assert_eq!(damaged.code, 1);
    assert!(
        damaged.stdout.contains("segments/00000000000000000000 at byte "),
        "{damaged:?}"
    );
}

/// Go's golang.org/x/mod/sumdb reads the tiles. Without Go, the test is skipped, and standard error says so.
#[test]
fn gos_tools_for_transparency_logs_verify_the_tiles_and_that_the_ledger_is_append_only() {
    let Some(go) = GoVerifier::set_up() else {
        return;
    };

    let bench = Workbench::new();
    let served = Served::start(&bench, &["--init", "--fresh"]);
    served.report(evidence());
    let served = stop_and_start(served);
    std::fs::copy(bench.path("data/ledger/checkpoint"), bench.path("older")).unwrap();
    for _ in 0..120 {
        served.report(evidence());
    }
    let served = stop_and_start(served);
    let key = served.run(&["audit", "key"]).succeeded();
    let found = go.verify(&served, "older", &key);
    assert!(found.size > 256 && found.held == found.size, "{found:?}");
    assert!((1..found.size).contains(&found.since), "{found:?}");
}

/// The findings of Go's tools below `/ledger`; nothing without Go.
struct GoVerifier(std::path::PathBuf);

#[derive(Debug, serde::Deserialize)]
struct Found {
    size: u64,
    held: u64,
    since: u64,
}

impl GoVerifier {
    fn set_up() -> Option<Self> {
        let repository = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
        let setup = Command::new(repository.join("scripts/setup-interop.sh"))
            .arg("tlog")
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        assert!(setup.status.success(), "scripts/setup-interop.sh tlog failed");
        let said = String::from_utf8(setup.stdout).unwrap();
        let home = said.strip_prefix("ready tlog ")?;
        Some(Self(std::path::PathBuf::from(home.trim()).join("tlog")))
    }

    fn verify(&self, served: &Served<'_>, since: &str, key: &str) -> Found {
        let output = Command::new(&self.0)
            .arg("-since")
            .arg(served.bench.path(since))
            .args([&format!("{}/ledger", served.http), key])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

/// The published bundle, byte for byte.
fn first_bundle(served: &Served<'_>) -> Vec<u8> {
    let url = format!("{}/ledger/tile/entries/000", served.http);
    ureq::get(&url).call().unwrap().body_mut().read_to_vec().unwrap()
}

#[test]
fn erasing_and_pruning_do_not_change_published_tiles() {
    let go = GoVerifier::set_up();
    let bench = Workbench::new();
    let small = ["--ledger-segment-bytes", "65536"];
    let served = Served::start(&bench, &[&["--init", "--fresh"][..], &small].concat());
    let key = served.run(&["audit", "key"]).succeeded();
    for _ in 0..300 {
        served.report(evidence());
    }
    assert_eq!(served.stop(), 0);
    let served = Served::start(&bench, &small);
    std::fs::copy(bench.path("data/ledger/checkpoint"), bench.path("older")).unwrap();
    let verified = |served: &Served<'_>, held_from: std::ops::Range<u64>| {
        for arguments in [
            &["audit", "verify", "--key", &key, "--since", "older"][..],
            &["audit", "verify", "--key", &key, "--since", "older", "--data", "data"],
        ] {
            let found = served.run(arguments).succeeded();
            assert!(found.ends_with("verified"), "{found}");
        }
        if let Some(go) = &go {
            let found = go.verify(served, "older", &key);
            assert!(found.since <= found.size, "{found:?}");
            assert!(held_from.contains(&(found.size - found.held)), "{found:?}");
        }
    };
    verified(&served, 0..1);
    let before = first_bundle(&served);

    let whom = ["--issuer", ISSUER, "--subject", "ali\u{1b}ce"];
    let erase = [&["audit", "erase", "--reason", "request 17"][..], &whom].concat();
    served.run(&erase).failed(1, &["nothing was erased"]);
    let erased = served.run(&[&erase[..], &["--yes"]].concat()).succeeded();
    assert!(erased.starts_with("erased the evidence about ali"), "{erased}");
    let again = served.run(&[&erase[..], &["--yes"]].concat()).succeeded();
    assert!(again.starts_with("there is no evidence about"), "{again}");
    assert_eq!(served.stop(), 0);
    let served = Served::start(&bench, &small);
    assert_eq!(first_bundle(&served), before);
    verified(&served, 0..1);
    assert_eq!(served.stop(), 0);

    let served = Served::start(&bench, &[&small[..], &["--ledger-retention-bytes", "65536"]].concat());
    let first_segment = bench.path("data/ledger/segments/00000000000000000000");
    let begin = std::time::Instant::now();
    while first_segment.exists() {
        assert!(
            begin.elapsed() < std::time::Duration::from_secs(20),
            "nothing is pruned"
        );
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(served.stop(), 0);
    let served = Served::start(&bench, &small);
    let bundle = ureq::get(&format!("{}/ledger/tile/entries/000", served.http)).call();
    assert!(matches!(bundle, Err(ureq::Error::StatusCode(410))), "{bundle:?}");
    verified(&served, 256..u64::MAX);
}

#[test]
fn a_flipped_bit_in_any_file_of_the_ledger_is_found_and_the_file_is_named() {
    let bench = Workbench::new();
    let small = ["--ledger-segment-bytes", "65536"];
    let served = Served::start(&bench, &[&["--init", "--fresh"][..], &small].concat());
    let key = served.run(&["audit", "key"]).succeeded();
    for _ in 0..300 {
        served.report(evidence());
    }
    assert_eq!(served.stop(), 0);
    let mut files = Vec::new();
    let mut folders = vec![bench.path("data/ledger")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => files.push(path),
            }
        }
    }
    for kind in [
        "segments/",
        "index/",
        "hashes/",
        "keys",
        "checkpoint",
        "origin",
        "log-key",
    ] {
        assert!(
            files
                .iter()
                .any(|file| file.to_str().unwrap().contains(&format!("ledger/{kind}"))),
            "no {kind}"
        );
    }
    for file in files {
        let whole = std::fs::read(&file).unwrap();
        if whole.is_empty() {
            continue;
        }
        let mut random = [0; 8];
        getrandom::fill(&mut random).unwrap();
        let bit = u64::from_le_bytes(random) as usize % (whole.len() * 8);
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&file, flipped).unwrap();
        let found = bench.run(&["audit", "verify", "--key", &key, "--data", "data"]);
        let name = file.file_name().unwrap().to_str().unwrap();
        assert_eq!(found.code, 1, "bit {bit} of {file:?}: {found:?}");
        assert!(found.stdout.contains(name), "bit {bit} of {file:?}: {found:?}");
        std::fs::write(&file, whole).unwrap();
    }
    let found = bench
        .run(&["audit", "verify", "--key", &key, "--data", "data"])
        .succeeded();
    assert!(found.ends_with("verified"), "{found}");
}

#[test]
fn a_restored_ledger_has_another_origin_and_key_and_is_checked_against_the_old_checkpoint() {
    let bench = Workbench::new();
    let served = Served::start(&bench, &["--init", "--fresh"]);
    served.report(evidence());
    let old_key = served.run(&["audit", "key"]).succeeded();
    let log_id = served.log_id.clone();
    assert_eq!(served.stop(), 0);
    std::fs::copy(bench.path("data/ledger/checkpoint"), bench.path("older")).unwrap();
    let served = Served::start(&bench, &["--restored", &log_id]);
    served.report(evidence());
    let served = stop_and_start(served);
    let key = served.run(&["audit", "key"]).succeeded();
    assert_ne!(key, old_key);
    let name = |key: &str| key.split('+').next().unwrap().to_owned();
    assert_ne!(name(&key), name(&old_key));
    for place in [&["--data", "data"][..], &[]] {
        let since = [
            "audit",
            "verify",
            "--key",
            &key,
            "--since",
            "older",
            "--since-key",
            &old_key,
        ];
        let found = served.run(&[&since[..], place].concat()).succeeded();
        assert!(found.contains(&name(&key)) && found.ends_with("verified"), "{found}");
        served
            .run(&[&["audit", "verify", "--key", &key, "--since", "older"][..], place].concat())
            .failed(2, &["--since older"]);
    }
}
