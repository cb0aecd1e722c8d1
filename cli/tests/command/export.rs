//! `credence audit export`: records, read back without any of Credence's code.

// The rows are JSON for any reader.
#![allow(clippy::disallowed_types)]

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command};

use crate::common::{Ran, Workbench};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// A control plane, killed with the test.
struct Served {
    child: Child,
    url: String,
    // Kept open for the server, which prints more lines later.
    _stdout: BufReader<ChildStdout>,
}

impl Served {
    fn start(bench: &Workbench) -> Self {
        bench.file("token", TOKEN);
        let digest: String = Sha256::digest(TOKEN).iter().map(|byte| format!("{byte:02x}")).collect();
        let settings =
            format!("access:\n  tokens:\n  - {{name: all, sha256: \"{digest}\", roles: [auditor, reporter]}}\n");
        let config = ["--config", bench.file("settings.yaml", &settings)];
        let serve = ["serve", "--data", "data", "--init", "--fresh", "--log", "error"];
        let addresses = ["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"];
        let mut child = bench
            .command(&[&serve[..], &addresses, &config].concat())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let url = stdout
            .by_ref()
            .lines()
            .find_map(|line| line.unwrap().strip_prefix("http: ").map(|at| format!("http://{at}")))
            .unwrap();
        Self {
            child,
            url,
            _stdout: stdout,
        }
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let mut answer = ureq::post(format!("{}{path}", self.url))
            .header("authorization", format!("Bearer {TOKEN}"))
            .content_type("application/json")
            .send(body.to_string())
            .unwrap();
        serde_json::from_str(&answer.body_mut().read_to_string().unwrap()).unwrap()
    }

    /// Reports entries as a new source.
    fn report(&self, entries: &[Value]) {
        let source = self.post("/v1/audit/sources", &json!({"node": "gateway"}));
        let path = format!("/v1/audit/sources/{}/batches", source["ticket"].as_str().unwrap());
        for (batch, entries) in entries.chunks(1000).enumerate() {
            self.post(&path, &json!({"first_sequence": batch * 1000 + 1, "entries": entries}));
        }
    }

