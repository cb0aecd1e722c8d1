//! The filter denies a request that a service could read differently.
//!
//! Every such request is sent twice. First past the filter: the service returns the request, and one of the habits in
//! [`minds`] reads something in it that the delegation does not grant. Then through the filter, which denies it with
//! the stated reason before the service sees it. Envoy's normalization is off.

use std::fmt::Debug;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use credence_e2e::received::{MARK, Received};
use credence_e2e::{Client, Http2, Reply, Request, Stack, StackOptions, minds};

/// Rules before those of envoy-config/envoy.yaml.
const RULES: &str = r#"rules:
                              - name: pay
                                match: {methods: [POST], path: /v1/pay}
                                tool: pay
                                args: {account: {query: account}, amount: {query: amount, type: number}}
                                ignore_query: [note, "filter[a]"]
                                proof: none
                              - name: tenant
                                match: {methods: [GET], path: /v1/tenant}
                                tool: tenant
                                args: {account: {header: x-account}}
                                proof: none
                              - name: order
                                match: {methods: [POST], path: /v1/order}
                                tool: pay
                                args: {account: {body: /account}, amount: {body: /amount, type: number}}
                                proof: none
                              - name: site
                                match: {methods: [GET], path: /v1/site}
                                tool: site
                                args: {host: {host: true}, method: {method: true}}
                                proof: none
                              - name: beta
                                match: {path: /v1/stage, headers: {x-stage: {exact: beta}}}
                                public: true
                              - name: debug
                                match: {path: /v1/debug, query: {debug: {exact: "0"}}}
                                public: true
                              - name: part
                                match: {path: /v1/export, query: {full_export: {absent: true}}}
                                public: true
                              - name: live
                                match: {path: /v1/live, headers: {x-stage: {absent: true}}}
                                public: true
                              - name: numbered
                                match: {path: "/v1/numbered/{number:integer}"}
                                public: true
                              - name: secret
                                match: {methods: [GET], path: /v1/docs/secret}
                                tool: secret
                                proof: none
                              - name: write
                                match: {methods: [POST], path: "/v1/docs/**"}
                                tool: write
                                proof: none
                              - name: docs
                                match: {path: "/v1/docs/**"}
                                public: true
                              - name: any
                                match: {path: "/v1/numbered/{other}"}
                                tool: catalog.read
                                args: {item: {path: other}}
                                proof: none
"#;

/// All that the agent may do: read the book, pay up to 100 from `a1`, see its tenant, use the site.
const GRANTS: &[&str] = &[
    r#"catalog.read={"item":{"constraint_type":"exact","value":"book"}}"#,
    r#"pay={"account":{"constraint_type":"exact","value":"a1"},"amount":{"constraint_type":"range","max":100}}"#,
    r#"tenant={"account":{"constraint_type":"exact","value":"a1"}}"#,
    r#"site={"host":{"constraint_type":"exact","value":"payments.example"},"method":{"constraint_type":"exact","value":"GET"}}"#,
];

/// The way past the filter.
const BARE: &str = r#"    - name: bare
      address: {socket_address: {address: 127.0.0.1, port_value: 0}}
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: bare
                route_config:
                  virtual_hosts: [{name: service, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: service}}]}]
                http_filters:
                  - name: envoy.filters.http.router
                    typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
    - name: ingress
"#;

/// Shared by all tests; it stops with the process.
fn stack() -> &'static Stack {
    static STACK: LazyLock<Stack> = LazyLock::new(|| {
        let options = StackOptions::quick()
            .replacing("    - name: ingress\n", BARE)
            .replacing("rules:\n", RULES)
            .replacing("normalize_path: true", "normalize_path: false")
            .replacing("merge_slashes: true", "merge_slashes: false")
            .replacing("action: REJECT_REQUEST", "action: KEEP_UNCHANGED");
        Stack::start(&options).unwrap()
    });
    &STACK
}

fn chain() -> &'static str {
    static CHAIN: LazyLock<String> = LazyLock::new(|| {
        let granted: Vec<&str> = GRANTS.iter().flat_map(|grant| ["--tool", grant]).collect();
        stack().mint("alice", &granted).unwrap()
    });
    &CHAIN
}

/// The request as the service gets it past the filter; `None` if Envoy itself rejects it.
fn past_the_filter(request: &Request) -> Option<Received> {
    let mut client = Client::connect(stack().envoy.listener("bare").unwrap()).unwrap();
    client.send(request).unwrap().received()
}

/// Sends it through the filter, with the delegation. A request reaches the service only if the service answers it.
fn through_the_filter(request: &Request) -> Reply {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let mark = format!("through-{}", COUNT.fetch_add(1, Ordering::Relaxed));
    let reply = stack()
        .send(&request.clone().delegation(chain()).header(MARK, &mark))
        .unwrap();
    assert_eq!(
        stack().upstream.has_seen(&mark),
        reply.received().is_some(),
        "{request:?}"
    );
    reply
}

