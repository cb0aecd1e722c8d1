//! Keys of every kind, and issuers with none, one or several keys: from `keygen` to `verify`.

use crate::common::{Ran, Workbench};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use credence_delegation::SigningKey;

const ISSUER: &str = "https://id.example.com";
const SERVICE: &str = "https://payments.example";
const ALGORITHMS: [&str; 3] = ["Ed25519", "ES256", "ES256K"];

/// Makes a key pair, `NAME.jwk` and `NAME.pub`; returns its `did:key`.
fn keygen(bench: &Workbench, algorithm: &str, name: &str) -> String {
    let made = bench.run(&["keygen", "--alg", algorithm, "--out", &format!("{name}.jwk")]);
    assert_eq!(made.code, 0, "{made:?}");
    bench.file(&format!("{name}.pub"), &made.stdout);
    let did = made.stderr.lines().find_map(|line| line.strip_prefix("as an issuer: "));
    did.unwrap_or_else(|| panic!("{made:?}")).to_owned()
}

fn mint(bench: &Workbench, key: &str, more: &[&str]) -> Ran {
    let start = [
        "mint",
        "--key",
        key,
        "--holder",
        "agent.pub",
        "--audience",
        SERVICE,
        "--tool",
        "pay",
    ];
    bench.run(&[&start, more].concat())
}

/// Verifies a chain, without a proof.
fn verify(bench: &Workbench, chain: &str, more: &[&str]) -> Ran {
    let start = [
        "verify",
        "--chain",
        chain,
        "--tool",
        "pay",
        "--audience",
        SERVICE,
        "--no-proof",
        "--json",
    ];
    bench.run(&[&start, more].concat())
}

