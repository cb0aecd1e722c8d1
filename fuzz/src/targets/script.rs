//! Inputs of the targets that sign: a text that says what to sign, so that mutated claims have valid signatures.
//!
//! Each line is one of
//!
//! - `^HEADER`: the JWS header of what the next line signs;
//! - `? TOOL ARGUMENTS`: an invocation to try;
//! - `WORDS CLAIMS`: a JSON object of claims to sign. Missing claims are filled in with valid ones, so that a line
//!   needs only its special ones. The words before it are `-NAME`, which leaves a claim out, `@LETTER`, the token's
//!   holder, and `!LETTER`, the signer instead of the right one.
//!
//! Any text is a script: a line that is not understood is signed as it is.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use credence_delegation::json::Json;
use credence_delegation::{Arguments, canonicalize, inspect};

use super::cast::{AUDIENCE, ISSUER, NOW, Person};

/// The lines of a script.
#[derive(Debug, Default)]
pub struct Script<'a> {
    /// What to sign.
    pub signed: Vec<Line<'a>>,
    /// Invocations: a tool, and its arguments.
    pub invocations: Vec<(&'a str, Arguments)>,
}

/// A line to sign.
#[derive(Debug)]
pub struct Line<'a> {
    header: Option<&'a str>,
    left_out: Vec<&'a str>,
    holder: Option<Person>,
    signer: Option<Person>,
    claims: &'a str,
}

impl<'a> Script<'a> {
    /// Reads a script.
    pub fn read(text: &'a str) -> Self {
        let mut script = Self::default();
        let mut header = None;
        for line in text.lines() {
            if let Some(text) = line.strip_prefix('^') {
                header = Some(text);
            } else if let Some(invocation) = line.strip_prefix("? ") {
                let (tool, text) = invocation.split_once(' ').unwrap_or((invocation, "{}"));
                script
                    .invocations
                    .extend(arguments(text).map(|arguments| (tool, arguments)));
            } else if !line.is_empty() {
                script.signed.push(Line::read(line, header.take()));
            }
        }
        script
    }

    /// Signs every line as a token, each derived from the one before.
    pub fn chain(&self) -> Vec<String> {
        let mut tokens: Vec<String> = Vec::new();
        let mut holder = Person(0);
        for (place, line) in self.signed.iter().enumerate() {
            let parent = holder;
            holder = line.holder.unwrap_or(Person::holder_at(place));
            let defaults = token_defaults(place, tokens.last(), parent, holder);
            tokens.push(line.signed_by(parent, "aat+jwt", defaults));
        }
        tokens
    }
}

impl<'a> Line<'a> {
    fn read(line: &'a str, header: Option<&'a str>) -> Self {
        let (words, claims) = line.split_at(line.find('{').unwrap_or(0));
        let letter = |prefix| {
            words
                .split(' ')
                .find_map(|word| word.strip_prefix(prefix)?.bytes().next())
                .map(Person::of_letter)
        };
        Self {
            header,
            left_out: words.split(' ').filter_map(|word| word.strip_prefix('-')).collect(),
            holder: letter('@'),
            signer: letter('!'),
            claims,
        }
    }

    /// Signs it as a JWS of media type `typ`, as `signer` unless the line names another one. `defaults` are the claims
    /// to fill in, as JSON.
    pub fn signed_by(&self, signer: Person, typ: &str, defaults: Vec<(&str, String)>) -> String {
        let claims = self.with_defaults(defaults);
        sign(self.signer.unwrap_or(signer), self.header, typ, &claims)
    }

    /// The same under this header, unless the line has another one.
    pub fn signed_under(&self, signer: Person, header: &str, defaults: Vec<(&str, String)>) -> String {
        let claims = self.with_defaults(defaults);
        sign(self.signer.unwrap_or(signer), self.header.or(Some(header)), "", &claims)
    }

