//! Generates requests: ordinary ones with tricks that some server, framework or proxy is known to fall for.
//!
//! A request is an ordinary one ([`ORDINARY`]), or one that once bypassed a filter, with up to four tricks. Each trick
//! has its own seed. So it stays the same when others are removed to find the shortest form of a disagreement.

use super::judge::FORGED;
use crate::random::Random;

/// The parts of a request, before it is encoded for a protocol.
#[derive(Debug, Clone)]
pub struct Draft {
    /// The method.
    pub method: String,
    /// The path as sent.
    pub path: String,
    /// The query after the `?`, if any.
    pub query: Option<String>,
    /// The host, or authority.
    pub host: String,
    /// Further headers.
    pub headers: Vec<(String, String)>,
    /// The trailers.
    pub trailers: Vec<(String, String)>,
    /// The body.
    pub body: Option<(&'static str, &'static str)>,
    /// Whether HTTP/1.1 sends `http://host/path` instead of the path.
    pub absolute: bool,
}

/// An ordinary request that every service answers, and its expected outcome.
#[derive(Debug)]
pub struct Ordinary {
    method: &'static str,
    path: &'static str,
    query: Option<&'static str>,
    host: &'static str,
    headers: &'static [(&'static str, &'static str)],
    trailers: &'static [(&'static str, &'static str)],
    /// The handler that should answer.
    pub handler: &'static str,
    /// Whether it needs a delegation.
    pub protected: bool,
}

const fn ordinary(method: &'static str, path: &'static str, handler: &'static str, protected: bool) -> Ordinary {
    Ordinary {
        method,
        path,
        query: None,
        host: HOST,
        headers: &[],
        trailers: &[],
        handler,
        protected,
    }
}

const HOST: &str = "payments.example";

/// One for each part of the policy, and the requests that must still pass. They are the base of generated requests, and
/// the controls.
pub const ORDINARY: &[Ordinary] = &[
    Ordinary {
        headers: &[("x-tenant", "acme")],
        ..ordinary("POST", "/orders", "create_order", true)
    },
    ordinary("GET", "/orders", "list_orders", false),
    ordinary("GET", "/admin/users", "admin_users", true),
    ordinary("GET", "/preview", "preview", false),
    Ordinary {
        headers: &[("x-stage", "beta")],
        ..ordinary("GET", "/preview", "preview", true)
    },
    ordinary("GET", "/export", "export", false),
    Ordinary {
        query: Some("full=1"),
        ..ordinary("GET", "/export", "export", true)
    },
    Ordinary {
        query: Some("full_export=1"),
        ..ordinary("GET", "/orders", "list_orders", true)
    },
    ordinary("GET", "/files/book", "file", true),
    Ordinary {
        headers: &[("x-tenant", "acme")],
        ..ordinary("GET", "/tenant", "tenant", true)
    },
    Ordinary {
        query: Some("q=tea&limit=5"),
        ..ordinary("GET", "/search", "search", true)
    },
    ordinary("GET", "/article", "article", true),
    Ordinary {
        query: Some("teaser=1"),
        ..ordinary("GET", "/article", "article", false)
    },
    Ordinary {
        headers: &[("x-teaser", "1")],
        ..ordinary("GET", "/article", "article", false)
    },
    ordinary("GET", "/beta", "beta", true),
    Ordinary {
        headers: &[("x-beta", "1")],
        ..ordinary("GET", "/beta", "beta", false)
    },
    Ordinary {
        query: Some("mode=demo"),
        ..ordinary("GET", "/beta", "beta", false)
    },
    Ordinary {
        host: "shop.example",
        ..ordinary("GET", "/site", "site", false)
    },
    ordinary("GET", "/site", "site", true),
    Ordinary {
        host: "admin.example",
        ..ordinary("GET", "/public", "public", true)
    },
    ordinary("PURGE", "/cache", "cache", true),
    ordinary("GET", "/cache", "cache", false),
    Ordinary {
        headers: &[("x.trace", "1")],
        ..ordinary("GET", "/public", "public", false)
    },
    Ordinary {
        query: Some("filter[a]=1&sort.by=name"),
        ..ordinary("GET", "/public", "public", false)
    },
    ordinary("GET", "/Reports/Q3", "report", false),
    Ordinary {
        headers: &[("x.trace", "1"), ("x-note", "a, b")],
        query: Some("q=tea&limit=5&note=a%20b"),
        ..ordinary("GET", "/search", "search", true)
    },
];

