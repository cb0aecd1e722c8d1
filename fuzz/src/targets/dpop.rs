//! A DPoP proof for a fixed access token and request. An input is the proof itself, or a [`Script`] whose first line says
//! what to sign.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use credence_delegation::json::Json;
use credence_delegation::{
    BoundToken, Cause, Denial, DpopContext, DpopProof, HotKeys, HttpUri, Limits, PublicKey, Step, UnixTime,
    VerifiedDpop, inspect,
};
use sha2::{Digest as _, Sha256};

use super::cast::{NOW, Person, World};
use super::script::{self, Script, quoted};
use super::{Effort, Outcome};

/// Verifies the proof.
pub fn run(input: &[u8], effort: Effort) -> Outcome {
    let Ok(text) = std::str::from_utf8(input) else {
        return Outcome::Refused;
    };
    let script = Script::read(text);
    let proof = match script.signed.first() {
        Some(line) if text.contains('{') => line.signed_under(HOLDER, &header(HOLDER), defaults()),
        _ => text.to_owned(),
    };
    check_size_limit(&proof);
    let verified = match verify(&proof, &Request::default()) {
        Ok(verified) => verified,
        Err(denial) => {
            let hot_keys = HotKeys::new(4);
            let again = verify_with(&proof, &Request::default(), Some(&hot_keys));
            assert_eq!(again.unwrap_err(), denial, "the same with a cache of keys");
            return Outcome::Refused;
        }
    };
    check_parts(&proof, &verified);
    if effort.makes(0, 2, input) {
        check_requests(&proof, &verified);
    }
    if effort.makes(1, 2, input) {
        check_forgeries(&proof);
    }
    Outcome::Accepted
}

/// The holder of the access token.
const HOLDER: Person = Person(2);
const TOKEN: &str = "an.access.token";
const URI: &str = "https://api.example.com/v1/orders";

/// The request of the proof.
struct Request {
    method: &'static str,
    uris: Vec<HttpUri>,
    token: &'static str,
    holder: Person,
    now: i64,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            method: "POST",
            uris: vec![uri("https://other.example/"), uri(URI)],
            token: TOKEN,
            holder: HOLDER,
            now: NOW,
        }
    }
}

fn uri(text: &str) -> HttpUri {
    HttpUri::parse(text).expect("a URI")
}

fn verify(proof: &str, request: &Request) -> Result<VerifiedDpop, Denial> {
    verify_with(proof, request, None)
}

fn verify_with(proof: &str, request: &Request, hot_keys: Option<&HotKeys>) -> Result<VerifiedDpop, Denial> {
    let limits = Limits::default();
    DpopProof::parse(proof, &World::new().holder_algorithms, &limits, hot_keys)?.verify(&DpopContext {
        method: request.method,
        uris: &request.uris,
        access_token: Some(BoundToken {
            text: request.token,
            holder: request.holder.key().public().thumbprint(),
        }),
        limits: &limits,
        now: UnixTime(request.now),
        hot_keys,
    })
}

fn header(holder: Person) -> String {
    let key = holder.key();
    let (algorithm, jwk) = (key.algorithm(), key.public().to_jwk());
    format!(r#"{{"typ":"dpop+jwt","alg":"{algorithm}","jwk":{jwk}}}"#)
}

fn hash(token: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(token))
}

/// The claims of a valid proof.
fn defaults() -> Vec<(&'static str, String)> {
    vec![
        ("jti", quoted("proof")),
        ("htm", quoted("POST")),
        ("htu", quoted(URI)),
        ("iat", NOW.to_string()),
        ("ath", quoted(&hash(TOKEN))),
    ]
}

fn check_size_limit(proof: &str) {
    let with_limit = |limit| {
        let limits = Limits {
            token_bytes: limit,
            ..Limits::default()
        };
        DpopProof::parse(proof, &World::new().holder_algorithms, &limits, None).map(|proof| proof.key().clone())
    };
    assert_eq!(with_limit(proof.len()), with_limit(usize::MAX));
    if let Some(less) = proof.len().checked_sub(1) {
        let denial = with_limit(less).expect_err("over the limit");
        assert!(matches!(denial.cause, Cause::TooLarge { .. }), "{denial}");
    }
}

