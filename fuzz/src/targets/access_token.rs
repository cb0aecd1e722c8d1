//! An access token of an identity provider. An input is a [`Script`] whose first line says what to sign. A line before it
//! that begins with `=` has the issuer's settings, `access_tokens` of its trust anchor.

use std::cell::RefCell;
use std::collections::BTreeSet;

use credence_delegation::json::{Json, Object};
use credence_delegation::trust::{self, Entry};
use credence_delegation::{
    AccessTokens, Algorithm, Chain, Denial, Findings, Limits, Location, Step, TrustAnchors, UnixTime,
    VerificationContext, VerifiedChain, canonicalize, inspect,
};
use serde_json::value::RawValue;

use super::cast::{AUDIENCE, ISSUER, NOW, Person, World};
use super::script::{self, Script, quoted};
use super::{Effort, Outcome};

/// Verifies the token.
pub fn run(input: &[u8], effort: Effort) -> Outcome {
    let Ok(text) = std::str::from_utf8(input) else {
        return Outcome::Refused;
    };
    let (settings, text) = match text.strip_prefix('=') {
        Some(rest) => rest.split_once('\n').unwrap_or((rest, "")),
        None => (SETTINGS, text),
    };
    let Some(anchors) = checked_settings(settings) else {
        return Outcome::Refused;
    };
    let script = Script::read(text);
    let token = match script.signed.first() {
        Some(line) if text.contains('{') => line.signed_under(Person(0), HEADER, defaults()),
        _ => text.to_owned(),
    };
    let Ok(verified) = verify_at(&anchors, &token, NOW) else {
        return Outcome::Refused;
    };
    let contents = inspect::contents(&token).expect("a JWS, since it was verified");
    let json = Json::parse(&contents.claims).expect("strict JSON, since it was verified");
    let claims = json.as_object().expect("an object, since it was verified");
    let header = Json::parse(&contents.header).expect("strict JSON, since it was verified");
    let header = header.as_object().expect("an object, since it was verified");
    let issuer = Issuer::new(&anchors, settings);
    issuer.check_header(header);
    check_claims(&verified, claims, &contents.hash);
    issuer.check_grants(&verified, claims);
    if effort.makes(0, 3, input) {
        check_times(&anchors, &token, &verified, claims);
    }
    if effort.makes(1, 3, input) {
        check_forgeries(&anchors, &contents);
    }
    if effort.makes(2, 3, input) {
        issuer.check_scopes(&verified, &script, &anchors);
    }
    Outcome::Accepted
}

/// The header of a valid token.
pub const HEADER: &str = r#"{"alg":"Ed25519","typ":"at+jwt"}"#;

/// The settings of inputs without any.
const SETTINGS: &str = r#"{
    "typ": "JWT",
    "scopes": {
        "read": {"read": {}},
        "pay:small": {"pay": {"amount": {"constraint_type": "range", "max": 10}}},
        "pay:eur": {"pay": {"amount": {"constraint_type": "range", "max": 100},
                            "currency": {"constraint_type": "exact", "value": "EUR"}}}
    },
    "authorization_details": {
        "payment": {
            "tools": {"pay": {"amount": {"constraint_type": "range", "max": {"number_from": "/limit/amount"}},
                              "account": {"constraint_type": "exact", "value": {"from": "/account"}}}},
            "requires": {"/actions": {"constraint_type": "contains", "required": ["initiate"]}},
            "ignore": ["/note"]
        }
    },
    "delegation_depth": 1
}"#;

/// The claims of a valid token.
fn defaults() -> Vec<(&'static str, String)> {
    vec![
        ("iss", quoted(ISSUER)),
        ("sub", quoted("ada")),
        ("client_id", quoted("planner")),
        ("aud", quoted(AUDIENCE)),
        ("jti", quoted("token")),
        ("iat", (NOW - 60).to_string()),
        ("exp", (NOW + 3600).to_string()),
        ("scope", quoted("read pay:small openid")),
    ]
}

/// The claims of a valid token that has this one in place of its scopes.
pub fn claims_with(name: &str, value: &str) -> String {
    let others = defaults().into_iter().filter(|(name, _)| *name != "scope");
    let others = others.map(|(name, value)| format!("\"{name}\":{value}"));
    let claims: Vec<String> = others.chain([format!("\"{name}\":{value}")]).collect();
    format!("{{{}}}", claims.join(","))
}

