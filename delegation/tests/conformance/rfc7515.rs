//! RFC 7515: JSON Web Signature, its appendices A and E.

use credence_delegation::{Algorithm, Algorithms, Cause, PublicKey, SigningKey, jws};

use crate::data::from_base64url;
use crate::report::Suite;

pub(crate) fn suite() -> Suite {
    let mut suite = Suite::new("RFC 7515, appendices A and E");
    let public = format!(r#"{{"kty":"EC","crv":"P-256","x":"{X}","y":"{Y}"}}"#);
    let private = format!(r#"{{"kty":"EC","crv":"P-256","x":"{X}","y":"{Y}","d":"{D}"}}"#);
    let key = PublicKey::from_jwk_text(public.as_bytes()).unwrap();
    let all = Algorithms::new(Algorithm::ALL);

    let signing = SigningKey::from_jwk_text(private.as_bytes());
    suite.case(
        "A.3: private key",
        Ok(&key),
        signing.as_ref().map(SigningKey::public).as_ref(),
    );
    let es256 = format!("{ES256}.{CLAIMS}.{A_3_SIGNATURE}");
    let payload = from_base64url(CLAIMS).ok_or(Cause::Empty);
    suite.case("A.3: verification", &payload, &jws::verify(&es256, None, &key, &all));
    let named = jws::verify(&es256, None, &key, &Algorithms::default());
    suite.case("A.3: where ES256 is not named", Err(Cause::AlgorithmNotAllowed), named);

    for (id, compact) in [
        ("A.1: HS256", format!("{HS256}.{CLAIMS}.{A_1_SIGNATURE}")),
        ("A.2: RS256", format!("{RS256}.{CLAIMS}.{A_2_SIGNATURE}")),
        ("A.4: ES512", format!("{ES512}.UGF5bG9hZA.{A_4_SIGNATURE}")),
    ] {
        let got = jws::verify(&compact, None, &key, &all);
        suite.other_kind(
            id,
            Err(Cause::AlgorithmNotAllowed),
            got,
            "the algorithm is not implemented",
        );
    }
    let got = jws::verify(&format!("{NONE}.{CLAIMS}."), None, &key, &all);
    if suite.case("A.5: none", Err(Cause::AlgorithmNotAllowed), got) {
        suite.remark("refused as must be: nothing is believed unsigned (RFC 8725, section 3.2)");
    }

    let general = format!(
        r#"{{"payload":"{CLAIMS}","signatures":[{{"protected":"{RS256}","header":{{"kid":"2010-12-29"}},"signature":"{A_2_SIGNATURE}"}},{{"protected":"{ES256}","header":{{"kid":"e9bc097a-ce51-4036-9562-d2ade882db0d"}},"signature":"{A_3_SIGNATURE}"}}]}}"#
    );
    let flattened = format!(
        r#"{{"payload":"{CLAIMS}","protected":"{ES256}","header":{{"kid":"e9bc097a-ce51-4036-9562-d2ade882db0d"}},"signature":"{A_3_SIGNATURE}"}}"#
    );
    for (id, text) in [("A.6: general JSON", general), ("A.7: flattened JSON", flattened)] {
        let got = jws::verify(&text, None, &key, &all);
        suite.other_kind(
            id,
            true,
            matches!(got, Err(Cause::Malformed(_))),
            "tokens and proofs are in the compact form (draft section 3.5)",
        );
    }

    let got = jws::verify(APPENDIX_E, None, &key, &all);
    suite.case("E: crit with an unknown extension", Err(Cause::CriticalHeader), got);
    suite
}

// Protected headers: each has the `alg` of its name and nothing else; A.1 has a `typ` too.
const HS256: &str = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9";
const RS256: &str = "eyJhbGciOiJSUzI1NiJ9";
const ES256: &str = "eyJhbGciOiJFUzI1NiJ9";
const ES512: &str = "eyJhbGciOiJFUzUxMiJ9";
const NONE: &str = "eyJhbGciOiJub25lIn0";

/// The claims that A.1, A.2, A.3 and A.5 sign.
const CLAIMS: &str = "\
    eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";

// The key of A.3.
const X: &str = "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU";
const Y: &str = "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0";
const D: &str = "jpsQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI";

const A_1_SIGNATURE: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const A_2_SIGNATURE: &str = "\
    cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9\
    uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB\
    _eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rq\
    Vt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";
const A_3_SIGNATURE: &str = "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q";
const A_4_SIGNATURE: &str = "\
    AdwMgeerwtHoh-l192l60hp9wAHZFVJbLfD_UxMi70cwnZOYaRI1bKPWROc-mZZqwqT2SI-KGDKB34XO0aw_7XdtAG8GaSwFKdCA\
    PZgoXD2YBJZCPEX3xKpRwcdOO8KpEHwJjyqOgzDO7iKvU8vcnwNrmxYbSW9ERBXukOXolLzeO_Jn";

const APPENDIX_E: &str = "\
    eyJhbGciOiJub25lIiwNCiAiY3JpdCI6WyJodHRwOi8vZXhhbXBsZS5jb20vVU5ERUZJTkVEIl0sDQogImh0dHA6Ly9leGFtcGxlLmNvbS9V\
    TkRFRklORUQiOnRydWUNCn0.RkFJTA.";
