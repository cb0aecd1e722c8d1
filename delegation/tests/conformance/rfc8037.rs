//! RFC 8037: Ed25519 in JOSE, its appendix A.

use credence_delegation::{Algorithm, Algorithms, Cause, KeyError, PublicKey, SigningKey, jws};

use crate::data::{base64url, from_base64url};
use crate::report::Suite;

pub(crate) fn suite() -> Suite {
    let mut suite = Suite::new("RFC 8037, appendix A");
    let private = format!(r#"{{"kty":"OKP","crv":"Ed25519","d":"{D}","x":"{X}"}}"#);
    let public = format!(r#"{{"kty":"OKP","crv":"Ed25519","x":"{X}"}}"#);

    let signing = SigningKey::from_jwk_text(private.as_bytes()).unwrap();
    let private_as_public = PublicKey::from_jwk_text(private.as_bytes());
    suite.case(
        "A.1: the private key, where a public one is asked for",
        Err(KeyError::Private("d")),
        private_as_public,
    );
    let key = PublicKey::from_jwk_text(public.as_bytes());
    suite.case(
        "A.1 and A.2: the private key's public half",
        &Ok(signing.public()),
        &key,
    );
    let key = key.unwrap();
    suite.case("A.3: thumbprint", THUMBPRINT, key.thumbprint().to_string().as_str());

    let signature = signing.sign(format!("{HEADER}.{PAYLOAD}").as_bytes());
    suite.case("A.4: signing", SIGNATURE, base64url(signature).as_str());
    let compact = format!("{HEADER}.{PAYLOAD}.{SIGNATURE}");
    let verify = |algorithms: &Algorithms| jws::verify(&compact, None, &key, algorithms);
    let payload = from_base64url(PAYLOAD).ok_or(Cause::Empty);
    suite.case(
        "A.5: verification",
        payload,
        verify(&Algorithms::new([Algorithm::EdDsa])),
    );
    suite.case(
        "A.5: where EdDSA is not named",
        Err(Cause::AlgorithmNotAllowed),
        verify(&Algorithms::default()),
    );

    for (id, crv, x) in [
        (
            "A.6: X25519, the recipient's key",
            "X25519",
            "3p7bfXt9wbTTW2HC7OQ1Nz-DQ8hbeGdNrfx-FG-IK08",
        ),
        (
            "A.6: X25519, the ephemeral key",
            "X25519",
            "hSDwCYkwp1R0i33ctD73Wg2_Og0mOBr066SpjqqbTmo",
        ),
        ("A.7: X448, the recipient's key", "X448", X448_RECIPIENT),
        ("A.7: X448, the ephemeral key", "X448", X448_EPHEMERAL),
    ] {
        let jwk = format!(r#"{{"kty":"OKP","crv":"{crv}","x":"{x}"}}"#);
        let cause = KeyError::Unsupported {
            kty: "OKP".to_owned(),
            crv: crv.to_owned(),
        };
        suite.other_kind(
            id,
            Err(cause),
            PublicKey::from_jwk_text(jwk.as_bytes()),
            "keys for key agreement, which sign nothing",
        );
    }
    for _ in ["A.6", "A.7"] {
        suite.not_applicable("the key agreement itself (ECDH-ES): nothing is encrypted here");
    }
    suite
}

const D: &str = "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A";
const X: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
const THUMBPRINT: &str = "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k";

const HEADER: &str = "eyJhbGciOiJFZERTQSJ9";
const PAYLOAD: &str = "RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc";
const SIGNATURE: &str = "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";

const X448_RECIPIENT: &str = "PreoKbDNIPW8_AtZm2_sz22kYnEHvbDU80W0MCfYuXL8PjT7QjKhPKcG3LV67D2uB73BxnvzNgk";
const X448_EPHEMERAL: &str = "mwj3zDG34-Z9ItWuoSEHSic70rg94Jxj-qc9LCLF2bvINmRyQdlT1AxbEtqIEg1TF3-A5TLEH6A";
