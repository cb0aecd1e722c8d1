//! Where the proxy's keys are.

use std::fs;
use std::path::Path;
use std::process::Command;

use credence_e2e::agent_proxy::AgentProxy;
use credence_e2e::grants::CHARGE;
use credence_e2e::{AUDIENCE, ISSUER, Stack};

use super::{charge, reverse, stack};

#[test]
fn an_encrypted_key_file_is_opened_with_its_passphrase() {
    let stack = stack();
    let mut proxy = AgentProxy::prepare(stack).unwrap();
    proxy.write("passphrase", "correct horse battery staple\n").unwrap();
    let (file, passphrase) = (proxy.file("key.pem"), proxy.file("passphrase"));
    let made = Command::new(stack.credence.program())
        .args(["keygen", "--out"])
        .arg(&file)
        .arg("--passphrase-file")
        .arg(&passphrase)
        .output()
        .unwrap();
    let jwk = String::from_utf8(made.stdout).unwrap();
    assert!(
        fs::read_to_string(&file)
            .unwrap()
            .starts_with("-----BEGIN ENCRYPTED PRIVATE KEY-----")
    );
    let key = format!(
        r#"{{encrypted: {{file: "{}", passphrase_file: "{}"}}}}"#,
        file.display(),
        passphrase.display()
    );
    works_with(stack, &mut proxy, jwk.trim(), &key);
    proxy.kill().unwrap();
    proxy.write("passphrase", "another one").unwrap();
    let error = proxy.restart().unwrap_err().to_string();
    assert!(error.contains("the passphrase is not this file's"), "{error}");
}

#[test]
fn a_key_that_openssl_encrypted_is_opened() {
    let stack = stack();
    let mut proxy = AgentProxy::prepare(stack).unwrap();
    proxy.write("passphrase", "correct horse battery staple").unwrap();
    let (file, passphrase) = (
        proxy.file("key.pem").display().to_string(),
        proxy.file("passphrase").display().to_string(),
    );
    let plain = proxy.file("plain.pem").display().to_string();
    openssl(&["genpkey", "-algorithm", "ED25519", "-out", &plain]);
    openssl(&[
        "pkcs8",
        "-topk8",
        "-in",
        &plain,
        "-out",
        &file,
        "-passout",
        &format!("file:{passphrase}"),
        "-scrypt",
    ]);
    let der = openssl(&["pkey", "-in", &plain, "-pubout", "-outform", "DER"]);
    let jwk = jwk(&der[der.len() - 32..]);
    let key = format!(r#"{{encrypted: {{file: "{file}", passphrase_file: "{passphrase}"}}}}"#);
    works_with(stack, &mut proxy, &jwk, &key);
}

#[test]
fn a_key_in_a_module_signs_and_never_leaves_it() {
    let stack = stack();
    let module = Path::new("/usr/lib/softhsm/libsofthsm2.so");
    if !module.exists() {
        eprintln!("skipped: softhsm2 is not installed");
        return;
    }
    let mut proxy = AgentProxy::prepare(stack).unwrap();
    let tokens = proxy.file("tokens");
    fs::create_dir(&tokens).unwrap();
    let conf = proxy.file("softhsm2.conf");
    fs::write(&conf, format!("directories.tokendir = {}\n", tokens.display())).unwrap();
    proxy.write("pin", "1234").unwrap();
    proxy
        .environment
        .push(("SOFTHSM2_CONF".to_owned(), conf.display().to_string()));
    let run = |program: &str, arguments: &[&str]| {
        let ran = Command::new(program)
            .args(arguments)
            .env("SOFTHSM2_CONF", &conf)
            .output()
            .unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8_lossy(&ran.stdout).into_owned()
    };
    let plain = proxy.file("plain.pem").display().to_string();
    openssl(&["genpkey", "-algorithm", "ED25519", "-out", &plain]);
    let token = [
        "--init-token",
        "--free",
        "--label",
        "agents",
        "--pin",
        "1234",
        "--so-pin",
        "1234",
    ];
    let import = [
        "--import", &plain, "--token", "agents", "--label", "planner", "--id", "01", "--pin", "1234",
    ];
    run("softhsm2-util", &token);
    run("softhsm2-util", &import);
    let der = openssl(&["pkey", "-in", &plain, "-pubout", "-outform", "DER"]);
    let jwk = jwk(&der[der.len() - 32..]);
    let key = format!(
        r#"{{pkcs11: {{module: "{}", token: agents, label: planner, pin_file: "{}"}}}}"#,
        module.display(),
        proxy.file("pin").display()
    );
    works_with(stack, &mut proxy, &jwk, &key);

    // The device goes away. Modules notice that it is back when they start.
    let away = proxy.file("away");
    fs::rename(&tokens, &away).unwrap();
    let reply = proxy.send(charge("5")).unwrap();
    assert_eq!(
        (reply.status, reply.reason().as_deref()),
        (503, Some("key_unavailable"))
    );
    fs::rename(&away, &tokens).unwrap();
    proxy.kill().unwrap();
    proxy.restart().unwrap();
    let reply = proxy.send(charge("5")).unwrap();
    assert_eq!(reply.status, 200, "{}", reply.text());
}

/// A delegation to this key allows requests through a proxy with this `key`.
fn works_with(stack: &Stack, proxy: &mut AgentProxy, jwk: &str, key: &str) {
    let arguments = [
        "mint",
        "--key",
        stack.issuer.path(),
        "--issuer",
        ISSUER,
        "--subject",
        "ada",
        "--holder",
        jwk,
    ];
    let more = ["--audience", AUDIENCE, "--tool", CHARGE];
    let chain = stack.credence.run(arguments.iter().chain(&more)).unwrap();
    let settings = proxy.settings_for(stack, &chain, &reverse(stack)).unwrap();
    let file = format!(r#"{{file: "{}"}}"#, stack.agent.path());
    proxy.serve(&settings.replace(&file, key)).unwrap();
    let reply = proxy.send(charge("5")).unwrap();
    assert_eq!(reply.status, 200, "{}", reply.text());
}

fn jwk(x: &[u8]) -> String {
    use base64::Engine as _;
    let x = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(x);
    format!(r#"{{"kty":"OKP","crv":"Ed25519","x":"{x}"}}"#)
}

fn openssl(arguments: &[&str]) -> Vec<u8> {
    let ran = Command::new("openssl").args(arguments).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    if let Some(out) = arguments.iter().position(|argument| *argument == "-out") {
        Command::new("chmod")
            .args(["0600", arguments[out + 1]])
            .status()
            .unwrap();
    }
    ran.stdout
}
