//! Envoy's answer to one request: allowed, or denied with a reason and a status.

use std::sync::LazyLock;

use credence_e2e::assertions::assert_denied;
use credence_e2e::forge::{self, Claims, Forger};
use credence_e2e::grants::READ;
use credence_e2e::{AUDIENCE, Client, ISSUER, Reply, Request, Stack, StackOptions};
use serde_json::json;

const READ_BOOK: &str = r#"catalog.read={"item":{"constraint_type":"exact","value":"book"}}"#;
const READ_TOOLS: &str = r#"{"catalog.read":{"item":{"constraint_type":"wildcard"}}}"#;
const CHARGE: &str =
    r#"payments.charge={"account":{"constraint_type":"wildcard"},"amount":{"constraint_type":"range","max":100}}"#;

/// Shared by all tests that do not disturb each other; it stops with the process.
fn stack() -> &'static Stack {
    static STACK: LazyLock<Stack> = LazyLock::new(|| {
        let stack = Stack::start(&StackOptions::quick()).unwrap();
        stack.wait_until_proofs_count().unwrap();
        stack
    });
    &STACK
}

fn book() -> Request {
    Request::get("/v1/catalog/book")
}

#[track_caller]
fn assert_allowed(reply: &Reply) {
    assert_eq!((reply.status, reply.reason()), (200, None), "{}", reply.text());
    assert!(reply.received().is_some(), "the service did not answer");
}

mod a_delegation {
    use super::*;

    #[test]
    fn of_a_trusted_issuer_is_enough_where_no_proof_is_asked_for() {
        let chain = stack().mint("alice", &["--tool", READ]).unwrap();
        let mut client = Client::connect(stack().envoy.ingress()).unwrap();
        for _ in 0..3 {
            assert_allowed(&client.send(&book().delegation(&chain)).unwrap());
        }
    }

    #[test]
    fn that_was_handed_on_reaches_as_far_as_its_last_token() {
        let helper = stack().credence.keygen("helper").unwrap();
        let root = stack().mint("alice", &["--tool", READ, "--max-depth", "2"]).unwrap();
        let chain = stack().derive(&root, &helper, &["--tool", READ_BOOK]).unwrap();
        assert_allowed(&stack().send(&book().delegation(&chain)).unwrap());
        let reply = stack()
            .send(&Request::get("/v1/catalog/pen").delegation(&chain))
            .unwrap();
        assert_denied(&reply, 403, "argument_not_allowed");
        assert_eq!(reply.argument().as_deref(), Some("item"));
    }

