//! DPoP proofs: each check of RFC 9449, section 4.3, has a proof that fails only it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use credence_delegation::{
    Algorithm, Algorithms, BoundToken, Denial, DpopContext, DpopProof, HttpUri, Limits, SigningKey, UnixTime,
    VerifiedDpop,
};
use sha2::{Digest as _, Sha256};

use crate::common::{Claims, NOW, alice, bob, sign};

const TOKEN: &str = "an.access.token";
const URI: &str = "https://api.example.com/v1/orders";

fn header(key: &SigningKey) -> String {
    format!(
        r#"{{"typ":"dpop+jwt","alg":"Ed25519","jwk":{}}}"#,
        key.public().to_jwk()
    )
}

fn claims() -> Claims {
    Claims::new(&[
        ("jti", "\"p1\""),
        ("htm", "\"POST\""),
        ("htu", &format!("\"{URI}\"")),
        ("iat", &NOW.to_string()),
        ("ath", &format!("\"{}\"", URL_SAFE_NO_PAD.encode(Sha256::digest(TOKEN)))),
    ])
}

fn verify(proof: &str) -> Result<VerifiedDpop, Denial> {
    let holder = alice().public().thumbprint();
    verify_with(Some(BoundToken { text: TOKEN, holder }), proof)
}

fn verify_with(access_token: Option<BoundToken<'_>>, proof: &str) -> Result<VerifiedDpop, Denial> {
    let limits = Limits::default();
    let algorithms = Algorithms::new([Algorithm::Ed25519, Algorithm::Es256]);
    DpopProof::parse(proof, &algorithms, &limits, None)?.verify(&DpopContext {
        method: "POST",
        uris: &[HttpUri::parse(URI).unwrap()],
        access_token,
        limits: &limits,
        now: UnixTime(NOW),
        hot_keys: None,
    })
}

fn denied_at(proof: &str) -> &'static str {
    verify(proof).expect_err(proof).step.name()
}

#[test]
fn a_proof_is_for_one_request_with_one_token() {
    let proof = verify(&sign(
        &alice(),
        &header(&alice()),
        &claims().with("nonce", "\"n\"").json(),
    ))
    .unwrap();
    assert_eq!(
        (proof.id(), proof.issued_at(), proof.nonce()),
        ("p1", UnixTime(NOW), Some("n"))
    );
    for uri in [
        "HTTPS://API.example.com:443/v1/orders",
        "https://api.example.com/v1/orders?a=1#b",
    ] {
        let same = claims().with("htu", format!("\"{uri}\""));
        assert!(
            verify(&sign(&alice(), &header(&alice()), &same.json())).is_ok(),
            "{uri}"
        );
    }
}