/// Requests that once passed the filter and meant something else to a service. Each goes to every service, with and
/// without a delegation.
const KNOWN: &[Ordinary] = &[
    // Names of headers.
    Ordinary {
        headers: &[("x.delegation.subject", FORGED)],
        ..ordinary("GET", "/public", "public", false)
    },
    Ordinary {
        headers: &[("x-tenant", "acme"), ("x.tenant", "evil")],
        ..ordinary("GET", "/tenant", "tenant", true)
    },
    Ordinary {
        headers: &[("x.stage", "beta")],
        ..ordinary("GET", "/preview", "preview", false)
    },
    Ordinary {
        headers: &[("x.http.method.override", "POST")],
        ..ordinary("GET", "/orders", "list_orders", false)
    },
    Ordinary {
        headers: &[("x!original!url", "/admin/users")],
        ..ordinary("GET", "/public", "public", false)
    },
    // Trailers.
    Ordinary {
        headers: &[("x-tenant", "acme")],
        trailers: &[
            ("x-tenant", "evil"),
            ("x-http-method-override", "GET"),
            ("x.delegation.subject", FORGED),
        ],
        ..ordinary("POST", "/orders", "create_order", true)
    },
    // Methods.
    Ordinary {
        headers: &[("x-tenant", "acme")],
        ..ordinary("post", "/orders", "create_order", true)
    },
    ordinary("Purge", "/cache", "cache", true),
    // Hosts.
    site("shop.example:80"),
    site("shop.example."),
    site("shop.example:"),
    site("SHOP.example:443"),
    site("admin.example:80"),
    site("admin.example."),
    site("admin.example:"),
    // Names of query members.
    export("[full]=1"),
    orders("full[export=1"),
    orders("full.export=1"),
    orders("full%20export=1"),
    export("%20full=1"),
    export("full%00=1"),
    export("full]=1"),
    Ordinary {
        query: Some("teaser=%zz"),
        ..ordinary("GET", "/article", "article", true)
    },
    // Values of headers.
    Ordinary {
        headers: &[("x-teaser", "")],
        ..ordinary("GET", "/article", "article", true)
    },
    Ordinary {
        headers: &[("x-tenant", " acme\t")],
        ..ordinary("GET", "/tenant", "tenant", true)
    },
    // Paths.
    ordinary("GET", "/ADMIN/USERS", "admin_users", true),
    ordinary("GET", "/admin/Users", "admin_users", true),
    ordinary("GET", "/Tenant", "tenant", true),
    ordinary("GET", "/tenant/", "tenant", true),
    ordinary("GET", "/tenant.json", "tenant", true),
    ordinary("GET", "/tenant.json/", "tenant", true),
    ordinary("GET", "/tenant.", "tenant", true),
    ordinary("GET", "/tenant.tar.gz", "tenant", true),
    ordinary("GET", "/tenant.longerthaneight", "tenant", true),
    ordinary("GET", "/tenant.a-b", "tenant", true),
];

const fn site(host: &'static str) -> Ordinary {
    Ordinary {
        host,
        ..ordinary("GET", "/site", "site", true)
    }
}

const fn orders(query: &'static str) -> Ordinary {
    Ordinary {
        query: Some(query),
        ..ordinary("GET", "/orders", "list_orders", true)
    }
}

const fn export(query: &'static str) -> Ordinary {
    Ordinary {
        query: Some(query),
        ..ordinary("GET", "/export", "export", true)
    }
}

/// The number of base requests: the ordinary ones, then the known ones.
pub(crate) const BASES: usize = ORDINARY.len() + KNOWN.len();

fn base(place: usize) -> &'static Ordinary {
    match place.checked_sub(ORDINARY.len()) {
        None => &ORDINARY[place],
        Some(place) => &KNOWN[place],
    }
}

impl Ordinary {
    /// The request.
    pub fn draft(&self) -> Draft {
        let owned = |fields: &[(&str, &str)]| {
            let fields = fields.iter();
            fields
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect()
        };
        Draft {
            method: self.method.to_owned(),
            path: self.path.to_owned(),
            query: self.query.map(str::to_owned),
            host: self.host.to_owned(),
            headers: owned(self.headers),
            trailers: owned(self.trailers),
            body: None,
            absolute: false,
        }
    }
}