    #[test]
    fn that_another_implementation_signed_is_understood_alike() {
        let issuer = Forger::from_file(&stack().issuer.file).unwrap();
        let (agent, helper) = (Forger::from_seed([1; 32]), Forger::from_seed([2; 32]));
        let tools = r#"{"payments.charge":{"account":{"constraint_type":"wildcard"},
                        "amount":{"constraint_type":"range","min":1,"max":50}}}"#;
        let root_claims = Claims::root(ISSUER, "ünïcode \"alice\"", &agent, tools).unwrap();
        let root = issuer.token(&root_claims).unwrap();
        let leaf_claims = Claims::derived((&root, &root_claims), &agent, &helper, tools).unwrap();
        let leaf = agent.token(&leaf_claims).unwrap();
        let signing_input = leaf.rsplit_once('.').unwrap().0;
        let proof = json!({
            "jti": "proof-of-another-implementation", "iat": forge::now(), "aat_id": leaf_claims.jti,
            "aat_hash": forge::digest(signing_input), "aat_tool": "payments.charge", "aat_aud": AUDIENCE,
            "hta": {"amount": 12.50, "account": "zoë"},
        });
        let proof = helper.sign("aat-pop+jwt", &proof).unwrap();
        let request = Request::post("/v1/accounts/zo%C3%AB/charges?amount=12.5").delegation(format!("{root}~{leaf}"));
        assert_allowed(&stack().send(&request.proof(proof)).unwrap());
    }

    #[test]
    fn is_needed() {
        let reply = stack().send(&book()).unwrap();
        assert_denied(&reply, 401, "delegation_missing");
        let challenge = reply.header("www-authenticate").unwrap();
        assert!(
            challenge.starts_with(r#"Delegation error="missing_token""#),
            "{challenge}"
        );
        assert_eq!(reply.header("cache-control"), Some("no-store"));
    }

    #[test]
    fn must_come_once_and_alone() {
        let chain = stack().mint("alice", &["--tool", READ]).unwrap();
        let twice = [
            book().delegation(&chain).delegation(&chain),
            book().header("Delegation", &chain).header("DELEGATION", "x"),
            book().delegation(format!("{chain},{chain}")),
            book().delegation(format!("{chain}, ")),
        ];
        for request in &twice {
            assert_denied(&stack().send(request).unwrap(), 401, "delegation_repeated");
        }
    }

    #[test]
    fn that_cannot_be_read_is_denied() {
        let chain = stack().mint("alice", &["--tool", READ]).unwrap();
        let text = |text: &str| text.as_bytes().to_vec();
        let cases = [
            (text(""), "delegation_malformed"),
            (text("~"), "delegation_malformed"),
            (text("not a token"), "delegation_malformed"),
            (vec![0xff, 0xfe], "delegation_malformed"),
            (text(&format!("{chain}~")), "delegation_malformed"),
            (text(&format!("{chain}~{chain}")), "delegation_malformed"),
            (text(&format!("Bearer {chain}")), "delegation_malformed"),
            (text(&"x".repeat(32_769)), "delegation_too_large"),
        ];
        for (header, reason) in cases {
            let reply = stack().send(&book().delegation(header)).unwrap();
            assert_denied(&reply, 401, reason);
        }
    }

    #[test]
    fn in_headers_larger_than_envoy_takes_never_reaches_the_service() {
        let reply = stack().send(&book().delegation("x".repeat(70_000))).unwrap();
        assert_eq!(reply.status, 431);
    }

    #[test]
    fn whose_cryptography_fails_does_not_tell_why() {
        let issuer = Forger::from_file(&stack().issuer.file).unwrap();
        let (agent, stranger) = (Forger::from_seed([1; 32]), Forger::from_seed([3; 32]));
        let claims = Claims::root(ISSUER, "alice", &agent, READ_TOOLS).unwrap();
        let good = issuer.token(&claims).unwrap();
        let child = Claims::derived((&good, &claims), &agent, &agent, READ_TOOLS).unwrap();
        let with_other_parent = Claims {
            par_hash: Some(forge::digest("another token")),
            ..child.clone()
        };
        let unknown = Claims {
            iss: "https://unknown.example".to_owned(),
            ..claims.clone()
        };
        let altered = {
            let (input, signature) = good.rsplit_once('.').unwrap();
            let other = if signature.starts_with('A') { "B" } else { "A" };
            format!("{input}.{other}{}", &signature[1..])
        };
        let chains = [
            stranger.token(&claims).unwrap(),
            issuer.token(&unknown).unwrap(),
            altered,
            format!("{good}~{}", stranger.token(&child).unwrap()),
            format!("{good}~{}", agent.token(&with_other_parent).unwrap()),
        ];
        let bodies = chains.map(|chain| {
            let reply = stack().send(&book().delegation(chain)).unwrap();
            assert_denied(&reply, 401, "delegation_invalid");
            let id = reply.request_id().unwrap();
            // Envoy's own: a UUID.
            assert_eq!(id.len(), 36);
            (reply.text().replace(&id, ""), reply.headers.len())
        });
        assert!(bodies.windows(2).all(|pair| pair[0] == pair[1]), "{bodies:?}");
    }

    #[test]
    fn counts_only_in_its_time() {
        let issuer = Forger::from_file(&stack().issuer.file).unwrap();
        let agent = Forger::from_seed([1; 32]);
        let now = forge::now();
        let cases = [
            (now - 7_200, now - 3_600, "expired"),
            (now - 7_200, now, "expired"),
            (now + 3_600, now + 7_200, "issued_in_future"),
            (now, now + 91 * 86_400, "lifetime_not_allowed"),
        ];
        for (iat, exp, reason) in cases {
            let claims = Claims {
                iat,
                exp,
                ..Claims::root(ISSUER, "alice", &agent, READ_TOOLS).unwrap()
            };
            let chain = issuer.token(&claims).unwrap();
            assert_denied(&stack().send(&book().delegation(chain)).unwrap(), 401, reason);
        }
    }

    #[test]
    fn expires_while_it_is_remembered() {
        let chain = stack().mint("alice", &["--tool", READ, "--ttl", "2s"]).unwrap();
        let mut client = Client::connect(stack().envoy.ingress()).unwrap();
        assert_allowed(&client.send(&book().delegation(&chain)).unwrap());
        let reply = credence_e2e::waiting::until("the delegation to expire", || {
            let reply = client.send(&book().delegation(&chain))?;
            Ok((reply.status != 200).then_some(reply))
        });
        assert_denied(&reply.unwrap(), 401, "expired");
    }

    #[test]
    fn for_another_service_is_denied() {
        let issuer = Forger::from_file(&stack().issuer.file).unwrap();
        let claims = Claims {
            aud: Some("https://elsewhere.example".to_owned()),
            ..Claims::root(ISSUER, "alice", &Forger::from_seed([1; 32]), READ_TOOLS).unwrap()
        };
        let reply = stack()
            .send(&book().delegation(issuer.token(&claims).unwrap()))
            .unwrap();
        assert_denied(&reply, 401, "audience_mismatch");
    }

    #[test]
    fn cannot_grant_more_than_its_parent() {
        let issuer = Forger::from_file(&stack().issuer.file).unwrap();
        let agent = Forger::from_seed([1; 32]);
        let narrow = r#"{"catalog.read":{"item":{"constraint_type":"one_of","values":["pen","cup"]}}}"#;
        let root_claims = Claims::root(ISSUER, "alice", &agent, narrow).unwrap();
        let root = issuer.token(&root_claims).unwrap();
        for wider in [
            READ_TOOLS,
            r#"{"catalog.read":{"item":{"constraint_type":"one_of","values":["pen","cup","book"]}}}"#,
            r#"{"catalog.read":{"item":{"constraint_type":"exact","value":"pen"}},"catalog.write":{}}"#,
        ] {
            let leaf = Claims::derived((&root, &root_claims), &agent, &agent, wider).unwrap();
            let chain = format!("{root}~{}", agent.token(&leaf).unwrap());
            assert_denied(
                &stack().send(&book().delegation(chain)).unwrap(),
                401,
                "attenuation_violated",
            );
        }
    }
}

