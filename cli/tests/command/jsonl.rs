//! `credence verify --jsonl`: an interface for scripts.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use credence_delegation::SigningKey;
use sha2::{Digest as _, Sha256};

use crate::common::{Ran, Workbench};

const ISSUER: &str = "https://id.example.com";
const SERVICE: &str = "https://tools.example.com";
const NOW: &str = "1700000000";

/// An issuer whose name is a key that no test has.
const DID: &str = "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK";

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

    fn issuer_jwk(&self) -> String {
        let jwk = std::fs::read_to_string(self.bench.path("issuer.pub")).unwrap();
        jwk.trim().to_owned()
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
fn members_may_be_left_out_or_written_in_short_form() {
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
        (r#"["none","ES256"]"#, r#""step":"3a""#),
        (r#"["none","Ed25519"]"#, r#""decision":"allow""#),
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
fn a_line_that_is_not_a_case_is_denied_by_its_id_and_the_others_are_answered() {
    let case = Case::allowed();
    let good = case.line(|_| None);
    let nested = format!(r#"{{"id":{}1{}}}"#, "[".repeat(81), "]".repeat(81));
    for (bad, id, said) in [
        ("hello\n".to_owned(), "null", "not valid JSON"),
        ("[]\n".to_owned(), "null", "a case must be an object"),
        (
            good.replacen("{\"id\":\"one\",", "{\"id\":\"one\",,", 1),
            r#""one""#,
            "not valid JSON",
        ),
        (
            good.replacen('{', r#"{"id":"two","#, 1),
            "null",
            "the member \"id\" occurs twice",
        ),
        (
            case.with("args", r#"{"id":1,"id":2}"#),
            r#""one""#,
            "the member \"id\" occurs twice",
        ),
        (case.with("args", &nested), r#""one""#, "nested deeper than 80 levels"),
        (case.with("args", r#"{"id":"\ud800"}"#), r#""one""#, "not valid JSON"),
        (case.with("id", "[]"), "null", "id must be a string, a number"),
        (case.without("id"), "null", "id must be there"),
        (case.without("now"), r#""one""#, "now must be there"),
        (case.without("audience"), r#""one""#, "audience must be there"),
        (case.without("anchors"), r#""one""#, "anchors must be there"),
        (case.with("now", "1.5"), r#""one""#, "now must be whole seconds"),
        (case.with("now", "1e300"), r#""one""#, "now must be whole seconds"),
        (
            case.with("now", "1700000000.00000001"),
            r#""one""#,
            "now must be whole seconds",
        ),
        (
            case.with("now", "\"1700000000\""),
            r#""one""#,
            "now must be whole seconds",
        ),
        (
            case.with("chain", "[1]"),
            r#""one""#,
            "chain must be an array of strings",
        ),
        (case.with("tool", "null"), r#""one""#, "tool must be a string"),
        (case.with("args", "[]"), r#""one""#, "args must be an object"),
        (case.with("proof", "false"), r#""one""#, "proof must be a string"),
        (case.with("policy", "[]"), r#""one""#, "policy must be an object"),
        (
            case.with("policy", r#"{"require_pop_aud":1}"#),
            r#""one""#,
            "policy.require_pop_aud must be true or false",
        ),
        (
            case.with("policy", r#"{"algs":"Ed25519"}"#),
            r#""one""#,
            "policy.algs must be an array",
        ),
        (
            case.with("anchors", r#"[{"issuer":"i"}]"#),
            r#""one""#,
            "anchors[0].iss must be a string",
        ),
        (
            case.with("anchors", r#"[{"iss":"i"}]"#),
            r#""one""#,
            "anchors[0].jwk must be a public JWK",
        ),
    ] {
        let ran = case.asked(&format!("{good}{bad}{good}"));
        assert_eq!(ran.code, 2, "{said}: {ran:?}");
        let answers: Vec<_> = ran.stdout.lines().collect();
        assert_eq!(answers.len(), 3, "{said}: {ran:?}");
        assert_eq!((answers[0], answers[2]), (ALLOWED.trim(), ALLOWED.trim()));
        let denied = format!(r#"{{"id":{id},"decision":"deny","step":null,"reason":"not a case: "#);
        assert!(answers[1].starts_with(&denied), "{said}: {ran:?}");
        assert!(
            answers[1].contains(&said.replace('"', "\\\"")),
            "{said:?} is not in {}",
            answers[1]
        );
        assert!(
            ran.stderr.contains("line 2: not a case: ") && ran.stderr.contains(said),
            "{said:?} is not in {}",
            ran.stderr
        );
        assert!(ran.stderr.contains("1 line is not a case"), "{}", ran.stderr);
    }
}

#[test]
fn a_line_that_is_not_utf_8_is_denied_by_its_id() {
    let case = Case::allowed();
    let mut line = case.line(|_| None).into_bytes();
    let place = line.len() - 3;
    line.splice(place..place, *b",\"title\":\"\xff\"");
    let ran = case.bench.run_with_bytes(&["verify", "--jsonl"], &line);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert_eq!(ran.stdout.lines().count(), 1, "{ran:?}");
    assert!(ran.stdout.contains("not UTF-8"), "{ran:?}");
}

#[test]
fn unknown_members_of_a_case_are_ignored() {
    let case = Case::allowed();
    let good = case.line(|_| None);
    let noted = good.replacen('{', r#"{"title":"t","expected":{"verdict":"DENY"},"notes":[1],"#, 1);
    let ran = case.asked(&noted);
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (0, ALLOWED, ""));
}

#[test]
fn an_id_is_any_scalar_and_is_returned_as_written() {
    let case = Case::allowed();
    for id in ["7", "1.50", "9007199254740993", "null", "true", r#""a\\b""#] {
        let ran = case.asked(&case.with("id", id));
        assert_eq!((ran.code, ran.stdout), (0, ALLOWED.replace(r#""one""#, id)));
    }
    // Some readers of lines end a line at these characters.
    let ran = case.asked(&case.with("id", "\"a\u{85}b\u{2028}c\u{2029}d\""));
    assert_eq!(ran.stdout, ALLOWED.replace("one", "a\\u0085b\\u2028c\\u2029d"));
}

#[test]
fn now_is_a_number_of_whole_seconds_in_any_notation() {
    let case = Case::allowed();
    for now in ["1700000000.0", "1.7e9", "17000000000e-1"] {
        assert_eq!(case.asked(&case.with("now", now)).stdout, ALLOWED, "{now}");
    }
}

#[test]
fn arguments_may_be_left_out() {
    let case = Case::allowed();
    for line in [case.without("args"), case.with("args", "null")] {
        let (empty, left_out) = (case.asked(&case.with("args", "{}")), case.asked(&line));
        assert!(empty.stdout.contains(r#""step":"6b""#), "{empty:?}");
        assert_eq!((left_out.code, left_out.stdout), (0, empty.stdout));
    }
}

#[test]
fn missing_members_of_a_policy_have_defaults() {
    let case = Case::allowed();
    let nothing = r#"{"proof":"none","require_pop_aud":null,"require_chain_aud":null,"nonce":null,"algs":null}"#;
    assert_eq!(case.asked(&case.with("policy", nothing)).stdout, ALLOWED);
    for policy in [
        "null",
        "{}",
        r#"{"proof":null}"#,
        r#"{"proof":"pop"}"#,
        r#"{"proof":"required"}"#,
    ] {
        let ran = case.asked(&case.with("policy", policy));
        assert!(ran.stdout.contains(r#""step":"7a""#), "{policy}: {ran:?}");
    }
}

#[test]
fn a_policy_that_is_unknown_denies() {
    let case = Case::allowed();
    for (policy, reason) in [
        (
            r#"{"proof":"none","require_pop_audience":true}"#,
            r#"policy has an unknown member \"require_pop_audience\"; it may have require_pop_aud,"#,
        ),
        (
            r#"{"proof":"None"}"#,
            r#"policy.proof is \"None\", which is unknown; it may be \"none\", \"pop\" or \"required\""#,
        ),
    ] {
        let ran = case.asked(&case.with("policy", policy));
        let denied = format!(r#"{{"id":"one","decision":"deny","step":null,"reason":"{reason}"#);
        assert!(ran.stdout.starts_with(&denied), "{ran:?}");
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    }
}

#[test]
fn an_anchor_that_cannot_be_used_is_not_trusted() {
    let case = Case::allowed();
    let good = case.members[1].1.trim_matches(['[', ']']).to_owned();
    let jwk = &case.issuer_jwk();
    let anchor = |jwk: &str| format!(r#"{{"iss":"{ISSUER}","jwk":{jwk}}}"#);
    let set = |jwks: &str| format!(r#"{{"iss":"{ISSUER}","jwks":{jwks}}}"#);
    for (bad, said) in [
        (
            anchor(r#"{"kty":"RSA","n":"AQAB","e":"AQAB"}"#),
            "unsupported key: kty \"RSA\"",
        ),
        (
            anchor(r#"{"kty":"EC","crv":"P-256","x":"A","y":"A"}"#),
            "\"x\" must be 32 bytes",
        ),
        (anchor("{}"), "the JWK needs"),
        (anchor("7"), "a JWK is a JSON object"),
        (
            good.replacen('{', r#"{"algorithms":["EdDSA"],"#, 1),
            "it has an unknown member \"algorithms\"; it can have iss, jwk, jwks",
        ),
        (
            good.replacen('{', r#"{"jwks":{"keys":[]},"#, 1),
            "it has both \"jwk\" and \"jwks\"",
        ),
        (set("7"), "a JWK set is a JSON object"),
        (set(r#"{"keys":[]}"#), "none of its 0 keys"),
        (set(r#"{"keys":[{}]}"#), "keys[0]: the JWK needs"),
        (
            format!(r#"{{"iss":"{}","jwk":{jwk}}}"#, "did:key:z6Mk"),
            "its multicodec is not",
        ),
        (r#"{"iss":"did:key:#"}"#.to_owned(), "not a did:key"),
        (
            format!(r#"{{"iss":"{DID}","jwk":{jwk}}}"#),
            "the issuer's name does not contain this key",
        ),
        (
            format!(r#"{{"iss":"{DID}","jwks":{{"keys":[{jwk}]}}}}"#),
            "a did:key issuer has only the key in its name",
        ),
    ] {
        let alone = case.asked(&case.with("anchors", &format!("[{bad}]")));
        assert!(alone.code == 0 && alone.stdout.contains(r#""step":"3k""#), "{alone:?}");
        let said = format!("line 1: anchors[0] is not trusted: {said}");
        assert!(alone.stderr.contains(&said), "{said} is not in {}", alone.stderr);
        let with_another = case.asked(&case.with("anchors", &format!("[{bad},{good}]")));
        assert_eq!((with_another.code, with_another.stdout.as_str()), (0, ALLOWED));
    }
}

#[test]
fn a_key_of_an_anchor_that_is_null_is_absent() {
    let case = Case::allowed();
    let jwk = case.issuer_jwk();
    for keys in [
        format!(r#""jwk":null,"jwks":{{"keys":[{jwk}]}}"#),
        format!(r#""jwk":{jwk},"jwks":null"#),
    ] {
        let ran = case.asked(&case.with("anchors", &format!(r#"[{{"iss":"{ISSUER}",{keys}}}]"#)));
        assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (0, ALLOWED, ""));
    }
    let neither = format!(r#"[{{"iss":"{ISSUER}","jwk":null,"jwks":null}}]"#);
    let ran = case.asked(&case.with("anchors", &neither));
    assert!(
        ran.code == 2 && ran.stderr.contains("anchors[0].jwk must be a public JWK"),
        "{ran:?}"
    );
}

#[test]
fn long_quotations_in_a_reason_are_cut() {
    let case = Case::allowed();
    let (digits, name) = ("9".repeat(100_000), "n".repeat(100_000));
    for (line, said) in [
        (
            case.with("args", &format!(r#"{{"id":{digits}}}"#)),
            format!("{}…", &digits[..90]),
        ),
        (
            case.with("args", &format!(r#"{{"{name}":1}}"#)),
            format!("{}…", &name[..90]),
        ),
        (
            case.with("policy", &format!(r#"{{"{name}":1}}"#)),
            format!("{}…", &name[..90]),
        ),
        (
            case.with("args", &format!(r#"{{"{name}":1,"{name}":1}}"#)),
            format!("{}…", &name[..90]),
        ),
    ] {
        let ran = case.asked(&line);
        assert!(
            ran.stdout.contains(&said) && ran.stdout.contains("deny"),
            "{}",
            &ran.stdout[..300]
        );
        assert!(
            ran.stdout.len() < 1_500 && ran.stderr.len() < 1_500,
            "{}",
            &ran.stdout[..300]
        );
    }
}

#[test]
fn an_answer_is_given_if_standard_error_cannot_be_written() {
    let case = Case::allowed();
    case.bench.file(
        "cases",
        &format!("{}hello\n{}", case.with("anchors", "[7]"), case.line(|_| None)),
    );
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = case
        .bench
        .command(&["verify", "--jsonl"])
        .stdin(std::fs::File::open(case.bench.path("cases")).unwrap())
        .stderr(full)
        .output()
        .unwrap();
    let answers = String::from_utf8(output.stdout).unwrap();
    assert_eq!(answers.lines().count(), 3, "{answers}");
    assert!(answers.ends_with(ALLOWED), "{answers}");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn an_anchor_may_have_a_jwk_set() {
    let case = Case::allowed();
    let jwk = case.issuer_jwk();
    let set = |keys: &str| format!(r#"[{{"iss":"{ISSUER}","jwks":{{"keys":[{keys}]}}}}]"#);
    let ran = case.asked(&case.with("anchors", &set(&jwk)));
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (0, ALLOWED, ""));
    let named = jwk.replacen('{', r#"{"kid":"one","#, 1);
    let rsa = r#"{"kty":"RSA","n":"AQAB","e":"AQAB"}"#;
    let ran = case.asked(&case.with("anchors", &set(&format!("{rsa},{named}"))));
    assert_eq!((ran.code, ran.stdout.as_str()), (0, ALLOWED));
    let said = "line 1: anchors[0].jwks.keys[0] is not used: unsupported key: kty \"RSA\"";
    assert!(ran.stderr.starts_with(said), "{ran:?}");
}

#[test]
fn an_anchor_whose_name_is_a_did_key_needs_no_key() {
    let case = Case::allowed();
    let mint = [
        "mint",
        "--key",
        "issuer.jwk",
        "--holder",
        "agent.pub",
        "--issued-at",
        NOW,
        "--tool",
    ];
    let token = case
        .bench
        .run(&[&mint[..], &[r#"pay={"id":{"constraint_type":"wildcard"}}"#]].concat())
        .succeeded();
    let shown = case.bench.run(&["inspect", &token]).succeeded();
    let did = shown.lines().find_map(|line| line.strip_prefix("  issued by    "));
    let did = did.unwrap();
    assert!(did.starts_with("did:key:"), "{shown}");
    let jwk = case.issuer_jwk();
    for (anchor, answer) in [
        (format!(r#"{{"iss":"{did}"}}"#), r#""decision":"allow""#),
        (format!(r#"{{"iss":"{did}","jwk":{jwk}}}"#), r#""decision":"allow""#),
        (format!(r#"{{"iss":"{DID}"}}"#), r#""step":"3k""#),
    ] {
        let line = case.with("anchors", &format!("[{anchor}]"));
        let ran = case.asked(&line.replace(&case.members[2].1, &format!(r#"["{token}"]"#)));
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
        assert!(ran.stdout.contains(answer), "{anchor}: {ran:?}");
    }
}

#[test]
fn no_issuer_is_trusted_without_anchors() {
    let case = Case::allowed();
    let ran = case.asked(&case.with("anchors", "[]"));
    assert!(ran.code == 0 && ran.stdout.contains(r#""step":"3k""#), "{ran:?}");
}

#[test]
fn a_chain_may_be_one_string() {
    let case = Case::allowed();
    let token = case.members[2].1.trim_matches(['[', ']']).to_owned();
    assert_eq!(case.asked(&case.with("chain", &token)).stdout, ALLOWED);
    let twice = format!("\"{0}~{0}\"", token.trim_matches('"'));
    let ran = case.asked(&case.with("chain", &twice));
    assert!(ran.stdout.contains(r#""step":"2c""#), "{ran:?}");
}

#[test]
fn a_byte_order_mark_is_ignored_in_the_first_line_only() {
    let case = Case::allowed();
    let good = case.line(|_| None);
    let ran = case.asked(&format!("\u{feff}{good}"));
    assert_eq!((ran.code, ran.stdout.as_str()), (0, ALLOWED));
    let ran = case.asked(&format!("{good}\u{feff}{good}"));
    assert_eq!((ran.code, ran.stdout.lines().count()), (2, 2));
    assert_eq!(case.asked("\u{feff}\n\n \t\r\n").stdout, "");
}

#[test]
fn an_endless_line_is_denied_and_skipped() {
    let case = Case::allowed();
    let good = case.line(|_| None);
    let long = case.with("tool", &format!("\"{}\"", "x".repeat(17 << 20)));
    let ran = case.asked(&format!("{}\n{long}{good}", "x".repeat(17 << 20)));
    let denied = |id: &str| {
        format!(
            "{{\"id\":{id},\"decision\":\"deny\",\"step\":null,\"reason\":\"not a case: longer than 16777216 bytes; \
             split the case or shorten it\"}}\n"
        )
    };
    assert_eq!(ran.stdout, denied("null") + &denied("\"one\"") + ALLOWED);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("line 1: not a case: longer than"), "{}", ran.stderr);
    assert!(ran.stderr.contains("2 lines are not cases"), "{}", ran.stderr);
}

/// An access token of the issuer's key, and a DPoP proof for it by the agent's.
struct AccessToken {
    case: Case,
    issuer: SigningKey,
    agent: SigningKey,
}

const SETTINGS: &str = r#"{"scopes":{"payments":{"pay":{"id":{"constraint_type":"range","max":5}}}}}"#;
const URI: &str = "https://tools.example.com/pay";

impl AccessToken {
    fn new() -> Self {
        let case = Case::allowed();
        let key = |name: &str| SigningKey::from_jwk_text(&std::fs::read(case.bench.path(name)).unwrap()).unwrap();
        let (issuer, agent) = (key("issuer.jwk"), key("agent.jwk"));
        Self { case, issuer, agent }
    }

    fn token(&self, cnf: &str) -> String {
        let claims = format!(
            r#"{{"iss":"{ISSUER}","sub":"ada","client_id":"c","jti":"t","aud":"{SERVICE}","iat":{NOW},"exp":1700000060,
                "scope":"payments"{cnf}}}"#
        );
        signed(&self.issuer, r#"{"alg":"Ed25519","typ":"at+jwt"}"#, &claims)
    }

    fn bound_token(&self) -> String {
        self.token(&format!(r#","cnf":{{"jkt":"{}"}}"#, self.agent.public().thumbprint()))
    }

    fn proof(&self, token: &str) -> String {
        let jwk = self.agent.public().to_jwk();
        let hash = URL_SAFE_NO_PAD.encode(Sha256::digest(token));
        let claims = format!(r#"{{"jti":"p","htm":"POST","htu":"{URI}","iat":{NOW},"ath":"{hash}","nonce":"n"}}"#);
        let header = format!(r#"{{"alg":"Ed25519","typ":"dpop+jwt","jwk":{jwk}}}"#);
        signed(&self.agent, &header, &claims)
    }

    fn line(&self, token: &str, anchor: &str, policy: &str, more: &str) -> String {
        let chain = format!("[\"{token}\"]");
        let anchors = format!(
            r#"[{{"iss":"{ISSUER}","jwk":{},"access_tokens":{anchor}}}]"#,
            self.issuer.public().to_jwk()
        );
        let line = self.case.line(|name| match name {
            "chain" => Some(&chain),
            "anchors" => Some(&anchors),
            "policy" => Some(policy),
            _ => None,
        });
        line.replacen(r#""proof":null"#, &format!(r#""noted":1{more}"#), 1)
    }
}

fn signed(key: &SigningKey, header: &str, claims: &str) -> String {
    let input = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
    let signature = URL_SAFE_NO_PAD.encode(key.sign(input.as_bytes()));
    format!("{input}.{signature}")
}

#[test]
fn an_anchor_may_sign_access_tokens() {
    let bench = AccessToken::new();
    let (bearer, bound) = (bench.token(""), bench.bound_token());
    let none = r#"{"proof":"none"}"#;
    for (line, expected) in [
        (bench.line(&bearer, SETTINGS, none, ""), r#""decision":"allow""#),
        (
            bench
                .line(&bearer, SETTINGS, none, "")
                .replace(r#"{"id":1}"#, r#"{"id":6}"#),
            r#""step":"6b""#,
        ),
        (bench.line(&bound, SETTINGS, none, ""), r#""step":"7a""#),
        (
            bench.line(
                &bearer,
                SETTINGS,
                r#"{"proof":"none","algs":["RS256","ES256K","Ed25519"]}"#,
                "",
            ),
            r#""decision":"allow""#,
        ),
        (
            bench.line(
                &bearer,
                SETTINGS,
                r#"{"proof":"none","algs":["Ed25519","Ed25519"]}"#,
                "",
            ),
            r#""decision":"allow""#,
        ),
        // A delegation of this issuer does not count.
        (
            bench.line(
                bench.case.members[2].1.trim_matches(['[', ']', '"']),
                SETTINGS,
                none,
                "",
            ),
            r#""step":"3a""#,
        ),
    ] {
        let ran = bench.case.asked(&line);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
        assert!(ran.stdout.contains(expected), "{expected}: {ran:?}");
    }
}

#[test]
fn an_anchor_with_errors_in_its_access_tokens_is_not_trusted() {
    let bench = AccessToken::new();
    let token = bench.token("");
    for (settings, algs, said) in [
        (r#"{"scope":{}}"#, "Ed25519", "access_tokens.scope: unknown field"),
        ("7", "Ed25519", "access_tokens: a mapping is needed"),
        (
            r#"{"delegation_depth":1e400}"#,
            "Ed25519",
            "access_tokens: the number 1e400",
        ),
        (SETTINGS, "RS256", "jwk: no listed algorithm fits"),
    ] {
        let policy = format!(r#"{{"proof":"none","algs":["{algs}"]}}"#);
        let ran = bench.case.asked(&bench.line(&token, settings, &policy, ""));
        assert!(ran.code == 0 && ran.stdout.contains(r#""step":"3a""#), "{ran:?}");
        let said = format!("line 1: anchors[0] is not trusted: {said}");
        assert!(ran.stderr.starts_with(&said), "{said}: {ran:?}");
    }
}

#[test]
fn an_rsa_key_counts_only_for_access_tokens() {
    let bench = AccessToken::new();
    let token = bench.token("");
    let own = bench.issuer.public().to_jwk();
    let n = URL_SAFE_NO_PAD.encode([0xff; 256]);
    let rsa = format!(r#"{{"kty":"RSA","e":"AQAB","n":"{n}"}}"#);
    let anchors = format!(r#"[{{"iss":"{ISSUER}","jwks":{{"keys":[{rsa},{own}]}},"access_tokens":{SETTINGS}}}]"#);
    let chain = format!("[\"{token}\"]");
    let line = bench.case.line(|name| match name {
        "anchors" => Some(&anchors),
        "chain" => Some(&chain),
        "policy" => Some(r#"{"proof":"none","algs":["RS256","Ed25519"]}"#),
        _ => None,
    });
    let ran = bench.case.asked(&line);
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), (ALLOWED, ""));
    let ran = bench
        .case
        .asked(&line.replace(&format!(r#","access_tokens":{SETTINGS}"#), ""));
    assert!(
        ran.stdout.contains("deny") && ran.stderr.contains("keys[0] is not used"),
        "{ran:?}"
    );
}

#[test]
fn a_dpop_proof_is_for_the_request_and_its_token() {
    let bench = AccessToken::new();
    let (token, bearer) = (bench.bound_token(), bench.token(""));
    let dpop = r#"{"proof":"dpop"}"#;
    let request = |method: &str, uri: &str, token: &str| {
        format!(r#","method":"{method}","uri":"{uri}","proof":"{}""#, bench.proof(token))
    };
    for (token, policy, more, expected) in [
        (&token, dpop, request("POST", URI, &token), r#""decision":"allow""#),
        (
            &token,
            dpop,
            request("POST", "https://TOOLS.example.com:443/pay?x", &token),
            r#""decision":"allow""#,
        ),
        (&token, dpop, request("GET", URI, &token), r#""step":"7e""#),
        (
            &token,
            dpop,
            request("POST", "https://tools.example.com/", &token),
            r#""step":"7e""#,
        ),
        (&token, dpop, request("POST", URI, &bearer), r#""step":"7c""#),
        (&bearer, dpop, request("POST", URI, &bearer), r#""step":"7c""#),
        (
            &token,
            dpop,
            format!(r#","method":"POST","uri":"{URI}""#),
            r#""step":"7a""#,
        ),
        (
            &token,
            r#"{"proof":"dpop","nonce":"n"}"#,
            request("POST", URI, &token),
            r#""decision":"allow""#,
        ),
        (
            &token,
            r#"{"proof":"dpop","nonce":"m"}"#,
            request("POST", URI, &token),
            r#""step":"7h""#,
        ),
    ] {
        let ran = bench.case.asked(&bench.line(token, SETTINGS, policy, &more));
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
        assert!(ran.stdout.contains(expected), "{more}: {ran:?}");
    }
    for (more, said) in [
        (format!(r#","uri":"{URI}""#), "method must be there"),
        (r#","method":"POST""#.to_owned(), "uri must be there"),
        (
            r#","method":"POST","uri":"/pay""#.to_owned(),
            "uri must be an absolute http or https URI",
        ),
    ] {
        let ran = bench.case.asked(&bench.line(&token, SETTINGS, dpop, &more));
        assert!(ran.code == 2 && ran.stdout.contains(said), "{said}: {ran:?}");
    }
}
