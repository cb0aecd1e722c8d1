//! A chain: a [`Script`] with a line for each token. It is verified as a whole, and again onto each of its prefixes.

use credence_delegation::batch::{self, Signed};
use credence_delegation::constraint::Constraint;
use credence_delegation::json::{Json, Object};
use credence_delegation::{
    Algorithm, Algorithms, Arguments, Cause, Chain, Denial, PublicKey, Step, TrustAnchor, TrustAnchors, UnixTime,
    Value, VerifiedChain, inspect,
};

use super::cast::World;
use super::script::{self, Script};
use super::{Effort, Outcome};

/// Verifies the chain.
pub fn run(input: &[u8], effort: Effort) -> Outcome {
    let Ok(text) = std::str::from_utf8(input) else {
        return Outcome::Refused;
    };
    let mut script = Script::read(text);
    // One more than the longest chain: a longer one is denied without a look at the rest.
    script
        .signed
        .truncate(World::new().limits.delegation_depth as usize + 2);
    let tokens = script.chain();
    let world = World::new();
    let whole = world.verify(refs(&tokens));
    let makes = |check| effort.makes(check, 6, input);
    if makes(0) {
        check_joined(&tokens, &whole);
    }
    if makes(1) || makes(2) {
        check_splits(&tokens, &whole);
    }
    let Ok(verified) = &whole else {
        return Outcome::Refused;
    };

    if makes(3) {
        check_limits(&tokens, verified);
    }
    if makes(4) {
        check_signatures(&tokens, verified);
    }
    if makes(5) {
        check_other_orders(&tokens);
    }
    refs(&tokens).for_each(|token| script::check_header(token, "aat+jwt"));
    check_links(&tokens, verified);
    check_attenuation(&tokens, verified, &script.invocations);
    Outcome::Accepted
}

fn refs(tokens: &[String]) -> impl Iterator<Item = &str> {
    tokens.iter().map(String::as_str)
}

/// The public data of a verified chain.
fn summary(chain: &VerifiedChain) -> impl PartialEq + std::fmt::Debug + use<> {
    let tokens: Vec<_> = chain
        .tokens()
        .map(|token| {
            let capabilities = token.capabilities().cloned();
            let certificate = (
                token.holder().certificate().copied(),
                token.holder().spiffe_id().map(str::to_owned),
            );
            let times = (token.issued_at(), token.expires_at());
            (
                token.id().to_owned(),
                times,
                token.holder().thumbprint(),
                certificate,
                capabilities,
            )
        })
        .collect();
    let origin = (
        chain.principal().clone(),
        chain.root_epoch(),
        chain.anchor(),
        chain.asserts_subjects(),
    );
    (tokens, origin, chain.bytes())
}

fn same_answer(found: &Result<VerifiedChain, Denial>, expected: &Result<VerifiedChain, Denial>, what: &str) {
    match (found, expected) {
        (Ok(found), Ok(expected)) => assert_eq!(summary(found), summary(expected), "{what}"),
        (Err(found), Err(expected)) => assert_eq!(found, expected, "{what}"),
        _ => panic!("{what}: {found:?}, not {expected:?}"),
    }
}

/// Joined by `~`, the tokens are the same chain.
fn check_joined(tokens: &[String], whole: &Result<VerifiedChain, Denial>) {
    if tokens.is_empty() {
        return;
    }
    let world = World::new();
    let joined = tokens.join("~");
    let parsed = Chain::parse_joined(&joined, &world.limits).and_then(|chain| chain.verify(&world.context()));
    same_answer(&parsed, whole, "joined");
}

/// Limits that are just met change nothing; limits lower by one deny.
fn check_limits(tokens: &[String], verified: &VerifiedChain) {
    let bytes = tokens.iter().map(String::len).sum();
    let with_bytes = |limit| {
        let mut world = World::new();
        world.limits.chain_bytes = limit;
        Chain::parse(refs(tokens), &world.limits).err()
    };
    assert_eq!(with_bytes(bytes), None);
    let denial = with_bytes(bytes - 1).expect("over the limit");
    assert!(
        denial.step == Step::S2b && matches!(denial.cause, Cause::TooLarge { .. }),
        "{denial}"
    );

    let depth = tokens.len() - 1;
    assert!(depth <= World::new().limits.delegation_depth as usize);
    if let Some(less) = depth.checked_sub(1) {
        let mut world = World::new();
        world.limits.delegation_depth = less as u32;
        let denial = world.verify(refs(tokens)).expect_err("one token more than the limit");
        assert!(
            denial.step == Step::S2b && matches!(denial.cause, Cause::TooLong { .. }),
            "{denial}"
        );
    }
    let late = World {
        now: verified.expires_at(),
        ..World::new()
    };
    let denial = late.verify(refs(tokens)).expect_err("expired");
    assert_eq!(denial.cause, Cause::Expired, "{denial}");
}

