//! Error messages and exit codes of the program.

use crate::common::Workbench;

const MINT: [&str; 7] = [
    "mint",
    "--key",
    "issuer.jwk",
    "--issuer",
    "https://id.example.com",
    "--holder",
    "agent.pub",
];

fn bench() -> Workbench {
    let bench = Workbench::new();
    bench.keys(&["issuer", "agent", "helper"]);
    bench
}

fn mint(bench: &Workbench, more: &[&str]) -> crate::common::Ran {
    bench.run(&[&MINT, more].concat())
}

fn derive(bench: &Workbench, parent: &str, more: &[&str]) -> crate::common::Ran {
    bench.run(
        &[
            &[
                "derive",
                "--parent",
                parent,
                "--key",
                "agent.jwk",
                "--holder",
                "helper.pub",
            ],
            more,
        ]
        .concat(),
    )
}

const AMOUNT_TO_100: &str = r#"pay={"amount":{"constraint_type":"range","max":100}}"#;
const AMOUNT_TO_200: &str = r#"pay={"amount":{"constraint_type":"range","max":200}}"#;

#[test]
fn only_the_holder_can_derive_and_prove() {
    let bench = bench();
    let root = mint(&bench, &["--tool", AMOUNT_TO_100, "--max-depth", "1"]).succeeded();
    let said = [
        "the key is not the holder's",
        "give --key the private key file of the token's holder",
    ];
    let derive = [
        "derive",
        "--parent",
        &root,
        "--key",
        "helper.jwk",
        "--holder",
        "helper.pub",
        "--same-tools",
    ];
    bench.run(&derive).failed(1, &said);
    bench
        .run(&["prove", "--chain", &root, "--key", "helper.jwk", "--tool", "pay"])
        .failed(1, &said);
}

#[test]
fn a_derived_token_cannot_widen_its_parent() {
    let bench = bench();
    let root = mint(&bench, &["--tool", AMOUNT_TO_100, "--max-depth", "1"]).succeeded();
    derive(&bench, &root, &["--tool", AMOUNT_TO_200])
        .failed(1, &["step 4p4", "\"amount\" of \"pay\"", "`credence inspect`"]);
    derive(&bench, &root, &["--tool", "refund"]).failed(1, &["step 4p1", "\"refund\""]);
    derive(&bench, &root, &["--tool", "pay"]).failed(1, &["step 4p2"]);
    derive(&bench, &root, &["--same-tools", "--max-depth", "2"]).failed(1, &["step 4g", "give a --max-depth"]);
}

#[test]
fn no_token_can_be_derived_at_the_maximum_depth() {
    let bench = bench();
    let root = mint(&bench, &["--tool", "pay"]).succeeded();
    derive(&bench, &root, &["--same-tools"]).failed(1, &["step 4e", "nothing can be derived from it"]);
}

#[test]
fn the_granted_tools_must_be_given() {
    let bench = bench();
    mint(&bench, &[]).failed(2, &["give --tool NAME[=CONSTRAINTS] or --tools FILE"]);
    let root = mint(&bench, &["--tool", "pay", "--max-depth", "1"]).succeeded();
    derive(&bench, &root, &[]).failed(2, &["--same-tools"]);
    derive(&bench, &root, &["--same-tools", "--tool", "pay"]).failed(2, &["cannot be used with"]);
}

