//! The alerts and the dashboard of envoy-config/observability name metrics and labels that a real Envoy with the filter
//! and a real control plane, issuer and proxy expose. A real Prometheus draws them.

// Configurations are JSON whose structure this test knows.
#![allow(clippy::disallowed_types)]

mod asked;
mod exposed;
mod issuing;
mod promql;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use credence_e2e::agent_proxy::AgentProxy;
use credence_e2e::artefacts::Artefacts;
use credence_e2e::control_plane::ControlPlane;
use credence_e2e::grants::READ;
use credence_e2e::process::Process;
use credence_e2e::subscriber::Subscriber;
use credence_e2e::{Client, Failure, ISSUER, Request, Stack, StackOptions, waiting};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use asked::{Drawn, Rule};
use exposed::Exposed;
use promql::Asked;

/// All series of both sides, after an event of each kind.
static EXPOSED: LazyLock<Exposed> = LazyLock::new(|| expose().unwrap());

/// A metric whose labels appear with the first event.
const APPEAR: [&str; 11] = [
    "credence_revocation_requests_total{",
    "credence_revocation_watch_ended_total{",
    "credence_ledger_witness_requests_total{",
    "credence_ledger_witnessed_entries{",
    "credence_ledger_mismatches_total{",
    "credence_ledger_chains_verified_total{",
    "credence_ledger_allows_checked_total{",
    "credence_http_requests_total{",
    "credence_http_rate_limited_total{",
    "credence_jwks_reads_total{",
    "credence_issuer_keys_trusted_until_seconds{",
];

fn expose() -> Result<Exposed, Failure> {
    let mut exposed = Exposed::default();
    let folder = tempfile::tempdir().map_err(Failure::of("making a folder"))?;
    let stack = watched_stack(&folder)?;
    let page = waiting::until("the filter's metrics", || {
        let page = stack.envoy.admin_page("/stats/prometheus")?.text();
        let is_complete = [
            "credence_decision{",
            "credence_shadow_decision{",
            "credence_verification_us_count",
        ]
        .iter()
        .all(|start| page.lines().any(|line| line.starts_with(start)));
        Ok(is_complete.then_some(page))
    })?;
    exposed.add(&page);
    drop(Subscriber::open_and_wait(
        stack.control_plane.grpc(),
        stack.control_plane.log_id(),
        None,
    )?);
    // Unsigned statements, more than one a second.
    for _ in 0..20 {
        let statement = Request::post("/v1/revocations/statements").header("content-type", "application/jwt");
        stack.control_plane.send(&statement)?;
    }
    let page = || Ok(stack.control_plane.send(&Request::get("/metrics"))?.text());
    for start in APPEAR {
        waiting::until(format_args!("the control plane's {start}"), || {
            Ok(page()?.lines().any(|line| line.starts_with(start)).then_some(()))
        })?;
    }
    let page = page()?;
    exposed.add(&page);
    exposed.add(&refusing(&folder)?);
    let credence = Artefacts::from_environment()?.credence;
    exposed.add(&issuing::metrics(folder.path(), &credence, &stack.control_plane)?);
    exposed.add(&proxy_of(&stack)?);
    // Series and labels that Prometheus adds.
    exposed.add_series("up", []);
    exposed.add_series("ALERTS", ["alertname", "alertstate", "severity"].map(str::to_owned));
    Ok(exposed)
}

/// Envoy and a control plane, after most kinds of events.
fn watched_stack(folder: &TempDir) -> Result<Stack, Failure> {
    let shadow = "rules:\n                              - {name: watched, match: {path: /v1/watched}, tool: catalog.read, proof: none, mode: shadow}\n";
    let digest: String = Sha256::digest("events")
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    // No server listens at these addresses.
    let settings = json!({
        "trust_anchors": [{
            "issuer": ISSUER, "asserts_subjects": true,
            "jwk": {"kty": "OKP", "crv": "Ed25519", "x": "7GJBdyhdiFuT4Q8CbAa5sR1ARWxY0Dtu8OQ6E9AODWg"},
        }],
        "issuer_keys": [{
            "issuer": "https://127.0.0.1:9", "private_addresses": ["127.0.0.0/8"], "refresh_s": 1, "max_key_age_s": 10,
        }],
        "ledger": {"witnesses": [{"url": "http://127.0.0.1:9", "key": witness_key()}]},
        "limits": {"statements_per_second_per_address": 1},
        "audience": ["https://credence.example"],
        "access": {"tokens": [{"name": "events", "sha256": digest, "roles": ["transmitter"]}]},
        "security_events": [{
            "name": "idp", "credentials": ["events"], "issuer": "https://idp.example", "audience": "credence",
            "principal_issuer": ISSUER, "jwks": {"url": "https://127.0.0.1:9/keys"},
        }],
    });
    let options = StackOptions {
        serve_options: vec![
            "--config".to_owned(),
            write(folder, "credence.yaml", &settings.to_string())?,
        ],
        ..StackOptions::quick()
    };
    let stack = Stack::start(&options.replacing("rules:\n", shadow))?;
    let chain = stack.mint("alice", &["--tool", READ])?;
    let mut client = Client::connect(stack.envoy.ingress())?;
    for target in ["/v1/catalog/book", "/v1/catalog/book", "/v1/watched", "/elsewhere"] {
        client.send(&Request::get(target).delegation(&chain))?;
    }
    stack.revoke(&["principal", "--issuer", ISSUER, "--subject", "alice"])?;
    Ok(stack)
}

