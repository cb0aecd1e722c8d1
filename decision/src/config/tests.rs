use std::time::Duration;

use credence_delegation::Algorithms;

use super::*;
use crate::arguments::{ArgumentKind, ArgumentSource, Source};
use crate::identity_headers::Part;
use crate::request::target::{Host, Target};
use crate::request::{HeaderNames, Request, tests::serialize};
use crate::usage_sketch::Amount;

mod authorization;
mod bodies;
mod errors;
mod matching;
mod mcp;
mod trust;

/// An Ed25519 key from docs/reference/configuration.md.
const X: &str = "7GJBdyhdiFuT4Q8CbAa5sR1ARWxY0Dtu8OQ6E9AODWg";
const DOCUMENTATION: &str = include_str!("../../../docs/reference/configuration.md");
const LOG_ID: &str = "0123456789abcdef0123456789abcdef";

#[test]
fn a_complete_configuration_loads() {
    let policy = Policy::parse(complete().as_bytes()).unwrap();
    let anchor = policy.trust_anchors.of_issuer("https://id.example.com").next().unwrap();
    assert!(anchor.asserts_subjects);
    assert_eq!(policy.control_plane.cluster, "credence");
    assert_eq!(policy.control_plane.log_id, LOG_ID);
    assert_eq!(policy.unmatched, Unmatched::Deny);
    assert_eq!(
        policy.routes.iter().map(|rule| rule.name.as_str()).collect::<Vec<_>>(),
        ["charge", "catalog", "health"]
    );

    let target = Target::parse(b"/v1/accounts/acme/charges?amount=5", policy.paths).unwrap();
    let buffer = serialize(&[(":method", "POST")]);
    let request = Request::parse(&buffer, &policy.headers, false).unwrap();
    let found = policy
        .routes
        .find(Host::parse(b"payments.example").unwrap(), &request, &target)
        .unwrap()
        .unwrap();
    let Some(requirement) = &found.leads_to.requirement else {
        panic!("not public")
    };
    assert_eq!(requirement.tool(), Some("payments.charge"));
    assert_eq!(requirement.proof, ProofKind::Pop);
    assert_eq!(requirement.audience, ["https://payments.example"]);
    assert!(!requirement.forward);
    let argument = |name: &str, source, kind| ArgumentSource {
        name: name.to_owned(),
        source,
        kind,
        optional: false,
    };
    assert_eq!(
        requirement.arguments.arguments,
        [
            argument("account", Source::Path(0), ArgumentKind::String),
            argument("amount", Source::Query("amount".to_owned()), ArgumentKind::Number),
        ]
    );
}

#[test]
fn absent_fields_have_their_documented_defaults() {
    let policy = Policy::parse(complete().as_bytes()).unwrap();
    assert_eq!(policy.holder_algorithms, Algorithms::default());
    assert_eq!(policy.control_plane.max_staleness, Duration::from_secs(5));
    assert_eq!(policy.control_plane.ping_interval, Duration::from_millis(500));
    assert_eq!(policy.wait_for_snapshot, Duration::from_millis(500));
    assert_eq!(policy.control_plane.max_subjects, 5_000_000);
    assert_eq!(policy.headers, HeaderNames::default());
    let verification = credence_delegation::Limits {
        token_bytes: 16_384,
        chain_bytes: 16_384,
        delegation_depth: 8,
        token_lifetime: 7_776_000,
        iat_skew: 30,
        proof_window: 30,
        ..credence_delegation::Limits::default()
    };
    let limits = Limits {
        proof_bytes: 4_096,
        body_bytes: 65_536,
        held: Amount {
            entries: 1_024,
            bytes: 64 << 20,
        },
        proof_clock_skew: 5,
        cache: Amount {
            entries: 4_096,
            bytes: 33_554_432,
        },
        refused_entries: 4_096,
        repeat_entries: 1_024,
        hot_keys: 64,
        shared_cache_entries: 4_096,
        verification,
    };
    assert_eq!(policy.limits, limits);
    let audit = Audit {
        record: RecordedDecisions::All,
        ring_entries: Count(16_384),
        ring_bytes: Count(16_777_216),
        on_overflow: Overflow::Shed,
        arguments: RecordedArguments::Hash,
        response_status: false,
        denials_per_second: Count(100),
    };
    assert_eq!(policy.audit, audit);
}

