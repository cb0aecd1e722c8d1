//! `credence config check`

mod common;

use common::{Ran, Workbench};

const PLUGIN: &str = r#"
audience: [https://payments.example]
trust_anchors:
  - issuer: https://id.example.com
    jwk: {kty: OKP, crv: Ed25519, x: 11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo}
    asserts_subjects: true
control_plane: {cluster: credence, log_id: 00112233445566778899aabbccddeeff}
rules:
  - name: charge
    match: {methods: [POST], path: "/v1/accounts/{account}/charges"}
    tool: payments.charge
    args:
      account: {path: account}
      amount: {query: amount, type: number}
  - {name: health, match: {path: /healthz}, public: true}
"#;

/// An Envoy configuration around the plugin's, with these lines in its `config`.
fn envoy(policy: &str, plugin: &str) -> String {
    let indented = plugin.replace('\n', "\n                  ");
    format!(
        r#"
static_resources:
  listeners:
  - name: ingress
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          http_filters:
          - name: other
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm
              config: {{name: other, fail_open: true}}
          - name: credence
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm
              config:
                name: credence
                {policy}
                configuration:
                  "@type": type.googleapis.com/google.protobuf.Struct
                  value:
                    {}
"#,
        indented
            .trim()
            .replace("\n                  ", "\n                    ")
    )
}

fn check(name: &str, contents: &str) -> Ran {
    let bench = Workbench::new();
    bench.file(name, contents);
    bench.run(&["config", "check", name])
}

#[test]
fn a_configuration_that_the_filter_loads_is_accepted() {
    assert_eq!(check("plugin.yaml", PLUGIN).succeeded(), "plugin.yaml: loads");
}

#[test]
fn what_is_no_mistake_but_may_not_be_meant_is_noted() {
    let set = "jwks: {keys: [{kty: RSA, n: AQAB, e: AQAB}, {kty: OKP";
    let plugin = PLUGIN
        .replace("jwk: {kty: OKP", set)
        .replace("aaPcHURo}", "aaPcHURo}]}");
    for (name, contents, place) in [
        ("plugin.yaml", plugin.clone(), "trust_anchors[0]"),
        (
            "envoy.yaml",
            envoy("failure_policy: FAIL_RELOAD", &plugin),
            "configuration.value: trust_anchors[0]",
        ),
    ] {
        let ran = check(name, &contents);
        assert_eq!(
            (ran.code, ran.stdout.trim()),
            (0, format!("{name}: loads").as_str()),
            "{ran:?}"
        );
        let note = format!("{place}.jwks.keys[0]: this key is not used: unsupported key: kty \"RSA\"");
        assert!(ran.stderr.starts_with(&format!("{name}: note: ")), "{ran:?}");
        assert!(ran.stderr.contains(&note) && ran.stderr.lines().count() == 1, "{ran:?}");
    }
}

#[test]
fn json_is_read_as_the_filter_reads_it() {
    let json = r#"{"audience":["a"],"audience":["b"]}"#;
    check("plugin.json", json).failed(1, &["plugin.json: ", "duplicate field `audience`"]);
    check("plugin.json", "{").failed(1, &["plugin.json: "]);
}

#[test]
fn every_mistake_is_named_with_its_place() {
    let wrong = PLUGIN
        .replace("type: number", "type: number}\n      other: {path: nowhere")
        .replace("x: 11q", "x: 11");
    let ran = check("plugin.yaml", &wrong);
    ran.failed(
        1,
        &[
            "plugin.yaml: trust_anchors[0].jwk",
            "rules[0].args.other",
            "correct it as said above",
        ],
    );
}

#[test]
fn a_repeated_field_and_an_ambiguous_scalar_are_refused_with_their_line() {
    check("plugin.yaml", &format!("{PLUGIN}audience: []\n"))
        .failed(1, &["line 16: the field \"audience\" occurs twice"]);
    let ambiguous = PLUGIN.replace("asserts_subjects: true", "asserts_subjects: yes");
    check("plugin.yaml", &ambiguous).failed(1, &["line 6: YAML readers disagree", "yes"]);
}

#[test]
fn the_plugin_is_found_in_an_envoy_configuration() {
    let ran = check("envoy.yaml", &envoy("failure_policy: FAIL_RELOAD", PLUGIN));
    assert_eq!(
        (ran.stderr.as_str(), ran.stdout.trim(), ran.code),
        ("", "envoy.yaml: loads", 0)
    );

    let wrong = envoy(
        "failure_policy: FAIL_RELOAD",
        &PLUGIN.replace("audience: [", "audiences: ["),
    );
    check("envoy.yaml", &wrong).failed(
        1,
        &["http_filters[1].typed_config.config.configuration.value: ", "audiences"],
    );
}

#[test]
fn an_envoy_that_fails_open_is_refused() {
    for policy in [
        "failure_policy: FAIL_OPEN",
        "fail_open: true",
        "failure_policy: FAIL_SOFT",
    ] {
        check("envoy.yaml", &envoy(policy, PLUGIN)).failed(1, &["FAIL_RELOAD"]);
    }
}

#[test]
fn an_envoy_that_does_not_reload_is_warned_about() {
    for policy in ["failure_policy: FAIL_CLOSED", "fail_open: false"] {
        let ran = check("envoy.yaml", &envoy(policy, PLUGIN));
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(
            ran.stderr.contains("warning") && ran.stderr.contains("set failure_policy: FAIL_RELOAD"),
            "{ran:?}"
        );
    }
}

#[test]
fn an_envoy_without_the_plugin_is_not_called_good() {
    check("envoy.yaml", "static_resources: {listeners: []}\n").failed(1, &["without Credence's filter"]);
}

#[test]
fn every_file_is_checked() {
    let bench = Workbench::new();
    bench.file("good.yaml", PLUGIN);
    bench.file("bad.yaml", "rules: []\n");
    bench.file("empty.yaml", "# nothing\n");
    let ran = bench.run(&["config", "check", "bad.yaml", "good.yaml", "empty.yaml"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, "good.yaml: loads\n"));
    assert!(
        ran.stderr.contains("bad.yaml: ") && ran.stderr.contains("empty.yaml: empty"),
        "{ran:?}"
    );
    assert!(ran.stderr.contains("2 files would not load"), "{ran:?}");
    bench
        .run(&["config", "check", "none.yaml"])
        .failed(2, &["none.yaml can not be opened"]);
}