/// Asserts that the service could read `reading` in the request, and that the filter denies it.
#[track_caller]
fn assert_denied<T: Debug + PartialEq>(
    request: &Request,
    mind: impl Fn(&Received) -> T,
    reading: &T,
    status: u16,
    reason: &str,
) {
    let received = past_the_filter(request).unwrap_or_else(|| panic!("Envoy itself rejects {request:?}"));
    assert_eq!(&mind(&received), reading, "{received:?}");
    let reply = through_the_filter(request);
    let told = (reply.status, reply.reason());
    assert_eq!(told, (status, Some(reason.to_owned())), "{request:?}: {}", reply.text());
}

/// Asserts that there is only one reading, and that the request with it is allowed.
#[track_caller]
fn assert_read_alike<T: Debug + PartialEq>(request: &Request, mind: impl Fn(&Received) -> T, reading: &T) {
    let reply = through_the_filter(request);
    let received = reply
        .received()
        .unwrap_or_else(|| panic!("{request:?}: {}", reply.text()));
    assert_eq!(&mind(&received), reading, "{received:?}");
}

/// Asserts that Envoy itself rejects it, even without normalization.
#[track_caller]
fn assert_not_even_taken(bytes: &[u8]) {
    for listener in ["bare", "ingress"] {
        let mut client = Client::connect(stack().envoy.listener(listener).unwrap()).unwrap();
        let reply = client.send_raw(bytes).unwrap();
        assert!((400..500).contains(&reply.status), "{listener}: {reply:?}");
        assert!(reply.received().is_none());
    }
}

mod the_path {
    use super::*;

    #[track_caller]
    fn assert_ambiguous(target: &str, mind: fn(&Received) -> String, reading: &str) {
        assert_denied(&Request::get(target), mind, &reading.to_owned(), 400, "path_ambiguous");
    }

    #[test]
    fn with_encoded_slashes() {
        assert_ambiguous("/v1/catalog/book%2F..%2Fpen", minds::tidied_path, "/v1/catalog/pen");
        assert_ambiguous("/v1%2fcatalog%2fpen", minds::tidied_path, "/v1/catalog/pen");
    }

    #[test]
    fn with_dot_segments() {
        for target in [
            "/v1/catalog/book/../pen",
            "/v1/catalog/./pen",
            "/healthz/../v1/catalog/pen",
            "/v1/catalog/book/%2e%2e/pen",
            "/v1/catalog/book/.%2E/pen",
            "/v1/catalog/book/..;/pen",
        ] {
            assert_ambiguous(target, minds::tidied_path, "/v1/catalog/pen");
        }
    }

    #[test]
    fn with_escapes_that_are_escaped() {
        assert_ambiguous("/v1/catalog/%2570en", minds::path_decoded_twice, "/v1/catalog/pen");
        assert_ambiguous(
            "/v1/catalog/book%252f%252e%252e%252fpen",
            minds::path_decoded_twice,
            "/v1/catalog/pen",
        );
    }

    #[test]
    fn with_parameters() {
        assert_ambiguous("/v1/catalog/pen;v=book", minds::tidied_path, "/v1/catalog/pen");
        assert_ambiguous("/v1;a=b/catalog/pen", minds::tidied_path, "/v1/catalog/pen");
    }

    #[test]
    fn with_empty_segments() {
        for target in [
            "/v1/catalog//pen",
            "//v1/catalog/pen",
            "/v1//catalog/pen",
            "/v1/catalog/pen//",
        ] {
            assert_ambiguous(target, minds::tidied_path, "/v1/catalog/pen");
        }
    }

    #[test]
    fn with_backslashes() {
        assert_ambiguous("/v1/catalog\\pen", minds::tidied_path, "/v1/catalog/pen");
        assert_ambiguous("/v1/catalog/book%5c..%5Cpen", minds::tidied_path, "/v1/catalog/pen");
    }

    #[test]
    fn with_an_encoded_nul() {
        assert_ambiguous("/v1/catalog/pen%00book", minds::tidied_path, "/v1/catalog/pen");
    }

    #[test]
    fn with_escapes_that_are_none() {
        assert_ambiguous("/v1/catalog/book%", minds::tidied_path, "/v1/catalog/book%");
        assert_ambiguous("/v1/catalog/%zzbook", minds::tidied_path, "/v1/catalog/%zzbook");
        assert_ambiguous("/v1/catalog/%c0%ae", minds::tidied_path, "/v1/catalog/\u{fffd}\u{fffd}");
    }

    #[test]
    fn with_a_fragment() {
        assert_not_even_taken(b"GET /v1/catalog/book#/../pen HTTP/1.1\r\nhost: payments.example\r\n\r\n");
    }

