//! Accepted keys: other algorithms than Ed25519, issuers that are keys, sets of keys, and several devices.

use std::sync::LazyLock;

use credence_e2e::artefacts::Artefacts;
use credence_e2e::audit::Kind;
use credence_e2e::command::{Credence, Key};
use credence_e2e::forge::{Claims, Forger};
use credence_e2e::grants::{CHARGE, READ};
use credence_e2e::{AUDIENCE, ISSUER, Reply, Request, Stack, StackOptions, waiting};
use tempfile::TempDir;

const PHONES: &str = "https://phones.example";
const CHAINS: &str = "https://chains.example";
const SETS: &str = "https://sets.example";
const OLDER: &str = "https://older.example";
const DEVICES: &str = "https://devices.example";

/// The keys of the issuers above, and of holders of each kind.
struct Keys {
    phones: Key,
    chains: Key,
    /// Named only as an issuer.
    did_ed25519: Key,
    did_p256: Key,
    /// The two keys of [`SETS`], with the `kid`s `one` and `two`.
    set: [Key; 2],
    older: Key,
    /// The two devices of [`DEVICES`]: Ed25519 and ES256.
    laptop: Key,
    phone: Key,
    /// Holders' keys: two ES256, two ES256K.
    p256: [Key; 2],
    secp256k1: [Key; 2],
    _folder: TempDir,
}

impl Keys {
    fn make() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let credence = Credence::new(&Artefacts::from_environment().unwrap().credence, folder.path());
        let key = |algorithm: &str, name: &str| credence.keygen_for(algorithm, name).unwrap();
        Self {
            phones: key("ES256", "phones"),
            chains: key("ES256K", "chains"),
            did_ed25519: key("Ed25519", "did-ed25519"),
            did_p256: key("ES256", "did-p256"),
            set: ["set-one", "set-two"].map(|name| key("Ed25519", name)),
            older: key("Ed25519", "older"),
            laptop: key("Ed25519", "laptop"),
            phone: key("ES256", "phone"),
            p256: ["p256-one", "p256-two"].map(|name| key("ES256", name)),
            secp256k1: ["secp256k1-one", "secp256k1-two"].map(|name| key("ES256K", name)),
            _folder: folder,
        }
    }

    /// The configuration of their trust anchors, which replaces `trust_anchors:`.
    fn trust(&self) -> String {
        let [one, two] = [(&self.set[0], "one"), (&self.set[1], "two")]
            .map(|(key, id)| key.jwk.replacen('{', &format!(r#"{{"kid": "{id}", "#), 1));
        let anchors = [
            format!("{{issuer: {PHONES}, jwk: {}, algorithms: [ES256]}}", self.phones.jwk),
            format!("{{issuer: {CHAINS}, jwk: {}, algorithms: [ES256K]}}", self.chains.jwk),
            format!("{{issuer: '{}'}}", self.did_ed25519.did),
            format!("{{issuer: '{}', algorithms: [ES256]}}", self.did_p256.did),
            format!("{{issuer: {SETS}, jwks: {{keys: [{one}, {two}]}}}}"),
            format!("{{issuer: {OLDER}, jwk: {}, algorithms: [EdDSA]}}", self.older.jwk),
            format!("{{issuer: {DEVICES}, jwk: {}}}", self.laptop.jwk),
            format!("{{issuer: {DEVICES}, jwk: {}, algorithms: [ES256]}}", self.phone.jwk),
        ];
        let lines: String = anchors.map(|anchor| format!("{INDENT}  - {anchor}\n")).concat();
        format!("trust_anchors:\n{lines}")
    }
}

/// The indentation of a field of the plugin's configuration in envoy-config/envoy.yaml.
const INDENT: &str = "                            ";

/// Shared by all tests; it stops with the process.
fn keys() -> &'static Keys {
    static KEYS: LazyLock<Keys> = LazyLock::new(Keys::make);
    &KEYS
}

/// A stack that accepts every algorithm for holders and trusts the issuers above; shared by all tests.
fn stack() -> &'static Stack {
    static STACK: LazyLock<Stack> = LazyLock::new(|| {
        let trust = format!(
            "holder_algorithms: [Ed25519, ES256, ES256K]\n{INDENT}{}",
            keys().trust()
        );
        let stack = Stack::start(&StackOptions::quick().replacing("trust_anchors:\n", &trust)).unwrap();
        stack.wait_until_proofs_count().unwrap();
        stack
    });
    &STACK
}

