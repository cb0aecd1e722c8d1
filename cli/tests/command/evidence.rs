//! `credence audit tail`, `show`, `export` and `verify` for credentials that may read all of the evidence, a part, or
//! none; and with a control plane that withholds a part.

// The rows are JSON for any reader.
#![allow(clippy::disallowed_types)]

use std::io::{BufRead, BufReader, Write};

use crate::common::{Ran, Running, Workbench};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const ISSUER: &str = "https://id.example.com";
const OTHER: &str = "https://other.example";

/// A control plane with four tokens, each in a file of its name.
struct Served<'a> {
    bench: &'a Workbench,
    server: Running,
    address: String,
}

impl<'a> Served<'a> {
    fn start(bench: &'a Workbench) -> Self {
        let token = |name: &str, rest: &str| {
            bench.file(name, &token_of(name));
            let digest: String = Sha256::digest(token_of(name))
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            format!("  - {{name: {name}, sha256: \"{digest}\", {rest}}}\n")
        };
        let settings = [
            "access:\n  tokens:\n".to_owned(),
            token("auditor", "roles: [auditor]"),
            token("ours", &format!("roles: [auditor], issuers: [\"{ISSUER}\"]")),
            token("reporter", "roles: [reporter]"),
            token("admin", "roles: [admin]"),
        ];
        bench.file("settings.yaml", &settings.concat());
        Self::serve(bench, "127.0.0.1:0", &["--init", "--fresh"])
    }

    fn serve(bench: &'a Workbench, address: &str, more: &[&str]) -> Self {
        let serve = ["serve", "--data", "data", "--http", address, "--grpc", "127.0.0.1:0"];
        let config = ["--config", "settings.yaml", "--drain-promise", "0s", "--log", "error"];
        let mut server = Running::start(bench, &[&serve[..], &config, more].concat());
        server.line();
        let address = server.line().strip_prefix("http: ").unwrap().to_owned();
        server.line();
        Self { bench, server, address }
    }

    /// Stops it as planned, and starts it at the same address.
    fn restart(self) -> Self {
        let Self { bench, server, address } = self;
        server.ends_well_on("-TERM");
        Self::serve(bench, &address, &[])
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn tail(&self, token: &str, more: &[&str]) -> Running {
        let tail = ["audit", "tail", "--token-file", token, "--control-plane", &self.url()];
        Running::start(self.bench, &[&tail[..], more].concat())
    }

    fn run(&self, token: &str, arguments: &[&str]) -> Ran {
        let place = ["--token-file", token, "--control-plane", &self.url()];
        self.bench.run(&[arguments, &place].concat())
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let mut answer = ureq::post(format!("{}{path}", self.url()))
            .header("authorization", format!("Bearer {}", token_of("reporter")))
            .content_type("application/json")
            .send(body.to_string())
            .unwrap();
        serde_json::from_str(&answer.body_mut().read_to_string().unwrap()).unwrap()
    }
}

/// A source of decisions other than Envoy.
struct Source {
    batches: String,
    next: usize,
}

impl Source {
    fn begin(served: &Served<'_>) -> Self {
        let source = served.post("/v1/audit/sources", &json!({"node": "gateway"}));
        Self {
            batches: format!("/v1/audit/sources/{}/batches", source["ticket"].as_str().unwrap()),
            next: 1,
        }
    }

