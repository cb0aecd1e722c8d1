//! Trust anchors as an operator writes them, read into [`TrustAnchors`]: whoever enforces and whoever takes revocation
//! statements believe the same issuers for the same reasons.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::value::RawValue;

use crate::anchor::{TrustAnchor, TrustAnchors};
use crate::key::{Algorithm, Algorithms, JwkSet, KeyType, Known, PublicKey};
use crate::token::has_scheme;

/// One entry of a list of trust anchors, as it is written.
#[derive(Debug, Clone)]
pub struct Entry {
    /// A URI, compared exactly with a root token's `iss`.
    pub issuer: String,
    /// One public key of the issuer.
    pub jwk: Option<Box<RawValue>>,
    /// Several, among which a root token's `kid` selects.
    pub jwks: Option<Box<RawValue>>,
    /// What signatures by them may name in `alg`; Ed25519 alone if absent.
    pub algorithms: Option<Vec<String>>,
    /// Whether the issuer speaks for several people.
    pub asserts_subjects: bool,
}

/// Something to say about a place in the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// Where, such as `trust_anchors[0].jwks.keys[2]`.
    pub path: String,
    /// What was found, and what to do.
    pub message: String,
}

impl Remark {
    /// Says this about a place.
    #[must_use]
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            message: message.into(),
        }
    }
}

impl fmt::Display for Remark {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.path, self.message)
    }
}

/// The trust anchors, and what there is to say about them.
#[derive(Debug, Clone, Default)]
pub struct Trust {
    /// What was understood; all of it if there are no problems.
    pub anchors: TrustAnchors,
    /// What an operator should know.
    pub notes: Vec<Remark>,
    /// What an operator must mend, in the order of the entries.
    pub problems: Vec<Remark>,
}

/// Gives the entries of the field `trust_anchors` their meaning: each key becomes an anchor.
#[must_use]
pub fn trust(entries: Vec<Entry>) -> Trust {
    let mut problems = Problems::default();
    let few_entries = entries.len() <= MAX_TRUST_ANCHORS;
    if !few_entries {
        let message = format!("{} entries; at most {MAX_TRUST_ANCHORS} are accepted", entries.len());
        problems.report(PATH, message);
    }
    let mut compiler = Compiler::default();
    for (index, entry) in entries.into_iter().enumerate() {
        compiler.entry(&format!("{PATH}[{index}]"), entry, &mut problems);
    }
    compiler.check_choice(&mut problems);
    let keys = compiler.anchors.len();
    if few_entries && keys > MAX_TRUST_ANCHORS {
        let message = format!("{keys} keys, counting those in JWK sets; at most {MAX_TRUST_ANCHORS} are accepted");
        problems.report(PATH, message);
    }
    Trust {
        anchors: TrustAnchors::new(compiler.anchors),
        notes: compiler.notes,
        problems: problems.0,
    }
}

/// Reads a list of algorithms, which stands at `path`; without one, Ed25519 alone is allowed.
#[must_use]
pub fn algorithms(path: &str, names: Option<Vec<String>>) -> (Algorithms, Vec<Remark>) {
    let mut problems = Problems::default();
    (read_algorithms(path, names, &mut problems), problems.0)
}

fn read_algorithms(path: &str, names: Option<Vec<String>>, problems: &mut Problems) -> Algorithms {
    let Some(names) = names else {
        return Algorithms::default();
    };
    if names.is_empty() {
        problems.report(path, "no algorithm; write `[Ed25519]` or leave the field out");
    }
    let mut compiled: Vec<Algorithm> = Vec::new();
    for (index, name) in names.iter().enumerate() {
        match Algorithm::from_name(name) {
            Some(algorithm) if compiled.contains(&algorithm) => {
                problems.report(
                    format!("{path}[{index}]"),
                    format!("`{name}` is listed twice; remove one"),
                );
            }
            Some(algorithm) => compiled.push(algorithm),
            None => {
                let known = Algorithm::ALL.map(Algorithm::name).join(", ");
                problems.report(
                    format!("{path}[{index}]"),
                    format!("`{name}` is not supported; write one of: {known}"),
                );
            }
        }
    }
    Algorithms::new(compiled)
}