/// One change to a request, the same for the same seed.
#[derive(Debug, Clone, Copy)]
pub struct Trick {
    kind: Kind,
    seed: u64,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    MoreHeader,
    RespellHeader,
    RepeatHeader,
    HeaderValue,
    Method,
    PathCase,
    PathEnd,
    PathEscape,
    PathInside,
    QueryName,
    QueryRespelled,
    QueryValue,
    QueryRaw,
    Host,
    Trailer,
    Body,
    Absolute,
}

const KINDS: &[Kind] = &[
    Kind::MoreHeader,
    Kind::MoreHeader,
    Kind::RespellHeader,
    Kind::RepeatHeader,
    Kind::HeaderValue,
    Kind::Method,
    Kind::PathCase,
    Kind::PathEnd,
    Kind::PathEscape,
    Kind::PathInside,
    Kind::QueryName,
    Kind::QueryName,
    Kind::QueryRespelled,
    Kind::QueryValue,
    Kind::QueryRaw,
    Kind::Host,
    Kind::Trailer,
    Kind::Body,
    Kind::Absolute,
];

/// An index of a base request, below [`BASES`], and tricks.
pub(crate) fn generate(random: &mut Random) -> (usize, Vec<Trick>) {
    // Mostly ordinary ones: the others are denied as they are.
    let bases = if random.once_in(8) { BASES } else { ORDINARY.len() };
    let base = random.below(bases);
    // Mostly one trick: with two, the denial of one hides the other.
    let count = random.pick(&[0, 1, 1, 1, 1, 1, 2, 2, 2, 3, 4]);
    let trick = |random: &mut Random| Trick {
        kind: random.pick(KINDS),
        seed: random.number(),
    };
    (base, (0..count).map(|_| trick(random)).collect())
}

/// The base request at this index, with these tricks.
pub(crate) fn draft(place: usize, tricks: &[Trick]) -> Draft {
    let mut draft = base(place).draft();
    for trick in tricks {
        trick.apply(&mut draft);
    }
    draft
}

impl Trick {
    fn apply(self, draft: &mut Draft) {
        let random = &mut Random::new(self.seed, 0);
        match self.kind {
            Kind::MoreHeader => {
                let name = random.pick(NAMES);
                let value = value_for(name, random);
                draft.headers.push((respelled(name, random), value));
            }
            Kind::RespellHeader => {
                if !draft.headers.is_empty() {
                    let place = random.below(draft.headers.len());
                    draft.headers[place].0 = respelled(&draft.headers[place].0.clone(), random);
                }
            }
            Kind::RepeatHeader => {
                if !draft.headers.is_empty() {
                    let (name, _) = draft.headers[random.below(draft.headers.len())].clone();
                    let value = value_for(&name, random);
                    let place = random.below(draft.headers.len() + 1);
                    draft.headers.insert(place, (in_case(&name, random), value));
                }
            }
            Kind::HeaderValue => {
                if !draft.headers.is_empty() {
                    let place = random.below(draft.headers.len());
                    let value = &mut draft.headers[place].1;
                    *value = match random.below(7) {
                        0 => String::new(),
                        1 => format!("{value}, evil"),
                        2 => format!("evil,{value}"),
                        3 => format!(" {value}\t"),
                        4 => format!("\"{value}\""),
                        5 => value.to_uppercase(),
                        _ => format!("{value};evil"),
                    };
                }
            }
            Kind::Method => {
                draft.method = if random.once_in(3) {
                    random.pick(METHODS).to_owned()
                } else {
                    in_case(random.pick(&["POST", "GET", "PURGE", "DELETE"]), random)
                };
            }
            Kind::PathCase => {
                let target = random.pick(&["", "", "/admin/users", "/ORDERS", "/Export"]);
                let path = if target.is_empty() { draft.path.as_str() } else { target };
                draft.path = in_case(path, random);
            }
            Kind::PathEnd => draft.path.push_str(random.pick(ENDS)),
            Kind::PathEscape => escape_one(&mut draft.path, random),
            Kind::PathInside => {
                let slashes: Vec<usize> = draft.path.match_indices('/').map(|(place, _)| place).collect();
                if !slashes.is_empty() {
                    let place = random.pick(&slashes);
                    draft.path.replace_range(place..=place, random.pick(INSIDES));
                }
            }
            Kind::QueryName => {
                let member = query_name(random.pick(QUERY), random);
                let value = random.pick(&["=1", "=evil", "=demo", "=%zz", "=%ff", "", "="]);
                add_to_query(draft, &format!("{member}{value}"), random);
            }
            Kind::QueryRespelled => {
                if let Some(query) = &mut draft.query {
                    let (name, rest) = query.split_once('=').unwrap_or((query, ""));
                    *query = format!("{}={rest}", query_name(name, random));
                }
            }
            Kind::QueryValue => {
                if let Some(query) = &mut draft.query {
                    query.push_str(random.pick(QUERY_VALUES));
                }
            }
            Kind::QueryRaw => {
                let text = random.pick(QUERIES);
                add_to_query(draft, text, random);
            }
            Kind::Host => {
                let host = random.pick(&["shop.example", "admin.example", "payments.example", HOST]);
                draft.host = random.pick(HOSTS).replace('@', host);
                if random.once_in(8) {
                    draft.host = in_case(&draft.host, random);
                }
            }
            Kind::Trailer => {
                let name = random.pick(NAMES);
                let value = value_for(name, random);
                let name = if random.once_in(2) {
                    respelled(name, random)
                } else {
                    name.to_owned()
                };
                draft.trailers.push((name, value));
            }
            Kind::Body => draft.body = Some(random.pick(BODIES)),
            Kind::Absolute => draft.absolute = true,
        }
    }
}

