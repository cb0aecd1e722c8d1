//! Envoy's router reads requests too. With several virtual hosts, prefixes and rewrites, the cluster that a request
//! reaches belongs to the rule that decided it.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use credence_e2e::{Http2, Reply, Request, Stack, StackOptions};

/// Replaces the one virtual host of envoy-config/envoy.yaml. Each route tells the service its cluster.
const VIRTUAL_HOSTS: &str = r#"virtual_hosts:
                    - name: shop
                      domains: [shop.example, "*.shop.example"]
                      routes:
                        - match: {ADMIN}
                          route: {cluster: shop-admin, prefix_rewrite: /}
                          request_headers_to_add: [{header: {key: x-cluster, value: shop-admin}}]
                        - match: {prefix: /, headers: [{name: x-delegation-agent, present_match: true}]}
                          route: {cluster: bank}
                          request_headers_to_add: [{header: {key: x-cluster, value: bank}}]
                        - match: {path: /weighted}
                          route: {weighted_clusters: {clusters: [{name: shop, weight: 1}, {name: shop-api, weight: 1}]}}
                          request_headers_to_add: [{header: {key: x-cluster, value: "%UPSTREAM_CLUSTER%"}}]
                        - match: {prefix: /api/}
                          route: {cluster: shop-api, prefix_rewrite: /}
                          request_headers_to_add: [{header: {key: x-cluster, value: shop-api}}]
                        - match: {prefix: /}
                          route: {cluster: shop}
                          request_headers_to_add: [{header: {key: x-cluster, value: shop}}]
                    - name: bank
                      domains: [bank.example]
                      routes:
                        - match: {path: /exact}
                          route: {cluster: bank-exact}
                          request_headers_to_add: [{header: {key: x-cluster, value: bank-exact}}]
                        - match: {prefix: /}
                          route: {cluster: bank}
                          request_headers_to_add: [{header: {key: x-cluster, value: bank}}]
                    - name: rest
                      domains: ["*"]
                      routes:
                        - match: {prefix: /}
                          route: {cluster: service}
                          request_headers_to_add: [{header: {key: x-cluster, value: service}}]
"#;

const VIRTUAL_HOST: &str = r#"virtual_hosts:
                    - name: service
                      domains: ["*"]
                      routes:
                        - match: {prefix: /}
                          route: {cluster: service, timeout: 15s}
"#;

/// A rule for each cluster: it asks for a tool of the cluster's name, or is public.
const RULES: &str = r#"rules:
                              - name: shop-admin
                                match: {hosts: [shop.example, "*.shop.example"], path: "/admin/**"}
                                tool: shop-admin
                                proof: none
                              - name: shop-api-root
                                match: {hosts: [shop.example, "*.shop.example"], path: /api}
                                tool: shop
                                proof: none
                              - name: shop-api
                                match: {hosts: [shop.example, "*.shop.example"], path: "/api/**"}
                                tool: shop-api
                                proof: none
                              - name: shop
                                match: {hosts: [shop.example, "*.shop.example"], path: "/**"}
                                CLUSTERS
                                tool: shop
                                proof: none
                              - name: bank-exact
                                match: {hosts: [bank.example], path: /exact}
                                tool: bank-exact
                                proof: none
                              - name: bank
                                match: {hosts: [bank.example], path: "/**"}
                                tool: bank
                                proof: none
"#;

/// The last rule of envoy-config/envoy.yaml, and another one after it.
const LAST_RULE: &str = "match: {path: /healthz}\n                                public: true\n";
const REST: &str = r#"                              - {name: rest, match: {path: "/**"}, public: true}
"#;

const CLUSTERS: [&str; 5] = ["shop-admin", "shop-api", "shop", "bank-exact", "bank"];

fn start(admin: &str, clusters: &str, strips: bool) -> Stack {
    let clusters_like_the_service: String = CLUSTERS
        .iter()
        .map(|name| format!("    - {{name: {name}, connect_timeout: 1s, load_assignment: *service}}\n"))
        .collect();
    let control_plane = "    # The control plane's gRPC port, `credence serve`.\n";
    let mut options = StackOptions::quick()
        .replacing(VIRTUAL_HOST, &VIRTUAL_HOSTS.replace("{ADMIN}", admin))
        .replacing(LAST_RULE, &[LAST_RULE, REST].concat())
        .replacing("rules:\n", &RULES.replace("CLUSTERS", clusters))
        .replacing(
            "load_assignment:\n        cluster_name: service\n",
            "load_assignment: &service\n        cluster_name: service\n",
        )
        .replacing(control_plane, &[&clusters_like_the_service, control_plane].concat());
    if !strips {
        options = options
            .replacing("strip_any_host_port: true", "strip_any_host_port: false")
            .replacing("strip_trailing_host_dot: true", "strip_trailing_host_dot: false");
    }
    Stack::start(&options).unwrap()
}