    fn report(&mut self, served: &Served<'_>, entries: &[Value]) {
        let batch = json!({"first_sequence": self.next, "entries": entries});
        self.next += entries.len();
        assert_eq!(
            served.post(&self.batches, &batch),
            json!({"acknowledged": self.next - 1})
        );
    }
}

fn token_of(name: &str) -> String {
    format!("the-token-of-{name}-which-is-long-enough")
}

fn decision(issuer: &str, tool: &str) -> Value {
    json!({
        "kind": "decision", "time": "2027-01-15T08:00:00.25Z", "decision": "allow", "reason": "ok", "tool": tool,
        "principal": {"issuer": issuer, "subject": "al\u{1b}[2Jice"}, "delegation_ids": ["root", "leaf"],
    })
}

fn tool(line: &str) -> String {
    let record: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    record["tool"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_tail_shows_each_record_once_across_restarts_and_crashes() {
    let bench = Workbench::new();
    let served = Served::start(&bench);
    let mut source = Source::begin(&served);
    let ours = |tool: &str| decision(ISSUER, tool);
    source.report(&served, &[ours("1"), ours("2"), ours("3")]);
    let mut tail = served.tail("auditor", &["--json", "--last", "2", "--kind", "decision"]);
    let mut expect = |tools: &[&str]| {
        for expected in tools {
            assert_eq!(tool(&tail.line()), *expected);
        }
    };
    expect(&["2", "3"]);
    source.report(&served, &[ours("4")]);
    expect(&["4"]);
    let served = served.restart();
    // Whether the tail has reconnected by now or not.
    source.report(&served, &[ours("5"), ours("6")]);
    expect(&["5", "6"]);
    source.report(&served, &[ours("7")]);
    expect(&["7"]);
    let said = tail.ends_well_on("-INT");
    assert!(
        said.contains("not connected") && said.contains("connected again"),
        "{said}"
    );
}

#[test]
fn a_tail_is_one_table_that_cannot_control_the_terminal() {
    let bench = Workbench::new();
    let served = Served::start(&bench);
    let mut source = Source::begin(&served);
    let mut tail = served.tail("auditor", &["--last", "1"]);
    assert!(tail.line().starts_with("INDEX  TIME"));
    assert!(tail.line().contains("source"));
    source.report(&served, &[decision(ISSUER, "pay\u{9b}2J")]);
    let row = tail.line();
    assert!(row.starts_with("1  2027-01-15T08:00:00.250Z  allow  ok"), "{row}");
    assert!(
        row.contains("pay\\u{9b}2J") && row.contains("al\\u{1b}[2Jice at https://id.example.com"),
        "{row}"
    );
    tail.ends_well_on("-INT");
    // As JSON it is the same text.
    let line = served
        .run("auditor", &["audit", "query", "--json", "--limit", "1"])
        .succeeded();
    assert!(line.contains("pay\\u009b2J") && !line.contains('\u{9b}'), "{line}");
    assert_eq!(tool(&line), "pay\u{9b}2J");
}

/// An event's line may be six times as long as the report.
#[test]
fn a_tail_shows_a_chain_of_the_maximum_size() {
    let bench = Workbench::new();
    let served = Served::start(&bench);
    let mut source = Source::begin(&served);
    let chain = |text: String| json!({"kind": "chain", "chain": text, "principal": {"issuer": ISSUER}});
    source.report(&served, &[chain("a".to_owned())]);
    let mut tail = served.tail("auditor", &["--last", "1", "--kind", "chain", "--json"]);
    // From here on it misses no record.
    tail.line();
    source.report(&served, &[chain("\u{1}".repeat(60_000))]);
    let shown = served.run("auditor", &["audit", "show", "2", "--json"]).succeeded();
    assert!(shown.len() > 360_000);
    assert_eq!(tail.line(), shown);
    let mut again = served.tail("auditor", &["--last", "1", "--kind", "chain", "--json"]);
    assert_eq!(again.line(), shown);
}

#[test]
fn a_record_is_shown_with_all_its_members() {
    let bench = Workbench::new();
    let served = Served::start(&bench);
    Source::begin(&served).report(&served, &[decision(ISSUER, "pay")]);
    let shown = served.run("auditor", &["audit", "show", "1"]).succeeded();
    let value = |name: &str| {
        let line = shown.lines().find(|line| line.split_whitespace().next() == Some(name));
        let line = line.unwrap_or_else(|| panic!("no {name} in {shown}"));
        line.strip_prefix(name).unwrap().trim().to_owned()
    };
    assert_eq!(
        (value("index"), value("kind"), value("tool")),
        ("1".into(), "decision".into(), "pay".into())
    );
    assert_eq!(value("delegation_ids"), r#"["root","leaf"]"#);
    assert!(value("principal").contains(r"al\u001b[2Jice"), "{shown}");
    assert!(!shown.contains('\u{1b}'));
    let line = served.run("auditor", &["audit", "show", "1", "--json"]).succeeded();
    assert!(
        line.starts_with(r#"{"index":1,"#) && line.lines().count() == 1,
        "{line}"
    );
    served
        .run("auditor", &["audit", "show", "2"])
        .failed(1, &["404", "no record 2"]);
}

#[test]
fn an_auditor_of_one_issuer_sees_nothing_of_anothers_with_any_command() {
    let bench = Workbench::new();
    let served = Served::start(&bench);
    let mut source = Source::begin(&served);
    let mut tail = served.tail("ours", &["--json"]);
    // The tail begins with this record or after it.
    source.report(&served, &[decision(ISSUER, "begin")]);
    while tool(&tail.line()) != "begin" {}
    let chain =
        |issuer: &str| json!({"kind": "chain", "chain": format!("{issuer}~b"), "principal": {"issuer": issuer}});
    let count = json!({"kind": "aggregate", "time": "2027-01-15T08:00:00Z", "reason": "malformed", "count": 7});
    let theirs = decision(OTHER, "theirs");
    source.report(
        &served,
        &[theirs, chain(OTHER), count, chain(ISSUER), decision(ISSUER, "ours")],
    );
    assert_eq!(tool(&tail.line()), "ours");
    let lines = |arguments: &[&str]| served.run("ours", arguments).succeeded();
    for ask in [&["audit", "query", "--json"][..], &["audit", "export"]] {
        let tools: Vec<_> = lines(ask).lines().map(tool).collect();
        assert!(
            tools.len() == 2 && tools.iter().all(|tool| tool == "ours" || tool == "begin"),
            "{tools:?}"
        );
    }
    assert!(lines(&["audit", "query", "--json", "--tool", "theirs"]).is_empty());
    assert_eq!(lines(&["audit", "export", "--kind", "chain"]).lines().count(), 1);
    for other in ["0", "2", "3", "4"] {
        served.run("ours", &["audit", "show", other]).failed(1, &["404"]);
    }
    served
        .run("ours", &["audit", "query", "--issuer", OTHER])
        .failed(1, &["403", "bound to other issuers"]);
    served
        .run("ours", &["audit", "tail", "--issuer", OTHER])
        .failed(1, &["403", "bound to other issuers"]);
    for ask in [
        &["audit", "query"][..],
        &["audit", "tail"],
        &["audit", "show", "1"],
        &["audit", "export"],
    ] {
        served.run("reporter", ask).failed(1, &["403", "admin, auditor"]);
    }
}

/// A proxy in front of a control plane that answers "not found" for these paths.
fn withholding(upstream: &str, withheld: &'static str) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let upstream = upstream.to_owned();
    // Ends with the test.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let request = lines.next().unwrap().unwrap();
            let path = request.split(' ').nth(1).unwrap().to_owned();
            while lines.next().is_some_and(|line| !line.unwrap().is_empty()) {}
            let (status, body) = match path.starts_with(withheld) {
                true => ("410 Gone", Vec::new()),
                false => {
                    let mut answer = ureq::get(format!("{upstream}{path}")).call().unwrap();
                    ("200 OK", answer.body_mut().read_to_vec().unwrap())
                }
            };
            let head = format!(
                "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                body.len()
            );
            stream.write_all(&[head.as_bytes(), &body].concat()).unwrap();
        }
    });
    url
}

#[test]
fn withheld_tiles_are_no_pruning_and_a_key_from_the_control_plane_is_unchecked() {
    let bench = Workbench::new();
    let served = Served::start(&bench);
    let decisions: Vec<_> = (0..300).map(|_| decision(ISSUER, "pay")).collect();
    Source::begin(&served).report(&served, &decisions);
    // A planned stop publishes all records.
    let served = served.restart();
    let key = served.run("auditor", &["audit", "key"]).succeeded();
    let verify = |withheld: &'static str, more: &[&str]| {
        let url = withholding(&served.url(), withheld);
        bench.run(&[&["audit", "verify", "--control-plane", &url][..], more].concat())
    };
    let found = verify("/nothing", &[]).succeeded();
    assert!(found.contains("of which 0 and later are present"), "{found}");
    assert!(found.contains(&format!("not checked: the key {key}")), "{found}");
    assert!(found.ends_with("verified"), "{found}");
    let found = verify("/nothing", &["--key", &key]).succeeded();
    assert!(!found.contains("not checked"), "{found}");
    // As after pruning.
    let found = verify("/ledger/tile/entries/000", &["--key", &key]).succeeded();
    assert!(found.contains("of which 256 and later are present"), "{found}");
    let found = verify("/ledger/tile/entries/001", &["--key", &key]);
    assert_eq!(found.code, 1, "{found:?}");
    assert!(
        found.stdout.contains("DAMAGED: /ledger/tile/entries/001") && !found.stdout.contains("verified"),
        "{found:?}"
    );
    // An answer that is not a key is an error.
    let elsewhere = withholding(&format!("{}/openapi.json?", served.url()), "/nothing");
    bench
        .run(&["audit", "key", "--control-plane", &elsewhere])
        .failed(1, &["key cannot be read"]);
}
