use super::super::condition::{HeaderTest, QueryTest};
use super::super::host::HostPattern;
use super::super::index::{MAX_ALIKE, MAX_NODES};
use super::super::template::{MAX_SEGMENTS, PathTemplate};
use super::*;
use crate::request::HeaderNames;
use crate::request::names::work;
use crate::request::target::Tolerated;
use crate::request::tests::serialize;

#[test]
fn the_first_route_that_matches_wins() {
    let mut routes = Routes::default();
    routes
        .push(pattern(&["a.example"], &["GET"], "/x"), "host and method")
        .unwrap();
    routes
        .push(pattern(&["*.example"], &[], "/x"), "wildcard host")
        .unwrap();
    routes.push(pattern(&[], &["POST"], "/{any}"), "method").unwrap();
    routes.push(pattern(&[], &[], "/**"), "everything").unwrap();
    let cases = [
        ("A.example:80", "GET", "/x", "host and method"),
        ("a.example", "PUT", "/x", "wildcard host"),
        ("b.example", "GET", "/x", "wildcard host"),
        ("example", "POST", "/x", "method"),
        ("example", "GET", "/x", "everything"),
        ("example", "post", "/x", "everything"),
    ];
    for (host, method, path, expected) in cases {
        let found = find(&routes, host, method, path, &[]);
        assert_eq!(found, Ok(Some(expected)), "{method} {host}{path}");
    }
}

#[test]
fn nothing_matches_without_a_fitting_route() {
    let mut routes = Routes::default();
    routes.push(pattern(&["a.example"], &["GET"], "/x"), "only").unwrap();
    assert_eq!(find(&routes, "b.example", "GET", "/x", &[]), Ok(None));
    assert_eq!(find(&routes, "a.example", "HEAD", "/x", &[]), Ok(None));
    assert_eq!(find(&routes, "a.example", "GET", "/y", &[]), Ok(None));
}

