//! Attacks on the proxy: by other programs of its machine, by web pages, by agents, by services and by their rules.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use credence_e2e::agent_proxy::AgentProxy;
use credence_e2e::{AUDIENCE, Client, Reply, Request, Stack};

use super::{charge, delegation, reverse, stack};

// === Other programs of the machine ===

#[test]
fn another_user_cannot_use_its_port() {
    if !is_root() {
        return;
    }
    let stack = stack();
    let proxy = AgentProxy::start(stack, &delegation(stack), &reverse(stack)).unwrap();
    let url = format!("http://{}/v1/catalog/42", proxy.address().unwrap());
    let status = |uid: u32| curl(&["-sS", "-o", "/dev/null", "-w", "%{http_code}", &url], uid);
    assert_eq!(status(own_uid()), "200");
    assert_eq!(status(NOBODY), "000");
    credence_e2e::waiting::until("the attempt to be logged", || {
        let is_logged = proxy.output().contains("a program of another user tried to connect");
        Ok(is_logged.then_some(()))
    })
    .unwrap();
}

/// The kernel lists an ended connection as root's, and its port is soon another program's.
#[test]
fn a_connection_that_ends_at_once_is_nobody_s() {
    if !is_root() {
        return;
    }
    let stack = stack();
    let proxy = AgentProxy::start(stack, &delegation(stack), &reverse(stack)).unwrap();
    let port = proxy.address().unwrap().port();
    let attack = format!(
        r#"
import socket, struct
for turn in range(300):
    s = socket.create_connection(("127.0.0.1", {port}))
    if turn % 2:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.sendall(b"POST /v1/accounts/acme/charges?amount=5 HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nx-mark: ended\r\n"
              b"content-length: 0\r\n\r\nGET /x HTTP/1.1\r\n")
    s.close()
"#
    );
    let mut command = Command::new("python3");
    assert!(command.args(["-c", &attack]).uid(NOBODY).status().unwrap().success());
    assert_eq!(proxy.send(charge("5")).unwrap().status, 200);
    assert!(!stack.upstream.has_seen("ended"));
}