mod a_proof {
    use super::*;

    fn charge(query: &str) -> Request {
        Request::post(&format!("/v1/accounts/acme/charges{query}"))
    }

    fn chain() -> String {
        stack().mint("alice", &["--tool", CHARGE]).unwrap()
    }

    fn proof_of(chain: &str, amount: &str) -> String {
        stack().prove_charge(chain, &stack().agent, "acme", amount).unwrap()
    }

    #[test]
    fn of_this_very_use_is_enough() {
        let chain = chain();
        let request = charge("?amount=25").delegation(&chain).proof(proof_of(&chain, "25"));
        assert_allowed(&stack().send(&request).unwrap());
    }

    #[test]
    fn is_needed_once_and_readable() {
        let chain = chain();
        let proof = proof_of(&chain, "25");
        let with = |request: Request| stack().send(&request.delegation(&chain)).unwrap();
        assert_denied(&with(charge("?amount=25")), 401, "proof_missing");
        assert_denied(
            &with(charge("?amount=25").proof(&proof).proof(&proof)),
            401,
            "proof_repeated",
        );
        assert_denied(
            &with(charge("?amount=25").proof(format!("{proof},{proof}"))),
            401,
            "proof_repeated",
        );
        assert_denied(&with(charge("?amount=25").proof("")), 401, "proof_malformed");
        assert_denied(&with(charge("?amount=25").proof(b"\xff")), 401, "proof_malformed");
        assert_denied(
            &with(charge("?amount=25").proof("x".repeat(8_193))),
            401,
            "proof_too_large",
        );
        // None of these has used the proof up.
        assert_allowed(&with(charge("?amount=25").proof(&proof)));
    }

