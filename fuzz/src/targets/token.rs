//! A single token: a root. An input is the token itself, or a [`Script`] whose first line says what to sign.

use credence_delegation::json::{Json, Object};
use credence_delegation::{Cause, Denial, PublicKey, Step, UnixTime, VerifiedChain, canonicalize, inspect};

use super::cast::{Person, World};
use super::script::{self, Script};
use super::{Effort, Outcome};

/// Verifies the token.
pub fn run(input: &[u8], effort: Effort) -> Outcome {
    let Ok(text) = std::str::from_utf8(input) else {
        return Outcome::Refused;
    };
    let is_a_script = text.contains('{');
    let mut script = Script::read(text);
    script.signed.truncate(usize::from(is_a_script));
    let token = script.chain().pop().unwrap_or_else(|| text.to_owned());

    let world = World::new();
    let verified = match world.verify([token.as_str()]) {
        Ok(verified) => verified,
        Err(denial) => {
            check_size_limit(&token, Err(denial));
            return Outcome::Refused;
        }
    };
    script::check_header(&token, "aat+jwt");
    let contents = inspect::contents(&token).expect("a JWS, since it was verified");
    let json = Json::parse(&contents.claims).expect("strict JSON, since it was verified");
    let claims = json.as_object().expect("an object, since it was verified");
    check_against_claims(&verified, claims);
    let makes = |check| effort.makes(check, 4, input);
    if makes(0) {
        check_size_limit(&token, Ok(verified.expires_at()));
    }
    if makes(1) {
        check_times(&token, &verified);
    }
    if makes(2) {
        check_forgeries(&token);
    }
    if makes(3) {
        check_canonical_twin(&verified, &json);
    }
    for (tool, arguments) in &script.invocations {
        let permitted = verified.permits(tool, arguments).is_ok();
        assert!(!permitted || verified.grants(tool).is_ok(), "no argument grants a tool");
    }
    Outcome::Accepted
}

/// With a limit of exactly its size, the result is the same as without a limit. With one byte less, it is denied for
/// its size.
fn check_size_limit(token: &str, unlimited: Result<UnixTime, Denial>) {
    let mut world = World::new();
    world.limits.token_bytes = token.len();
    assert_eq!(world.verify([token]).map(|chain| chain.expires_at()), unlimited);
    if let Some(less) = token.len().checked_sub(1) {
        world.limits.token_bytes = less;
        let denial = world.verify([token]).expect_err("over the limit");
        assert!(
            matches!(denial.cause, Cause::TooLarge { .. }) && denial.step == Step::S2a,
            "{denial}"
        );
    }
}

/// The verified data is what the claims say.
fn check_against_claims(verified: &VerifiedChain, claims: &Object<'_>) {
    let limits = World::new().limits;
    let integer = |name| claims.member(name).and_then(Json::as_integer);
    let string = |name| claims.member(name).and_then(Json::as_str);
    let token = verified.leaf();
    assert_eq!(verified.tokens().count(), 1);
    assert_eq!(Some(token.id()), string("jti"));
    assert_eq!(Some(token.issued_at().0), integer("iat"));
    assert_eq!(Some(token.expires_at().0), integer("exp"));
    assert_eq!(verified.expires_at(), token.expires_at());
    assert_eq!(Some(verified.principal().issuer.as_str()), string("iss"));
    assert_eq!(
        verified.root_epoch(),
        integer("rev_epoch").and_then(|epoch| u64::try_from(epoch).ok())
    );
    if verified.asserts_subjects() {
        assert_eq!(verified.principal().subject.as_deref(), string("sub"));
    } else {
        assert_eq!(verified.principal().subject, None, "it means nothing there");
    }
    let holder = claims
        .member("cnf")
        .and_then(Json::as_object)
        .and_then(|cnf| cnf.member("jwk"));
    assert_eq!(
        PublicKey::from_jwk(holder.expect("a holder")).as_ref(),
        Ok(token.holder().key().expect("a key"))
    );

    let details = claims
        .member("authorization_details")
        .and_then(Json::as_array)
        .expect("an array");
    let mut tools: Vec<&str> = details
        .iter()
        .filter_map(Json::as_object)
        .filter(|entry| entry.member("type").and_then(Json::as_str) == Some("attenuating_agent_token"))
        .flat_map(|entry| {
            entry
                .member("tools")
                .and_then(Json::as_object)
                .expect("an object")
                .iter()
        })
        .map(|(tool, _)| tool)
        .collect();
    tools.sort_unstable();
    let granted = token.capabilities().expect("a root grants something");
    assert!(granted.tools().eq(tools), "exactly the tools of the claims");

    let (issued_at, expires_at) = (token.issued_at(), token.expires_at());
    assert_eq!(integer("del_depth"), Some(0));
    assert!((0..=i64::from(limits.delegation_depth)).contains(&integer("del_max_depth").expect("an integer")));
    assert!(claims.member("par_hash").is_none());
    assert!(issued_at < expires_at && expires_at <= issued_at.plus(limits.token_lifetime));
    assert!(World::new().now < expires_at && issued_at <= World::new().now.plus(limits.iat_skew));
}

