//! Security events: an event of the identity provider about a user takes effect once.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
    RsaPublicKeyComponents,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};

use super::harness::{ISSUER, Place, Server, TOKEN};
use super::provider::{PROVISIONER, Reply, TRANSMITTER, principal, realm, request, settings, updated};

pub(crate) const SESSION_REVOKED: &str = "https://schemas.openid.net/secevent/caep/event-type/session-revoked";
const ACCOUNT_DISABLED: &str = "https://schemas.openid.net/secevent/risc/event-type/account-disabled";
const ACCOUNT_ENABLED: &str = "https://schemas.openid.net/secevent/risc/event-type/account-enabled";
/// The bit of `disabled_by` for security events.
const SECURITY_EVENT: u32 = 8;

/// A transmitter with a key of each kind.
pub(crate) struct Signer {
    ed25519: Ed25519KeyPair,
    p256: EcdsaKeyPair,
    rsa: &'static RsaKeyPair,
}

impl Signer {
    pub(crate) fn new() -> Self {
        let random = SystemRandom::new();
        let ed25519 = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
        let p256 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        Self {
            ed25519: Ed25519KeyPair::from_pkcs8(ed25519.as_ref()).unwrap(),
            p256: EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, p256.as_ref(), &random).unwrap(),
            rsa: rsa_key(),
        }
    }

    fn jwks(&self) -> Value {
        let point = self.p256.public_key().as_ref();
        let rsa = RsaPublicKeyComponents::<Vec<u8>>::from(self.rsa.public());
        json!({"keys": [
            {"kty": "OKP", "crv": "Ed25519", "kid": "ed", "use": "sig", "x": base64(self.ed25519.public_key())},
            {"kty": "EC", "crv": "P-256", "kid": "ec", "alg": "ES256", "x": base64(&point[1..33]), "y": base64(&point[33..])},
            {"kty": "RSA", "kid": "rsa", "n": base64(&rsa.n), "e": base64(&rsa.e)},
            {"kty": "EC", "crv": "P-384", "kid": "foreign", "x": "AA", "y": "AA"},
        ]})
    }

    fn sign(&self, header: &Value, claims: &str) -> String {
        let input = format!("{}.{}", base64(header.to_string()), base64(claims));
        let signature = match header["alg"].as_str() {
            Some("RS256") => {
                let mut signature = vec![0; self.rsa.public().modulus_len()];
                self.rsa
                    .sign(
                        &RSA_PKCS1_SHA256,
                        &SystemRandom::new(),
                        input.as_bytes(),
                        &mut signature,
                    )
                    .unwrap();
                signature
            }
            Some("ES256") => self
                .p256
                .sign(&SystemRandom::new(), input.as_bytes())
                .unwrap()
                .as_ref()
                .to_vec(),
            _ => self.ed25519.sign(input.as_bytes()).as_ref().to_vec(),
        };
        format!("{input}.{}", base64(signature))
    }

    pub(crate) fn token(&self, claims: &Value) -> String {
        self.sign(&header("EdDSA", "ed"), &claims.to_string())
    }
}

/// ring makes no RSA keys. One for all tests, since making it takes a while.
fn rsa_key() -> &'static RsaKeyPair {
    static KEY: OnceLock<RsaKeyPair> = OnceLock::new();
    KEY.get_or_init(|| {
        let made = Command::new("openssl")
            .args(["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"])
            .output()
            .unwrap();
        let key = PrivatePkcs8KeyDer::from_pem_slice(&made.stdout).unwrap();
        RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()).unwrap()
    })
}

fn header(algorithm: &str, key: &str) -> Value {
    json!({"alg": algorithm, "kid": key, "typ": "secevent+jwt"})
}

