//! Forgeries that similar systems have accepted, each refused by its step in the draft's section 8.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use credence_delegation::{
    Algorithm, Algorithms, Cause, Chain, Denial, KeyError, Limits, PublicKey, Revocation, SigningKey, Statement,
    StatementContext, StatementError, TrustAnchor, TrustAnchors, UnixTime, VerificationContext, VerifiedChain, mint,
};
use curve25519_dalek::Scalar;
use curve25519_dalek::constants::{ED25519_BASEPOINT_POINT, EIGHT_TORSION};
use curve25519_dalek::edwards::CompressedEdwardsY;
use curve25519_dalek::scalar::clamp_integer;
use sha2::{Digest, Sha512};

use crate::common::*;

const HEADER: &str = r#"{"alg":"Ed25519","typ":"aat+jwt"}"#;

#[test]
fn a_capability_changed_after_signing() {
    let token = root().signed(&anchor());
    let wider = root().tools(r#"{"pay":{"amount":{"constraint_type":"wildcard"}}}"#);
    assert_eq!(denied_at(&[&with_payload(&token, &wider.json())]), "3b");
    let leaf = child(&token);
    let wider = leaf.clone().tools(r#"{"pay":{},"read":{}}"#);
    let leaf = with_payload(&leaf.signed(&alice()), &wider.json());
    assert_eq!(denied_at(&[&token, &leaf]), "4b");
}

#[test]
fn a_key_taken_from_the_tokens_own_header() {
    let jwk = mallory().public().to_jwk();
    let thumbprint = mallory().public().thumbprint();
    for member in [
        format!(r#""jwk":{jwk}"#),
        format!(r#""jwk":{jwk},"kid":"{thumbprint}""#),
        r#""jku":"https://evil.example/jwks.json""#.to_owned(),
        format!(r#""x5c":["{}"]"#, "A".repeat(200)),
        r#""x5u":"https://evil.example/chain.pem""#.to_owned(),
    ] {
        let header = format!(r#"{{"alg":"Ed25519","typ":"aat+jwt",{member}}}"#);
        assert_eq!(
            denied_at(&[&sign(&mallory(), &header, &root().json())]),
            "3b",
            "{header}"
        );
        let root = root().signed(&anchor());
        let leaf = sign(&mallory(), &header, &child(&root).json());
        assert_eq!(denied_at(&[&root, &leaf]), "4b", "{header}");
    }
}

#[test]
fn an_algorithm_that_is_another_or_none() {
    // CVE-2015-9235 and similar ones: `none` in any spelling, and the public key as an HMAC secret.
    for alg in ["none", "None", "nOnE", "", "HS256", "RS256", "ES256", "ES256K", "EdDSA"] {
        let header = format!(r#"{{"alg":"{alg}","typ":"aat+jwt"}}"#);
        let signed = sign(&anchor(), &header, &root().json());
        assert_eq!(denied_at(&[&signed]), "3a", "{alg}");
        let (input, _) = signed.rsplit_once('.').unwrap();
        assert_eq!(denied_at(&[&format!("{input}.")]), "3a", "{alg} without a signature");
        let root = root().signed(&anchor());
        let leaf = sign(&alice(), &header, &child(&root).json());
        assert_eq!(denied_at(&[&root, &leaf]), "4a", "{alg}");
    }
}

#[test]
fn an_algorithm_that_is_listed_for_a_key_of_another_kind() {
    let es256 = TrustAnchor {
        algorithms: Algorithms::new(Algorithm::ALL),
        ..an_anchor(anchor().public())
    };
    let context_anchors = TrustAnchors::new([es256]);
    for alg in ["ES256", "ES256K"] {
        let token = sign(
            &anchor(),
            &format!(r#"{{"alg":"{alg}","typ":"aat+jwt"}}"#),
            &root().json(),
        );
        let denial = verify_with(&[&token], &context_anchors).unwrap_err();
        assert_eq!((denial.step.name(), denial.cause), ("3a", Cause::AlgorithmNotAllowed));
    }
}

#[test]
fn an_id_that_occurs_twice_in_a_chain() {
    let root = root().signed(&anchor());
    let twin = child(&root).with("jti", "\"root\"").signed(&alice());
    assert_eq!(denied_at(&[&root, &twin]), "2c");
    let escaped = child(&root).with("jti", r#""r\u006fot""#).signed(&alice());
    assert_eq!(denied_at(&[&root, &escaped]), "2c");
}

#[test]
fn a_proof_that_is_replayed_for_want_of_a_time_or_an_id() {
    let token = root().signed(&anchor());
    let chain = verify(&[&token]).unwrap();
    let args = r#"{"account":"a1","amount":5}"#;
    let check = |claims: Claims| {
        let compact = sign(&alice(), r#"{"alg":"Ed25519","typ":"aat-pop+jwt"}"#, &claims.json());
        prove(&chain, &compact, "pay", &arguments(args)).map_err(|denial| denial.step.name())
    };
    let good = || proof(&token, "root", "pay", args);
    assert_eq!(check(good()), Ok(()));
    for absent in ["iat", "jti"] {
        assert_eq!(check(good().without(absent)), Err("7c"), "without {absent}");
    }
    assert_eq!(check(good().with("jti", "\"\"")), Err("7c"));
    for iat in [NOW - 31, NOW + 31, 0, i64::MAX, i64::MIN] {
        assert_eq!(check(good().with("iat", iat.to_string())), Err("7g"), "{iat}");
    }
    for iat in ["1e400", "1.8e9.5", "null", "\"1800000000\""] {
        assert!(check(good().with("iat", iat)).is_err(), "{iat}");
    }
}

#[test]
fn a_chain_whose_revocation_epoch_is_not_under_the_signature() {
    let token = root().with("rev_epoch", "7").signed(&anchor());
    assert_eq!(verify(&[&token]).unwrap().root_epoch(), Some(7));
    for epoch in [root().with("rev_epoch", "8"), root()] {
        assert_eq!(denied_at(&[&with_payload(&token, &epoch.json())]), "3b");
    }
    // A derived token cannot change its root's epoch or subject.
    let moved = child(&token).with("rev_epoch", "8").with("sub", "\"eve\"");
    let chain = verify(&[&token, &moved.signed(&alice())]).unwrap();
    assert_eq!((chain.root_epoch(), &chain.principal().subject), (Some(7), &None));
    // Neither can the header, or any other unsigned part.
    let header = r#"{"alg":"Ed25519","typ":"aat+jwt","rev_epoch":9,"sub":"eve"}"#;
    let chain = verify(&[&sign(&anchor(), header, &root().with("rev_epoch", "7").json())]).unwrap();
    assert_eq!((chain.root_epoch(), &chain.principal().subject), (Some(7), &None));
}

#[test]
fn a_revocation_that_is_not_signed() {
    let limits = Limits::default();
    let order = mint::RevocationOrder {
        id: "r1".into(),
        issuer: ISSUER.into(),
        subject: None,
        audience: audience(),
        issued_at: UnixTime(NOW),
        expires_at: UnixTime(NOW + 60),
        revocation: Revocation::Epoch(7),
    };
    let statement = mint::revocation(&order, &anchor(), &limits).unwrap();
    let (input, _) = statement.rsplit_once('.').unwrap();
    let payload = String::from_utf8(payload(&statement)).unwrap();
    let unsigned = sign(&anchor(), r#"{"alg":"none","typ":"revocation+jwt"}"#, &payload);
    let by_mallory = mint::revocation(&order, &mallory(), &limits).unwrap();
    let by_the_holder = mint::revocation(&order, &alice(), &limits).unwrap();
    let refused = |compact: &str| {
        Statement::parse(compact, &limits)?.verify(&StatementContext {
            anchors: &anchors(),
            audience: &audience(),
            limits: &limits,
            now: UnixTime(NOW),
        })
    };
    assert!(refused(&statement).is_ok());
    assert_eq!(
        refused(&format!("{input}.")),
        Err(StatementError::Untrusted(Cause::SignatureInvalid))
    );
    assert_eq!(
        refused(&unsigned),
        Err(StatementError::Unreadable(Cause::AlgorithmNotAllowed))
    );
    for compact in [by_mallory, by_the_holder] {
        assert_eq!(
            refused(&compact),
            Err(StatementError::Untrusted(Cause::SignatureInvalid))
        );
    }
}

#[test]
fn a_parent_swapped_under_a_child() {
    let wide = root().with("jti", "\"wide\"").tools(r#"{"pay":{},"read":{}}"#);
    let narrow = root().tools(TOOLS);
    let (wide, narrow) = (wide.signed(&anchor()), narrow.signed(&anchor()));
    let under_narrow = child(&narrow).signed(&alice());
    assert!(verify(&[&narrow, &under_narrow]).is_ok());
    assert_eq!(denied_at(&[&wide, &under_narrow]), "4q");
    // The parent's hash is of its signing input. The same input with another signature is the same token, not another
    // parent.
    let by_mallory = with_signature(&narrow, &mallory().sign(signing_input(&narrow).as_bytes()));
    assert_eq!(denied_at(&[&by_mallory, &under_narrow]), "3b");
    let orphan = child(&narrow).without("par_hash").signed(&alice());
    assert_eq!(denied_at(&[&narrow, &orphan]), "4b5");
}

#[test]
fn a_wildcard_that_is_widened_down_the_chain() {
    let grant = |amount: &str| format!(r#"{{"pay":{{"amount":{amount}}}}}"#);
    let wildcard = r#"{"constraint_type":"wildcard"}"#;
    for bound in [
        r#"{"constraint_type":"range","max":100}"#,
        r#"{"constraint_type":"one_of","values":[1,2]}"#,
        r#"{"constraint_type":"exact","value":1}"#,
        r#"{"constraint_type":"not_one_of","excluded":[1]}"#,
        r#"{"constraint_type":"any","constraints":[{"constraint_type":"exact","value":1}]}"#,
    ] {
        let root = root().tools(&grant(bound)).signed(&anchor());
        for wider in [
            wildcard.to_owned(),
            format!(r#"{{"constraint_type":"any","constraints":[{bound},{wildcard}]}}"#),
            format!(r#"{{"constraint_type":"all","constraints":[{wildcard}]}}"#),
        ] {
            let leaf = child(&root).tools(&grant(&wider)).signed(&alice());
            assert_eq!(denied_at(&[&root, &leaf]), "4p4", "{bound} to {wider}");
        }
        let unbound = child(&root).tools(r#"{"pay":{}}"#).signed(&alice());
        assert!(verify(&[&root, &unbound]).is_err(), "{bound} left out");
        let star = child(&root).tools(r#"{"*":{}}"#).signed(&alice());
        assert!(verify(&[&root, &star]).is_err(), "a tool called * is a tool like any");
    }
}

#[test]
fn an_argument_that_a_duplicate_member_hides() {
    let token = root().signed(&anchor());
    let chain = verify(&[&token]).unwrap();
    for text in [
        r#"{"account":"a1","amount":5,"amount":5000}"#,
        r#"{"account":"a1","amount":5,"am\u006funt":5000}"#,
    ] {
        let json = credence_delegation::json::Json::parse(text.as_bytes());
        assert!(json.is_err(), "{text}");
        let compact = sign(
            &alice(),
            r#"{"alg":"Ed25519","typ":"aat-pop+jwt"}"#,
            &proof(&token, "root", "pay", text).json(),
        );
        let denial = prove(&chain, &compact, "pay", &arguments(r#"{"account":"a1","amount":5}"#));
        assert_eq!(denial.unwrap_err().step.name(), "7b", "{text}");
    }
    let twice = r#"{"pay":{"amount":{"constraint_type":"range","max":1},"amount":{"constraint_type":"wildcard"}}}"#;
    assert_eq!(denied_at(&[&root().tools(twice).signed(&anchor())]), "3b");
    let twice = r#"{"pay":{"amount":{"constraint_type":"range","max":1,"max":100}}}"#;
    assert_eq!(denied_at(&[&root().tools(twice).signed(&anchor())]), "3b");
    let twice = r#"{"pay":{"amount":{"constraint_type":"range","max":1}},"pay":{}}"#;
    assert_eq!(denied_at(&[&root().tools(twice).signed(&anchor())]), "3b");
}

#[test]
fn a_number_that_doubles_cannot_keep() {
    // 2^53+1 is 2^53 to every JSON library that reads doubles: two parties would see two numbers (draft section 3.4).
    for number in ["9007199254740993", "-9007199254740993", "1e400", "9007199254740993.0"] {
        let exact = format!(r#"{{"pay":{{"amount":{{"constraint_type":"exact","value":{number}}}}}}}"#);
        assert_eq!(denied_at(&[&root().tools(&exact).signed(&anchor())]), "3n", "{number}");
        let json = format!(r#"{{"amount":{number}}}"#);
        let json = credence_delegation::json::Json::parse(json.as_bytes()).unwrap();
        assert!(
            credence_delegation::Arguments::from_json(json.as_object().unwrap()).is_err(),
            "{number}"
        );
    }
    // The last one that doubles keep, with its neighbour.
    let exact = r#"{"pay":{"amount":{"constraint_type":"exact","value":9007199254740991}}}"#;
    let token = root().tools(exact).signed(&anchor());
    let chain = verify(&[&token]).unwrap();
    assert!(
        chain
            .permits("pay", &arguments(r#"{"amount":9007199254740991}"#))
            .is_ok()
    );
    assert!(
        chain
            .permits("pay", &arguments(r#"{"amount":9007199254740990}"#))
            .is_err()
    );
}

#[test]
fn a_key_of_small_order_that_anything_verifies_under() {
    for point in EIGHT_TORSION {
        let encoded = point.compress().to_bytes();
        assert!(PublicKey::from_ed25519(&encoded).is_err(), "{encoded:02x?}");
        let jwk = format!(
            r#"{{"kty":"OKP","crv":"Ed25519","x":"{}"}}"#,
            URL_SAFE_NO_PAD.encode(encoded)
        );
        let held = root().with("cnf", format!(r#"{{"jwk":{jwk}}}"#)).signed(&anchor());
        assert_eq!(denied_at(&[&held]), "3l", "{jwk}");
    }
}

#[test]
fn a_key_that_is_encoded_in_another_way() {
    // y + p for every y below 19 that is the coordinate of a point. RFC 8032, section 5.1.3, rejects them, and lax
    // decoders reduce them.
    let mut tried = 0;
    for y in 0u8..19 {
        for sign_bit in [0, 0x80] {
            let mut encoded = [0xff; 32];
            encoded[0] = 0xed + y;
            encoded[31] = 0x7f | sign_bit;
            if CompressedEdwardsY(encoded).decompress().is_some() {
                tried += 1;
                assert!(PublicKey::from_ed25519(&encoded).is_err(), "{encoded:02x?}");
            }
        }
    }
    assert!(tried >= 4, "{tried}");
    // x = 0 with its sign bit set is another such encoding of the identity.
    let mut negative_zero = [0; 32];
    negative_zero[0] = 1;
    negative_zero[31] = 0x80;
    assert!(PublicKey::from_ed25519(&negative_zero).is_err());
}

#[test]
fn a_signature_whose_point_is_encoded_in_another_way() {
    // The identity as p + 1: a verifier that decodes R, instead of comparing its bytes, accepts this.
    let mut identity = [0xff; 32];
    identity[0] = 0xee;
    identity[31] = 0x7f;
    let (signed, signature) = signed_with(&identity, Scalar::ZERO);
    assert!(
        lax(&signed, &signature),
        "it is a forgery only if some verifier accepts it"
    );
    assert_eq!(denied_at(&[&with_signature(&format!("{signed}."), &signature)]), "3b");
    let mut canonical = [0; 32];
    canonical[0] = 1;
    let (signed, signature) = signed_with(&canonical, Scalar::ZERO);
    assert!(lax(&signed, &signature));
    assert_eq!(
        denied_at(&[&with_signature(&format!("{signed}."), &signature)]),
        "3b",
        "and the identity itself is of small order"
    );
}

#[test]
fn a_signature_whose_point_has_a_part_of_small_order() {
    // R + T for a T of small order. Verifiers that clear the cofactor accept it; the others refuse it.
    let nonce = Scalar::from(7u8);
    let honest = ED25519_BASEPOINT_POINT * nonce;
    for torsion in EIGHT_TORSION {
        let (signed, signature) = signed_with(&(honest + torsion).compress().to_bytes(), nonce);
        assert!(
            lax(&signed, &signature),
            "it is a forgery only if some verifier accepts it"
        );
        let chain = verify(&[&with_signature(&format!("{signed}."), &signature)]);
        assert_eq!(
            chain.is_ok(),
            torsion == EIGHT_TORSION[0],
            "the first is no part at all"
        );
    }
}

#[test]
fn a_signature_whose_s_is_not_below_the_group_order() {
    let token = root().signed(&anchor());
    let mut signature = signature(&token);
    let mut carry = 0u16;
    for (byte, order) in signature[32..].iter_mut().zip(GROUP_ORDER) {
        let sum = u16::from(*byte) + u16::from(order) + carry;
        *byte = sum.to_le_bytes()[0];
        carry = sum >> 8;
    }
    assert_eq!(carry, 0, "s plus the order fits 256 bits");
    assert_eq!(denied_at(&[&with_signature(&token, &signature)]), "3b");
}

#[test]
fn a_token_named_by_its_signature() {
    // ECDSA signatures come in pairs: if (r, s) is valid, so is (r, n - s). Nothing may depend on which one it is.
    let phone = SigningKey::from_secret(credence_delegation::KeyType::P256, &[7; 32]).unwrap();
    let issuer = TrustAnchors::new([TrustAnchor {
        algorithms: Algorithms::new([Algorithm::Es256]),
        ..an_anchor(phone.public())
    }]);
    let token = sign(&phone, r#"{"alg":"ES256","typ":"aat+jwt"}"#, &root().json());
    let (r, s) = p256::ecdsa::Signature::from_slice(&signature(&token))
        .unwrap()
        .split_scalars();
    let twin = p256::ecdsa::Signature::from_scalars(r, -*s).unwrap();
    let twin = with_signature(&token, &twin.to_bytes());
    assert_ne!(token, twin);
    let (chain, other) = (
        verify_with(&[&token], &issuer).unwrap(),
        verify_with(&[&twin], &issuer).unwrap(),
    );
    assert_eq!(chain.leaf().id(), other.leaf().id());
    let leaf = child(&token).signed(&alice());
    assert!(
        verify_with(&[&twin, &leaf], &issuer).is_ok(),
        "par_hash leaves the signature out"
    );
    let denial = Chain::parse([twin.as_str(), token.as_str()], &Limits::default()).unwrap_err();
    assert_eq!(denial.step.name(), "2c", "and both in one chain are one token twice");
}

#[test]
fn a_private_key_in_place_of_a_public_one() {
    let cnf = format!(r#"{{"jwk":{}}}"#, alice().to_private_jwk().as_str());
    let denial = verify(&[&root().with("cnf", cnf).signed(&anchor())]).unwrap_err();
    assert_eq!(
        (denial.step.name(), denial.cause),
        ("3l", Cause::Key(KeyError::Private("d")))
    );
}

/// The order of the base point, 2^252 + 27742317777372353535851937790883648493, little-endian (RFC 8032, section 5.1).
const GROUP_ORDER: [u8; 32] = [
    0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
];

fn an_anchor(key: PublicKey) -> TrustAnchor {
    TrustAnchor {
        issuer: ISSUER.to_owned(),
        key,
        key_id: None,
        algorithms: Algorithms::default(),
        asserts_subjects: true,
        delegations: true,
        access_tokens: None,
        same_principals: Vec::new(),
        is_fetched: false,
    }
}

fn verify_with(chain: &[&str], anchors: &TrustAnchors) -> Result<VerifiedChain, Denial> {
    let limits = Limits::default();
    Chain::parse(chain.iter().copied(), &limits)?.verify(&VerificationContext {
        anchors,
        holder_algorithms: &Algorithms::default(),
        limits: &limits,
        now: UnixTime(NOW),
        hot_keys: None,
    })
}

/// A root token's signing input, and a signature over it by the anchor with this R.
fn signed_with(r: &[u8; 32], nonce: Scalar) -> (String, [u8; 64]) {
    let token = root().signed(&anchor());
    let input = signing_input(&token).to_owned();
    let s = nonce + challenge(r, &input) * anchor_scalar();
    let mut signature = [0; 64];
    signature[..32].copy_from_slice(r);
    signature[32..].copy_from_slice(s.as_bytes());
    (input, signature)
}

/// The result of a verifier that decodes any R and clears the cofactor, which RFC 8032, section 5.1.7, allows.
fn lax(input: &str, signature: &[u8; 64]) -> bool {
    let r: [u8; 32] = signature[..32].try_into().unwrap();
    let s = Scalar::from_canonical_bytes(signature[32..].try_into().unwrap()).unwrap();
    let point = CompressedEdwardsY(r).decompress().unwrap();
    let key = ED25519_BASEPOINT_POINT * anchor_scalar();
    let left = ED25519_BASEPOINT_POINT * s;
    (left - point - key * challenge(&r, input)).is_small_order()
}

fn challenge(r: &[u8; 32], input: &str) -> Scalar {
    let key = (ED25519_BASEPOINT_POINT * anchor_scalar()).compress();
    let hash = Sha512::new()
        .chain_update(r)
        .chain_update(key.as_bytes())
        .chain_update(input)
        .finalize();
    Scalar::from_bytes_mod_order_wide(&hash.into())
}

/// The secret scalar of the trust anchor's key (RFC 8032, section 5.1.5).
fn anchor_scalar() -> Scalar {
    let hash = Sha512::digest([1; 32]);
    Scalar::from_bytes_mod_order(clamp_integer(hash[..32].try_into().unwrap()))
}

fn signing_input(token: &str) -> &str {
    token.rsplit_once('.').unwrap().0
}

fn payload(token: &str) -> Vec<u8> {
    let (_, payload) = signing_input(token).split_once('.').unwrap();
    URL_SAFE_NO_PAD.decode(payload).unwrap()
}

fn signature(token: &str) -> Vec<u8> {
    URL_SAFE_NO_PAD.decode(token.rsplit_once('.').unwrap().1).unwrap()
}

/// The token with another payload and the same signature.
fn with_payload(token: &str, payload: &str) -> String {
    let signature = token.rsplit_once('.').unwrap().1;
    format!(
        "{}.{}.{signature}",
        URL_SAFE_NO_PAD.encode(HEADER),
        URL_SAFE_NO_PAD.encode(payload)
    )
}

fn with_signature(token: &str, signature: &[u8]) -> String {
    format!("{}.{}", signing_input(token), URL_SAFE_NO_PAD.encode(signature))
}