#[test]
fn every_setting_can_be_set() {
    let policy = Policy::parse(
        with(&[
            (r#""default": "deny""#, r#""default": "allow""#),
            (
                r#""audience""#,
                r#""holder_algorithms": ["Ed25519", "EdDSA"], "pop_window": "1m", "pop_clock_skew": "2s", "max_iat_skew": "0s",
                   "max_token_lifetime": "1h", "headers": {"delegation": "authority", "proof": "authority-proof"},
                   "identity": {"filter_state": ["subject", "id"]},
                   "limits": {"delegation_bytes": 4096, "proof_bytes": 1024, "delegation_depth": 2.0,
                              "cache_entries": 0.0, "cache_bytes": 1.0e6, "held_requests": 100, "held_bytes": 8388608},
                   "audit": {"ring_entries": 64, "ring_bytes": 65536, "on_overflow": "deny", "arguments": "full",
                             "response_status": true, "denials_per_second": 7},
                   "audience""#,
            ),
            (r#""cluster": "credence""#, r#""cluster": "credence", "max_staleness": "2s", "ping_interval": "100ms", "wait_for_snapshot": "0ms",
                                         "max_subjects": 1000.0"#),
            (
                r#""proof": "none""#,
                r#""proof": "mtls", "forward": true, "audience": ["https://catalog.example"], "ignore_query": ["lang"], "upgrade": true,
                   "mode": "shadow", "on_stale": {"allow_cached_for": "1m"}"#,
            ),
        ])
        .as_bytes(),
    )
    .unwrap();
    assert_eq!(policy.unmatched, Unmatched::Allow);
    assert!(policy.holder_algorithms.allow(credence_delegation::Algorithm::EdDsa));
    assert_eq!(policy.headers.delegation, "authority");
    assert_eq!(policy.filter_state, [Part::Subject, Part::Id]);
    assert_eq!(policy.control_plane.ping_interval, Duration::from_millis(100));
    assert_eq!(policy.wait_for_snapshot, Duration::ZERO);
    assert_eq!(policy.control_plane.max_subjects, 1_000);
    assert_eq!(policy.limits.verification.delegation_depth, 2);
    assert_eq!(policy.limits.verification.token_bytes, 4_096);
    assert_eq!(policy.limits.verification.token_lifetime, 3_600);
    assert_eq!((policy.limits.cache.entries, policy.limits.cache.bytes), (0, 1_000_000));
    let held = Amount {
        entries: 100,
        bytes: 8 << 20,
    };
    assert_eq!(policy.limits.held, held);
    assert_eq!(policy.audit.on_overflow, Overflow::Deny);
    assert_eq!(policy.audit.arguments, RecordedArguments::Full);
    assert_eq!(
        (policy.audit.response_status, policy.audit.denials_per_second.get()),
        (true, 7)
    );
    let rule = policy.routes.iter().nth(1).unwrap();
    let Some(requirement) = &rule.requirement else {
        panic!("not public")
    };
    assert!(rule.allows_upgrade && requirement.forward);
    assert_eq!((policy.mode, rule.mode), (Mode::Enforce, Mode::Shadow));
    assert_eq!(requirement.stale_limit, Some(Duration::from_secs(60)));
    assert_eq!(requirement.proof, ProofKind::Mtls);
    assert_eq!(requirement.audience, ["https://catalog.example"]);
    assert_eq!(requirement.arguments.ignored_query, ["lang"]);
}

#[test]
fn an_empty_or_huge_configuration_is_refused() {
    for text in ["", " \n"] {
        assert!(
            Policy::parse(text.as_bytes())
                .unwrap_err()
                .to_string()
                .contains("the configuration is empty")
        );
    }
    let huge = format!("{}{}", complete(), " ".repeat(MAX_CONFIG_BYTES));
    assert!(
        Policy::parse(huge.as_bytes())
            .unwrap_err()
            .to_string()
            .contains("at most 8388608")
    );
    let trailing = format!("{}{{}}", complete());
    assert!(
        Policy::parse(trailing.as_bytes())
            .unwrap_err()
            .to_string()
            .contains("trailing characters")
    );
}

#[test]
fn no_trust_anchor_and_no_rule_are_refused() {
    let (start, rest) = complete()
        .split_once(r#""trust_anchors": ["#)
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .unwrap();
    let rest = rest.split_once("],\n\"control_plane\"").unwrap().1;
    let json = format!("{start}\"trust_anchors\": [],\n\"control_plane\"{rest}");
    let (front, _) = json.split_once(r#""rules": ["#).unwrap();
    let error = Policy::parse(format!("{front}\"rules\": []}}").as_bytes()).unwrap_err();
    let paths: Vec<_> = error.problems.iter().map(|problem| problem.path.as_str()).collect();
    assert_eq!(paths, ["trust_anchors", "rules"]);
}

#[test]
fn all_errors_are_reported_at_once_up_to_a_limit() {
    let json = with(&[
        (r#"["https://payments.example"]"#, "[]"),
        (X, "AAAA"),
        (r#""path": "account""#, r#""path": "acount""#),
        (r#""name": "health""#, r#""name": "charge""#),
    ]);
    let error = Policy::parse(json.as_bytes()).unwrap_err();
    let paths: Vec<_> = error.problems.iter().map(|problem| problem.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "audience",
            "trust_anchors[0].jwk",
            "rules[0].args.account.path",
            "rules[2].name"
        ]
    );
    assert_eq!(error.to_string().lines().count(), 4);

    let many = vec!["\" \""; MAX_PROBLEMS + 5].join(",");
    let error =
        Policy::parse(with(&[(r#"["https://payments.example"]"#, &format!("[{many}]"))]).as_bytes()).unwrap_err();
    assert_eq!(error.problems.len(), MAX_PROBLEMS);
    assert!(error.to_string().ends_with("more"));
}

#[test]
fn the_documented_examples_load() {
    let (of_the_filter, _) = DOCUMENTATION.split_once("\n## Control plane\n").unwrap();
    let examples: Vec<_> = of_the_filter
        .split("```yaml\n")
        .skip(1)
        .map(|rest| example(rest.split_once("```").unwrap().0))
        .collect();
    let [complete, anchors, conditions, body] = &examples[..] else {
        panic!("a complete configuration, the forms of trust anchors, conditions, and a body")
    };
    Policy::parse(complete.to_string().as_bytes()).unwrap();
    let mut with_every_form = complete.clone();
    with_every_form["trust_anchors"] = anchors["trust_anchors"].clone();
    let policy = Policy::parse(with_every_form.to_string().as_bytes()).unwrap();
    assert_eq!(policy.trust_anchors.iter().count(), 3);
    for (rules, count) in [(conditions, 2), (body, 1)] {
        let mut with_rules = complete.clone();
        with_rules["rules"] = rules["rules"].clone();
        let policy = Policy::parse(with_rules.to_string().as_bytes()).unwrap();
        assert_eq!(policy.routes.iter().count(), count);
    }
}

#[allow(clippy::disallowed_types)] // our own documentation
fn example(yaml: &str) -> serde_json::Value {
    serde_saphyr::from_str(yaml).unwrap()
}

/// The configuration of the user's guide, as JSON.
fn complete() -> String {
    format!(
        r#"{{
"audience": ["https://payments.example"],
"trust_anchors": [{{"issuer": "https://id.example.com", "jwk": {{"kty": "OKP", "crv": "Ed25519", "x": "{X}"}},
  "algorithms": ["Ed25519"], "asserts_subjects": true}}],
"control_plane": {{"cluster": "credence", "log_id": "{LOG_ID}"}},
"default": "deny",
"rules": [
  {{"name": "charge", "match": {{"methods": ["POST"], "path": "/v1/accounts/{{account}}/charges"}},
   "tool": "payments.charge",
   "args": {{"account": {{"path": "account"}}, "amount": {{"query": "amount", "type": "number"}}}}}},
  {{"name": "catalog", "match": {{"methods": ["GET"], "path": "/v1/catalog/{{item}}"}}, "tool": "catalog.read",
   "args": {{"item": {{"path": "item"}}}}, "proof": "none"}},
  {{"name": "health", "match": {{"path": "/healthz"}}, "public": true}}
]}}"#
    )
}

/// The complete configuration with the first occurrence of each text replaced.
fn with(replacements: &[(&str, &str)]) -> String {
    replacements.iter().fold(complete(), |json, (found, written)| {
        assert!(json.contains(found), "{found} is not in the example");
        json.replacen(found, written, 1)
    })
}
