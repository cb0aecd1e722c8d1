//! Every error in a configuration names its place and its cure.

use super::*;

/// A text of the complete configuration (empty: all of it), its replacement, the path of the error, and its message.
type Case = (&'static str, &'static str, &'static str, &'static str);

#[test]
fn errors_name_place_and_cure() {
    let parts = [
        SYNTAX_TYPES_AND_NAMES,
        TRUST,
        CONTROL_PLANE,
        HEADERS,
        RULES,
        ARGUMENTS,
        LIMITS,
    ];
    for &(found, written, path, message) in parts.into_iter().flatten() {
        let json = match found {
            "" => written.to_owned(),
            _ => with(&[(found, written)]),
        };
        let error = Policy::parse(json.as_bytes()).expect_err(&format!("{written} should be refused"));
        let [problem] = &error.problems[..] else {
            panic!("{written}: one error, but found\n{error}")
        };
        assert_eq!(problem.path, path, "{written}: {problem}");
        assert!(problem.message.contains(message), "{written}: {problem}");
    }
}

const SYNTAX_TYPES_AND_NAMES: &[Case] = &[
    ("", "{", ".", "EOF while parsing"),
    (
        r#""default": "deny""#,
        r#""default": "maybe""#,
        "default",
        "expected `deny` or `allow`",
    ),
    (
        r#""default": "deny""#,
        r#""colour": "red""#,
        "colour",
        "unknown field `colour`, expected one of `audience`",
    ),
    (
        r#""default": "deny""#,
        r#""on_stale": {}"#,
        "on_stale",
        "unknown field `on_stale`",
    ),
    (
        r#""default": "deny""#,
        r#""audience": []"#,
        "audience",
        "duplicate field `audience`",
    ),
    (
        r#""tool": "catalog.read""#,
        r#""tool": 5"#,
        "rules[1].tool",
        "invalid type: integer `5`, expected a string",
    ),
    (
        r#""tool": "catalog.read""#,
        r#""tool": null"#,
        "rules[1].tool",
        "invalid type: null; give the field a value",
    ),
    (
        r#""methods": ["GET"]"#,
        r#""methods": null"#,
        "rules[1].match.methods",
        "invalid type: null",
    ),
    (
        r#""methods": ["GET"]"#,
        r#""method": ["GET"]"#,
        "rules[1].match.method",
        "unknown field `method`",
    ),
    (
        r#""item": {"path": "item"}"#,
        r#""item": {"path": "item", "body": "/item"}"#,
        "rules[1].args.item",
        "more than one source",
    ),
    (
        r#""item": {"path": "item"}"#,
        r#""item": {"path": "item"}, "item": {"query": "item"}"#,
        "rules[1].args.item",
        "duplicate field `item`",
    ),
    (
        r#""type": "number""#,
        r#""type": "float""#,
        "rules[0].args.amount.type",
        "unknown variant `float`",
    ),
    (
        r#""proof": "none""#,
        r#""proof": "bearer""#,
        "rules[1].proof",
        "expected one of `pop`, `mtls`, `none`",
    ),
    (
        r#""cluster": "credence", "#,
        "",
        "control_plane",
        "missing field `cluster`",
    ),
    (
        r#""default": "deny""#,
        r#""limits": {"cache_bytes": 0.5}"#,
        "limits.cache_bytes",
        "expected a whole number",
    ),
    (
        r#""default": "deny""#,
        r#""limits": {"cache_bytes": -1}"#,
        "limits.cache_bytes",
        "expected a whole number",
    ),
    (
        r#""proof": "none""#,
        r#""on_stale": {"allow_cached_for": "5s"}"#,
        "rules[1].on_stale.allow_cached_for",
        "5s is not more than control_plane.max_staleness (5s)",
    ),
    (
        r#""proof": "none""#,
        r#""on_stale": {"allow_cached_for": "11m"}"#,
        "rules[1].on_stale.allow_cached_for",
        "11m is out of range",
    ),
    (
        r#""cluster": "credence""#,
        r#""cluster": "credence", "wait_for_snapshot": "1s""#,
        "control_plane.wait_for_snapshot",
        "1s is out of range; write 0ms to 500ms",
    ),
    (
        r#""cluster": "credence""#,
        r#""cluster": "credence", "max_subjects": 999"#,
        "control_plane.max_subjects",
        "999 is out of range",
    ),
    (
        r#""proof": "none""#,
        r#""proof": "none", "nonce": true"#,
        "rules[1].nonce",
        "only a signed proof carries a nonce",
    ),
    (
        r#""proof": "none""#,
        r#""proof": "none", "peer_validated": true"#,
        "rules[1].peer_validated",
        "only a client certificate is validated by Envoy",
    ),
    (
        r#""proof": "none""#,
        r#""mode": "observe""#,
        "rules[1].mode",
        "expected `enforce` or `shadow`",
    ),
];

