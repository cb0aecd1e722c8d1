//! `credence config check`

use std::path::Path;

use crate::common::{Ran, Workbench};

const PLUGIN: &str = r#"
audience: [https://payments.example]
trust_anchors:
  - issuer: https://id.example.com
    jwk: {kty: OKP, crv: Ed25519, x: 7GJBdyhdiFuT4Q8CbAa5sR1ARWxY0Dtu8OQ6E9AODWg}
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

/// An Envoy configuration with the plugin's configuration, and these lines in its `config`.
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

/// Istio's WasmPlugin with the plugin's configuration, and this line in its `spec`.
fn wasm_plugin(line: &str, plugin: &str) -> String {
    let indented = plugin.replace('\n', "\n    ");
    format!(
        r#"apiVersion: extensions.istio.io/v1alpha1
kind: WasmPlugin
metadata:
  name: credence
  namespace: payments
spec:
  url: oci://registry.example/credence-filter:1
  sha256: "0123456789012345678901234567890123456789012345678901234567890123"
  {line}
  pluginConfig:
    {}
"#,
        indented.trim()
    )
}

/// Istio's EnvoyFilter with the plugin's configuration as a `TypedStruct`, and this line in its `config`.
fn envoy_filter(policy: &str, plugin: &str) -> String {
    let indented = plugin.replace('\n', "\n                  ");
    format!(
        r#"apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
spec:
  configPatches:
  - applyTo: HTTP_FILTER
    patch:
      operation: INSERT_BEFORE
      value:
        name: credence
        typed_config:
          "@type": type.googleapis.com/udpa.type.v1.TypedStruct
          type_url: type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm
          value:
            config:
              name: credence
              {policy}
              configuration:
                "@type": type.googleapis.com/google.protobuf.Struct
                value:
                  {}
"#,
        indented.trim()
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
fn a_probable_error_is_noted() {
    let set = "jwks: {keys: [{kty: RSA, n: AQAB, e: AQAB}, {kty: OKP";
    let plugin = PLUGIN.replace("jwk: {kty: OKP", set).replace("9AODWg}", "9AODWg}]}");
    for (name, contents, place) in [
        ("plugin.yaml", plugin.clone(), "trust_anchors[0]"),
        (
            "envoy.yaml",
            envoy("failure_policy: FAIL_RELOAD", &plugin),
            "configuration.value.trust_anchors[0]",
        ),
    ] {
        let ran = check(name, &contents);
        assert_eq!(
            (ran.code, ran.stdout.trim()),
            (0, format!("{name}: loads").as_str()),
            "{ran:?}"
        );
        let note = format!("{place}.jwks.keys[0]: this key is not used: unsupported key: kty \"RSA\"");
        assert!(ran.stderr.starts_with(&format!("{name}:")), "{ran:?}");
        assert!(
            ran.stderr.contains(": note: ") && ran.stderr.contains(&note) && ran.stderr.lines().count() == 1,
            "{ran:?}"
        );
    }
}

#[test]
fn a_key_that_is_public_is_refused_and_that_of_our_files_noted() {
    for (name, contents, place) in [
        ("plugin.yaml", PLUGIN.to_owned(), "plugin.yaml:5: "),
        (
            "istio.yaml",
            wasm_plugin("failStrategy: FAIL_RELOAD", PLUGIN),
            "istio.yaml:14: ",
        ),
    ] {
        let with = |x: &str| check(name, &contents.replace(KEY, x));
        with(PRINTED).failed(
            1,
            &[
                place,
                "trust_anchors[0].jwk: RFC 8037, appendix A, prints the private half",
                "put your issuer's own public key here",
            ],
        );
        let ran = with(SAMPLE_KEY);
        assert_eq!((ran.code, ran.stderr.lines().count()), (0, 1), "{ran:?}");
        assert!(
            ran.stderr.starts_with(&format!("{place}note: ")) && ran.stderr.contains(SAMPLE_KEY_NOTE),
            "{ran:?}"
        );
    }
}

#[test]
fn the_control_planes_trust_anchors_are_checked_alike() {
    let bench = Workbench::new();
    let with = |x: &str| {
        let file = format!(
            "trust_anchors:\n  - issuer: https://id.example.com\n    jwk: {{kty: OKP, crv: Ed25519, x: {x}}}\n"
        );
        bench.run(&["config", "check", "--control-plane", bench.file("credence.yaml", &file)])
    };
    with(PRINTED).failed(
        2,
        &[
            "credence.yaml:3: at trust_anchors[0].jwk: RFC 8037, appendix A, prints the private half",
            "put your issuer's own public key here",
        ],
    );
    let ran = with(SAMPLE_KEY);
    assert_eq!((ran.code, ran.stdout.trim()), (0, "credence.yaml: loads"), "{ran:?}");
    assert!(
        ran.stderr
            .starts_with("credence.yaml:3: note: at trust_anchors[0].jwk: ")
            && ran.stderr.contains(SAMPLE_KEY_NOTE),
        "{ran:?}"
    );
    assert_eq!(with(KEY).stderr, "");
}

/// The key in [`PLUGIN`].
const KEY: &str = "7GJBdyhdiFuT4Q8CbAa5sR1ARWxY0Dtu8OQ6E9AODWg";

/// RFC 8037, appendix A.
const PRINTED: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";

/// The key in envoy-config.
const SAMPLE_KEY: &str = "yYBm-rE6VHWP5Wqf-hF5cS2bUSil1mkmgEUrOfsixqc";

/// The note about it.
const SAMPLE_KEY_NOTE: &str = "the key of Credence's own files";

/// The notes about the other values in envoy-config that a user replaces.
const SAMPLE_LOG_ID_NOTE: &str = "the log id of Credence's own files";
const SAMPLE_DIGEST_NOTE: &str = "the digest of Credence's own files";

/// Asserts that a file of ours loads, with a note for each value that a user replaces, and no other.
#[track_caller]
fn assert_lacks_only_the_users_values(path: &Path) {
    let ran = Workbench::new().run(&["config", "check", path.to_str().unwrap()]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let has_digest = std::fs::read_to_string(path).unwrap().contains(&"0".repeat(64));
    let mut expected = vec![SAMPLE_KEY_NOTE, SAMPLE_LOG_ID_NOTE];
    expected.extend(has_digest.then_some(SAMPLE_DIGEST_NOTE));
    assert_eq!(ran.stderr.lines().count(), expected.len(), "{ran:?}");
    for note in expected {
        assert_eq!(ran.stderr.matches(note).count(), 1, "{note}: {ran:?}");
    }
}

#[test]
fn json_is_read_as_the_filter_reads_it() {
    let json = r#"{"audience":["a"],"audience":["b"]}"#;
    check("plugin.json", json).failed(1, &["plugin.json: ", "duplicate field `audience`"]);
    check("plugin.json", "{").failed(1, &["plugin.json: "]);
}

#[test]
fn every_error_is_named_with_its_place() {
    let wrong = PLUGIN
        .replace("type: number", "type: number}\n      other: {path: nowhere")
        .replace("x: 7GJ", "x: 7G");
    let ran = check("plugin.yaml", &wrong);
    ran.failed(
        1,
        &[
            "plugin.yaml:5: trust_anchors[0].jwk: ",
            "plugin.yaml:15: rules[0].args.other.path: capture `nowhere`",
            "fix the errors above",
        ],
    );
}

#[test]
fn a_repeated_field_and_an_ambiguous_scalar_are_refused_with_their_line() {
    check("plugin.yaml", &format!("{PLUGIN}audience: []\n"))
        .failed(1, &["plugin.yaml:16: the field \"audience\" occurs twice"]);
    let ambiguous = PLUGIN.replace("asserts_subjects: true", "asserts_subjects: yes");
    check("plugin.yaml", &ambiguous).failed(1, &["plugin.yaml:6: YAML readers disagree", "yes"]);
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
        &[
            "envoy.yaml:23: static_resources.",
            "http_filters[1].typed_config.config.configuration.value.audiences: unknown field",
        ],
    );
}

#[test]
fn an_envoy_that_fails_open_is_refused() {
    for policy in [
        "failure_policy: FAIL_OPEN",
        "failure_policy: 3",
        "fail_open: true",
        "failure_policy: FAIL_SOFT",
    ] {
        let field = policy.split(':').next().unwrap();
        let place = format!("http_filters[1].typed_config.config.{field}: ");
        check("envoy.yaml", &envoy(policy, PLUGIN)).failed(1, &["envoy.yaml:19: ", &place, "FAIL_RELOAD"]);
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

/// An Envoy configuration whose connection manager has these lines.
fn with_routes(lines: &str) -> String {
    let envoy = envoy("failure_policy: FAIL_RELOAD", PLUGIN);
    let lines: String = lines.lines().map(|line| format!("          {line}\n")).collect();
    envoy.replace(
        "          http_filters:\n",
        &format!("{lines}          http_filters:\n"),
    )
}

#[track_caller]
fn assert_warned(contents: &str, warnings: &[&str]) {
    let ran = check("envoy.yaml", contents);
    assert_eq!((ran.code, ran.stderr.lines().count()), (0, warnings.len()), "{ran:?}");
    for (line, warning) in ran.stderr.lines().zip(warnings) {
        assert!(line.contains("warning: ") && line.contains(warning), "{line}");
    }
}

#[test]
fn an_envoy_whose_virtual_hosts_read_hosts_differently_is_warned_about() {
    let one = "route_config: {virtual_hosts: [{name: a, domains: [a.example], routes: []}]}\n";
    let two = "route_config:\n  virtual_hosts: [{name: a, domains: [a.example]}, {name: b, domains: ['*']}]\n";
    let elsewhere = "rds: {route_config_name: ingress}\n";
    let (port, dot) = ("strip_any_host_port: true", "strip_trailing_host_dot: true");
    for routes in [one, two, elsewhere] {
        assert_warned(
            &with_routes(routes),
            &[
                "typed_config.strip_any_host_port: Envoy compares hosts with their port",
                "typed_config.strip_trailing_host_dot: Envoy compares hosts with their trailing dot",
            ],
        );
        assert_warned(&with_routes(&format!("{routes}{port}\n")), &[dot]);
        assert_warned(&with_routes(&format!("{routes}{dot}\n")), &[port]);
        assert_warned(&with_routes(&format!("{routes}{dot}\n{port}\n")), &[]);
    }
    let ignores = two.replace(
        "route_config:\n",
        "route_config:\n  ignore_port_in_host_matching: true\n",
    );
    assert_warned(&with_routes(&ignores), &[dot]);
    // A virtual host for every host compares nothing.
    assert_warned(
        &with_routes("route_config: {virtual_hosts: [{name: a, domains: ['*'], routes: []}]}\n"),
        &[],
    );
}

#[test]
fn a_prefix_that_does_not_end_at_a_segment_is_warned_about() {
    let routes = |matches: &str| {
        with_routes(&format!(
            "route_config:\n  virtual_hosts:\n  - {{name: a, domains: ['*'], routes: [{{match: {{{matches}}}}}]}}\n"
        ))
    };
    assert_warned(
        &routes("prefix: /admin"),
        &["route_config.virtual_hosts[0].routes[0].match.prefix: Envoy sends /adminx here too"],
    );
    for good in [
        "prefix: /",
        "prefix: /admin/",
        "prefix: ''",
        "path_separated_prefix: /admin",
        "path: /admin",
    ] {
        assert_warned(&routes(good), &[]);
    }
}

#[test]
fn an_envoy_without_the_plugin_is_an_error() {
    check("envoy.yaml", "static_resources: {listeners: []}\n").failed(1, &["without Credence's filter"]);
}

#[test]
fn a_configuration_given_as_text_is_checked_line_by_line() {
    let text = |json: &str| {
        envoy("failure_policy: FAIL_RELOAD", "\n{}\n")
            .replace("google.protobuf.Struct", "google.protobuf.StringValue")
            .replace("value:\n                    {}", &format!("value: |\n{json}"))
    };
    let json = r#"
                    {
                      "audience": ["a"],
                      "rule": []
                    }
"#;
    check("envoy.yaml", &text(json)).failed(
        1,
        &["envoy.yaml:26: ", "configuration.value: rule: unknown field `rule`"],
    );
}

#[test]
fn an_istio_wasm_plugin_is_read() {
    let ran = check("istio.yaml", &wasm_plugin("failStrategy: FAIL_RELOAD", PLUGIN));
    assert_eq!(
        (ran.stderr.as_str(), ran.stdout.trim(), ran.code),
        ("", "istio.yaml: loads", 0)
    );

    let wrong = PLUGIN.replace("tool: payments.charge", "tools: payments.charge");
    check("istio.yaml", &wasm_plugin("failStrategy: FAIL_RELOAD", &wrong)).failed(
        1,
        &["istio.yaml:20: spec.pluginConfig.rules[0].tools: unknown field `tools`"],
    );
    let without = wasm_plugin("failStrategy: FAIL_RELOAD", "{}").replace("pluginConfig", "config");
    check("istio.yaml", &without).failed(1, &["istio.yaml:6: spec.pluginConfig: missing"]);
}

#[test]
fn an_istio_that_fails_open_is_refused() {
    for strategy in ["FAIL_OPEN", "FAIL_SOFT", "1"] {
        let resource = wasm_plugin(&format!("failStrategy: {strategy}"), PLUGIN);
        check("istio.yaml", &resource).failed(1, &["istio.yaml:9: spec.failStrategy: ", "set FAIL_RELOAD"]);
    }
    let patch = envoy_filter("failure_policy: FAIL_OPEN", PLUGIN);
    check("istio.yaml", &patch).failed(
        1,
        &["spec.configPatches[0].patch.value.typed_config.value.config.failure_policy: FAIL_OPEN lets every request"],
    );
}

#[test]
fn an_istio_without_the_recommended_settings_is_warned_about() {
    for (resource, warning) in [
        (
            wasm_plugin("failStrategy: FAIL_CLOSE", PLUGIN),
            "istio.yaml:9: warning: spec.failStrategy: ",
        ),
        (
            wasm_plugin("phase: AUTHN", PLUGIN),
            "istio.yaml:6: warning: spec.failStrategy: ",
        ),
        (
            wasm_plugin("failStrategy: FAIL_RELOAD", PLUGIN).replace("sha256:", "imagePullSecret:"),
            "istio.yaml:6: warning: spec.sha256: ",
        ),
    ] {
        let ran = check("istio.yaml", &resource);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(ran.stderr.starts_with(warning), "{ran:?}");
    }
}

#[test]
fn an_istio_envoy_filter_is_read() {
    let good = envoy_filter("failure_policy: FAIL_RELOAD", PLUGIN);
    assert_eq!(check("istio.yaml", &good).succeeded(), "istio.yaml: loads");
}

#[test]
fn a_rule_that_reads_a_body_needs_a_proxy_that_passes_it_to_the_filter() {
    let plugin = PLUGIN.replace("rules:\n", READS_A_BODY);
    assert_ne!(plugin, PLUGIN);
    check("plugin.yaml", &plugin).succeeded();
    let failing = "failure_policy: FAIL_RELOAD";
    for (file, without) in [
        ("envoy.yaml", envoy(failing, &plugin)),
        ("istio.yaml", envoy_filter(failing, &plugin)),
    ] {
        check(file, &without).failed(1, &["allow_on_headers_stop_iteration: a rule reads the body"]);
        // On its own line, with the indentation of the line before.
        let line = without.lines().find(|line| line.contains(failing)).unwrap();
        let with = without.replace(
            line,
            &format!(
                "{line}\n{}",
                line.replace(failing, "allow_on_headers_stop_iteration: true")
            ),
        );
        check(file, &with).succeeded();
    }
    let wasm_plugin = wasm_plugin("failStrategy: FAIL_RELOAD", &plugin);
    check("istio.yaml", &wasm_plugin).failed(1, &["use an EnvoyFilter"]);
    let held = wasm_plugin.replace("tool: order,", "tool: order, hold: body,");
    assert_ne!(held, wasm_plugin);
    check("istio.yaml", &held).succeeded();
}

/// A rule before the others.
const READS_A_BODY: &str =
    "rules:\n  - {name: order, match: {path: /orders}, tool: order, args: {amount: {body: /amount}}}\n";

#[test]
fn every_document_of_a_file_is_checked_and_named() {
    let good = wasm_plugin("failStrategy: FAIL_RELOAD", PLUGIN);
    let other = "apiVersion: v1\nkind: Service\nmetadata: {name: credence}\n";
    let open = envoy_filter("failure_policy: FAIL_OPEN", PLUGIN);
    let ran = check("mesh.yaml", &format!("{good}---\n{other}---\n# nothing\n---\n{open}"));
    ran.failed(1, &["mesh.yaml:", ": document 4: spec.configPatches[0]."]);
    assert_eq!(ran.stderr.lines().count(), 2, "{ran:?}");

    let ran = check("mesh.yaml", &format!("{good}---\n{other}---\n{good}"));
    assert_eq!(ran.succeeded(), "mesh.yaml: loads, all 2 plugins");
    check("mesh.yaml", &format!("{good}---\na: yes\n")).failed(1, &[": document 2: YAML readers disagree"]);
    let item = good.replace('\n', "\n    ");
    let list = format!("apiVersion: v1\nkind: List\nitems:\n  - {}\n", item.trim());
    assert_eq!(check("list.yaml", &list).succeeded(), "list.yaml: loads");
}

#[test]
fn an_example_digest_is_noted_since_no_module_has_it() {
    let pinned = wasm_plugin("failStrategy: FAIL_RELOAD", PLUGIN);
    let example = pinned
        .replace(&"0123456789".repeat(6), &"0".repeat(60))
        .replace("0123\"", "0000\"");
    assert!(!check("mesh.yaml", &pinned).stderr.contains(SAMPLE_DIGEST_NOTE));
    let ran = check("mesh.yaml", &example);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "mesh.yaml: loads\n"), "{ran:?}");
    assert!(
        ran.stderr.contains(&format!("spec.sha256: {SAMPLE_DIGEST_NOTE}")),
        "{ran:?}"
    );
}

#[test]
fn every_ready_to_use_file_loads_and_lacks_only_the_users_values() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../envoy-config");
    let mut files = Vec::new();
    for folder in [folder.clone(), folder.join("istio")] {
        files.extend(std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()));
    }
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    files.retain(|path| !path.ends_with("kustomization.yaml"));
    assert!(files.len() >= 3, "{files:?}");
    for path in files {
        assert_lacks_only_the_users_values(&path);
    }
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
        ran.stderr.contains("bad.yaml:1: missing field") && ran.stderr.contains("empty.yaml: empty"),
        "{ran:?}"
    );
    assert!(ran.stderr.contains("2 files would not load"), "{ran:?}");
    bench
        .run(&["config", "check", "none.yaml"])
        .failed(2, &["none.yaml cannot be opened"]);
}