/// Headers that the filter or a service reads: identity, rule conditions, overrides, and the delegation.
const NAMES: &[&str] = &[
    "x-delegation-subject",
    "x-delegation-subject",
    "x-delegation-tool",
    "x-delegation-issuer",
    "x-delegation-agent",
    "x-delegation-id",
    "x-delegation-proof",
    "x-delegation-identity",
    "x-delegation-x",
    "x-tenant",
    "x-tenant",
    "x-stage",
    "x-stage",
    "x-beta",
    "x-teaser",
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
    "x-original-url",
    "x-rewrite-url",
    "script-name",
    "x-script-name",
    "path-info",
    "x-forwarded-host",
    "x-forwarded-prefix",
    "x-forwarded-server",
    "x-forwarded-proto",
    "x-forwarded-uri",
    "x-forwarded-method",
    "x-original-uri",
    "x-original-method",
    "x-original-host",
    "x-real-host",
    "x-host",
    "x-http-host",
    "forwarded",
    "delegation-proof",
];

const SEPARATORS: &[&str] = &[
    "_", "_", ".", ".", "!", "#", "$", "%", "&", "'", "*", "+", "^", "`", "|", "~", "--", "-.", "", " ",
];

fn value_for(name: &str, random: &mut Random) -> String {
    let fold: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let values: &[&str] = match fold.to_ascii_lowercase().as_str() {
        "x-tenant" => &["evil", "acme", "", "evil, acme"],
        "x-stage" => &["evil", "beta", "", "1"],
        "x-teaser" => &["1", "", "1"],
        "x-beta" => &["1", "0", "", "1, 0", "0,1"],
        "x-http-method-override"
        | "x-http-method"
        | "x-method-override"
        | "x-forwarded-method"
        | "x-original-method" => &["POST", "PURGE", "DELETE", "post"],
        "x-original-url" | "x-rewrite-url" | "path-info" | "x-forwarded-uri" | "x-original-uri" => {
            &["/admin/users", "/files/evil", "/orders"]
        }
        "script-name" | "x-script-name" | "x-forwarded-prefix" => &["/public", "/files", "/x"],
        "x-forwarded-host" | "x-original-host" | "x-host" | "x-http-host" | "x-real-host" | "x-forwarded-server" => {
            &["shop.example", "admin.example", "evil.example"]
        }
        "forwarded" => &[
            "host=shop.example",
            "for=1.2.3.4;host=admin.example",
            "host=\"evil.example\"",
        ],
        "x-delegation-tool" => &["admin.use", FORGED],
        _ => &[FORGED],
    };
    random.pick(values).to_owned()
}

/// Replaces one or all separators, or changes only the letter case.
fn respelled(name: &str, random: &mut Random) -> String {
    let by = random.pick(SEPARATORS);
    let name = match random.below(6) {
        0 => name.to_owned(),
        1 => name.replacen('-', by, 1),
        2 => match name.rsplit_once('-') {
            Some((front, back)) => format!("{front}{by}{back}"),
            None => name.to_owned(),
        },
        3 => format!("{name}{}", by.trim()),
        _ => name.replace('-', by),
    };
    // Neither protocol allows a blank in a name; Envoy rejects it.
    if random.once_in(3) {
        in_case(&name, random)
    } else {
        name
    }
}

