//! Trust anchors in a configuration, read into [`TrustAnchors`]. Both the filter and the control plane (for revocation
//! statements) use this, so that they trust the same issuers.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::access_token::AccessTokens;
use crate::access_token_settings;
use crate::anchor::{FetchedAnchor, TrustAnchor, TrustAnchors};
use crate::findings::Location;
use crate::json::Json;
use crate::key::{Algorithm, Algorithms, JwkSet, KeyError, KeyType, PublicKey, WellKnown};
use crate::token::has_scheme;

/// One entry of a list of trust anchors, as configured.
#[derive(Debug, Clone)]
pub struct Entry {
    /// A URI, compared exactly with a root token's `iss`.
    pub issuer: String,
    /// One public key.
    pub jwk: Option<Box<RawValue>>,
    /// Several keys. A root token's `kid` selects one.
    pub jwks: Option<Box<RawValue>>,
    /// Where the keys come from, if not from here: `control_plane`.
    pub keys: Option<String>,
    /// Another issuer where the same `sub` names the same principal.
    pub same_principals_as: Option<String>,
    /// The allowed `alg` of their signatures. Default: Ed25519.
    pub algorithms: Option<Vec<String>>,
    /// Whether the issuer has several principals.
    pub asserts_subjects: bool,
    /// What the issuer's access tokens grant; if not set, they do not count.
    pub access_tokens: Option<Box<RawValue>>,
    /// Whether the issuer signs delegations. Default: unless it has `access_tokens`.
    pub delegations: Option<bool>,
}

/// Converts the entries of the field `trust_anchors`: each key becomes an anchor.
pub fn trust(place: &Location<'_>, entries: Vec<Entry>) -> TrustAnchors {
    let few_entries = place.at_most(MAX_TRUST_ANCHORS, &entries);
    let mut issuers = BTreeMap::new();
    let mut granting = Vec::new();
    for (index, entry) in entries.into_iter().enumerate() {
        read_entry(&place.element(index), entry, &mut issuers, &mut granting);
    }
    for (name, issuer) in &issuers {
        issuer.check_choice(name);
    }
    share_principals(&mut issuers);
    let fetched = issuers.values_mut().flat_map(|issuer| issuer.fetched.take()).collect();
    let anchors: Vec<_> = issuers.into_values().flat_map(|issuer| issuer.anchors).collect();
    let keys = anchors.len();
    if few_entries && keys > MAX_TRUST_ANCHORS {
        place.report(format!(
            "{keys} keys, counting those in JWK sets; at most {MAX_TRUST_ANCHORS} are accepted"
        ));
    }
    TrustAnchors::new(anchors.into_iter().map(|(_, anchor)| anchor)).and_fetched(fetched, granting)
}

/// Issuers with the same principals know of each other: the one that others name, and all that name it.
#[inline(never)]
fn share_principals(issuers: &mut BTreeMap<String, Issuer<'_>>) {
    let named: Vec<(String, String)> = issuers
        .iter()
        .filter_map(|(name, issuer)| Some((name.clone(), issuer.same_principals_as.clone()?)))
        .collect();
    for (name, other) in &named {
        let Some(issuer) = issuers.get_mut(name) else { continue };
        let place = issuer.first.field("same_principals_as");
        if named.iter().any(|(chained, _)| chained == other) {
            place.report(format!(
                "`{other}` names another issuer itself; name that one here, too"
            ));
        } else if named.iter().filter(|(_, same)| same == other).count() > MAX_SAME_PRINCIPALS {
            place.report(format!("more than {MAX_SAME_PRINCIPALS} issuers name `{other}`"));
        }
    }
    for (name, issuer) in issuers {
        let hub = issuer.same_principals_as.as_ref().unwrap_or(name);
        let others = named.iter().filter(|(_, same)| same == hub).map(|(other, _)| other);
        let others: Vec<String> = others.chain([hub]).filter(|other| *other != name).cloned().collect();
        for (_, anchor) in &mut issuer.anchors {
            anchor.same_principals.clone_from(&others);
        }
        if let Some(fetched) = &mut issuer.fetched {
            fetched.same_principals = others;
        }
    }
}

/// Reads a list of algorithms, each one of `known`. Default: Ed25519.
pub fn algorithms(place: &Location<'_>, names: Option<Vec<String>>, known: &[Algorithm]) -> Algorithms {
    let Some(names) = names else {
        return Algorithms::default();
    };
    if names.is_empty() {
        place.report("no algorithm; write `[Ed25519]` or leave the field out");
    }
    let mut compiled: Vec<Algorithm> = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let place = place.element(index);
        match Algorithm::from_name(name).filter(|algorithm| known.contains(algorithm)) {
            Some(algorithm) if compiled.contains(&algorithm) => {
                place.report(format!("`{name}` is listed twice; remove one"));
            }
            Some(algorithm) => compiled.push(algorithm),
            None => {
                let known: Vec<_> = known.iter().map(|algorithm| algorithm.name()).collect();
                let known = known.join(", ");
                place.report(format!("`{name}` is not supported; write one of: {known}"));
            }
        }
    }
    Algorithms::new(compiled)
}