/// The anchors with these settings; `None` if the settings have a problem.
pub fn anchors_with(settings: &str) -> Option<TrustAnchors> {
    let findings = RefCell::<Findings>::default();
    let raw = |text: String| RawValue::from_string(text).ok();
    let entry = Entry {
        issuer: ISSUER.to_owned(),
        jwk: raw(Person(0).key().public().to_jwk()),
        jwks: None,
        keys: None,
        same_principals_as: None,
        algorithms: Some(vec![Algorithm::Ed25519.name().to_owned()]),
        asserts_subjects: true,
        access_tokens: Some(raw(settings.to_owned())?),
        delegations: None,
    };
    let anchors = trust::trust(&Location::root(&findings), vec![entry]);
    let findings = findings.into_inner();
    // The key of the cast is printed nowhere, and everything else about the entry is right.
    let of_settings = |path: &str| path.starts_with("[0].access_tokens");
    assert!(
        findings.problems.iter().all(|found| of_settings(&found.path)),
        "{findings:?}"
    );
    findings.problems.is_empty().then_some(anchors)
}

/// Settings mean the same in canonical form.
fn checked_settings(text: &str) -> Option<TrustAnchors> {
    let anchors = anchors_with(text)?;
    let json = Json::parse(text.as_bytes()).expect("JSON, since it was accepted");
    let canonical = canonicalize(&json).expect("numbers in range, since they are exact");
    let again = anchors_with(&canonical).expect("the same settings in canonical form");
    assert!(again.access_tokens().into_iter().eq(anchors.access_tokens()));
    assert_eq!(again.digest(), anchors.digest());
    Some(anchors)
}

/// Verifies a token at this time.
pub fn verify_at(anchors: &TrustAnchors, token: &str, now: i64) -> Result<VerifiedChain, Denial> {
    let world = World::new();
    Chain::parse([token], &world.limits)?.verify(&VerificationContext {
        anchors,
        holder_algorithms: &world.holder_algorithms,
        limits: &world.limits,
        now: UnixTime(now),
        hot_keys: None,
    })
}

/// The issuer's settings, as the crate has read them and as JSON.
struct Issuer<'a> {
    tokens: &'a AccessTokens,
    settings: Json<'a>,
}

impl<'a> Issuer<'a> {
    fn new(anchors: &'a TrustAnchors, settings: &'a str) -> Self {
        let (_, tokens) = anchors.access_tokens().into_iter().next().expect("the only issuer");
        let settings = Json::parse(settings.as_bytes()).expect("JSON, since it was accepted");
        Self { tokens, settings }
    }

    fn object(&self, name: &str) -> Option<&Object<'_>> {
        self.settings.as_object().and_then(|settings| settings.object(name))
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.settings.as_object().and_then(|settings| settings.text(name))
    }

    /// RFC 9068, section 2.1, and RFC 8725, sections 3.1 and 3.11.
    fn check_header(&self, header: &Object<'_>) {
        assert_eq!(header.text("alg"), Some("Ed25519"));
        assert_eq!(header.member("crit"), None, "no extension is implemented");
        let typ = header.member("typ").map(|typ| typ.as_str().expect("a string"));
        let typ = typ.unwrap_or("JWT").to_ascii_lowercase();
        match typ.strip_prefix("application/").unwrap_or(&typ) {
            "at+jwt" => {}
            "jwt" => assert_eq!(self.text("typ"), Some("JWT"), "only if the settings say so"),
            other => panic!("not an access token: {other}"),
        }
    }

    /// Nothing is granted that no scope and no detail names, and every scope counts.
    fn check_grants(&self, verified: &VerifiedChain, claims: &Object<'_>) {
        let granted = verified.leaf().capabilities().expect("an access token has some");
        let granted: BTreeSet<&str> = granted.tools().collect();
        let tools = |tools: &Object<'_>| tools.iter().map(|(tool, _)| tool.to_owned()).collect::<Vec<_>>();
        let by_scopes: BTreeSet<String> = self
            .scopes(claims)
            .iter()
            .filter_map(|scope| self.object("scopes")?.object(scope))
            .flat_map(tools)
            .collect();
        let details = claims.array("authorization_details").unwrap_or_default();
        let by_details: BTreeSet<String> = details
            .iter()
            .filter_map(Json::as_object)
            .filter_map(|detail| match detail.text("type")? {
                "attenuating_agent_token" => detail.object("tools"),
                name => self.object("authorization_details")?.object(name)?.object("tools"),
            })
            .flat_map(tools)
            .collect();
        assert!(
            by_scopes.iter().all(|tool| granted.contains(tool.as_str())),
            "{by_scopes:?}"
        );
        let possible: BTreeSet<&str> = by_scopes.union(&by_details).map(String::as_str).collect();
        assert!(granted.is_subset(&possible), "{granted:?} {possible:?}");
    }

    fn scopes(&self, claims: &Object<'_>) -> Vec<String> {
        match claims.member(self.text("scope_claim").unwrap_or("scope")) {
            None => Vec::new(),
            Some(Json::String(names)) => names.split(' ').map(str::to_owned).collect(),
            Some(Json::Array(names)) => {
                let names = names.iter().map(|name| name.as_str().expect("a string").to_owned());
                names.collect()
            }
            Some(other) => panic!("no scopes: {other:?}"),
        }
    }

    /// A scope that is said to suffice for an invocation does, alone.
    fn check_scopes(&self, verified: &VerifiedChain, script: &Script<'_>, anchors: &TrustAnchors) {
        for (tool, arguments) in &script.invocations {
            let is_permitted = verified.permits(tool, arguments).is_ok();
            assert!(
                !is_permitted || verified.grants(tool).is_ok(),
                "no argument grants a tool"
            );
            let Some(scope) = self.tokens.scope_for(tool, Some(arguments)) else {
                continue;
            };
            assert!(self.tokens.scopes_of_tool(tool).any(|other| other == scope));
            let claim = self.text("scope_claim").unwrap_or("scope");
            let claims = claims_with(claim, &format!("[{}]", quoted(scope)));
            let token = script::sign(Person(0), Some(HEADER), "", &claims);
            let alone = verify_at(anchors, &token, NOW).expect("a valid token");
            assert_eq!(alone.permits(tool, arguments), Ok(()), "{scope} for {tool}");
        }
    }
}