/// A root for `holder` by `key`, in the name of `issuer` or of the key itself.
fn mint(key: &Key, issuer: Option<&str>, holder: &Key, more: &[&str]) -> String {
    let signed = ["mint", "--key", key.path(), "--holder", holder.path()];
    let granted = [
        "--audience",
        AUDIENCE,
        "--max-depth",
        "1",
        "--tool",
        CHARGE,
        "--tool",
        READ,
    ];
    let named: Vec<&str> = issuer.map_or_else(Vec::new, |issuer| vec!["--issuer", issuer]);
    stack()
        .credence
        .run([&signed[..], &granted, &named, more].concat())
        .unwrap()
}

fn derive(parent: &str, holder: &Key, next: &Key) -> String {
    let handed_on = ["derive", "--parent", parent, "--key", holder.path()];
    let to = ["--holder", next.path(), "--same-tools"];
    stack().credence.run(handed_on.iter().chain(&to)).unwrap()
}

fn book(stack: &Stack, chain: &str) -> Reply {
    stack.send(&Request::get("/v1/catalog/book").delegation(chain)).unwrap()
}

/// Charges with a proof by `holder`.
fn charge(stack: &Stack, chain: &str, holder: &Key) -> Reply {
    let proof = stack.prove_charge(chain, holder, "acme", "1").unwrap();
    let request = Request::post("/v1/accounts/acme/charges?amount=1")
        .delegation(chain)
        .proof(proof);
    stack.send(&request).unwrap()
}

#[track_caller]
fn assert_allowed(reply: &Reply) {
    assert_eq!((reply.status, reply.reason()), (200, None), "{}", reply.text());
}

#[track_caller]
fn assert_denied(reply: &Reply, reason: &str) {
    assert_eq!(
        (reply.status, reply.reason().as_deref()),
        (401, Some(reason)),
        "{}",
        reply.text()
    );
}

