//! `credence verify --jsonl`: an interface that scripts rely on.

mod common;

use common::{Ran, Workbench};

const ISSUER: &str = "https://id.example.com";
const SERVICE: &str = "https://tools.example.com";
const NOW: &str = "1700000000";

/// The parts of one case, as JSON texts.
struct Case {
    bench: Workbench,
    members: Vec<(&'static str, String)>,
}

impl Case {
    /// A case that is allowed: one token for the tool `pay` with any `id`, no proof.
    fn allowed() -> Self {
        let bench = Workbench::new();
        bench.keys(&["issuer", "agent"]);
        let token = bench
            .run(&[
                "mint",
                "--key",
                "issuer.jwk",
                "--issuer",
                ISSUER,
                "--holder",
                "agent.pub",
                "--issued-at",
                NOW,
                "--tool",
                r#"pay={"id":{"constraint_type":"wildcard"}}"#,
            ])
            .succeeded();
        let jwk = std::fs::read_to_string(bench.path("issuer.pub")).unwrap();
        let members = vec![
            ("id", r#""one""#.to_owned()),
            ("anchors", format!(r#"[{{"iss":"{ISSUER}","jwk":{}}}]"#, jwk.trim())),
            ("chain", format!(r#"["{token}"]"#)),
            ("proof", "null".to_owned()),
            ("tool", r#""pay""#.to_owned()),
            ("args", r#"{"id":1}"#.to_owned()),
            ("now", NOW.to_owned()),
            ("audience", format!(r#"["{SERVICE}"]"#)),
            ("policy", r#"{"proof":"none"}"#.to_owned()),
        ];
        Self { bench, members }
    }

    fn with(&self, name: &str, value: &str) -> String {
        self.line(|taken| if taken == name { Some(value) } else { None })
    }

    fn without(&self, name: &str) -> String {
        let members: Vec<_> = self.members.iter().filter(|(taken, _)| *taken != name).collect();
        let members: Vec<_> = members
            .iter()
            .map(|(name, value)| format!(r#""{name}":{value}"#))
            .collect();
        format!("{{{}}}\n", members.join(","))
    }

    fn line<'a>(&'a self, replaced: impl Fn(&str) -> Option<&'a str>) -> String {
        let members: Vec<_> = self
            .members
            .iter()
            .map(|(name, value)| format!(r#""{name}":{}"#, replaced(name).unwrap_or(value)))
            .collect();
        format!("{{{}}}\n", members.join(","))
    }

    fn asked(&self, lines: &str) -> Ran {
        self.bench.run_with_input(&["verify", "--jsonl"], lines)
    }
}

const ALLOWED: &str = "{\"id\":\"one\",\"decision\":\"allow\",\"step\":null,\"reason\":null}\n";

#[test]
fn each_case_gets_one_line_in_order_and_denials_do_not_fail_the_run() {
    let case = Case::allowed();
    let lines = [
        case.with("id", r#""a""#),
        case.with("tool", r#""refund""#),
        "\n".to_owned(),
        case.line(|_| None),
    ];
    let ran = case.asked(&lines.concat());
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(ran.stderr, "");
    let expected = [
        r#"{"id":"a","decision":"allow","step":null,"reason":null}"#,
        r#"{"id":"one","decision":"deny","step":"6b","reason":"the tool is not granted"}"#,
        ALLOWED.trim(),
    ];
    assert_eq!(ran.stdout.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn what_may_be_left_out_and_what_may_be_written_shorter() {
    let case = Case::allowed();
    for line in [
        case.without("proof"),
        case.with("audience", &format!("\"{SERVICE}\"")),
        case.line(|_| None),
    ] {
        assert_eq!(case.asked(&line).stdout, ALLOWED, "{line}");
    }
    assert_eq!(
        case.asked(case.line(|_| None).trim_end()).stdout,
        ALLOWED,
        "a last line without its end"
    );
    // Without a policy a proof is required.
    assert!(case.asked(&case.without("policy")).stdout.contains(r#""step":"7a""#));
}

#[test]
fn a_number_that_loses_digits_denies_at_6b() {
    let case = Case::allowed();
    for (number, decision) in [
        ("9007199254740993", r#""step":"6b""#),
        ("1.00000000000000001", r#""step":"6b""#),
        ("1e400", r#""step":"6b""#),
        ("9007199254740994", r#""decision":"allow""#),
        (r#"{"$serde_json::private::Number":"5"}"#, r#""decision":"allow""#),
    ] {
        let ran = case.asked(&case.with("args", &format!(r#"{{"id":{number}}}"#)));
        assert!(ran.stdout.contains(decision), "{number}: {ran:?}");
    }
}

#[test]
fn algs_apply_to_anchors_and_holders() {
    let case = Case::allowed();
    for (algorithms, expected) in [
        (r#"["EdDSA"]"#, r#""step":"3a""#),
        (r#"[]"#, r#""step":"3a""#),
        (r#"["EdDSA","Ed25519"]"#, r#""decision":"allow""#),
    ] {
        let ran = case.asked(&case.with("policy", &format!(r#"{{"proof":"none","algs":{algorithms}}}"#)));
        assert!(ran.stdout.contains(expected), "{algorithms}: {ran:?}");
    }
}

#[test]
fn a_chain_audience_can_be_required() {
    let case = Case::allowed();
    let ran = case.asked(&case.with("policy", r#"{"proof":"none","require_chain_aud":true}"#));
    assert!(ran.stdout.contains(r#""step":"6c""#), "{ran:?}");
}

#[test]
fn chains_that_are_empty_or_not_tokens_are_denied_and_not_refused() {
    let case = Case::allowed();
    let long = format!("[\"{}\"]", "x".repeat(300_000));
    for (chain, step) in [
        ("[]", "1"),
        (r#"["x"]"#, "2c"),
        (r#"[""]"#, "2c"),
        (long.as_str(), "2a"),
    ] {
        let ran = case.asked(&case.with("chain", chain));
        assert!(
            ran.code == 0 && ran.stdout.contains(&format!(r#""step":"{step}""#)),
            "{step}: {ran:?}"
        );
    }
}

#[test]
fn a_line_that_is_no_case_is_named_and_the_others_are_answered() {
    let case = Case::allowed();
    let anchor = |jwk: &str| format!(r#"[{{"iss":"i","jwk":{jwk}}}]"#);
    let good = case.line(|_| None);
    for (bad, said) in [
        ("hello\n".to_owned(), "line 2: not valid JSON"),
        ("[]\n".to_owned(), "line 2: a case must be an object"),
        (
            good.replacen('{', r#"{"id":"two","#, 1),
            "the member \"id\" occurs twice",
        ),
        (
            good.replacen('{', r#"{"audiences":[],"#, 1),
            "a case has an unknown member \"audiences\"",
        ),
        (case.without("now"), "now must be there"),
        (case.without("audience"), "audience must be there"),
        (case.with("now", "1.5"), "now must be whole seconds"),
        (case.with("id", "1"), "id must be a string"),
        (case.with("chain", "[1]"), "chain must be an array of strings"),
        (case.with("args", "[]"), "args must be an object"),
        (case.with("proof", "false"), "proof must be a string"),
        (
            case.with("policy", r#"{"require_pop_audience":true}"#),
            "policy has an unknown member \"require_pop_audience\"",
        ),
        (
            case.with("policy", r#"{"require_pop_aud":1}"#),
            "policy.require_pop_aud must be true or false",
        ),
        (
            case.with("policy", r#"{"proof":null}"#),
            "policy.proof must be \"none\"",
        ),
        (
            case.with("policy", r#"{"nonce":null}"#),
            "policy.nonce must be a string",
        ),
        (
            case.with("policy", r#"{"algs":["none"]}"#),
            "policy.algs must be an array of \"Ed25519\" or \"EdDSA\"",
        ),
        (
            case.with("policy", r#"{"algs":"Ed25519"}"#),
            "policy.algs must be an array",
        ),
        (case.with("anchors", &anchor("{}")), "anchors[0].jwk: the JWK needs"),
        (
            case.with("anchors", r#"[{"issuer":"i"}]"#),
            "anchors[0] has an unknown member \"issuer\"",
        ),
        (
            case.with("anchors", r#"[{"iss":"i"}]"#),
            "anchors[0].jwk must be a public JWK",
        ),
    ] {
        let ran = case.asked(&format!("{good}{bad}{good}"));
        assert_eq!(ran.code, 2, "{said}: {ran:?}");
        assert_eq!(ran.stdout, format!("{ALLOWED}{ALLOWED}"), "{said}");
        assert!(
            ran.stderr.contains("line 2: ") && ran.stderr.contains(said),
            "{said:?} is not in {}",
            ran.stderr
        );
    }
}

#[test]
fn an_endless_line_is_passed_over() {
    let case = Case::allowed();
    let good = case.line(|_| None);
    let ran = case.asked(&format!("{}\n{good}", "x".repeat(17 << 20)));
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ALLOWED));
    assert!(ran.stderr.contains("line 1: longer than"), "{}", ran.stderr);
}
