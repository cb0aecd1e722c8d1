//! RFC 7638: thumbprints of keys. Its one example is an RSA key; RFC 8037, appendix A.3 has one of ours.

use credence_delegation::{KeyError, PublicKey};

use crate::report::Suite;

pub(crate) fn suite() -> Suite {
    let mut suite = Suite::new("RFC 7638, section 3.1");
    let cause = KeyError::Unsupported {
        kty: "RSA".to_owned(),
        crv: String::new(),
    };
    let got = PublicKey::from_jwk_text(KEY.as_bytes());
    suite.other_kind("the key", Err(cause), got, "a kind of key that is not implemented");
    suite.not_applicable("the thumbprint of a key that is refused; RFC 8037, appendix A.3, is tested below");
    suite
}

const KEY: &str = r#"{
    "kty": "RSA",
    "n": "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw",
    "e": "AQAB",
    "alg": "RS256",
    "kid": "2011-04-29"
}"#;