#[test]
fn another_user_cannot_use_its_socket() {
    if !is_root() {
        return;
    }
    let stack = stack();
    let mut proxy = AgentProxy::prepare(stack).unwrap();
    let socket = proxy.file("agent.sock").display().to_string();
    let client = format!(r#"listen: "unix:{socket}", service: "{}""#, stack.origin());
    let settings = proxy.settings_for(stack, &delegation(stack), &client).unwrap();
    proxy.serve(&settings).unwrap();
    // Its folder is open, so that only the proxy itself is in the way.
    Command::new("chmod")
        .args(["0755", proxy.file("").to_str().unwrap()])
        .status()
        .unwrap();
    let options = [
        "-sS",
        "-o",
        "/dev/null",
        "-w",
        "%{http_code}",
        "--unix-socket",
        &socket,
        "http://localhost/v1/catalog/42",
    ];
    assert_eq!(curl(&options, own_uid()), "200");
    assert_eq!(curl(&options, NOBODY), "000");
}

#[test]
fn a_listed_user_can_use_it_and_only_that_one() {
    if !is_root() {
        return;
    }
    let stack = stack();
    let client = format!("{}, uids: [{NOBODY}]", reverse(stack));
    let proxy = AgentProxy::start(stack, &delegation(stack), &client).unwrap();
    let url = format!("http://{}/v1/catalog/42", proxy.address().unwrap());
    let status = |uid: u32| curl(&["-sS", "-o", "/dev/null", "-w", "%{http_code}", &url], uid);
    assert_eq!(status(NOBODY), "200");
    assert_eq!(status(own_uid()), "000");
}

#[test]
fn a_key_that_others_can_read_is_refused() {
    let stack = stack();
    let mut proxy = AgentProxy::prepare(stack).unwrap();
    let settings = proxy.settings_for(stack, &delegation(stack), &reverse(stack)).unwrap();
    let copy = proxy.file("open.jwk");
    std::fs::copy(&stack.agent.file, &copy).unwrap();
    Command::new("chmod").arg("0644").arg(&copy).status().unwrap();
    let settings = settings.replace(stack.agent.path(), copy.to_str().unwrap());
    let error = proxy.serve(&settings).unwrap_err().to_string();
    assert!(error.contains("other users of this machine can read it"), "{error}");
}

#[test]
fn a_tls_key_that_others_can_read_is_refused() {
    let stack = stack();
    let mut proxy = AgentProxy::prepare(stack).unwrap();
    let settings = proxy.settings_for(stack, &delegation(stack), &reverse(stack)).unwrap();
    let (chain, key) = (proxy.file("chain.pem"), proxy.file("key.pem"));
    for file in [&chain, &key] {
        std::fs::write(file, "").unwrap();
        Command::new("chmod").arg("0644").arg(file).status().unwrap();
    }
    let files = format!(r#"chain: "{}", key: "{}""#, chain.display(), key.display());
    let certificate = format!("{{certificate: {{{files}}}, url: ");
    let error = proxy.serve(&settings.replacen("{url: ", &certificate, 1)).unwrap_err();
    let expected = "key.pem: other users of this machine can read it";
    assert!(error.to_string().contains(expected), "{error}");
}

#[test]
fn it_listens_on_this_machine_only() {
    let stack = stack();
    let mut proxy = AgentProxy::prepare(stack).unwrap();
    let client = reverse(stack).replace("127.0.0.1:0", "0.0.0.0:0");
    let settings = proxy.settings_for(stack, &delegation(stack), &client).unwrap();
    let error = proxy.serve(&settings).unwrap_err().to_string();
    assert!(error.contains("can be reached from other machines"), "{error}");
}

// === Web pages ===

#[test]
fn a_web_page_whose_name_leads_to_this_machine_is_refused() {
    let stack = stack();
    let proxy = AgentProxy::start(stack, &delegation(stack), &reverse(stack)).unwrap();
    let port = proxy.address().unwrap().port();
    for host in [
        "attacker.example",
        &format!("attacker.example:{port}"),
        &format!("127.0.0.1.attacker.example:{port}"),
        "127.0.0.1:1",
        &format!("localhost.:{port}"),
    ] {
        let reply = raw(
            &proxy,
            Request::get("/v1/catalog/42").without("host").header("host", host),
        );
        assert_eq!(
            (reply.status, reply.reason().as_deref()),
            (421, Some("host_unknown")),
            "{host}"
        );
    }
    let reply = raw(&proxy, Request::get("/v1/catalog/42").header("host", "127.0.0.1"));
    assert_eq!(reply.status, 400, "two hosts");
    for host in [format!("localhost:{port}"), format!("127.0.0.1:{port}")] {
        let reply = raw(
            &proxy,
            Request::get("/v1/catalog/42").without("host").header("host", &host),
        );
        assert_eq!(reply.status, 200, "{host}");
    }
}

#[test]
fn a_web_page_cannot_post_to_it() {
    let stack = stack();
    let client = format!("{}, web_origins: [\"http://localhost:3000\"]", reverse(stack));
    let proxy = AgentProxy::start(stack, &delegation(stack), &client).unwrap();
    for (header, value) in [
        ("origin", "https://attacker.example"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
        ("referer", "http://attacker.example/page"),
        ("referer", "no page"),
    ] {
        let reply = proxy.send(charge("5").header(header, value)).unwrap();
        assert_eq!(
            (reply.status, reply.reason().as_deref()),
            (403, Some("web_page")),
            "{header}: {value}"
        );
    }
    assert_eq!(
        proxy
            .send(charge("5").header("origin", "http://localhost:3000"))
            .unwrap()
            .status,
        200
    );
}

// === Agents ===

#[test]
fn an_agent_cannot_present_another_delegation() {
    let stack = stack();
    let proxy = AgentProxy::start(stack, &delegation(stack), &reverse(stack)).unwrap();
    for name in ["delegation", "delegation-proof", "Delegation_Proof", "dpop"] {
        let reply = proxy.send(charge("5").header(name, "a.b.c")).unwrap();
        assert_eq!(
            (reply.status, reply.reason().as_deref()),
            (400, Some("credential_presented")),
            "{name}"
        );
    }
}

#[test]
fn an_agent_cannot_forge_the_identity_that_the_service_sees() {
    let stack = stack();
    let proxy = AgentProxy::start(stack, &delegation(stack), &reverse(stack)).unwrap();
    let reply = proxy.send(charge("5").header("x-delegation-subject", "eve")).unwrap();
    assert_eq!(reply.received().unwrap().header("x-delegation-subject"), Some("ada"));
}

#[test]
fn a_header_cannot_hide_another_one() {
    let stack = stack();
    let proxy = AgentProxy::start(stack, &delegation(stack), &reverse(stack)).unwrap();
    let address = proxy.address().unwrap();
    for header in [
        "x: a\r\n delegation: b",
        "x: a\rdelegation: b",
        "x : a",
        "x: a\0b",
        "x\u{e9}: a",
    ] {
        let request = format!("GET /v1/catalog/42 HTTP/1.1\r\nhost: {address}\r\n{header}\r\n\r\n");
        let reply = Client::connect(address).unwrap().send_raw(request.as_bytes());
        // Folded lines and the like are refused before anything is read from them.
        assert!(reply.map_or(true, |reply| reply.status == 400), "{header:?}");
    }
}

#[test]
fn a_request_cannot_be_two() {
    let stack = stack();
    let proxy = AgentProxy::start(stack, &delegation(stack), &reverse(stack)).unwrap();
    let address = proxy.address().unwrap();
    let second = format!("GET /v1/catalog/smuggled HTTP/1.1\r\nhost: {address}\r\nx-mark: smuggled\r\n\r\n");
    let head = format!("PUT /v1/files/7 HTTP/1.1\r\nhost: {address}\r\n");
    for framing in [
        format!("content-length: 0\r\ncontent-length: {}\r\n\r\n{second}", second.len()),
        format!("transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n{second}"),
        format!("transfer-encoding: xchunked\r\n\r\n0\r\n\r\n{second}"),
        format!("content-length: +0\r\n\r\n{second}"),
        format!("transfer-encoding: chunked\r\n\r\n0;\n\r\n{second}"),
    ] {
        let reply = Client::connect(address)
            .unwrap()
            .send_raw(format!("{head}{framing}").as_bytes());
        assert!(reply.map_or(true, |reply| reply.status >= 400), "{framing:?}");
    }
    assert!(!stack.upstream.has_seen("smuggled"));
}

#[test]
fn of_two_lengths_the_chunks_count_and_nothing_after_them() {
    let stack = stack();
    let proxy = AgentProxy::start(stack, &delegation(stack), &reverse(stack)).unwrap();
    let address = proxy.address().unwrap();
    let second = format!("GET /v1/catalog/8 HTTP/1.1\r\nhost: {address}\r\nx-mark: after\r\n\r\n");
    let request = format!(
        "PUT /v1/files/7 HTTP/1.1\r\nhost: {address}\r\ncontent-length: {}\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{second}",
        5 + second.len()
    );
    let mut client = Client::connect(address).unwrap();
    assert_eq!(
        client.send_raw(request.as_bytes()).unwrap().received().unwrap().body,
        ""
    );
    // RFC 9112, section 6.1: the connection is closed.
    client.send_raw(b"").unwrap_err();
    assert!(!stack.upstream.has_seen("after"));
}

#[test]
fn a_body_that_is_streamed_cannot_be_two_requests_either() {
    let stack = stack();
    let proxy = AgentProxy::start(stack, &delegation(stack), &reverse(stack)).unwrap();
    let address = proxy.address().unwrap();
    let inner = "GET /v1/catalog/smuggled HTTP/1.1\r\nhost: a\r\nx-mark: inner\r\n\r\n";
    let request = format!(
        "PUT /v1/files/7 HTTP/1.1\r\nhost: {address}\r\ncontent-length: {}\r\n\r\n{inner}",
        inner.len()
    );
    let reply = Client::connect(address).unwrap().send_raw(request.as_bytes()).unwrap();
    assert_eq!(reply.status, 200);
    assert_eq!(reply.received().unwrap().body, inner);
    assert!(!stack.upstream.has_seen("inner"));
}

#[test]
fn a_connection_header_cannot_remove_the_proof() {
    let stack = stack();
    let proxy = AgentProxy::start(stack, &delegation(stack), &reverse(stack)).unwrap();
    let reply = proxy
        .send(
            charge("5")
                .header("connection", "delegation-proof, delegation, x-own")
                .header("x-own", "a"),
        )
        .unwrap();
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.received().unwrap().header("x-own"), None);
}

#[test]
fn it_is_no_way_to_other_servers() {
    let stack = stack();
    let (address, heard) = listener();
    let proxy = AgentProxy::start(stack, &delegation(stack), r#"listen: "127.0.0.1:0""#).unwrap();
    for target in [
        format!("http://{address}/v1/catalog/42"),
        format!("{}@{address}/v1/catalog/42", stack.origin()),
        format!("{}.attacker.example/v1/catalog/42", stack.origin()),
    ] {
        let reply = raw(&proxy, Request::get(&target));
        assert!(reply.status >= 400, "{target}: {}", reply.status);
    }
    let reply = raw(&proxy, Request::new("CONNECT", &address.to_string()));
    assert_eq!(reply.status, 405);
    assert!(heard.try_recv().is_err());
}

#[test]
fn an_agent_cannot_take_all_its_places_from_others() {
    let stack = stack();
    let mut proxy = AgentProxy::prepare(stack).unwrap();
    let settings = proxy.settings_for(stack, &delegation(stack), &reverse(stack)).unwrap();
    let other = format!(
        "  - {{name: other, {}}}\nlimits: {{requests: 2}}\n",
        reverse(stack).replace("127.0.0.1:0", "127.0.0.2:0")
    );
    proxy.serve(&(settings + &other)).unwrap();
    // Bodies that never arrive keep the places of the first.
    let address = proxy.address().unwrap();
    let head = format!(
        "POST /v1/notes HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n"
    );
    let mut held: Vec<_> = (0..2).map(|_| Client::connect(address).unwrap()).collect();
    for client in &mut held {
        client.send_part(head.as_bytes()).unwrap();
    }
    credence_e2e::waiting::until("the places to be taken", || {
        let reply = proxy.send(charge("5"))?;
        Ok((reply.status == 429).then_some(()))
    })
    .unwrap();
    let other = proxy.address_of("127.0.0.2:0").unwrap();
    let reply = Client::connect(other)
        .unwrap()
        .send(
            &charge("5")
                .without("host")
                .header("host", format!("127.0.0.1:{}", other.port())),
        )
        .unwrap();
    assert_eq!(reply.status, 200, "{}", reply.text());
}

// === Services, and their rules ===

#[test]
fn a_redirect_to_another_host_gets_no_proof() {
    let stack = stack();
    let proxy = AgentProxy::start(stack, &delegation(stack), &reverse(stack)).unwrap();
    let (address, heard) = listener();
    let moved = format!(
        "HTTP/1.1 307 Moved\r\nlocation: http://{address}/v1/accounts/acme/charges?amount=5\r\ncontent-length: 0\r\n\r\n"
    );
    let reply = proxy.send(charge("5").answered_with(&moved)).unwrap();
    assert_eq!(reply.status, 307);
    // The client may go there itself, with what it has: nothing.
    assert_eq!(
        reply.header("location"),
        Some(format!("http://{address}/v1/accounts/acme/charges?amount=5").as_str())
    );
    assert!(heard.try_recv().is_err());
}

#[test]
fn rules_that_name_another_service_get_no_proof_for_it() {
    let stack = stack();
    let rules = stack.agent_rules().unwrap();
    // By default, only names at the service's own origin.
    for (audience, lying) in [
        (String::new(), rules.clone()),
        (
            format!(", audience: [{AUDIENCE}]"),
            rules.replace(AUDIENCE, "https://bank.example"),
        ),
    ] {
        let (proxy, heard) = before_a_listener(stack, &lying, &audience);
        let reply = proxy.send(charge("5")).unwrap();
        assert_eq!(
            (reply.status, reply.reason().as_deref()),
            (502, Some("rules_unavailable")),
            "{audience}"
        );
        assert!(reply.text().contains("list it in `audience`"), "{}", reply.text());
        assert!(heard.try_recv().is_err());
    }
}

#[test]
fn one_rule_that_names_another_service_gets_no_proof_for_it() {
    let stack = stack();
    let rules = stack.agent_rules().unwrap();
    let lying = rules.replace(
        r#""tool":"payments.charge"}"#,
        r#""tool":"payments.charge","audience":["https://bank.example"]}"#,
    );
    assert_ne!(rules, lying);
    let (proxy, heard) = before_a_listener(stack, &lying, &format!(", audience: [{AUDIENCE}]"));
    let reply = proxy.send(charge("5")).unwrap();
    assert_eq!(
        (reply.status, reply.reason().as_deref()),
        (401, Some("audience_mismatch")),
        "{}",
        reply.text()
    );
    assert!(heard.try_recv().is_err());
}

#[test]
fn rules_that_lie_about_the_tool_get_a_proof_for_this_service_only() {
    let stack = stack();
    let rules = stack.agent_rules().unwrap();
    // Reading the catalogue is said to be a payment.
    let lying = rules.replace(
        r#"{"args":{"item":{"path":"item"}},"match":{"methods":["GET"],"path":"/v1/catalog/{item}"},"name":"catalog","proof":"none","tool":"catalog.read"}"#,
        r#"{"args":{"account":{"path":"item"},"amount":{"query":"amount","type":"number"}},"match":{"methods":["GET"],"path":"/v1/catalog/{item}"},"name":"catalog","tool":"payments.charge"}"#,
    );
    assert_ne!(rules, lying);
    let (proxy, heard) = before_a_listener(stack, &lying, &format!(", audience: [{AUDIENCE}]"));
    let _ = proxy.send(Request::get("/v1/catalog/acme?amount=5"));
    let seen = heard.recv().unwrap();
    let proof = seen
        .lines()
        .find_map(|line| line.strip_prefix("delegation-proof: "))
        .unwrap();
    let claims = credence_e2e::forge::claims_of(proof).unwrap();
    // Whoever gets this proof can use it at this service, once, and nowhere else.
    assert_eq!(claims["aat_aud"].get(), format!("\"{AUDIENCE}\""));
    assert_eq!(claims["hta"].get(), r#"{"account":"acme","amount":5}"#);
    // What this client was not given, no lie can get.
    let chain = stack
        .mint(
            "ada",
            &["--tool", r#"catalog.read={"item":{"constraint_type":"wildcard"}}"#],
        )
        .unwrap();
    proxy.write("delegation", &chain).unwrap();
    credence_e2e::waiting::until("the narrower delegation to be used", || {
        let reply = proxy.send(Request::get("/v1/catalog/acme?amount=5")).ok();
        Ok(reply
            .filter(|reply| reply.reason().as_deref() == Some("tool_not_granted"))
            .map(drop))
    })
    .unwrap();
}

#[test]
fn an_answer_cannot_pretend_to_be_the_proxy_s() {
    let stack = stack();
    let proxy = AgentProxy::start(stack, &delegation(stack), &reverse(stack)).unwrap();
    let forged = "HTTP/1.1 200 OK\r\nx-answered-by: credence-proxy\r\ncontent-length: 0\r\n\r\n";
    let reply = proxy.send(charge("5").answered_with(forged)).unwrap();
    assert_eq!((reply.status, reply.header("x-answered-by")), (200, None));
}

#[test]
fn rules_cannot_write_lines_of_the_log() {
    let stack = stack();
    let lying = r#"{"credence_agent_rules":1,"x\u001b[31m\n2026-01-01 INFO all is well":1}"#;
    let (proxy, _) = before_a_listener(stack, lying, "");
    let reply = proxy.send(charge("5")).unwrap();
    assert_eq!(reply.reason().as_deref(), Some("rules_unavailable"));
    credence_e2e::waiting::until("the rules to be refused", || {
        Ok(proxy
            .output()
            .contains("the rules of a service cannot be used")
            .then_some(()))
    })
    .unwrap();
    let output = proxy.output();
    assert!(
        !output.contains('\u{1b}') && !output.lines().any(|line| line.starts_with("2026-01-01")),
        "{output}"
    );
}

#[test]
fn nothing_secret_is_logged_or_shown() {
    let stack = stack();
    let chain = delegation(stack);
    let mut proxy = AgentProxy::prepare(stack).unwrap();
    let client = format!(
        "{}, secret_file: \"{}\"",
        reverse(stack),
        proxy.file("secret").display()
    );
    proxy.write("secret", "the client's own secret").unwrap();
    let settings = proxy.settings_for(stack, &chain, &client).unwrap();
    proxy.serve(&settings).unwrap();
    let secret = |request: Request| request.header("authorization", "Bearer the client's own secret");
    for request in [
        charge("5"),
        charge("x"),
        Request::get("/none"),
        charge("5").header("delegation", "a"),
    ] {
        proxy.send(secret(request)).unwrap();
    }
    proxy
        .send(charge("5").header("authorization", "Bearer a wrong but secret one"))
        .unwrap();
    let shown = proxy.output() + &super::requests::metrics(&proxy);
    let key = std::fs::read_to_string(&stack.agent.file).unwrap();
    let seed = key
        .split("\"d\":\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next())
        .unwrap();
    let payload = chain.split('.').nth(1).unwrap();
    for hidden in [
        seed,
        payload,
        "the client's own secret",
        "a wrong but secret one",
        "delegation-proof: ",
    ] {
        assert!(!shown.contains(hidden), "{hidden}");
    }
    assert!(shown.contains("a request was not sent"));
}

// === What they need ===

/// A proxy for a service that notes what it hears, with these rules.
fn before_a_listener(stack: &Stack, rules: &str, more: &str) -> (AgentProxy, Receiver<String>) {
    let (address, heard) = listener();
    let mut proxy = AgentProxy::prepare(stack).unwrap();
    let origin = format!("http://{address}");
    let client = format!(r#"listen: "127.0.0.1:0", service: "{origin}""#);
    let settings = proxy.settings_for(stack, &delegation(stack), &client).unwrap();
    let service = proxy.service(stack).unwrap();
    proxy.write("rules.json", rules).unwrap();
    let own = format!(
        r#"{{url: "{origin}", rules: "{}"{more}}}"#,
        proxy.file("rules.json").display()
    );
    proxy.serve(&settings.replace(&service, &own)).unwrap();
    (proxy, heard)
}

/// A server that answers every request with 200, and the heads that it gets.
fn listener() -> (SocketAddr, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, heard) = channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let sender = sender.clone();
            thread::spawn(move || answer(stream.unwrap(), &|head| sender.send(head).unwrap_or_default()));
        }
    });
    (address, heard)
}

fn answer(stream: TcpStream, hear: &dyn Fn(String)) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or_default() == 0 {
                return;
            }
        }
        hear(head);
        if reader
            .get_mut()
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            .is_err()
        {
            return;
        }
    }
}

/// Sends the request as it is, with its own `Host`.
fn raw(proxy: &AgentProxy, request: Request) -> Reply {
    Client::connect(proxy.address().unwrap())
        .unwrap()
        .send(&request)
        .unwrap()
}

/// What curl prints, as a program of this user.
fn curl(options: &[&str], uid: u32) -> String {
    let mut command = Command::new("curl");
    let printed = command
        .args(["--max-time", "10"])
        .args(options)
        .uid(uid)
        .output()
        .unwrap();
    String::from_utf8_lossy(&printed.stdout).into_owned()
}

/// Only root can run programs as other users.
pub(crate) fn is_root() -> bool {
    let is_root = own_uid() == 0;
    if !is_root {
        eprintln!("skipped: only root can run programs as other users");
    }
    is_root
}

fn own_uid() -> u32 {
    let mut uid = String::new();
    let mut id = Command::new("id")
        .arg("-u")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    id.stdout.take().unwrap().read_to_string(&mut uid).unwrap();
    id.wait().unwrap();
    uid.trim().parse().unwrap()
}

const NOBODY: u32 = 65_534;
