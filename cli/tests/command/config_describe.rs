//! `credence config describe`

#![allow(clippy::disallowed_types)] // the output of our own program

use crate::common::{Ran, Workbench};
use serde_json::{Value, json};

const PLUGIN: &str = r#"
audience: [https://payments.example, urn:payments]
trust_anchors:
  - issuer: https://id.example.com
    jwk: {kty: OKP, crv: Ed25519, x: 7GJBdyhdiFuT4Q8CbAa5sR1ARWxY0Dtu8OQ6E9AODWg}
control_plane: {cluster: credence, log_id: 00112233445566778899aabbccddeeff}
headers: {proof: agent-proof}
rules:
  - name: charge
    match:
      hosts: [payments.example, "*.pay.example"]
      methods: [POST, PUT]
      path: /v1/accounts/{account}/charges
      headers: {x-version: {prefix: "2."}}
      query: {dry_run: {absent: true}}
    tool: payments.charge
    args:
      account: {path: account}
      amount: {query: amount, type: number}
      region: {header: x-region, optional: true}
      lines: {body: /order/lines, type: json}
      service: {host: true}
    ignore_query: [trace]
    ignore_members: [/note]
    nonce: true
    forward: true
  - name: events
    match: {path: /events}
    tool: events.read
    audience: [urn:events]
    proof: mtls
    peer_validated: true
    ignore_body: true
    mode: shadow
    upgrade: true
  - {name: health, match: {path: /healthz}, public: true}
"#;

fn describe(contents: &str, arguments: &[&str]) -> Ran {
    let bench = Workbench::new();
    bench.file("plugin.yaml", contents);
    bench.run(&[&["config", "describe", "plugin.yaml"], arguments].concat())
}

#[test]
fn the_output_says_what_each_rule_asks() {
    let expected = "\
Send the delegation in the header delegation, and the proof in agent-proof.
Proofs and derived tokens are signed with Ed25519; a proof's iat may be 30s off.
The first rule that matches decides. A request that matches no rule is denied.

charge
  request    POST or PUT /v1/accounts/{account}/charges
  host       payments.example or *.pay.example
  only if    the header x-version starts with \"2.\"
  only if    the query's dry_run is absent
  tool       payments.charge
  argument   account: text, from {account} in the path
  argument   amount: number, from amount in the query
  argument   region: text, from the header x-region, optional
  argument   lines: any JSON, from /order/lines in the JSON body
  argument   service: text, the host
  proof      pop: each request is signed with the key that the delegation names
  nonce      the proof carries the nonce of a denial's delegation-nonce or dpop-nonce header
  audience   https://payments.example or urn:payments
  ignored    trace in the query, /note in the JSON body; any other member or parameter denies the request
  forwarded  the service receives the delegation

events
  request   every method /events
  host      every host
  tool      events.read
  proof     mtls: the client certificate is the one that the delegation names
  or        the certificate has the SPIFFE ID that the delegation names
  audience  urn:events
  ignored   the body; any other member or parameter denies the request
  shadow    decisions are recorded, but not enforced
  upgrade   allowed, such as a WebSocket

health
  request  every method /healthz
  host     every host
  public   no delegation is needed";
    assert_eq!(describe(PLUGIN, &[]).succeeded(), expected);
}

#[test]
fn a_program_reads_the_same() {
    let printed: Value = serde_json::from_str(&describe(PLUGIN, &["--json"]).succeeded()).unwrap();
    let expected = json!([{
        "default": "deny",
        "delegation_header": "delegation",
        "proof_header": "agent-proof",
        "proof_window_seconds": 30,
        "holder_algorithms": ["Ed25519"],
        "rules": [
            {
                "name": "charge",
                "match": {
                    "hosts": ["payments.example", "*.pay.example"],
                    "methods": ["POST", "PUT"],
                    "path": "/v1/accounts/{account}/charges",
                    "headers": [{"name": "x-version", "test": "prefix", "value": "2."}],
                    "query": [{"name": "dry_run", "test": "absent"}],
                },
                "mode": "enforce",
                "upgrade": false,
                "public": false,
                "asks": {
                    "tool": "payments.charge",
                    "arguments": [
                        {"name": "account", "type": "string", "from": {"place": "path", "name": "account"}, "optional": false},
                        {"name": "amount", "type": "number", "from": {"place": "query", "name": "amount"}, "optional": false},
                        {"name": "region", "type": "string", "from": {"place": "header", "name": "x-region"}, "optional": true},
                        {"name": "lines", "type": "json", "from": {"place": "body", "name": "/order/lines"}, "optional": false},
                        {"name": "service", "type": "string", "from": {"place": "host"}, "optional": false},
                    ],
                    "proof": "pop",
                    "nonce": true,
                    "peer_validated": false,
                    "audience": ["https://payments.example", "urn:payments"],
                    "ignored": {"query": ["trace"], "body_members": ["/note"], "body": false},
                    "forward": true,
                },
            },
            {
                "name": "events",
                "match": {"hosts": [], "methods": [], "path": "/events", "headers": [], "query": []},
                "mode": "shadow",
                "upgrade": true,
                "public": false,
                "asks": {
                    "tool": "events.read",
                    "arguments": [],
                    "proof": "mtls",
                    "nonce": false,
                    "peer_validated": true,
                    "audience": ["urn:events"],
                    "ignored": {"query": [], "body_members": [], "body": true},
                    "forward": false,
                },
            },
            {
                "name": "health",
                "match": {"hosts": [], "methods": [], "path": "/healthz", "headers": [], "query": []},
                "mode": "enforce",
                "upgrade": false,
                "public": true,
            },
        ],
    }]);
    assert_eq!(printed, expected);
}

#[test]
fn an_invalid_configuration_is_not_described() {
    let wrong = PLUGIN.replace("tool: events.read", "tools: events.read");
    for arguments in [&[][..], &["--json"]] {
        describe(&wrong, arguments).failed(1, &["plugin.yaml:29: rules[1].tools: unknown field", "would not load"]);
    }
    describe("a: yes\n", &[]).failed(1, &["plugin.yaml:1: YAML readers disagree"]);
}

#[test]
fn a_filter_is_found_in_its_surrounding_configuration() {
    // A WasmPlugin has no field that lets a filter read bodies.
    let without_body = PLUGIN
        .replace("      lines: {body: /order/lines, type: json}\n", "")
        .replace("    ignore_members: [/note]\n", "");
    let indented = without_body.trim().replace('\n', "\n    ");
    let resource = |strategy: &str| {
        format!(
            "apiVersion: extensions.istio.io/v1alpha1\nkind: WasmPlugin\nmetadata: {{name: credence}}\nspec:\n  url: \
             file:///credence-filter.wasm\n  failStrategy: {strategy}\n  pluginConfig:\n    {indented}\n"
        )
    };
    let printed = describe(&resource("FAIL_RELOAD"), &["--json"]).succeeded();
    let printed: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(printed[0]["rules"][2]["name"], "health");
    describe(&resource("FAIL_OPEN"), &["--json"]).failed(1, &["plugin.yaml:6: spec.failStrategy: "]);
}

#[test]
fn it_says_how_an_mcp_server_is_called() {
    let rule = "  - name: weather
    match: {path: /mcp}
    mcp:
      tools: {prefix: weather.}
      methods: {tools/list: {open: true}, resources/read: {tool: files.read}}
      delegation_in_meta: true
      max_stream: 10m
  - {name: health";
    let contents = PLUGIN.replace("  - {name: health", rule);
    let printed = describe(&contents, &[]).succeeded();
    for row in [
        "MCP       2026-07-28\n",
        "tool      weather.<name>, with the call's arguments\n",
        "method    resources/read needs files.read, with its parameters as arguments\n",
        "method    tools/list needs any delegation\n",
        "or        aat_chain and aat_pop in params._meta, instead of headers\n",
        "ends      after 600 s, with its stream\n",
    ] {
        assert!(printed.contains(row), "{row} is not in:\n{printed}");
    }
    let printed = describe(&contents, &["--json"]).succeeded();
    let printed: Value = serde_json::from_str(&printed).unwrap();
    let expected = json!({
        "versions": ["2026-07-28"],
        "tool_prefix": "weather.",
        "methods": {"resources/read": "files.read", "tools/list": null},
        "delegation_in_meta": true,
        "max_stream_seconds": 600,
    });
    assert_eq!(printed[0]["rules"][2]["asks"]["mcp"], expected);
}
