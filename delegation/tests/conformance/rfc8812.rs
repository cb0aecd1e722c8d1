//! RFC 8812: ES256K. It has no examples, but rules: the curve of each algorithm, and their names.

use credence_delegation::{Algorithm, Algorithms, Cause, KeyError, KeyType, PublicKey, SigningKey, jws};

use crate::data::base64url;
use crate::report::Suite;

pub(crate) fn suite() -> Suite {
    let mut suite = Suite::new("RFC 8812, sections 3.1, 3.2 and 4.1 to 4.4");
    suite.note("the RFC has no example of a key or a signature; Wycheproof's secp256k1 vectors are above");
    for key_type in [KeyType::Ed25519, KeyType::P256, KeyType::Secp256k1] {
        let key = SigningKey::from_secret(key_type, &[7; 32]).unwrap();
        for algorithm in Algorithm::ALL {
            // The signature is valid for the key. It must be refused because the key and the algorithm do not match.
            let signing_input = format!("{}.", base64url(format!(r#"{{"alg":"{algorithm}"}}"#)));
            let compact = format!("{signing_input}.{}", base64url(key.sign(signing_input.as_bytes())));
            let got = jws::verify(&compact, None, &key.public(), &Algorithms::new(Algorithm::ALL));
            let fits = matches!(
                (algorithm, key_type),
                (Algorithm::Ed25519 | Algorithm::EdDsa, KeyType::Ed25519)
                    | (Algorithm::Es256, KeyType::P256)
                    | (Algorithm::Es256k, KeyType::Secp256k1)
            );
            let expected = if fits {
                Ok(Vec::new())
            } else {
                Err(Cause::AlgorithmNotAllowed)
            };
            suite.case(format!("3.2: {algorithm} with a {key_type} key"), expected, got);
        }
    }

    let secp256k1 = SigningKey::from_secret(KeyType::Secp256k1, &[7; 32]).unwrap().public();
    let p256 = SigningKey::from_secret(KeyType::P256, &[7; 32]).unwrap().public();
    let read = |jwk: String| PublicKey::from_jwk_text(jwk.as_bytes());
    let with_algorithm = |key: &PublicKey, algorithm: &str| {
        let jwk = key.to_jwk();
        read(format!(r#"{},"alg":"{algorithm}"}}"#, jwk.strip_suffix('}').unwrap()))
    };
    suite.case(
        "3.1: a key of crv secp256k1",
        &Ok(secp256k1.clone()),
        &read(secp256k1.to_jwk()),
    );
    let unsupported = |kty: &str, crv: &str| {
        Err(KeyError::Unsupported {
            kty: kty.to_owned(),
            crv: crv.to_owned(),
        })
    };
    let renamed = read(secp256k1.to_jwk().replace("secp256k1", "P-256K"));
    suite.case(
        "4.3: crv P-256K, as drafts named it",
        unsupported("EC", "P-256K"),
        renamed,
    );
    let okp = read(secp256k1.to_jwk().replace(r#""EC""#, r#""OKP""#));
    suite.case("3.1: kty OKP with crv secp256k1", unsupported("OKP", "secp256k1"), okp);
    let other_curve = read(secp256k1.to_jwk().replace("secp256k1", "P-256"));
    suite.case(
        "3.1: the point under crv P-256",
        Err(KeyError::Unusable(KeyType::P256)),
        other_curve,
    );
    let other_curve = read(p256.to_jwk().replace("P-256", "secp256k1"));
    suite.case(
        "3.1: a point of P-256",
        Err(KeyError::Unusable(KeyType::Secp256k1)),
        other_curve,
    );

    let alg = |expected| {
        Err(KeyError::Purpose {
            member: "alg",
            expected,
        })
    };
    suite.case(
        "3.2: alg ES256K",
        Ok(secp256k1.clone()),
        with_algorithm(&secp256k1, "ES256K"),
    );
    suite.case("3.2: alg ES256", alg("\"ES256K\""), with_algorithm(&secp256k1, "ES256"));
    suite.case(
        "3.2: alg ES256K at a P-256 key",
        alg("\"ES256\""),
        with_algorithm(&p256, "ES256K"),
    );
    suite
}