#[test]
fn conditions_choose_between_routes_of_one_path() {
    let routes = staged();
    let cases: [(&str, Headers<'_>, &str); 5] = [
        ("/x", &[("x-stage", "beta")], "beta"),
        ("/x?debug", &[("x-stage", "beta")], "beta"),
        ("/x?debug", &[("x-stage", "stable")], "debug"),
        ("/x?debug=1&debug=2", &[], "debug"),
        ("/x", &[], "plain"),
    ];
    for (path, headers, expected) in cases {
        let found = find(&routes, "a.example", "GET", path, headers);
        assert_eq!(found, Ok(Some(expected)), "{path} {headers:?}");
    }
}

#[test]
fn a_client_cannot_choose_its_rule_by_ambiguous_parts() {
    let routes = staged();
    let cases: [(&str, Headers<'_>, Unclear<'_>); 5] = [
        (
            "/x",
            &[("x-stage", "stable"), ("x-stage", "beta")],
            Unclear::Header("x-stage"),
        ),
        ("/x", &[("x_stage", "beta")], Unclear::Header("x-stage")),
        ("/x", &[("x-stage", "stable,beta")], Unclear::Header("x-stage")),
        ("/x?Debug=1", &[], Unclear::Query("debug")),
        ("/x?a=1;debug=1", &[], Unclear::Query("debug")),
    ];
    for (path, headers, expected) in cases {
        let found = find(&routes, "a.example", "GET", path, headers);
        assert_eq!(found, Err(expected.to_string()), "{path} {headers:?}");
    }
}

#[test]
fn parts_that_cannot_change_the_route_may_be_unclear() {
    let mut routes = Routes::default();
    let mut first = pattern(&[], &["POST"], "/x");
    first.conditions = vec![stage("beta"), header("x-other", HeaderTest::Present)];
    routes.push(first, "conditional").unwrap();
    routes.push(pattern(&[], &[], "/{any}"), "plain").unwrap();
    let repeated: &[(&str, &str)] = &[("x-stage", "beta"), ("x-stage", "stable")];
    // Another path, another method, and a condition that fails in every reading.
    for (method, path) in [("POST", "/y"), ("GET", "/x"), ("POST", "/x")] {
        let found = find(&routes, "a.example", method, path, repeated);
        assert_eq!(found, Ok(Some("plain")), "{method} {path}");
    }
}

#[test]
fn a_route_after_one_that_covers_it_is_refused() {
    let conditional = |path: &str, conditions: &[Condition]| Pattern {
        conditions: conditions.to_vec(),
        ..pattern(&[], &[], path)
    };
    let cases = [
        (pattern(&[], &[], "/x"), pattern(&[], &[], "/x"), true),
        (pattern(&[], &[], "/{a}"), pattern(&[], &["GET"], "/x"), true),
        (pattern(&[], &[], "/**"), pattern(&[], &[], "/"), true),
        (pattern(&[], &[], "/**"), pattern(&[], &[], "/x/{a}"), true),
        (
            pattern(&["*.example"], &["GET", "PUT"], "/x"),
            pattern(&["a.example"], &["PUT"], "/x"),
            true,
        ),
        (
            pattern(&["*.example"], &[], "/x"),
            pattern(&["*.a.example"], &[], "/x"),
            true,
        ),
        (pattern(&[], &[], "/{a}"), pattern(&[], &[], "/{b:integer}"), true),
        (pattern(&[], &[], "/{a:integer}"), pattern(&[], &[], "/42"), true),
        (pattern(&[], &[], "/{a:integer}"), pattern(&[], &[], "/042"), true),
        (pattern(&[], &[], "/{a:integer}"), pattern(&[], &[], "/{b}"), false),
        (pattern(&[], &[], "/{a:integer}"), pattern(&[], &[], "/x42"), false),
        (pattern(&[], &[], "/x"), pattern(&[], &[], "/{a}"), false),
        (pattern(&[], &[], "/{a}"), pattern(&[], &[], "/"), false),
        (pattern(&[], &[], "/{a}"), pattern(&[], &[], "/**"), false),
        (pattern(&[], &["GET"], "/x"), pattern(&[], &[], "/x"), false),
        (
            pattern(&["a.example"], &[], "/x"),
            pattern(&["a.example", "b.example"], &[], "/x"),
            false,
        ),
        (
            pattern(&["*.example"], &[], "/x"),
            pattern(&["example"], &[], "/x"),
            false,
        ),
        (pattern(&[], &[], "/x"), conditional("/x", &[stage("beta")]), true),
        (conditional("/x", &[stage("beta")]), pattern(&[], &[], "/x"), false),
        (
            conditional("/{a}", &[stage("beta")]),
            conditional("/x", &[stage("stable"), stage("beta")]),
            true,
        ),
        (
            conditional("/{a}", &[stage("beta")]),
            conditional("/x", &[stage("stable")]),
            false,
        ),
    ];
    for (earlier, later, refused) in cases {
        let description = format!("{earlier:?} before {later:?}");
        let mut routes = Routes::default();
        routes.push(earlier, ()).unwrap();
        let expected = if refused {
            Err(Unusable::Covered { earlier: 0 })
        } else {
            Ok(())
        };
        assert_eq!(routes.push(later, ()), expected, "{description}");
    }
}

#[test]
fn empty_segments_match_only_where_merging_them_changes_nothing() {
    let mut routes = Routes::default();
    for path in ["/files/**", "/{a}/admin", "/{a}/b/**"] {
        routes.push(pattern(&[], &[], path), path).unwrap();
    }
    let tolerated = Tolerated {
        empty_segment: true,
        ..Tolerated::default()
    };
    let cases = [
        ("/files/a//b", Ok(Some("/files/**"))),
        ("/files//", Ok(Some("/files/**"))),
        ("/x/b//c", Ok(Some("/{a}/b/**"))),
        ("/x//y", Ok(None)),
        ("/x//admin", Err(Unclear::Path.to_string())),
        ("/x//b/c", Err(Unclear::Path.to_string())),
    ];
    for (path, expected) in cases {
        let found = find_tolerating(tolerated, &routes, "a.example", "GET", path, &[]);
        assert_eq!(found, expected, "{path}");
    }
}

#[test]
fn a_path_that_an_earlier_rule_has_in_another_spelling_is_refused() {
    let protected_first = |protected: &'static [&'static str]| {
        let mut routes = Routes::default();
        for path in protected.iter().chain(&["/**"]) {
            routes.push(pattern(&[], &[], path), *path).unwrap();
        }
        routes
    };
    let cases: [(&'static [&'static str], &[&str]); 11] = [
        (
            &["/admin/**"],
            &[
                "/ADMIN/users",
                "/Admin",
                "/aDmin/",
                "/%41dmin/x",
                "/%61DMIN",
                "/adm%C4%B0n/users",
                "/adm%C4%B1n",
            ],
        ),
        (
            &["/a/{x}/end"],
            &["/a/any/END", "/A/Any/end", "/a/x/end/", "/A/x/END.json/"],
        ),
        (
            &["/reports"],
            &[
                "/reports/",
                "/REPORTS/",
                "/reports.json",
                "/Reports.XML/",
                "/reports.",
                "/reports..",
                "/reports.tar.gz",
                "/reports.longerthaneight",
                "/reports.a-b@%20",
            ],
        ),
        (&["/reports/"], &["/reports", "/reports.json", "/REPORTS"]),
        (&["/users/{id}"], &["/users/7/", "/Users/7", "/u%C5%BFers/7"]),
        (&["/keys"], &["/%E2%84%AAeys", "/%E2%84%AAey%C5%BF.json/"]),
        (
            &["/users/{id:integer}"],
            &["/users/7.json", "/users/7/", "/users/007.json"],
        ),
        (&["/files/**"], &["/files.zip", "/Files.zip/"]),
        // Each of several earlier rules counts.
        (&["/a/{x}/", "/{z}/b/", "/a/{y}"], &["/a/b"]),
        (&["/v1.2"], &["/V1.2", "/v1.2.json", "/v1.2/", "/v1.2.tar.gz"]),
        (
            &["/shop.v1.Orders/Place"],
            &["/shop.v1.orders/place", "/shop.v1.Orders/Place.json"],
        ),
    ];
    for (protected, paths) in cases {
        let routes = protected_first(protected);
        for path in paths {
            let found = find(&routes, "a.example", "GET", path, &[]);
            assert_eq!(found, Err(Unclear::Path.to_string()), "{protected:?} {path}");
        }
    }
    // Without a rule below, an unmatched spelling differs from an unmatched path.
    let mut routes = Routes::default();
    routes.push(pattern(&["a.example"], &["GET"], "/admin"), ()).unwrap();
    let respelled = Err(Unclear::Spelling.to_string());
    assert_eq!(find(&routes, "a.example", "GET", "/ADMIN", &[]), respelled);
    for (host, method, path) in [
        ("b.example", "GET", "/ADMIN"),
        ("a.example", "PUT", "/ADMIN"),
        ("a.example", "GET", "/ADMINX"),
    ] {
        assert_eq!(
            find(&routes, host, method, path, &[]),
            Ok(None),
            "{method} {host}{path}"
        );
    }
}