    /// The claims, with missing ones from `defaults`.
    fn with_defaults(&self, defaults: Vec<(&str, String)>) -> String {
        let json = Json::parse(self.claims.as_bytes());
        let Some(given) = json.as_ref().ok().and_then(Json::as_object) else {
            return self.claims.to_owned();
        };
        let mut members: Vec<String> = defaults
            .into_iter()
            .filter(|(name, _)| given.member(name).is_none() && !self.left_out.contains(name))
            .map(|(name, value)| format!("\"{name}\":{value}"))
            .collect();
        // As written, with escapes and white space.
        let inner = self.claims.trim().trim_start_matches('{');
        if !given.is_empty() {
            members.push(inner.to_owned());
            return format!("{{{}", members.join(","));
        }
        format!("{{{}}}", members.join(","))
    }
}

/// A JWS; without a header, it gets the right one.
pub fn sign(signer: Person, header: Option<&str>, typ: &str, claims: &str) -> String {
    let key = signer.key();
    let right = format!(r#"{{"alg":"{}","typ":"{typ}"}}"#, key.algorithm());
    let header = URL_SAFE_NO_PAD.encode(header.unwrap_or(&right));
    let input = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims));
    let signature = URL_SAFE_NO_PAD.encode(key.sign(input.as_bytes()));
    format!("{input}.{signature}")
}

/// The header of every verified token (draft section 3.5; RFC 7515, section 4.1.11).
pub fn check_header(compact: &str, typ: &str) {
    let contents = inspect::contents(compact).expect("a JWS, since it was verified");
    let json = Json::parse(&contents.header).expect("strict JSON, since it was verified");
    let header = json.as_object().expect("an object, since it was verified");
    assert_eq!(header.member("typ").and_then(Json::as_str), Some(typ));
    assert_eq!(header.member("crit"), None, "no extension is implemented");
    let algorithm = header.member("alg").and_then(Json::as_str).expect("a string");
    assert!(
        ["Ed25519", "EdDSA", "ES256", "ES256K"].contains(&algorithm),
        "{algorithm}"
    );
}

/// A string as JSON.
pub fn quoted(text: &str) -> String {
    canonicalize(&Json::String(text.into())).expect("a string has a canonical form")
}

/// Reads an argument map.
pub fn arguments(text: &str) -> Option<Arguments> {
    let json = Json::parse(text.as_bytes()).ok()?;
    Arguments::from_json(json.as_object()?).ok()
}

/// The claims of a valid token.
fn token_defaults(
    place: usize,
    parent: Option<&String>,
    issuer: Person,
    holder: Person,
) -> Vec<(&'static str, String)> {
    let mut defaults = vec![
        ("jti", quoted(&format!("token-{place}"))),
        ("iat", (NOW - 60).to_string()),
        ("exp", (NOW + 3600).to_string()),
        ("cnf", format!(r#"{{"jwk":{}}}"#, holder.key().public().to_jwk())),
        ("aud", quoted(AUDIENCE)),
        ("del_depth", place.to_string()),
        ("del_max_depth", "8".to_owned()),
    ];
    match parent.map(|parent| inspect::contents(parent).expect("a JWS, since we made it")) {
        None => {
            defaults.push(("iss", quoted(ISSUER)));
            defaults.push(("authorization_details", details(TOOLS)));
        }
        Some(parent) => {
            defaults.push(("iss", quoted(&issuer.key().public().thumbprint().uri())));
            defaults.push(("par_hash", quoted(&parent.hash)));
            let claims = Json::parse(&parent.claims).ok();
            let inherited = claims
                .as_ref()
                .and_then(Json::as_object)
                .and_then(|claims| canonicalize(claims.member("authorization_details")?));
            defaults.push(("authorization_details", inherited.unwrap_or_else(|| details(TOOLS))));
        }
    }
    defaults
}

fn details(tools: &str) -> String {
    format!(r#"[{{"type":"attenuating_agent_token","tools":{tools}}}]"#)
}

/// The tools of a root that does not name any.
const TOOLS: &str = r#"{"pay":{"account":{"constraint_type":"exact","value":"a1"},"amount":{"constraint_type":"range","max":100}},"read":{}}"#;