/// Routes that match what the rules match, and an Envoy that strips nothing of a host.
fn literal() -> &'static Stack {
    static STACK: LazyLock<Stack> = LazyLock::new(|| start("{path_separated_prefix: /admin}", "", false));
    &STACK
}

/// As in envoy-config/envoy.yaml, with a route that matches more than its rule.
fn loose() -> &'static Stack {
    static STACK: LazyLock<Stack> = LazyLock::new(|| start("{prefix: /admin}", "clusters: [shop]", true));
    &STACK
}

fn mint(stack: &Stack) -> String {
    let tools: Vec<String> = CLUSTERS.iter().map(|tool| format!("{tool}={{}}")).collect();
    let options: Vec<&str> = tools.iter().flat_map(|tool| ["--tool", tool]).collect();
    stack.mint("alice", &options).unwrap()
}

/// The rule's cluster, which the identity headers tell the service, and the cluster that Envoy chose.
fn reached(reply: &Reply) -> Option<(String, String)> {
    let received = reply.received()?;
    let rules = received.header("x-delegation-tool").unwrap_or("service");
    Some((rules.to_owned(), received.header("x-cluster")?.to_owned()))
}

/// The result of each: the rule's cluster, or the reason of the denial.
#[track_caller]
fn assert_each_reaches_its_rules_cluster(stack: &Stack, expected: &[(&str, &str, &str)]) {
    let chain = mint(stack);
    for (host, path, expected) in expected {
        let request = Request::get(path)
            .without("host")
            .header("host", host)
            .delegation(&chain);
        let reply = stack.send(&request).unwrap();
        let told = match reached(&reply) {
            Some((rules, envoys)) => {
                assert_eq!(rules, envoys, "{host}{path}");
                rules
            }
            None => reply.reason().unwrap_or_else(|| reply.status.to_string()),
        };
        assert_eq!(told, *expected, "{host}{path}");
    }
}

#[test]
fn a_host_that_envoy_routes_as_another_is_denied() {
    assert_each_reaches_its_rules_cluster(
        literal(),
        &[
            ("shop.example", "/admin/users", "shop-admin"),
            ("SHOP.Example", "/admin/users", "shop-admin"),
            ("a.shop.example", "/api/v1", "shop-api"),
            ("bank.example", "/", "bank"),
            ("other.example", "/admin", "service"),
            ("other.example:8080", "/admin", "service"),
            ("shop.example:8080", "/admin/users", "host_ambiguous"),
            ("shop.example.", "/admin/users", "host_ambiguous"),
            ("bank.example.:80", "/", "host_ambiguous"),
            ("shop.example:", "/admin/users", "host_malformed"),
        ],
    );
}

#[test]
fn a_host_that_envoy_strips_is_the_rules() {
    assert_each_reaches_its_rules_cluster(
        loose(),
        &[
            ("shop.example:8080", "/admin/users", "shop-admin"),
            ("shop.example.", "/admin/users", "shop-admin"),
            ("Bank.Example.:80", "/", "bank"),
            ("shop.example:", "/admin/users", "host_malformed"),
        ],
    );
}

/// `prefix: /admin` matches `/adminx`, and the service gets `/x`. A rule for `/admin/**` does not match it.
#[test]
fn a_path_that_a_prefix_route_takes_elsewhere_is_denied_where_the_rule_names_its_cluster() {
    assert_each_reaches_its_rules_cluster(
        loose(),
        &[
            ("shop.example", "/admin", "shop-admin"),
            ("shop.example", "/admin/x", "shop-admin"),
            ("shop.example", "/other", "shop"),
            ("shop.example", "/adminx", "cluster_mismatch"),
            ("shop.example", "/admin-x.y/", "cluster_mismatch"),
            ("shop.example", "/admin-users", "cluster_mismatch"),
        ],
    );
    // A route that ends at the segment matches no more than its rule.
    assert_each_reaches_its_rules_cluster(
        literal(),
        &[
            ("shop.example", "/admin", "shop-admin"),
            ("shop.example", "/admin/x", "shop-admin"),
            ("shop.example", "/adminx", "shop"),
        ],
    );
}