const TRUST: &[Case] = &[
    (
        r#"["https://payments.example"]"#,
        "[]",
        "audience",
        "no audience; name this service",
    ),
    (
        r#"["https://payments.example"]"#,
        r#"["a", ""]"#,
        "audience[1]",
        "`` is not usable",
    ),
    (
        r#"["https://payments.example"]"#,
        r#"["a", "a"]"#,
        "audience[1]",
        "`a` is listed twice",
    ),
    (
        r#""issuer": "https://id.example.com""#,
        r#""issuer": "id""#,
        "trust_anchors[0].issuer",
        "`id` is not a URI",
    ),
    (
        r#""algorithms": ["Ed25519"]"#,
        r#""algorithms": []"#,
        "trust_anchors[0].algorithms",
        "no algorithm; write `[Ed25519]`",
    ),
    (
        r#""algorithms": ["Ed25519"]"#,
        r#""algorithms": ["RS256"]"#,
        "trust_anchors[0].algorithms[0]",
        "`RS256` is not supported; write one of: Ed25519, EdDSA, ES256, ES256K",
    ),
    (
        r#""kty": "OKP""#,
        r#""kty": "OKP", "d": "x""#,
        "trust_anchors[0].jwk",
        "private member \"d\"; give the public key only",
    ),
    (X, "AAAA", "trust_anchors[0].jwk", "32 bytes in base64url"),
    (
        X,
        "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "trust_anchors[0].jwk",
        "not a usable Ed25519 key",
    ),
    (
        r#""kty": "OKP""#,
        r#""kty": "OKP", "kty": "OKP""#,
        "trust_anchors[0].jwk",
        "\"kty\" occurs twice",
    ),
];

const CONTROL_PLANE: &[Case] = &[
    (
        r#""cluster": "credence""#,
        r#""cluster": """#,
        "control_plane.cluster",
        "`` is not usable",
    ),
    (
        LOG_ID,
        "ABC",
        "control_plane.log_id",
        "`ABC` is not a log id of 32 lower-case hexadecimal digits",
    ),
    (
        r#""cluster": "credence""#,
        r#""cluster": "credence", "max_staleness": "5""#,
        "control_plane.max_staleness",
        "`5` is not a duration; write a whole number and a unit",
    ),
    (
        r#""cluster": "credence""#,
        r#""cluster": "credence", "max_staleness": "1h""#,
        "control_plane.max_staleness",
        "1h is out of range; write 500ms to 1m",
    ),
    (
        r#""cluster": "credence""#,
        r#""cluster": "credence", "max_staleness": "1s", "ping_interval": "1s""#,
        "control_plane.ping_interval",
        "1s is not shorter than max_staleness (1s)",
    ),
];