    #[test]
    fn counts_only_from_the_holder() {
        let chain = chain();
        let leaf = chain.rsplit_once('.').unwrap().0;
        let thief = Forger::from_seed([9; 32]);
        let stolen = json!({
            "jti": "stolen", "iat": forge::now(), "aat_id": "any", "aat_hash": forge::digest(leaf),
            "aat_tool": "payments.charge", "aat_aud": AUDIENCE, "hta": {"account": "acme", "amount": 25},
        });
        let proof = thief.sign("aat-pop+jwt", &stolen).unwrap();
        let request = charge("?amount=25").delegation(&chain).proof(proof);
        assert_denied(&stack().send(&request).unwrap(), 401, "proof_invalid");
    }

    #[test]
    fn of_something_else_is_none() {
        let (chain, other) = (chain(), chain());
        let elsewhere = stack().credence.run([
            "prove",
            "--chain",
            &chain,
            "--key",
            stack().agent.path(),
            "--audience",
            "https://elsewhere.example",
            "--tool",
            "payments.charge",
            "--arg",
            "account=acme",
            "--arg-json",
            "amount=25",
        ]);
        let another_tool = stack().credence.run([
            "prove",
            "--chain",
            &chain,
            "--key",
            stack().agent.path(),
            "--audience",
            AUDIENCE,
            "--tool",
            "payments.refund",
            "--arg",
            "account=acme",
            "--arg-json",
            "amount=25",
        ]);
        let of_text = stack().credence.run([
            "prove",
            "--chain",
            &chain,
            "--key",
            stack().agent.path(),
            "--audience",
            AUDIENCE,
            "--tool",
            "payments.charge",
            "--arg",
            "account=acme",
            "--arg",
            "amount=25",
        ]);
        for proof in [
            proof_of(&chain, "24"),
            proof_of(&other, "25"),
            elsewhere.unwrap(),
            another_tool.unwrap(),
            of_text.unwrap(),
        ] {
            let request = charge("?amount=25").delegation(&chain).proof(proof);
            assert_denied(&stack().send(&request).unwrap(), 401, "proof_mismatch");
        }
    }

    #[test]
    fn counts_only_near_its_time() {
        let some_time_ago = (forge::now() - 600).to_string();
        let chain = stack()
            .mint("alice", &["--tool", CHARGE, "--issued-at", &some_time_ago])
            .unwrap();
        for seconds in [-60, 60] {
            let issued_at = (forge::now() + seconds).to_string();
            let proof = stack().credence.run([
                "prove",
                "--chain",
                &chain,
                "--key",
                stack().agent.path(),
                "--audience",
                AUDIENCE,
                "--tool",
                "payments.charge",
                "--arg",
                "account=acme",
                "--arg-json",
                "amount=25",
                "--issued-at",
                &issued_at,
            ]);
            let request = charge("?amount=25").delegation(&chain).proof(proof.unwrap());
            assert_denied(&stack().send(&request).unwrap(), 401, "proof_outside_window");
        }
    }

