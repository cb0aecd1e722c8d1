//! DPoP proofs in a real Envoy: a proof is for what Envoy routes, however client and proof spell it.
//!
//! Host and path are sent in many spellings, each with a proof for many URIs. What the service received is the oracle: if a
//! request was allowed, its proof named that path and that host, by a normalisation written here from RFC 3986.

// Claims are JSON whose structure this test knows.
#![allow(clippy::disallowed_types)]

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use credence_e2e::forge::{self, Forger};
use credence_e2e::received::Received;
use credence_e2e::{AUDIENCE, Client, Reply, Request, Stack, StackOptions};
use serde_json::json;
use sha2::{Digest as _, Sha256};

const PROVIDER: &str = "https://idp.example.com";
const HOST: &str = "payments.example";

static STACK: LazyLock<Stack> = LazyLock::new(|| {
    let provider = serde_json::to_string(&provider().jwk()).unwrap();
    let anchors = format!(
        "                            holder_algorithms: [Ed25519]\n                            trust_anchors:\n                              \
         - issuer: {PROVIDER}\n                                jwk: {provider}\n                                access_tokens: \
         {{scopes: {{catalog: {{catalog.read: {{}}}}}}}}\n"
    );
    let options = StackOptions::quick()
        .replacing("                            trust_anchors:\n", &anchors)
        .replacing(
            "                                tool: catalog.read\n",
            "                                tool: catalog.read\n                                authorization: {proof: dpop}\n",
        );
    let stack = Stack::start(&options).unwrap();
    stack.wait_until_proofs_count().unwrap();
    stack
});

fn provider() -> Forger {
    Forger::from_seed([31; 32])
}

fn holder() -> Forger {
    Forger::from_seed([32; 32])
}

fn token() -> String {
    static TOKEN: LazyLock<String> = LazyLock::new(|| {
        let (thumbprint, now) = (holder().thumbprint_uri(), forge::now());
        let thumbprint = thumbprint.rsplit(':').next().unwrap();
        let claims = json!({
            "iss": PROVIDER, "sub": "ada", "aud": AUDIENCE, "client_id": "agent", "scope": "catalog", "jti": "t",
            "iat": now, "exp": now + 3_600, "cnf": {"jkt": thumbprint},
        });
        provider().sign("at+jwt", &claims).unwrap()
    });
    TOKEN.clone()
}

/// A proof with an id of its own.
fn proof(method: &str, uri: &str) -> String {
    static IDS: AtomicU32 = AtomicU32::new(0);
    let id = IDS.fetch_add(1, Ordering::Relaxed);
    let claims = json!({
        "jti": format!("proof-{id}"), "htm": method, "htu": uri, "iat": forge::now(),
        "ath": URL_SAFE_NO_PAD.encode(Sha256::digest(token())),
    });
    let header = json!({"alg": "Ed25519", "typ": "dpop+jwt", "jwk": holder().jwk()}).to_string();
    holder().sign_under(&header, &claims).unwrap()
}

fn send(client: &mut Client, host: &str, path: &str, proof: &str) -> Reply {
    let request = Request::get(path)
        .without("host")
        .header("host", host)
        .header("authorization", format!("DPoP {}", token()))
        .header("dpop", proof);
    client.send(&request).unwrap()
}

/// The normal form of a URI, by RFC 3986, sections 6.2.2 and 6.2.3; none for one with user information or another scheme.
fn normal(uri: &str) -> Option<(String, String)> {
    let (scheme, rest) = uri.split_once("://")?;
    if !scheme.eq_ignore_ascii_case("http") {
        return None;
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let host = rest[..end].to_ascii_lowercase();
    let host = host.strip_suffix(":80").unwrap_or(&host).to_owned();
    let path = rest[end..].split(['?', '#']).next().unwrap_or_default();
    if host.contains('@') {
        return None;
    }
    let mut normal = String::new();
    let mut rest = path;
    while let Some(next) = rest.chars().next() {
        let decoded = rest
            .strip_prefix('%')
            .and_then(|rest| u8::from_str_radix(rest.get(..2)?, 16).ok());
        if let Some(byte) = decoded {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => normal.push(char::from(byte)),
                _ => normal.push_str(&format!("%{byte:02X}")),
            }
            rest = &rest[3..];
        } else {
            normal.push(next);
            rest = &rest[next.len_utf8()..];
        }
    }
    Some((host, if normal.is_empty() { "/".to_owned() } else { normal }))
}

const HOSTS: [&str; 7] = [
    HOST,
    "PAYMENTS.example",
    "payments.example:80",
    "payments.example:8080",
    "payments.example.",
    "evil.example",
    "payments.example:443",
];

const PATHS: [&str; 14] = [
    "/v1/catalog/shoes",
    "/v1/catalog/%73hoes",
    "/v1/catalog/shoes?a=%2e",
    "/v1/catalog/./shoes",
    "/v1/catalog/x/../shoes",
    "/v1/catalog/%2e%2e/catalog/shoes",
    "/v1//catalog/shoes",
    "//v1/catalog/shoes",
    "/v1/catalog/shoes/",
    "/V1/catalog/shoes",
    "/v1/catalog/a%2fb",
    "/v1/catalog/shoes;x",
    "/v1/catalog/sho%65s#top",
    "/v1/catalog/hats",
];

