//! The services' policy, and the configuration of Envoy and the filter that expresses it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::reading::{Reading, VIRTUAL_HOST};
use super::services::Reached;
use crate::StackOptions;

/// The authority that a request needs, by what the service read.
#[derive(Debug, PartialEq, Eq)]
pub enum Needed {
    /// Any or none: the request reached no resource of the service.
    Anything,
    /// None.
    Nothing,
    /// A delegation of this tool, with exactly these arguments.
    Tool(&'static str, BTreeMap<&'static str, Option<String>>),
}

/// The policy, in terms of what the service read. `RULES` expresses the same about requests.
pub fn needed(reading: &Reading) -> Needed {
    let header = |name: &str| reading.headers.get(name).cloned();
    let query = |name: &str| reading.query.get(name).cloned();
    let capture = |name: &str| reading.captures.get(name).cloned();
    let tool =
        |tool, arguments: &[(&'static str, Option<String>)]| Needed::Tool(tool, arguments.iter().cloned().collect());
    // Without the brackets of an IPv6 address.
    let host = || {
        let host = reading.host.as_ref();
        host.map(|host| host.trim_matches(['[', ']']).to_ascii_lowercase())
    };
    if reading.virtual_host() == Some("admin") {
        return tool("admin.host", &[("host", host())]);
    }
    match reading.handler.as_str() {
        "create_order" => tool("orders.create", &[("tenant", header("x-tenant"))]),
        "admin_users" => tool("admin.use", &[("method", Some(reading.method.clone()))]),
        "preview" if header("x-stage").is_some() => tool("preview.staged", &[("stage", header("x-stage"))]),
        "list_orders" if query("full_export").is_some() => tool("orders.export", &[]),
        "export" if query("full").is_some() => tool("export.full", &[]),
        "file" => tool("files.read", &[("name", capture("name"))]),
        "tenant" => tool("tenant.read", &[("tenant", header("x-tenant"))]),
        "search" => tool("search.run", &[("q", query("q")), ("limit", query("limit"))]),
        "site" if reading.virtual_host() != Some("shop") => tool("site.other", &[("host", host())]),
        "article" if query("teaser").is_none() && header("x-teaser").is_none() => tool("article.read", &[]),
        "beta" if header("x-beta").as_deref() != Some("1") && query("mode").as_deref() != Some("demo") => {
            tool("beta.use", &[])
        }
        "cache" if reading.method == "PURGE" => tool("cache.purge", &[]),
        "list_orders" | "preview" | "export" | "site" | "article" | "beta" | "cache" | "public" | "report" => {
            Needed::Nothing
        }
        _ => Needed::Anything,
    }
}

/// One value for each argument, so that any other value that a service reads is an error.
pub const NARROW: &[&str] = &[
    r#"orders.create={"tenant":{"constraint_type":"exact","value":"acme"}}"#,
    r#"admin.use={"method":{"constraint_type":"exact","value":"GET"}}"#,
    r#"admin.host={"host":{"constraint_type":"exact","value":"admin.example"}}"#,
    r#"preview.staged={"stage":{"constraint_type":"exact","value":"beta"}}"#,
    "export.full={}",
    "orders.export={}",
    r#"files.read={"name":{"constraint_type":"exact","value":"book"}}"#,
    r#"tenant.read={"tenant":{"constraint_type":"exact","value":"acme"}}"#,
    r#"search.run={"q":{"constraint_type":"exact","value":"tea"},"limit":{"constraint_type":"range","max":10}}"#,
    r#"site.other={"host":{"constraint_type":"exact","value":"payments.example"}}"#,
    "cache.purge={}",
    "article.read={}",
    "beta.use={}",
];

/// Any value, so that the test compares what the service reads with what the filter recorded.
pub const BROAD: &[&str] = &[
    r#"orders.create={"tenant":{"constraint_type":"wildcard"}}"#,
    r#"admin.use={"method":{"constraint_type":"wildcard"}}"#,
    r#"admin.host={"host":{"constraint_type":"wildcard"}}"#,
    r#"preview.staged={"stage":{"constraint_type":"wildcard"}}"#,
    "export.full={}",
    "orders.export={}",
    r#"files.read={"name":{"constraint_type":"wildcard"}}"#,
    r#"tenant.read={"tenant":{"constraint_type":"wildcard"}}"#,
    r#"search.run={"q":{"constraint_type":"wildcard"},"limit":{"constraint_type":"wildcard"}}"#,
    r#"site.other={"host":{"constraint_type":"wildcard"}}"#,
    "cache.purge={}",
    "article.read={}",
    "beta.use={}",
];

/// The protected parts, most of them before a public rule for the rest.
const RULES: &str = r#"rules:
                              - name: admin-host
                                match: {hosts: [admin.example], path: "/**"}
                                tool: admin.host
                                args: {host: {host: true}}
                                ignore_query: [full, full_export, q, limit, note, teaser, mode]
                                ignore_body: true
                                proof: none
                              - name: create-order
                                match: {methods: [POST], path: /orders}
                                tool: orders.create
                                args: {tenant: {header: x-tenant}}
                                ignore_body: true
                                proof: none
                              - name: export-orders
                                match: {path: /orders, query: {full_export: {present: true}}}
                                tool: orders.export
                                ignore_query: [full_export, q]
                                ignore_body: true
                                proof: none
                              - name: orders
                                match: {path: /orders}
                                public: true
                              - name: admin
                                match: {path: "/admin/**"}
                                tool: admin.use
                                args: {method: {method: true}}
                                ignore_body: true
                                proof: none
                              - name: preview
                                match: {path: /preview, headers: {x-stage: {absent: true}}}
                                public: true
                              - name: preview-staged
                                match: {path: /preview}
                                tool: preview.staged
                                args: {stage: {header: x-stage}}
                                ignore_body: true
                                proof: none
                              - name: export-full
                                match: {path: /export, query: {full: {present: true}}}
                                tool: export.full
                                ignore_query: [full, q]
                                ignore_body: true
                                proof: none
                              - name: export
                                match: {path: /export}
                                public: true
                              - name: file
                                match: {path: "/files/{name}"}
                                tool: files.read
                                args: {name: {path: name}}
                                ignore_body: true
                                proof: none
                              - name: tenant
                                match: {path: /tenant}
                                tool: tenant.read
                                args: {tenant: {header: x-tenant}}
                                ignore_body: true
                                proof: none
                              - name: search
                                match: {path: /search}
                                tool: search.run
                                args: {q: {query: q}, limit: {query: limit, type: integer, optional: true}}
                                ignore_query: [note]
                                ignore_body: true
                                proof: none
                              - name: shop
                                match: {hosts: [shop.example], path: /site}
                                public: true
                              - name: site
                                match: {path: /site}
                                tool: site.other
                                args: {host: {host: true}}
                                ignore_body: true
                                proof: none
                              - name: teaser
                                match: {path: /article, query: {teaser: {present: true}}}
                                public: true
                              - name: teaser-header
                                match: {path: /article, headers: {x-teaser: {present: true}}}
                                public: true
                              - name: article
                                match: {path: /article}
                                tool: article.read
                                ignore_body: true
                                proof: none
                              - name: beta-header
                                match: {path: /beta, headers: {x-beta: {exact: "1"}}}
                                public: true
                              - name: beta-mode
                                match: {path: /beta, query: {mode: {exact: demo}}}
                                public: true
                              - name: beta
                                match: {path: /beta}
                                tool: beta.use
                                ignore_query: [mode]
                                ignore_body: true
                                proof: none
                              - name: purge
                                match: {methods: [PURGE], path: /cache}
                                tool: cache.purge
                                ignore_body: true
                                proof: none
"#;

const HEALTH: &str = "match: {path: /healthz}\n                                public: true\n";

/// After all others.
const THE_REST: &str = r#"                              - name: reports
                                match: {path: "/Reports/**"}
                                public: true
                              - name: rest
                                match: {path: "/**"}
                                public: true
"#;

/// The header by which the harness chooses the service.
pub(crate) const CLUSTER: &str = "x-oracle";

/// The header that ties an answer to its request.
pub(crate) const NONCE: &str = "x-oracle-nonce";

const SERVICE_ROUTE: &str = "route: {cluster: service, timeout: 15s}";
const SERVICE_HOSTS: &str = "                      domains: [\"*\"]\n";
const VIRTUAL_HOSTS: &str = "                  virtual_hosts:\n";
const CONTROL_PLANE: &str = "    - name: credence\n      connect_timeout: 0.25s\n";

/// envoy-config/envoy.yaml with these services, virtual hosts and rules.
pub fn options(reached: &[Reached]) -> StackOptions {
    let route = format!("route: {{cluster_header: {CLUSTER}, timeout: 5s}}");
    let mut hosts = VIRTUAL_HOSTS.to_owned();
    for name in ["shop", "admin"] {
        // Writing to a String cannot fail.
        let _ = write!(
            hosts,
            "                    - name: {name}\n                      domains: [{name}.example]\n{}                      routes: [{{match: {{prefix: /}}, {route}}}]\n",
            told(name)
        );
    }
    let mut clusters = String::new();
    for reached in reached {
        clusters.push_str(&cluster(reached));
    }
    let trailers =
        "                http_protocol_options: {enable_trailers: true}\n                http2_protocol_options:\n";
    StackOptions::default()
        .replacing(SERVICE_ROUTE, &route)
        .replacing(SERVICE_HOSTS, &[SERVICE_HOSTS, &told("other")].concat())
        .replacing(VIRTUAL_HOSTS, &hosts)
        .replacing(CONTROL_PLANE, &[&clusters, CONTROL_PLANE].concat())
        .replacing("                http2_protocol_options:\n", trailers)
        .replacing("rules:\n", RULES)
        .replacing(HEALTH, &[HEALTH, THE_REST].concat())
        .replacing(
            "default: deny\n",
            "default: deny\n                            audit: {arguments: full}\n",
        )
}

/// The same without Envoy's path normalization: the filter must deny by itself.
pub fn untidied(options: StackOptions) -> StackOptions {
    options
        .replacing("normalize_path: true", "normalize_path: false")
        .replacing("merge_slashes: true", "merge_slashes: false")
        .replacing("action: REJECT_REQUEST", "action: KEEP_UNCHANGED")
}

fn told(virtual_host: &str) -> String {
    format!(
        "                      request_headers_to_add: [{{header: {{key: {VIRTUAL_HOST}, value: {virtual_host}}}, append_action: OVERWRITE_IF_EXISTS_OR_ADD}}]\n"
    )
}

fn cluster(reached: &Reached) -> String {
    let Reached {
        cluster,
        address,
        http2,
    } = reached;
    let protocol = if *http2 {
        "http2_protocol_options: {}"
    } else {
        "http_protocol_options: {enable_trailers: true}"
    };
    // Services close idle connections sooner than Envoy does. A request on one would be lost.
    format!(
        r#"    - name: {cluster}
      connect_timeout: 1s
      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          common_http_protocol_options: {{idle_timeout: 1s}}
          explicit_http_config: {{{protocol}}}
      load_assignment:
        cluster_name: {cluster}
        endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}}}}}]}}]
"#,
        port = address.port()
    )
}
