//! Provokes every reason code of docs/reference/errors.md in a real Envoy. The client gets what the table says, and the
//! metrics count the code itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use credence_e2e::forge::{self, Claims, Forger};
use credence_e2e::grants::{CHARGE, READ};
use credence_e2e::{AUDIENCE, Client, Http2, ISSUER, Reply, Request, Stack, StackOptions, waiting};
use serde_json::value::RawValue;

const TABLE: &str = include_str!("../../../docs/reference/errors.md");

/// Codes that no request can provoke here, and why.
const EXEMPT: &[(&str, &str)] = &[
    ("certificate_mismatch", "needs client certificates: mtls.rs"),
    ("authorization_scheme", "needs an issuer of access tokens: dpop.rs"),
    ("credentials_ambiguous", "needs an issuer of access tokens: dpop.rs"),
    ("key_withdrawn", "needs an identity provider: issuer_keys.rs"),
    ("keys_unavailable", "needs an identity provider: issuer_keys.rs"),
    ("mcp_session_invalid", "needs the module that also sees answers: mcp.rs"),
    (
        "host_failure",
        "needs a host call to fail that does not fail in Envoy: clock, header map, shared data",
    ),
];

/// The result of provoking a code: the stack that was asked, and its reply, if the client could receive it.
struct Asked {
    stack: &'static Stack,
    reply: Option<Reply>,
}

/// Makes a test for each of these functions in [`ask`], named after the code that it provokes.
macro_rules! codes {
    ($($code:ident)*) => {
        const PROVOKED: &[&str] = &[$(stringify!($code)),*];
        $(
            #[test]
            fn $code() {
                assert_told_and_counted(stringify!($code), &ask::$code());
            }
        )*
    };
}

codes! {
    request_malformed method_ambiguous host_malformed host_ambiguous path_ambiguous query_ambiguous query_too_long condition_ambiguous
    no_route cluster_mismatch upgrade_denied
    delegation_missing delegation_repeated delegation_too_large delegation_too_deep delegation_malformed
    issuer_unknown key_unknown algorithm_not_allowed signature_invalid linkage_invalid
    expired issued_in_future lifetime_not_allowed attenuation_violated audience_mismatch
    revoked_principal disabled_principal revoked_issuer revoked_key revoked_delegation
    proof_missing proof_repeated proof_too_large proof_malformed proof_algorithm_not_allowed proof_signature_invalid
    proof_mismatch proof_outside_window nonce_required proof_replayed proof_predates_memory certificate_missing
    tool_not_granted argument_not_allowed argument_not_granted argument_missing
    body_unmapped body_too_large body_incomplete body_media_type body_malformed
    argument_unknown argument_repeated argument_malformed argument_ambiguous
    mcp_message_invalid mcp_version_not_allowed mcp_header_mismatch mcp_http_method mcp_method_not_allowed mcp_tool_not_mapped
    stale not_ready too_many_held audit_full
}

/// About 45,000 proofs of one holder, within the minute for which they are remembered.
#[test]
#[ignore = "takes 15 s"]
fn replay_memory_full() {
    assert_told_and_counted("replay_memory_full", &ask::replay_memory_full());
}

#[test]
fn every_documented_code_is_provoked_or_exempt_for_a_reason() {
    let provoked = PROVOKED.iter().copied().chain(["replay_memory_full"]);
    let exempt = EXEMPT.iter().map(|(code, _)| *code);
    // Codes that clients get instead of others; the tests of those have seen them.
    let told = rows().filter(|row| row.instead_of_others).map(|row| row.code);
    let known: BTreeSet<&str> = provoked.chain(exempt).chain(told).collect();
    let documented: BTreeSet<&str> = rows().map(|row| row.code).collect();
    assert_eq!(known, documented);
}

/// A row of a table of denials.
struct Row {
    code: &'static str,
    status: u16,
    /// Clients get another code.
    secret: bool,
    /// Clients get it instead of secret ones.
    instead_of_others: bool,
}