    #[test]
    fn counts_once() {
        let chain = chain();
        let request = charge("?amount=25").delegation(&chain).proof(proof_of(&chain, "25"));
        assert_allowed(&stack().send(&request).unwrap());
        assert_denied(&stack().send(&request).unwrap(), 401, "proof_replayed");
    }

    #[test]
    fn does_not_widen_the_grant() {
        let chain = chain();
        let request = charge("?amount=101").delegation(&chain).proof(proof_of(&chain, "101"));
        let reply = stack().send(&request).unwrap();
        assert_denied(&reply, 403, "argument_not_allowed");
        assert_eq!(reply.argument().as_deref(), Some("amount"));
        assert!(reply.header("www-authenticate").unwrap().contains("insufficient_scope"));
    }

    #[test]
    fn does_not_make_arguments_readable() {
        let chain = chain();
        let cases = [
            ("", 403, "argument_missing"),
            ("?amount=25&amount=25", 403, "argument_repeated"),
            ("?amount=twenty", 403, "argument_malformed"),
            ("?amount=025", 403, "argument_malformed"),
            ("?amount=%2525", 403, "argument_malformed"),
            ("?amount=+25", 403, "argument_ambiguous"),
            ("?amount=25;amount=99", 400, "query_ambiguous"),
            ("?amount=25&currency=EUR", 403, "argument_unknown"),
        ];
        for (query, status, reason) in cases {
            let request = charge(query).delegation(&chain).proof(proof_of(&chain, "25"));
            let reply = stack().send(&request).unwrap();
            assert_eq!(
                (reply.status, reply.reason().as_deref()),
                (status, Some(reason)),
                "{query}"
            );
        }
    }
}

mod a_request {
    use super::*;

    #[test]
    fn on_a_public_path_needs_nothing() {
        assert_allowed(&stack().send(&Request::get("/healthz")).unwrap());
    }

    #[test]
    fn that_no_rule_covers_is_denied_with_any_headers() {
        let chain = stack().mint("alice", &["--tool", READ]).unwrap();
        for request in [
            Request::get("/"),
            Request::get("/healthz/"),
            Request::get("/v1/catalog"),
            Request::get("/v1/catalog/book/pages"),
            Request::new("DELETE", "/v1/catalog/book"),
        ] {
            assert_denied(&stack().send(&request.delegation(&chain)).unwrap(), 403, "no_route");
        }
    }

    #[test]
    fn needs_the_tool_of_its_rule() {
        let chain = stack().mint("alice", &["--tool", CHARGE]).unwrap();
        let reply = stack().send(&book().delegation(chain)).unwrap();
        assert_denied(&reply, 403, "tool_not_granted");
        assert!(reply.header("www-authenticate").unwrap().contains("insufficient_scope"));
    }

    #[test]
    fn may_have_no_query_member_that_the_rule_does_not_know() {
        let chain = stack().mint("alice", &["--tool", READ]).unwrap();
        let reply = stack()
            .send(&Request::get("/v1/catalog/book?edition=2").delegation(chain))
            .unwrap();
        assert_denied(&reply, 403, "argument_unknown");
        assert_eq!(reply.argument().as_deref(), Some("edition"));
    }

