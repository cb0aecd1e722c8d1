//! A revocation statement. An input is the statement itself, or a [`Script`] whose first line says what to sign.

use credence_delegation::json::{Json, Object};
use credence_delegation::mint::{self, RevocationOrder};
use credence_delegation::{
    Cause, Limits, Revocation, Statement, StatementContext, StatementError, TrustAnchor, TrustAnchors, UnixTime, Value,
    VerifiedStatement, inspect,
};

use super::cast::{AUDIENCE, ISSUER, NOW, Person, World};
use super::script::{self, Script, quoted};
use super::{Effort, Outcome};

/// Verifies the statement.
pub fn run(input: &[u8], effort: Effort) -> Outcome {
    let Ok(text) = std::str::from_utf8(input) else {
        return Outcome::Refused;
    };
    let script = Script::read(text);
    let statement = match script.signed.first() {
        Some(line) if text.contains('{') => line.signed_by(SIGNER, TYP, defaults()),
        _ => text.to_owned(),
    };
    let world = World::new();
    let verified = match verify(&statement, &world) {
        Ok(verified) => verified,
        Err(error) => {
            check_size_limit(&statement, Err(error));
            return Outcome::Refused;
        }
    };

    script::check_header(&statement, TYP);
    let contents = inspect::contents(&statement).expect("a JWS, since it was verified");
    let json = Json::parse(&contents.claims).expect("strict JSON, since it was verified");
    check_against_claims(&verified, json.as_object().expect("an object, since it was verified"));
    check_authority(&verified);
    let makes = |check| effort.makes(check, 4, input);
    if makes(0) {
        check_size_limit(&statement, Ok(verified.clone()));
    }
    if makes(1) {
        check_times(&statement, &verified);
    }
    if makes(2) {
        check_forgeries(&statement, &verified);
    }
    if makes(3) {
        check_twins(&json, &verified);
    }
    Outcome::Accepted
}

/// The media type of a statement.
const TYP: &str = "revocation+jwt";

/// The default signer: the first anchor of [`ISSUER`].
const SIGNER: Person = Person(0);

fn verify(statement: &str, world: &World) -> Result<VerifiedStatement, StatementError> {
    Statement::parse(statement, &world.limits)?.verify(&StatementContext {
        anchors: &world.anchors,
        audience: &[AUDIENCE.to_owned()],
        limits: &world.limits,
        now: world.now,
    })
}