    #[test]
    fn with_bytes_beyond_ascii() {
        let request = Request::get("/v1/catalog/b\u{f6}\u{f6}k");
        let reply = through_the_filter(&request);
        assert_eq!(reply.status, 400, "{}", reply.text());
    }

    #[test]
    fn with_a_number_in_another_spelling() {
        for target in [
            "/v1/numbered/042",
            "/v1/numbered/+42",
            "/v1/numbered/4.2e1",
            "/v1/numbered/42.0",
        ] {
            let atoi = |received: &Received| {
                received
                    .target
                    .rsplit('/')
                    .next()
                    .and_then(|last| last.parse::<f64>().ok())
            };
            assert_denied(&Request::get(target), atoi, &Some(42.0), 400, "path_ambiguous");
        }
    }

    #[test]
    fn in_an_escaped_but_plain_spelling_is_the_same_to_all() {
        assert_read_alike(
            &Request::get("/v1/catalog/b%6Fok"),
            minds::tidied_path,
            &"/v1/catalog/book".to_owned(),
        );
    }

    #[test]
    fn with_letters_in_another_case() {
        for target in ["/v1/docs/SECRET", "/v1/docs/Secret", "/v1/docs/%53ecret"] {
            assert_ambiguous(target, minds::caseless_path, "/v1/docs/secret");
        }
        let own = |received: &Received| received.target.clone();
        assert_read_alike(&Request::get("/v1/docs/Other"), own, &"/v1/docs/Other".to_owned());
    }

    #[test]
    fn with_a_trailing_slash_or_a_format() {
        assert_ambiguous("/v1/docs/secret/", minds::path_without_ending, "/v1/docs/secret");
        assert_ambiguous("/v1/docs/secret.json", minds::path_without_ending, "/v1/docs/secret");
        let own = |received: &Received| received.target.clone();
        for target in ["/v1/docs/other.json", "/v1/docs/other/"] {
            assert_read_alike(&Request::get(target), own, &target.to_owned());
        }
    }

    #[test]
    fn in_absolute_form_is_that_of_the_service_with_its_host() {
        let there = Request::get("http://payments.example/v1/catalog/book")
            .without("host")
            .header("host", "other.example");
        let seen = |received: &Received| (received.target.clone(), minds::header(received, "host"));
        let reading = ("/v1/catalog/book".to_owned(), Some("payments.example".to_owned()));
        assert_read_alike(&there, seen, &reading);
        assert_ambiguous(
            "http://payments.example/v1/catalog/book/../pen",
            minds::tidied_path,
            "/v1/catalog/pen",
        );
    }
}

mod the_query {
    use super::*;

    fn pay(query: &str) -> Request {
        Request::post(&format!("/v1/pay?{query}"))
    }

    fn account(received: &Received) -> Option<String> {
        minds::query_member(received, "account")
    }

    fn amount(received: &Received) -> Option<String> {
        minds::query_member(received, "amount")
    }

    #[track_caller]
    fn assert_unreadable(query: &str, mind: fn(&Received) -> Option<String>, reading: &str, status: u16, reason: &str) {
        assert_denied(&pay(query), mind, &Some(reading.to_owned()), status, reason);
    }

    #[test]
    fn with_a_member_twice() {
        assert_unreadable(
            "account=a1&amount=5&account=a2",
            account,
            "a2",
            403,
            "argument_repeated",
        );
        assert_unreadable(
            "account=a1&amount=5&%61ccount=a2",
            account,
            "a2",
            403,
            "argument_repeated",
        );
        assert_unreadable(
            "account=a1&amount=5&amount=500",
            amount,
            "500",
            403,
            "argument_repeated",
        );
    }

    #[test]
    fn with_a_plus() {
        assert_unreadable("account=+a1&amount=5", account, " a1", 403, "argument_ambiguous");
        assert_unreadable("account=a1&amount=+5", amount, " 5", 403, "argument_ambiguous");
        assert_unreadable("account=a1&amount=5&+account=a2", account, "a2", 400, "query_ambiguous");
    }

    #[test]
    fn with_a_semicolon() {
        assert_unreadable(
            "account=a1&amount=5&note=x;account=a2",
            account,
            "a2",
            400,
            "query_ambiguous",
        );
        assert_unreadable("account=a1;account=a2&amount=5", account, "a2", 400, "query_ambiguous");
    }

    #[test]
    fn with_an_encoded_control_character() {
        assert_unreadable("account=a1%00&amount=5", account, "a1\0", 403, "argument_ambiguous");
        assert_unreadable("account=a1%0a&amount=5", account, "a1\n", 403, "argument_ambiguous");
        assert_unreadable("account=a1&amount=5&account%00=a2", amount, "5", 400, "query_ambiguous");
    }

