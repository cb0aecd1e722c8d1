//! docs/reference/metrics.md and Envoy's metrics page have the same names, with the documented values.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use credence_e2e::grants::READ;
use credence_e2e::{Client, Failure, Request, Stack, StackOptions, waiting};

/// Shared by all tests; it stops with the process.
fn stack() -> &'static Stack {
    static STACK: LazyLock<Stack> = LazyLock::new(|| {
        let watched = "rules:\n                              - {name: w.1, match: {path: /v1/watched}, tool: catalog.read, proof: none, mode: shadow}\n                              - {name: mcp, match: {path: /mcp}, proof: none, mcp: {}}\n";
        let stack = Stack::start(&StackOptions::quick().replacing("rules:\n", watched)).unwrap();
        let chain = stack.mint("alice", &["--tool", READ]).unwrap();
        let mut client = Client::connect(stack.envoy.ingress()).unwrap();
        let book = Request::get("/v1/catalog/book").delegation(&chain);
        for request in [
            book.clone(),
            book,
            mcp_call("catalog.read").delegation(&chain),
            mcp_call("catalog.write").delegation(&chain),
            Request::get("/nowhere"),
            Request::get("/v1/watched"),
        ] {
            client.send(&request).unwrap();
        }
        // Proofs under a cached delegation, except for the first.
        stack.wait_until_proofs_count().unwrap();
        stack
    });
    &STACK
}

fn mcp_call(tool: &str) -> Request {
    let message = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}","arguments":{{"item":"book"}},
            "_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}}}}"#
    );
    Request::new("POST", "/mcp")
        .json(message)
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/call")
        .header("mcp-name", tool)
}

/// The filter's lines of the metrics page.
fn exposed() -> Result<Vec<String>, Failure> {
    let page = stack().envoy.admin_page("/stats/prometheus")?.text();
    Ok(page
        .lines()
        .filter(|line| line.contains("credence_"))
        .map(str::to_owned)
        .collect())
}

/// The sum of the values of the lines that start so.
fn total(lines: &[String], start: &str) -> f64 {
    let values = lines.iter().filter(|line| line.starts_with(start));
    values
        .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
        .sum()
}

/// Waits until the filter has reported this line.
fn wait_for(line: &str) {
    waiting::until(line, || {
        Ok(exposed()?.iter().any(|exposed| exposed.starts_with(line)).then_some(()))
    })
    .unwrap();
}

#[test]
fn what_is_documented_is_exposed_and_nothing_else() {
    wait_for("credence_shadow_decision{");
    wait_for("credence_decision{");
    let types: BTreeSet<(String, String)> = exposed()
        .unwrap()
        .iter()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        // Envoy's own metrics about the cluster and the log of this name start with envoy_.
        .filter(|(name, _)| name.starts_with("credence_"))
        .map(|(name, kind)| (name.to_owned(), kind.to_owned()))
        .collect();
    let documentation = include_str!("../../../docs/reference/metrics.md");
    let (documentation, _) = documentation.split_once("\n## Control plane\n").unwrap();
    let documented: BTreeSet<(String, String)> = documentation
        .lines()
        .filter_map(|line| {
            let mut columns = line.strip_prefix("| `")?.split('|').map(str::trim);
            let name = columns.next()?.strip_suffix('`')?;
            Some((name.to_owned(), columns.next()?.to_owned()))
        })
        .collect();
    assert_eq!(types, documented);
}

#[test]
fn decisions_have_their_rule_and_reason_as_labels() {
    wait_for(r#"credence_decision{rule="catalog",decision="allow",reason="delegated"} 2"#);
    wait_for(r#"credence_decision{rule="(none)",decision="deny",reason="no_route"} 1"#);
    wait_for(r#"credence_shadow_decision{rule="w_1",decision="deny",reason="delegation_missing"} 1"#);
}

#[test]
fn only_what_was_verified_has_a_verification_time() {
    // One chain of the catalogue, and every proof.
    let lines = waiting::until("as many times as verifications", || {
        let lines = exposed()?;
        let verified = 1.0 + total(&lines, r#"credence_decision{rule="charge","#);
        let is_complete = verified > 1.0 && total(&lines, "credence_verification_us_count{} ") == verified;
        Ok(is_complete.then_some(lines))
    })
    .unwrap();
    // Verification takes a measurable time.
    assert_eq!(
        total(&lines, r#"credence_verification_us_bucket{le="5"} "#),
        0.0,
        "{lines:#?}"
    );
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("credence_verification_us_bucket{")),
        "{lines:#?}"
    );
    let count = total(&lines, "credence_verification_us_count{} ");
    let each = total(&lines, "credence_verification_us_sum{} ") / count;
    assert!((10.0..100_000.0).contains(&each), "{each} microseconds");
}

#[test]
fn messages_to_mcp_servers_are_counted_by_method_and_granted_tool() {
    let counted = |decision: &str, tool: &str| {
        format!(r#"credence_mcp_decision{{decision="{decision}",method="tools/call",tool="{tool}"}} 1"#)
    };
    wait_for(&counted("allow", "catalog.read"));
    wait_for(&counted("deny", "(other)"));
}