#[test]
fn a_path_in_a_rules_own_spelling_matches_that_rule() {
    let cases: [(&[&'static str], Requests<'_>); 7] = [
        // Letters that a capture or `**` matches are the request's own.
        (
            &["/Reports/{id}", "/files/{name}", "/assets/**", "/**"],
            &[
                ("/Reports/ABC", "/Reports/{id}"),
                ("/Reports/abc.json", "/Reports/{id}"),
                ("/files/a.json", "/files/{name}"),
                ("/assets/Site.CSS", "/assets/**"),
                ("/assets/x/", "/assets/**"),
                ("/assets/", "/assets/**"),
                ("/other.json", "/**"),
            ],
        ),
        // An operator who writes both spellings distinguishes them, in either order.
        (
            &["/a", "/A", "/a/", "/a.json", "/**"],
            &[("/a", "/a"), ("/A", "/A"), ("/a/", "/a/"), ("/a.json", "/a.json")],
        ),
        (
            &["/b/{x}", "/b/{x}/", "/**"],
            &[("/b/1", "/b/{x}"), ("/b/1/", "/b/{x}/")],
        ),
        (
            &["/u/{id:integer}", "/u/{id:integer}/", "/u/{name}"],
            &[("/u/7/", "/u/{id:integer}/"), ("/u/7x.json", "/u/{name}")],
        ),
        // A less specific earlier rule does not affect a later one.
        (&["/{x}/", "/c"], &[("/c", "/c")]),
        // Nor does a later rule affect an earlier one.
        (&["/{x}", "/d/**", "/D/e"], &[("/D", "/{x}"), ("/D/e", "/D/e")]),
        // Not a format: the text before the dot is empty, or the literal is not followed by a dot.
        (
            &["/e", "/{x}"],
            &[("/.e", "/{x}"), ("/ee.json", "/{x}"), ("/e-json", "/{x}")],
        ),
    ];
    for (paths, requests) in cases {
        let mut routes = Routes::default();
        for path in paths {
            routes.push(pattern(&[], &[], path), *path).unwrap();
        }
        for (path, expected) in requests {
            let found = find(&routes, "a.example", "GET", path, &[]);
            assert_eq!(found, Ok(Some(*expected)), "{paths:?} {path}");
        }
    }
}

#[test]
fn spellings_that_the_operator_distinguishes_are_distinct() {
    let mut routes = Routes::default();
    for path in ["/admin", "/**"] {
        routes.push(pattern(&[], &[], path), path).unwrap();
    }
    let letter_case = Tolerated {
        letter_case: true,
        ..Tolerated::default()
    };
    let trailing_slash = Tolerated {
        trailing_slash: true,
        ..Tolerated::default()
    };
    let format_suffix = Tolerated {
        format_suffix: true,
        ..Tolerated::default()
    };
    for (path, tolerated) in [
        ("/ADMIN", letter_case),
        ("/admin/", trailing_slash),
        ("/admin.json", format_suffix),
    ] {
        for other in [letter_case, trailing_slash, format_suffix, Tolerated::default()] {
            let expected = if other == tolerated {
                Ok(Some("/**"))
            } else {
                Err(Unclear::Path.to_string())
            };
            let found = find_tolerating(other, &routes, "a.example", "GET", path, &[]);
            assert_eq!(found, expected, "{path} {other:?}");
        }
    }
}

#[test]
fn an_encoded_slash_stays_within_its_segment() {
    let tolerated = Tolerated {
        encoded_slash: true,
        ..Tolerated::default()
    };
    let mut routes = Routes::default();
    let literal = PathTemplate::parse("/files/a%2Fb", tolerated).unwrap();
    let literal = Pattern {
        path: literal,
        ..pattern(&[], &[], "/")
    };
    routes.push(literal, "literal").unwrap();
    routes.push(pattern(&[], &[], "/files/{name}"), "capture").unwrap();
    routes.push(pattern(&[], &[], "/files/{folder}/{name}"), "two").unwrap();
    for (path, expected) in [
        ("/files/a%2fb", "literal"),
        ("/files/a%2Fc", "capture"),
        ("/files/a/b", "two"),
    ] {
        let found = find_tolerating(tolerated, &routes, "a.example", "GET", path, &[]);
        assert_eq!(found, Ok(Some(expected)), "{path}");
    }
}

#[test]
fn too_many_rules_of_one_path_and_too_large_an_index_are_refused() {
    let mut routes = Routes::default();
    for number in 0..MAX_ALIKE {
        let method = format!("M{number}");
        routes.push(pattern(&["a.example"], &[&method], "/x/{a}"), ()).unwrap();
    }
    let another = |host: &str| pattern(&[host], &["ANOTHER"], "/x/{b}");
    assert_eq!(routes.push(another("a.example"), ()), Err(Unusable::TooManyAlike));
    assert_eq!(routes.push(another("b.example"), ()), Ok(()));

    let mut routes = Routes::default();
    let long = "/a".repeat(MAX_SEGMENTS);
    let refused = (0..=MAX_NODES / MAX_SEGMENTS).find_map(|number| {
        let host = format!("host-{number}.example");
        routes.push(pattern(&[&host], &[], &long), ()).err()
    });
    assert_eq!(refused, Some(Unusable::IndexFull));
    let last = format!("host-{}.example", routes.routes.len() - 1);
    let refused = format!("host-{}.example", routes.routes.len());
    assert_eq!(find(&routes, &last, "GET", &long, &[]), Ok(Some(())));
    assert_eq!(find(&routes, &refused, "GET", &long, &[]), Ok(None));
}

/// Every mixture of `a` and `{x}` is a rule: a backtracking search would visit two to the depth.
#[test]
fn adversarial_rules_cost_at_most_one_visit_each() {
    const DEPTH: u32 = 10;
    let mut routes = Routes::default();
    for mixture in 0..2_usize.pow(DEPTH) {
        let segments = (0..DEPTH).map(|bit| match mixture >> bit & 1 {
            0 => "/a".to_owned(),
            _ => format!("/{{x{bit}}}"),
        });
        let path = segments.collect::<String>() + "/end";
        routes.push(pattern(&[], &[], &path), mixture).unwrap();
    }
    let mut judged = 0;
    let all = format!("{}/end", "/a".repeat(10));
    let target = Target::parse(all.as_bytes(), Tolerated::default()).unwrap();
    let none = routes
        .index
        .find("a.example", target.segments(), Tolerated::default(), |_| {
            judged += 1;
            Reading::No
        });
    assert_eq!((none.hit, judged), (None, routes.routes.len()));
    assert_eq!(find(&routes, "a.example", "GET", &all, &[]), Ok(Some(0)));
    let missed = "/a".repeat(10) + "/other";
    assert_eq!(find(&routes, "a.example", "GET", &missed, &[]), Ok(None));
}

/// The same rules, with requests that a service could read as each of them in another spelling.
#[test]
fn adversarial_spellings_cost_at_most_one_visit_each() {
    const DEPTH: u32 = 9;
    let mut routes = Routes::default();
    for mixture in 0..2_usize.pow(DEPTH) {
        let segments = (0..DEPTH).map(|bit| match mixture >> bit & 1 {
            0 => "/a".to_owned(),
            _ => "/A".to_owned(),
        });
        routes
            .push(pattern(&[], &[], &segments.collect::<String>()), ())
            .unwrap();
    }
    let target = format!("{}/a.json/", "/A".repeat(8));
    let target = Target::parse(target.as_bytes(), Tolerated::default()).unwrap();
    let mut judged = 0;
    let found = routes
        .index
        .find("a.example", target.segments(), Tolerated::default(), |_| {
            judged += 1;
            Reading::Yes
        });
    assert_eq!(
        (found.hit, judged, found.respelled.len()),
        (None, routes.routes.len(), routes.routes.len())
    );
}

#[test]
fn the_index_agrees_with_a_scan_of_the_rules() {
    let (mut found, mut unclear, mut respelled, mut refused) = (0, 0, 0, 0);
    for seed in 0..150 {
        let mut random = Random(seed);
        let tolerated = Tolerated {
            letter_case: random.below(3) == 0,
            trailing_slash: random.below(3) == 0,
            format_suffix: random.below(3) == 0,
            ..TOLERANT
        };
        let mut routes = Routes::default();
        let mut accepted: Vec<Pattern> = Vec::new();
        // Rules that were refused as covered, with the number of rules accepted before.
        let mut covered: Vec<(usize, Pattern)> = Vec::new();
        for _ in 0..1 + random.below(40) {
            let pattern = random.pattern();
            let earlier = accepted.iter().position(|earlier| earlier.covers(&pattern));
            match routes.push(pattern.clone(), ()) {
                Ok(()) => {
                    assert_eq!(earlier, None, "seed {seed}: {pattern:?}");
                    accepted.push(pattern);
                }
                Err(error) => {
                    let earlier = earlier.expect("a scan finds the rule that covers it");
                    assert_eq!(error, Unusable::Covered { earlier }, "seed {seed}: {pattern:?}");
                    covered.push((accepted.len(), pattern));
                    refused += 1;
                }
            }
        }
        for _ in 0..100 {
            let (host, method, path, headers) = random.request();
            let headers: Vec<_> = [(":method", method)].into_iter().chain(headers).collect();
            let buffer = serialize(&headers);
            let request = Request::parse(&buffer, &HeaderNames::default(), false).unwrap();
            let Ok(target) = Target::parse(path.as_bytes(), tolerated) else {
                continue;
            };
            let host = Host::parse(host.as_bytes()).unwrap();
            let name = &host.to_lower_case();
            let indexed = match routes.find(host, &request, &target) {
                Ok(Some(found)) => Scanned::Found(found.index, Box::new(found.captures)),
                Ok(None) => Scanned::Nothing,
                Err(Unclear::Spelling) => Scanned::Respelled,
                Err(_) => Scanned::Unclear,
            };
            let scanned = scan_both(accepted.iter(), name, &request, &target);
            assert_eq!(
                indexed, scanned,
                "seed {seed}: {method} {name}{path} {headers:?} {accepted:?}"
            );
            found += usize::from(matches!(scanned, Scanned::Found(..)));
            unclear += usize::from(scanned == Scanned::Unclear);
            respelled += usize::from(scanned == Scanned::Respelled);
            // A rule is refused only if it could never decide.
            for (before, pattern) in &covered {
                let with_it = accepted.iter().take(*before).chain([pattern]);
                let decides = matches!(
                    scan(with_it, name, &request, &target, target.segments()),
                    Scanned::Found(index, _) if index == *before
                );
                assert!(!decides, "seed {seed}: {method} {name}{path}: {pattern:?}");
            }
        }
    }
    assert!(
        found > 1_000 && unclear > 1_000 && respelled > 100 && refused > 300,
        "{found} {unclear} {respelled} {refused}"
    );
}

/// Prints the cost of a look-up: `cargo test --release -p credence-filter look_up -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement, to be run in release"]
#[allow(clippy::disallowed_methods)] // a clock, natively
fn measure_look_up() {
    use std::hint::black_box;
    use std::time::{Duration, Instant};
    let shapes: [Shape; 3] = [
        (
            "one host, many paths",
            |number| pattern(&[], &["GET"], &format!("/v1/resource-{number}/{{id}}/items/{{item}}")),
            |number| {
                (
                    "payments.example".to_owned(),
                    format!("/v1/resource-{number}/abc/items/42"),
                )
            },
        ),
        (
            "many hosts, one path",
            |number| pattern(&[&format!("tenant-{number}.example")], &[], "/v1/accounts/{id}/charges"),
            |number| {
                (
                    format!("tenant-{number}.example"),
                    "/v1/accounts/abc/charges".to_owned(),
                )
            },
        ),
        (
            "gRPC methods",
            |number| {
                pattern(
                    &[],
                    &["POST"],
                    &format!("/shop.v1.Service{}/Method{number}", number / 20),
                )
            },
            |number| {
                (
                    "payments.example".to_owned(),
                    format!("/shop.v1.Service{}/Method{number}", number / 20),
                )
            },
        ),
    ];
    let headers = [(":method", "GET"), ("accept", "*/*")];
    for (shape, rule, asked) in shapes {
        for count in [10, 1_000, 10_000] {
            let started = Instant::now();
            let mut routes = Routes::default();
            for number in 0..count {
                routes.push(rule(number), number).unwrap();
            }
            let built = started.elapsed();
            let method = if shape == "gRPC methods" { "POST" } else { "GET" };
            let buffer = serialize(&[&[(":method", method)], &headers[1..]].concat());
            let request = Request::parse(&buffer, &HeaderNames::default(), false).unwrap();
            let measure = |requests: &[(String, String)]| {
                let requests: Vec<_> = requests
                    .iter()
                    .map(|(host, path)| {
                        let target = Target::parse(path.as_bytes(), Tolerated::default()).unwrap();
                        (Host::parse(host.as_bytes()).unwrap(), target)
                    })
                    .collect();
                let mut best = Duration::MAX;
                for _ in 0..100 {
                    let started = Instant::now();
                    for (host, target) in requests.iter().cycle().take(10_000) {
                        black_box(routes.find(*host, &request, target).unwrap().unwrap().index);
                    }
                    best = best.min(started.elapsed());
                }
                best.as_nanos() / 10_000
            };
            // Requests of the same length for any count.
            let (one, ten) = (measure(&[asked(9)]), measure(&(0..10).map(asked).collect::<Vec<_>>()));
            let all = measure(&(0..count).map(asked).collect::<Vec<_>>());
            println!(
                "{shape}: {count} rules in {built:?}; one request {one} ns, ten {ten} ns, one for each rule {all} ns"
            );
        }
    }
}

#[test]
fn headers_and_query_are_read_once_for_all_rules() {
    let list = "a, ".repeat(100) + "a";
    let query_bytes = format!("n={}", "%61".repeat(100));
    let cost_with = |rules| {
        let mut routes = Routes::default();
        for rule in 0..rules {
            let conditions = (0..5).flat_map(|number| {
                [
                    header("x-list", HeaderTest::Prefix("a".to_owned())),
                    header("x-other", HeaderTest::Absent),
                    query(&format!("m{number}"), QueryTest::Absent),
                ]
            });
            let last = query("n", QueryTest::Exact(rule.to_string()));
            let pattern = Pattern {
                conditions: conditions.chain([last]).collect(),
                ..pattern(&[], &[], "/x")
            };
            routes.push(pattern, rule).unwrap();
        }
        routes.push(pattern(&[], &[], "/x"), rules).unwrap();
        work::take();
        let path = format!("/x?{query_bytes}");
        let found = find(
            &routes,
            "a.example",
            "GET",
            &path,
            &[("x-list", &list), ("x.trace", "1")],
        );
        assert_eq!(found, Ok(Some(rules)));
        work::take()
    };
    let with_one = cost_with(1);
    assert!(with_one > list.len() + query_bytes.len(), "{with_one}");
    assert_eq!(cost_with(50), with_one);
    assert_eq!(cost_with(250), with_one);
}

/// Prints the cost of conditions: `cargo test --release -p credence-filter conditions_cost -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement, to be run in release"]
#[allow(clippy::disallowed_methods)] // a clock, natively
fn measure_what_conditions_cost() {
    use std::hint::black_box;
    use std::time::{Duration, Instant};
    let names = format!("/x?{}", format!("{}=1&", "n".repeat(418)).repeat(128));
    let value = format!("/x?n0={}", "%61".repeat(18_000));
    let list = "a,".repeat(27_000);
    let parts = format!("/x?{}", format!("{}=1&", "nn.".repeat(8)).repeat(128));
    let shapes: [Asking<'_>; 5] = [
        ("a short query", "/x?a=1", &[], |_, number| {
            query(&format!("n{number}"), QueryTest::Absent)
        }),
        ("54 KB of query names", &names, &[], |_, number| {
            query(&format!("n{number}"), QueryTest::Absent)
        }),
        ("128 query names of 8 parts", &parts, &[], |_, number| {
            query(&format!("n{}", "-".repeat(3 * number + 1)), QueryTest::Absent)
        }),
        ("a query member of 54 KB", &value, &[], |rule, number| match number {
            0 => query("n0", QueryTest::Exact(format!("a{rule}"))),
            _ => query(&format!("n{number}"), QueryTest::Absent),
        }),
        (
            "a list of 54 KB in a header",
            "/x",
            &[("x-list", &list)],
            |rule, number| header("x-list", HeaderTest::Prefix(format!("{rule}-{number}-"))),
        ),
    ];
    for (shape, path, headers, condition) in shapes {
        for count in [1, 50, 250] {
            let mut routes = Routes::default();
            for rule in 0..count {
                // The last one fails, so that every rule is visited.
                let conditions = (0..15).map(|number| condition(rule, number));
                let conditions = conditions.chain([header(&format!("x-rule-{rule}"), HeaderTest::Present)]);
                let pattern = Pattern {
                    conditions: conditions.collect(),
                    ..pattern(&[], &[], "/x")
                };
                routes.push(pattern, rule).unwrap();
            }
            let buffer = serialize(&[&[(":method", "GET"), ("accept", "*/*")], headers].concat());
            let target = Target::parse(path.as_bytes(), Tolerated::default()).unwrap();
            let host = Host::parse(b"a.example").unwrap();
            let mut best = Duration::MAX;
            for _ in 0..20 {
                let request = Request::parse(&buffer, &HeaderNames::default(), false).unwrap();
                let started = Instant::now();
                let _ = black_box(routes.find(host, &request, &target));
                best = best.min(started.elapsed());
            }
            println!("{shape}: {count} rules of 16 conditions: {best:?}");
        }
    }
}

// === The scan that the index is compared with ===

#[derive(Debug, PartialEq)]
enum Scanned<'r> {
    Found(usize, Box<Captures<'r>>),
    Nothing,
    /// Only in another spelling.
    Respelled,
    Unclear,
}

fn scan<'a, 'r>(
    patterns: impl Iterator<Item = &'a Pattern>,
    host: &str,
    request: &Request<'r>,
    target: &Target<'r>,
    path: Segments<'r>,
) -> Scanned<'r> {
    let mut respelled: Vec<&Pattern> = Vec::new();
    for (index, pattern) in patterns.enumerate() {
        let fits = pattern.hosts.is_empty()
            || pattern.hosts.iter().any(|pattern| match pattern {
                HostPattern::Exact(name) => name == host,
                HostPattern::Under(suffix) => host.len() > suffix.len() && host.ends_with(suffix),
            });
        let besides = Reading::from(fits).and(judge(pattern, request, target));
        match besides.and(pattern.path.takes(path)) {
            Reading::Yes
                if respelled
                    .iter()
                    .any(|earlier| !pattern.path.is_as_specific_as(&earlier.path)) =>
            {
                return Scanned::Unclear;
            }
            Reading::Yes => return Scanned::Found(index, Box::new(pattern.path.take(path))),
            Reading::Unclear => return Scanned::Unclear,
            Reading::No => {
                if besides != Reading::No && pattern.path.takes_respelled(path, target.tolerated) {
                    respelled.push(pattern);
                }
            }
        }
    }
    if respelled.is_empty() {
        Scanned::Nothing
    } else {
        Scanned::Respelled
    }
}