/// Waits until Envoy's metrics count a denial by `rule` for this reason.
fn until_counted(stack: &Stack, rule: &str, reason: &str) {
    let counter = format!(r#"credence_decision{{rule="{rule}",decision="deny",reason="{reason}"}}"#);
    waiting::until(&counter, || {
        let page = stack.envoy.admin_page("/stats/prometheus")?.text();
        Ok(page.lines().any(|line| line.starts_with(&counter)).then_some(()))
    })
    .unwrap();
}

#[test]
fn es256_from_the_root_to_the_proof_is_allowed_where_it_is_named() {
    let [holder, next] = &keys().p256;
    let root = mint(&keys().phones, Some(PHONES), holder, &[]);
    assert_allowed(&charge(stack(), &root, holder));
    assert_allowed(&charge(stack(), &derive(&root, holder, next), next));
}

#[test]
fn es256k_from_the_root_to_the_proof_is_allowed_where_it_is_named() {
    let [holder, next] = &keys().secp256k1;
    let root = mint(&keys().chains, Some(CHAINS), holder, &[]);
    assert_allowed(&charge(stack(), &root, holder));
    assert_allowed(&charge(stack(), &derive(&root, holder, next), next));
}

#[test]
fn a_chain_may_go_through_keys_of_every_kind() {
    let (holder, next) = (&keys().secp256k1[0], &keys().p256[0]);
    let chain = derive(&mint(&keys().did_ed25519, None, holder, &[]), holder, next);
    assert_allowed(&charge(stack(), &chain, next));
}

#[test]
fn an_algorithm_that_is_not_listed_is_denied() {
    // Anchors as above, without holder_algorithms.
    let strict = Stack::start(&StackOptions::quick().replacing("trust_anchors:\n", &keys().trust())).unwrap();
    strict.wait_until_proofs_count().unwrap();
    for [holder, next] in [&keys().p256, &keys().secp256k1] {
        let root = mint(&keys().phones, Some(PHONES), holder, &[]);
        assert_allowed(&book(&strict, &root));
        assert_denied(&charge(&strict, &root, holder), "proof_invalid");
        assert_denied(&book(&strict, &derive(&root, holder, next)), "delegation_invalid");
    }
    until_counted(&strict, "charge", "proof_algorithm_not_allowed");
    until_counted(&strict, "catalog", "algorithm_not_allowed");
}

#[test]
fn a_root_must_be_signed_as_its_own_issuers_anchor_says() {
    let holder = &stack().agent;
    // The key and its algorithm are valid for other issuers, not for this one.
    let forged = mint(&keys().phones, Some(ISSUER), holder, &["--subject", "alice"]);
    assert_denied(&book(stack(), &forged), "delegation_invalid");
    until_counted(stack(), "catalog", "algorithm_not_allowed");
}

#[test]
fn a_did_key_issuer_needs_no_key_in_the_configuration() {
    let holder = &stack().agent;
    for key in [&keys().did_ed25519, &keys().did_p256] {
        let chain = mint(key, None, holder, &[]);
        let reply = book(stack(), &chain);
        assert_allowed(&reply);
        let received = reply.received().unwrap();
        assert_eq!(received.header("x-delegation-issuer"), Some(key.did.as_str()));
    }
    // A did:key that is not listed is not trusted.
    assert_denied(
        &book(stack(), &mint(&keys().laptop, None, holder, &[])),
        "delegation_invalid",
    );
    until_counted(stack(), "catalog", "issuer_unknown");
}

/// A root of [`SETS`] by one of its keys, with this `kid` in its header or none.
fn of_the_set(key: &Key, key_id: Option<&str>) -> String {
    let holder = Forger::from_seed([1; 32]);
    let claims = Claims::root(SETS, "alice", &holder, r#"{"catalog.read":{}}"#).unwrap();
    let key_id = key_id.map_or_else(String::new, |id| format!(r#","kid":"{id}""#));
    let header = format!(r#"{{"alg":"Ed25519","typ":"aat+jwt"{key_id}}}"#);
    let key = Forger::from_file(&key.file).unwrap();
    key.token_under(&header, &claims).unwrap()
}

#[test]
fn a_key_id_selects_among_the_keys_of_a_set() {
    let [one, two] = &keys().set;
    for (key, key_id) in [(one, "one"), (two, "two")] {
        assert_allowed(&book(stack(), &of_the_set(key, Some(key_id))));
        // Without one, each key is tried.
        assert_allowed(&book(stack(), &of_the_set(key, None)));
    }
    assert_denied(&book(stack(), &of_the_set(one, Some("two"))), "delegation_invalid");
    until_counted(stack(), "catalog", "signature_invalid");
}

#[test]
fn a_key_id_that_no_key_of_the_set_has_is_denied_and_named_in_metrics_and_evidence() {
    let token = of_the_set(&keys().set[0], Some("three"));
    assert_denied(&book(stack(), &token), "delegation_invalid");
    until_counted(stack(), "catalog", "key_unknown");
    waiting::until("the denial to be recorded", || {
        let is_it = |kind: &Kind| matches!(kind, Kind::Aggregate { reason, .. } if reason == "key_unknown");
        let records = stack().records()?;
        Ok(records.iter().any(|record| is_it(&record.kind)).then_some(()))
    })
    .unwrap();
}

#[test]
fn the_older_name_of_ed25519_counts_only_where_it_is_named() {
    let holder = Forger::from_seed([1; 32]);
    let token = |issuer: &str, key: &Key, algorithm: &str| {
        let claims = Claims::root(issuer, "alice", &holder, r#"{"catalog.read":{}}"#).unwrap();
        let header = format!(r#"{{"alg":"{algorithm}","typ":"aat+jwt"}}"#);
        let key = Forger::from_file(&key.file).unwrap();
        key.token_under(&header, &claims).unwrap()
    };
    let (named, not_named) = (&keys().older, &stack().issuer);
    assert_allowed(&book(stack(), &token(OLDER, named, "EdDSA")));
    assert_denied(&book(stack(), &token(OLDER, named, "Ed25519")), "delegation_invalid");
    assert_denied(&book(stack(), &token(ISSUER, not_named, "EdDSA")), "delegation_invalid");
    assert_allowed(&book(stack(), &token(ISSUER, not_named, "Ed25519")));
}

#[test]
fn revoking_one_device_of_a_principal_leaves_the_others() {
    let (laptop, phone) = (&keys().laptop, &keys().phone);
    let [by_laptop, by_phone] = [laptop, phone].map(|device| mint(device, Some(DEVICES), &stack().agent, &[]));
    assert_allowed(&book(stack(), &by_laptop));
    assert_allowed(&book(stack(), &by_phone));
    stack().revoke(&["key", "--key", phone.path()]).unwrap();
    waiting::until("the revocation", || {
        Ok((book(stack(), &by_phone).status != 200).then_some(()))
    })
    .unwrap();
    assert_denied(&book(stack(), &by_phone), "revoked_key");
    assert_allowed(&book(stack(), &by_laptop));
}
