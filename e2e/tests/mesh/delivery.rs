//! istiod delivers the files to real proxies.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use credence_e2e::assertions::assert_denied;
use credence_e2e::audit::{Kind, Record};
use credence_e2e::configuration::Replacement;
use credence_e2e::mesh::proxy::Proxy;
use credence_e2e::mesh::{CHARGES, ENVOY_FILTER, MODULE, Mesh, WAYPOINT_FILE};
use credence_e2e::{Client, Failure, ISSUER, Reply, Request, waiting};

use super::mesh;

/// The gateway and the sidecar, each with its protecting file.
fn places(mesh: &Mesh) -> [(&Proxy, &'static str); 2] {
    [
        (&mesh.gateway, "wasmplugin-gateway.yaml"),
        (&mesh.sidecar, "wasmplugin.yaml"),
    ]
}

/// Streams that the control plane refused, because the identity may not report as a filter.
const REFUSED: &str = r#"credence_grpc_refusals_total{code="UNAUTHENTICATED"}"#;

/// The answer of Istio's placeholder for a filter that it could not fetch.
fn is_refused_by_istio(reply: &Reply) -> bool {
    reply.status == 403 && reply.text() == "RBAC: access denied"
}

/// The purpose of every file.
fn assert_allows_only_what_was_delegated(mesh: &Mesh, proxy: &Proxy, file: &str) {
    let chain = mesh.mint("alice").unwrap();
    let reply = proxy
        .send(&mesh.charge(&chain).unwrap().header("x-delegation-subject", "root"))
        .unwrap();
    let received = reply
        .received()
        .unwrap_or_else(|| panic!("{file}: {} {}", reply.status, reply.text()));
    assert_eq!(received.header("x-delegation-issuer"), Some(ISSUER), "{file}");
    assert_eq!(
        received.header("x-delegation-subject"),
        Some("alice"),
        "{file}: not the forged header"
    );
    assert_eq!(received.header("delegation-proof"), None, "{file}");

    let charge = Request::post(CHARGES);
    assert_denied(&proxy.send(&charge).unwrap(), 401, "delegation_missing");
    assert_denied(
        &proxy.send(&charge.clone().delegation(&chain)).unwrap(),
        401,
        "proof_missing",
    );
    let used = mesh.charge(&chain).unwrap();
    assert_eq!(proxy.send(&used).unwrap().status, 200, "{file}");
    assert_denied(&proxy.send(&used).unwrap(), 401, "proof_replayed");
    assert_denied(&proxy.send(&Request::get("/nowhere")).unwrap(), 403, "no_route");

    let open = proxy
        .send(&Request::get("/healthz").header("x-delegation-subject", "root"))
        .unwrap();
    assert_eq!(open.received().unwrap().identity_headers(), [""; 0], "{file}");
}

fn assert_learns_of_a_revocation(mesh: &Mesh, proxy: &Proxy, file: &str) {
    let subject = format!("leaver-of-{file}");
    let chain = mesh.mint(&subject).unwrap();
    assert_eq!(proxy.send(&mesh.charge(&chain).unwrap()).unwrap().status, 200, "{file}");
    mesh.revoke(&subject).unwrap();
    let is_revoked = |reply: &Reply| reply.reason().as_deref() == Some("revoked_principal");
    proxy
        .until_every_worker("a revocation", || mesh.charge(&chain), is_revoked)
        .unwrap();
}

/// Asserts that Envoy has the file's settings: a limit for streams, which outlive their decision, and hosts without
/// ports.
fn assert_sets_the_connection_manager(proxy: &Proxy, file: &str) {
    let listeners = proxy.admin_page("/config_dump?resource=dynamic_listeners").unwrap();
    for set in [
        r#""max_stream_duration": "600s""#,
        r#""strip_any_host_port": true"#,
        r#""strip_trailing_host_dot": true"#,
    ] {
        assert!(listeners.text().contains(set), "{file}: {set}: {}", listeners.text());
    }
}

mod at_the_gateway_and_beside_the_service {
    use super::*;

    #[test]
    #[ignore = "needs Istio: make test-mesh"]
    fn only_delegated_requests_are_allowed() {
        let mesh = mesh();
        for (proxy, file) in places(&mesh) {
            assert_allows_only_what_was_delegated(&mesh, proxy, file);
        }
    }

    #[test]
    #[ignore = "needs Istio: make test-mesh"]
    fn a_revocation_arrives() {
        let mesh = mesh();
        for (proxy, file) in places(&mesh) {
            assert_learns_of_a_revocation(&mesh, proxy, file);
        }
    }

    #[test]
    #[ignore = "needs Istio: make test-mesh"]
    fn streams_are_bounded() {
        let mesh = mesh();
        for (proxy, file) in places(&mesh) {
            assert_sets_the_connection_manager(proxy, file);
        }
    }

    #[test]
    #[ignore = "needs Istio: make test-mesh"]
    fn decisions_are_on_record_under_the_workloads_own_identity() {
        let mesh = mesh();
        for (subject, proxy, name) in [
            (
                "of-the-gateway",
                &mesh.gateway,
                "spiffe://cluster.local/ns/istio-ingress/sa/gateway ",
            ),
            (
                "of-the-sidecar",
                &mesh.sidecar,
                "spiffe://cluster.local/ns/payments/sa/payments ",
            ),
        ] {
            let chain = mesh.mint(subject).unwrap();
            assert_eq!(proxy.send(&mesh.charge(&chain).unwrap()).unwrap().status, 200);
            // The name in Istio's certificate, followed by the address.
            let is_of_the_workload = |record: &Record| matches!(&record.kind, Kind::Source { peer: Some(peer), .. } if peer.starts_with(name));
            let peers: Vec<_> = waiting::until("the record", || {
                let records = mesh.records()?;
                let of = |record: &&Record| {
                    record
                        .decision()
                        .is_some_and(|decision| decision.principal.subject.as_deref() == Some(subject))
                };
                let Some(decided) = records.iter().find(of) else {
                    return Ok(None);
                };
                let source = records.iter().filter(|record| record.source == decided.source);
                Ok(Some(
                    source
                        .filter(|record| matches!(record.kind, Kind::Source { .. }))
                        .cloned()
                        .collect(),
                ))
            })
            .unwrap();
            assert!(peers.iter().any(is_of_the_workload), "{name}: {peers:#?}");
        }
    }

    #[test]
    #[ignore = "needs Istio: make test-mesh"]
    fn an_edited_rule_takes_effect_and_no_request_notices() {
        let mesh = mesh();
        for (proxy, file) in places(&mesh) {
            let original = mesh.adapted(file, &[]).unwrap();
            let edit = Replacement::once("tool: payments.charge", "tool: payments.refund");
            let edited = mesh.adapted(file, &[edit]).unwrap();
            let chain = mesh.mint("alice").unwrap();
            let mut open = Client::connect(proxy.ingress()).unwrap();
            assert_eq!(open.send(&mesh.charge(&chain).unwrap()).unwrap().status, 200, "{file}");

            let done = AtomicBool::new(false);
            thread::scope(|scope| {
                let asking = scope.spawn(|| {
                    let mut client = Client::connect(proxy.ingress()).unwrap();
                    let mut asked = 0;
                    while !done.load(Ordering::Relaxed) {
                        assert_eq!(client.send(&Request::get("/healthz")).unwrap().status, 200, "{file}");
                        asked += 1;
                    }
                    asked
                });
                let is_refused = |reply: &Reply| reply.reason().as_deref() == Some("tool_not_granted");
                // The other thread must end in any case: no panic before it is told to stop.
                let refused = mesh
                    .kubernetes
                    .apply(&edited)
                    .and_then(|()| proxy.until_every_worker("the edited rule", || mesh.charge(&chain), is_refused));
                done.store(true, Ordering::Relaxed);
                assert!(asking.join().unwrap() > 0);
                refused.unwrap();
            });
            assert_denied(
                &open.send(&mesh.charge(&chain).unwrap()).unwrap(),
                403,
                "tool_not_granted",
            );

            mesh.kubernetes.apply(&original).unwrap();
            proxy
                .until_every_worker(
                    "the rule as it was",
                    || mesh.charge(&chain),
                    |reply| reply.status == 200,
                )
                .unwrap();
        }
    }
}

mod a_module {
    use super::*;

    #[test]
    #[ignore = "needs Istio: make test-mesh"]
    fn that_cannot_be_fetched_denies_everything() {
        let mesh = mesh();
        // A valid module, but one that does nothing.
        mesh.modules.put("another.wasm", b"\0asm\x01\0\0\0".to_vec());
        for (proxy, file) in places(&mesh) {
            let chain = mesh.mint("alice").unwrap();
            for (name, why) in [
                ("missing.wasm", "it does not exist"),
                ("another.wasm", "its digest is not `sha256`"),
            ] {
                let asked = mesh.modules.asked_for(name);
                mesh.kubernetes
                    .apply(&mesh.with_module(file, name, &[]).unwrap())
                    .unwrap();
                proxy
                    .until_every_worker(why, || mesh.charge(&chain), is_refused_by_istio)
                    .unwrap();
                let open = proxy.send(&Request::get("/healthz")).unwrap();
                assert!(is_refused_by_istio(&open), "{file}, {why}: an open path too");
                assert!(
                    mesh.modules.asked_for(name) > asked,
                    "{file}: the agent has asked for it"
                );
            }
            mesh.kubernetes.apply(&mesh.adapted(file, &[]).unwrap()).unwrap();
            mesh.wait_until_proofs_count(proxy).unwrap();
        }
        assert!(mesh.modules.asked_for(MODULE) >= 2, "each agent has fetched the filter");
    }
}

mod shadow {
    use super::*;

    #[test]
    #[ignore = "needs Istio: make test-mesh"]
    fn lets_pass_counts_and_records() {
        let mesh = mesh();
        for (proxy, enforcing) in places(&mesh) {
            mesh.kubernetes.apply(&in_shadow(&mesh, enforcing)).unwrap();
            let bare = || Ok(Request::post(CHARGES).header("x-delegation-subject", "root"));
            proxy
                .until_every_worker("shadow", bare, |reply| reply.status == 200)
                .unwrap();

            let subject = format!("in-shadow-of-{enforcing}");
            let chain = mesh.mint(&subject).unwrap();
            mesh.revoke(&subject).unwrap();
            let revoked = mesh.charge(&chain).unwrap();
            let counted = "wasmcustom.credence_shadow_decision.rule.charge.decision.deny.reason.revoked_principal";
            waiting::until("a revocation to be counted in shadow", || {
                let received = proxy
                    .send(&revoked)?
                    .received()
                    .expect("shadow mode allows every request");
                assert_eq!(received.identity_headers(), [""; 0], "{enforcing}");
                assert_eq!(
                    received.header("delegation"),
                    Some(chain.as_str()),
                    "{enforcing}: as it came"
                );
                Ok((proxy.stat(counted)? > 0).then_some(()))
            })
            .unwrap();
            waiting::until("the record", || {
                let is_recorded = |record: &Record| {
                    record.decision().is_some_and(|decision| {
                        decision.principal.subject.as_deref() == Some(subject.as_str())
                            && (decision.mode.as_str(), decision.decision.as_str()) == ("shadow", "deny")
                    })
                };
                Ok(mesh.records()?.iter().any(is_recorded).then_some(()))
            })
            .unwrap();

            mesh.kubernetes.apply(&mesh.adapted(enforcing, &[]).unwrap()).unwrap();
            proxy
                .until_every_worker("enforcement", bare, |reply| reply.status == 401)
                .unwrap();
            mesh.wait_until_proofs_count(proxy).unwrap();
        }
    }

    /// As envoy-config/istio-shadow changes it.
    fn in_shadow(mesh: &Mesh, file: &str) -> String {
        let mode = Replacement::once("  pluginConfig:\n", "  pluginConfig:\n    mode: shadow\n");
        mesh.adapted(file, &[mode]).unwrap()
    }
}

mod an_envoy_filter {
    use super::*;

    #[test]
    #[ignore = "needs Istio: make test-mesh"]
    fn does_what_a_wasm_plugin_does() {
        let mesh = mesh();
        let proxy = &mesh.sidecar;
        without_the_plugin(&mesh);

        mesh.kubernetes
            .apply(&mesh.envoy_filter(&mesh.filter).unwrap())
            .unwrap();
        proxy
            .until_every_worker("the EnvoyFilter's filter", bare, |reply| reply.status == 401)
            .unwrap();
        mesh.wait_until_proofs_count(proxy).unwrap();
        assert_allows_only_what_was_delegated(&mesh, proxy, ENVOY_FILTER);
        assert_learns_of_a_revocation(&mesh, proxy, ENVOY_FILTER);
        assert_sets_the_connection_manager(proxy, ENVOY_FILTER);
        let ambiguous = proxy.send(&Request::get("/healthz%2F..")).unwrap();
        assert_eq!(
            (ambiguous.status, ambiguous.reason()),
            (400, None),
            "Envoy itself refuses it"
        );

        mesh.kubernetes.delete("EnvoyFilter", "payments", "credence").unwrap();
        with_the_plugin(&mesh);
    }

    #[test]
    #[ignore = "needs Istio: make test-mesh"]
    fn whose_module_is_not_there_leaves_a_running_proxy_with_what_it_has() {
        let mesh = mesh();
        let proxy = &mesh.sidecar;
        without_the_plugin(&mesh);

        let refused = || proxy.stat("listener_manager.lds.update_rejected");
        let before = refused().unwrap();
        mesh.kubernetes
            .apply(&mesh.envoy_filter(Path::new("/nowhere/credence-filter.wasm")).unwrap())
            .unwrap();
        waiting::until("Envoy to refuse the listener", || {
            Ok((refused()? > before).then_some(()))
        })
        .unwrap();
        // The file warns about this, and says how to detect it.
        assert_eq!(proxy.send(&bare().unwrap()).unwrap().status, 200);

        mesh.kubernetes.delete("EnvoyFilter", "payments", "credence").unwrap();
        with_the_plugin(&mesh);
    }

    /// Removes the WasmPlugin, so that only the other filter can deny.
    fn without_the_plugin(mesh: &Mesh) {
        for (kind, name) in [("WasmPlugin", "credence"), ("EnvoyFilter", "credence-streams")] {
            mesh.kubernetes.delete(kind, "payments", name).unwrap();
        }
        mesh.sidecar
            .until_every_worker("no filter", bare, |reply| reply.status == 200)
            .unwrap();
    }

    fn with_the_plugin(mesh: &Mesh) {
        mesh.kubernetes
            .apply(&mesh.adapted("wasmplugin.yaml", &[]).unwrap())
            .unwrap();
        mesh.sidecar
            .until_every_worker("the WasmPlugin's filter", bare, |reply| reply.status == 401)
            .unwrap();
        mesh.wait_until_proofs_count(&mesh.sidecar).unwrap();
    }

    fn bare() -> Result<Request, Failure> {
        Ok(Request::post(CHARGES))
    }
}

mod a_waypoint {
    use super::*;

    #[test]
    #[ignore = "needs Istio: make test-mesh"]
    fn does_what_a_sidecar_does() {
        let mesh = mesh();
        let waypoint = mesh.start_waypoint().unwrap();
        assert_allows_only_what_was_delegated(&mesh, &waypoint.proxy, WAYPOINT_FILE);
        assert_learns_of_a_revocation(&mesh, &waypoint.proxy, WAYPOINT_FILE);
        assert_sets_the_connection_manager(&waypoint.proxy, WAYPOINT_FILE);
    }
}

mod a_workload {
    use super::*;

    #[test]
    #[ignore = "needs Istio: make test-mesh"]
    fn that_the_control_plane_does_not_accept_as_a_filter_denies_without_revocations() {
        let mesh = mesh();
        let plugin = mesh
            .adapted(
                "wasmplugin-gateway.yaml",
                &[
                    Replacement {
                        text: "namespace: istio-ingress".into(),
                        times: 2,
                        by: "namespace: elsewhere".into(),
                    },
                    Replacement {
                        text: "istio: ingressgateway".into(),
                        times: 2,
                        by: "istio: stranger".into(),
                    },
                ],
            )
            .unwrap();
        mesh.kubernetes.apply(&plugin).unwrap();
        let refused = || mesh.control_plane.metric(REFUSED);
        let before = refused().unwrap();
        let stranger = mesh.start_stranger().unwrap();
        let chain = mesh.mint("alice").unwrap();
        // The filter's own 503, not Envoy's.
        let is_out_of_step = |reply: &Reply| reply.status == 503 && reply.reason().as_deref() == Some("not_ready");
        stranger
            .until_every_worker("a stranger to deny", || mesh.charge(&chain), is_out_of_step)
            .unwrap();
        waiting::until("the control plane to refuse it", || {
            Ok((refused()? > before).then_some(()))
        })
        .unwrap();
        assert!(is_out_of_step(&stranger.send(&mesh.charge(&chain).unwrap()).unwrap()));
    }
}
