//! Trust anchors as an operator writes them, read into [`TrustAnchors`]: by the filter, and by the control plane for
//! revocation statements, so that both trust the same issuers.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use crate::anchor::{TrustAnchor, TrustAnchors};
use crate::findings::Location;
use crate::key::{Algorithm, Algorithms, JwkSet, KeyType, PublicKey, WellKnown};
use crate::token::has_scheme;

/// One entry of a list of trust anchors, as it is written.
#[derive(Debug, Clone)]
pub struct Entry {
    /// A URI, compared exactly with a root token's `iss`.
    pub issuer: String,
    /// One public key.
    pub jwk: Option<Box<RawValue>>,
    /// Several, among which a root token's `kid` selects.
    pub jwks: Option<Box<RawValue>>,
    /// What signatures by them may name in `alg`; Ed25519 alone if absent.
    pub algorithms: Option<Vec<String>>,
    /// Whether the issuer speaks for several people.
    pub asserts_subjects: bool,
}

/// Gives the entries of the field `trust_anchors` their meaning: each key becomes an anchor.
pub fn trust(place: &Location<'_>, entries: Vec<Entry>) -> TrustAnchors {
    let few_entries = place.at_most(MAX_TRUST_ANCHORS, &entries);
    let mut issuers = BTreeMap::new();
    for (index, entry) in entries.into_iter().enumerate() {
        read_entry(&place.element(index), entry, &mut issuers);
    }
    for (name, issuer) in &issuers {
        issuer.check_choice(name);
    }
    let anchors: Vec<_> = issuers.into_values().flat_map(|issuer| issuer.anchors).collect();
    let keys = anchors.len();
    if few_entries && keys > MAX_TRUST_ANCHORS {
        place.report(format!(
            "{keys} keys, counting those in JWK sets; at most {MAX_TRUST_ANCHORS} are accepted"
        ));
    }
    TrustAnchors::new(anchors.into_iter().map(|(_, anchor)| anchor))
}

/// Reads a list of algorithms; without one, Ed25519 alone is allowed.
pub fn algorithms(place: &Location<'_>, names: Option<Vec<String>>) -> Algorithms {
    let Some(names) = names else {
        return Algorithms::default();
    };
    if names.is_empty() {
        place.report("no algorithm; write `[Ed25519]` or leave the field out");
    }
    let mut compiled: Vec<Algorithm> = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let place = place.element(index);
        match Algorithm::from_name(name) {
            Some(algorithm) if compiled.contains(&algorithm) => {
                place.report(format!("`{name}` is listed twice; remove one"));
            }
            Some(algorithm) => compiled.push(algorithm),
            None => {
                let known = Algorithm::ALL.map(Algorithm::name).join(", ");
                place.report(format!("`{name}` is not supported; write one of: {known}"));
            }
        }
    }
    Algorithms::new(compiled)
}

/// An issuer, whose keys may stand in several entries.
struct Issuer<'f> {
    /// As its first entry has it.
    asserts_subjects: bool,
    /// Where that is.
    first: Location<'f>,
    /// Its keys as anchors, and where each stands.
    anchors: Vec<(Location<'f>, TrustAnchor)>,
    has_too_many: bool,
}

/// A key and where it stands.
struct Key<'f> {
    place: Location<'f>,
    id: Option<String>,
    key: PublicKey,
}

fn read_entry<'f>(place: &Location<'f>, entry: Entry, issuers: &mut BTreeMap<String, Issuer<'f>>) {
    let issuer_place = place.field("issuer");
    issuer_place.visible(&entry.issuer);
    if !entry.issuer.is_empty() && !has_scheme(&entry.issuer) {
        issuer_place.report(format!(
            "`{}` is not a URI; write it as tokens have it in `iss`",
            entry.issuer
        ));
    }
    let keys = keys(place, &entry);
    let algorithms = algorithms(&place.field("algorithms"), entry.algorithms);
    check_fit(&keys, &algorithms);
    for key in &keys {
        key.judge();
    }

    let issuer = issuers.entry(entry.issuer.clone()).or_insert_with(|| Issuer {
        asserts_subjects: entry.asserts_subjects,
        first: place.clone(),
        anchors: Vec::new(),
        has_too_many: false,
    });
    if issuer.asserts_subjects != entry.asserts_subjects {
        place.field("asserts_subjects").report(format!(
            "{} here, but {} at {}, so that the principal would depend on which of the issuer's keys signed; write the \
             same for every key of `{}`",
            entry.asserts_subjects,
            issuer.asserts_subjects,
            issuer.first.path(),
            entry.issuer
        ));
    }
    for Key { place, id, key } in keys {
        let anchor = TrustAnchor {
            issuer: entry.issuer.clone(),
            key,
            key_id: id,
            algorithms: algorithms.clone(),
            asserts_subjects: entry.asserts_subjects,
        };
        issuer.add(place, anchor);
    }
}

/// The keys of an entry: from `jwk`, from `jwks`, or from the issuer's own name.
fn keys<'f>(place: &Location<'f>, entry: &Entry) -> Vec<Key<'f>> {
    if entry.issuer.starts_with(DID_KEY) {
        return did_key(place, entry).into_iter().collect();
    }
    match (&entry.jwk, &entry.jwks) {
        (Some(jwk), None) => jwk_alone(place, jwk).into_iter().collect(),
        (None, Some(jwks)) => jwk_set(&place.field("jwks"), jwks),
        (None, None) => {
            place.report(
                "no key; add `jwk`, or `jwks` if the issuer has a JWK set (only a did:key issuer needs neither)",
            );
            Vec::new()
        }
        (Some(_), Some(_)) => {
            place.report("both `jwk` and `jwks`; keep one, or give the issuer an entry for each");
            Vec::new()
        }
    }
}

