//! A proof of possession, under a fixed chain. An input is the proof itself, or a [`Script`] whose first line says what
//! to sign, with the invocations.

use std::sync::LazyLock;

use credence_delegation::json::Json;
use credence_delegation::mint::{self, Invocation};
use credence_delegation::{
    Arguments, Cause, Denial, Limits, NoncePolicy, Proof, ProofContext, Step, UnixTime, VerifiedChain, VerifiedProof,
    canonicalize, inspect,
};

use super::cast::{AUDIENCE, NOW, Person, World};
use super::script::{self, Script, quoted};
use super::{Effort, Outcome};

/// Verifies the proof.
pub fn run(input: &[u8], effort: Effort) -> Outcome {
    let Ok(text) = std::str::from_utf8(input) else {
        return Outcome::Refused;
    };
    let script = Script::read(text);
    let proof = match script.signed.first() {
        Some(line) if text.contains('{') => line.signed_by(HOLDER, "aat-pop+jwt", defaults()),
        _ => text.to_owned(),
    };
    check_minted(&script);
    check_size_limit(&proof);
    let verified = match verify(&proof, &Setting::default()) {
        Ok(verified) => verified,
        Err(denial) => {
            assert_eq!(
                verify(&proof, &Setting::default()).unwrap_err(),
                denial,
                "the same answer every time"
            );
            return Outcome::Refused;
        }
    };

    script::check_header(&proof, "aat-pop+jwt");
    check_against_claims(&proof, &verified, &script);
    if effort.makes(0, 2, input) {
        check_settings(&proof, &verified);
    }
    if effort.makes(1, 2, input) {
        check_forgeries(&proof);
    }
    Outcome::Accepted
}

/// The leaf's holder.
const HOLDER: Person = Person(2);

/// The differences between two verifications.
struct Setting<'a> {
    chain: &'a VerifiedChain,
    audience: Vec<String>,
    nonce: NoncePolicy<'a>,
    now: i64,
    limits: Limits,
}

impl Default for Setting<'_> {
    fn default() -> Self {
        Self {
            chain: &CHAINS.leaf.1,
            audience: vec![AUDIENCE.to_owned()],
            nonce: NoncePolicy::NotRequired,
            now: NOW,
            limits: Limits::default(),
        }
    }
}

/// The chains of proofs: each with its last token.
struct Chains {
    leaf: (String, VerifiedChain),
    /// Of the same holder, with another token.
    sibling: (String, VerifiedChain),
}

static CHAINS: LazyLock<Chains> = LazyLock::new(|| {
    let chain = |script: &str| {
        let tokens = Script::read(script).chain();
        let verified = World::new()
            .verify(tokens.iter().map(String::as_str))
            .expect("a valid chain");
        (tokens.last().expect("two tokens").clone(), verified)
    };
    Chains {
        leaf: chain("@b{}\n@c{\"jti\":\"leaf\"}"),
        sibling: chain("@b{}\n@c{\"jti\":\"sibling\"}"),
    }
});

fn verify(proof: &str, setting: &Setting<'_>) -> Result<VerifiedProof, Denial> {
    let world = World::new();
    Proof::parse(proof, &setting.limits)?.verify(
        setting.chain,
        &ProofContext {
            holder_algorithms: &world.holder_algorithms,
            audience: &setting.audience,
            require_audience: false,
            nonce: setting.nonce,
            limits: &setting.limits,
            now: UnixTime(setting.now),
            hot_keys: None,
        },
    )
}