#[test]
fn tools_are_read_strictly() {
    let bench = bench();
    mint(&bench, &["--tools", "none.json"]).failed(2, &["none.json cannot be opened", "JSON object of tool names"]);
    mint(&bench, &["--tools", bench.file("list.json", "[]")]).failed(2, &["list.json: not a JSON object"]);
    mint(&bench, &["--tools", bench.file("twice.json", r#"{"pay":{},"pay":{}}"#)])
        .failed(2, &["twice.json", "\"pay\" occurs twice"]);
    mint(
        &bench,
        &["--tools", bench.file("pay.json", r#"{"pay":{}}"#), "--tool", "pay"],
    )
    .failed(2, &["the tool \"pay\" is given twice"]);
    mint(&bench, &["--tool", "pay={"]).failed(2, &["--tool pay: not valid JSON"]);
    mint(&bench, &["--tool", "={}"]).failed(2, &["no name"]);
    mint(
        &bench,
        &[
            "--tool",
            r#"pay={"a":{"constraint_type":"exact","value":9007199254740993}}"#,
        ],
    )
    .failed(2, &["9007199254740993 loses digits", "write it as a string"]);
    mint(&bench, &["--tool", r#"pay={"a":{"constraint_type":"regex"}}"#])
        .failed(1, &["unknown constraint_type \"regex\"", "correct the constraints"]);
}

#[test]
fn limits_of_time_and_depth_are_named() {
    let bench = bench();
    mint(&bench, &["--tool", "t", "--ttl", "91d"]).failed(1, &["step 3h", "at most 90d"]);
    mint(&bench, &["--tool", "t", "--ttl", "0s"]).failed(1, &["at least one second"]);
    mint(&bench, &["--tool", "t", "--ttl", "1w"]).failed(2, &["90s, 15m, 1h or 30d"]);
    mint(&bench, &["--tool", "t", "--max-depth", "9"]).failed(1, &["step 3i", "from 0 to 8"]);
}

#[test]
fn a_root_that_no_verifier_accepts_is_not_made() {
    let bench = bench();
    for epoch in ["-1", "1.5", "9007199254740992", "99999999999999999999999"] {
        mint(&bench, &["--tool", "t", "--epoch", epoch]).failed(
            2,
            &[
                "--epoch",
                "a whole number from 0 to 9007199254740991",
                "`credence revoke principal`",
            ],
        );
    }
    for option in ["--subject", "--id", "--audience"] {
        mint(&bench, &["--tool", "t", option, ""]).failed(2, &["a value is required for", option]);
    }
    let issuer_is = |issuer: &str| {
        let key = ["mint", "--key", "issuer.jwk", "--holder", "agent.pub", "--tool", "t"];
        bench.run(&[&key[..], &["--issuer", issuer]].concat())
    };
    issuer_is("").failed(2, &["a value is required for", "--issuer"]);
    issuer_is("nouri").failed(1, &["give --issuer a URI, such as https://id.example.com"]);
}

#[test]
fn a_proof_that_no_service_accepts_is_not_made() {
    let bench = bench();
    let root = mint(&bench, &["--tool", "t"]).succeeded();
    let prove = ["prove", "--chain", &root, "--key", "agent.jwk", "--tool", "t"];
    for option in ["--audience", "--nonce", "--id"] {
        bench
            .run(&[&prove[..], &[option, ""]].concat())
            .failed(2, &["a value is required for", option]);
    }
}

#[test]
fn a_time_is_a_number_of_seconds_that_can_be_a_date() {
    let bench = bench();
    let root = mint(&bench, &["--tool", "t"]).succeeded();
    let said = |option| {
        [
            option,
            "whole seconds since the Unix epoch, from 0 to 253402300799",
            "9999-12-31",
        ]
    };
    for time in ["-5", "1.5", "now", "253402300800", "99999999999999999999"] {
        mint(&bench, &["--tool", "t", "--issued-at", time]).failed(2, &said("--issued-at"));
        let prove = [
            "prove",
            "--chain",
            &root,
            "--key",
            "agent.jwk",
            "--tool",
            "t",
            "--issued-at",
            time,
        ];
        bench.run(&prove).failed(2, &said("--issued-at"));
        let anchor = ["--anchor", "https://id.example.com=issuer.pub", "--no-proof"];
        let verify = ["verify", "--chain", &root, "--tool", "t", "--now", time];
        bench.run(&[&verify[..], &anchor].concat()).failed(2, &said("--now"));
    }
}

#[test]
fn a_time_of_issue_far_from_the_clock_is_warned_of() {
    let bench = bench();
    let made = mint(&bench, &["--tool", "t", "--issued-at", "1700000000"]);
    let warning = "warning: --issued-at 1700000000 is 2023-11-14T22:13:20Z, ";
    assert!(
        made.stderr.contains(warning) && made.stderr.contains(" days ago"),
        "{made:?}"
    );
    let root = mint(&bench, &["--tool", "t"]);
    assert_eq!(root.stderr, "");
    let prove = [
        "prove",
        "--chain",
        &root.succeeded(),
        "--key",
        "agent.jwk",
        "--tool",
        "t",
    ];
    let proof = bench.run(&[&prove[..], &["--issued-at", "4000000000"]].concat());
    assert!(proof.code == 1 && proof.stderr.contains("expired"), "{proof:?}");
}

#[test]
fn an_expired_token_derives_and_proves_nothing() {
    let bench = bench();
    let grant = ["--tool", "t", "--max-depth", "2", "--issued-at", "1700000000"];
    let root = mint(&bench, &grant).succeeded();
    let chain = derive(&bench, &root, &grant).succeeded();
    let said = [
        "the chain's last token expired at 2023-11-14T23:13:20Z",
        "ask for a new one",
    ];
    for chain in [&root, &chain] {
        derive(&bench, chain, &["--same-tools"]).failed(1, &said);
        bench
            .run(&["prove", "--chain", chain, "--key", "helper.jwk", "--tool", "t"])
            .failed(1, &said);
    }
}

#[test]
fn no_token_or_proof_is_issued_before_its_parent() {
    let bench = bench();
    let root = mint(
        &bench,
        &["--tool", "t", "--max-depth", "2", "--issued-at", "4000000000"],
    )
    .succeeded();
    let chain = derive(&bench, &root, &["--same-tools", "--issued-at", "4000000000"]).succeeded();
    let given = [
        "issued at 2096-10-02T07:06:40Z, after the --issued-at 1700000000 (2023-11-14T22:13:20Z)",
        "give an --issued-at that is not before the token's, or leave it out",
    ];
    let clock = [
        "by the clock of this machine it is 2",
        "set the clock, or give the time as --issued-at",
    ];
    for (chain, key) in [(&root, "agent.jwk"), (&chain, "helper.jwk")] {
        let derive = [
            "derive",
            "--parent",
            chain,
            "--key",
            key,
            "--holder",
            "helper.pub",
            "--same-tools",
        ];
        let prove = ["prove", "--chain", chain, "--key", key, "--tool", "t"];
        for command in [&derive[..], &prove] {
            bench
                .run(&[command, &["--issued-at", "1700000000"]].concat())
                .failed(1, &given);
            bench.run(command).failed(1, &clock);
        }
    }
    // Clocks differ a little, and verifiers allow for that; but no token is older than its parent.
    let early = ["--issued-at", "3999999980"];
    bench
        .run(
            &[
                &["prove", "--chain", &root, "--key", "agent.jwk", "--tool", "t"][..],
                &early,
            ]
            .concat(),
        )
        .succeeded();
    derive(&bench, &root, &[&["--same-tools"], &early[..]].concat()).failed(1, &["after the --issued-at"]);
}

#[test]
fn a_token_with_a_name_that_filters_deny_is_not_made() {
    let bench = bench();
    let (longest, longer) = ("é".repeat(128), "x".repeat(257));
    let root = mint(
        &bench,
        &[
            "--tool",
            "t",
            "--max-depth",
            "1",
            "--id",
            &longest,
            "--subject",
            &longest,
        ],
    )
    .succeeded();
    let said =
        |option: &str| format!("{option} has 257 bytes, but filters deny every request with a name of more than 256");
    mint(&bench, &["--tool", "t", "--id", &longer]).failed(1, &[&said("--id"), "give a shorter one"]);
    mint(&bench, &["--tool", "t", "--subject", &longer]).failed(1, &[&said("--subject")]);
    derive(&bench, &root, &["--same-tools", "--id", &longer]).failed(1, &[&said("--id")]);
}

#[test]
fn an_invalid_key_file_is_refused_with_the_reason() {
    let bench = bench();
    let with_key = |key: &str| {
        bench.run(&[
            "mint",
            "--key",
            key,
            "--issuer",
            "i",
            "--holder",
            "agent.pub",
            "--tool",
            "t",
        ])
    };
    with_key("").failed(2, &["--key"]);
    with_key("none.jwk").failed(2, &["none.jwk cannot be opened"]);
    with_key("issuer.pub").failed(2, &["holds only a public key", "credence keygen"]);
    with_key(bench.file("text", "hello")).failed(2, &["not valid JSON"]);
    let with_holder = |holder: &str| {
        bench.run(&[
            "mint",
            "--key",
            "issuer.jwk",
            "--issuer",
            "i",
            "--holder",
            holder,
            "--tool",
            "t",
        ])
    };
    with_holder(r#"{"kty":"RSA"}"#).failed(2, &["kty \"RSA\"", "Ed25519"]);
}

#[test]
fn a_private_key_on_the_command_line_counts_as_its_public_half_with_a_warning() {
    let bench = bench();
    let private = std::fs::read_to_string(bench.path("agent.jwk")).unwrap();
    let holder_is = |holder: &str| {
        bench.run(&[
            "mint",
            "--key",
            "issuer.jwk",
            "--issuer",
            "https://id.example.com",
            "--holder",
            holder,
            "--tool",
            "t",
            "--id",
            "1",
            "--issued-at",
            "1700000000",
        ])
    };
    let (inline, file) = (holder_is(private.trim()), holder_is("agent.jwk"));
    assert_eq!((inline.code, &inline.stdout), (0, &file.stdout));
    assert!(
        inline
            .stderr
            .contains("warning: the JWK on the command line is a private key")
    );
    assert!(!file.stderr.contains("private key"), "{file:?}");
    assert!(
        !inline.stderr.contains(secret_of(&private)),
        "the private key is printed"
    );
}

#[test]
fn a_private_key_in_place_of_its_file_is_not_printed() {
    let bench = bench();
    let private = std::fs::read_to_string(bench.path("issuer.jwk")).unwrap();
    let jwk = private.trim();
    let root = mint(&bench, &["--tool", "t", "--max-depth", "1"]).succeeded();
    let list = format!("[{jwk}]");
    let at = format!("@{jwk}");
    let with_kid = jwk.replacen('{', r#"{"kid":"a=b","#, 1);
    let without_braces = jwk.trim_matches(['{', '}']);
    let anchor = |given: &str| format!("https://id.example.com={given}");
    let (of_list, of_part) = (anchor(&list), anchor(without_braces));
    let of_list_with_kid = anchor(&format!("[{with_kid}]"));

    let mut commands: Vec<Vec<&str>> = Vec::new();
    for given in [jwk, &list, &at, without_braces] {
        commands.push(vec!["mint", "--key", given, "--holder", "agent.pub", "--tool", "t"]);
        commands.push(vec![
            "derive",
            "--parent",
            &root,
            "--key",
            given,
            "--holder",
            "agent.pub",
            "--same-tools",
        ]);
        commands.push(vec!["prove", "--chain", &root, "--key", given, "--tool", "t"]);
        commands.push(vec![
            "mint",
            "--key",
            "issuer.jwk",
            "--holder",
            "agent.pub",
            "--tools",
            given,
        ]);
        commands.push(vec![
            "prove",
            "--chain",
            &root,
            "--key",
            "agent.jwk",
            "--tool",
            "t",
            "--args",
            given,
        ]);
        commands.push(vec!["keygen", "--out", given]);
        commands.push(vec!["keygen", given]);
        commands.push(vec!["mint", "--key", "issuer.jwk", given]);
        commands.push(vec![
            "mint",
            "--key",
            "issuer.jwk",
            "--holder",
            "agent.pub",
            "--tool",
            "t",
            "--ttl",
            given,
        ]);
        commands.push(vec!["config", "check", given]);
    }
    for given in [&list, &at, without_braces] {
        commands.push(vec!["mint", "--key", "issuer.jwk", "--tool", "t", "--holder", given]);
    }
    for given in [
        jwk,
        &list,
        &with_kid,
        without_braces,
        &of_list,
        &of_list_with_kid,
        &of_part,
    ] {
        commands.push(vec![
            "verify",
            "--chain",
            &root,
            "--tool",
            "t",
            "--no-proof",
            "--anchor",
            given,
        ]);
    }
    for command in commands {
        let ran = bench.run(&command);
        assert!(
            !ran.stderr.contains(secret_of(jwk)),
            "the private key is printed: {command:?}"
        );
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{command:?}");
        let said = ["looks like a JWK", "looks like a private JWK"];
        assert!(
            said.iter().any(|said| ran.stderr.contains(said)),
            "{command:?}: {ran:?}"
        );
        assert!(ran.stderr.contains("its file"), "{ran:?}");
    }
}

/// The private member of a JWK that `keygen` wrote.
fn secret_of(jwk: &str) -> &str {
    let (_, secret) = jwk.split_once(r#""d":""#).unwrap();
    &secret[..43]
}

#[test]
fn an_argument_is_given_once_and_in_its_form() {
    let bench = bench();
    let root = mint(&bench, &["--tool", "pay"]).succeeded();
    let prove = |more: &[&str]| {
        bench.run(
            &[
                &["prove", "--chain", &root, "--key", "agent.jwk", "--tool", "pay"],
                more,
            ]
            .concat(),
        )
    };
    prove(&["--arg", "a=1", "--arg-json", "a=1"]).failed(2, &["the argument \"a\" is given twice"]);
    prove(&["--arg", "a"]).failed(2, &["write --arg NAME=TEXT"]);
    prove(&["--arg-json", "a=hello"]).failed(2, &["not valid JSON", "use --arg a="]);
    prove(&["--arg-json", "a=9007199254740993"]).failed(2, &["loses digits"]);
    prove(&["--args", bench.file("args", "[]")]).failed(2, &["not a JSON object"]);
}

#[test]
fn a_text_that_is_not_a_chain_is_an_error() {
    let bench = bench();
    bench.run(&["inspect", ""]).failed(2, &["the chain is empty"]);
    bench
        .run(&["inspect", "abc"])
        .failed(2, &["token 1 of the chain cannot be read", "three parts"]);
    bench
        .run(&["inspect", "@none"])
        .failed(2, &["the file none cannot be opened"]);
    bench
        .run(&["inspect", "YQ.e30.c"])
        .failed(2, &["its header: not valid JSON"]);
    bench
        .run_with_input(&["inspect", "-"], &"x".repeat(2 << 20))
        .failed(2, &["standard input is longer than 1048576 bytes"]);
}

#[test]
fn a_single_verification_needs_its_options() {
    let bench = bench();
    bench.run(&["verify"]).failed(2, &["--chain", "--anchor", "--tool"]);
    let root = mint(&bench, &["--tool", "pay"]).succeeded();
    let verify = |anchor: &str, more: &[&str]| {
        bench.run(
            &[
                &[
                    "verify",
                    "--chain",
                    &root,
                    "--tool",
                    "pay",
                    "--no-proof",
                    "--anchor",
                    anchor,
                ],
                more,
            ]
            .concat(),
        )
    };
    verify("https://id.example.com", &[]).failed(2, &["write ISSUER=JWK"]);
    verify("https://id.example.com=issuer.pub", &["--algorithm", "RS256"])
        .failed(2, &["Ed25519, EdDSA, ES256, ES256K"]);
    assert_eq!(verify("https://id.example.com=issuer.pub", &[]).code, 0);
    let jwk = std::fs::read_to_string(bench.path("issuer.pub")).unwrap();
    let named = jwk.trim().replacen('{', r#"{"kid":"a={b}=","#, 1);
    assert_eq!(verify(&format!("https://id.example.com={named}"), &[]).code, 0);
    verify("=issuer.pub", &[]).failed(2, &["write ISSUER=JWK"]);
    verify("https://id.example.com=", &[]).failed(2, &["write ISSUER=JWK"]);
    assert_eq!(verify("https://id.example.com=agent.pub", &[]).code, 1);
    assert_eq!(verify("https://other.example.com=issuer.pub", &[]).code, 1);
}

#[test]
fn help_states_the_exit_codes() {
    let help = bench().run(&["--help"]).succeeded();
    assert!(
        help.contains("Exit codes:\n  0  done; for a decision: allow\n  1  denied"),
        "{help}"
    );
}