fn in_case(text: &str, random: &mut Random) -> String {
    match random.below(4) {
        0 => text.to_lowercase(),
        1 => text.to_uppercase(),
        2 => {
            let place = random.below(text.len());
            let swapped = |(at, c): (usize, char)| if at == place { swap_case(c) } else { c };
            text.char_indices().map(swapped).collect()
        }
        _ => text
            .chars()
            .map(|c| if random.once_in(2) { swap_case(c) } else { c })
            .collect(),
    }
}

fn swap_case(c: char) -> char {
    if c.is_ascii_lowercase() {
        c.to_ascii_uppercase()
    } else {
        c.to_ascii_lowercase()
    }
}

fn escape_one(text: &mut String, random: &mut Random) {
    let place = random.below(text.len());
    let Some(byte) = text.as_bytes().get(place).copied().filter(u8::is_ascii) else {
        return;
    };
    let escape = match random.below(5) {
        0 => format!("%25{byte:02x}"),
        1 => format!("%{:02X}", swap_case(char::from(byte)) as u32),
        2 => format!("%{byte:02x}"),
        3 => format!("%u00{byte:02x}"),
        _ => format!("%{byte:02X}"),
    };
    text.replace_range(place..=place, &escape);
}

/// Rare methods. Not HEAD, whose answer has no body, nor CONNECT.
const METHODS: &[&str] = &[
    "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "QUERY", "POSTX", "XPOST", "M-SEARCH", "TRACE", "GET", "POST",
    "PURGE", "UNLINK",
];

const ENDS: &[&str] = &[
    "/",
    "/",
    "//",
    "/.",
    "/..",
    ".json",
    ".html",
    ".xml",
    ".JSON",
    ".php",
    ".a1",
    ".",
    "..",
    ".json/",
    "/index",
    ";",
    ";a=b",
    ";jsessionid=1",
    "%20",
    "%09",
    "%0a",
    "%00",
    "%2f",
    "%2F",
    "%5c",
    "\\",
    "%3f",
    "%23",
    "%3b",
    "%c2%a0",
    "%e2%80%8b",
    "~",
    "*",
    ":",
    "%2e",
    "%2ejson",
    "+",
    "/%2e",
    "/admin/users",
    "%c4%b1",
    "%c5%bf",
    "%e2%84%aa",
    "!",
    "$",
    "'",
    ",",
    "=",
    "@",
    "&",
    "[",
    "|",
    "^",
    "\"",
    "%",
];

const INSIDES: &[&str] = &[
    "//",
    "/./",
    "/x/../",
    "/%2e/",
    "/x/%2e%2e/",
    "%2f",
    "%2F",
    "\\",
    "%5c",
    "/;/",
    "/;a=b/",
    "/.;/",
    "/x/..;/",
    "/%20/",
    "/index.php/",
    "///",
    "/service.cgi/",
    "/public/../",
    "/%09/",
    "/*/",
    "/%00/",
    "/%61dmin/../",
    "/files/..%2f",
];

const QUERY: &[&str] = &[
    "full",
    "full_export",
    "full",
    "full_export",
    "q",
    "limit",
    "note",
    "teaser",
    "mode",
];

/// A spelling that some parser reads as the name.
fn query_name(name: &str, random: &mut Random) -> String {
    let (front, back) = name.split_once('_').unwrap_or((name, ""));
    let joined = |by: &str| {
        if back.is_empty() {
            format!("{name}{by}x")
        } else {
            format!("{front}{by}{back}")
        }
    };
    match random.below(30) {
        0 => format!("[{name}]"),
        1 => format!("{name}[]"),
        2 => format!("{name}[x]"),
        3 => joined("["),
        4 => joined("."),
        5 => joined("%20"),
        6 => joined("+"),
        7 => joined("%5b"),
        8 => joined("%5B"),
        9 => format!("%20{name}"),
        10 => format!("+{name}"),
        11 => format!("{name}%20"),
        12 => format!("{name}%00"),
        13 => format!("{name}%00x"),
        14 => name.to_uppercase(),
        15 => in_case(name, random),
        16 => {
            let mut name = name.to_owned();
            escape_one(&mut name, random);
            name
        }
        17 => format!("%5B{name}%5D"),
        18 => format!("{name}%5B%5D"),
        19 => format!("[{name}"),
        20 => format!("{name}]"),
        21 => format!("[][{name}]"),
        22 => format!("__proto__[{name}]"),
        23 => format!("a=1;{name}"),
        24 => format!("a%26{name}"),
        25 => format!("{name}[0]"),
        26 => format!(".{name}"),
        27 => format!("?{name}"),
        28 => format!("%0a{name}"),
        _ => name.to_owned(),
    }
}