/// The prefixes of the chain that are valid chains themselves, shortest first, each verified onto the previous one. If
/// the whole is valid, all of them are.
fn beginnings(tokens: &[String], whole: &Result<VerifiedChain, Denial>) -> Vec<VerifiedChain> {
    let world = World::new();
    let mut beginnings: Vec<VerifiedChain> = Vec::new();
    for length in 1..=tokens.len() {
        let verified = match beginnings.last() {
            None => world.verify(refs(&tokens[..length])),
            Some(known) => world.verify_onto(refs(&tokens[..length]), known),
        };
        match verified {
            Ok(verified) => beginnings.push(verified),
            Err(denial) => {
                assert!(
                    whole.is_err(),
                    "the whole is valid, but not its first {length} tokens: {denial}"
                );
                break;
            }
        }
    }
    beginnings
}

/// verify(whole) equals verify(prefix, then the rest): the same chain or the same denial with any known chain, now and
/// after a change of time or configuration.
fn check_splits(tokens: &[String], whole: &Result<VerifiedChain, Denial>) {
    let world = World::new();
    let beginnings = beginnings(tokens, whole);
    let joined = tokens.join("~");
    let last = beginnings.len().saturating_sub(1);
    for (index, known) in beginnings.iter().enumerate() {
        // Every split of a short chain, some of a long one.
        if index > 1 && index < last && index % 3 != 0 {
            continue;
        }
        let onto =
            Chain::parse_joined_after(known, &joined, &world.limits).and_then(|chain| chain.verify(&world.context()));
        same_answer(&onto, whole, "onto a beginning");
        same_answer(
            &verify_on_the_word_of(&world, tokens, known),
            whole,
            "with the signatures of a prefix vouched for",
        );
    }
    if let (Ok(whole), Some(root)) = (whole, beginnings.first()) {
        // The longer chain is known, the shorter one is presented.
        same_answer(
            &world.verify_onto([tokens[0].as_str()], whole),
            &Ok(root.clone()),
            "a known chain's root",
        );
    }

    let Some(known) = beginnings.last() else {
        return;
    };
    let proper = beginnings.iter().rfind(|known| known.tokens().count() < tokens.len());
    for changed in changed_worlds(known) {
        let plain = changed.verify(refs(tokens));
        if let Some(proper) = proper {
            same_answer(&changed.verify_onto(refs(tokens), proper), &plain, "after a change");
        }
        same_answer(
            &verify_on_the_word_of(&changed, tokens, known),
            &plain,
            "vouched for before a change",
        );
    }
}

/// Verifies the chain with only `known`'s digest and anchor to vouch for the signatures that it has verified.
fn verify_on_the_word_of(world: &World, tokens: &[String], known: &VerifiedChain) -> Result<VerifiedChain, Denial> {
    let chain = Chain::parse(refs(tokens), &world.limits)?;
    let beginnings = chain.beginnings();
    let beginning = beginnings
        .iter()
        .find(|beginning| *beginning.digest() == known.digest())
        .expect("the known chain is one of the presented one's beginnings");
    beginning.verify_vouching_for_signatures(known.anchor(), &world.context())
}

/// Changes of time and configuration after a chain was verified.
fn changed_worlds(known: &VerifiedChain) -> Vec<World> {
    let changed = |change: &dyn Fn(&mut World)| {
        let mut world = World::new();
        change(&mut world);
        world
    };
    let anchors = |change: &dyn Fn(&mut TrustAnchor)| {
        TrustAnchors::new(World::new().anchors.iter().cloned().map(|mut anchor| {
            change(&mut anchor);
            anchor
        }))
    };
    vec![
        changed(&|world| world.now = known.expires_at()),
        changed(&|world| world.now = UnixTime(known.expires_at().0.saturating_sub(1))),
        changed(&|world| world.now = UnixTime(known.leaf().issued_at().0.saturating_sub(31))),
        changed(&|world| world.limits.delegation_depth = 3),
        changed(&|world| world.limits.token_lifetime = 3000),
        changed(&|world| world.holder_algorithms = Algorithms::new([Algorithm::Ed25519])),
        changed(&|world| world.anchors = TrustAnchors::default()),
        changed(&|world| world.anchors = anchors(&|anchor| anchor.asserts_subjects ^= true)),
        changed(&|world| world.anchors = anchors(&|anchor| anchor.key_id = Some("two".to_owned()))),
        changed(&|world| world.anchors = anchors(&|anchor| anchor.algorithms = Algorithms::new([Algorithm::Ed25519]))),
    ]
}