/// An issuer. Its keys may be in several entries.
struct Issuer<'f> {
    /// The value of its first entry.
    asserts_subjects: bool,
    /// The place of that entry.
    first: Location<'f>,
    /// Its keys as anchors, with their places.
    anchors: Vec<(Location<'f>, TrustAnchor)>,
    /// Its entry whose keys are fetched.
    fetched: Option<FetchedAnchor>,
    same_principals_as: Option<String>,
    has_too_many: bool,
}

/// A key and its place.
struct Key<'f> {
    place: Location<'f>,
    id: Option<String>,
    key: PublicKey,
}

#[inline(never)]
fn read_entry<'f>(
    place: &Location<'f>,
    entry: Entry,
    issuers: &mut BTreeMap<String, Issuer<'f>>,
    granting: &mut Vec<(String, Arc<AccessTokens>)>,
) {
    let issuer_place = place.field("issuer");
    issuer_place.visible(&entry.issuer);
    if !entry.issuer.is_empty() && !has_scheme(&entry.issuer) {
        issuer_place.report(format!(
            "`{}` is not a URI; write it as tokens have it in `iss`",
            entry.issuer
        ));
    }
    let keys = keys(place, &entry);
    let access_tokens = entry.access_tokens.as_deref();
    let access_tokens = access_tokens.and_then(|text| access_token_settings::read(&place.field("access_tokens"), text));
    let delegations = entry.delegations.unwrap_or(entry.access_tokens.is_none());
    let access_tokens = access_tokens.map(Arc::new);
    granting.extend(
        access_tokens
            .iter()
            .map(|tokens| (entry.issuer.clone(), Arc::clone(tokens))),
    );
    if !delegations && entry.access_tokens.is_none() {
        place
            .field("delegations")
            .report("neither delegations nor access tokens of this issuer count; add `access_tokens`");
    }
    let known = match entry.access_tokens {
        Some(_) => &Algorithm::OF_ACCESS_TOKENS[..],
        None => &Algorithm::ALL[..],
    };
    let algorithms = algorithms(&place.field("algorithms"), entry.algorithms, known);
    let fetched = entry.keys.is_some().then(|| FetchedAnchor {
        issuer: entry.issuer.clone(),
        algorithms: algorithms.clone(),
        asserts_subjects: entry.asserts_subjects,
        delegations,
        access_tokens: access_tokens.clone(),
        same_principals: Vec::new(),
    });
    if fetched.is_none() {
        check_fit(&keys, &algorithms);
    }
    for key in &keys {
        key.judge();
    }

    let issuer = issuers.entry(entry.issuer.clone()).or_insert_with(|| Issuer {
        asserts_subjects: entry.asserts_subjects,
        first: place.clone(),
        anchors: Vec::new(),
        fetched: None,
        same_principals_as: None,
        has_too_many: false,
    });
    issuer.name_same_principals(place, entry.asserts_subjects, &entry.issuer, entry.same_principals_as);
    if issuer.asserts_subjects != entry.asserts_subjects {
        place.field("asserts_subjects").report(format!(
            "{} here, but {} at {}, so the principal would depend on which of the issuer's keys signed; write the same \
             for every key of `{}`",
            entry.asserts_subjects,
            issuer.asserts_subjects,
            issuer.first.path(),
            entry.issuer
        ));
    }
    if let Some(fetched) = fetched
        && issuer.fetched.replace(fetched).is_some()
    {
        place
            .field("keys")
            .report("an earlier entry of this issuer has the keys of the control plane already; remove one");
    }
    for Key { place, id, key } in keys {
        let anchor = TrustAnchor {
            issuer: entry.issuer.clone(),
            key,
            key_id: id,
            algorithms: algorithms.clone(),
            asserts_subjects: entry.asserts_subjects,
            delegations,
            access_tokens: access_tokens.clone(),
            same_principals: Vec::new(),
            is_fetched: false,
        };
        issuer.add(place, anchor);
    }
}