    #[test]
    fn with_escapes_that_are_none() {
        assert_unreadable("account=a1%&amount=5", account, "a1%", 403, "argument_ambiguous");
        assert_unreadable(
            "account=a1%u0031&amount=5",
            account,
            "a1%u0031",
            403,
            "argument_ambiguous",
        );
        assert_unreadable(
            "account=a1%ff&amount=5",
            account,
            "a1\u{fffd}",
            403,
            "argument_ambiguous",
        );
        assert_unreadable("account=a1&amount=5&%zz=1", amount, "5", 400, "query_ambiguous");
    }

    #[test]
    fn with_a_member_without_a_name() {
        assert_unreadable("=a2&account=a1&amount=5", account, "a1", 403, "argument_unknown");
    }

    #[test]
    fn with_a_name_in_a_spelling_that_some_take_for_it() {
        for other in [
            "account[]",
            "account[0]",
            "account[x]",
            "Account",
            "ACCOUNT",
            "%20account",
            "account%5B%5D",
        ] {
            let query = format!("account=a1&amount=5&{other}=a2");
            assert_unreadable(&query, account, "a2", 403, "argument_unknown");
        }
    }

    #[test]
    fn with_a_number_in_another_spelling() {
        for (text, reading) in [
            ("05", "05"),
            ("5e1", "5e1"),
            ("0x5", "0x5"),
            ("5.", "5."),
            (".5", ".5"),
            ("-0", "-0"),
            ("%205", " 5"),
            ("5%20", "5 "),
            ("%D9%A5", "\u{665}"),
            ("5,0", "5,0"),
            ("NaN", "NaN"),
            ("9007199254740993", "9007199254740993"),
            ("", ""),
        ] {
            let query = format!("account=a1&amount={text}");
            assert_unreadable(&query, amount, reading, 403, "argument_malformed");
        }
    }

    #[test]
    fn with_a_form_behind_it() {
        let form = |received: &Received| minds::form_member(received, "account");
        let request = Request::new("POST", "/v1/pay?account=a1&amount=5")
            .header("content-type", "application/x-www-form-urlencoded")
            .header("content-length", "10")
            .trailing("account=a2");
        assert_denied(&request, form, &Some("a2".to_owned()), 403, "body_unmapped");
    }

    #[test]
    fn with_a_method_in_it() {
        let method = |received: &Received| minds::query_member(received, "_method");
        let request = pay("account=a1&amount=5&_method=DELETE");
        assert_denied(&request, method, &Some("DELETE".to_owned()), 403, "argument_unknown");
    }

    #[test]
    fn with_a_value_that_some_take_for_a_part_of_the_name() {
        let named = |received: &Received| received.target.split_once("]=").map(|(name, _)| format!("{name}]"));
        assert_unreadable(
            "account=a1]=x&amount=5",
            named,
            "/v1/pay?account=a1]",
            403,
            "argument_ambiguous",
        );
    }

    #[test]
    fn with_an_object_that_is_ignored_by_its_name_is_let_through() {
        assert_read_alike(&pay("account=a1&amount=5&filter[a]=1"), account, &Some("a1".to_owned()));
    }

    #[test]
    fn in_an_escaped_but_plain_spelling_is_the_same_to_all() {
        assert_read_alike(
            &pay("a%63count=%611&amount=%35&note=+"),
            account,
            &Some("a1".to_owned()),
        );
    }
}

mod a_header_that_is_an_argument {
    use super::*;

    fn tenant() -> Request {
        Request::get("/v1/tenant")
    }

    fn account(received: &Received) -> Option<String> {
        minds::header(received, "x-account")
    }

    #[test]
    fn sent_twice() {
        let request = tenant().header("x-account", "a1").header("X-Account", "a2");
        assert_denied(&request, account, &Some("a2".to_owned()), 403, "argument_repeated");
    }

    #[test]
    fn sent_in_another_spelling() {
        for name in ["x_account", "X_Account", "x.account", "x~account", "X!Account"] {
            let both = tenant().header("x-account", "a1").header(name, "a2");
            assert_denied(&both, account, &Some("a2".to_owned()), 403, "argument_repeated");
            let alone = tenant().header(name, "a1");
            assert_denied(&alone, account, &Some("a1".to_owned()), 403, "argument_repeated");
        }
    }

    #[test]
    fn with_a_list() {
        let request = tenant().header("x-account", "a1, a2");
        assert_denied(&request, account, &Some("a2".to_owned()), 403, "argument_not_allowed");
    }

    #[test]
    fn with_bytes_that_are_not_utf_8() {
        let request = tenant().header("x-account", b"a1\xff");
        assert_denied(
            &request,
            account,
            &Some("a1\u{fffd}".to_owned()),
            403,
            "argument_ambiguous",
        );
    }

    #[test]
    fn beside_one_of_another_name_is_the_same_to_all() {
        let request = tenant().header("x-account", "a1").header("x.trace", "a2");
        assert_read_alike(&request, account, &Some("a1".to_owned()));
    }