/// Each token names the previous one as its parent, and is within it.
fn check_links(compact: &[String], verified: &VerifiedChain) {
    let world = World::new();
    let tokens: Vec<_> = verified.tokens().collect();
    let contents: Vec<_> = refs(compact)
        .map(|token| inspect::contents(token).expect("a JWS"))
        .collect();
    for (place, pair) in contents.windows(2).enumerate() {
        let json = Json::parse(&pair[1].claims).expect("JSON, since it was verified");
        let claim = |name| {
            json.as_object()
                .and_then(|claims| claims.member(name))
                .and_then(Json::as_str)
        };
        assert_eq!(claim("par_hash"), Some(pair[0].hash.as_str()));
        assert_eq!(
            claim("iss"),
            tokens[place].holder().thumbprint().map(|key| key.uri()).as_deref()
        );
    }
    for (place, pair) in tokens.windows(2).enumerate() {
        let (parent, child) = (pair[0], pair[1]);
        assert!(child.expires_at() <= parent.expires_at(), "token {place} is outlived");
        assert!(child.issued_at() >= parent.issued_at());
        assert!(child.issued_at() < child.expires_at());
        if let Some(granted) = child.capabilities() {
            let of_parent = parent.capabilities();
            assert!(
                granted
                    .tools()
                    .all(|tool| of_parent.is_some_and(|parent| parent.tool(tool).is_some()))
            );
        }
    }
    assert!(verified.expires_at() > world.now);
    let mut ids: Vec<&str> = tokens.iter().map(|token| token.id()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), tokens.len(), "no id twice");
}

/// Also verified in a batch. A token with another's signature is found, in a batch and in a chain.
fn check_signatures(tokens: &[String], verified: &VerifiedChain) {
    let world = World::new();
    let anchor = world
        .anchors
        .iter()
        .find(|anchor| anchor.key.thumbprint() == verified.anchor());
    let mut keys: Vec<&PublicKey> = vec![&anchor.expect("it is configured").key];
    keys.extend(verified.tokens().filter_map(|token| token.holder().key()));
    let parts: Vec<(&str, Vec<u8>)> = refs(tokens)
        .map(|token| {
            let (input, signature) = token.rsplit_once('.').expect("a JWS");
            (input, decoded(signature))
        })
        .collect();
    let mut signed: Vec<Signed<'_>> = keys
        .into_iter()
        .zip(&parts)
        .map(|(key, (input, signature))| Signed {
            key,
            message: input.as_bytes(),
            signature,
        })
        .collect();
    assert_eq!(batch::find_bad(&signed), [0usize; 0]);

    if let [.., before, last] = parts.as_slice() {
        let end = signed.len() - 1;
        signed[end].signature = &before.1;
        assert_eq!(batch::find_bad(&signed), [end]);
        let (_, another) = tokens[end - 1].rsplit_once('.').expect("a JWS");
        let forged = format!("{}.{another}", last.0);
        let denial = world
            .verify(refs(&tokens[..end]).chain([forged.as_str()]))
            .expect_err("another token's signature");
        assert_eq!((denial.step, &denial.cause), (Step::S4b, &Cause::SignatureInvalid));
        let known = world.verify(refs(&tokens[..end])).expect("a valid chain's beginning");
        let onto = world.verify_onto(refs(&tokens[..end]).chain([forged.as_str()]), &known);
        assert_eq!(onto.expect_err("another token's signature"), denial);
    }
}

fn decoded(signature: &str) -> Vec<u8> {
    use base64::Engine;
    base64::engine::general_purpose::URL_SAFE_NO_PAD
        .decode(signature)
        .expect("base64url, since it was verified")
}

/// Without its root, with a token missing, repeated, or two exchanged, it is not a valid chain.
fn check_other_orders(tokens: &[String]) {
    let world = World::new();
    let last = tokens.len() - 1;
    let mut others = vec![[tokens, &tokens[last..]].concat()];
    if last > 0 {
        others.push(tokens[1..].to_vec());
        let mut exchanged = tokens.to_vec();
        exchanged.swap(last - 1, last);
        others.push(exchanged);
    }
    if last > 1 {
        others.push([&tokens[..last - 1], &tokens[last..]].concat());
    }
    for other in others {
        assert!(world.verify(refs(&other)).is_err(), "{other:?}");
    }
}

