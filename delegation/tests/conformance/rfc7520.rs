//! RFC 7520: the JOSE cookbook. Its keys and signatures are of kinds that we do not implement, so each must be refused
//! for that reason, and none counts as passed.

use credence_delegation::{Algorithm, Algorithms, Cause, KeyError, KeyType, PublicKey, SigningKey, jws};

use crate::report::Suite;

pub(crate) fn suite() -> Suite {
    let mut suite = Suite::new("RFC 7520, sections 3 and 4");
    keys(&mut suite);
    signatures(&mut suite);
    suite
}

fn keys(suite: &mut Suite) {
    let p521 = format!(r#"{BILBO},"kty":"EC","crv":"P-521","x":"{P521_X}","y":"{P521_Y}""#);
    let rsa = format!(r#"{BILBO},"kty":"RSA","n":"{RSA_N}","e":"AQAB""#);
    let rsa_secrets =
        format!(r#""d":"{RSA_D}","p":"{RSA_P}","q":"{RSA_Q}","dp":"{RSA_DP}","dq":"{RSA_DQ}","qi":"{RSA_QI}""#);
    let unsupported = |kty: &str, crv: &str| KeyError::Unsupported {
        kty: kty.to_owned(),
        crv: crv.to_owned(),
    };
    for (id, jwk, cause) in [
        ("3.1: EC public key", format!("{{{p521}}}"), unsupported("EC", "P-521")),
        (
            "3.2: EC private key",
            format!(r#"{{{p521},"d":"{P521_D}"}}"#),
            KeyError::Private("d"),
        ),
        ("3.3: RSA public key", format!("{{{rsa}}}"), unsupported("RSA", "")),
        (
            "3.4: RSA private key",
            format!("{{{rsa},{rsa_secrets}}}"),
            KeyError::Private("d"),
        ),
        (
            "3.5: MAC key",
            format!(r#"{{"kty":"oct","kid":"{MAC_KEY_ID}","use":"sig","alg":"HS256","k":"{MAC_KEY}"}}"#),
            KeyError::Private("k"),
        ),
        (
            "3.6: encryption key",
            format!(
                r#"{{"kty":"oct","kid":"1e571774-2e08-40da-8308-e8d68773842d","use":"enc","alg":"A256GCM","k":"{ENCRYPTION_KEY}"}}"#
            ),
            KeyError::Private("k"),
        ),
    ] {
        suite.other_kind(
            id,
            Err(cause),
            PublicKey::from_jwk_text(jwk.as_bytes()),
            "a kind of key that is not implemented, or a secret one",
        );
    }
}

fn signatures(suite: &mut Suite) {
    // No key of the examples can be read, and the algorithm is checked before the key. So any key will do.
    let key = SigningKey::from_secret(KeyType::P256, &[1; 32]).unwrap().public();
    let verify = |text: &str| jws::verify(text, None, &key, &Algorithms::new(Algorithm::ALL));

    let mut json = Vec::new();
    for (id, protected, payload, signature) in [
        ("4.1: RS256", PROTECTED_4_1, PAYLOAD, SIGNATURE_4_1),
        ("4.2: PS384", PROTECTED_4_2, PAYLOAD, SIGNATURE_4_2),
        ("4.3: ES512", PROTECTED_4_3, PAYLOAD, SIGNATURE_4_3),
        ("4.4: HS256", PROTECTED_4_4, PAYLOAD, SIGNATURE_4_4),
        ("4.5: HS256, detached", PROTECTED_4_4, "", SIGNATURE_4_4),
    ] {
        let compact = verify(&format!("{protected}.{payload}.{signature}"));
        suite.other_kind(
            id,
            Err(Cause::AlgorithmNotAllowed),
            compact,
            "the algorithm is not implemented",
        );
        let content = if payload.is_empty() {
            String::new()
        } else {
            format!(r#""payload":"{payload}","#)
        };
        let signed = format!(r#""protected":"{protected}","signature":"{signature}""#);
        json.push((id, format!(r#"{{{content}"signatures":[{{{signed}}}]}}"#)));
        json.push((id, format!("{{{content}{signed}}}")));
    }

    let by_mac_key = format!(r#""header":{{"kid":"{MAC_KEY_ID}"}}"#);
    for (id, signed) in [
        (
            "4.6: some header fields protected",
            format!(r#""protected":"{PROTECTED_4_6}",{by_mac_key},"signature":"{SIGNATURE_4_6}""#),
        ),
        (
            "4.7: no header field protected",
            format!(r#""header":{{"alg":"HS256","kid":"{MAC_KEY_ID}"}},"signature":"{SIGNATURE_4_7}""#),
        ),
    ] {
        json.push((id, format!(r#"{{"payload":"{PAYLOAD}","signatures":[{{{signed}}}]}}"#)));
        json.push((id, format!(r#"{{"payload":"{PAYLOAD}",{signed}}}"#)));
    }
    let several = [
        format!(
            r#"{{"protected":"{PROTECTED_4_8_FIRST}","header":{{"kid":"bilbo.baggins@hobbiton.example"}},"signature":"{SIGNATURE_4_8_FIRST}"}}"#
        ),
        format!(
            r#"{{"header":{{"alg":"ES512","kid":"bilbo.baggins@hobbiton.example"}},"signature":"{SIGNATURE_4_8_SECOND}"}}"#
        ),
        format!(r#"{{"protected":"{PROTECTED_4_4}","signature":"{SIGNATURE_4_4}"}}"#),
    ];
    let several = several.join(",");
    json.push((
        "4.8: multiple signatures",
        format!(r#"{{"payload":"{PAYLOAD}","signatures":[{several}]}}"#),
    ));

    for (id, text) in json {
        suite.other_kind(
            format!("{id}, in JSON"),
            true,
            matches!(verify(&text), Err(Cause::Malformed(_))),
            "tokens and proofs are in the compact form (draft section 3.5)",
        );
    }
}

/// What the EC and RSA keys have in common.
const BILBO: &str = r#""kid":"bilbo.baggins@hobbiton.example","use":"sig""#;

const MAC_KEY_ID: &str = "018c0ae5-4d9b-471b-bfd6-eef314bc7037";

/// The payload of every example in section 4.
const PAYLOAD: &str = "\
    SXTigJlzIGEgZGFuZ2Vyb3VzIGJ1c2luZXNzLCBGcm9kbywgZ29pbmcgb3V0IHlvdXIgZG9vci4gWW91IHN0ZXAgb250byB0aGUg\
    cm9hZCwgYW5kIGlmIHlvdSBkb24ndCBrZWVwIHlvdXIgZmVldCwgdGhlcmXigJlzIG5vIGtub3dpbmcgd2hlcmUgeW91IG1pZ2h0\
    IGJlIHN3ZXB0IG9mZiB0by4";

// Protected headers and signatures.
const PROTECTED_4_1: &str = "eyJhbGciOiJSUzI1NiIsImtpZCI6ImJpbGJvLmJhZ2dpbnNAaG9iYml0b24uZXhhbXBsZSJ9";
const SIGNATURE_4_1: &str = "\
    MRjdkly7_-oTPTS3AXP41iQIGKa80A0ZmTuV5MEaHoxnW2e5CZ5NlKtainoFmKZopdHM1O2U4mwzJdQx996ivp83xuglII7PNDi8\
    4wnB-BDkoBwA78185hX-Es4JIwmDLJK3lfWRa-XtL0RnltuYv746iYTh_qHRD68BNt1uSNCrUCTJDt5aAE6x8wW1Kt9eRo4QPocS\
    adnHXFxnt8Is9UzpERV0ePPQdLuW3IS_de3xyIrDaLGdjluPxUAhb6L2aXic1U12podGU0KLUQSE_oI-ZnmKJ3F4uOZDnd6QZWJu\
    shZ41Axf_fcIe8u9ipH84ogoree7vjbU5y18kDquDg";
const PROTECTED_4_2: &str = "eyJhbGciOiJQUzM4NCIsImtpZCI6ImJpbGJvLmJhZ2dpbnNAaG9iYml0b24uZXhhbXBsZSJ9";
const SIGNATURE_4_2: &str = "\
    cu22eBqkYDKgIlTpzDXGvaFfz6WGoz7fUDcfT0kkOy42miAh2qyBzk1xEsnk2IpN6-tPid6VrklHkqsGqDqHCdP6O8TTB5dDDItl\
    lVo6_1OLPpcbUrhiUSMxbbXUvdvWXzg-UD8biiReQFlfz28zGWVsdiNAUf8ZnyPEgVFn442ZdNqiVJRmBqrYRXe8P_ijQ7p8Vdz0\
    TTrxUeT3lm8d9shnr2lfJT8ImUjvAA2Xez2Mlp8cBE5awDzT0qI0n6uiP1aCN_2_jLAeQTlqRHtfa64QQSUmFAAjVKPbByi7xho0\
    uTOcbH510a6GYmJUAfmWjwZ6oD4ifKo8DYM-X72Eaw";
const PROTECTED_4_3: &str = "eyJhbGciOiJFUzUxMiIsImtpZCI6ImJpbGJvLmJhZ2dpbnNAaG9iYml0b24uZXhhbXBsZSJ9";
const SIGNATURE_4_3: &str = "\
    AE_R_YZCChjn4791jSQCrdPZCNYqHXCTZH0-JZGYNlaAjP2kqaluUIIUnC9qvbu9Plon7KRTzoNEuT4Va2cmL1eJAQy3mtPBu_u_\
    sDDyYjnAMDxXPn7XrT0lw-kvAD890jl8e2puQens_IEKBpHABlsbEPX6sFY8OcGDqoRuBomu9xQ2";
const PROTECTED_4_4: &str = "eyJhbGciOiJIUzI1NiIsImtpZCI6IjAxOGMwYWU1LTRkOWItNDcxYi1iZmQ2LWVlZjMxNGJjNzAzNyJ9";
const SIGNATURE_4_4: &str = "s0h6KThzkfBBBkLspW1h84VsJZFTsPPqMDA7g1Md7p0";
const PROTECTED_4_6: &str = "eyJhbGciOiJIUzI1NiJ9";
const SIGNATURE_4_6: &str = "bWUSVaxorn7bEF1djytBd0kHv70Ly5pvbomzMWSOr20";
const SIGNATURE_4_7: &str = "xuLifqLGiblpv9zBpuZczWhNj1gARaLV3UxvxhJxZuk";
const PROTECTED_4_8_FIRST: &str = "eyJhbGciOiJSUzI1NiJ9";
const SIGNATURE_4_8_FIRST: &str = "\
    MIsjqtVlOpa71KE-Mss8_Nq2YH4FGhiocsqrgi5NvyG53uoimic1tcMdSg-qptrzZc7CG6Svw2Y13TDIqHzTUrL_lR2ZFcryNFiH\
    kSw129EghGpwkpxaTn_THJTCglNbADko1MZBCdwzJxwqZc-1RlpO2HibUYyXSwO97BSe0_evZKdjvvKSgsIqjytKSeAMbhMBdMma\
    622_BG5t4sdbuCHtFjp9iJmkio47AIwqkZV1aIZsv33uPUqBBCXbYoQJwt7mxPftHmNlGoOSMxR_3thmXTCm4US-xiNOyhbm8afK\
    K64jU6_TPtQHiJeQJxz9G3Tx-083B745_AfYOnlC9w";
const SIGNATURE_4_8_SECOND: &str = "\
    ARcVLnaJJaUWG8fG-8t5BREVAuTY8n8YHjwDO1muhcdCoFZFFjfISu0Cdkn9Ybdlmi54ho0x924DUz8sK7ZXkhc7AFM8ObLfTvNC\
    rqcI3Jkl2U5IX3utNhODH6v7xgy1Qahsn0fyb4zSAkje8bAWz4vIfj5pCMYxxm4fgV3q7ZYhm5eD";

// Keys of section 3.
const P521_X: &str = "AHKZLLOsCOzz5cY97ewNUajB957y-C-U88c3v13nmGZx6sYl_oJXu9A5RkTKqjqvjyekWF-7ytDyRXYgCF5cj0Kt";
const P521_Y: &str = "AdymlHvOiLxXkEhayXQnNCvDX4h9htZaCJN34kfmC6pV5OhQHiraVySsUdaQkAgDPrwQrJmbnX9cwlGfP-HqHZR1";
const P521_D: &str = "AAhRON2r9cqXX1hg-RoI6R1tX5p2rUAYdmpHZoC1XNM56KtscrX6zbKipQrCW9CGZH3T4ubpnoTKLDYJ_fF3_rJt";
const RSA_N: &str = "\
    n4EPtAOCc9AlkeQHPzHStgAbgs7bTZLwUBZdR8_KuKPEHLd4rHVTeT-O-XV2jRojdNhxJWTDvNd7nqQ0VEiZQHz_AJmSCpMaJMRB\
    SFKrKb2wqVwGU_NsYOYL-QtiWN2lbzcEe6XC0dApr5ydQLrHqkHHig3RBordaZ6Aj-oBHqFEHYpPe7Tpe-OfVfHd1E6cS6M1FZcD\
    1NNLYD5lFHpPI9bTwJlsde3uhGqC0ZCuEHg8lhzwOHrtIQbS0FVbb9k3-tVTU4fg_3L_vniUFAKwuCLqKnS2BYwdq_mzSnbLY7h_\
    qixoR7jig3__kRhuaxwUkRz5iaiQkqgc5gHdrNP5zw";
const RSA_D: &str = "\
    bWUC9B-EFRIo8kpGfh0ZuyGPvMNKvYWNtB_ikiH9k20eT-O1q_I78eiZkpXxXQ0UTEs2LsNRS-8uJbvQ-A1irkwMSMkK1J3XTGgd\
    rhCku9gRldY7sNA_AKZGh-Q661_42rINLRCe8W-nZ34ui_qOfkLnK9QWDDqpaIsA-bMwWWSDFu2MUBYwkHTMEzLYGqOe04noqeq1\
    hExBTHBOBdkMXiuFhUq1BU6l-DqEiWxqg82sXt2h-LMnT3046AOYJoRioz75tSUQfGCshWTBnP5uDjd18kKhyv07lhfSJdrPdM5P\
    lyl21hsFf4L_mHCuoFau7gdsPfHPxxjVOcOpBrQzwQ";
const RSA_P: &str = "\
    3Slxg_DwTXJcb6095RoXygQCAZ5RnAvZlno1yhHtnUex_fp7AZ_9nRaO7HX_-SFfGQeutao2TDjDAWU4Vupk8rw9JR0AzZ0N2fvu\
    IAmr_WCsmGpeNqQnev1T7IyEsnh8UMt-n5CafhkikzhEsrmndH6LxOrvRJlsPp6Zv8bUq0k";
const RSA_Q: &str = "\
    uKE2dh-cTf6ERF4k4e_jy78GfPYUIaUyoSSJuBzp3Cubk3OCqs6grT8bR_cu0Dm1MZwWmtdqDyI95HrUeq3MP15vMMON8lHTeZu2\
    lmKvwqW7anV5UzhM1iZ7z4yMkuUwFWoBvyY898EXvRD-hdqRxHlSqAZ192zB3pVFJ0s7pFc";
const RSA_DP: &str = "\
    B8PVvXkvJrj2L-GYQ7v3y9r6Kw5g9SahXBwsWUzp19TVlgI-YV85q1NIb1rxQtD-IsXXR3-TanevuRPRt5OBOdiMGQp8pbt26glj\
    YfKU_E9xn-RULHz0-ed9E9gXLKD4VGngpz-PfQ_q29pk5xWHoJp009Qf1HvChixRX59ehik";
const RSA_DQ: &str = "\
    CLDmDGduhylc9o7r84rEUVn7pzQ6PF83Y-iBZx5NT-TpnOZKF1pErAMVeKzFEl41DlHHqqBLSM0W1sOFbwTxYWZDm6sI6og5iTbw\
    QGIC3gnJKbi_7k_vJgGHwHxgPaX2PnvP-zyEkDERuf-ry4c_Z11Cq9AqC2yeL6kdKT1cYF8";
const RSA_QI: &str = "\
    3PiqvXQN0zwMeE-sBvZgi289XP9XCQF3VWqPzMKnIgQp7_Tugo6-NZBKCQsMf3HaEGBjTVJs_jcK8-TRXvaKe-7ZMaQj8VfBdYks\
    sbu0NKDDhjJ-GtiseaDVWt7dcH0cfwxgFUHpQh7FoCrjFJ6h6ZEpMF6xmujs4qMpPz8aaI4";
const MAC_KEY: &str = "hJtXIZ2uSN5kbQfbtTNWbpdmhkV8FJG-Onbc6mxCcYg";
const ENCRYPTION_KEY: &str = "AAPapAv4LbFbiVawEjagUBluYqN5rhna-8nuldDvOx8";