/// The verified data is what the claims say (RFC 9068, section 2.2; RFC 8693, section 4.1).
fn check_claims(verified: &VerifiedChain, claims: &Object<'_>, hash: &str) {
    let token = verified.leaf();
    assert!(verified.is_access_token() && verified.tokens().count() == 1);
    assert_eq!(
        token.id(),
        claims.text("jti").unwrap_or(hash),
        "its hash if it has no id"
    );
    assert!(claims.member("jti").is_none_or(|jti| jti.as_str().is_some()));
    assert_eq!(Some(token.issued_at().0), claims.integer("iat"));
    assert_eq!(Some(token.expires_at().0), claims.integer("exp"));
    assert_eq!(Some(verified.principal().issuer.as_str()), claims.text("iss"));
    assert_eq!(verified.principal().subject.as_deref(), claims.text("sub"));
    assert_eq!(claims.member("cnf").is_some(), verified.is_bound_access_token());
    let mut actor = claims.member("act");
    for name in verified.actors() {
        let found = actor.and_then(Json::as_object).expect("an actor");
        assert_eq!(found.text("sub"), Some(name.as_str()));
        actor = found.member("act");
    }
    assert_eq!(actor, None, "all of them");
    assert!(verified.actors().len() <= 8);
    let client = ["client_id", "azp", "cid"].iter().find_map(|name| claims.text(name));
    assert_eq!(verified.client(), client);
    if let Some(jkt) = claims.object("cnf").and_then(|cnf| cnf.text("jkt")) {
        let holder = token.holder().thumbprint().expect("the holder's key");
        assert_eq!(holder.to_string(), jkt);
    }
}

/// It is valid from its `iat` and `nbf` less the skew until the second before it expires.
fn check_times(anchors: &TrustAnchors, token: &str, verified: &VerifiedChain, claims: &Object<'_>) {
    let at = |now: i64| verify_at(anchors, token, now).map(|_| ()).map_err(|denial| denial.step);
    let skew = Limits::default().iat_skew as i64;
    let begins_at = verified.issued_at().0.max(claims.integer("nbf").unwrap_or(i64::MIN));
    let expires_at = verified.expires_at().0;
    assert_eq!(at(expires_at), Err(Step::S3e));
    if begins_at < expires_at {
        assert_eq!(at(expires_at - 1), Ok(()), "valid to the last second");
        assert_eq!(
            at(begins_at.saturating_sub(skew)),
            Ok(()),
            "a clock may be behind by the skew"
        );
    }
    if let Some(early) = begins_at.checked_sub(skew + 1).filter(|early| *early < expires_at) {
        assert_eq!(at(early), Err(Step::S3f));
    }
}

/// The same claims by another key, or as another type of token, are denied.
fn check_forgeries(anchors: &TrustAnchors, contents: &inspect::Contents) {
    let claims = String::from_utf8(contents.claims.clone()).expect("JSON");
    let header = String::from_utf8(contents.header.clone()).expect("JSON");
    let signed = |signer, header: &str| script::sign(signer, Some(header), "", &claims);
    let jwk = Person(1).key().public().to_jwk();
    for forged in [
        signed(Person(1), &header),
        signed(Person(1), &format!(r#"{{"alg":"Ed25519","typ":"at+jwt","jwk":{jwk}}}"#)),
        signed(Person(0), r#"{"alg":"Ed25519","typ":"aat+jwt"}"#),
        signed(Person(0), r#"{"alg":"Ed25519","typ":"dpop+jwt"}"#),
        signed(Person(0), r#"{"alg":"EdDSA","typ":"at+jwt"}"#),
        signed(Person(0), r#"{"alg":"none","typ":"at+jwt"}"#),
    ] {
        assert!(verify_at(anchors, &forged, NOW).is_err(), "{forged}");
    }
}