fn base64(bytes: impl AsRef<[u8]>) -> String {
    use base64::Engine;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

/// The claims of a token about alice.
pub(crate) fn claims(id: &str, event: &str) -> Value {
    json!({
        "iss": "https://okta.example.com", "aud": ["https://credence.example.com"], "jti": id, "iat": now(),
        "sub_id": {"format": "iss_sub", "iss": "https://okta.example.com", "sub": "alice"},
        "events": {event: {"event_timestamp": now()}},
    })
}

pub(crate) fn transmitter(place: &Place, rest: Value) -> Value {
    let mut transmitter = json!({
        "name": "okta", "credentials": ["okta"], "issuer": "https://okta.example.com",
        "audience": "https://credence.example.com", "principal_issuer": ISSUER,
        "jwks": {"file": beside(place, "jwks.json")},
    });
    transmitter
        .as_object_mut()
        .unwrap()
        .extend(rest.as_object().unwrap().clone());
    json!({"security_events": [transmitter]})
}

/// A control plane whose transmitter has these keys in a file.
async fn start(place: &Place, signer: &Signer, rest: Value) -> Server {
    publish(place, signer);
    place
        .start_with(|config| config.settings = settings(transmitter(place, rest)))
        .await
}

pub(crate) fn publish(place: &Place, signer: &Signer) {
    std::fs::write(beside(place, "jwks.json"), signer.jwks().to_string()).unwrap();
}

/// A file beside the data folder.
pub(crate) fn beside(place: &Place, name: &str) -> PathBuf {
    place.path("x").parent().unwrap().with_file_name(name)
}

pub(crate) async fn push(server: &Server, token: &str) -> Reply {
    let authorization = format!("Bearer {TRANSMITTER}");
    let headers = [
        ("authorization", authorization.as_str()),
        ("content-type", "application/secevent+jwt"),
        ("accept", "application/json"),
    ];
    request(server, "POST", "/v1/security-events", &headers, token.to_owned()).await
}

async fn refused(server: &Server, token: &str, err: &str) -> String {
    let reply = push(server, token).await.expect(400).json();
    assert_eq!(reply["err"], err, "{reply}");
    reply["description"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn an_event_of_each_kind_does_what_it_says_at_every_filter() {
    let place = Place::new();
    let signer = Signer::new();
    let server = start(&place, &signer, json!({})).await;
    let (mut watcher, ..) = server.watch_from_snapshot().await;
    for (event, disabled_by) in [
        ("caep/event-type/session-revoked", 0),
        ("caep/event-type/credential-change", 0),
        ("risc/event-type/sessions-revoked", 0),
        ("risc/event-type/credential-compromise", 0),
        ("risc/event-type/account-disabled", SECURITY_EVENT),
        ("risc/event-type/account-enabled", 0),
        ("risc/event-type/account-purged", SECURITY_EVENT),
    ] {
        let token = signer.token(&claims(event, &format!("https://schemas.openid.net/secevent/{event}")));
        let taken = push(&server, &token).await.expect(202);
        assert_eq!(taken.text, "", "{event}");
        let state = updated(&mut watcher, "alice")
            .await
            .unwrap_or_else(|| panic!("{event}"));
        assert_eq!(state.disabled_by, disabled_by, "{event}");
    }
    for event in [
        "https://schemas.openid.net/secevent/ssf/event-type/verification",
        "https://schemas.openid.net/secevent/caep/event-type/device-compliance-change",
        "https://example.com/something-else",
    ] {
        push(&server, &signer.token(&claims(event, event))).await.expect(202);
        assert_eq!(updated(&mut watcher, "alice").await, None, "{event}");
    }
}

#[tokio::test]
async fn all_three_algorithms_are_good_and_only_where_they_are_allowed() {
    let place = Place::new();
    let signer = Signer::new();
    let server = start(&place, &signer, json!({})).await;
    for (algorithm, key) in [("RS256", "rsa"), ("ES256", "ec"), ("EdDSA", "ed"), ("Ed25519", "ed")] {
        let token = signer.sign(&header(algorithm, key), &claims(algorithm, SESSION_REVOKED).to_string());
        push(&server, &token).await.expect(202);
        let mut nameless = header(algorithm, key);
        nameless.as_object_mut().unwrap().remove("kid");
        let token = signer.sign(
            &nameless,
            &claims(&format!("{algorithm} again"), SESSION_REVOKED).to_string(),
        );
        push(&server, &token).await.expect(202);
    }
    let place = Place::new();
    let server = start(&place, &signer, json!({"algorithms": ["ES256"]})).await;
    refused(
        &server,
        &signer.token(&claims("a", SESSION_REVOKED)),
        "authentication_failed",
    )
    .await;
}

#[tokio::test]
async fn a_forged_token_does_nothing() {
    let place = Place::new();
    let signer = Signer::new();
    let server = start(&place, &signer, json!({})).await;
    let text = claims("a", SESSION_REVOKED).to_string();
    let good = signer.sign(&header("EdDSA", "ed"), &text);
    let (input, signature) = good.rsplit_once('.').unwrap();
    let other_claims = base64(claims("b", SESSION_REVOKED).to_string());
    let with = |name: &str, value: Value| {
        let mut header = header("EdDSA", "ed");
        header[name] = value;
        signer.sign(&header, &text)
    };
    for (what, token, err) in [
        ("not a token", "hello".to_owned(), "invalid_request"),
        ("empty", String::new(), "invalid_request"),
        ("four parts", format!("{good}.x"), "invalid_request"),
        ("padding", format!("{good}="), "invalid_request"),
        ("no signature", format!("{input}."), "authentication_failed"),
        (
            "other claims",
            format!("{}.{other_claims}.{signature}", input.split('.').next().unwrap()),
            "authentication_failed",
        ),
        (
            "another transmitter's",
            Signer::new().token(&claims("a", SESSION_REVOKED)),
            "authentication_failed",
        ),
        (
            "alg none",
            format!("{}.{}.", base64(header("none", "ed").to_string()), base64(&text)),
            "authentication_failed",
        ),
        ("alg HS256", with("alg", json!("HS256")), "authentication_failed"),
        ("alg PS256", with("alg", json!("PS256")), "authentication_failed"),
        ("a key of another kind", with("alg", json!("RS256")), "invalid_key"),
        ("a key that is not there", with("kid", json!("other")), "invalid_key"),
        ("crit", with("crit", json!(["exp"])), "invalid_request"),
        ("typ of another token", with("typ", json!("JWT")), "invalid_request"),
        ("no typ", with("typ", json!(null)), "invalid_request"),
        (
            "a member twice",
            signer.sign(&header("EdDSA", "ed"), &text.replacen('{', r#"{"jti":"x","#, 1)),
            "invalid_request",
        ),
    ] {
        refused(&server, &token, err).await;
        assert_eq!(principal(&server, "alice").await, None, "{what}");
    }
    push(&server, &good).await.expect(202);
}

#[tokio::test]
async fn claims_that_are_not_for_us_or_not_for_now_are_refused_by_name() {
    let place = Place::new();
    let signer = Signer::new();
    let server = start(&place, &signer, json!({"max_age_s": 3600})).await;
    for (claim, value, err) in [
        ("iss", json!("https://evil.example.com"), "invalid_issuer"),
        ("iss", Value::Null, "invalid_request"),
        ("aud", json!("https://other.example.com"), "invalid_audience"),
        ("aud", json!([]), "invalid_audience"),
        ("aud", json!(["https://credence.example.com", 7]), "invalid_audience"),
        ("jti", Value::Null, "invalid_request"),
        ("jti", json!(""), "invalid_request"),
        ("jti", json!("x".repeat(257)), "invalid_request"),
        ("iat", Value::Null, "invalid_request"),
        ("iat", json!("now"), "invalid_request"),
        ("iat", json!(now() + 120), "invalid_request"),
        ("iat", json!(now() - 3700), "invalid_request"),
        ("exp", json!(now() - 120), "invalid_request"),
        ("nbf", json!(now() + 120), "invalid_request"),
        ("events", Value::Null, "invalid_request"),
        ("events", json!({}), "invalid_request"),
        ("events", json!({SESSION_REVOKED: true}), "invalid_request"),
    ] {
        let mut token = claims("a", SESSION_REVOKED);
        token[claim] = value.clone();
        if value.is_null() {
            token.as_object_mut().unwrap().remove(claim);
        }
        let description = refused(&server, &signer.token(&token), err).await;
        let named = description.contains(claim) || ["iat", "exp"].contains(&claim);
        assert!(named, "{claim}: {description}");
    }
    assert_eq!(principal(&server, "alice").await, None);
}

#[tokio::test]
async fn subjects_in_every_form_name_the_principal() {
    let user = |identifier: Value| json!({"format": "complex", "user": identifier, "session": {"format": "opaque", "id": "s"}});
    let iss_sub = json!({"format": "iss_sub", "iss": "https://okta.example.com", "sub": "alice"});
    let email = json!({"format": "email", "email": "alice"});
    for (kind, place_of_it, identifier) in [
        ("iss_sub", "sub_id", iss_sub.clone()),
        ("iss_sub", "sub_id", user(iss_sub.clone())),
        ("iss_sub", "subject", iss_sub.clone()),
        ("iss_sub", "subject", json!({"user": iss_sub})),
        (
            "iss_sub",
            "subject",
            json!({"subject_type": "iss-sub", "iss": ISSUER, "sub": "alice"}),
        ),
        ("iss_sub", "sub", json!("alice")),
        ("email", "sub_id", email.clone()),
        ("email", "subject", json!({"subject_type": "email", "email": "alice"})),
        (
            "email",
            "sub_id",
            json!({"format": "aliases", "identifiers": [iss_sub, email]}),
        ),
        ("opaque", "sub_id", json!({"format": "opaque", "id": "alice"})),
        ("account", "sub_id", json!({"format": "account", "uri": "acct:alice"})),
    ] {
        let place = Place::new();
        let signer = Signer::new();
        let server = start(&place, &signer, json!({"subject": kind})).await;
        let mut token = claims("a", ACCOUNT_DISABLED);
        token.as_object_mut().unwrap().remove("sub_id");
        match place_of_it {
            "subject" => token["events"][ACCOUNT_DISABLED]["subject"] = identifier.clone(),
            claim => token[claim] = identifier.clone(),
        }
        push(&server, &signer.token(&token)).await.expect(202);
        let state = principal(&server, "alice").await;
        assert!(
            state.is_some_and(|state| state.disabled),
            "{kind}: {place_of_it}: {identifier}"
        );
    }
}

#[tokio::test]
async fn a_subject_that_names_no_principal_is_refused() {
    let place = Place::new();
    let signer = Signer::new();
    let server = start(&place, &signer, json!({})).await;
    for (identifier, named) in [
        (json!(null), "sub_id is not an object"),
        (json!({"iss": "https://okta.example.com", "sub": "alice"}), "no format"),
        (json!({"format": "email", "email": "alice"}), "email"),
        (
            json!({"format": "iss_sub", "iss": "https://okta.example.com"}),
            "lacks sub",
        ),
        (
            json!({"format": "iss_sub", "iss": "https://evil.example.com", "sub": "alice"}),
            "evil",
        ),
        (
            json!({"format": "complex", "session": {"format": "opaque", "id": "s"}}),
            "names no user",
        ),
        (
            json!({"format": "aliases", "identifiers": [{"format": "opaque", "id": "a"}]}),
            "aliases",
        ),
        (
            json!({"format": "iss_sub", "iss": "https://okta.example.com", "sub": "x".repeat(257)}),
            "not a valid principal",
        ),
    ] {
        let mut token = claims("a", SESSION_REVOKED);
        token["sub_id"] = identifier;
        let description = refused(&server, &signer.token(&token), "invalid_request").await;
        assert!(description.contains(named), "{description}");
    }
    let mut token = claims("a", SESSION_REVOKED);
    token["events"][SESSION_REVOKED]["subject"] =
        json!({"format": "iss_sub", "iss": "https://okta.example.com", "sub": "bob"});
    let description = refused(&server, &signer.token(&token), "invalid_request").await;
    assert!(description.contains("different users"), "{description}");
    token.as_object_mut().unwrap().remove("sub_id");
    token["events"][SESSION_REVOKED] = json!({});
    let description = refused(&server, &signer.token(&token), "invalid_request").await;
    assert!(description.contains("the event has no subject"), "{description}");
    assert_eq!(principal(&server, "alice").await, None);
}

#[tokio::test]
async fn a_token_counts_once_even_over_a_crash_and_its_jti_cannot_be_reused() {
    let place = Place::new();
    let signer = Signer::new();
    let server = start(&place, &signer, json!({})).await;
    let token = signer.token(&claims("a", SESSION_REVOKED));
    push(&server, &token).await.expect(202);
    let once = principal(&server, "alice").await.unwrap();
    // The transmitter may have missed the answer (RFC 8935 section 2.2). A repetition has no further effect.
    push(&server, &token).await.expect(202);
    assert_eq!(principal(&server, "alice").await.unwrap(), once);
    drop(server);

    let server = start(&place, &signer, json!({})).await;
    push(&server, &token).await.expect(202);
    assert_eq!(principal(&server, "alice").await.unwrap(), once);
    let description = refused(
        &server,
        &signer.token(&claims("a", ACCOUNT_DISABLED)),
        "invalid_request",
    )
    .await;
    assert!(description.contains("jti"), "{description}");
    assert_eq!(principal(&server, "alice").await.unwrap(), once);
    let metrics = server.get("/metrics", &[]).await.text;
    for line in [
        r#"credence_security_events_total{transmitter="okta",outcome="repeated"} 1"#,
        r#"credence_security_events_total{transmitter="okta",outcome="invalid_request"} 1"#,
        "credence_security_event_ids 1",
        r#"credence_jwks_reads_total{transmitter="okta",outcome="read"} 1"#,
    ] {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
}

#[tokio::test]
async fn the_same_token_many_times_at_once_counts_once() {
    let place = Place::new();
    let signer = Signer::new();
    let server = start(&place, &signer, json!({})).await;
    let (mut watcher, ..) = server.watch_from_snapshot().await;
    let token = signer.token(&claims("a", SESSION_REVOKED));
    let (one, two, three) = tokio::join!(push(&server, &token), push(&server, &token), push(&server, &token));
    assert_eq!([one.status, two.status, three.status], [202; 3]);
    assert_eq!(watcher.ping(1).await.0.len(), 1);
}

#[tokio::test]
async fn a_token_that_could_not_be_processed_can_be_sent_again() {
    let place = Place::new();
    let signer = Signer::new();
    let server = start(&place, &signer, json!({})).await;
    let token = signer.token(&claims("a", ACCOUNT_DISABLED));
    // While the folder is elsewhere, nothing is acknowledged.
    let aside = place.path("").with_file_name("aside");
    std::fs::rename(place.path(""), &aside).unwrap();
    push(&server, &token).await.expect(503);
    drop(server);
    std::fs::rename(&aside, place.path("")).unwrap();
    let server = start(&place, &signer, json!({})).await;
    push(&server, &token).await.expect(202);
    assert!(principal(&server, "alice").await.unwrap().disabled);
}

#[tokio::test]
async fn an_event_is_answered_though_a_filter_applies_nothing() {
    let place = Place::new();
    let signer = Signer::new();
    let server = start(&place, &signer, json!({})).await;
    let filter = server.filter().await;
    let token = signer.token(&claims("a", ACCOUNT_DISABLED));
    let answered = tokio::time::timeout(Duration::from_secs(2), push(&server, &token)).await;
    answered.expect("it waits for the filter").expect(202);
    let path = "/v1/revocations/1?wait=committed";
    assert_eq!(server.get_with(path, &[]).await.status, 202);
    drop(filter);
}

#[tokio::test]
async fn with_a_full_memory_no_event_is_accepted() {
    let place = Place::new();
    let signer = Signer::new();
    publish(&place, &signer);
    let server = place
        .start_with(|config| {
            config.settings = settings(transmitter(&place, json!({})));
            config.identity.event_ids = 1;
        })
        .await;
    let first = signer.token(&claims("a", SESSION_REVOKED));
    push(&server, &first).await.expect(202);
    let full = push(&server, &signer.token(&claims("b", SESSION_REVOKED)))
        .await
        .expect(503);
    assert!(!full.header("retry-after").is_empty());
    // Remembered events are still recognised.
    push(&server, &first).await.expect(202);
}

#[tokio::test]
async fn an_old_enable_that_was_held_up_does_not_undo_a_newer_disable() {
    let place = Place::new();
    let signer = Signer::new();
    let server = start(&place, &signer, json!({})).await;
    push(&server, &signer.token(&claims("disable", ACCOUNT_DISABLED)))
        .await
        .expect(202);
    let mut late = claims("enable", ACCOUNT_ENABLED);
    late["iat"] = json!(now() - 30);
    push(&server, &signer.token(&late)).await.expect(202);
    assert!(principal(&server, "alice").await.unwrap().disabled);
    push(&server, &signer.token(&claims("enable again", ACCOUNT_ENABLED)))
        .await
        .expect(202);
    assert!(!principal(&server, "alice").await.unwrap().disabled);
}

#[tokio::test]
async fn events_lift_what_events_disabled_and_nothing_else() {
    let place = Place::new();
    let signer = Signer::new();
    let server = start(&place, &signer, json!({})).await;
    let disable = json!({"principal": {"issuer": ISSUER, "subject": "alice"}, "action": "disable"});
    server.revoke(disable).await;
    push(&server, &signer.token(&claims("a", ACCOUNT_ENABLED)))
        .await
        .expect(202);
    assert!(principal(&server, "alice").await.unwrap().disabled);
}

#[tokio::test]
async fn new_keys_in_the_file_are_found_when_they_are_needed() {
    let place = Place::new();
    let (old, new) = (Signer::new(), Signer::new());
    let server = start(&place, &old, json!({})).await;
    let rename = |signer: &Signer| signer.jwks().to_string().replace(r#""ed""#, r#""new""#);
    std::fs::write(beside(&place, "jwks.json"), format!("{} ", rename(&new))).unwrap();
    let token = new.sign(&header("EdDSA", "new"), &claims("a", SESSION_REVOKED).to_string());
    push(&server, &token).await.expect(202);
    // A file that breaks later leaves the last valid keys in use.
    std::fs::write(beside(&place, "jwks.json"), "{").unwrap();
    refused(
        &server,
        &old.sign(&header("EdDSA", "older"), &claims("b", SESSION_REVOKED).to_string()),
        "invalid_key",
    )
    .await;
    let token = new.sign(&header("EdDSA", "new"), &claims("c", SESSION_REVOKED).to_string());
    push(&server, &token).await.expect(202);
}

#[tokio::test]
async fn a_file_without_keys_is_an_error_at_the_start() {
    let place = Place::new();
    publish(&place, &Signer::new());
    std::fs::write(beside(&place, "jwks.json"), r#"{"keys": []}"#).unwrap();
    let Err(error) = place
        .try_start(|config| {
            config.settings = settings(transmitter(&place, json!({})));
        })
        .await
    else {
        panic!("it started without keys")
    };
    assert!(error.to_string().contains("okta"), "{error}");
}

/// Serves a document over HTTP or HTTPS, and counts the requests.
struct Keys {
    url: String,
    document: Arc<Mutex<String>>,
    asked: Arc<AtomicUsize>,
}

impl Keys {
    /// `answer` writes the HTTP response with the document to a connection.
    fn serve(scheme: &str, mut answer: impl FnMut(TcpStream, &str) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let keys = Self {
            url: format!("{scheme}://{}/keys", listener.local_addr().unwrap()),
            document: Arc::default(),
            asked: Arc::default(),
        };
        let (document, asked) = (Arc::clone(&keys.document), Arc::clone(&keys.asked));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                asked.fetch_add(1, Ordering::Release);
                let text = document.lock().unwrap().clone();
                answer(stream.unwrap(), &text);
            }
        });
        keys
    }

    fn publish(&self, signer: &Signer) {
        *self.document.lock().unwrap() = ok(&signer.jwks().to_string());
    }
}

fn ok(body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")
}

fn exchange(mut stream: impl Read + Write, answer: &str) {
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
        request.push(byte[0]);
    }
    // The client may have closed the connection.
    let _ = stream.write_all(answer.as_bytes());
    let _ = stream.flush();
}

async fn start_with_keys_at(place: &Place, jwks: Value) -> Server {
    place
        .start_with(|config| config.settings = settings(transmitter(place, json!({"jwks": jwks}))))
        .await
}

/// Repeats the request until the keys have been fetched.
async fn push_once_ready(server: &Server, token: &str) -> Reply {
    loop {
        let reply = push(server, token).await;
        if reply.status != 503 {
            return reply;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn until_a_fetch_has_failed(server: &Server) {
    let failed = r#"credence_jwks_reads_total{transmitter="okta",outcome="failed"}"#;
    while !server.get("/metrics", &[]).await.text.contains(failed) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn keys_at_a_url_are_fetched_again_for_a_missing_key_but_not_each_time() {
    let place = Place::new();
    let keys = Keys::serve("http", exchange);
    let (old, new) = (Signer::new(), Signer::new());
    keys.publish(&old);
    let server = start_with_keys_at(&place, json!({"url": keys.url})).await;
    push_once_ready(&server, &old.token(&claims("a", SESSION_REVOKED)))
        .await
        .expect(202);
    let text = new.jwks().to_string().replace(r#""ed""#, r#""new""#);
    *keys.document.lock().unwrap() = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{text}", text.len());
    let before = keys.asked.load(Ordering::Acquire);
    let token = new.sign(&header("EdDSA", "new"), &claims("b", SESSION_REVOKED).to_string());
    push(&server, &token).await.expect(202);
    for id in ["c", "d", "e"] {
        let unknown = new.sign(&header("EdDSA", id), &claims(id, SESSION_REVOKED).to_string());
        refused(&server, &unknown, "invalid_key").await;
    }
    assert_eq!(keys.asked.load(Ordering::Acquire), before + 1);
}

#[tokio::test]
async fn a_redirect_or_an_invalid_document_is_not_used_for_the_keys() {
    let signer = Signer::new();
    let elsewhere = Keys::serve("http", exchange);
    elsewhere.publish(&signer);
    let long = "x".repeat(300 << 10);
    for answer in [
        format!(
            "HTTP/1.1 302 Found\r\nlocation: {}\r\ncontent-length: 0\r\n\r\n",
            elsewhere.url
        ),
        "HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n".to_owned(),
        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{long}", long.len()),
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}".to_owned(),
    ] {
        let place = Place::new();
        let keys = Keys::serve("http", exchange);
        (*keys.document.lock().unwrap()).clone_from(&answer);
        let server = start_with_keys_at(&place, json!({"url": keys.url})).await;
        until_a_fetch_has_failed(&server).await;
        push(&server, &signer.token(&claims("a", SESSION_REVOKED)))
            .await
            .expect(503);
    }
    assert_eq!(elsewhere.asked.load(Ordering::Acquire), 0);
}

#[tokio::test]
async fn over_https_only_a_server_with_a_trusted_certificate_is_used() {
    let place = Place::new();
    let (certificate, key) = (beside(&place, "tls.pem"), beside(&place, "tls.key"));
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
        ])
        .args(["-subj", "/CN=keys", "-addext", "subjectAltName=IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE", "-outform", "PEM"])
        .arg("-out")
        .arg(&certificate)
        .arg("-keyout")
        .arg(&key)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let keys = {
        let chain = vec![CertificateDer::from_pem_file(&certificate).unwrap()];
        let key = PrivateKeyDer::from_pem_file(&key).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let config = Arc::new(config);
        Keys::serve("https", move |stream, answer| {
            let session = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            exchange(rustls::StreamOwned::new(session, stream), answer);
        })
    };
    let signer = Signer::new();
    keys.publish(&signer);
    let token = signer.token(&claims("a", SESSION_REVOKED));
    let server = start_with_keys_at(&place, json!({"url": keys.url, "ca": certificate})).await;
    push_once_ready(&server, &token).await.expect(202);
    drop(server);

    // The system's CAs have not signed its certificate.
    let other = Place::new();
    let server = start_with_keys_at(&other, json!({"url": keys.url})).await;
    until_a_fetch_has_failed(&server).await;
    push(&server, &token).await.expect(503);
}

#[tokio::test]
async fn only_a_transmitters_own_credential_opens_it() {
    let place = Place::new();
    let signer = Signer::new();
    publish(&place, &signer);
    let mut both = transmitter(&place, json!({}));
    both.as_object_mut()
        .unwrap()
        .extend(realm("userName").as_object().unwrap().clone());
    let server = place.start_with(|config| config.settings = settings(both)).await;
    let token = signer.token(&claims("a", SESSION_REVOKED));
    for (credential, content_type, status, err) in [
        ("unknown", "application/secevent+jwt", 401, ""),
        (PROVISIONER, "application/secevent+jwt", 403, ""),
        (TOKEN, "application/secevent+jwt", 400, "access_denied"),
        (TRANSMITTER, "application/jwt", 400, "invalid_request"),
        (TRANSMITTER, "application/secevent+jwt", 202, ""),
    ] {
        let authorization = format!("Bearer {credential}");
        let headers = [
            ("authorization", authorization.as_str()),
            ("content-type", content_type),
        ];
        let reply = request(&server, "POST", "/v1/security-events", &headers, token.clone())
            .await
            .expect(status);
        if !err.is_empty() {
            assert_eq!(reply.json()["err"], err);
        }
    }
    let big = "x".repeat(70_000);
    push(&server, &big).await.expect(413);
}

/// The effects of two transmitters cannot be told apart.
#[tokio::test]
async fn transmitters_that_share_their_principals_enable_none() {
    let place = Place::new();
    let signer = Signer::new();
    publish(&place, &signer);
    let mut sharing = transmitter(&place, json!({}));
    let mut other = sharing["security_events"][0].clone();
    (other["name"], other["credentials"]) = (json!("siem"), json!(["siem"]));
    sharing["security_events"].as_array_mut().unwrap().push(other);
    let server = place.start_with(|config| config.settings = settings(sharing)).await;
    for (id, event) in [("1", ACCOUNT_DISABLED), ("2", ACCOUNT_ENABLED)] {
        push(&server, &signer.token(&claims(id, event))).await.expect(202);
    }
    assert!(principal(&server, "alice").await.unwrap().disabled);
    let metrics = server.get("/metrics", &[]).await.text;
    assert!(metrics.contains("outcome=\"withheld\"} 1"), "{metrics}");
}