fn jwk_set<'f>(place: &Location<'f>, jwks: &RawValue) -> Vec<Key<'f>> {
    let Some(set) = place.take(JwkSet::parse(jwks.get().as_bytes())) else {
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
    /// Reports a well-known key. One whose private half is printed is an error. The one of our own files only denies what
    /// should be allowed, and those files have it: a note.
    fn judge(&self) {
        match self.key.well_known() {
            None => {}
            Some(WellKnown::Printed(place)) => self.place.report(format!(
                "{place}, prints the private half of this key, so that anybody could sign; put your issuer's own public \
                 key here, as `credence keygen` prints one"
            )),
            Some(WellKnown::Examples) => self.place.note(
                "this is the key of Credence's own files, which is nobody's, so that no signature by it would ever count; \
                 put your issuer's own public key here, as `credence keygen` prints one",
            ),
        }
    }
}

impl<'f> Issuer<'f> {
    /// Adds a key, or reports why it cannot be one of this issuer's.
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
                "issuer `{name}` has another key of this `kid` at {}, so that a token's `kid` would not say which; give \
                 each key a `kid` of its own",
                earlier.path()
            ));
        } else if self.anchors.len() < MAX_KEYS_PER_ISSUER {
            self.anchors.push((place, anchor));
        } else if !std::mem::replace(&mut self.has_too_many, true) {
            place.report(format!(
                "issuer `{name}` has more than {MAX_KEYS_PER_ISSUER} keys, its entries counted together; keep those \
                 that are in use"
            ));
        }
    }

    /// Whether a token can say which of its issuer's keys has signed it, where they are too many to be tried one by one:
    /// a problem if no token can, a note if a `kid` is needed for it.
    fn check_choice(&self, name: &str) {
        let mut said = None;
        for algorithm in Algorithm::ALL {
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
                    "issuer `{name}` has more than {limit} {kind} keys for {algorithm} without `kid`, and no more are \
                     tried for a token; put them into one `jwks` in which each has a `kid`, and have its tokens name it"
                ));
            } else if let Some((place, _)) = of_algorithm.get(limit) {
                said = Some(kind);
                place.note(format!(
                    "issuer `{name}` has {} {kind} keys for {algorithm}, and no more than {limit} are tried for a token: \
                     one whose header has no `kid` is denied (`key_unknown`)",
                    of_algorithm.len()
                ));
            }
        }
    }
}

/// The key of a `did:key` issuer, which is in its name.
fn did_key<'f>(place: &Location<'f>, entry: &Entry) -> Option<Key<'f>> {
    if entry.jwks.is_some() {
        place
            .field("jwks")
            .report("a did:key issuer has one key, the one that its name is made of; leave `jwks` out");
    }
    let in_name = PublicKey::from_did_key(&entry.issuer)
        .map_err(|error| format!("{error}; write the did:key as `credence keygen` prints it, without a fragment"));
    let key = Key {
        place: place.field("issuer"),
        id: None,
        key: place.field("issuer").take(in_name)?,
    };
    if let Some(jwk) = &entry.jwk {
        let jwk = jwk_alone(place, jwk)?;
        if jwk.key != key.key {
            jwk.place.report(format!(
                "not the key that the issuer's name is made of, but that of {}; leave `jwk` out",
                jwk.key.to_did_key()
            ));
            return None;
        }
    }
    Some(key)
}

/// A single key. Its `kid` selects nothing: there is nothing to choose from.
fn jwk_alone<'f>(entry: &Location<'f>, jwk: &RawValue) -> Option<Key<'f>> {
    let place = entry.field("jwk");
    let key = place.take(PublicKey::from_jwk_text(jwk.get().as_bytes()))?;
    Some(Key { place, id: None, key })
}

/// Reports every key of an entry that none of its algorithms fits: it would never verify anything, without a word.
fn check_fit(keys: &[Key<'_>], algorithms: &Algorithms) {
    // Without any, that is the mistake, and it is reported already.
    if algorithms.iter().next().is_none() {
        return;
    }
    for key in keys {
        if !algorithms.iter().any(|algorithm| key.key.fits(algorithm)) {
            key.place.report(format!(
                "no listed algorithm fits this {} key, so that no signature by it would ever count; write \
                 `algorithms: [{}]`",
                key.key.key_type(),
                needed(keys, algorithms)
            ));
        }
    }
}

/// The algorithms by which every one of the keys could sign: those listed that fit one, and one each for the others.
fn needed(keys: &[Key<'_>], listed: &Algorithms) -> String {
    let is_there = |kind: &KeyType| keys.iter().any(|key| key.key.key_type() == *kind);
    let names: Vec<_> = KeyType::ALL
        .into_iter()
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

/// What the issuers begin with whose key is in their name.
const DID_KEY: &str = "did:key:";

/// Trust anchors, and also their keys altogether: each is looked at for a root token.
const MAX_TRUST_ANCHORS: usize = 256;

/// Keys of one issuer, however many entries they stand in. How many of them one token may have tried is
/// [`KeyType::most_tried`].
pub const MAX_KEYS_PER_ISSUER: usize = 16;