/// The metrics of a control plane with TLS that refuses clients without TLS or without a credential.
fn refusing(folder: &TempDir) -> Result<String, Failure> {
    let authority = credence_e2e::tls::Authority::new()?;
    let own = authority.issue("control-plane", "DNS:credence.example,IP:127.0.0.1")?;
    let settings = json!({
        "tls": {"http": {"certificate": own.certificate, "key": own.key}},
        "access": {"grpc": "required", "tokens": [{"name": "gateways", "sha256": "0".repeat(64), "roles": ["filter"]}]},
    });
    let file = write(folder, "refusing.yaml", &settings.to_string())?;
    let data = folder.path().join("refusing");
    fs::create_dir(&data).map_err(Failure::of("making a folder"))?;
    let control_plane = ControlPlane::start_in(
        &Artefacts::from_environment()?.credence,
        &data,
        &["--config".to_owned(), file],
        &[],
        Some(authority.certificate().to_owned()),
    )?;
    // Neither has a credential, and the second has no TLS.
    let _ = Subscriber::open_and_wait(control_plane.grpc(), control_plane.log_id(), None).map(|mut it| it.wait());
    let _ = Client::connect(control_plane.http())?.send(&Request::get("/healthz"));
    waiting::until("the refusals to be counted", || {
        let page = control_plane.send(&Request::get("/metrics"))?.text();
        let is_complete = [
            "credence_grpc_refusals_total{",
            "credence_tls_handshake_failures_total{",
        ]
        .iter()
        .all(|start| page.lines().any(|line| line.starts_with(start)));
        Ok(is_complete.then_some(page))
    })
}