    #[test]
    fn with_white_space_around_it_is_the_same_to_all() {
        let request = tenant().header("x-account", " \ta1 \t ");
        assert_read_alike(&request, account, &Some("a1".to_owned()));
    }

    #[test]
    fn continued_on_another_line() {
        let chain = chain();
        let request = |field: &str| format!("GET /v1/tenant HTTP/1.1\r\nhost: payments.example\r\n{field}\r\n\r\n");
        let folded = request("x-account: a1\r\n  a2");
        let mut client = Client::connect(stack().envoy.listener("bare").unwrap()).unwrap();
        let received = client.send_raw(folded.as_bytes()).unwrap().received().unwrap();
        assert_ne!(account(&received).as_deref(), Some("a1"), "Envoy joins the lines");
        let mut client = Client::connect(stack().envoy.ingress()).unwrap();
        let folded = request(&format!("delegation: {chain}\r\nx-account: a1\r\n  a2"));
        let reply = client.send_raw(folded.as_bytes()).unwrap();
        assert_eq!(reply.reason().as_deref(), Some("argument_not_allowed"), "{reply:?}");
    }
}

mod the_body {
    use super::*;

    const GOOD: &str = r#"{"account":"a1","amount":5}"#;

    fn order() -> Request {
        Request::new("POST", "/v1/order")
    }

    /// With these bytes under these headers.
    fn with(headers: &[(&str, &str)], body: impl Into<Vec<u8>>) -> Request {
        let body = body.into();
        let request = headers
            .iter()
            .fold(order(), |request, (name, value)| request.header(name, value));
        request.header("content-length", body.len().to_string()).trailing(body)
    }

    fn account(received: &Received) -> Option<String> {
        minds::json_member(received, "account")
    }

    fn amount(received: &Received) -> Option<String> {
        minds::json_member(received, "amount")
    }

    #[track_caller]
    fn assert_unreadable(body: &str, mind: fn(&Received) -> Option<String>, reading: &str, status: u16, reason: &str) {
        assert_denied(&order().json(body), mind, &Some(reading.to_owned()), status, reason);
    }