/// Check 2: a single, well-formed JWT. That there is one header is the caller's check 1.
#[test]
fn check_2_malformed_proofs_are_denied() {
    let proof = sign(&alice(), &header(&alice()), &claims().json());
    for malformed in ["", "x", "a.b", &format!("{proof}.x"), &proof.replacen('.', "..", 1)] {
        assert_eq!(denied_at(malformed), "7a", "{malformed}");
    }
    assert_eq!(denied_at(&sign(&alice(), &header(&alice()), "[]")), "7b");
    assert_eq!(
        denied_at(&sign(&alice(), &header(&alice()), r#"{"jti":"a","jti":"b"}"#)),
        "7b"
    );
}

#[test]
fn check_3_every_claim_is_required() {
    for claim in ["jti", "htm", "htu", "iat", "ath"] {
        let without = sign(&alice(), &header(&alice()), &claims().without(claim).json());
        assert_eq!(denied_at(&without), "7c", "{claim}");
        let of_another_type = sign(&alice(), &header(&alice()), &claims().with(claim, "[]").json());
        assert_eq!(denied_at(&of_another_type), "7c", "{claim}");
    }
}

#[test]
fn checks_4_5_and_7_the_header_names_type_algorithm_and_public_key() {
    let public = alice().public().to_jwk();
    let private = alice().to_private_jwk();
    for header in [
        format!(r#"{{"alg":"Ed25519","jwk":{public}}}"#),
        format!(r#"{{"typ":"JWT","alg":"Ed25519","jwk":{public}}}"#),
        format!(r#"{{"typ":"aat-pop+jwt","alg":"Ed25519","jwk":{public}}}"#),
        format!(r#"{{"typ":"dpop+jwt","jwk":{public}}}"#),
        format!(r#"{{"typ":"dpop+jwt","alg":"none","jwk":{public}}}"#),
        format!(r#"{{"typ":"dpop+jwt","alg":"HS256","jwk":{public}}}"#),
        format!(r#"{{"typ":"dpop+jwt","alg":"ES256","jwk":{public}}}"#),
        format!(r#"{{"typ":"dpop+jwt","alg":"EdDSA","jwk":{public}}}"#),
        format!(r#"{{"typ":"dpop+jwt","alg":"Ed25519","jwk":{}}}"#, *private),
        r#"{"typ":"dpop+jwt","alg":"Ed25519","jwk":{"kty":"oct","k":"AAAA"}}"#.to_owned(),
        r#"{"typ":"dpop+jwt","alg":"Ed25519"}"#.to_owned(),
        r#"{"typ":"dpop+jwt","alg":"Ed25519","kid":"k1","jku":"https://evil.example"}"#.to_owned(),
        format!(r#"{{"typ":"dpop+jwt","alg":"Ed25519","crit":["b64"],"jwk":{public}}}"#),
    ] {
        assert_eq!(denied_at(&sign(&alice(), &header, &claims().json())), "7a", "{header}");
    }
}

#[test]
fn check_6_the_key_in_the_header_signed() {
    assert_eq!(denied_at(&sign(&bob(), &header(&alice()), &claims().json())), "7b");
}

#[test]
fn checks_8_and_9_method_and_uri_are_the_request_s() {
    for method in ["GET", "post", "POST ", ""] {
        let other = claims().with("htm", format!("\"{method}\""));
        let step = denied_at(&sign(&alice(), &header(&alice()), &other.json()));
        assert_eq!(step, if method.is_empty() { "7c" } else { "7e" }, "{method}");
    }
    for uri in [
        "http://api.example.com/v1/orders",
        "https://api.example.com:8443/v1/orders",
        "https://api.example.org/v1/orders",
        "https://api.example.com/v1/orders/",
        "https://api.example.com/v1/x/../orders",
        "https://api.example.com@evil.example/v1/orders",
        "https://evil.example/https://api.example.com/v1/orders",
        "/v1/orders",
    ] {
        let other = claims().with("htu", format!("\"{uri}\""));
        assert_eq!(
            denied_at(&sign(&alice(), &header(&alice()), &other.json())),
            "7e",
            "{uri}"
        );
    }
}

/// Check 10, that the nonce is ours, is the caller's: the proof tells it.
#[test]
fn check_11_a_proof_is_recent() {
    let window = i64::try_from(Limits::default().proof_window).unwrap();
    for (age, is_recent) in [
        (window, true),
        (window + 1, false),
        (-window, true),
        (-window - 1, false),
    ] {
        let aged = sign(
            &alice(),
            &header(&alice()),
            &claims().with("iat", (NOW - age).to_string()).json(),
        );
        assert_eq!(
            verify(&aged).map(|_| ()).map_err(|denial| denial.step.name()),
            if is_recent { Ok(()) } else { Err("7g") }
        );
    }
}

#[test]
fn check_12_token_and_key_belong_together() {
    let of_another_token = URL_SAFE_NO_PAD.encode(Sha256::digest("another.access.token"));
    let other = claims().with("ath", format!("\"{of_another_token}\""));
    assert_eq!(denied_at(&sign(&alice(), &header(&alice()), &other.json())), "7c");
    assert_eq!(denied_at(&sign(&bob(), &header(&bob()), &claims().json())), "7c");
}

/// Section 5: a client that asks for a token has none yet.
#[test]
fn without_an_access_token_any_key_proves_itself_and_ath_is_not_read() {
    for claims in [claims(), claims().without("ath"), claims().with("ath", "7")] {
        let proof = sign(&bob(), &header(&bob()), &claims.json());
        assert_eq!(verify_with(None, &proof).unwrap().id(), "p1");
    }
    let step = |proof: String| verify_with(None, &proof).unwrap_err().step.name();
    assert_eq!(step(sign(&bob(), &header(&alice()), &claims().json())), "7b");
    let (other_method, old) = (claims().with("htm", "\"GET\""), claims().with("iat", "1"));
    assert_eq!(step(sign(&bob(), &header(&bob()), &other_method.json())), "7e");
    assert_eq!(step(sign(&bob(), &header(&bob()), &old.json())), "7g");
}