    #[test]
    fn may_have_no_body_that_no_delegation_constrains() {
        let chain = stack().mint("alice", &["--tool", READ]).unwrap();
        let with_body = book().delegation(&chain).json(r#"{"item":"another"}"#);
        assert_denied(&stack().send(&with_body).unwrap(), 403, "body_unmapped");
    }

    #[test]
    fn whose_dot_segments_envoy_resolves_is_decided_as_the_service_sees_it() {
        let chain = stack().mint("alice", &["--tool", READ_BOOK]).unwrap();
        let reply = stack()
            .send(&Request::get("/v1/catalog/pen/../book").delegation(&chain))
            .unwrap();
        assert_eq!(reply.received().unwrap().target, "/v1/catalog/book");
        let reply = stack()
            .send(&Request::get("/v1/catalog/book/../pen").delegation(&chain))
            .unwrap();
        assert_denied(&reply, 403, "argument_not_allowed");
        let reply = stack().send(&Request::get("/healthz/../v1/catalog/book")).unwrap();
        assert_denied(&reply, 401, "delegation_missing");
    }

    #[test]
    fn of_grpc_is_answered_in_grpcs_way() {
        for (target, status, reason) in [
            ("/v1/catalog/book", "16", "delegation_missing"),
            ("/grpc.Service/Method", "7", "no_route"),
        ] {
            let reply = stack()
                .send(&Request::get(target).header("content-type", "application/grpc"))
                .unwrap();
            assert_eq!(
                (reply.status, reply.header("grpc-status")),
                (200, Some(status)),
                "{target}"
            );
            assert!(reply.header("grpc-message").unwrap().contains(reason), "{target}");
        }
    }

    #[test]
    fn that_is_no_proper_http_1_1_never_reaches_the_service() {
        for request in [
            book().without("host"),
            book().version("HTTP/1.0"),
            book().header("host", "elsewhere.example"),
            book().without("host").header("host", "payments.example/x"),
            Request::get("http://[/v1/catalog/book"),
        ] {
            let reply = stack().send(&request).unwrap();
            assert!((400..500).contains(&reply.status), "{request:?}: {}", reply.status);
        }
    }
}

mod without_envoys_own_checks {
    use super::*;

    /// Envoy passes on every request that it can parse.
    fn lenient() -> &'static Stack {
        static STACK: LazyLock<Stack> = LazyLock::new(|| {
            let options = StackOptions::quick()
                .replacing("normalize_path: true", "normalize_path: false")
                .replacing("merge_slashes: true", "merge_slashes: false")
                .replacing("action: REJECT_REQUEST", "action: KEEP_UNCHANGED")
                .replacing(
                    "use_remote_address: true",
                    "upgrade_configs: [{upgrade_type: websocket}]",
                );
            Stack::start(&options).unwrap()
        });
        &STACK
    }

    #[test]
    fn a_path_of_two_readings_is_denied() {
        let chain = lenient().mint("alice", &["--tool", READ]).unwrap();
        for path in [
            "/v1/catalog/../catalog/book",
            "/v1/catalog/./book",
            "/v1/catalog/%2e%2e/book",
            "/v1/catalog//book",
            "//v1/catalog/book",
            "/v1/catalog/a%2Fbook",
            "/v1/catalog/a%5cbook",
            "/v1/catalog/a\\book",
            "/v1/catalog/book;x=1",
            "/v1/catalog/book%00",
            "/v1/catalog/book%0a",
            "/v1/catalog/%2562ook",
            "/v1/catalog/book%2",
            "/v1/catalog/%zz",
        ] {
            let reply = lenient().send(&Request::get(path).delegation(&chain)).unwrap();
            assert_eq!(
                (reply.status, reply.reason().as_deref()),
                (400, Some("path_ambiguous")),
                "{path}"
            );
        }
        assert_allowed(
            &lenient()
                .send(&Request::get("/v1/catalog/b%6fok").delegation(&chain))
                .unwrap(),
        );
    }

    #[test]
    fn upgrades_are_denied_even_on_public_paths() {
        let chain = lenient().mint("alice", &["--tool", READ]).unwrap();
        let upgrade = |target| {
            Request::get(target)
                .header("connection", "upgrade")
                .header("upgrade", "websocket")
        };
        for request in [
            upgrade("/healthz"),
            upgrade("/v1/catalog/book").delegation(&chain),
            upgrade("/elsewhere"),
        ] {
            assert_denied(&lenient().send(&request).unwrap(), 403, "upgrade_denied");
        }
    }

    #[test]
    fn connect_is_denied() {
        let reply = lenient()
            .send(&Request::new("CONNECT", "payments.example:443"))
            .unwrap();
        assert_denied(&reply, 403, "upgrade_denied");
    }
}