/// By the names of this pattern only.
fn judge(pattern: &Pattern, request: &Request<'_>, target: &Target<'_>) -> Reading {
    let mut names = AskedNames::default();
    names.push(&pattern.conditions);
    pattern.judge(0, &Asked::new(&names, request, target))
}

fn scan_both<'a, 'r>(
    patterns: impl Iterator<Item = &'a Pattern> + Clone,
    host: &str,
    request: &Request<'r>,
    target: &Target<'r>,
) -> Scanned<'r> {
    let plain = scan(patterns.clone(), host, request, target, target.segments());
    let is_settled = matches!(plain, Scanned::Unclear | Scanned::Respelled);
    let Some(merged) = target.merged_segments().filter(|_| !is_settled) else {
        return plain;
    };
    match scan(patterns, host, request, target, merged) {
        merged @ (Scanned::Unclear | Scanned::Respelled) => merged,
        merged if merged != plain => Scanned::Unclear,
        _ => plain,
    }
}

/// SplitMix64: the same rules and requests in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) % bound as u64) as usize
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    fn pattern(&mut self) -> Pattern {
        let hosts: Vec<_> = (0..self.below(3))
            .map(|_| {
                self.one_of(&[
                    "a.example",
                    "b.a.example",
                    "*.example",
                    "*.a.example",
                    "*.b.a.example",
                    "::1",
                ])
            })
            .collect();
        let methods: Vec<_> = (0..self.below(3)).map(|_| self.one_of(&["GET", "PUT"])).collect();
        let mut path = String::new();
        for depth in 0..self.below(5) {
            let capture = format!("{{x{depth}}}");
            let integer = format!("{{x{depth}:integer}}");
            let segments = [
                "a", "b", "A", "42", "a;v", "a%2Fb", "%61", "a.json", &capture, &capture, &integer,
            ];
            let segment = self.one_of(&segments);
            path = path + "/" + segment;
        }
        path += match path.as_str() {
            "" => self.one_of(&["/", "/**"]),
            _ => self.one_of(&["", "", "", "/", "/**"]),
        };
        let conditions = (0..self.below(3)).map(|_| match self.below(6) {
            0 => stage("beta"),
            1 => stage("stable"),
            2 => header("x-other", HeaderTest::Absent),
            3 => header("x-other", HeaderTest::Prefix("s".to_owned())),
            4 => query("debug", QueryTest::Present),
            _ => query("debug", QueryTest::Exact("1".to_owned())),
        });
        let conditions = conditions.collect();
        Pattern {
            conditions,
            path: PathTemplate::parse(&path, TOLERANT).unwrap(),
            ..pattern(&hosts, &methods, "/")
        }
    }

    fn request(&mut self) -> (&'static str, &'static str, String, Vec<(&'static str, &'static str)>) {
        let host = self.one_of(&["a.example", "b.a.example", "c.b.a.example", "example", "::1"]);
        let host = if host == "::1" { "[::1]" } else { host };
        let method = self.one_of(&["GET", "PUT", "POST"]);
        let mut path = String::new();
        for _ in 0..1 + self.below(5) {
            let segments = [
                "a", "a", "b", "%61", "42", "042", "c", "a;v", "a%3Bv", "42;v", "a%2fb", "", "A", "%41", "a.json",
                "A.JSON", "b.x", "a.json;v", "42.x", "A;v", "%3Bv",
            ];
            path = path + "/" + self.one_of(&segments);
        }
        path += self.one_of(&["", "", "/"]);
        path += self.one_of(&["", "", "?debug=1", "?debug=2", "?DEBUG=1", "?debug=1&debug=1", "?a=1"]);
        let headers = [
            ("x-stage", "beta"),
            ("x-stage", "stable"),
            ("x_stage", "stable"),
            ("x-other", "s"),
            ("x-other", "stable, beta"),
        ];
        let headers = (0..self.below(3)).map(|_| self.one_of(&headers)).collect();
        (host, method, path, headers)
    }
}

