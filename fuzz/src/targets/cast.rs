//! The keys and the configuration, the same for every input, so that a script can have any key sign.

use std::sync::LazyLock;

use credence_delegation::{
    Algorithm, Algorithms, Chain, Denial, KeyType, Limits, SigningKey, TrustAnchor, TrustAnchors, UnixTime,
    VerificationContext, VerifiedChain, chain_digest,
};

/// The time of all verifications.
pub const NOW: i64 = 1_800_000_000;

/// The issuer whose trust anchors are [`Person`]s 0, 4 and 8, and which asserts subjects.
pub const ISSUER: &str = "https://id.example.com";

/// The principal that issues its own roots: person 5, and 8, whose key it shares with the issuer.
pub const SELF_ISSUER: &str = "urn:example:self";

/// Our own audience.
pub const AUDIENCE: &str = "https://payments.example";

/// A holder of a key, by number; the letters `a` to `i` of a script. All have Ed25519 keys except 4 (P-256) and 5
/// (secp256k1). 6 and 7 have no relation to the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Person(pub usize);

/// The configuration of verifications.
pub struct World {
    /// The anchors.
    pub anchors: TrustAnchors,
    /// The algorithms for derived tokens and proofs.
    pub holder_algorithms: Algorithms,
    /// The limits.
    pub limits: Limits,
    /// The time.
    pub now: UnixTime,
}

impl Person {
    /// The number of persons.
    pub const COUNT: usize = KINDS.len();

    /// By letter; every byte maps to a person.
    pub fn of_letter(letter: u8) -> Self {
        Self(usize::from(letter.wrapping_sub(b'a')) % Self::COUNT)
    }

    /// The default holder of the token at this index of a chain: persons with Ed25519 keys, in turn.
    pub fn holder_at(place: usize) -> Self {
        Self(1 + place % 3)
    }

    /// The person's key.
    pub fn key(self) -> &'static SigningKey {
        static KEYS: LazyLock<Vec<SigningKey>> = LazyLock::new(|| {
            let secrets = (1..).zip(KINDS);
            secrets
                .map(|(secret, kind)| SigningKey::from_secret(kind, &[secret; 32]).expect("a usable secret"))
                .collect()
        });
        &KEYS[self.0 % Self::COUNT]
    }
}

impl World {
    /// The configuration in which the seeds verify.
    pub fn new() -> Self {
        let anchor = |issuer: &str, person: usize, key_id: Option<&str>| TrustAnchor {
            issuer: issuer.to_owned(),
            key: Person(person).key().public(),
            key_id: key_id.map(str::to_owned),
            algorithms: Algorithms::new(Algorithm::ALL),
            asserts_subjects: issuer == ISSUER,
            delegations: true,
            access_tokens: None,
            same_principals: Vec::new(),
            is_fetched: false,
        };
        Self {
            anchors: TrustAnchors::new([
                anchor(ISSUER, 0, Some("one")),
                anchor(ISSUER, 4, Some("two")),
                anchor(ISSUER, 8, Some("three")),
                anchor(SELF_ISSUER, 5, None),
                anchor(SELF_ISSUER, 8, None),
            ]),
            holder_algorithms: Algorithms::new(Algorithm::ALL),
            limits: Limits::default(),
            now: UnixTime(NOW),
        }
    }

    /// The context for verifying chains.
    pub fn context(&self) -> VerificationContext<'_> {
        VerificationContext {
            anchors: &self.anchors,
            holder_algorithms: &self.holder_algorithms,
            limits: &self.limits,
            now: self.now,
            hot_keys: None,
        }
    }

    /// Parses and verifies a chain.
    pub fn verify<'a>(&self, tokens: impl IntoIterator<Item = &'a str>) -> Result<VerifiedChain, Denial> {
        Chain::parse(tokens, &self.limits)?.verify(&self.context())
    }

    /// The same for a chain that may start with the tokens of `known`.
    pub fn verify_onto<'a>(
        &self,
        tokens: impl IntoIterator<Item = &'a str>,
        known: &VerifiedChain,
    ) -> Result<VerifiedChain, Denial> {
        let tokens: Vec<&str> = tokens.into_iter().collect();
        let beginning = tokens.get(..known.tokens().count());
        if beginning.is_none_or(|beginning| chain_digest(beginning.join("~")) != known.digest()) {
            return self.verify(tokens);
        }
        Chain::parse_joined_after(known, &tokens.join("~"), &self.limits)?.verify(&self.context())
    }
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

/// The kinds of all keys.
const KINDS: [KeyType; 9] = [
    KeyType::Ed25519,
    KeyType::Ed25519,
    KeyType::Ed25519,
    KeyType::Ed25519,
    KeyType::P256,
    KeyType::Secp256k1,
    KeyType::Ed25519,
    KeyType::Ed25519,
    KeyType::Ed25519,
];
