//! Makes the delegations of a pool, each from the seed and its number only.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use credence_delegation::mint::{self, Grant, RootGrant};
use credence_delegation::{KeyType, Limits, SigningKey, UnixTime, Value};
use serde::Serialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::failure::Failure;
use crate::kind::{Kind, Rule};

/// The common part of all delegations of a pool.
#[derive(Debug)]
pub(crate) struct Mint {
    pub(crate) seed: String,
    pub(crate) issuer_key: SigningKey,
    pub(crate) issuer: String,
    pub(crate) audience: String,
    pub(crate) tool: String,
    pub(crate) argument: String,
    /// The type of the holders' keys for proofs.
    pub(crate) proof_key: KeyType,
    pub(crate) max_tokens: u8,
    pub(crate) issued_at: UnixTime,
    pub(crate) expires_at: UnixTime,
}

/// One delegation, as a shard contains it.
#[derive(Debug, Serialize)]
pub(crate) struct Delegation {
    kind: Kind,
    /// The tokens joined by `~`; absent if no delegation is to be sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    chain: Option<String>,
    /// The value of the argument in the request.
    item: String,
    /// The principal's name at the issuer.
    subject: String,
    /// The tokens' ids, root first.
    ids: Vec<String>,
    /// The query of `GET /v1/delegations/status` about it.
    facts: String,
    /// The parts of a proof.
    #[serde(skip_serializing_if = "Option::is_none")]
    proof: Option<ProofParts>,
}

/// The claims of a proof about the token, and the key that signs it.
#[derive(Debug, Serialize)]
struct ProofParts {
    /// `aat_id`
    id: String,
    /// `aat_hash`
    hash: String,
    /// The private JWK to sign with.
    key: Box<RawValue>,
}

/// A chain and its properties.
struct Made {
    tokens: Vec<String>,
    ids: Vec<String>,
    /// The thumbprints of the root's signing key and of every holder's.
    thumbprints: Vec<String>,
    holder: SigningKey,
}

impl Made {
    fn push(&mut self, grant: &Grant, token: String) {
        self.ids.push(grant.id.clone());
        self.thumbprints.push(grant.holder.thumbprint().to_string());
        self.tokens.push(token);
    }

    fn leaf(&self) -> &str {
        self.tokens.last().map(String::as_str).unwrap_or_default()
    }
}

impl Mint {
    /// The delegation of this number.
    pub(crate) fn delegation(&self, kind: Kind, number: u64) -> Result<Delegation, Failure> {
        let subject = format!("principal-{number}");
        let made = self.chain(kind, number, &subject)?;
        let item = match kind {
            Kind::Argument => format!("{}-else", item(number)),
            _ => item(number),
        };
        let proof = match kind.expectation().rule {
            Rule::Bearer => None,
            Rule::Proof => Some(ProofParts {
                id: made.ids.last().cloned().unwrap_or_default(),
                hash: token_hash(made.leaf()),
                key: self.proof_jwk(kind, number, &made.holder)?,
            }),
        };
        let chain = match kind {
            Kind::Missing => None,
            Kind::Malformed => Some(format!("malformed-{number}")),
            Kind::Signature => Some(with_another_signature(&made.tokens.join("~"))),
            _ => Some(made.tokens.join("~")),
        };
        Ok(Delegation {
            kind,
            chain,
            item,
            facts: self.facts(&subject, &made),
            subject,
            ids: made.ids,
            proof,
        })
    }

    fn chain(&self, kind: Kind, number: u64, subject: &str) -> Result<Made, Failure> {
        let stranger = self.key(KeyType::Ed25519, "stranger", number)?;
        let (issuer_key, issuer) = match kind {
            Kind::Issuer => (&stranger, "https://stranger.example"),
            _ => (&self.issuer_key, self.issuer.as_str()),
        };
        let root = |grant: Grant| {
            let root = RootGrant {
                grant,
                issuer: issuer.to_owned(),
                subject: Some(subject.to_owned()),
                epoch: Some(0),
                agent_name: None,
            };
            mint::root(&root, issuer_key, &Limits::default())
        };
        let last = self.tokens(kind, number) - 1;
        let mut made = Made {
            tokens: Vec::new(),
            ids: Vec::new(),
            thumbprints: vec![issuer_key.public().thumbprint().to_string()],
            holder: self.holder(kind, number, 0, last)?,
        };
        let first = self.grant(kind, number, 0, last, &made.holder);
        made.push(&first, root(first.clone())?);
        for depth in 1..=last {
            let parent = match kind {
                // The same except for its id.
                Kind::Linkage if depth == last => root(Grant {
                    id: self.id("other token", number, 0),
                    ..first.clone()
                })?,
                _ => made.leaf().to_owned(),
            };
            let holder = self.holder(kind, number, depth, last)?;
            let grant = self.grant(kind, number, depth, last, &holder);
            let token = mint::derive(&parent, &grant, &made.holder, &Limits::default())?;
            made.push(&grant, token);
            made.holder = holder;
        }
        Ok(made)
    }

