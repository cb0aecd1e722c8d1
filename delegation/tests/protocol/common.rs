//! Tokens made by hand, so that a test can make any one part wrong.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use credence_delegation::{
    Algorithms, Arguments, Chain, Denial, Limits, NoncePolicy, Proof, ProofContext, SigningKey, TrustAnchor,
    TrustAnchors, UnixTime, VerificationContext, VerifiedChain, chain_digest,
};
use sha2::{Digest, Sha256};

pub(crate) const NOW: i64 = 1_800_000_000;
pub(crate) const ISSUER: &str = "https://id.example.com";
pub(crate) const AUDIENCE: &str = "https://payments.example";

/// The keys of these tests: the trust anchor's, and those of the chain's holders.
pub(crate) fn anchor() -> SigningKey {
    SigningKey::from_seed(&[1; 32])
}
pub(crate) fn alice() -> SigningKey {
    SigningKey::from_seed(&[2; 32])
}
pub(crate) fn bob() -> SigningKey {
    SigningKey::from_seed(&[3; 32])
}
pub(crate) fn mallory() -> SigningKey {
    SigningKey::from_seed(&[9; 32])
}

/// Claims, or any JSON object, by member name and JSON text.
#[derive(Clone)]
pub(crate) struct Claims(BTreeMap<String, String>);

impl Claims {
    pub(crate) fn new(members: &[(&str, &str)]) -> Self {
        Self(
            members
                .iter()
                .map(|(name, json)| ((*name).to_owned(), (*json).to_owned()))
                .collect(),
        )
    }

    pub(crate) fn with(mut self, name: &str, json: impl Into<String>) -> Self {
        self.0.insert(name.to_owned(), json.into());
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.0.remove(name);
        self
    }

    pub(crate) fn tools(self, tools: &str) -> Self {
        self.with("authorization_details", details(tools))
    }

    pub(crate) fn json(&self) -> String {
        let members: Vec<String> = self.0.iter().map(|(name, json)| format!("\"{name}\":{json}")).collect();
        format!("{{{}}}", members.join(","))
    }

    pub(crate) fn signed(&self, key: &SigningKey) -> String {
        sign(key, r#"{"alg":"Ed25519","typ":"aat+jwt"}"#, &self.json())
    }
}

pub(crate) const TOOLS: &str = r#"{"pay":{"account":{"constraint_type":"exact","value":"a1"},"amount":{"constraint_type":"range","max":100}},"read":{}}"#;

/// A valid root for alice.
pub(crate) fn root() -> Claims {
    Claims::new(&[
        ("jti", "\"root\""),
        ("iss", &format!("\"{ISSUER}\"")),
        ("iat", &(NOW - 60).to_string()),
        ("exp", &(NOW + 3600).to_string()),
        ("cnf", &cnf(&alice())),
        ("del_depth", "0"),
        ("del_max_depth", "3"),
    ])
    .tools(TOOLS)
}

/// A valid token that alice derives from `parent` for bob.
pub(crate) fn child(parent: &str) -> Claims {
    Claims::new(&[
        ("jti", "\"child\""),
        ("iss", &format!("\"{}\"", alice().public().thumbprint().uri())),
        ("iat", &(NOW - 30).to_string()),
        ("exp", &(NOW + 1800).to_string()),
        ("cnf", &cnf(&bob())),
        ("del_depth", "1"),
        ("del_max_depth", "2"),
        ("par_hash", &format!("\"{}\"", hash(parent))),
    ])
    .tools(
        r#"{"pay":{"account":{"constraint_type":"exact","value":"a1"},"amount":{"constraint_type":"range","max":50}}}"#,
    )
}

/// A valid proof for `leaf`.
pub(crate) fn proof(leaf: &str, leaf_id: &str, tool: &str, arguments: &str) -> Claims {
    Claims::new(&[
        ("jti", "\"proof\""),
        ("iat", &NOW.to_string()),
        ("aat_id", &format!("\"{leaf_id}\"")),
        ("aat_hash", &format!("\"{}\"", hash(leaf))),
        ("aat_tool", &format!("\"{tool}\"")),
        ("aat_aud", &format!("\"{AUDIENCE}\"")),
        ("hta", arguments),
    ])
}

pub(crate) fn cnf(holder: &SigningKey) -> String {
    format!(r#"{{"jwk":{}}}"#, holder.public().to_jwk())
}

pub(crate) fn details(tools: &str) -> String {
    format!(r#"[{{"type":"attenuating_agent_token","tools":{tools}}}]"#)
}

pub(crate) fn sign(key: &SigningKey, header: &str, payload: &str) -> String {
    let input = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(payload));
    let signature = URL_SAFE_NO_PAD.encode(key.sign(input.as_bytes()));
    format!("{input}.{signature}")
}

pub(crate) fn hash(token: &str) -> String {
    let (input, _) = token.rsplit_once('.').unwrap();
    URL_SAFE_NO_PAD.encode(Sha256::digest(input))
}

pub(crate) fn anchors() -> TrustAnchors {
    TrustAnchors::new([TrustAnchor {
        issuer: ISSUER.to_owned(),
        key: anchor().public(),
        key_id: None,
        algorithms: Algorithms::default(),
        asserts_subjects: true,
        delegations: true,
        access_tokens: None,
        same_principals: Vec::new(),
        is_fetched: false,
    }])
}

pub(crate) fn verify(chain: &[&str]) -> Result<VerifiedChain, Denial> {
    verify_at(chain, UnixTime(NOW))
}

pub(crate) fn verify_at(chain: &[&str], now: UnixTime) -> Result<VerifiedChain, Denial> {
    let limits = Limits::default();
    Chain::parse(chain.iter().copied(), &limits)?.verify(&VerificationContext {
        anchors: &anchors(),
        holder_algorithms: &Algorithms::default(),
        limits: &limits,
        now,
        hot_keys: None,
    })
}

/// The step at which a chain is denied.
#[track_caller]
pub(crate) fn denied_at(chain: &[&str]) -> &'static str {
    verify(chain).expect_err("denied").step.name()
}

pub(crate) fn audience() -> Vec<String> {
    vec![AUDIENCE.to_owned()]
}

/// Verifies a proof under a chain, and that it is for this invocation.
pub(crate) fn prove(chain: &VerifiedChain, proof: &str, tool: &str, arguments: &Arguments) -> Result<(), Denial> {
    let limits = Limits::default();
    Proof::parse(proof, &limits)?
        .verify(
            chain,
            &ProofContext {
                holder_algorithms: &Algorithms::default(),
                audience: &audience(),
                require_audience: true,
                nonce: NoncePolicy::NotRequired,
                limits: &limits,
                now: UnixTime(NOW),
                hot_keys: None,
            },
        )?
        .covers(chain, tool, arguments)
}

pub(crate) fn arguments(json: &str) -> Arguments {
    let json = credence_delegation::json::Json::parse(json.as_bytes()).unwrap();
    Arguments::from_json(json.as_object().unwrap()).unwrap()
}

/// Whether a chain starts with all tokens of a verified one, signatures included.
pub(crate) fn begins_with(chain: &[&str], known: &VerifiedChain) -> bool {
    let beginning = chain.get(..known.tokens().count());
    beginning.is_some_and(|tokens| chain_digest(tokens.join("~")) == known.digest())
}