/// Envoy Gateway's EnvoyExtensionPolicy with the plugin's configuration, and this line in its `wasm`.
fn extension_policy(line: &str, plugin: &str) -> String {
    let indented = plugin.replace('\n', "\n        ");
    format!(
        r#"apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyExtensionPolicy
metadata: {{name: protection, namespace: payments}}
spec:
  targetRefs: [{{group: gateway.networking.k8s.io, kind: Gateway, name: payments}}]
  wasm:
    - name: other
      failOpen: true
      code: {{type: HTTP, http: {{url: "https://modules.example/other.wasm"}}}}
    - name: credence
      {line}
      code:
        type: Image
        image:
          url: registry.example/credence/credence-filter:1
          sha256: "0123456789012345678901234567890123456789012345678901234567890123"
      config:
        {}
"#,
        indented.trim()
    )
}

/// The settings that an EnvoyExtensionPolicy does not have.
const ENVOY_PATCH_POLICY: &str = r#"---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyPatchPolicy
metadata: {name: credence, namespace: payments}
spec:
  type: JSONPatch
  targetRef: {group: gateway.networking.k8s.io, kind: Gateway, name: payments}
  jsonPatches:
    - type: type.googleapis.com/envoy.config.listener.v3.Listener
      name: payments/payments/http
      operation: {op: add, path: /http_filters/0/typed_config/config/failure_policy, value: FAIL_RELOAD}
    - type: type.googleapis.com/envoy.config.listener.v3.Listener
      name: payments/payments/http
      operation: {op: add, path: /http_filters/0/typed_config/config/allow_on_headers_stop_iteration, value: true}