/// If a child accepts arguments, its parent does too: for each constraint, and for whole invocations.
fn check_attenuation(tokens: &[String], verified: &VerifiedChain, invocations: &[(&str, Arguments)]) {
    let world = World::new();
    let chains: Vec<VerifiedChain> = (1..=tokens.len())
        .map(|length| {
            world
                .verify_onto(refs(&tokens[..length]), verified)
                .expect("a beginning of a valid chain")
        })
        .collect();
    let texts: Vec<Vec<u8>> = refs(tokens)
        .map(|token| inspect::contents(token).expect("a JWS, since it was verified").claims)
        .collect();
    let claims: Vec<Json<'_>> = texts
        .iter()
        .map(|text| Json::parse(text).expect("JSON, since it was verified"))
        .collect();
    let mut tried: Vec<(String, Arguments)> = invocations
        .iter()
        .map(|(tool, arguments)| ((*tool).to_owned(), arguments.clone()))
        .collect();
    for pair in claims.windows(2) {
        let (Some(parent), Some(child)) = (tools(&pair[0]), tools(&pair[1])) else {
            continue;
        };
        for (tool, map) in child.iter().filter_map(|(tool, map)| Some((tool, map.as_object()?))) {
            let of_parent = parent
                .member(tool)
                .and_then(Json::as_object)
                .expect("the parent grants it");
            let accepted = accepted_arguments(of_parent, map);
            for turn in 0..4 {
                tried.push((tool.to_owned(), some_arguments(&accepted, turn)));
            }
        }
    }
    for (tool, arguments) in &tried {
        let permits: Vec<bool> = chains
            .iter()
            .map(|chain| chain.permits(tool, arguments).is_ok())
            .collect();
        // Once a token of the chain refuses, no later one accepts.
        assert!(
            permits.is_sorted_by(|parent, child| parent >= child),
            "{permits:?} for {tool} {}",
            arguments.canonical()
        );
    }
}

/// Values that a token accepts for one argument.
struct Accepted<'a> {
    argument: &'a str,
    optional: bool,
    values: Vec<Value>,
}

/// For each argument that the child names, values that it accepts. Its parent must accept them too.
fn accepted_arguments<'a>(parent: &Object<'a>, child: &'a Object<'_>) -> Vec<Accepted<'a>> {
    let mut accepted = Vec::new();
    for (argument, json) in child.iter() {
        let (constraint, optional) = Constraint::parse_entry(json).expect("well-formed, since it was verified");
        let of_parent = parent.member(argument);
        let mut values = Vec::new();
        candidates(json, &mut values);
        if let Some(json) = of_parent {
            candidates(json, &mut values);
        }
        values.truncate(MOST_CANDIDATES);
        let whole = Value::Array(values.clone());
        values.extend([whole, Value::Null, Value::Array(Vec::new()), Value::object([])]);
        values.retain(|value| constraint.check(value));
        if let Some(json) = of_parent {
            let (wider, _) = Constraint::parse_entry(json).expect("well-formed, since it was verified");
            assert!(wider.subsumes(&constraint), "{argument}");
            for value in &values {
                assert!(
                    wider.check(value),
                    "the child accepts {}, its parent does not",
                    value.canonical()
                );
            }
        }
        if argument != "*" {
            accepted.push(Accepted {
                argument,
                optional,
                values,
            });
        }
    }
    accepted
}

/// The values in a constraint, their neighbours, and short arrays of them.
fn candidates(json: &Json<'_>, values: &mut Vec<Value>) {
    if values.len() >= MOST_CANDIDATES {
        return;
    }
    if let Ok(value) = Value::from_json(json) {
        if let Value::Number(number) = &value {
            let number = number.value();
            let near = [number + 1.0, number - 1.0, number.next_up(), number.next_down()];
            let near = near.into_iter().filter_map(credence_delegation::Double::new);
            values.extend(near.map(Value::Number));
        }
        values.push(Value::Array(vec![value.clone()]));
        values.push(value);
    }
    match json {
        Json::Array(elements) => elements.iter().for_each(|element| candidates(element, values)),
        Json::Object(object) => object.iter().for_each(|(_, value)| candidates(value, values)),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
    }
}

/// An argument map that differs at each turn: other values, without optional arguments, or with an additional one.
fn some_arguments(accepted: &[Accepted<'_>], turn: usize) -> Arguments {
    let mut arguments = Arguments::new();
    for Accepted {
        argument,
        optional,
        values,
    } in accepted
    {
        if turn == 3 && *optional {
            continue;
        }
        if let Some(value) = values.get(turn * 5 % values.len().max(1)) {
            arguments.insert((*argument).to_owned(), value.clone());
        }
    }
    if turn == 2 {
        arguments.insert("one more".to_owned(), Value::Null);
    }
    arguments
}

/// The tools that the claims name, if any.
fn tools<'a, 'j>(claims: &'j Json<'a>) -> Option<&'j Object<'a>> {
    let details = claims.as_object()?.member("authorization_details")?.as_array()?;
    details
        .iter()
        .filter_map(Json::as_object)
        .find(|entry| entry.member("type").and_then(Json::as_str) == Some("attenuating_agent_token"))?
        .member("tools")?
        .as_object()
}

/// The most values tried for an argument, so that one input stays quick.
const MOST_CANDIDATES: usize = 40;