/// What has been read so far.
#[derive(Default)]
struct Compiler {
    anchors: Vec<TrustAnchor>,
    issuers: BTreeMap<String, Issuer>,
    notes: Vec<Remark>,
}

/// An issuer, whose keys may stand in several entries.
struct Issuer {
    /// As its first entry has it.
    asserts_subjects: bool,
    /// Where that is.
    first: String,
    keys: Vec<Key>,
    /// Its anchors' places among all, one for each of the keys.
    anchors: Vec<usize>,
    has_too_many: bool,
}

/// A key and where it stands.
#[derive(Clone)]
struct Key {
    path: String,
    id: Option<String>,
    key: PublicKey,
}

impl Compiler {
    fn entry(&mut self, path: &str, entry: Entry, problems: &mut Problems) {
        check_visible(&format!("{path}.issuer"), &entry.issuer, problems);
        if !entry.issuer.is_empty() && !has_scheme(&entry.issuer) {
            let message = format!("`{}` is not a URI; write it as tokens have it in `iss`", entry.issuer);
            problems.report(format!("{path}.issuer"), message);
        }
        let keys = self.keys(path, &entry, problems);
        let algorithms = read_algorithms(&format!("{path}.algorithms"), entry.algorithms, problems);
        check_fit(&keys, &algorithms, problems);
        for key in &keys {
            self.judge(key, problems);
        }

        let issuer = self.issuers.entry(entry.issuer.clone()).or_insert_with(|| Issuer {
            asserts_subjects: entry.asserts_subjects,
            first: path.to_owned(),
            keys: Vec::new(),
            anchors: Vec::new(),
            has_too_many: false,
        });
        if issuer.asserts_subjects != entry.asserts_subjects {
            let message = format!(
                "{} here, but {} at {}, so that the principal would depend on which of the issuer's keys signed; write \
                 the same for every key of `{}`",
                entry.asserts_subjects, issuer.asserts_subjects, issuer.first, entry.issuer
            );
            problems.report(format!("{path}.asserts_subjects"), message);
        }
        for key in keys {
            if !issuer.takes(&entry.issuer, &key, problems) {
                continue;
            }
            issuer.keys.push(key.clone());
            issuer.anchors.push(self.anchors.len());
            self.anchors.push(TrustAnchor {
                issuer: entry.issuer.clone(),
                key: key.key,
                key_id: key.id,
                algorithms: algorithms.clone(),
                asserts_subjects: entry.asserts_subjects,
            });
        }
    }

    /// Whether a token can say which of its issuer's keys has signed it, where they are too many to be tried one by one:
    /// a problem if no token can, a note if a `kid` is needed for it.
    fn check_choice(&mut self, problems: &mut Problems) {
        for (name, issuer) in &self.issuers {
            let mut said = None;
            for algorithm in Algorithm::ALL {
                let (kind, limit) = (algorithm.key_type(), algorithm.key_type().most_tried());
                if said == Some(kind) {
                    continue;
                }
                let of_algorithm: Vec<_> = issuer
                    .keys
                    .iter()
                    .zip(&issuer.anchors)
                    .filter(|(_, place)| self.anchors.get(**place).is_some_and(|anchor| anchor.allows(algorithm)))
                    .map(|(key, _)| key)
                    .collect();
                let mut unnamed = of_algorithm.iter().filter(|key| key.id.is_none());
                if let Some(key) = unnamed.nth(limit) {
                    said = Some(kind);
                    problems.report(
                        &key.path,
                        format!(
                            "issuer `{name}` has more than {limit} {kind} keys for {algorithm} without `kid`, and no more \
                             are tried for a token; put them into one `jwks` in which each has a `kid`, and have its \
                             tokens name it"
                        ),
                    );
                } else if let Some(key) = of_algorithm.get(limit) {
                    said = Some(kind);
                    self.notes.push(Remark {
                        path: key.path.clone(),
                        message: format!(
                            "issuer `{name}` has {} {kind} keys for {algorithm}, and no more than {limit} are tried for a \
                             token: one whose header has no `kid` is denied (`key_unknown`)",
                            of_algorithm.len()
                        ),
                    });
                }
            }
        }
    }