/// It is valid from its `iat` less the skew until the second before it expires.
fn check_times(token: &str, verified: &VerifiedChain) {
    let at = |now: i64| {
        let mut world = World::new();
        world.now = UnixTime(now);
        world.verify([token]).map_err(|denial| denial.step)
    };
    let (issued_at, expires_at) = (verified.leaf().issued_at().0, verified.expires_at().0);
    assert!(at(expires_at - 1).is_ok(), "valid to the last second");
    assert_eq!(at(expires_at).unwrap_err(), Step::S3e);
    let skew = World::new().limits.iat_skew as i64;
    assert!(
        at(issued_at.saturating_sub(skew)).is_ok(),
        "a clock may be behind by the skew"
    );
    if let Some(early) = issued_at.checked_sub(skew + 1) {
        assert_eq!(at(early).unwrap_err(), Step::S3f);
    }
}

/// The same token signed by another key, or with another token's signature, is denied.
fn check_forgeries(token: &str) {
    let world = World::new();
    let (input, signature) = token.rsplit_once('.').expect("a JWS");
    let (header, payload) = input.split_once('.').expect("a JWS");
    let contents = inspect::contents(token).expect("a JWS");
    let (header_text, claims) = (
        String::from_utf8(contents.header).expect("JSON"),
        String::from_utf8(contents.claims).expect("JSON"),
    );
    let by_another = script::sign(Person(7), Some(&header_text), "", &claims);
    // Another text of the same meaning: one more space.
    let other_input = script::sign(Person(0), None, "aat+jwt", &format!("{claims} "));
    let (_, other_signature) = other_input.rsplit_once('.').expect("a JWS");
    for forged in [
        by_another,
        format!("{input}.{other_signature}"),
        format!("{input}."),
        format!("{header}..{signature}"),
        format!("{input}.{signature}."),
        format!("{input}.{signature}="),
        format!("{payload}.{header}.{signature}"),
    ] {
        assert!(world.verify([forged.as_str()]).is_err(), "{forged}");
    }
}

/// Claims in canonical form have the same meaning.
fn check_canonical_twin(verified: &VerifiedChain, json: &Json<'_>) {
    let Some(canonical) = canonicalize(json) else {
        return;
    };
    let signer = (0..Person::COUNT)
        .map(Person)
        .find(|person| person.key().public().thumbprint() == verified.anchor())
        .expect("an anchor is one of us");
    let twin = script::sign(signer, None, "aat+jwt", &canonical);
    let twin = World::new()
        .verify([twin.as_str()])
        .expect("the same claims in canonical form");
    assert_eq!(twin.leaf().capabilities(), verified.leaf().capabilities());
    assert_eq!(twin.principal(), verified.principal());
    assert_eq!(twin.expires_at(), verified.expires_at());
}