fn add_to_query(draft: &mut Draft, member: &str, random: &mut Random) {
    draft.query = Some(match draft.query.take() {
        None => member.to_owned(),
        Some(query) if random.once_in(2) => format!("{member}&{query}"),
        Some(query) => format!("{query}&{member}"),
    });
}

const QUERY_VALUES: &[&str] = &[
    "+",
    "%20",
    "%00",
    "%0a",
    "%2b",
    "&q=evil",
    "&q[]=evil",
    "&Q=evil",
    "%c3%a9",
    "%ff",
    "%",
    "%zz",
    ";q=evil",
    "&",
    "=1",
    "%26q=evil",
    "\"",
    "'",
    "[",
    "%u0065",
    "e0",
    ".0",
    "&limit=7",
    "&%71=evil",
    "&q%00=evil",
    "&note=q=evil",
    "%0d%0aq:evil",
    "%252b",
    ",evil",
    "&q.=evil",
    "&%20q=evil",
    "|",
    "^",
    "`",
    "{",
    "<",
];

const QUERIES: &[&str] = &[
    "",
    "&",
    "&&",
    "=",
    "==",
    "?",
    "??full=1",
    ";",
    ";full=1",
    "full;x",
    "x=1;full=1",
    "%66ull=1",
    "_method=POST",
    "_method=PURGE",
    "utf8=%E2%9C%93",
    "full%3D1",
    "full%3d",
    "a%3D1%26full=1",
    "a[=full",
    "a[full]=1",
    "filter[full]=1",
    "full&full",
    "[]=full",
    "[full",
    "full[=1",
    "constructor[full]=1",
    "toString=1",
    "hasOwnProperty=1",
    "a=1&amp;full=1",
    "fu%00ll=1",
    "%EF%BB%BFfull=1",
    "FULL=1",
    "full=1#",
    "fulL",
    "\u{7f}full",
    "full%C2%A0=1",
    "__proto__=full",
    "full%2E=1",
    "full%5Fexport=1",
    "full-export=1",
];

/// `@` stands for a host.
const HOSTS: &[&str] = &[
    "@",
    "@:80",
    "@:443",
    "@.",
    "@:",
    "@..",
    "@.:80",
    "@:80.",
    "@:0",
    "@:080",
    "@:99999",
    "@:80:80",
    "@:x",
    "x@",
    "x.@",
    ".@",
    "@.evil.example",
    "u:p@@",
    "@,evil.example",
    "@%2e",
    "@%00",
    "[@]",
    "@/",
    "@?",
    "@_",
    "@-",
    "*",
    "",
    "127.0.0.1",
    "[::1]",
    "@:+80",
    "@: 80",
    "@%3a80",
    "@:80%20",
    "@:８０",
    "@#",
    "@\\",
];

const BODIES: &[(&str, &str)] = &[
    ("application/x-www-form-urlencoded", "q=evil&note=evil"),
    ("application/x-www-form-urlencoded", "_method=DELETE"),
    ("application/json", "{\"q\":\"evil\",\"_method\":\"PURGE\"}"),
    (
        "multipart/form-data; boundary=x",
        "--x\r\nContent-Disposition: form-data; name=\"q\"\r\n\r\nevil\r\n--x--\r\n",
    ),
    ("text/plain", "x-tenant: evil"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn drafts(seed: u64) -> Vec<String> {
        let draft_of = |number| {
            let (base, tricks) = generate(&mut Random::new(seed, number));
            format!("{:?}", draft(base, &tricks))
        };
        (0..2_000).map(draft_of).collect()
    }

    #[test]
    fn the_same_seed_makes_the_same_requests() {
        assert_eq!(drafts(1), drafts(1));
        assert_ne!(drafts(1), drafts(2));
    }

    #[test]
    fn requests_differ() {
        let mut drafts = drafts(3);
        drafts.sort();
        drafts.dedup();
        assert!(drafts.len() > 1_000, "{}", drafts.len());
    }
}