fn rows() -> impl Iterator<Item = Row> {
    TABLE.split("\n## ").flat_map(|section| {
        let secret = section.starts_with("Hidden reasons\n");
        section.lines().filter_map(move |line| {
            let mut cells = line.strip_prefix("| `")?.split('|');
            Some(Row {
                code: cells.next()?.trim().trim_end_matches('`'),
                status: cells.next()?.trim().parse().ok()?,
                secret,
                instead_of_others: line.contains("(#hidden-reasons)"),
            })
        })
    })
}

#[track_caller]
fn assert_told_and_counted(code: &str, asked: &Asked) {
    let row = rows()
        .find(|row| row.code == code)
        .expect("a row in docs/reference/errors.md");
    if let Some(reply) = &asked.reply {
        let told = match code {
            _ if !row.secret => code,
            _ if code.starts_with("proof_") => "proof_invalid",
            _ => "delegation_invalid",
        };
        assert_eq!(
            (reply.status, reply.reason().as_deref()),
            (row.status, Some(told)),
            "{}",
            reply.text()
        );
    }
    let counter = format!(r#",decision="deny",reason="{code}"}} "#);
    waiting::until(format_args!("{code} to be counted"), || {
        let page = asked.stack.envoy.admin_page("/stats/prometheus")?.text();
        let mut lines = page.lines().filter(|line| line.starts_with("credence_decision{"));
        Ok(lines.any(|line| line.contains(&counter)).then_some(()))
    })
    .unwrap();
}

/// One way to provoke each code.
mod ask {
    use super::*;

    /// Rules before those of envoy-config/envoy.yaml.
    const RULES: &str = r#"rules:
                              - name: staged
                                match: {path: /v1/staged, headers: {x-stage: {exact: beta}}}
                                public: true
                              - name: addressed
                                match: {hosts: ["::1"], path: /v1/addressed}
                                public: true
                              - name: elsewhere
                                match: {path: /v1/elsewhere}
                                clusters: [elsewhere]
                                public: true
                              - name: orders
                                match: {methods: [POST], path: "/v1/orders/{account}"}
                                tool: payments.charge
                                args: {account: {path: account}, amount: {body: /amount, type: number}}
                                proof: none
                              - name: lists
                                match: {path: "/v1/lists/{item}"}
                                tool: catalog.read
                                args: {item: {path: item}}
                                ignore_query: [edition]
                                proof: none
                              - name: bound
                                match: {path: "/v1/bound/{item}"}
                                tool: catalog.read
                                args: {item: {path: item}}
                                proof: mtls
                              - name: mcp
                                match: {path: /mcp}
                                mcp: {tools: {names: {read: catalog.read}}}
                                proof: none
                              - name: guarded
                                match: {path: "/v1/guarded/{item}"}
                                tool: catalog.read
                                args: {item: {path: item}}
                                nonce: true
"#;

    /// An issuer with a set of one key, `one`.
    const SETS: &str = "https://sets.example";

    /// Shared by all codes that a request alone can provoke.
    struct Common {
        stack: Stack,
        /// The reply to a proof from before its start.
        predating: Reply,
    }

    fn common() -> &'static Common {
        static COMMON: LazyLock<Common> = LazyLock::new(|| {
            let key = serde_json::to_string(&of_the_set().jwk()).unwrap();
            let key = key.replacen('{', r#"{"kid":"one","#, 1);
            let sets = format!("trust_anchors:\n{INDENT}  - {{issuer: {SETS}, jwks: {{keys: [{key}]}}}}\n");
            let before = forge::now() - 2;
            let options = StackOptions::quick()
                .replacing("rules:\n", RULES)
                .replacing("trust_anchors:\n", &sets)
                .replacing("max_headers_count: 100", "max_headers_count: 2000")
                .replacing("max_concurrent_streams: 100", "max_concurrent_streams: 1100")
                .replacing(
                    "use_remote_address: true",
                    "upgrade_configs: [{upgrade_type: websocket}]",
                );
            let stack = Stack::start(&options).unwrap();
            let issued_at = (before - 60).to_string();
            let chain = stack
                .mint("alice", &["--tool", CHARGE, "--issued-at", &issued_at])
                .unwrap();
            let proof = Proof::of(&stack, &chain).at(before).signed();
            let predating = stack.send(&charge(&chain).proof(proof)).unwrap();
            stack.wait_until_proofs_count().unwrap();
            Common { stack, predating }
        });
        &COMMON
    }

    fn stack() -> &'static Stack {
        &common().stack
    }

    fn of_the_set() -> Forger {
        Forger::from_seed([7; 32])
    }

    fn told(request: &Request) -> Asked {
        Asked {
            stack: stack(),
            reply: Some(stack().send(request).unwrap()),
        }
    }

    fn reads(subject: &str) -> String {
        stack().mint(subject, &["--tool", READ]).unwrap()
    }

    fn charges() -> String {
        stack().mint("alice", &["--tool", CHARGE]).unwrap()
    }

    fn book() -> Request {
        Request::get("/v1/catalog/book")
    }

    fn charge(chain: &str) -> Request {
        Request::post("/v1/accounts/a1/charges?amount=5").delegation(chain)
    }

    fn order(chain: &str) -> Request {
        Request::new("POST", "/v1/orders/a1").delegation(chain)
    }

    pub(super) fn request_malformed() -> Asked {
        let many = (0..1_030).fold(book(), |request, number| request.header(format!("h{number}"), "1"));
        told(&many)
    }

    pub(super) fn host_malformed() -> Asked {
        told(&book().without("host").header("host", "payments..example"))
    }

    pub(super) fn method_ambiguous() -> Asked {
        // Over HTTP/1, Envoy itself rejects it.
        let client = Http2::connect(stack().envoy.ingress()).unwrap();
        Asked {
            stack: stack(),
            reply: Some(client.send(&Request::new("get", "/healthz")).unwrap()),
        }
    }

    pub(super) fn host_ambiguous() -> Asked {
        // With envoy-config/envoy.yaml, Envoy strips a port and a trailing dot.
        told(&Request::get("/v1/addressed").without("host").header("host", "[0::1]"))
    }

    pub(super) fn path_ambiguous() -> Asked {
        told(&Request::get("/v1/catalog/book;v=2"))
    }

    pub(super) fn query_ambiguous() -> Asked {
        told(&Request::get("/v1/lists/book?edition=2;shelf=3").delegation(reads("alice")))
    }

    pub(super) fn query_too_long() -> Asked {
        let many = "edition=2&".repeat(129);
        told(&Request::get(&format!("/v1/lists/book?{many}")).delegation(reads("alice")))
    }

    pub(super) fn condition_ambiguous() -> Asked {
        told(
            &Request::get("/v1/staged")
                .header("x-stage", "beta")
                .header("x-stage", "prod"),
        )
    }

    pub(super) fn no_route() -> Asked {
        told(&Request::get("/nowhere"))
    }

    pub(super) fn cluster_mismatch() -> Asked {
        told(&Request::get("/v1/elsewhere"))
    }

    pub(super) fn upgrade_denied() -> Asked {
        told(
            &Request::get("/healthz")
                .header("connection", "upgrade")
                .header("upgrade", "websocket"),
        )
    }

    pub(super) fn delegation_missing() -> Asked {
        told(&book())
    }

    pub(super) fn delegation_repeated() -> Asked {
        told(&book().delegation(reads("alice")).delegation("x"))
    }

    pub(super) fn delegation_too_large() -> Asked {
        told(&book().delegation("x".repeat(32_769)))
    }

    pub(super) fn delegation_too_deep() -> Asked {
        told(&book().delegation([reads("alice").as_str(); 10].join("~")))
    }

    pub(super) fn delegation_malformed() -> Asked {
        told(&book().delegation("no token"))
    }

    /// A valid root, for tests to change.
    fn claims() -> Claims {
        let tools = r#"{"catalog.read":{"item":{"constraint_type":"wildcard"}}}"#;
        Claims::root(ISSUER, "alice", &Forger::from_seed([1; 32]), tools).unwrap()
    }

    fn issuer() -> Forger {
        Forger::from_file(&stack().issuer.file).unwrap()
    }

    fn told_for(claims: &Claims) -> Asked {
        told(&book().delegation(issuer().token(claims).unwrap()))
    }

    pub(super) fn issuer_unknown() -> Asked {
        told_for(&Claims {
            iss: "https://unknown.example".to_owned(),
            ..claims()
        })
    }

    pub(super) fn key_unknown() -> Asked {
        let claims = Claims {
            iss: SETS.to_owned(),
            ..claims()
        };
        let header = r#"{"alg":"Ed25519","typ":"aat+jwt","kid":"two"}"#;
        told(&book().delegation(of_the_set().token_under(header, &claims).unwrap()))
    }

    pub(super) fn algorithm_not_allowed() -> Asked {
        let header = r#"{"alg":"EdDSA","typ":"aat+jwt"}"#;
        told(&book().delegation(issuer().token_under(header, &claims()).unwrap()))
    }

    pub(super) fn signature_invalid() -> Asked {
        told(&book().delegation(Forger::from_seed([3; 32]).token(&claims()).unwrap()))
    }

    /// A root and a token that its holder derived from it, changed by `change`.
    fn derived(tools: &str, change: impl FnOnce(&mut Claims)) -> String {
        let holder = Forger::from_seed([1; 32]);
        let root_claims = claims();
        let root = issuer().token(&root_claims).unwrap();
        let mut leaf = Claims::derived((&root, &root_claims), &holder, &holder, tools).unwrap();
        change(&mut leaf);
        format!("{root}~{}", holder.token(&leaf).unwrap())
    }

    pub(super) fn linkage_invalid() -> Asked {
        let tools = r#"{"catalog.read":{"item":{"constraint_type":"wildcard"}}}"#;
        let chain = derived(tools, |leaf| leaf.par_hash = Some(forge::digest("another token")));
        told(&book().delegation(chain))
    }

    pub(super) fn expired() -> Asked {
        let now = forge::now();
        told_for(&Claims {
            iat: now - 20,
            exp: now - 10,
            ..claims()
        })
    }

    pub(super) fn issued_in_future() -> Asked {
        let now = forge::now();
        told_for(&Claims {
            iat: now + 600,
            exp: now + 1_200,
            ..claims()
        })
    }

    pub(super) fn lifetime_not_allowed() -> Asked {
        told_for(&Claims {
            exp: forge::now() + 91 * 86_400,
            ..claims()
        })
    }

    pub(super) fn attenuation_violated() -> Asked {
        told(&book().delegation(derived(r#"{"catalog.write":{}}"#, |_| {})))
    }

    pub(super) fn audience_mismatch() -> Asked {
        told_for(&Claims {
            aud: Some("https://elsewhere.example".to_owned()),
            ..claims()
        })
    }

    /// Repeats the request until the revocation has arrived.
    fn told_once_revoked(chain: &str, what: &[&str]) -> Asked {
        stack().revoke(what).unwrap();
        let reply = waiting::until("the revocation", || {
            Ok(Some(stack().send(&book().delegation(chain))?).filter(|reply| reply.status != 200))
        });
        Asked {
            stack: stack(),
            reply: Some(reply.unwrap()),
        }
    }

    pub(super) fn revoked_principal() -> Asked {
        let principal = ["principal", "--issuer", ISSUER, "--subject", "bob"];
        told_once_revoked(&reads("bob"), &principal)
    }

    pub(super) fn disabled_principal() -> Asked {
        let principal = ["principal", "--issuer", ISSUER, "--subject", "carol", "--disable"];
        told_once_revoked(&reads("carol"), &principal)
    }

    pub(super) fn revoked_issuer() -> Asked {
        // Of its own issuer: a not-before time is for all of an issuer's roots.
        let claims = Claims {
            iss: SETS.to_owned(),
            iat: forge::now() - 120,
            ..claims()
        };
        let up_to = (forge::now() - 60).to_string();
        let chain = of_the_set().token(&claims).unwrap();
        told_once_revoked(&chain, &["issuer", "--issuer", SETS, "--issued-up-to", &up_to])
    }

    pub(super) fn revoked_key() -> Asked {
        let leaked = stack().credence.keygen("leaked").unwrap();
        let root = stack().mint("alice", &["--tool", READ, "--max-depth", "1"]).unwrap();
        let chain = stack().derive(&root, &leaked, &["--same-tools"]).unwrap();
        told_once_revoked(&chain, &["key", "--key", leaked.path()])
    }

    pub(super) fn revoked_delegation() -> Asked {
        let chain = reads("dave");
        told_once_revoked(&chain, &["delegation", "--chain", &chain])
    }

    /// A proof for charging 5 to `a1`, for tests to change.
    #[derive(Clone)]
    struct Proof {
        holder: Forger,
        claims: BTreeMap<String, Box<RawValue>>,
    }

    impl Proof {
        fn of(stack: &Stack, chain: &str) -> Self {
            let good = stack.prove_charge(chain, &stack.agent, "a1", "5").unwrap();
            Self {
                holder: Forger::from_file(&stack.agent.file).unwrap(),
                claims: forge::claims_of(&good).unwrap(),
            }
        }

        fn at(self, iat: i64) -> Self {
            self.with("iat", &iat)
        }

        fn with(mut self, name: &str, value: &impl serde::Serialize) -> Self {
            self.claims
                .insert(name.to_owned(), serde_json::value::to_raw_value(value).unwrap());
            self
        }

        fn signed(&self) -> String {
            self.holder.sign("aat-pop+jwt", &self.claims).unwrap()
        }
    }

    pub(super) fn proof_missing() -> Asked {
        told(&charge(&charges()))
    }

    pub(super) fn proof_repeated() -> Asked {
        told(&charge(&charges()).proof("x").proof("y"))
    }

    pub(super) fn proof_too_large() -> Asked {
        told(&charge(&charges()).proof("x".repeat(8_193)))
    }

    pub(super) fn proof_malformed() -> Asked {
        told(&charge(&charges()).proof("no proof"))
    }

    pub(super) fn proof_algorithm_not_allowed() -> Asked {
        let chain = charges();
        let Proof { holder, claims } = Proof::of(stack(), &chain);
        let proof = holder.sign_under(r#"{"alg":"EdDSA","typ":"aat-pop+jwt"}"#, &claims);
        told(&charge(&chain).proof(proof.unwrap()))
    }

    pub(super) fn proof_signature_invalid() -> Asked {
        let chain = charges();
        let proof = Proof {
            holder: Forger::from_seed([9; 32]),
            ..Proof::of(stack(), &chain)
        };
        told(&charge(&chain).proof(proof.signed()))
    }

    pub(super) fn proof_mismatch() -> Asked {
        let chain = charges();
        let proof = stack().prove_charge(&chain, &stack().agent, "a1", "6").unwrap();
        told(&charge(&chain).proof(proof))
    }

    pub(super) fn proof_outside_window() -> Asked {
        let chain = charges();
        told(&charge(&chain).proof(Proof::of(stack(), &chain).at(forge::now() + 60).signed()))
    }

    pub(super) fn nonce_required() -> Asked {
        let chain = reads("alice");
        let prove = ["prove", "--chain", &chain, "--key", stack().agent.path()];
        let what = ["--audience", AUDIENCE, "--tool", "catalog.read", "--arg", "item=book"];
        let proof = stack().credence.run(prove.iter().chain(&what)).unwrap();
        told(&Request::get("/v1/guarded/book").delegation(&chain).proof(proof))
    }

    pub(super) fn proof_replayed() -> Asked {
        let chain = charges();
        let request = charge(&chain).proof(Proof::of(stack(), &chain).signed());
        assert_eq!(stack().send(&request).unwrap().status, 200);
        told(&request)
    }

    pub(super) fn proof_predates_memory() -> Asked {
        Asked {
            stack: stack(),
            reply: Some(common().predating.clone()),
        }
    }

    pub(super) fn replay_memory_full() -> Asked {
        let chain = charges();
        let good = Proof::of(stack(), &chain);
        let client = Http2::connect(stack().envoy.ingress()).unwrap();
        for batch in 0..1_000 {
            let exchanges: Vec<_> = (0..100)
                .map(|number| {
                    let proof = good.clone().with("jti", &format!("{batch}-{number}")).at(forge::now());
                    client.start(&charge(&chain).proof(proof.signed()))
                })
                .collect();
            for exchange in exchanges {
                let reply = exchange.unwrap().finish().unwrap();
                if reply.status != 200 {
                    let reply = Some(reply);
                    return Asked { stack: stack(), reply };
                }
            }
        }
        panic!("100,000 proofs of one holder were remembered");
    }

    pub(super) fn certificate_missing() -> Asked {
        told(&Request::get("/v1/bound/book").delegation(reads("alice")))
    }

    pub(super) fn tool_not_granted() -> Asked {
        told(&book().delegation(charges()))
    }

    fn told_with(tools: &str) -> Asked {
        told(&book().delegation(stack().mint("alice", &["--tool", tools]).unwrap()))
    }

    pub(super) fn argument_not_allowed() -> Asked {
        told_with(r#"catalog.read={"item":{"constraint_type":"exact","value":"pen"}}"#)
    }

    pub(super) fn argument_not_granted() -> Asked {
        told_with(r#"catalog.read={"shelf":{"constraint_type":"wildcard","optional":true}}"#)
    }

    pub(super) fn argument_missing() -> Asked {
        told_with(r#"catalog.read={"item":{"constraint_type":"wildcard"},"shelf":{"constraint_type":"wildcard"}}"#)
    }

    pub(super) fn body_unmapped() -> Asked {
        told(&book().delegation(reads("alice")).json("{}"))
    }

    pub(super) fn body_too_large() -> Asked {
        let announced = order(&charges())
            .header("content-type", "application/json")
            .header("content-length", "65537");
        told(&announced)
    }

    pub(super) fn body_incomplete() -> Asked {
        let mut client = Client::connect(stack().envoy.ingress()).unwrap();
        let whole = order(&charges()).json(r#"{"amount":5}"#).encode();
        client.send_part(&whole[..whole.len() - 1]).unwrap();
        Asked {
            stack: stack(),
            reply: None,
        }
    }

    pub(super) fn body_media_type() -> Asked {
        let text = order(&charges())
            .header("content-type", "text/plain")
            .header("content-length", "2");
        told(&text.trailing("{}"))
    }

    pub(super) fn body_malformed() -> Asked {
        told(&order(&charges()).json(r#"{"amount":5,"amount":6}"#))
    }

    pub(super) fn argument_unknown() -> Asked {
        told(&Request::get("/v1/catalog/book?edition=2").delegation(reads("alice")))
    }

    fn charge_with(query: &str) -> Asked {
        let chain = charges();
        let proof = Proof::of(stack(), &chain).signed();
        let request = Request::post(&format!("/v1/accounts/a1/charges{query}"));
        told(&request.delegation(&chain).proof(proof))
    }

    pub(super) fn argument_repeated() -> Asked {
        charge_with("?amount=5&amount=5")
    }

    pub(super) fn argument_malformed() -> Asked {
        charge_with("?amount=05")
    }

    pub(super) fn argument_ambiguous() -> Asked {
        charge_with("?amount=+5")
    }

    /// A message to an MCP server, with these headers for its method and its tool.
    fn mcp(method: &str, tool: Option<&str>, message: &str) -> Asked {
        let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;
        let request = Request::new("POST", "/mcp")
            .delegation(reads("alice"))
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", method);
        let request = tool
            .into_iter()
            .fold(request, |request, tool| request.header("mcp-name", tool));
        told(&request.json(message.replace("META", meta)))
    }

    pub(super) fn mcp_message_invalid() -> Asked {
        mcp("tools/list", None, "[]")
    }

    pub(super) fn mcp_version_not_allowed() -> Asked {
        let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
        told(&Request::new("POST", "/mcp").delegation(reads("alice")).json(list))
    }

    pub(super) fn mcp_header_mismatch() -> Asked {
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read","arguments":{"item":"book"},META}}"#;
        mcp("tools/call", Some("list"), call)
    }

    pub(super) fn mcp_http_method() -> Asked {
        told(&Request::get("/mcp").delegation(reads("alice")))
    }

    pub(super) fn mcp_method_not_allowed() -> Asked {
        mcp(
            "tools/list",
            None,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{META}}"#,
        )
    }

    pub(super) fn mcp_tool_not_mapped() -> Asked {
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write",META}}"#;
        mcp("tools/call", Some("write"), call)
    }

    /// A stack that has lost its control plane, and denies what it cannot record.
    struct Lost {
        stack: Stack,
        audit_full: Reply,
        stale: Reply,
    }

    fn lost() -> &'static Lost {
        static LOST: LazyLock<Lost> = LazyLock::new(|| {
            let options = StackOptions::quick().replacing(
                "rules:\n",
                "audit: {ring_entries: 64, on_overflow: deny}\n                            rules:\n",
            );
            let mut stack = Stack::start(&options).unwrap();
            let book = book().delegation(stack.mint("alice", &["--tool", READ]).unwrap());
            let mut workers = stack.envoy.connection_to_every_worker().unwrap();
            stack.control_plane.kill().unwrap();
            let [full, stale] = workers.as_mut_slice() else {
                panic!("two workers")
            };
            let until = |client: &mut Client| {
                waiting::until("a denial", || {
                    Ok(Some(client.send(&book)?).filter(|reply| reply.status != 200))
                })
                .unwrap()
            };
            // Without pauses: the ring must be full before the lease ends.
            let audit_full = (0..200).find_map(|_| Some(full.send(&book).unwrap()).filter(|reply| reply.status != 200));
            let audit_full = audit_full.expect("a denial");
            // The other worker gets no request before the lease ends, or its ring would be full too.
            waiting::until("the lease to run out", || {
                let reply = stale.send(&Request::get("/v1/catalog/book").delegation("no token"))?;
                Ok((reply.status == 503).then_some(()))
            })
            .unwrap();
            let stale = until(stale);
            Lost {
                stack,
                audit_full,
                stale,
            }
        });
        &LOST
    }

    pub(super) fn stale() -> Asked {
        Asked {
            stack: &lost().stack,
            reply: Some(lost().stale.clone()),
        }
    }

    pub(super) fn audit_full() -> Asked {
        Asked {
            stack: &lost().stack,
            reply: Some(lost().audit_full.clone()),
        }
    }

    pub(super) fn not_ready() -> Asked {
        static STACK: LazyLock<Stack> = LazyLock::new(|| {
            let options = StackOptions {
                log_id: Some("f".repeat(32)),
                unsynced: true,
                ..StackOptions::quick()
            };
            Stack::start(&options).unwrap()
        });
        let chain = STACK.mint("alice", &["--tool", READ]).unwrap();
        Asked {
            stack: &STACK,
            reply: Some(STACK.send(&book().delegation(chain)).unwrap()),
        }
    }

    pub(super) fn too_many_held() -> Asked {
        let chain = charges();
        let request = order(&chain).header("content-type", "application/json");
        // One connection reaches one worker, which holds them all. One holder gets half of its places.
        let client = Http2::connect(stack().envoy.ingress()).unwrap();
        let held: Vec<_> = (0..512).map(|_| client.open(&request).unwrap()).collect();
        let reply = client.open(&request).unwrap().finish().unwrap();
        drop(held);
        Asked {
            stack: stack(),
            reply: Some(reply),
        }
    }

    /// The indentation of a field of the plugin's configuration in envoy-config/envoy.yaml.
    const INDENT: &str = "                            ";
}
