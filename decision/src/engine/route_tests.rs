//! Differences between Envoy's routes and the rules: a request that they may read differently is denied.

use super::*;

/// An engine with these rules and further members.
fn engine_with(members: &str, rules: &str) -> (Engine, TestWorld) {
    let mut world = TestWorld::default();
    let configuration = format!(
        r#"{{
            "audience": ["{AUDIENCE}"],
            "trust_anchors": [{{"issuer": "{ISSUER}", "jwk": {}, "asserts_subjects": true}}],
            "control_plane": {{"cluster": "credence", "log_id": "0123456789abcdef0123456789abcdef"}},
            {members}
            "rules": [{rules}]
        }}"#,
        key(1).public().to_jwk()
    );
    let policy = Policy::parse(configuration.as_bytes()).unwrap();
    let replay = ReplayMemory::join(&mut world, [5; 16], UnixTime(NOW - 1000), 5).unwrap();
    (Engine::new(policy.into(), [6; 16], replay), world)
}

/// The result of a request without a delegation: under a protected rule it is denied for that.
fn ask(engine: &mut Engine, world: &mut TestWorld, method: &str, host: &str, path: &str) -> &'static str {
    let request = [(":method", method), (":authority", host), (":path", path)];
    decide(engine, world, &request)
}

const PROTECTED: &str = "delegation_missing";

mod a_method {
    use super::*;

    const RULES: &str = r#"
        {"name": "write", "match": {"methods": ["POST", "PURGE"], "path": "/v1/**"}, "tool": "read"},
        {"name": "read", "match": {"path": "/v1/**"}, "public": true}"#;

    #[test]
    fn in_another_letter_case_is_denied_before_any_rule_is_tried() {
        for members in ["", r#""default": "allow","#] {
            let (mut engine, mut world) = engine_with(members, RULES);
            for method in ["post", "Post", "POSt", "purge", "get", "Connect", "POST "] {
                for path in ["/v1/a", "/elsewhere", "/v1/../a"] {
                    let found = ask(&mut engine, &mut world, method, "a.example", path);
                    assert_eq!(found, "method_ambiguous", "{method} {path}");
                }
            }
        }
    }

    #[test]
    fn in_capitals_is_matched_as_written() {
        let (mut engine, mut world) = engine_with("", RULES);
        for (method, expected) in [
            ("POST", PROTECTED),
            ("PURGE", PROTECTED),
            ("GET", "allow"),
            ("BREW", "allow"),
            ("M-SEARCH", "allow"),
        ] {
            let found = ask(&mut engine, &mut world, method, "a.example", "/v1/a");
            assert_eq!(found, expected, "{method}");
        }
    }

    #[test]
    fn in_another_letter_case_is_not_a_repeated_request() {
        let rules = r#"{"name": "catalog", "match": {"path": "/catalog/{item}"}, "tool": "read",
            "args": {"item": {"path": "item"}}, "proof": "none"}"#;
        let (mut engine, mut world) = engine_with("", rules);
        let delegation = delegation();
        let mut request = read(&delegation);
        for _ in 0..4 {
            assert_eq!(decide(&mut engine, &mut world, &request), "allow");
        }
        request[0] = (":method", "get");
        for _ in 0..4 {
            assert_eq!(decide(&mut engine, &mut world, &request), "method_ambiguous");
        }
    }
}

mod a_host {
    use super::*;

    const RULES: &str = r#"
        {"name": "shop", "match": {"hosts": ["shop.example", "*.tenants.example", "::1"], "path": "/v1/**"}, "public": true},
        {"name": "tenant", "match": {"path": "/v2"}, "tool": "tenant", "args": {"host": {"host": true}}},
        {"name": "any", "match": {"path": "/**"}, "public": true}"#;

    /// Envoy's virtual hosts compare the authority with its port and trailing dot, and services without.
    #[test]
    fn that_envoy_may_route_differently_is_denied_if_rules_have_host_conditions() {
        let (mut engine, mut world) = engine_with("", RULES);
        for host in [
            "shop.example:80",
            "shop.example.",
            "SHOP.example.:443",
            "a.tenants.example:8443",
            "[::1]:80",
            "[0::1]",
        ] {
            let found = ask(&mut engine, &mut world, "GET", host, "/v1/a");
            assert_eq!(found, "host_ambiguous", "{host}");
        }
        for host in ["other.example:80", "other.example."] {
            let found = ask(&mut engine, &mut world, "GET", host, "/v2");
            assert_eq!(found, "host_ambiguous", "an argument: {host}");
        }
        for host in ["shop.example:", "shop.example.:", "[::1]:"] {
            let found = ask(&mut engine, &mut world, "GET", host, "/v1/a");
            assert_eq!(found, "host_malformed", "{host}");
        }
    }

