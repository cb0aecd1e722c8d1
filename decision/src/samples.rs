//! Keys, chains and stores that tests share.

use std::collections::HashMap;

use credence_delegation::json::Json;
use credence_delegation::mint::{self, Grant, Invocation, RootGrant};
use credence_delegation::{
    Algorithms, Arguments, Chain, KeyType, Limits, SigningKey, TrustAnchor, TrustAnchors, UnixTime, Value,
    VerificationContext, VerifiedChain,
};

use crate::shared_store::{SharedStore, StoreFailure, Version};

pub(crate) const NOW: i64 = 1_800_000_000;
pub(crate) const ISSUER: &str = "https://id.example.com";
pub(crate) const AUDIENCE: &str = "https://payments.example";

/// Key 1 is the trust anchor's, key 2 that of the agent that holds roots, key 3 that of the agent to which it
/// delegates.
pub(crate) fn key(number: u8) -> SigningKey {
    SigningKey::from_seed(&[number; 32])
}

/// A key of any kind. For Ed25519, the same as [`key`].
pub(crate) fn key_of(kind: KeyType, number: u8) -> SigningKey {
    SigningKey::from_secret(kind, &[number; 32]).unwrap()
}

pub(crate) fn grant(id: &str, holder: u8, tools: &str) -> Grant {
    Grant {
        id: id.into(),
        issued_at: UnixTime(NOW - 60),
        expires_at: UnixTime(NOW + 3600),
        holder: key(holder).public(),
        holder_certificate: None,
        holder_spiffe_id: None,
        audience: vec![AUDIENCE.into()],
        max_depth: 3,
        tools: value(tools),
    }
}

pub(crate) fn root(grant: Grant) -> String {
    root_by(&key(1), ISSUER, grant)
}

pub(crate) fn root_by(by: &SigningKey, issuer: &str, grant: Grant) -> String {
    let root = RootGrant {
        grant,
        issuer: issuer.into(),
        subject: Some("ada".into()),
        epoch: Some(0),
        agent_name: None,
    };
    mint::root(&root, by, &Limits::default()).unwrap()
}

/// A chain of one root token, with this subject.
pub(crate) fn chain_for(subject: &str) -> VerifiedChain {
    let root = RootGrant {
        grant: grant("root", 2, r#"{"pay":{}}"#),
        issuer: ISSUER.into(),
        subject: Some(subject.into()),
        epoch: Some(0),
        agent_name: None,
    };
    verified(&mint::root(&root, &key(1), &Limits::default()).unwrap())
}

pub(crate) fn derived(parent: &str, by: u8, grant: &Grant) -> String {
    mint::derive(parent, grant, &key(by), &Limits::default()).unwrap()
}

pub(crate) fn proof(leaf: &str, by: u8, id: &str, tool: &str, arguments: &str, iat: i64) -> String {
    proof_by(&key(by), leaf, id, tool, arguments, iat)
}

pub(crate) fn proof_by(by: &SigningKey, leaf: &str, id: &str, tool: &str, arguments: &str, iat: i64) -> String {
    prove(by, leaf, id, tool, arguments, iat, None)
}

pub(crate) fn proof_with_nonce(
    leaf: &str,
    by: u8,
    id: &str,
    tool: &str,
    arguments: &str,
    iat: i64,
    nonce: Option<&str>,
) -> String {
    prove(&key(by), leaf, id, tool, arguments, iat, nonce)
}

fn prove(by: &SigningKey, leaf: &str, id: &str, tool: &str, arguments: &str, iat: i64, nonce: Option<&str>) -> String {
    let json = Json::parse(arguments.as_bytes()).unwrap();
    let invocation = Invocation {
        id: id.into(),
        issued_at: UnixTime(iat),
        tool: tool.into(),
        arguments: Arguments::from_json(json.as_object().unwrap()).unwrap(),
        audience: Some(AUDIENCE.into()),
        nonce: nonce.map(str::to_owned),
    };
    mint::prove(leaf, &invocation, by, &Limits::default()).unwrap()
}

pub(crate) fn value(json: &str) -> Value {
    Value::from_json(&Json::parse(json.as_bytes()).unwrap()).unwrap()
}

pub(crate) fn verified_chain() -> VerifiedChain {
    verified(&root(grant("root", 2, r#"{"pay":{}}"#)))
}

/// A chain that uses much memory: its constraint excludes this many numbers.
pub(crate) fn chain_excluding(numbers: usize) -> VerifiedChain {
    let numbers: Vec<_> = (0..numbers).map(|number| number.to_string()).collect();
    let tools = format!(
        r#"{{"pay":{{"amount":{{"constraint_type":"not_one_of","excluded":[{}]}}}}}}"#,
        numbers.join(",")
    );
    verified(&root(grant("root", 2, &tools)))
}

pub(crate) fn verified(joined: &str) -> VerifiedChain {
    let anchors = TrustAnchors::new([TrustAnchor {
        issuer: ISSUER.into(),
        key: key(1).public(),
        key_id: None,
        algorithms: Algorithms::default(),
        asserts_subjects: true,
        delegations: true,
        access_tokens: None,
        same_principals: Vec::new(),
        is_fetched: false,
    }]);
    let limits = Limits::default();
    let context = VerificationContext {
        anchors: &anchors,
        holder_algorithms: &Algorithms::default(),
        limits: &limits,
        now: UnixTime(NOW),
        hot_keys: None,
    };
    Chain::parse_joined(joined, &limits).unwrap().verify(&context).unwrap()
}

/// The host's shared data, with injected faults.
#[derive(Default)]
pub(crate) struct Store {
    values: HashMap<String, (Vec<u8>, u32)>,
    pub(crate) lose_next_writes: u32,
    pub(crate) fail: bool,
    pub(crate) reads: usize,
}

impl Store {
    /// How many keys were ever set; they cannot be freed.
    pub(crate) fn keys(&self) -> usize {
        self.values.len()
    }

    /// Changes every value, as another plugin with the same `vm_id` could.
    pub(crate) fn overwrite(&mut self, change: impl Fn(&str, &mut Vec<u8>)) {
        for (key, (value, version)) in &mut self.values {
            change(key, value);
            *version += 1;
        }
    }
}

impl SharedStore for Store {
    fn read(&mut self, key: &str) -> Result<Option<(Vec<u8>, Version)>, StoreFailure> {
        self.reads += 1;
        if self.fail {
            return Err(StoreFailure);
        }
        Ok(self
            .values
            .get(key)
            .map(|(value, version)| (value.clone(), Version(*version))))
    }

    fn write(&mut self, key: &str, value: &[u8], expected: Option<Version>) -> Result<bool, StoreFailure> {
        if self.fail {
            return Err(StoreFailure);
        }
        if self.lose_next_writes > 0 {
            self.lose_next_writes -= 1;
            return Ok(false);
        }
        let present = self.values.get(key).map(|(_, version)| *version);
        if present != expected.map(|version| version.0) {
            return Ok(false);
        }
        self.values
            .insert(key.to_owned(), (value.to_vec(), present.unwrap_or(0) + 1));
        Ok(true)
    }
}
