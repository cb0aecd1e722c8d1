//! Signature algorithms, and the kinds of keys they need.

use std::fmt;

/// A signature algorithm, by its JWS `alg` value.
///
/// By default only [`Algorithm::Ed25519`] is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// `Ed25519` (RFC 9864).
    Ed25519,
    /// `EdDSA` (RFC 8037): the deprecated polymorphic name that many libraries still write. Here it means Ed25519. The
    /// draft forbids it (section 9.12), so it is only accepted if a configuration names it.
    EdDsa,
    /// `ES256` (RFC 7518, section 3.4): ECDSA with P-256 and SHA-256, the algorithm of phones and passkeys.
    Es256,
    /// `ES256K` (RFC 8812, section 3.2): ECDSA with secp256k1 and SHA-256.
    Es256k,
    /// `RS256` (RFC 7518, section 3.3): RSASSA-PKCS1-v1_5 with SHA-256. For access tokens only.
    Rs256,
    /// `PS256` (RFC 7518, section 3.5): RSASSA-PSS with SHA-256. For access tokens only.
    Ps256,
}

impl Algorithm {
    /// The algorithms of delegations and their proofs.
    pub const ALL: [Self; 4] = [Self::Ed25519, Self::EdDsa, Self::Es256, Self::Es256k];

    /// The algorithms of access tokens.
    pub const OF_ACCESS_TOKENS: [Self; 5] = [Self::Ed25519, Self::EdDsa, Self::Es256, Self::Rs256, Self::Ps256];

    /// The algorithms of issuers: those of delegations, and those of access tokens alone.
    pub const OF_ISSUERS: [Self; 6] = [
        Self::Ed25519,
        Self::EdDsa,
        Self::Es256,
        Self::Es256k,
        Self::Rs256,
        Self::Ps256,
    ];

    /// The algorithm of a JWS header. Names are exact; `none` and MAC algorithms are unknown here.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::OF_ISSUERS.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// The JWS `alg` value.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ed25519 => "Ed25519",
            Self::EdDsa => "EdDSA",
            Self::Es256 => "ES256",
            Self::Es256k => "ES256K",
            Self::Rs256 => "RS256",
            Self::Ps256 => "PS256",
        }
    }

    /// The only kind of key that makes its signatures.
    pub fn key_type(self) -> KeyType {
        match self {
            Self::Ed25519 | Self::EdDsa => KeyType::Ed25519,
            Self::Es256 => KeyType::P256,
            Self::Es256k => KeyType::Secp256k1,
            Self::Rs256 | Self::Ps256 => KeyType::Rsa,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A kind of key: a JWK's `kty` and `crv` together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyType {
    /// `OKP`, `Ed25519` (RFC 8037).
    Ed25519,
    /// `EC`, `P-256` (RFC 7518, section 6.2).
    P256,
    /// `EC`, `secp256k1` (RFC 8812, section 3.1).
    Secp256k1,
    /// `RSA` (RFC 7518, section 6.3), for access tokens only.
    Rsa,
}

impl KeyType {
    /// The kinds of keys of delegations and their proofs.
    pub const ALL: [Self; 3] = [Self::Ed25519, Self::P256, Self::Secp256k1];

    /// The JWK's `kty`.
    pub fn kty(self) -> &'static str {
        match self {
            Self::Ed25519 => "OKP",
            Self::P256 | Self::Secp256k1 => "EC",
            Self::Rsa => "RSA",
        }
    }

    /// The JWK's `crv`; empty for RSA.
    pub fn crv(self) -> &'static str {
        match self {
            Self::Ed25519 => "Ed25519",
            Self::P256 => "P-256",
            Self::Secp256k1 => "secp256k1",
            Self::Rsa => "",
        }
    }

    /// The default signature algorithm of this kind of key.
    pub fn algorithm(self) -> Algorithm {
        match self {
            Self::Ed25519 => Algorithm::Ed25519,
            Self::P256 => Algorithm::Es256,
            Self::Secp256k1 => Algorithm::Es256k,
            Self::Rsa => Algorithm::Rs256,
        }
    }

    /// How many keys of this kind are tried for one signature if nothing tells which of an issuer's keys made it: any
    /// caller can send a token that no key has signed. In V8, a check takes about 150 µs with Ed25519, 450 µs with
    /// secp256k1 and 350 µs with P-256 on a slow machine (`make bench BENCH=cost`). This limit bounds the cost of one
    /// token.
    pub const fn most_tried(self) -> usize {
        match self {
            Self::Ed25519 => 2,
            Self::Secp256k1 | Self::P256 | Self::Rsa => 1,
        }
    }

    pub(super) fn from_jwk_names(kty: &str, crv: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|kind| (kind.kty(), kind.crv()) == (kty, crv))
    }
}

impl fmt::Display for KeyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rsa => self.kty(),
            Self::Ed25519 | Self::P256 | Self::Secp256k1 => self.crv(),
        })
    }
}

/// An allowlist of algorithms (draft section 9.12). The default allows Ed25519 only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Algorithms(Vec<Algorithm>);

impl Algorithms {
    /// Allows exactly these.
    pub fn new(allowed: impl IntoIterator<Item = Algorithm>) -> Self {
        Self(allowed.into_iter().collect())
    }

    /// Allows every implemented algorithm.
    pub fn all() -> Self {
        Self::new(Algorithm::ALL)
    }

    /// Whether the list has `algorithm`.
    #[must_use]
    pub fn allow(&self, algorithm: Algorithm) -> bool {
        self.0.contains(&algorithm)
    }

    /// The algorithms, in the order they were listed.
    pub fn iter(&self) -> impl Iterator<Item = Algorithm> {
        self.0.iter().copied()
    }
}

impl Default for Algorithms {
    fn default() -> Self {
        Self(vec![Algorithm::Ed25519])
    }
}