    #[test]
    fn that_is_plain_is_the_same_to_all() {
        assert_read_alike(&order().json(GOOD), account, &Some(r#""a1""#.to_owned()));
    }

    #[test]
    fn in_another_charset() {
        for kind in [
            "application/json; charset=utf-16",
            "application/json; charset=iso-8859-1",
            "application/json; charset=\"utf-7\"",
            "application/json; charset=utf-8; charset=utf-16",
        ] {
            let request = with(&[("content-type", kind)], GOOD);
            let seen = |received: &Received| minds::header(received, "content-type");
            assert_denied(&request, seen, &Some(kind.to_owned()), 400, "body_media_type");
        }
        let utf_16: Vec<u8> = GOOD.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let request = with(&[("content-type", "application/json")], utf_16);
        let length = |received: &Received| received.body.len();
        assert_denied(&request, length, &(2 * GOOD.len()), 400, "body_malformed");
    }

    #[test]
    fn without_a_kind_or_of_another() {
        assert_denied(&with(&[], GOOD), amount, &Some("5".to_owned()), 400, "body_media_type");
        for kind in [
            "text/json",
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=b",
            "application/json-patch+json",
            "application/json, text/plain",
            "application/cbor",
        ] {
            let request = with(&[("content-type", kind)], GOOD);
            assert_denied(&request, amount, &Some("5".to_owned()), 400, "body_media_type");
        }
    }

    #[test]
    fn of_two_kinds() {
        for second in ["content-type", "content_type"] {
            let request = with(&[("content-type", "application/json"), (second, "text/plain")], GOOD);
            let seen = |received: &Received| minds::header(received, "content-type");
            assert_denied(&request, seen, &Some("text/plain".to_owned()), 400, "body_media_type");
        }
    }

    #[test]
    fn that_is_compressed_or_says_so() {
        for coding in ["gzip", "br", "identity", "aws-chunked"] {
            let headers = [("content-type", "application/json"), ("content-encoding", coding)];
            assert_denied(
                &with(&headers, GOOD),
                amount,
                &Some("5".to_owned()),
                400,
                "body_media_type",
            );
        }
    }

    #[test]
    fn with_a_member_twice() {
        for body in [
            r#"{"account":"a1","amount":5,"amount":500}"#,
            r#"{"account":"a1","amount":5,"am\u006funt":500}"#,
        ] {
            assert_unreadable(body, amount, "500", 400, "body_malformed");
        }
    }

    #[test]
    fn with_a_member_that_the_rule_does_not_name() {
        for body in [
            r#"{"account":"a1","amount":5,"Amount":500}"#,
            r#"{"account":"a1","amount":5,"AMOUNT":500}"#,
        ] {
            let seen = |received: &Received| received.body.contains("500").then(|| "500".to_owned());
            assert_unreadable(body, seen, "500", 403, "argument_unknown");
        }
        assert_unreadable(
            r#"{"account":"a1","amount":5,"fee":500}"#,
            amount,
            "5",
            403,
            "argument_unknown",
        );
        assert_unreadable(
            r#"{"account":"a1","amount":5,"__proto__":{}}"#,
            amount,
            "5",
            403,
            "argument_unknown",
        );
        assert_unreadable(
            r#"{"account":"a1","amount":5,"":1}"#,
            amount,
            "5",
            403,
            "argument_unknown",
        );
    }

    #[test]
    fn with_something_before_or_behind_it() {
        assert_unreadable(&format!("\u{feff}{GOOD}"), amount, "5", 400, "body_malformed");
        assert_unreadable(&format!("{GOOD}{GOOD}"), amount, "5", 400, "body_malformed");
        assert_unreadable(&format!("{GOOD}\0"), amount, "5", 400, "body_malformed");
        assert_unreadable(&format!("{GOOD}//"), amount, "5", 400, "body_malformed");
    }

    #[test]
    fn that_only_lenient_parsers_take() {
        for body in [
            r#"{"account":"a1","amount":5,}"#,
            r#"{'account':'a1','amount':5}"#,
            r#"{account:"a1",amount:5}"#,
            r#"{"account":"a1","amount":5 /* all */}"#,
            r#"{"account":"a1","amount":+5}"#,
            r#"{"account":"a1","amount":05}"#,
            r#"{"account":"a1","amount":NaN}"#,
            "{\"account\":\"a\t1\",\"amount\":5}",
            "{\"account\":\"a1\",\"amount\":5",
        ] {
            let seen = |received: &Received| received.body.clone();
            assert_denied(&order().json(body), seen, &body.to_owned(), 400, "body_malformed");
        }
    }

    #[test]
    fn with_numbers_that_not_all_can_hold() {
        for number in [
            "9007199254740993",
            "1e400",
            "0.1000000000000000055511151231257827",
            "1E+1000000000",
        ] {
            let body = format!(r#"{{"account":"a1","amount":{number}}}"#);
            let reply = through_the_filter(&order().json(body.as_str()));
            assert!(reply.received().is_none(), "{number}: {reply:?}");
            assert_unreadable(&body, amount, number, 403, "argument_malformed");
        }
    }

    #[test]
    fn with_a_value_of_another_type() {
        for value in [
            r#""5""#,
            "true",
            "null",
            "[5]",
            r#"{"$serde_json::private::Number":"5"}"#,
        ] {
            let body = format!(r#"{{"account":"a1","amount":{value}}}"#);
            assert_unreadable(&body, amount, value, 403, "argument_malformed");
        }
    }

    #[test]
    fn that_is_nested_too_deeply() {
        let deep = "[".repeat(10_000) + &"]".repeat(10_000);
        let body = format!(r#"{{"account":"a1","amount":5,"x":{deep}}}"#);
        let length = |received: &Received| received.body.len();
        assert_denied(&order().json(body.as_str()), length, &body.len(), 400, "body_malformed");
    }

    #[test]
    fn with_an_escaped_nul_or_half_a_character() {
        assert_unreadable(
            r#"{"account":"a1\u0000","amount":5}"#,
            account,
            r#""a1\u0000""#,
            403,
            "argument_not_allowed",
        );
        let half = r#"{"account":"a1\ud800","amount":5}"#;
        let seen = |received: &Received| received.body.clone();
        assert_denied(&order().json(half), seen, &half.to_owned(), 400, "body_malformed");
        let broken = with(
            &[("content-type", "application/json")],
            &b"{\"account\":\"a1\xff\",\"amount\":5}"[..],
        );
        let length = |received: &Received| received.body.contains('\u{fffd}');
        assert_denied(&broken, length, &true, 400, "body_malformed");
    }

    #[test]
    fn of_a_request_that_should_have_none() {
        let request = Request::get("/v1/tenant")
            .header("x-account", "a1")
            .json(r#"{"account":"a2"}"#);
        assert_denied(&request, account, &Some(r#""a2""#.to_owned()), 403, "body_unmapped");
    }

    #[test]
    fn whose_length_could_be_read_differently() {
        let head = "POST /v1/order HTTP/1.1\r\nhost: payments.example\r\ncontent-type: application/json\r\n";
        for framing in [
            "content-length: 27\r\ntransfer-encoding: chunked\r\n",
            "transfer-encoding: chunked\r\ncontent-length: 27\r\n",
            "transfer-encoding: chunked, identity\r\n",
            "transfer-encoding: xchunked\r\n",
            "transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n",
            "transfer-encoding : chunked\r\n",
            "transfer-encoding:\x0bchunked\r\n",
            "content-length: 27\r\ncontent-length: 5\r\n",
            "content-length: 27, 5\r\n",
            "content-length: +27\r\n",
            "content-length: -1\r\n",
            "content-length: 0x1b\r\n",
            "content-length: 99999999999999999999\r\n",
        ] {
            let message = format!("{head}{framing}\r\n{GOOD}");
            for listener in ["bare", "ingress"] {
                let mut client = Client::connect(stack().envoy.listener(listener).unwrap()).unwrap();
                let reply = client.send_raw(message.as_bytes()).unwrap();
                assert!((400..502).contains(&reply.status), "{framing:?} {listener}: {reply:?}");
            }
        }
    }
}

mod the_method {
    use super::*;

    #[test]
    fn cannot_be_replaced_by_a_header() {
        for name in [
            "x-http-method-override",
            "X-HTTP-Method",
            "x_method_override",
            "x.http.method.override",
            "x-forwarded-method",
            "X-Original-Method",
        ] {
            let request = Request::get("/v1/catalog/book").header(name, "DELETE");
            let bare = past_the_filter(&request).unwrap();
            assert_eq!(minds::method(&bare), "DELETE");
            assert_read_alike(&request, minds::method, &"GET".to_owned());
            // Also on a path that is open to all: the overridden method is not open.
            assert_read_alike(
                &Request::get("/healthz").header(name, "DELETE"),
                minds::method,
                &"GET".to_owned(),
            );
        }
    }

    /// Over HTTP/1, Envoy itself rejects it.
    #[test]
    fn in_another_letter_case_is_no_other_method() {
        let connect = |listener| Http2::connect(stack().envoy.listener(listener).unwrap()).unwrap();
        for method in ["post", "Post"] {
            for target in ["/v1/docs/a", "/nowhere"] {
                let request = Request::new(method, target);
                let bare = connect("bare").send(&request).unwrap().received().unwrap();
                assert_eq!(minds::caseless_method(&bare), "POST");
                let reply = connect("ingress").send(&request).unwrap();
                let told = (reply.status, reply.reason());
                assert_eq!(told, (400, Some("method_ambiguous".to_owned())), "{request:?}");
            }
        }
        let purge = connect("ingress").send(&Request::new("PURGE", "/v1/docs/a")).unwrap();
        assert_eq!(purge.received().unwrap().method, "PURGE");
    }

    #[test]
    fn counts_in_its_own_letter_case() {
        let request = Request::new("get", "/v1/catalog/book");
        let reply = through_the_filter(&request);
        assert!(reply.received().is_none(), "{reply:?}");
    }
}

mod the_host {
    use super::*;

    fn at(host: impl AsRef<[u8]>) -> Request {
        Request::get("/v1/site").without("host").header("host", host)
    }

    fn host(received: &Received) -> Option<String> {
        let host = minds::header(received, "host")?.to_lowercase();
        let name = host.rsplit('@').next()?.split(':').next()?;
        Some(name.trim_end_matches('.').to_owned())
    }

    #[test]
    fn in_any_case_and_with_port_or_dot_is_the_same_to_all() {
        for spelling in [
            "PAYMENTS.example",
            "payments.example:443",
            "payments.example.",
            "Payments.Example.:8443",
        ] {
            assert_read_alike(&at(spelling), host, &Some("payments.example".to_owned()));
        }
    }

    #[test]
    fn of_another_is_another() {
        for other in ["other.example", "payments.example.other.example", "payments-example"] {
            assert_denied(&at(other), host, &Some(other.to_owned()), 403, "argument_not_allowed");
        }
    }

    #[test]
    fn that_another_header_names_is_never_the_one() {
        for (name, value) in [
            ("x-forwarded-host", "other.example"),
            ("X_Forwarded_Host", "other.example"),
            ("x-original-host", "other.example"),
            ("x-host", "other.example"),
            ("forwarded", "for=1.2.3.4; host=other.example"),
            ("x.forwarded.host", "other.example"),
            ("x-forwarded-server", "other.example"),
            ("x-http-host", "other.example"),
            ("X-HTTP-Host-Override", "other.example"),
            ("x-real-host", "other.example"),
            ("$WSSN", "other.example"),
        ] {
            let request = at("payments.example").header(name, value);
            assert_eq!(
                minds::host(&past_the_filter(&request).unwrap()).as_deref(),
                Some("other.example")
            );
            assert_read_alike(&request, minds::host, &Some("payments.example".to_owned()));
            let public = Request::get("/healthz").header(name, value);
            assert_read_alike(&public, minds::host, &Some("payments.example".to_owned()));
        }
    }

    #[test]
    fn that_is_no_name() {
        for spelling in [
            "payments.example@other.example",
            "payments.example:80@other.example",
            "payments.example, other.example",
            "payments.example other.example",
            "payments.example/other",
            "payments.example..",
            "payments.example:port",
            "payments%2eexample",
        ] {
            let reply = through_the_filter(&at(spelling));
            // Envoy itself rejects some of them.
            assert_eq!(reply.status, 400, "{spelling}: {reply:?}");
        }
        assert_denied(
            &at("payments..example"),
            host,
            &Some("payments..example".to_owned()),
            400,
            "host_malformed",
        );
    }
}

mod a_path_that_a_header_names {
    use super::*;

    #[test]
    fn is_never_taken_for_the_request_s() {
        for name in [
            "x-original-url",
            "X-Rewrite-URL",
            "x_original_url",
            "x.original.url",
            "x-original-uri",
            "X-Forwarded-Uri",
            "x-matched-path",
            "x-invoke-path",
        ] {
            let request = |target| Request::get(target).header(name, "/v1/catalog/pen");
            let bare = past_the_filter(&request("/v1/catalog/book")).unwrap();
            assert_eq!(minds::rewritten_path(&bare), "/v1/catalog/pen");
            for target in ["/v1/catalog/book", "/healthz"] {
                assert_read_alike(&request(target), minds::rewritten_path, &target.to_owned());
            }
        }
    }

    #[test]
    fn is_never_cut_off_it() {
        for name in [
            "script_name",
            "SCRIPT-NAME",
            "x-script-name",
            "script.name",
            "x-forwarded-prefix",
        ] {
            let request = |target| Request::get(target).header(name, "/v1/catalog");
            let bare = past_the_filter(&request("/v1/catalog/book")).unwrap();
            assert_eq!(minds::path_in_application(&bare), "/book");
            assert_read_alike(
                &request("/v1/catalog/book"),
                minds::path_in_application,
                &"/v1/catalog/book".to_owned(),
            );
        }
    }
}

mod what_tells_rules_apart {
    use super::*;

    fn stage(received: &Received) -> Option<String> {
        minds::header(received, "x-stage")
    }

    #[test]
    fn a_header_of_two_readings() {
        let request = || Request::get("/v1/stage");
        for ambiguous in [
            request().header("x-stage", "beta").header("x-stage", "live"),
            request().header("x-stage", "beta").header("x_stage", "live"),
            request().header("x_stage", "live"),
            request().header("x-stage", "beta, live"),
            request().header("x-stage", "beta").header("x.stage", "live"),
            request().header("x~stage", "live"),
            Request::get("/v1/live").header("x.stage", "live"),
            Request::get("/v1/live").header("x!stage", "live"),
        ] {
            assert_denied(&ambiguous, stage, &Some("live".to_owned()), 400, "condition_ambiguous");
        }
        assert_read_alike(&Request::get("/v1/live").header("x.trace", "live"), stage, &None);
    }

    #[test]
    fn a_query_member_of_two_readings() {
        let debug = |received: &Received| minds::query_member(received, "debug");
        for (query, reading) in [
            ("debug=0&debug=1", "1"),
            ("Debug=1", "1"),
            ("debug[]=1", "1"),
            ("debug=0;debug=1", "1"),
            ("debug=0&+debug=1", "1"),
            ("debug=+0", " 0"),
            ("debug=0%", "0%"),
            ("[debug]=1", "1"),
            ("debug.x=1", "1"),
            ("query.debug=1", "1"),
            ("%20debug=1", "1"),
            ("debug%20=1", "1"),
            ("debug]=1", "1"),
            ("_debug=1", "1"),
            ("debug=0&[debug]=1", "1"),
        ] {
            let request = Request::get(&format!("/v1/debug?{query}"));
            assert_denied(&request, debug, &Some(reading.to_owned()), 400, "condition_ambiguous");
        }
        let full = |received: &Received| minds::query_member(received, "full_export");
        for name in [
            "full[export",
            "full.export",
            "full%20export",
            "Full_Export",
            "options[full_export]",
        ] {
            let request = Request::get(&format!("/v1/export?{name}=1"));
            assert_denied(&request, full, &Some("1".to_owned()), 400, "condition_ambiguous");
        }
        for name in ["filter[a]", "full", "full-export"] {
            assert_read_alike(&Request::get(&format!("/v1/export?{name}=1")), full, &None);
        }
    }
}

mod an_upgrade {
    use super::*;

    #[test]
    fn to_http_2_is_not_passed_on() {
        let request = Request::get("/v1/catalog/book")
            .header("connection", "upgrade, http2-settings")
            .header("upgrade", "h2c")
            .header("http2-settings", "AAMAAABkAAQAAP__");
        let reply = through_the_filter(&request);
        let upgrade = reply
            .received()
            .and_then(|received| minds::header(&received, "upgrade"));
        assert_eq!(upgrade, None, "{reply:?}");
    }
}