/// The claims of a valid statement.
fn defaults() -> Vec<(&'static str, String)> {
    vec![
        ("jti", quoted("statement")),
        ("iss", quoted(ISSUER)),
        ("aud", quoted(AUDIENCE)),
        ("iat", (NOW - 60).to_string()),
        ("exp", (NOW + 300).to_string()),
        ("revoke", r#"{"epoch":7}"#.to_owned()),
    ]
}

fn anchor_of(verified: &VerifiedStatement) -> TrustAnchor {
    let anchors = World::new().anchors;
    let issuer = &verified.issuer;
    let anchor = anchors
        .of_issuer(issuer)
        .find(|anchor| anchor.key.thumbprint() == verified.signed_by());
    anchor.expect("an anchor signed it").clone()
}

fn check_against_claims(verified: &VerifiedStatement, claims: &Object<'_>) {
    let string = |name| claims.member(name).and_then(Json::as_str);
    let integer = |name| claims.member(name).and_then(Json::as_integer);
    let (issued_at, expires_at) = (verified.issued_at, verified.expires_at);
    let limits = Limits::default();
    assert_eq!(Some(verified.id.as_str()), string("jti"));
    assert_eq!(Some(verified.issuer.as_str()), string("iss"));
    assert_eq!(verified.subject.as_deref(), string("sub"));
    assert_eq!(
        (Some(issued_at.0), Some(expires_at.0)),
        (integer("iat"), integer("exp"))
    );
    assert!(issued_at < expires_at && expires_at <= issued_at.plus(limits.statement_lifetime));
    assert!(expires_at.0 > NOW && issued_at <= UnixTime(NOW).plus(limits.iat_skew));
    let audience = claims.member("aud").expect("an audience");
    let names = audience.as_array().unwrap_or(std::slice::from_ref(audience));
    assert!(names.iter().any(|name| name.as_str() == Some(AUDIENCE)), "for us");

    let revoke = claims.member("revoke").and_then(Json::as_object).expect("an object");
    let members: Vec<_> = revoke.iter().collect();
    let [(name, value)] = members.as_slice() else {
        panic!("exactly one thing is revoked: {members:?}");
    };
    match &verified.revocation {
        Revocation::Epoch(epoch) => {
            assert_eq!((*name, value.as_integer()), ("epoch", i64::try_from(*epoch).ok()));
            assert!(*epoch < 1 << 53);
        }
        Revocation::Delegation { under, id } => {
            let path = value.as_array().unwrap_or(std::slice::from_ref(*value));
            assert!(*name == "delegation" && path.len() <= 9);
            assert!(
                path.iter()
                    .map(Json::as_str)
                    .eq(under.iter().chain([id]).map(|id| Some(id.as_str())))
            );
        }
        Revocation::Key(key) => assert_eq!((*name, value.as_str()), ("key", Some(key.to_string().as_str()))),
        Revocation::IssuedUntil(until) => {
            assert_eq!((*name, value.as_integer()), ("issued_until", Some(until.0)));
            assert!(
                *until <= UnixTime(NOW).plus(limits.iat_skew),
                "not what is yet to be issued"
            );
        }
    }
}

/// An issuer revokes only what it issued, and a principal only its own.
fn check_authority(verified: &VerifiedStatement) {
    let anchor = anchor_of(verified);
    let one_subject = verified.subject.is_some();
    assert_eq!(anchor.issuer, verified.issuer);
    assert!(
        anchor.asserts_subjects || !one_subject,
        "it signs for no other principal"
    );
    match &verified.revocation {
        Revocation::Key(key) => {
            let anchors = World::new().anchors;
            let mut owners = anchors
                .iter()
                .filter(|anchor| anchor.key.thumbprint() == *key)
                .peekable();
            assert!(owners.peek().is_some(), "a key of a trust anchor");
            assert!(owners.all(|owner| owner.issuer == anchor.issuer), "only its own keys");
            assert!(!one_subject);
        }
        Revocation::IssuedUntil(_) => assert!(!one_subject),
        Revocation::Epoch(_) | Revocation::Delegation { .. } => {}
    }
}

/// With a limit of exactly its size, the result is the same as without a limit. With one byte less, it is refused for
/// its size.
fn check_size_limit(statement: &str, expected: Result<VerifiedStatement, StatementError>) {
    let mut world = World::new();
    if statement.len() <= world.limits.statement_bytes {
        world.limits.statement_bytes = statement.len();
        assert_eq!(verify(statement, &world), expected);
    }
    if let Some(less) = statement.len().checked_sub(1) {
        world.limits.statement_bytes = less;
        let error = verify(statement, &world).expect_err("over the limit");
        assert!(
            matches!(error, StatementError::Unreadable(Cause::TooLarge { .. })),
            "{error}"
        );
    }
}

/// It is valid from its `iat` less the skew until the second before it expires.
fn check_times(statement: &str, verified: &VerifiedStatement) {
    let at = |now: i64| {
        let mut world = World::new();
        world.now = UnixTime(now);
        verify(statement, &world)
    };
    let skew = World::new().limits.iat_skew as i64;
    let (issued_at, expires_at) = (verified.issued_at.0, verified.expires_at.0);
    assert_eq!(at(expires_at - 1).as_ref(), Ok(verified));
    assert_eq!(at(expires_at), Err(StatementError::Expired));
    assert_eq!(
        at(issued_at.saturating_sub(skew + 1)),
        Err(StatementError::IssuedInFuture)
    );
}

/// Signed by another key, as another type, or for other anchors, it is not a valid statement. It is not a token either.
fn check_forgeries(statement: &str, verified: &VerifiedStatement) {
    let contents = inspect::contents(statement).expect("a JWS");
    let header = String::from_utf8(contents.header).expect("JSON");
    let claims = String::from_utf8(contents.claims).expect("JSON");
    let (input, _) = statement.rsplit_once('.').expect("a JWS");
    let world = World::new();
    for forged in [
        script::sign(Person(7), Some(&header), "", &claims),
        script::sign(Person(1), None, TYP, &claims),
        script::sign(SIGNER, None, "aat+jwt", &claims),
        format!("{input}."),
        format!("{statement}="),
    ] {
        assert!(verify(&forged, &world).is_err(), "{forged}");
    }
    assert!(world.verify([statement]).is_err(), "a statement is no token");

    let mut without = World::new();
    let others = world
        .anchors
        .iter()
        .filter(|anchor| anchor.key.thumbprint() != verified.signed_by());
    without.anchors = TrustAnchors::new(others.cloned());
    assert!(verify(statement, &without).is_err(), "signed by an unknown key");
}

/// The same claims in canonical form, and the same revocation signed by the crate, give the same statement.
fn check_twins(json: &Json<'_>, verified: &VerifiedStatement) {
    let world = World::new();
    let signer = (0..Person::COUNT)
        .map(Person)
        .find(|person| person.key().public().thumbprint() == verified.signed_by())
        .expect("an anchor is one of us");
    // A number that loses digits has another value then.
    if let Ok(claims) = Value::from_json(json) {
        let twin = script::sign(signer, None, TYP, &claims.canonical());
        assert_eq!(verify(&twin, &world).as_ref(), Ok(verified));
    }
    let order = RevocationOrder::clone(verified);
    // Escapes may make it longer than before, so that it exceeds the limit.
    if let Ok(minted) = mint::revocation(&order, signer.key(), &world.limits) {
        assert_eq!(verify(&minted, &world).as_ref(), Ok(verified));
    }
}