    fn export(&self, bench: &Workbench, arguments: &[&str]) -> Ran {
        let online = ["audit", "export", "--token-file", "token", "--control-plane", &self.url];
        bench.run(&[&online[..], arguments].concat())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// This many entries: decisions of several kinds, a count and a gap.
fn entries(count: usize) -> Vec<Value> {
    let entry = |at: usize| match at % 10 {
        8 => json!({"kind": "aggregate", "time": "2027-01-15T08:00:01Z", "reason": "malformed", "count": at}),
        9 => {
            json!({"kind": "gap", "shed": at, "first_time": "2027-01-15T08:00:00.5Z", "last_time": "2027-01-15T08:00:02Z"})
        }
        rest => json!({
            "kind": "decision", "time": format!("2027-01-15T08:00:00.{at:09}Z"), "tool": format!("tool-{rest}"),
            "decision": if rest == 0 { "deny" } else { "allow" }, "reason": if rest == 0 { "expired" } else { "ok" },
            "principal": {"issuer": "https://id.example.com", "subject": format!("user-{at}")},
            "delegation_ids": vec!["root", "mid", "leaf"][..rest % 4].to_vec(),
            "decision_ns": u64::MAX - at as u64, "response_status": 200,
        }),
    };
    (0..count).map(entry).collect()
}

/// The number of records that match these conditions.
fn exported(served: &Served, bench: &Workbench, conditions: &[&str]) -> usize {
    lines(&served.export(bench, conditions).succeeded()).len()
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn indexes(records: &[Value]) -> Vec<u64> {
    records.iter().map(|record| record["index"].as_u64().unwrap()).collect()
}

#[test]
fn json_lines_have_every_record_once_in_order_and_can_be_continued() {
    let bench = Workbench::new();
    let served = Served::start(&bench);
    served.report(&entries(2500));
    let exported = served.export(&bench, &[]);
    assert!(
        exported.stderr.contains("exported 2501 records before index 2501"),
        "{}",
        exported.stderr
    );
    let records = lines(&exported.succeeded());
    assert_eq!(indexes(&records), (0..2501).collect::<Vec<_>>());
    assert_eq!(records[1]["principal"]["subject"], "user-0");

    served.report(&entries(3));
    let later = served.export(&bench, &["--from-index", "2501", "--out", "later.jsonl"]);
    assert!(later.stderr.contains("--from-index 2505"), "{}", later.stderr);
    later.succeeded();
    let later = std::fs::read_to_string(bench.path("later.jsonl")).unwrap();
    assert_eq!(indexes(&lines(&later)), [2501, 2502, 2503, 2504]);
    let part = served
        .export(&bench, &["--from-index", "7", "--before", "9"])
        .succeeded();
    assert_eq!(indexes(&lines(&part)), [7, 8]);
    assert_eq!(served.export(&bench, &["--from-index", "2505"]).succeeded(), "");
}

#[test]
fn conditions_choose_records_however_far_apart() {
    let bench = Workbench::new();
    let served = Served::start(&bench);
    served.report(&entries(12_000));
    let one = served.export(
        &bench,
        &["--issuer", "https://id.example.com", "--subject", "user-11001"],
    );
    assert_eq!(indexes(&lines(&one.succeeded())), [11_002]);
    let denied = lines(&served.export(&bench, &["--decision", "deny"]).succeeded());
    // Counts are denials.
    assert_eq!(denied.len(), 2400);
    assert!(indexes(&denied).is_sorted());
    // Every tenth is a count, of the next second.
    let second = [
        "--kind",
        "aggregate",
        "--since",
        "2027-01-15T08:00:01Z",
        "--until",
        "2027-01-15T08:00:02Z",
    ];
    assert_eq!(exported(&served, &bench, &second), 1200);
    let early = ["--kind", "aggregate", "--until", "2027-01-15T08:00:01Z"];
    assert_eq!(exported(&served, &bench, &early), 0);
    let reason = ["--reason", "expired", "--tool", "tool-0", "--before", "101"];
    assert_eq!(exported(&served, &bench, &reason), 10);
}

#[test]
fn chains_are_exported_on_request_even_at_the_end() {
    let bench = Workbench::new();
    let served = Served::start(&bench);
    let chain = json!({
        "kind": "chain", "chain": "a~b", "principal": {"issuer": "https://id.example.com", "subject": "ada"},
    });
    served.report(&[entries(1).remove(0), chain]);
    assert_eq!(exported(&served, &bench, &[]), 2);
    let chains = lines(&served.export(&bench, &["--kind", "chain"]).succeeded());
    assert_eq!((indexes(&chains), &chains[0]["chain"]), (vec![2], &json!("a~b")));
    let digest = chains[0]["chain_digest"].as_str().unwrap();
    assert_eq!(exported(&served, &bench, &["--chain", digest]), 1);
}

#[test]
fn a_file_is_complete_or_missing_and_never_overwritten() {
    let bench = Workbench::new();
    let served = Served::start(&bench);
    bench.file("mine", "mine");
    served
        .export(&bench, &["--out", "mine"])
        .failed(2, &["not overwritten"]);
    assert_eq!(std::fs::read_to_string(bench.path("mine")).unwrap(), "mine");
    served
        .export(&bench, &["--format", "parquet"])
        .failed(2, &["needs --out"]);
    drop(served);
    let gone = [
        "audit",
        "export",
        "--token-file",
        "token",
        "--control-plane",
        "http://127.0.0.1:1",
        "--out",
        "none",
    ];
    assert_ne!(bench.run(&gone).code, 0);
    let left: Vec<_> = std::fs::read_dir(bench.path(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(
        !left.iter().any(|name| ["none", "."]
            .iter()
            .any(|start| name.to_string_lossy().starts_with(start))),
        "{left:?}"
    );
}

#[test]
fn pyarrow_reads_the_same_records_with_their_types() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let prepared = Command::new(repository.join("scripts/setup-interop.sh"))
        .arg("evidence")
        .output()
        .unwrap();
    assert!(prepared.status.success(), "{prepared:?}");
    let answer = String::from_utf8(prepared.stdout).unwrap();
    let Some(home) = answer.trim().strip_prefix("ready evidence ").map(PathBuf::from) else {
        // Python is not installed, or too old; the script's standard error says which.
        eprintln!("{}", String::from_utf8_lossy(&prepared.stderr));
        return;
    };
    let bench = Workbench::new();
    let served = Served::start(&bench);
    served.report(&entries(2500));
    let records = lines(&served.export(&bench, &[]).succeeded());
    served
        .export(&bench, &["--format", "parquet", "--out", "evidence.parquet"])
        .succeeded();
    let read = Command::new(home.join("bin/python"))
        .arg("-B")
        .arg(repository.join("interop/evidence/read_parquet.py"))
        .arg(bench.path("evidence.parquet"))
        .output()
        .unwrap();
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let mut rows = lines(&String::from_utf8(read.stdout).unwrap());
    let schema = rows.remove(0);
    for (column, expected) in [
        ("index", "uint64"),
        ("time", "timestamp[ns, tz=UTC]"),
        ("tool", "string"),
        ("delegation_ids", "list<element: string not null>"),
        ("decision_ns", "uint64"),
        ("response_status", "int32"),
    ] {
        assert_eq!(schema[column], expected, "{schema}");
    }
    let guide = std::fs::read_to_string(repository.join("docs/reference/evidence.md")).unwrap();
    for column in schema.as_object().unwrap().keys() {
        assert!(
            guide.contains(&format!("`{column}`")),
            "docs/reference/evidence.md has no {column}"
        );
    }
    assert_eq!(rows.len(), records.len());
    for (row, record) in rows.iter().zip(&records) {
        assert_eq!(row["index"], record["index"]);
        for (name, value) in record.as_object().unwrap() {
            match name.as_str() {
                "principal" => {
                    assert_eq!(row["principal_issuer"], value["issuer"]);
                    assert_eq!(row["principal_subject"], value["subject"]);
                }
                "time" | "received" | "first_time" | "last_time" => {
                    let nanos = row[name].as_i64().unwrap();
                    let seconds: prost_types::Timestamp = value.as_str().unwrap().parse().unwrap();
                    assert_eq!(
                        nanos,
                        seconds.seconds * 1_000_000_000 + i64::from(seconds.nanos),
                        "{name}"
                    );
                }
                _ => assert_eq!(&row[name], value, "{name} of {record}"),
            }
        }
    }
}

const TOKEN: &str = "a-token-that-reports-and-reads-evidence";