/// RFC 9449, section 4.2: what a proof has.
fn check_parts(proof: &str, verified: &VerifiedDpop) {
    let contents = inspect::contents(proof).expect("a JWS, since it was verified");
    let header = Json::parse(&contents.header).expect("strict JSON, since it was verified");
    let header = header.as_object().expect("an object, since it was verified");
    assert_eq!(header.text("typ"), Some("dpop+jwt"));
    // The second is the deprecated name of the first.
    assert!(matches!(header.text("alg"), Some("Ed25519" | "EdDSA")));
    assert_eq!(header.member("crit"), None, "no extension is implemented");
    let jwk = header.member("jwk").expect("a key");
    assert_eq!(PublicKey::from_jwk(jwk), Ok(HOLDER.key().public()), "the token's");
    assert!(
        jwk.as_object().is_some_and(|jwk| jwk.member("d").is_none()),
        "a public one"
    );

    let claims = Json::parse(&contents.claims).expect("strict JSON, since it was verified");
    let claims = claims.as_object().expect("an object, since it was verified");
    assert_eq!(Some(verified.id()), claims.text("jti"));
    assert_eq!(Some(verified.issued_at().0), claims.integer("iat"));
    assert_eq!(verified.nonce(), claims.text("nonce"));
    assert_eq!(claims.text("htm"), Some("POST"));
    assert_eq!(claims.text("ath"), Some(hash(TOKEN).as_str()));
    let stated = claims.text("htu").and_then(HttpUri::parse);
    assert!(stated.is_some_and(|stated| Request::default().uris.contains(&stated)));
    assert!(verified.issued_at().0.abs_diff(NOW) <= Limits::default().proof_window);
}

/// It is not valid for another request, token, holder or time.
fn check_requests(proof: &str, verified: &VerifiedDpop) {
    let step = |request: Request| verify(proof, &request).map_err(|denial| denial.step).err();
    let (window, iat) = (Limits::default().proof_window as i64, verified.issued_at().0);
    let at = |now| Request {
        now,
        ..Request::default()
    };
    assert_eq!(step(at(iat + window)), None);
    assert_eq!(step(at(iat - window)), None);
    assert_eq!(step(at(iat + window + 1)), Some(Step::S7g));
    assert_eq!(step(at(iat - window - 1)), Some(Step::S7g));
    let other_method = Request {
        method: "post",
        ..Request::default()
    };
    let other_uri = Request {
        uris: vec![uri("https://third.example/")],
        ..Request::default()
    };
    let other_token = Request {
        token: "another.access.token",
        ..Request::default()
    };
    let other_holder = Request {
        holder: Person(1),
        ..Request::default()
    };
    assert_eq!(step(other_method), Some(Step::S7e));
    assert_eq!(step(other_uri), Some(Step::S7e));
    assert_eq!(step(other_token), Some(Step::S7c));
    assert_eq!(step(other_holder), Some(Step::S7c));
}

/// The same claims signed by another key, or as another type, are denied.
fn check_forgeries(proof: &str) {
    let contents = inspect::contents(proof).expect("a JWS");
    let claims = String::from_utf8(contents.claims).expect("JSON");
    let own = String::from_utf8(contents.header).expect("JSON");
    let denied = |proof: &str| verify(proof, &Request::default()).expect_err("forged").step;
    assert_eq!(denied(&script::sign(Person(1), Some(&own), "", &claims)), Step::S7b);
    assert_eq!(
        denied(&script::sign(Person(1), Some(&header(Person(1))), "", &claims)),
        Step::S7c
    );
    assert_eq!(denied(&script::sign(HOLDER, None, "dpop+jwt", &claims)), Step::S7a);
    let of_a_delegation = header(HOLDER).replace("dpop+jwt", "aat-pop+jwt");
    assert_eq!(
        denied(&script::sign(HOLDER, Some(&of_a_delegation), "", &claims)),
        Step::S7a
    );
    let (input, _) = proof.rsplit_once('.').expect("a JWS");
    assert_eq!(denied(&format!("{input}.")), Step::S7b);
}
