//! A configuration with an error does not load, and the message says where the error is.

use std::fs;
use std::path::Path;

use credence_e2e::artefacts::Artefacts;
use credence_e2e::command::Credence;
use credence_e2e::configuration::Replacement;
use credence_e2e::{Stack, StackOptions};

const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../envoy-config/envoy.yaml");

/// An error in envoy-config/envoy.yaml, and its message.
fn errors() -> [(Replacement, [&'static str; 2]); 5] {
    let once = |text: &str, by: &str| Replacement::once(text, by);
    [
        (once("default: deny", "defautl: deny"), ["defautl", "unknown field"]),
        (once("- name: catalog", "- name: charge"), ["rules[1].name", "charge"]),
        (
            once("item: {path: item}", "item: {path: thing}"),
            ["rules[1].args.item.path", "thing"],
        ),
        (once("kty: OKP", "kty: EC"), ["trust_anchors[0].jwk", "OKP"]),
        (
            once("max_staleness: 5s", "max_staleness: 5h"),
            ["control_plane.max_staleness", "1m"],
        ),
    ]
}

fn credence(folder: &Path) -> Credence {
    Credence::new(&Artefacts::from_environment().unwrap().credence, folder)
}

#[test]
fn envoy_does_not_start_with_an_error_and_says_where_it_is() {
    for (error, hints) in errors() {
        let said = Stack::refuse(std::slice::from_ref(&error)).unwrap();
        assert!(
            hints.iter().all(|hint| said.contains(hint)),
            "{hints:?} are not in:\n{said}"
        );
    }
}

#[test]
fn config_check_finds_the_same_errors_beforehand() {
    let folder = tempfile::tempdir().unwrap();
    let shipped = fs::read_to_string(SHIPPED).unwrap();
    for (error, hints) in errors() {
        let file = folder.path().join("envoy.yaml");
        fs::write(&file, shipped.replace(&error.text, &error.by)).unwrap();
        let said = credence(folder.path())
            .run(["config", "check", file.to_str().unwrap()])
            .unwrap_err()
            .to_string();
        assert!(
            hints.iter().all(|hint| said.contains(hint)),
            "{hints:?} are not in:\n{said}"
        );
    }
}

#[test]
fn config_check_refuses_a_filter_that_fails_open() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("envoy.yaml");
    fs::write(
        &file,
        fs::read_to_string(SHIPPED).unwrap().replace("FAIL_RELOAD", "FAIL_OPEN"),
    )
    .unwrap();
    let said = credence(folder.path())
        .run(["config", "check", file.to_str().unwrap()])
        .unwrap_err()
        .to_string();
    assert!(said.contains("failure_policy"), "{said}");
}

#[test]
fn the_shipped_configuration_has_no_error() {
    let folder = tempfile::tempdir().unwrap();
    credence(folder.path()).run(["config", "check", SHIPPED]).unwrap();
}

#[test]
fn decisions_show_as_labelled_metrics() {
    let stack = Stack::start(&StackOptions::quick()).unwrap();
    let wanted = r#"credence_decision{rule="catalog",decision="deny",reason="delegation_missing"} 1"#;
    let reply = stack.send(&credence_e2e::Request::get("/v1/catalog/book")).unwrap();
    assert_eq!(reply.status, 401);
    credence_e2e::waiting::until(wanted, || {
        let page = stack.envoy.admin_page("/stats/prometheus")?.text();
        Ok(page.lines().any(|line| line == wanted).then_some(()))
    })
    .unwrap();
}

#[test]
fn the_control_planes_cluster_may_have_the_name_that_a_mesh_gives_it() {
    for name in [
        "outbound|7071||credence.credence.svc.cluster.local",
        "envoyextensionpolicy/payments/credence/wasm/0",
    ] {
        let options = StackOptions::quick()
            .replacing(
                "              cluster: credence\n",
                &format!("              cluster: {name}\n"),
            )
            .replacing(
                "    - name: credence\n      connect_timeout",
                &format!("    - name: {name}\n      connect_timeout"),
            )
            .replacing(
                "        cluster_name: credence\n",
                &format!("        cluster_name: {name}\n"),
            );
        // Its filters sync with the revocation log only if the control plane accepts their requests.
        Stack::start(&options).unwrap();
    }
}