const HEADERS: &[Case] = &[
    (
        r#""default": "deny""#,
        r#""headers": {"proof": "delegation"}"#,
        "headers.proof",
        "already the delegation's header",
    ),
    (
        r#""default": "deny""#,
        r#""headers": {"proof": "Proof"}"#,
        "headers.proof",
        "`Proof` is not a header name in lower case",
    ),
    (
        r#""default": "deny""#,
        r#""headers": {"proof": "x_delegation_proof"}"#,
        "headers.proof",
        "removed from every request",
    ),
    (
        r#""default": "deny""#,
        r#""headers": {"proof": "x.delegation.proof"}"#,
        "headers.proof",
        "removed from every request",
    ),
    (
        r#""default": "deny""#,
        r#""headers": {"delegation": "chain.of", "proof": "chain-of"}"#,
        "headers.proof",
        "already the delegation's header",
    ),
    (
        r#""default": "deny""#,
        r#""headers": {"proof": "connection"}"#,
        "headers.proof",
        "its own meaning in HTTP",
    ),
];

const RULES: &[Case] = &[
    (
        r#""name": "catalog""#,
        r#""name": "charge""#,
        "rules[1].name",
        "rules[0] is named `charge` too",
    ),
    (
        r#""name": "catalog""#,
        r#""name": "a b""#,
        "rules[1].name",
        "`a b` is not a rule name",
    ),
    (
        r#""path": "/healthz""#,
        r#""path": "healthz""#,
        "rules[2].match.path",
        "starts with `/`",
    ),
    (
        r#""path": "/healthz""#,
        r#""path": "/a/../b""#,
        "rules[2].match.path",
        "no request can match segment `..`",
    ),
    (
        r#""path": "/healthz""#,
        r#""path": "/v1/catalog/{x}", "methods": ["GET"]"#,
        "rules[2].match",
        "rule `catalog` comes first and takes every request that this one could match",
    ),
    (
        r#""methods": ["GET"]"#,
        r#""methods": []"#,
        "rules[1].match.methods",
        "an empty list matches nothing; leave the field out",
    ),
    (
        r#""methods": ["GET"]"#,
        r#""methods": ["get"]"#,
        "rules[1].match.methods[0]",
        "`get` is not a method in capital letters",
    ),
    (
        r#""methods": ["GET"]"#,
        r#""methods": ["CONNECT"]"#,
        "rules[1].match.methods[0]",
        "CONNECT has no path",
    ),
    (
        r#""methods": ["GET"]"#,
        r#""hosts": ["A.example:80"]"#,
        "rules[1].match.hosts[0]",
        "`A.example:80` is not a host pattern",
    ),
    (
        r#""methods": ["GET"]"#,
        r#""hosts": []"#,
        "rules[1].match.hosts",
        "an empty list matches nothing",
    ),
    (
        r#""tool": "catalog.read","#,
        "",
        "rules[1]",
        "names no `tool`; add the one a delegation must grant",
    ),
    (
        r#""tool": "catalog.read""#,
        r#""tool": "catalog read""#,
        "rules[1].tool",
        "`catalog read` is not usable",
    ),
    (
        r#""public": true"#,
        r#""public": true, "tool": "x""#,
        "rules[2].tool",
        "a public rule reads no delegation",
    ),
    (
        r#""public": true"#,
        r#""public": true, "args": {}"#,
        "rules[2].args",
        "a public rule reads no delegation",
    ),
    (
        r#""public": true"#,
        r#""public": true, "proof": "pop""#,
        "rules[2].proof",
        "a public rule reads no delegation",
    ),
];