// === Helpers ===

type Headers<'a> = &'a [(&'a str, &'a str)];

/// Paths of requests, each with the path of the rule that it matches.
type Requests<'a> = &'a [(&'a str, &'a str)];

/// A name, a request's path and headers, and the conditions of a rule by their numbers.
type Asking<'a> = (&'a str, &'a str, Headers<'a>, fn(usize, usize) -> Condition);

/// A name, the rule with a number, and the host and path that it matches.
type Shape = (&'static str, fn(usize) -> Pattern, fn(usize) -> (String, String));

const TOLERANT: Tolerated = Tolerated {
    encoded_slash: true,
    path_parameter: true,
    empty_segment: true,
    letter_case: false,
    trailing_slash: false,
    format_suffix: false,
};

fn staged() -> Routes<&'static str> {
    let mut routes = Routes::default();
    let conditional = |condition| Pattern {
        conditions: vec![condition],
        ..pattern(&[], &[], "/x")
    };
    routes.push(conditional(stage("beta")), "beta").unwrap();
    routes
        .push(conditional(query("debug", QueryTest::Present)), "debug")
        .unwrap();
    routes.push(pattern(&[], &[], "/x"), "plain").unwrap();
    routes
}

fn stage(text: &str) -> Condition {
    header("x-stage", HeaderTest::Exact(text.to_owned()))
}