/// Envoy chooses the route before the filter removes forged headers, and again afterwards.
#[test]
fn a_made_up_header_that_a_route_goes_by_leads_nowhere_else() {
    for (stack, expected) in [(literal(), Some("shop")), (loose(), None)] {
        let forged = Request::get("/other").without("host").header("host", "shop.example");
        let forged = forged.header("x-delegation-agent", "made-up").delegation(mint(stack));
        let reply = stack.send(&forged).unwrap();
        match expected {
            Some(cluster) => assert_eq!(reached(&reply), Some((cluster.to_owned(), cluster.to_owned()))),
            None => assert_eq!(reply.reason().as_deref(), Some("cluster_mismatch")),
        }
    }
    // Removing any other header changes nothing.
    let forged = Request::get("/other").without("host").header("host", "shop.example");
    let forged = forged
        .header("x-delegation-tool", "bank")
        .header("x-http-method", "PUT");
    let reply = loose().send(&forged.delegation(mint(loose()))).unwrap();
    assert_eq!(reached(&reply), Some(("shop".to_owned(), "shop".to_owned())));
}

#[test]
fn a_route_of_several_clusters_is_the_one_that_was_chosen() {
    let chain = mint(loose());
    let mut outcomes: BTreeMap<Option<String>, usize> = BTreeMap::new();
    for _ in 0..40 {
        let request = Request::get("/weighted").without("host").header("host", "shop.example");
        let reply = loose().send(&request.delegation(&chain)).unwrap();
        if let Some((rules, envoys)) = reached(&reply) {
            assert_eq!(rules, envoys);
        }
        *outcomes.entry(reply.reason()).or_default() += 1;
    }
    let outcomes: Vec<_> = outcomes.into_keys().collect();
    assert_eq!(outcomes, [None, Some("cluster_mismatch".to_owned())]);
}

#[test]
fn the_cluster_that_a_request_reaches_belongs_to_its_rule() {
    let hosts = [
        "shop.example",
        "SHOP.example",
        "a.shop.example",
        "a.b.shop.example",
        "shopxexample",
        "xshop.example",
        "bank.example",
        "BANK.EXAMPLE",
        "other.example",
        "shop.example.other.example",
        "[::1]",
        "127.0.0.1",
    ];
    let endings = ["", ".", ":80", ":8080", ".:443", ":", ":0", ":080"];
    let paths = [
        "/",
        "/admin",
        "/admin/",
        "/admin/users",
        "/ADMIN/users",
        "/%61dmin/users",
        "/Admin",
        "/admin.json",
        "/adminx",
        "/admin;v=1/x",
        "/admin%2Fx",
        "/admin//x",
        "/x/../admin",
        "/x/%2e%2e/admin",
        "/api",
        "/api/",
        "/api/v1",
        "/API/v1",
        "/apiv1",
        "/exact",
        "/exact/",
        "/EXACT",
        "/exact?x=1",
        "/exact.html",
        "/exactly",
        "/other",
        "/other.json",
        "/Other/",
    ];
    for stack in [literal(), loose()] {
        let chain = mint(stack);
        let mut outcomes: BTreeMap<String, usize> = BTreeMap::new();
        for host in hosts {
            for ending in endings {
                for (number, path) in paths.iter().enumerate() {
                    let host = format!("{host}{ending}");
                    let request = Request::get(path)
                        .without("host")
                        .header("host", &host)
                        .delegation(&chain);
                    let reply = if number % 7 == 0 && ending != ":" {
                        let client = Http2::connect(stack.envoy.ingress()).unwrap();
                        client.send(&request).unwrap()
                    } else {
                        stack.send(&request).unwrap()
                    };
                    let outcome = match reached(&reply) {
                        Some((rules, envoys)) => {
                            assert_eq!(rules, envoys, "{host}{path}");
                            rules
                        }
                        None => reply.reason().unwrap_or_else(|| reply.status.to_string()),
                    };
                    *outcomes.entry(outcome).or_default() += 1;
                }
            }
        }
        let of = |outcome: &str| outcomes.get(outcome).copied().unwrap_or_default();
        for cluster in CLUSTERS.iter().chain(&["service"]) {
            assert!(of(cluster) > 0, "{cluster}: {outcomes:?}");
        }
        assert!(of("path_ambiguous") > 50 && of("host_malformed") > 50, "{outcomes:?}");
    }
}