const ARGUMENTS: &[Case] = &[
    (
        r#"{"path": "account"}"#,
        r#"{"path": "acount"}"#,
        "rules[0].args.account.path",
        "capture `acount` is not in the path template `/v1/accounts/{account}/charges`; write one of: account",
    ),
    (
        r#""path": "/v1/catalog/{item}""#,
        r#""path": "/v1/catalog""#,
        "rules[1].args.item.path",
        "it has none; write `{item}` into the template",
    ),
    (
        r#"{"path": "item"}"#,
        r#"{"query": "item"}"#,
        "rules[1].match.path",
        "no argument reads capture `item`; add `item: {path: item}` to `args`",
    ),
    (
        r#"{"path": "item"}"#,
        r#"{"path": "item", "optional": true}"#,
        "rules[1].args.item.optional",
        "remove `optional`",
    ),
    (
        r#""item": {"path""#,
        r#""*": {"path""#,
        "rules[1].args.*",
        "`*` cannot name an argument",
    ),
    (
        r#"{"query": "amount", "type": "number"}"#,
        "{}",
        "rules[0].args.amount",
        "no source; write one of",
    ),
    (
        r#"{"query": "amount""#,
        r#"{"query": "amount", "header": "amount""#,
        "rules[0].args.amount",
        "more than one source",
    ),
    (
        r#"{"query": "amount""#,
        r#"{"path": "account""#,
        "rules[0].args.amount",
        "argument `account` is taken from the same place",
    ),
    (
        r#"{"query": "amount""#,
        r#"{"header": ":path""#,
        "rules[0].args.amount.header",
        "`:path` is a pseudo-header",
    ),
    (
        r#"{"query": "amount""#,
        r#"{"header": "te""#,
        "rules[0].args.amount.header",
        "`te` has its own meaning",
    ),
    (
        r#"{"query": "amount""#,
        r#"{"header": "delegation""#,
        "rules[0].args.amount.header",
        "carries the delegation",
    ),
    (
        r#"{"query": "amount""#,
        r#"{"header": "delegation.proof""#,
        "rules[0].args.amount.header",
        "carries the delegation",
    ),
    (
        r#"{"query": "amount""#,
        r#"{"header": "content_length""#,
        "rules[0].args.amount.header",
        "`content_length` has its own meaning",
    ),
    (
        r#"{"query": "amount""#,
        r#"{"header": "x.delegation.tool""#,
        "rules[0].args.amount.header",
        "removed from every request",
    ),
    (
        r#""amount": {"query": "amount""#,
        r#""a": {"header": "x-a"}, "b": {"header": "x.a""#,
        "rules[0].args.b",
        "cannot tell `x.a` from `x-a`",
    ),
    (
        r#""amount": {"query": "amount""#,
        r#""a": {"query": "page[size]"}, "b": {"query": "page.size""#,
        "rules[0].args.b",
        "cannot tell `page.size` from `page[size]`",
    ),
    (
        r#""tool": "payments.charge""#,
        r#""tool": "payments.charge", "ignore_query": ["note", "amount[]"]"#,
        "rules[0].ignore_query[1]",
        "cannot tell `amount[]` from `amount`",
    ),
    (
        r#""proof": "none""#,
        r#""ignore_query": ["a", "a"]"#,
        "rules[1].ignore_query[1]",
        "`a` is listed twice",
    ),
];

const LIMITS: &[Case] = &[
    (
        r#""default": "deny""#,
        r#""limits": {"delegation_depth": 9}"#,
        "limits.delegation_depth",
        "9 is out of range; write 0 to 8",
    ),
    (
        r#""default": "deny""#,
        r#""limits": {"held_requests": 1}"#,
        "limits.held_requests",
        "1 is out of range; write 16 to 65536",
    ),
    (
        r#""default": "deny""#,
        r#""limits": {"held_bytes": 65536}"#,
        "limits.held_bytes",
        "65536 is out of range; write 4194304 to 1073741824",
    ),
    (
        r#""default": "deny""#,
        r#""pop_window": "1500ms""#,
        "pop_window",
        "1500ms is not a whole number of seconds",
    ),
    (
        r#""default": "deny""#,
        r#""audit": {"arguments": "salted"}"#,
        "audit.arguments",
        "unknown variant `salted`",
    ),
    (
        r#""default": "deny""#,
        r#""audit": {"ring_entries": 1}"#,
        "audit.ring_entries",
        "1 is out of range",
    ),
    (
        r#""default": "deny""#,
        r#""audit": {"record": "none", "on_overflow": "deny"}"#,
        "audit.on_overflow",
        "`record: none` records nothing",
    ),
    (
        r#""default": "deny""#,
        r#""audit": {"denials_per_second": 0}"#,
        "audit.denials_per_second",
        "0 is out of range; write 1 to 1000000",
    ),
];
