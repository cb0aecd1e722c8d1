//! Wycheproof's signature vectors: Ed25519, and ECDSA with signatures of r and s (IEEE P1363, as in JOSE).

use credence_delegation::json::{Json, Object};
use credence_delegation::{KeyError, PublicKey};

use crate::data::{Downloaded, array, base64url, hex, integer, object, string};
use crate::report::Suite;

/// Our rule is `verify_strict` with canonical keys. All signatures that Wycheproof calls valid pass it.
pub(crate) fn ed25519() -> Suite {
    run("Wycheproof Ed25519", "ed25519_test.json", None, |key| {
        let x = base64url(hex(string(key, "pk")));
        format!(r#"{{"kty":"OKP","crv":"Ed25519","x":"{x}"}}"#)
    })
}

pub(crate) fn p256() -> Suite {
    let file = "ecdsa_secp256r1_sha256_p1363_test.json";
    run("Wycheproof ECDSA P-256 (P1363)", file, Some(P256_HALF_ORDER), |key| {
        elliptic("P-256", key)
    })
}

pub(crate) fn secp256k1() -> Suite {
    let file = "ecdsa_secp256k1_sha256_p1363_test.json";
    run(
        "Wycheproof ECDSA secp256k1 (P1363)",
        file,
        Some(SECP256K1_HALF_ORDER),
        |key| elliptic("secp256k1", key),
    )
}

fn run(name: &str, file: &str, half_order: Option<&str>, jwk: fn(&Object<'_>) -> String) -> Suite {
    let vectors = match Downloaded::wycheproof() {
        Ok(vectors) => vectors,
        Err(reason) => return Suite::skipped(name, reason),
    };
    let text = vectors.file(&format!("testvectors_v1/{file}"));
    let json = Json::parse(&text).unwrap();
    let mut suite = Suite::new(name);
    let mut cases = 0;
    for group in array(object(&json), "testGroups").iter().map(object) {
        let key = PublicKey::from_jwk_text(jwk(object(group.member("publicKey").unwrap())).as_bytes());
        // If the file has the key as a JWK too, both must be the same key.
        if let Some(published) = group.member("publicKeyJwk") {
            assert_eq!(PublicKey::from_jwk(published), key, "{published:?}");
        }
        for test in array(group, "tests").iter().map(object) {
            cases += 1;
            one(&mut suite, &key, half_order, test);
        }
    }
    assert_eq!(
        cases,
        integer(object(&json), "numberOfTests"),
        "every case must have run"
    );
    suite
}

fn one(suite: &mut Suite, key: &Result<PublicKey, KeyError>, half_order: Option<&str>, test: &Object<'_>) {
    let id = format!("tcId {} ({})", integer(test, "tcId"), string(test, "comment"));
    let (message, signature) = (hex(string(test, "msg")), hex(string(test, "sig")));
    let verifies = |key: &PublicKey| key.verifies(&message, &signature);
    let got = match key {
        Ok(key) => {
            let mut prepared = key.clone();
            prepared.prepare();
            assert_eq!(verifies(key), verifies(&prepared), "{id}");
            if verifies(key) { "valid" } else { "invalid" }
        }
        Err(_) => "invalid",
    };
    // Wycheproof also has the result "acceptable". These files have no such case. If one appears, it fails here and
    // needs a decision.
    let passed = suite.case(id, string(test, "result"), got);
    if let (true, Err(error)) = (passed, key) {
        suite.remark(format!("the key itself is refused: {error}"));
    }
    let high = |half_order: &str| signature.len() == 64 && signature[32..] > hex(half_order)[..];
    if passed && got == "valid" && half_order.is_some_and(high) {
        suite.remark("s is above half of the group order, and accepted: RFC 7518, section 3.4, asks for no low s");
    }
}

/// The JWK of an uncompressed point (SEC 1, section 2.3.3): 4, then both coordinates.
fn elliptic(curve: &str, key: &Object<'_>) -> String {
    let point = hex(string(key, "uncompressed"));
    assert_eq!((point.len(), point[0]), (65, 4));
    let (x, y) = (base64url(&point[1..33]), base64url(&point[33..]));
    format!(r#"{{"kty":"EC","crv":"{curve}","x":"{x}","y":"{y}"}}"#)
}

/// Half of the group order of P-256 (SEC 2, section 2.4.2), rounded down.
const P256_HALF_ORDER: &str = "7fffffff800000007fffffffffffffffde737d56d38bcf4279dce5617e3192a8";

/// Half of the group order of secp256k1 (SEC 2, section 2.4.1), rounded down.
const SECP256K1_HALF_ORDER: &str = "7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0";