    /// The number of the chain's tokens.
    fn tokens(&self, kind: Kind, number: u64) -> u8 {
        match kind {
            Kind::Linkage => 2,
            _ => 1 + self.digest("tokens", number, 0)[0] % self.max_tokens,
        }
    }

    fn grant(&self, kind: Kind, number: u64, depth: u8, last: u8, holder: &SigningKey) -> Grant {
        let tool = match kind {
            Kind::Tool => format!("{}.other", self.tool),
            _ => self.tool.clone(),
        };
        let constraint = if depth == last {
            Value::object([
                ("constraint_type".to_owned(), "exact".into()),
                ("value".to_owned(), item(number).as_str().into()),
            ])
        } else {
            Value::object([("constraint_type".to_owned(), "wildcard".into())])
        };
        let arguments = Value::object([(self.argument.clone(), constraint)]);
        let (issued_at, expires_at) = match kind {
            Kind::Expired => (UnixTime(self.issued_at.0 - 7_200), UnixTime(self.issued_at.0 - 3_600)),
            _ => (self.issued_at, self.expires_at),
        };
        let audience = match kind {
            Kind::Audience => "https://elsewhere.example",
            _ => self.audience.as_str(),
        };
        Grant {
            id: self.id("token", number, depth),
            issued_at,
            expires_at,
            holder: holder.public(),
            holder_certificate: None,
            holder_spiffe_id: None,
            audience: vec![audience.to_owned()],
            max_depth: u32::from(last),
            tools: Value::object([(tool, arguments)]),
        }
    }

    /// The holder of the token of this depth.
    fn holder(&self, kind: Kind, number: u64, depth: u8, last: u8) -> Result<SigningKey, Failure> {
        let key_type = match kind.expectation().rule {
            Rule::Proof if depth == last => self.proof_key,
            _ => KeyType::Ed25519,
        };
        self.key(key_type, &format!("holder {depth}"), number)
    }

    fn proof_jwk(&self, kind: Kind, number: u64, holder: &SigningKey) -> Result<Box<RawValue>, Failure> {
        let jwk = match kind {
            Kind::ProofSignature => self.key(self.proof_key, "stranger", number)?.to_private_jwk(),
            _ => holder.to_private_jwk(),
        };
        Ok(RawValue::from_string(jwk.to_string())?)
    }

    fn facts(&self, subject: &str, made: &Made) -> String {
        let issuer = percent_encoded(&self.issuer);
        let mut facts = format!(
            "issuer={issuer}&subject={subject}&epoch=0&issued_at={}&asserts_subjects=true",
            self.issued_at.0
        );
        for thumbprint in &made.thumbprints {
            facts.push_str("&key=");
            facts.push_str(thumbprint);
        }
        for id in &made.ids {
            facts.push_str("&id=");
            facts.push_str(id);
        }
        facts
    }

    fn key(&self, kind: KeyType, purpose: &str, number: u64) -> Result<SigningKey, Failure> {
        // A digest is a valid key of every curve here, except with a probability of 2^-32 or less. Then the next one is
        // used.
        (0..=u8::MAX)
            .find_map(|attempt| SigningKey::from_secret(kind, &self.digest(purpose, number, attempt)).ok())
            .ok_or_else(|| "the seed makes no key; give another --seed".into())
    }

    fn id(&self, purpose: &str, number: u64, depth: u8) -> String {
        let digest = self.digest(&format!("{purpose} id"), number, depth);
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        // UUIDv8, deterministic (RFC 9562).
        uuid::Builder::from_custom_bytes(bytes).into_uuid().to_string()
    }

    /// 32 bytes that cannot be told from random ones without the seed.
    fn digest(&self, purpose: &str, number: u64, part: u8) -> [u8; 32] {
        Sha256::digest(format!("credence pool\0{}\0{purpose}\0{number}\0{part}", self.seed)).into()
    }
}

fn item(number: u64) -> String {
    format!("item-{number}")
}

/// The name of a token in a proof: the digest of its signing input.
fn token_hash(token: &str) -> String {
    let signed = token.rsplit_once('.').map_or(token, |(signed, _)| signed);
    URL_SAFE_NO_PAD.encode(Sha256::digest(signed))
}

/// The chain with the first digit of its last signature changed.
fn with_another_signature(chain: &str) -> String {
    let (signed, signature) = chain.rsplit_once('.').unwrap_or((chain, "A"));
    let other = if signature.starts_with('A') { 'B' } else { 'A' };
    format!("{signed}.{other}{}", signature.get(1..).unwrap_or_default())
}