/// The keys of an entry: from `jwk`, from `jwks`, or from the issuer's own name.
#[inline(never)]
fn keys<'f>(place: &Location<'f>, entry: &Entry) -> Vec<Key<'f>> {
    if entry.issuer.starts_with(DID_KEY) && entry.keys.is_none() {
        return did_key(place, entry).into_iter().collect();
    }
    if let Some(keys) = &entry.keys {
        let is_alone = entry.jwk.is_none() && entry.jwks.is_none();
        if keys != FROM_CONTROL_PLANE || !is_alone {
            place.field("keys").report(format!(
                "`keys: {FROM_CONTROL_PLANE}` is the only value, and goes without `jwk` and `jwks`; give static keys an \
                 entry of their own"
            ));
        }
        return Vec::new();
    }
    match (&entry.jwk, &entry.jwks) {
        (Some(jwk), None) => jwk_alone(place, jwk, entry.access_tokens.is_some())
            .into_iter()
            .collect(),
        (None, Some(jwks)) => jwk_set(&place.field("jwks"), jwks, entry.access_tokens.is_some()),
        (None, None) => {
            place.report(
                "no key; add `jwk`, or `jwks` if the issuer has a JWK set, or `keys: control_plane` (only a did:key \
                 issuer needs none)",
            );
            Vec::new()
        }
        (Some(_), Some(_)) => {
            place.report("both `jwk` and `jwks`; keep one, or give the issuer an entry for each");
            Vec::new()
        }
    }
}

#[inline(never)]
fn jwk_set<'f>(place: &Location<'f>, jwks: &RawValue, is_of_access_tokens: bool) -> Vec<Key<'f>> {
    let text = jwks.get().as_bytes();
    let set = match is_of_access_tokens {
        true => JwkSet::parse_of_issuer(text),
        false => JwkSet::parse(text),
    };
    let Some(set) = place.take(set) else {
        return Vec::new();
    };
    let keys = place.field("keys");
    for skipped in set.skipped() {
        keys.element(skipped.index)
            .note(format!("this key is not used: {}", skipped.why));
    }
    let used = (0usize..).filter(|index| set.skipped().iter().all(|skipped| skipped.index != *index));
    used.zip(set.keys())
        .map(|(index, identified)| Key {
            place: keys.element(index),
            id: identified.id.clone(),
            key: identified.key.clone(),
        })
        .collect()
}

impl Key<'_> {
    /// Reports a well-known key. A printed private half is an error. The key of the shipped files is only a note: those
    /// files have it, and it only denies requests.
    #[inline(never)]
    fn judge(&self) {
        match self.key.well_known() {
            None => {}
            Some(WellKnown::Printed(place)) => self.place.report(format!(
                "{place}, prints the private half of this key, so anyone could sign; put your issuer's own public key \
                 here, as `credence keygen` prints one"
            )),
            Some(WellKnown::Examples) => self.place.note(
                "this is the key of Credence's own files, which belongs to no issuer, so no signature will ever \
                 verify; put your issuer's own public key here, as `credence keygen` prints one",
            ),
        }
    }
}

impl<'f> Issuer<'f> {
    /// Sets the issuer with the same principals. All entries that name one must name the same.
    fn name_same_principals(&mut self, place: &Location<'f>, asserts_subjects: bool, own: &str, other: Option<String>) {
        let place = place.field("same_principals_as");
        let Some(other) = other else { return };
        if !asserts_subjects {
            place.report("without `asserts_subjects: true`, the issuer itself is the principal; add it");
        }
        if !has_scheme(&other) || other == own {
            place.report(format!("`{other}` is not another issuer; write its `iss`"));
        }
        if self.same_principals_as.replace(other).is_some() {
            place.report("an earlier entry of this issuer says so already; remove one");
        }
    }

    /// Adds a key, or reports why the issuer cannot have it.
    fn add(&mut self, place: Location<'f>, anchor: TrustAnchor) {
        let name = &anchor.issuer;
        let has_id = |earlier: &TrustAnchor| anchor.key_id.is_some() && earlier.key_id == anchor.key_id;
        if let Some((earlier, _)) = self.anchors.iter().find(|(_, earlier)| earlier.key == anchor.key) {
            place.report(format!(
                "issuer `{name}` has this key at {} already; remove one",
                earlier.path()
            ));
        } else if let Some((earlier, _)) = self.anchors.iter().find(|(_, earlier)| has_id(earlier)) {
            place.report(format!(
                "issuer `{name}` has another key with this `kid` at {}, so a token's `kid` would be ambiguous; give \
                 each key its own `kid`",
                earlier.path()
            ));
        } else if self.anchors.len() < MAX_KEYS_PER_ISSUER {
            self.anchors.push((place, anchor));
        } else if !std::mem::replace(&mut self.has_too_many, true) {
            place.report(format!(
                "issuer `{name}` has more than {MAX_KEYS_PER_ISSUER} keys in all its entries; keep those that are in \
                 use"
            ));
        }
    }