"#;

#[test]
fn an_envoy_gateway_extension_policy_is_read() {
    let patched = format!("{}{ENVOY_PATCH_POLICY}", extension_policy("failOpen: false", PLUGIN));
    let ran = check("gateway.yaml", &patched);
    assert_eq!(
        (ran.stderr.as_str(), ran.stdout.trim(), ran.code),
        ("", "gateway.yaml: loads", 0)
    );

    let wrong = PLUGIN.replace("tool: payments.charge", "tools: payments.charge");
    check("gateway.yaml", &extension_policy("failOpen: false", &wrong)).failed(
        1,
        &["gateway.yaml:27: spec.wasm[1].config.rules[0].tools: unknown field `tools`"],
    );
    check("gateway.yaml", &extension_policy("failOpen: true", PLUGIN)).failed(
        1,
        &["gateway.yaml:11: spec.wasm[1].failOpen: if the filter fails, every request passes"],
    );
    for (path, value) in [("failure_policy", "FAIL_OPEN"), ("fail_open", "true")] {
        let opened = patched.replace("failure_policy, value: FAIL_RELOAD", &format!("{path}, value: {value}"));
        check("gateway.yaml", &opened).failed(
            1,
            &["spec.wasm[1]: an EnvoyPatchPolicy in the same file lets every request pass if the filter fails"],
        );
    }
    let without = extension_policy("failOpen: false", "{}").replace("config:", "env:");
    check("gateway.yaml", &without).failed(1, &["spec.wasm[1].config: missing"]);
}

