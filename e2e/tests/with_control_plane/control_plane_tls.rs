//! Envoy and the control plane authenticate each other by certificates, with the files of envoy-config/mtls.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use credence_e2e::artefacts::Artefacts;
use credence_e2e::assertions::assert_denied;
use credence_e2e::configuration::Replacement;
use credence_e2e::grants::READ;
use credence_e2e::tls::{Authority, Certificate};
use credence_e2e::{Failure, ISSUER, Request, Stack, StackOptions, waiting};
use tempfile::TempDir;

const CLUSTER: &str = include_str!("../../../envoy-config/mtls/cluster.yaml");
const CERTIFICATE: &str = include_str!("../../../envoy-config/mtls/certificate.yaml");
const AUTHORITY: &str = include_str!("../../../envoy-config/mtls/authority.yaml");
/// The path in these files.
const ETC: &str = "/etc/credence/envoy";

const ENVOY: &str = "URI:spiffe://mesh.example/ns/shop/sa/gateway";
const OPERATOR: &str = "URI:spiffe://mesh.example/ns/ops/sa/oncall";
const CONTROL_PLANE: &str = "DNS:credence.example.com,IP:127.0.0.1";

/// The files of the two sides, in their own folder.
struct Files {
    folder: TempDir,
}

impl Files {
    /// All by the same CA; Envoy presents this certificate.
    fn new(authority: &Authority, envoy: &Certificate) -> Self {
        let files = Self {
            folder: TempDir::with_prefix("credence-mtls-").unwrap(),
        };
        let own = authority.issue("control-plane", CONTROL_PLANE).unwrap();
        fs::create_dir(files.at("serve")).unwrap();
        files.serve_shows(&own);
        files.serve_believes(&[authority]);
        fs::write(
            files.at("serve.yaml"),
            SERVE.replace("FOLDER", text(&files.at("serve"))),
        )
        .unwrap();

        fs::create_dir_all(files.at("envoy/tls")).unwrap();
        for name in ["tls.crt", "tls.key", "ca.crt"] {
            symlink(format!("..data/{name}"), files.at("envoy/tls").join(name)).unwrap();
        }
        files.envoy_has(envoy, &[authority]);
        for (name, contents) in [("certificate.yaml", CERTIFICATE), ("authority.yaml", AUTHORITY)] {
            fs::write(files.at("envoy").join(name), files.place(contents)).unwrap();
        }
        files
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A file of envoy-config/mtls with this folder's path.
    fn place(&self, shipped: &str) -> String {
        shipped.replace(ETC, text(&self.at("envoy")))
    }

    fn serve_shows(&self, certificate: &Certificate) {
        for (name, from) in [("tls.key", &certificate.key), ("tls.crt", &certificate.certificate)] {
            fs::copy(from, self.at("serve/new")).unwrap();
            fs::rename(self.at("serve/new"), self.at("serve").join(name)).unwrap();
        }
    }

    fn serve_believes(&self, authorities: &[&Authority]) {
        fs::write(self.at("serve/new"), bundle(authorities)).unwrap();
        fs::rename(self.at("serve/new"), self.at("serve/ca.crt")).unwrap();
    }

    /// Replaces Envoy's files atomically, as Kubernetes does.
    fn envoy_has(&self, certificate: &Certificate, authorities: &[&Authority]) {
        let folder = self.at("envoy/tls");
        let version = format!("..{}", fs::read_dir(&folder).unwrap().count());
        fs::create_dir(folder.join(&version)).unwrap();
        fs::copy(&certificate.certificate, folder.join(&version).join("tls.crt")).unwrap();
        fs::copy(&certificate.key, folder.join(&version).join("tls.key")).unwrap();
        fs::write(folder.join(&version).join("ca.crt"), bundle(authorities)).unwrap();
        symlink(&version, folder.join("..new")).unwrap();
        fs::rename(folder.join("..new"), folder.join("..data")).unwrap();
    }

    /// Envoy with the cluster of envoy-config/mtls, and a control plane with TLS on both ports.
    fn options(&self, authority: &Authority) -> StackOptions {
        const ENDPOINT: &str = "address: {socket_address: {address: 127.0.0.1, port_value: 7071}}\n";
        const LISTENERS: &str = "static_resources:\n  listeners:\n";
        let (_, socket) = CLUSTER.split_once("      transport_socket:\n").unwrap();
        let node = CLUSTER.lines().find(|line| line.starts_with("node: ")).unwrap();
        let mut options = self.options_in_plain_text(authority);
        options.replacements.extend([
            Replacement::once(
                ENDPOINT,
                format!("{ENDPOINT}      transport_socket:\n{}", self.place(socket)),
            ),
            Replacement::once(LISTENERS, format!("{node}\n{LISTENERS}")),
        ]);
        options
    }

    /// The same, but Envoy does not use TLS.
    fn options_in_plain_text(&self, authority: &Authority) -> StackOptions {
        StackOptions {
            serve_options: vec!["--config".to_owned(), text(&self.at("serve.yaml")).to_owned()],
            serve_authority: Some(authority.certificate().to_owned()),
            ..StackOptions::quick()
        }
    }
}

fn bundle(authorities: &[&Authority]) -> String {
    let read = |authority: &&Authority| fs::read_to_string(authority.certificate()).unwrap();
    authorities.iter().map(read).collect()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn book(chain: &str) -> Request {
    Request::get("/v1/catalog/book").delegation(chain)
}

/// `credence revoke` with this client certificate.
fn revoke_as(stack: &Stack, certificate: &Certificate, subject: &str) -> Result<String, Failure> {
    let shown = [
        "--cert",
        text(&certificate.certificate),
        "--client-key",
        text(&certificate.key),
    ];
    let place = stack.control_plane.place();
    let what = ["revoke", "principal", "--issuer", ISSUER, "--subject", subject];
    let arguments = what.into_iter().chain(place.iter().map(String::as_str)).chain(shown);
    stack.credence.run(arguments)
}

/// Waits until the control plane has counted a failure of this kind.
fn wait_for_refusal(stack: &Stack, reason: &str) {
    wait_for_metric(
        stack,
        &format!("credence_tls_handshake_failures_total{{port=\"grpc\",reason=\"{reason}\"}}"),
    );
}

/// Waits until a counter is above zero.
fn wait_for_metric(stack: &Stack, name: &str) {
    waiting::until(name, || {
        let metrics = stack.control_plane.send(&Request::get("/metrics"))?.text();
        let value = metrics.lines().find_map(|line| line.strip_prefix(name));
        Ok(value.filter(|value| value.trim() != "0").map(|_| ()))
    })
    .unwrap();
}

#[test]
fn envoy_accepts_the_shipped_cluster() {
    let authority = Authority::new().unwrap();
    let envoy = authority.issue("envoy", ENVOY).unwrap();
    let files = Files::new(&authority, &envoy);
    let file = files.at("cluster.yaml");
    fs::write(&file, files.place(CLUSTER)).unwrap();
    let ran = Command::new(Artefacts::from_environment().unwrap().envoy)
        .args(["--mode", "validate", "-c", text(&file)])
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn an_envoy_with_its_certificate_follows_and_reports_but_may_not_revoke() {
    let authority = Authority::new().unwrap();
    let envoy = authority.issue("envoy", ENVOY).unwrap();
    let files = Files::new(&authority, &envoy);
    let stack = Stack::start(&files.options(&authority)).unwrap();
    let chain = stack.mint("alice", &["--tool", READ]).unwrap();
    assert_eq!(stack.send(&book(&chain)).unwrap().status, 200);

    let refused = revoke_as(&stack, &envoy, "alice").unwrap_err().to_string();
    assert!(
        refused.contains("403") && refused.contains("admin, revoker"),
        "{refused}"
    );
    assert_eq!(stack.send(&book(&chain)).unwrap().status, 200);

    let operator = authority.issue("operator", OPERATOR).unwrap();
    revoke_as(&stack, &operator, "alice").unwrap();
    let denied = waiting::until("the revocation", || {
        Ok(Some(stack.send(&book(&chain))?).filter(|reply| reply.status != 200))
    });
    assert_denied(&denied.unwrap(), 401, "revoked_principal");
    waiting::until("both decisions to be on record", || {
        let decisions = stack.records()?.iter().filter_map(|record| record.decision()).count();
        Ok((decisions >= 3).then_some(()))
    })
    .unwrap();
}

#[test]
fn the_commands_say_why_tls_to_the_control_plane_fails() {
    let (authority, other) = (Authority::new().unwrap(), Authority::new().unwrap());
    let envoy = authority.issue("envoy", ENVOY).unwrap();
    let files = Files::new(&authority, &envoy);
    let stack = Stack::start(&files.options(&authority)).unwrap();
    let url = stack.control_plane.url();
    let run = |more: &[&str]| {
        let what = ["revoke", "principal", "--issuer", ISSUER, "--control-plane", &url];
        let ran = stack.credence.run(what.iter().chain(more));
        ran.unwrap_err().to_string()
    };
    let token = stack.control_plane.token_file();
    let with_token = ["--token-file", text(&token)];
    let said = run(&[&with_token[..], &["--ca", text(other.certificate())]].concat());
    assert!(said.contains("as --ca"), "{said}");
    let said = run(&with_token);
    assert!(said.contains("--ca"), "{said}");
    let stranger = other.issue("stranger", OPERATOR).unwrap();
    let operator = authority.issue("operator", OPERATOR).unwrap();
    let ca = ["--ca", text(authority.certificate())];
    let mixed = [
        "--cert",
        text(&operator.certificate),
        "--client-key",
        text(&stranger.key),
    ];
    let said = run(&[&ca[..], &mixed].concat());
    assert!(said.contains("not the key of the certificate"), "{said}");
}

#[test]
fn an_envoy_without_a_valid_certificate_denies() {
    let (authority, other) = (Authority::new().unwrap(), Authority::new().unwrap());
    let refused = |options: &StackOptions, reason: &str| {
        let options = StackOptions {
            unsynced: true,
            ..options.clone()
        };
        let stack = Stack::start(&options).unwrap();
        wait_for_refusal(&stack, reason);
        let chain = stack.mint("alice", &["--tool", READ]).unwrap();
        for client in &mut stack.envoy.connection_to_every_worker().unwrap() {
            let reply = client.send(&book(&chain)).unwrap();
            assert_eq!(reply.status, 503, "{reason}: {}", reply.text());
        }
    };
    let good = authority.issue("envoy", ENVOY).unwrap();
    for (certificate, reason) in [
        (other.issue("foreign", ENVOY).unwrap(), "unknown_authority"),
        (authority.issue_ended("ended", ENVOY).unwrap(), "expired_certificate"),
    ] {
        let files = Files::new(&authority, &good);
        files.envoy_has(&certificate, &[&authority]);
        refused(&files.options(&authority), reason);
    }
    let files = Files::new(&authority, &good);
    refused(&files.options_in_plain_text(&authority), "not_tls");
    let mut without = files.options(&authority);
    for replacement in &mut without.replacements {
        let shown = "            tls_certificate_sds_secret_configs:\n              - name: credence_certificate\n";
        if let Some((before, rest)) = replacement.by.clone().split_once(shown) {
            let (_, after) = rest.split_once('\n').unwrap();
            replacement.by = [before, after].concat();
        }
    }
    refused(&without, "no_certificate");
}

#[test]
fn an_envoy_does_not_follow_an_impostor() {
    let (authority, other) = (Authority::new().unwrap(), Authority::new().unwrap());
    let envoy = authority.issue("envoy", ENVOY).unwrap();
    for impostor in [
        other.issue("other", CONTROL_PLANE).unwrap(),
        // Another workload of the same mesh.
        authority
            .issue("neighbour", "DNS:neighbour.example,IP:127.0.0.1")
            .unwrap(),
    ] {
        let files = Files::new(&authority, &envoy);
        files.serve_shows(&impostor);
        let stack = Stack::start(&StackOptions {
            unsynced: true,
            ..files.options(&authority)
        })
        .unwrap();
        waiting::until("Envoy to refuse the certificate", || {
            let refused = stack.envoy.stat("cluster.credence.ssl.fail_verify_error")?
                + stack.envoy.stat("cluster.credence.ssl.fail_verify_san")?;
            Ok((refused > 0).then_some(()))
        })
        .unwrap();
        let chain = stack.mint("alice", &["--tool", READ]).unwrap();
        assert_eq!(stack.send(&book(&chain)).unwrap().status, 503);
    }
}

#[test]
fn certificates_and_authorities_are_rotated_under_load_without_a_wrong_decision() {
    let (old, new) = (Authority::new().unwrap(), Authority::new().unwrap());
    let envoy = old.issue("envoy", ENVOY).unwrap();
    let files = Files::new(&old, &envoy);
    let stack = Stack::start(&files.options(&old)).unwrap();
    let chain = stack.mint("alice", &["--tool", READ]).unwrap();
    let (request, rotated) = (book(&chain), AtomicBool::new(false));
    let reloaded = |times: u64| {
        let line = format!("credence_tls_reloads_total{{port=\"grpc\",outcome=\"success\"}} {times}");
        waiting::until(&line, || {
            let metrics = stack.control_plane.send(&Request::get("/metrics"))?.text();
            Ok(metrics.lines().any(|found| found == line).then_some(()))
        })
        .unwrap();
    };
    thread::scope(|scope| {
        let load: Vec<_> = stack
            .envoy
            .connection_to_every_worker()
            .unwrap()
            .into_iter()
            .map(|mut client| {
                let (request, rotated) = (&request, &rotated);
                scope.spawn(move || {
                    let mut sent = 0_u64;
                    while !rotated.load(Ordering::Acquire) {
                        let reply = client.send(request).unwrap();
                        assert_eq!(reply.status, 200, "after {sent}: {}", reply.text());
                        sent += 1;
                    }
                    sent
                })
            })
            .collect();
        // A panic of this thread must not leave the others running.
        let rotation = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            // Envoy counts each changed secret of its two; here always one changes.
            let updates = || {
                stack
                    .envoy
                    .stat("cluster.credence.client_ssl_socket_factory.ssl_context_update_by_sds")
            };
            let updated = |certificate: &Certificate, authorities: &[&Authority]| {
                let before = updates().unwrap();
                files.envoy_has(certificate, authorities);
                waiting::until("Envoy to have read its files", || {
                    Ok((updates()? > before).then_some(()))
                })
                .unwrap();
            };
            // Both sides trust both CAs, ...
            updated(&envoy, &[&old, &new]);
            files.serve_believes(&[&old, &new]);
            reloaded(1);
            // ... then each presents a new certificate, ...
            let renewed = new.issue("renewed", ENVOY).unwrap();
            updated(&renewed, &[&old, &new]);
            files.serve_shows(&new.issue("control-plane", CONTROL_PLANE).unwrap());
            reloaded(2);
            // ... then the old CA is removed, and connections under it are closed.
            files.serve_believes(&[&new]);
            updated(&renewed, &[&new]);
            wait_for_metric(&stack, "credence_tls_withdrawn_connections_total{port=\"grpc\"}");
            stack.wait_until_followed().unwrap();
        }));
        rotated.store(true, Ordering::Release);
        let sent: u64 = load.into_iter().map(|load| load.join().unwrap()).sum();
        rotation.unwrap();
        assert!(sent > 100, "{sent} requests are no load");
    });
    let refused = revoke_as(&stack, &old.issue("operator", OPERATOR).unwrap(), "alice");
    assert!(refused.is_err(), "the old CA is still trusted");
    // The filters follow under the new certificates.
    let operator = new.issue("operator", OPERATOR).unwrap();
    revoke_under(&stack, &new, &operator, "alice").unwrap();
    for client in &mut stack.envoy.connection_to_every_worker().unwrap() {
        let denied = waiting::until("the revocation", || {
            Ok(Some(client.send(&book(&chain))?).filter(|reply| reply.status != 200))
        });
        assert_denied(&denied.unwrap(), 401, "revoked_principal");
    }
}

/// As [`revoke_as`], if another CA has signed the control plane's certificate.
fn revoke_under(
    stack: &Stack,
    authority: &Authority,
    certificate: &Certificate,
    subject: &str,
) -> Result<String, Failure> {
    let shown = [
        "--cert",
        text(&certificate.certificate),
        "--client-key",
        text(&certificate.key),
    ];
    let (url, ca) = (stack.control_plane.url(), authority.certificate());
    let place = ["--control-plane", &url, "--ca", text(ca)];
    let what = ["revoke", "principal", "--issuer", ISSUER, "--subject", subject];
    stack.credence.run(what.iter().chain(&place).chain(&shown))
}

/// The control plane's configuration file.
const SERVE: &str = "\
tls:
  http: {certificate: FOLDER/tls.crt, key: FOLDER/tls.key, client_ca: FOLDER/ca.crt}
  grpc: {certificate: FOLDER/tls.crt, key: FOLDER/tls.key, client_ca: FOLDER/ca.crt}
access:
  certificates:
    - {name: gateways, uri: spiffe://mesh.example/ns/shop/*, roles: [filter]}
    - {name: oncall, uri: spiffe://mesh.example/ns/ops/sa/oncall, roles: [revoker]}
";