    /// The keys of an entry: from `jwk`, from `jwks`, or from the issuer's own name.
    fn keys(&mut self, path: &str, entry: &Entry, problems: &mut Problems) -> Vec<Key> {
        if entry.issuer.starts_with(DID_KEY) {
            return did_key(path, entry, problems).into_iter().collect();
        }
        match (&entry.jwk, &entry.jwks) {
            (Some(jwk), None) => jwk_alone(&format!("{path}.jwk"), jwk, problems).into_iter().collect(),
            (None, Some(jwks)) => self.jwk_set(&format!("{path}.jwks"), jwks, problems),
            (None, None) => {
                problems.report(
                    path,
                    "no key; add `jwk`, or `jwks` if the issuer has a JWK set (only a did:key issuer needs neither)",
                );
                Vec::new()
            }
            (Some(_), Some(_)) => {
                problems.report(
                    path,
                    "both `jwk` and `jwks`; keep one, or give the issuer an entry for each",
                );
                Vec::new()
            }
        }
    }

    /// Says whose key it is if that is no secret, for then it is not the issuer's. Everybody's is a mistake; nobody's denies
    /// what should be allowed and no more, and our own files have it.
    fn judge(&mut self, key: &Key, problems: &mut Problems) {
        match key.key.known() {
            None => {}
            Some(Known::Printed(place)) => problems.report(
                &key.path,
                format!(
                    "{place}, prints the private half of this key, so that anybody could sign; put your issuer's own \
                     public key here, as `credence keygen` prints one"
                ),
            ),
            Some(Known::Nobodys) => self.notes.push(Remark {
                path: key.path.clone(),
                message:
                    "this is the key of Credence's own files, which is nobody's, so that no signature by it would \
                          ever count; put your issuer's own public key here, as `credence keygen` prints one"
                        .to_owned(),
            }),
        }
    }

    fn jwk_set(&mut self, path: &str, jwks: &RawValue, problems: &mut Problems) -> Vec<Key> {
        let Some(set) = problems.take(path, JwkSet::parse(jwks.get().as_bytes())) else {
            return Vec::new();
        };
        self.notes.extend(set.skipped().iter().map(|skipped| Remark {
            path: format!("{path}.keys[{}]", skipped.index),
            message: format!("this key is not used: {}", skipped.why),
        }));
        let used = (0usize..).filter(|index| set.skipped().iter().all(|skipped| skipped.index != *index));
        used.zip(set.keys())
            .map(|(index, identified)| Key {
                path: format!("{path}.keys[{index}]"),
                id: identified.id.clone(),
                key: identified.key.clone(),
            })
            .collect()
    }
}

impl Issuer {
    /// Whether the key may be one of this issuer's, reporting it if not.
    fn takes(&mut self, name: &str, key: &Key, problems: &mut Problems) -> bool {
        if let Some(earlier) = self.keys.iter().find(|earlier| earlier.key == key.key) {
            let message = format!("issuer `{name}` has this key at {} already; remove one", earlier.path);
            problems.report(&key.path, message);
            return false;
        }
        let same_id = |earlier: &&Key| key.id.is_some() && earlier.id == key.id;
        if let Some(earlier) = self.keys.iter().find(same_id) {
            let message = format!(
                "issuer `{name}` has another key of this `kid` at {}, so that a token's `kid` would not say which; give \
                 each key a `kid` of its own",
                earlier.path
            );
            problems.report(&key.path, message);
            return false;
        }
        if self.keys.len() < MAX_KEYS_PER_ISSUER {
            return true;
        }
        if !self.has_too_many {
            let message = format!(
                "issuer `{name}` has more than {MAX_KEYS_PER_ISSUER} keys, its entries counted together; keep those \
                 that are in use"
            );
            problems.report(&key.path, message);
        }
        self.has_too_many = true;
        false
    }
}