    #[test]
    fn in_its_plain_form_or_without_host_conditions_is_accepted() {
        let (mut engine, mut world) = engine_with("", RULES);
        for (host, path, expected) in [
            ("shop.example", "/v1/a", "allow"),
            ("SHOP.example", "/v1/a", "allow"),
            ("[::1]", "/v1/a", "allow"),
            ("other.example", "/v2", PROTECTED),
            ("other.example:80", "/v1/a", "allow"),
            ("shop.example:80", "/elsewhere", "allow"),
            ("shop.example.", "/elsewhere", "allow"),
        ] {
            let found = ask(&mut engine, &mut world, "GET", host, path);
            assert_eq!(found, expected, "{host}{path}");
        }
    }

    #[test]
    fn with_a_port_is_accepted_if_the_configuration_says_that_envoy_ignores_it() {
        let (mut engine, mut world) = engine_with(r#""hosts": {"allow": ["port"]},"#, RULES);
        for (host, expected) in [
            ("shop.example:80", "allow"),
            ("shop.example.:80", "host_ambiguous"),
            ("shop.example:", "host_malformed"),
        ] {
            assert_eq!(ask(&mut engine, &mut world, "GET", host, "/v1/a"), expected, "{host}");
        }
    }
}

mod a_path {
    use super::*;

    const RULES: &str = r#"
        {"name": "admin", "match": {"path": "/admin/**"}, "tool": "admin"},
        {"name": "report", "match": {"path": "/Reports/{id}"}, "public": true},
        {"name": "site", "match": {"hosts": ["site.example"], "path": "/**"}, "public": true}"#;

    const SPELLINGS: [&str; 4] = ["/ADMIN/users", "/%41dmin/users", "/admin.json", "/Admin.html/"];

    #[test]
    fn in_another_spelling_of_an_earlier_rule_does_not_reach_a_later_one() {
        let (mut engine, mut world) = engine_with("", RULES);
        for path in SPELLINGS {
            let found = ask(&mut engine, &mut world, "GET", "site.example", path);
            assert_eq!(found, "path_ambiguous", "{path}");
        }
        for (path, expected) in [
            ("/admin/users", PROTECTED),
            ("/Reports/ABC", "allow"),
            ("/Reports/abc.json", "allow"),
            ("/Administration", "allow"),
        ] {
            let found = ask(&mut engine, &mut world, "GET", "site.example", path);
            assert_eq!(found, expected, "{path}");
        }
    }

    #[test]
    fn in_another_spelling_of_a_rule_does_not_pass_as_one_without_a_rule() {
        for (members, expected) in [("", "no_route"), (r#""default": "allow","#, "path_ambiguous")] {
            let (mut engine, mut world) = engine_with(members, RULES);
            for path in SPELLINGS {
                let found = ask(&mut engine, &mut world, "GET", "other.example", path);
                assert_eq!(found, expected, "{path}");
            }
        }
    }

    #[test]
    fn in_another_spelling_is_another_path_if_the_configuration_says_so() {
        let members = r#""paths": {"allow": ["letter_case", "trailing_slash", "format_suffix"]},"#;
        let (mut engine, mut world) = engine_with(members, RULES);
        for path in SPELLINGS {
            let found = ask(&mut engine, &mut world, "GET", "site.example", path);
            assert_eq!(found, "allow", "{path}");
        }
    }
}

mod a_rule_that_names_its_clusters {
    use super::*;

    const RULES: &str = r#"
        {"name": "site", "match": {"path": "/site/{item}"}, "tool": "read", "args": {"item": {"path": "item"}},
         "proof": "none", "clusters": ["site", "site-canary"]},
        {"name": "open", "match": {"path": "/**"}, "public": true, "clusters": ["site"]}"#;

    #[test]
    fn allows_no_request_to_another_cluster() {
        let (mut engine, mut world) = engine_with("", RULES);
        for (cluster, path, expected) in [
            (Some("site"), "/", "allow"),
            (Some("site"), "/site/a", PROTECTED),
            (Some("site-canary"), "/site/a", PROTECTED),
            (Some("site-canary"), "/", "cluster_mismatch"),
            (Some("admin"), "/", "cluster_mismatch"),
            (Some("admin"), "/site/a", "cluster_mismatch"),
            (None, "/", "cluster_mismatch"),
        ] {
            world.cluster = cluster;
            let found = ask(&mut engine, &mut world, "GET", "a.example", path);
            assert_eq!(found, expected, "{cluster:?} {path}");
        }
    }

    /// Envoy's routes may depend on headers, which a repeated request need not have.
    #[test]
    fn is_checked_again_for_a_repeated_request() {
        let (mut engine, mut world) = engine_with("", RULES);
        let delegation = delegation();
        let mut request = read(&delegation);
        request[2] = (":path", "/site/a");
        for cluster in [Some("site"), Some("admin"), None, Some("site")] {
            world.cluster = cluster;
            let expected = if cluster == Some("site") {
                "allow"
            } else {
                "cluster_mismatch"
            };
            for _ in 0..4 {
                assert_eq!(decide(&mut engine, &mut world, &request), expected, "{cluster:?}");
            }
        }
    }
}