/// The claims of a valid proof.
fn defaults() -> Vec<(&'static str, String)> {
    let hash = inspect::contents(&CHAINS.leaf.0).expect("a JWS").hash;
    vec![
        ("jti", quoted("proof")),
        ("iat", NOW.to_string()),
        ("aat_id", quoted("leaf")),
        ("aat_hash", quoted(&hash)),
        ("aat_tool", quoted("pay")),
        ("aat_aud", quoted(AUDIENCE)),
        ("hta", r#"{"account":"a1","amount":5}"#.to_owned()),
    ]
}

/// The crate accepts the proofs that it makes, for exactly the invocation that they name.
fn check_minted(script: &Script<'_>) {
    for (tool, arguments) in script.invocations.iter().take(2) {
        let invocation = Invocation {
            id: "minted".to_owned(),
            issued_at: UnixTime(NOW),
            tool: (*tool).to_owned(),
            arguments: arguments.clone(),
            audience: Some(AUDIENCE.to_owned()),
            nonce: None,
        };
        let Ok(proof) = mint::prove(&CHAINS.leaf.0, &invocation, HOLDER.key(), &Limits::default()) else {
            continue;
        };
        let verified = verify(&proof, &Setting::default()).expect("what was proven");
        assert_eq!(verified.covers(&CHAINS.leaf.1, tool, arguments), Ok(()));
        assert!(verified.covers(&CHAINS.leaf.1, "another tool", arguments).is_err());
    }
}

fn check_size_limit(proof: &str) {
    let with_limit = |limit| {
        let limits = Limits {
            token_bytes: limit,
            ..Limits::default()
        };
        Proof::parse(proof, &limits).map(|_| ())
    };
    assert_eq!(with_limit(proof.len()), with_limit(usize::MAX));
    if let Some(less) = proof.len().checked_sub(1) {
        let denial = with_limit(less).expect_err("over the limit");
        assert!(matches!(denial.cause, Cause::TooLarge { .. }), "{denial}");
    }
}

/// It is valid for the invocation that its claims state, and for no other.
fn check_against_claims(proof: &str, verified: &VerifiedProof, script: &Script<'_>) {
    let contents = inspect::contents(proof).expect("a JWS, since it was verified");
    let json = Json::parse(&contents.claims).expect("strict JSON, since it was verified");
    let claims = json.as_object().expect("an object, since it was verified");
    let string = |name| claims.member(name).and_then(Json::as_str);
    let hta = claims.member("hta").expect("the arguments");
    assert_eq!(Some(verified.id()), string("jti"));
    assert_eq!(
        Some(verified.issued_at().0),
        claims.member("iat").and_then(Json::as_integer)
    );
    assert!(verified.issued_at().0.abs_diff(NOW) <= Limits::default().proof_window);
    assert_eq!(string("aat_id"), Some("leaf"));
    if let Some(audience) = claims.member("aat_aud") {
        let names = audience.as_array().unwrap_or(std::slice::from_ref(audience));
        assert!(names.iter().any(|name| name.as_str() == Some(AUDIENCE)), "for us");
    }

    let tool = string("aat_tool").expect("a tool");
    let stated = hta.as_object().map(Arguments::from_json).expect("an object");
    let stated = stated.expect("numbers that keep their digits, since it was verified");
    assert_eq!(verified.covers(&CHAINS.leaf.1, tool, &stated), Ok(()));
    let another_token = verified.covers(&CHAINS.sibling.1, tool, &stated);
    assert_eq!(another_token.unwrap_err().step, Step::S7c);
    let mut more = stated.clone();
    if more.insert("one more".to_owned(), "1".into()) {
        let other_arguments = verified.covers(&CHAINS.leaf.1, tool, &more);
        assert_eq!(other_arguments.unwrap_err().step, Step::S7f);
    }
    for (invoked, arguments) in &script.invocations {
        let same = *invoked == tool && Some(arguments.canonical()) == canonicalize(hta);
        assert_eq!(verified.covers(&CHAINS.leaf.1, invoked, arguments).is_ok(), same);
    }
    assert_eq!(
        verified
            .covers(&CHAINS.leaf.1, &format!("{tool} "), &Arguments::new())
            .unwrap_err()
            .step,
        Step::S7e
    );
}

/// It is not valid for another token, audience, nonce or time.
fn check_settings(proof: &str, verified: &VerifiedProof) {
    let step = |setting: Setting<'_>| verify(proof, &setting).map_err(|denial| denial.step).err();
    let (window, iat) = (Limits::default().proof_window as i64, verified.issued_at().0);
    let at = |now| Setting {
        now,
        ..Setting::default()
    };
    assert_eq!(step(at(iat + window)), None);
    assert_eq!(step(at(iat - window)), None);
    assert_eq!(step(at(iat + window + 1)), Some(Step::S7g));
    assert_eq!(step(at(iat - window - 1)), Some(Step::S7g));
    assert_eq!(
        step(Setting {
            chain: &CHAINS.sibling.1,
            ..Setting::default()
        }),
        Some(Step::S7c)
    );
    assert_eq!(
        step(Setting {
            nonce: NoncePolicy::OneOf(&[]),
            ..Setting::default()
        }),
        Some(Step::S7h)
    );
}

/// The same claims signed by another key, or as another type, are denied.
fn check_forgeries(proof: &str) {
    let contents = inspect::contents(proof).expect("a JWS");
    let claims = String::from_utf8(contents.claims).expect("JSON");
    let header = String::from_utf8(contents.header).expect("JSON");
    let denied = |proof: &str| verify(proof, &Setting::default()).expect_err("forged").step;
    assert_eq!(denied(&script::sign(Person(1), Some(&header), "", &claims)), Step::S7b);
    assert_eq!(denied(&script::sign(HOLDER, None, "aat+jwt", &claims)), Step::S7a);
    let (input, _) = proof.rsplit_once('.').expect("a JWS");
    assert_eq!(denied(&format!("{input}.")), Step::S7b);
    assert_eq!(denied(&CHAINS.leaf.0), Step::S7a);
}