/// The key of a `did:key` issuer, which is in its name.
fn did_key(path: &str, entry: &Entry, problems: &mut Problems) -> Option<Key> {
    if entry.jwks.is_some() {
        problems.report(
            format!("{path}.jwks"),
            "a did:key issuer has one key, the one that its name is made of; leave `jwks` out",
        );
    }
    let issuer_path = format!("{path}.issuer");
    let key = match PublicKey::from_did_key(&entry.issuer) {
        Ok(key) => key,
        Err(error) => {
            let message = format!("{error}; write the did:key as `credence keygen` prints it, without a fragment");
            problems.report(issuer_path, message);
            return None;
        }
    };
    if let Some(jwk) = &entry.jwk {
        let jwk = jwk_alone(&format!("{path}.jwk"), jwk, problems)?;
        if jwk.key != key {
            let message = format!(
                "not the key that the issuer's name is made of, but that of {}; leave `jwk` out",
                jwk.key.to_did_key()
            );
            problems.report(jwk.path, message);
            return None;
        }
    }
    Some(Key {
        path: issuer_path,
        id: None,
        key,
    })
}

/// A single key. Its `kid` selects nothing: there is nothing to choose from.
fn jwk_alone(path: &str, jwk: &RawValue, problems: &mut Problems) -> Option<Key> {
    let key = problems.take(path, PublicKey::from_jwk_text(jwk.get().as_bytes()))?;
    Some(Key {
        path: path.to_owned(),
        id: None,
        key,
    })
}

/// Reports every key of an entry that none of its algorithms fits: it would never verify anything, without a word.
fn check_fit(keys: &[Key], algorithms: &Algorithms, problems: &mut Problems) {
    // Without any, that is the mistake, and it is reported already.
    if algorithms.iter().next().is_none() {
        return;
    }
    for key in keys {
        if !algorithms.iter().any(|algorithm| key.key.fits(algorithm)) {
            let message = format!(
                "no listed algorithm fits this {} key, so that no signature by it would ever count; write \
                 `algorithms: [{}]`",
                key.key.key_type(),
                needed(keys, algorithms)
            );
            problems.report(&key.path, message);
        }
    }
}

/// The algorithms by which every one of the keys could sign: those listed that fit one, and one each for the others.
fn needed(keys: &[Key], listed: &Algorithms) -> String {
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

fn check_visible(path: &str, text: &str, problems: &mut Problems) {
    if text.is_empty() || text.len() > MAX_ISSUER_BYTES || text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        let message = format!(
            "`{}` is not usable; write 1 to {MAX_ISSUER_BYTES} bytes without white space",
            text.escape_debug()
        );
        problems.report(path, message);
    }
}

/// Collects mistakes while the rest is still being read.
#[derive(Default)]
struct Problems(Vec<Remark>);

impl Problems {
    fn report(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.0.push(Remark::new(path, message));
    }

    /// Unwraps a result, reporting its error at `path`.
    fn take<T, E: std::fmt::Display>(&mut self, path: impl Into<String>, result: Result<T, E>) -> Option<T> {
        result.map_err(|error| self.report(path, error.to_string())).ok()
    }
}

const PATH: &str = "trust_anchors";

/// What the issuers begin with whose key is in their name.
const DID_KEY: &str = "did:key:";

/// Trust anchors, and also their keys altogether: each is looked at for a root token.
const MAX_TRUST_ANCHORS: usize = 256;

/// Bytes of an issuer.
const MAX_ISSUER_BYTES: usize = 1_024;

/// Keys of one issuer, however many entries they stand in. How many of them one token may have tried is
/// [`KeyType::most_tried`].
pub const MAX_KEYS_PER_ISSUER: usize = 16;