fn header(name: &str, test: HeaderTest) -> Condition {
    let name = name.to_owned();
    Condition::Header { name, test }
}

fn query(name: &str, test: QueryTest) -> Condition {
    let name = name.to_owned();
    Condition::Query { name, test }
}

fn pattern(hosts: &[&str], methods: &[&str], path: &str) -> Pattern {
    Pattern {
        hosts: hosts.iter().map(|host| HostPattern::parse(host).unwrap()).collect(),
        methods: methods.iter().map(|&method| method.to_owned()).collect(),
        path: PathTemplate::parse(path, Tolerated::default()).unwrap(),
        conditions: Vec::new(),
    }
}

fn find<T: Copy>(
    routes: &Routes<T>,
    host: &str,
    method: &str,
    path: &str,
    headers: Headers<'_>,
) -> Result<Option<T>, String> {
    find_tolerating(Tolerated::default(), routes, host, method, path, headers)
}

fn find_tolerating<T: Copy>(
    tolerated: Tolerated,
    routes: &Routes<T>,
    host: &str,
    method: &str,
    path: &str,
    headers: Headers<'_>,
) -> Result<Option<T>, String> {
    let buffer = serialize(&[&[(":method", method)], headers].concat());
    let request = Request::parse(&buffer, &HeaderNames::default(), false).unwrap();
    let target = Target::parse(path.as_bytes(), tolerated).unwrap();
    let found = routes.find(Host::parse(host.as_bytes()).unwrap(), &request, &target);
    match found {
        Ok(found) => Ok(found.map(|found| *found.leads_to)),
        Err(unclear) => Err(unclear.to_string()),
    }
}