    /// Whether a token can name the key that signed it, if the issuer has too many keys to try all. If no token can,
    /// that is a problem; if a `kid` is needed for it, a note.
    #[inline(never)]
    fn check_choice(&self, name: &str) {
        let mut said = None;
        for algorithm in Algorithm::ALL.into_iter().chain([Algorithm::Rs256, Algorithm::Ps256]) {
            let (kind, limit) = (algorithm.key_type(), algorithm.key_type().most_tried());
            if said == Some(kind) {
                continue;
            }
            let of_algorithm: Vec<_> = self
                .anchors
                .iter()
                .filter(|(_, anchor)| anchor.allows(algorithm))
                .collect();
            let mut unnamed = of_algorithm.iter().filter(|(_, anchor)| anchor.key_id.is_none());
            if let Some((place, _)) = unnamed.nth(limit) {
                said = Some(kind);
                place.report(format!(
                    "issuer `{name}` has more than {limit} {kind} keys for {algorithm} without `kid`, and at most \
                     {limit} are tried for a token; put them into one `jwks` in which each has a `kid`, and let its \
                     tokens name it"
                ));
            } else if let Some((place, _)) = of_algorithm.get(limit) {
                said = Some(kind);
                place.note(format!(
                    "issuer `{name}` has {} {kind} keys for {algorithm}, and at most {limit} are tried for a token: a \
                     token without `kid` in its header is denied (`key_unknown`)",
                    of_algorithm.len()
                ));
            }
        }
    }
}

/// The key of a `did:key` issuer, from its name.
#[inline(never)]
fn did_key<'f>(place: &Location<'f>, entry: &Entry) -> Option<Key<'f>> {
    if entry.jwks.is_some() {
        place
            .field("jwks")
            .report("a did:key issuer has only the key in its name; leave `jwks` out");
    }
    let in_name = PublicKey::from_did_key(&entry.issuer)
        .map_err(|error| format!("{error}; write the did:key as `credence keygen` prints it, without a fragment"));
    let key = Key {
        place: place.field("issuer"),
        id: None,
        key: place.field("issuer").take(in_name)?,
    };
    if let Some(jwk) = &entry.jwk {
        let jwk = jwk_alone(place, jwk, false)?;
        if jwk.key != key.key {
            jwk.place.report(format!(
                "not the key in the issuer's name, but that of {}; leave `jwk` out",
                jwk.key.to_did_key()
            ));
            return None;
        }
    }
    Some(key)
}

/// A single key. Its `kid` is ignored, because there is nothing to select.
fn jwk_alone<'f>(entry: &Location<'f>, jwk: &RawValue, is_of_access_tokens: bool) -> Option<Key<'f>> {
    let place = entry.field("jwk");
    let json = place.take(Json::parse(jwk.get().as_bytes()).map_err(KeyError::from))?;
    let key = place.take(match is_of_access_tokens {
        true => PublicKey::from_issuer_jwk(&json),
        false => PublicKey::from_jwk(&json),
    })?;
    Some(Key { place, id: None, key })
}

/// Reports every key of an entry that fits none of its algorithms: it would silently never verify a signature.
#[inline(never)]
fn check_fit(keys: &[Key<'_>], algorithms: &Algorithms) {
    // An empty list is an error of its own, reported already.
    if algorithms.iter().next().is_none() {
        return;
    }
    for key in keys {
        if !algorithms.iter().any(|algorithm| key.key.fits(algorithm)) {
            key.place.report(format!(
                "no listed algorithm fits this {} key, so no signature by it would ever verify; write `algorithms: \
                 [{}]`",
                key.key.key_type(),
                needed(keys, algorithms)
            ));
        }
    }
}

/// Algorithms by which all the keys could sign: the listed ones that fit a key, and one for each other key.
fn needed(keys: &[Key<'_>], listed: &Algorithms) -> String {
    let is_there = |kind: &KeyType| keys.iter().any(|key| key.key.key_type() == *kind);
    let names: Vec<_> = KeyType::ALL
        .into_iter()
        .chain([KeyType::Rsa])
        .filter(is_there)
        .flat_map(|kind| {
            let mut fitting: Vec<_> = listed.iter().filter(|algorithm| algorithm.key_type() == kind).collect();
            if fitting.is_empty() {
                fitting.push(kind.algorithm());
            }
            fitting
        })
        .map(Algorithm::name)
        .collect();
    names.join(", ")
}

/// The prefix of issuers whose name contains their key.
const DID_KEY: &str = "did:key:";

/// The most trust anchors, and the most keys in all of them: a root token's check looks at each.
const MAX_TRUST_ANCHORS: usize = 256;

/// Keys of one issuer in all its entries. [`KeyType::most_tried`] limits how many of them are tried for one token.
pub const MAX_KEYS_PER_ISSUER: usize = 16;

/// Issuers that name the same one. Each costs a look-up for each of their chains.
const MAX_SAME_PRINCIPALS: usize = 7;

/// The value of `keys`.
const FROM_CONTROL_PLANE: &str = "control_plane";