fn percent_encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use credence_delegation::{
        Algorithms, Arguments, Cause, Chain, TrustAnchor, TrustAnchors, VerificationContext, VerifiedChain,
    };

    use super::*;

    const NOW: UnixTime = UnixTime(1_800_000_000);

    fn made_with(proof_key: KeyType) -> Mint {
        Mint {
            seed: "of the tests".to_owned(),
            issuer_key: SigningKey::from_seed(&[7; 32]),
            issuer: "https://id.example.com".to_owned(),
            audience: "https://payments.example".to_owned(),
            tool: "catalog.read".to_owned(),
            argument: "item".to_owned(),
            proof_key,
            max_tokens: 4,
            issued_at: NOW,
            expires_at: NOW.plus(3_600),
        }
    }

    fn verify(mint: &Mint, chain: &str) -> Result<VerifiedChain, Cause> {
        let anchors = TrustAnchors::new([TrustAnchor {
            issuer: mint.issuer.clone(),
            key: mint.issuer_key.public(),
            key_id: None,
            algorithms: Algorithms::default(),
            asserts_subjects: true,
            delegations: true,
            access_tokens: None,
            same_principals: Vec::new(),
            is_fetched: false,
        }]);
        let limits = &Limits::default();
        let context = VerificationContext {
            anchors: &anchors,
            holder_algorithms: &Algorithms::all(),
            limits,
            now: NOW,
            hot_keys: None,
        };
        Chain::parse_joined(chain, limits)
            .and_then(|chain| chain.verify(&context))
            .map_err(|denial| denial.cause)
    }

    fn permits(chain: &VerifiedChain, mint: &Mint, item: &str) -> bool {
        let mut arguments = Arguments::new();
        arguments.insert(mint.argument.clone(), item.into());
        chain.permits(&mint.tool, &arguments).is_ok()
    }

    #[test]
    fn valid_delegations_verify_and_permit_their_requests() {
        let mint = made_with(KeyType::Ed25519);
        let mut depths = [false; 4];
        for number in 0..40 {
            let delegation = mint.delegation(Kind::Delegated, number).unwrap();
            let chain = verify(&mint, delegation.chain.as_deref().unwrap()).unwrap();
            assert!(permits(&chain, &mint, &delegation.item), "{delegation:?}");
            assert_eq!(chain.tokens().count(), delegation.ids.len());
            depths[chain.tokens().count() - 1] = true;
        }
        assert_eq!(depths, [true; 4]);
    }

    #[test]
    fn each_invalid_kind_is_denied_for_its_reason() {
        let mint = made_with(KeyType::Ed25519);
        let cause = |kind| verify(&mint, mint.delegation(kind, 3).unwrap().chain.as_deref().unwrap()).unwrap_err();
        assert!(matches!(cause(Kind::Malformed), Cause::Malformed(_)));
        assert_eq!(cause(Kind::Signature), Cause::SignatureInvalid);
        assert!(matches!(cause(Kind::Linkage), Cause::Linkage(_)));
        for kind in [Kind::Tool, Kind::Argument] {
            let delegation = mint.delegation(kind, 3).unwrap();
            let chain = verify(&mint, delegation.chain.as_deref().unwrap()).unwrap();
            assert!(!permits(&chain, &mint, &delegation.item), "{delegation:?}");
        }
        for kind in [Kind::Issuer, Kind::Expired] {
            cause(kind);
        }
        assert!(mint.delegation(Kind::Missing, 3).unwrap().chain.is_none());
    }

    #[test]
    fn the_key_of_a_proof_is_the_last_holders() {
        for key_type in [KeyType::Ed25519, KeyType::P256] {
            let mint = made_with(key_type);
            for (kind, is_holder) in [(Kind::Proven, true), (Kind::ProofSignature, false)] {
                let delegation = mint.delegation(kind, 5).unwrap();
                let chain = verify(&mint, delegation.chain.as_deref().unwrap()).unwrap();
                let parts = delegation.proof.unwrap();
                let key = SigningKey::from_jwk_text(parts.key.get().as_bytes()).unwrap();
                assert_eq!(Some(&key.public()) == chain.leaf().holder().key(), is_holder);
                assert_eq!(parts.id, chain.leaf().id());
            }
        }
    }

    #[test]
    fn the_same_seed_makes_the_same() {
        let text = |mint: &Mint| serde_json::to_string(&mint.delegation(Kind::Proven, 9).unwrap()).unwrap();
        let (one, mut other) = (made_with(KeyType::P256), made_with(KeyType::P256));
        assert_eq!(text(&one), text(&other));
        other.seed.push('!');
        assert_ne!(text(&one), text(&other));
    }
}