/// The metrics of an agent's proxy that has refused a request.
fn proxy_of(stack: &Stack) -> Result<String, Failure> {
    let client = format!(r#"listen: "127.0.0.1:0", service: "{}""#, stack.origin());
    let proxy = AgentProxy::start(stack, &stack.mint("bob", &["--tool", READ])?, &client)?;
    proxy.send(Request::get("/elsewhere"))?;
    let metrics = Client::connect(proxy.admin()?)?.send(&Request::get("/metrics"))?;
    Ok(metrics.text())
}

/// A verifier key of C2SP tlog-cosignature for a witness that does not exist.
fn witness_key() -> String {
    let name = "witness.example/w1";
    // RFC 8032, section 5.1: the base point, whose secret key is unknown.
    let key = [&[4, 0x58], &[0x66; 31][..]].concat();
    let hash = Sha256::digest([name.as_bytes(), b"\n", &key].concat());
    let id: String = hash.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("{name}+{id}+{}", BASE64.encode(key))
}

fn write(folder: &TempDir, name: &str, text: &str) -> Result<String, Failure> {
    let file = folder.path().join(name);
    fs::write(&file, text).map_err(Failure::of("writing a file"))?;
    Ok(file.display().to_string())
}

/// The errors of an expression: metrics and labels that no series has.
fn unknown(expr: &str, legend: &[String], exposed: &Exposed) -> Vec<String> {
    let asked = Asked::read(expr);
    let mut wrong = Vec::new();
    let mut known: BTreeSet<String> = EVERYWHERE.iter().map(|label| (*label).to_owned()).collect();
    for (metric, labels) in &asked.selectors {
        // Selected by `__name__`, because it contains another metric's name. Another test sends it to Prometheus.
        if metric.is_empty() {
            continue;
        }
        let Some(shown) = exposed.labels(metric) else {
            wrong.push(format!("no series is named {metric}"));
            continue;
        };
        known.extend(shown.iter().cloned());
        for label in labels {
            if !shown.contains(label) && !EVERYWHERE.contains(&label.as_str()) {
                wrong.push(format!("{metric} has no label {label}"));
            }
        }
    }
    for label in asked.grouping.iter().chain(legend) {
        if !known.contains(label) {
            wrong.push(format!("nothing in it has a label {label}"));
        }
    }
    wrong
}

/// Labels that Prometheus adds to every scraped series.
const EVERYWHERE: [&str; 2] = ["job", "instance"];

/// Adds the series of the recording rules, with the labels that they keep.
fn with_recorded(rules: &[Rule]) -> Exposed {
    let mut all = Exposed::default();
    all.add_all(&EXPOSED);
    for rule in rules {
        if let Some(record) = &rule.record {
            all.add_series(record, Asked::read(&rule.expr).grouping);
        }
    }
    all
}

#[test]
fn every_metric_and_label_that_a_rule_names_exists() {
    let rules = asked::rules();
    let all = with_recorded(&rules);
    let wrong: Vec<String> = rules
        .iter()
        .flat_map(|rule| {
            let name = rule.alert.as_ref().or(rule.record.as_ref()).unwrap();
            let wrong = unknown(&rule.expr, &[], &all);
            wrong.into_iter().map(move |wrong| format!("{name}: {wrong}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_metric_and_label_that_the_dashboard_names_exists() {
    let all = with_recorded(&asked::rules());
    let wrong: Vec<String> = asked::drawn()
        .into_iter()
        .flat_map(|Drawn { panel, expr, legend }| {
            let wrong = unknown(&expr, &legend, &all);
            wrong.into_iter().map(move |wrong| format!("{panel}: {wrong}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_alert_has_a_section_of_the_runbook_and_tests_of_both_kinds() {
    let runbook = include_str!("../../../../docs/operate/alerts.md");
    let tests: String = fs::read_dir(asked::folder().join("tests"))
        .unwrap()
        .map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap())
        .collect();
    let mut alerts = BTreeSet::new();
    for Rule { alert, annotations, .. } in asked::rules() {
        let Some(alert) = alert else { continue };
        let section = format!("\n### {alert}\n");
        assert!(
            runbook.contains(&section),
            "docs/operate/alerts.md has no section {alert}"
        );
        assert_eq!(
            annotations.runbook_url,
            format!("docs/operate/alerts.md#{}", alert.to_lowercase())
        );
        let fires = format!("ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"");
        assert!(tests.contains(&fires), "no test has {alert} fire");
        let name = tests
            .lines()
            .any(|line| line.contains("- name:") && line.contains(&alert));
        assert!(name, "no test has the name of {alert}");
        alerts.insert(alert);
    }
    // And each section has an alert.
    for section in runbook.lines().filter_map(|line| line.strip_prefix("### ")) {
        assert!(
            alerts.contains(section),
            "docs/operate/alerts.md: there is no alert {section}"
        );
    }
    // Each test in which an alert fires also checks when it does not.
    for test in tests.split("  - name: ").skip(1).filter(|test| test.contains("ALERTS")) {
        let name = test.lines().next().unwrap_or_default();
        let is_silent = test.contains("exp_samples: []}") || name.contains("not even known");
        assert!(is_silent, "{name}: check when it does not fire, too");
    }
}

/// Prometheus and promtool, where scripts/setup-prometheus.sh has put them.
fn tool(name: &str) -> Option<PathBuf> {
    let tool = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../.tools/prometheus")
        .join(name);
    if !tool.is_file() {
        eprintln!("SKIPPED: {name} is not in .tools/prometheus; scripts/setup-prometheus.sh says why");
        return None;
    }
    Some(tool)
}

#[test]
fn every_expression_of_the_dashboard_is_valid_promql() {
    let Some(promtool) = tool("promtool") else {
        return;
    };
    let drawn = asked::drawn();
    let expressions = drawn.iter().enumerate();
    let rules: Vec<_> = expressions
        .map(|(number, drawn)| json!({"record": format!("drawn:{number}"), "expr": drawn.expr}))
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let file = write(
        &folder,
        "drawn.yml",
        &json!({"groups": [{"name": "drawn", "rules": rules}]}).to_string(),
    )
    .unwrap();
    let ran = Command::new(promtool).args(["check", "rules", &file]).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}

/// A Prometheus with the shipped configuration that scrapes these two every second.
fn prometheus(program: &Path, stack: &Stack, folder: &TempDir) -> Result<(Process, String), Failure> {
    let shipped = fs::read_to_string(asked::folder().join("prometheus.yml")).map_err(Failure::of("reading"))?;
    let rules = asked::folder().join("rules");
    let configuration = shipped
        .replace("127.0.0.1:9901", &stack.envoy.admin().to_string())
        .replace("127.0.0.1:7070", &stack.control_plane.http().to_string())
        .replace("rules/*.yml", &format!("{}/*.yml", rules.display()))
        .replace("scrape_interval: 15s", "scrape_interval: 1s")
        .replace("evaluation_interval: 15s", "evaluation_interval: 1s")
        .replace("scrape_timeout: 10s", "scrape_timeout: 1s");
    let file = write(folder, "prometheus.yml", &configuration)?;
    let address = format!("127.0.0.1:{}", credence_e2e::ports::free()?);
    let process = Process::start(
        "Prometheus",
        Command::new(program)
            .arg(format!("--config.file={file}"))
            .arg(format!(
                "--storage.tsdb.path={}",
                folder.path().join("prometheus").display()
            ))
            .arg(format!("--web.listen-address={address}")),
        &folder.path().join("prometheus.log"),
    )?;
    Ok((process, format!("http://{address}")))
}

/// Prometheus' answer, one line for each series.
fn ask(promtool: &Path, server: &str, expr: &str) -> Result<Vec<String>, Failure> {
    let ran = Command::new(promtool)
        .args(["query", "instant", "--", server, expr])
        .output()
        .map_err(Failure::of("running promtool"))?;
    if !ran.status.success() {
        let said = String::from_utf8_lossy(&ran.stderr);
        return Err(Failure::new(format!("{expr}: {said}")));
    }
    // Without a series it prints an empty line.
    Ok(String::from_utf8_lossy(&ran.stdout)
        .lines()
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect())
}

#[test]
fn a_real_prometheus_draws_the_dashboard_and_raises_no_false_alert() {
    let (Some(program), Some(promtool)) = (tool("prometheus"), tool("promtool")) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let stack = Stack::start(&StackOptions::quick()).unwrap();
    let chain = stack.mint("alice", &["--tool", READ]).unwrap();
    let (_prometheus, server) = prometheus(&program, &stack, &folder).unwrap();
    let mut client = Client::connect(stack.envoy.ingress()).unwrap();
    waiting::until("Prometheus to have evaluated the rule of denials", || {
        client.send(&Request::get("/v1/catalog/book").delegation(&chain))?;
        let answer = ask(&promtool, &server, "credence:denied:ratio_rate5m or vector(-1)");
        Ok(answer
            .ok()
            .filter(|lines| lines.iter().any(|line| line.contains("credence-envoy"))))
    })
    .unwrap();
    let up = ask(&promtool, &server, "up == 1").unwrap();
    assert_eq!(up.len(), 2, "{up:#?}");
    let reloads = ask(&promtool, &server, r#"{__name__=~"envoy_wasm_.*credence.*_vm_reload"}"#).unwrap();
    assert_eq!(reloads.len(), 1, "{reloads:#?}");
    let firing = ask(&promtool, &server, r#"ALERTS{alertstate="firing"}"#).unwrap();
    assert!(firing.is_empty(), "{firing:#?}");
    // An invalid expression is an error; one without series is not.
    let (mut drawn, mut empty) = (0, Vec::new());
    for Drawn { panel, expr, .. } in asked::drawn() {
        if expr.contains("label_values") {
            continue;
        }
        match ask(&promtool, &server, &expr).unwrap().is_empty() {
            true => empty.push(panel),
            false => drawn += 1,
        }
    }
    assert!(drawn > 3 * empty.len(), "{drawn} drawn, but not {empty:#?}");
}

#[test]
fn the_pod_monitor_makes_labels_as_the_scrape_does() {
    let steps = |file: &str| -> Vec<String> {
        let lines = file.lines().map(str::trim);
        lines
            .filter(|line| line.starts_with("regex: "))
            .map(str::to_owned)
            .collect()
    };
    let scrape = steps(include_str!("../../../../envoy-config/observability/prometheus.yml"));
    let monitor = steps(include_str!("../../../../envoy-config/kubernetes/podmonitor.yaml"));
    assert!(!scrape.is_empty());
    assert_eq!(scrape, monitor);
}

#[test]
fn without_the_bootstraps_stats_config_the_scrape_makes_the_labels() {
    let (Some(program), Some(promtool)) = (tool("prometheus"), tool("promtool")) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    // As in Istio, whose bootstrap is not ours.
    let shipped = include_str!("../../../../envoy-config/envoy.yaml");
    let (_, stats_config) = shipped.split_once("\nstats_config:\n").unwrap();
    let options = StackOptions::quick().replacing(&format!("stats_config:\n{stats_config}"), "");
    let stack = Stack::start(&options).unwrap();
    let (_prometheus, server) = prometheus(&program, &stack, &folder).unwrap();
    for (rule, decision, reason) in [("_none_", "deny", "no_route"), ("health", "allow", "public")] {
        let target = if rule == "health" { "/healthz" } else { "/elsewhere" };
        let expr = format!(r#"credence_decision{{rule="{rule}",decision="{decision}",reason="{reason}"}}"#);
        waiting::until(&expr, || {
            stack.send(&Request::get(target))?;
            Ok(ask(&promtool, &server, &expr).ok().filter(|lines| !lines.is_empty()))
        })
        .unwrap();
    }
}