#[track_caller]
fn assert_allowed(ran: &Ran) {
    assert_eq!(
        (ran.code, ran.stdout.trim()),
        (0, r#"{"decision":"allow","step":null,"reason":null}"#),
        "{ran:?}"
    );
}

#[track_caller]
fn assert_denied(ran: &Ran, step: &str, reason: &str) {
    let step = format!(r#""decision":"deny","step":"{step}""#);
    assert!(
        ran.code == 1 && ran.stdout.contains(&step) && ran.stdout.contains(reason),
        "{ran:?}"
    );
}

mod the_generator {
    use super::*;

    #[test]
    fn makes_an_ed25519_key_unless_told_otherwise() {
        let bench = Workbench::new();
        let made = bench.run(&["keygen"]);
        assert!(
            made.stdout.starts_with(r#"{"crv":"Ed25519","kty":"OKP","x":""#),
            "{made:?}"
        );
        assert!(made.stderr.contains("\nas an issuer: did:key:z6Mk"), "{made:?}");
    }

    #[test]
    fn makes_a_key_for_each_algorithm_and_names_it_in_each_way() {
        for (algorithm, jwk, did) in [
            ("Ed25519", r#"{"crv":"Ed25519","kty":"OKP","x":""#, "did:key:z6Mk"),
            ("ES256", r#"{"crv":"P-256","kty":"EC","x":""#, "did:key:zDna"),
            ("ES256K", r#"{"crv":"secp256k1","kty":"EC","x":""#, "did:key:zQ3s"),
        ] {
            let bench = Workbench::new();
            let made = bench.run(&["keygen", "--alg", algorithm]);
            assert!(made.stdout.starts_with(jwk), "{made:?}");
            assert!(made.stderr.starts_with("thumbprint: "), "{made:?}");
            assert!(made.stderr.contains(&format!("\nas an issuer: {did}")), "{made:?}");
            let private = std::fs::read(bench.path("key.jwk")).unwrap();
            let key = SigningKey::from_jwk_text(&private).unwrap();
            assert_eq!(key.algorithm().name(), algorithm);
            assert_eq!(key.public().to_jwk(), made.stdout.trim(), "the halves belong together");
        }
    }

    #[test]
    fn makes_the_key_although_standard_error_cannot_be_written() {
        let bench = Workbench::new();
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = bench.command(&["keygen"]).stderr(full).output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert!(output.stdout.starts_with(b"{\"crv\""), "{output:?}");
        assert!(bench.path("key.jwk").exists());
    }

    #[test]
    fn names_the_algorithms_there_are() {
        for unknown in ["EdDSA", "RS256", "es256"] {
            let ran = Workbench::new().run(&["keygen", "--alg", unknown]);
            ran.failed(2, &["--alg", "write one of Ed25519, ES256, ES256K"]);
        }
    }
}

#[test]
fn keys_of_every_kind_mint_derive_prove_and_verify() {
    for algorithm in ALGORITHMS {
        let bench = Workbench::new();
        for name in ["issuer", "agent", "helper"] {
            keygen(&bench, algorithm, name);
        }
        let root = mint(&bench, "issuer.jwk", &["--issuer", ISSUER, "--max-depth", "1"]).succeeded();
        let derive = ["derive", "--parent", &root, "--key", "agent.jwk"];
        let chain = bench
            .run(&[&derive[..], &["--holder", "helper.pub", "--same-tools"]].concat())
            .succeeded();
        let prove = ["prove", "--chain", &chain, "--key", "helper.jwk", "--tool", "pay"];
        let proof = bench.run(&[&prove[..], &["--audience", SERVICE]].concat()).succeeded();
        let anchor = format!("{ISSUER}=issuer.pub");
        let asked = [
            "verify",
            "--chain",
            &chain,
            "--proof",
            &proof,
            "--tool",
            "pay",
            "--audience",
            SERVICE,
            "--json",
        ];
        let named = [
            "--anchor",
            &anchor,
            "--algorithm",
            algorithm,
            "--holder-algorithm",
            algorithm,
        ];
        assert_allowed(&bench.run(&[&asked[..], &named].concat()));

        let shown = bench.run(&["inspect", &chain]).succeeded();
        let signed = format!("signed with  {algorithm}\n");
        assert_eq!(shown.matches(&signed).count(), 2, "{shown}");
        let key = SigningKey::from_jwk_text(&std::fs::read(bench.path("helper.jwk")).unwrap()).unwrap();
        let held = format!(
            "held by      {} key {}",
            key.public().key_type(),
            key.public().thumbprint()
        );
        assert!(shown.contains(&held), "{shown}");
    }
}

#[test]
fn an_algorithm_counts_only_where_it_is_named() {
    let bench = Workbench::new();
    keygen(&bench, "ES256", "issuer");
    keygen(&bench, "ES256", "agent");
    let root = mint(&bench, "issuer.jwk", &["--issuer", ISSUER, "--max-depth", "1"]).succeeded();
    let anchor = ["--anchor", &format!("{ISSUER}=issuer.pub")];
    verify(&bench, &root, &anchor).failed(2, &["none of the algorithms fits its P-256 key; add --algorithm ES256"]);

    let anchor = [&anchor[..], &["--algorithm", "ES256"]].concat();
    assert_allowed(&verify(&bench, &root, &anchor));
    let derive = [
        "derive",
        "--parent",
        &root,
        "--key",
        "agent.jwk",
        "--holder",
        "agent.pub",
    ];
    let chain = bench.run(&[&derive[..], &["--same-tools"]].concat()).succeeded();
    assert_denied(&verify(&bench, &chain, &anchor), "4a", "the alg header");
    let both = [&anchor[..], &["--holder-algorithm", "ES256"]].concat();
    assert_allowed(&verify(&bench, &chain, &both));
}

mod a_did_key_issuer {
    use super::*;

    #[test]
    fn is_who_mints_without_saying_so() {
        for algorithm in ALGORITHMS {
            let bench = Workbench::new();
            keygen(&bench, "Ed25519", "agent");
            let did = keygen(&bench, algorithm, "issuer");
            let root = mint(&bench, "issuer.jwk", &[]).succeeded();
            let shown = bench.run(&["inspect", &root]).succeeded();
            assert!(shown.contains(&format!("issued by    {did}\n")), "{shown}");
            for anchor in [did.clone(), format!("{did}=issuer.pub")] {
                assert_allowed(&verify(&bench, &root, &["--anchor", &anchor, "--algorithm", algorithm]));
            }
        }
    }

    #[test]
    fn is_its_key_and_no_other() {
        let bench = Workbench::new();
        bench.keys(&["agent"]);
        let own = keygen(&bench, "Ed25519", "issuer");
        let other = keygen(&bench, "Ed25519", "other");
        mint(&bench, "issuer.jwk", &["--issuer", &other])
            .failed(2, &["not the did:key of the signing key", &own, "leave --issuer out"]);
        mint(&bench, "issuer.jwk", &["--issuer", &own]).succeeded();

        let root = mint(&bench, "issuer.jwk", &[]).succeeded();
        let asked = |anchor: &str| verify(&bench, &root, &["--anchor", anchor]);
        asked(&format!("{own}=other.pub")).failed(2, &["does not contain this key", &other]);
        let set = format!(r#"{own}={{"keys":[{}]}}"#, read(&bench, "issuer.pub"));
        asked(&set).failed(2, &["no JWK set"]);
        asked("did:key:z6Mk").failed(2, &["--anchor did:key:z6Mk: its multicodec is not"]);
        assert_denied(&asked(&other), "3k", "not a configured trust anchor");
    }

    #[test]
    fn names_a_holder_too() {
        let bench = Workbench::new();
        bench.keys(&["issuer"]);
        let did = keygen(&bench, "ES256", "agent");
        let mint = ["mint", "--key", "issuer.jwk", "--holder", &did, "--tool", "pay"];
        let root = bench.run(&mint).succeeded();
        bench
            .run(&["prove", "--chain", &root, "--key", "agent.jwk", "--tool", "pay"])
            .succeeded();
        let mint = ["mint", "--key", "issuer.jwk", "--holder", "did:key:zA", "--tool", "pay"];
        bench
            .run(&mint)
            .failed(2, &["did:key:zA: ", "write it as `credence keygen` prints it"]);
    }
}

mod a_set_of_keys {
    use super::*;

    /// An issuer with an Ed25519 key `one`, a P-256 key `two`, and an RSA key, which is not usable, in `jwks.json`.
    fn bench() -> Workbench {
        let bench = Workbench::new();
        keygen(&bench, "Ed25519", "agent");
        keygen(&bench, "Ed25519", "one");
        keygen(&bench, "ES256", "two");
        bench.file("jwks.json", &set(&bench));
        bench
    }

    fn set(bench: &Workbench) -> String {
        let [one, two] = ["one", "two"]
            .map(|name| read(bench, &format!("{name}.pub")).replacen('{', &format!(r#"{{"kid":"{name}","#), 1));
        format!(r#"{{"keys":[{one},{{"kty":"RSA","n":"AQAB","e":"AQAB"}},{two}]}}"#)
    }

    const BOTH: [&str; 4] = ["--algorithm", "Ed25519", "--algorithm", "ES256"];

    #[test]
    fn is_given_as_a_file_or_as_it_is() {
        let bench = bench();
        for key in ["one.jwk", "two.jwk"] {
            let root = mint(&bench, key, &["--issuer", ISSUER]).succeeded();
            for given in ["jwks.json", "@jwks.json", &set(&bench)] {
                let anchor = format!("{ISSUER}={given}");
                let ran = verify(&bench, &root, &[&["--anchor", &anchor][..], &BOTH].concat());
                assert_allowed(&ran);
                assert!(
                    ran.stderr.contains("keys[1] is not used: unsupported key: kty"),
                    "{ran:?}"
                );
            }
        }
    }

    #[test]
    fn has_its_keys_selected_by_the_token_s_key_id() {
        let bench = bench();
        let root = mint(&bench, "one.jwk", &["--issuer", ISSUER]).succeeded();
        let asked = |root: &str| {
            let anchor = format!("{ISSUER}=jwks.json");
            verify(&bench, root, &[&["--anchor", &anchor][..], &BOTH].concat())
        };
        let named = |id| with_key_id(&bench, "one.jwk", &root, id);
        assert_allowed(&asked(&named("one")));
        assert_denied(&asked(&named("three")), "3b", "none of the issuer's configured keys");
        let shown = bench.run(&["inspect", &named("one")]).succeeded();
        assert!(shown.contains("\n  by the key   one\n"), "{shown}");
    }

    #[test]
    fn has_no_use_for_a_key_that_no_algorithm_fits() {
        let bench = bench();
        let root = mint(&bench, "one.jwk", &["--issuer", ISSUER]).succeeded();
        let anchor = format!("{ISSUER}=jwks.json");
        verify(&bench, &root, &["--anchor", &anchor]).failed(2, &["P-256 key; add --algorithm ES256"]);
    }

    #[test]
    fn must_be_one() {
        let bench = bench();
        let root = mint(&bench, "one.jwk", &["--issuer", ISSUER]).succeeded();
        bench.file("broken.json", r#"{"keys":[7]}"#);
        let asked = |given: &str| verify(&bench, &root, &["--anchor", &format!("{ISSUER}={given}")]);
        asked("broken.json").failed(2, &["the key file broken.json: keys[0]: "]);
        asked(r#"{"keys":[]}"#).failed(2, &["on the command line: none of its 0 keys"]);
        // An option for one key accepts no set.
        let holder = ["mint", "--key", "one.jwk", "--holder", "jwks.json", "--tool", "pay"];
        bench
            .run(&holder)
            .failed(2, &["the key file jwks.json", "give a file with one JWK"]);
    }
}

/// The same token with a `kid` in its header, signed again.
fn with_key_id(bench: &Workbench, key: &str, token: &str, id: &str) -> String {
    let key = SigningKey::from_jwk_text(&std::fs::read(bench.path(key)).unwrap()).unwrap();
    let claims = token.split('.').nth(1).unwrap();
    let header = format!(r#"{{"alg":"{}","kid":"{id}","typ":"aat+jwt"}}"#, key.algorithm());
    let input = format!("{}.{claims}", URL_SAFE_NO_PAD.encode(header));
    let signature = URL_SAFE_NO_PAD.encode(key.sign(input.as_bytes()));
    format!("{input}.{signature}")
}

fn read(bench: &Workbench, name: &str) -> String {
    std::fs::read_to_string(bench.path(name)).unwrap().trim().to_owned()
}