#[test]
fn an_envoy_gateway_without_the_recommended_settings_is_warned_about() {
    let policy = extension_policy("failOpen: false", PLUGIN);
    for (resources, warning) in [
        (
            policy.clone(),
            "gateway.yaml:10: warning: spec.wasm[1]: an EnvoyExtensionPolicy cannot set FAIL_RELOAD",
        ),
        (
            format!("{policy}{ENVOY_PATCH_POLICY}").replace("value: FAIL_RELOAD", "value: FAIL_CLOSED"),
            "gateway.yaml:10: warning: document 1: spec.wasm[1]: an EnvoyExtensionPolicy cannot set FAIL_RELOAD",
        ),
        (
            format!("{policy}{ENVOY_PATCH_POLICY}").replace("sha256:", "tls:"),
            "gateway.yaml:14: warning: document 1: spec.wasm[1].code.image.sha256: ",
        ),
    ] {
        let ran = check("gateway.yaml", &resources);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(ran.stderr.starts_with(warning), "{ran:?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
    }
}

#[test]
fn the_ready_to_use_files_for_envoy_gateway_differ_in_the_module_only() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../envoy-config/envoy-gateway");
    let resources = |name: &str| {
        let path = folder.join(name);
        assert_lacks_only_the_users_values(&path);
        let text = std::fs::read_to_string(path).unwrap();
        let lines: Vec<_> = text
            .lines()
            .skip_while(|line| line.starts_with('#'))
            .map(str::to_owned)
            .collect();
        let code = lines.iter().position(|line| line == "      code:").unwrap();
        let behind = lines.iter().position(|line| line == "      failOpen: false").unwrap();
        (
            lines[..code].to_vec(),
            lines[behind..].to_vec(),
            lines[code..behind].to_vec(),
        )
    };
    let (before, behind, image) = resources("credence.yaml");
    let (same_before, same_behind, http) = resources("from-http.yaml");
    assert_eq!((before, behind), (same_before, same_behind));
    assert_ne!(image, http);
}

#[test]
fn a_rule_that_reads_a_body_needs_an_envoy_gateway_that_passes_it_to_the_filter() {
    let policy = extension_policy("failOpen: false", &PLUGIN.replace("rules:\n", READS_A_BODY));
    check("gateway.yaml", &policy).failed(1, &["spec.wasm[1]: a rule reads the body", "EnvoyPatchPolicy"]);
    let patched = format!("{policy}{ENVOY_PATCH_POLICY}");
    check("gateway.yaml", &patched.replace("value: true", "value: false")).failed(1, &["a rule reads the body"]);
    assert_eq!(check("gateway.yaml", &patched).succeeded(), "gateway.yaml: loads");
}