#[test]
fn a_proof_is_for_what_the_service_receives_in_any_spelling() {
    let stack = &*STACK;
    let (mut allowed, mut sent) = (0, 0);
    for host in HOSTS {
        for path in PATHS {
            for (named_host, named_path) in [(host, path), (HOST, path), (host, PATHS[0]), (HOST, PATHS[13])] {
                let uri = format!("http://{named_host}{named_path}");
                // Envoy closes connections after an error, so each request has its own.
                let mut client = Client::connect(stack.envoy.ingress()).unwrap();
                let reply = send(&mut client, host, path, &proof("GET", &uri));
                sent += 1;
                if reply.status != 200 {
                    continue;
                }
                allowed += 1;
                let received: Received = serde_json::from_str(&reply.text()).unwrap();
                let target = format!("http://{}{}", received.header("host").unwrap(), received.target);
                assert_eq!(normal(&uri), normal(&target), "{host} {path} with a proof for {uri}");
            }
        }
    }
    assert!(
        sent == 7 * 14 * 4 && (40..sent / 2).contains(&allowed),
        "{allowed} of {sent}"
    );
}

#[test]
fn a_proof_for_another_uri_or_method_is_denied() {
    let stack = &*STACK;
    let mut client = Client::connect(stack.envoy.ingress()).unwrap();
    let own = format!("http://{HOST}/v1/catalog/shoes");
    assert_eq!(
        send(&mut client, HOST, "/v1/catalog/shoes", &proof("GET", &own)).status,
        200
    );
    for (method, uri) in [
        ("POST", own.as_str()),
        ("GET", "https://payments.example/v1/catalog/shoes"),
        ("GET", "http://payments.example:8080/v1/catalog/shoes"),
        ("GET", "http://evil.example/v1/catalog/shoes"),
        ("GET", "http://payments.example@evil.example/v1/catalog/shoes"),
        ("GET", "http://payments.example/v1/catalog/hats"),
        ("GET", "http://payments.example/v1/catalog/x/../shoes"),
        ("GET", "http://payments.example//v1/catalog/shoes"),
        ("GET", "http://payments.example/v1/catalog%2Fshoes"),
    ] {
        let reply = send(&mut client, HOST, "/v1/catalog/shoes", &proof(method, uri));
        assert_eq!(
            (reply.status, reply.text().contains("proof_mismatch")),
            (401, true),
            "{method} {uri}"
        );
    }
}

#[test]
fn the_service_receives_neither_token_nor_proof_but_client_and_user() {
    let stack = &*STACK;
    let mut client = Client::connect(stack.envoy.ingress()).unwrap();
    let uri = format!("http://{HOST}/v1/catalog/shoes");
    let proof = proof("GET", &uri);
    let reply = send(&mut client, HOST, "/v1/catalog/shoes", &proof);
    let received: Received = serde_json::from_str(&reply.text()).unwrap();
    assert_eq!(received.header("authorization"), None);
    assert_eq!(received.header("dpop"), None);
    assert_eq!(received.header("x-delegation-client"), Some("agent"));
    assert_eq!(received.header("x-delegation-proof"), Some("dpop"));
    let replayed = send(&mut client, HOST, "/v1/catalog/shoes", &proof);
    assert!(replayed.text().contains("proof_replayed"), "{}", replayed.text());
}

#[test]
fn the_metadata_of_the_resource_is_served() {
    let stack = &*STACK;
    let request = Request::get("/.well-known/oauth-protected-resource");
    let reply = stack.send(&request).unwrap();
    assert_eq!(reply.status, 200);
    let document: serde_json::Value = serde_json::from_str(&reply.text()).unwrap();
    assert_eq!(document["resource"], AUDIENCE);
    assert_eq!(document["scopes_supported"], json!(["catalog"]));
    let denied = stack.send(&Request::get("/v1/catalog/shoes")).unwrap();
    let challenge = denied.header("www-authenticate").unwrap_or_default();
    assert!(
        challenge.contains(r#"resource_metadata="https://payments.example/.well-known/oauth-protected-resource""#),
        "{challenge}"
    );
}

#[test]
fn another_scheme_and_a_second_credential_are_denied() {
    let stack = &*STACK;
    let uri = format!("http://{HOST}/v1/catalog/shoes");
    let request = |scheme: &str| {
        Request::get("/v1/catalog/shoes")
            .header("authorization", format!("{scheme} {}", token()))
            .header("dpop", proof("GET", &uri))
    };
    let chain = stack.mint("ada", &["--tool", "catalog.read"]).unwrap();
    for (request, status, reason) in [
        (request("Bearer"), 401, "authorization_scheme"),
        (request("DPoP").delegation(&chain), 400, "credentials_ambiguous"),
    ] {
        let reply = stack.send(&request).unwrap();
        assert_eq!(
            (reply.status, reply.text().contains(reason)),
            (status, true),
            "{}",
            reply.text()
        );
    }
}
