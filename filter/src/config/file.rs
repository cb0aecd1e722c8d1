//! The configuration as it is written: names and JSON types, nothing else. `super::compile` gives it meaning.
//!
//! Unknown and repeated fields are refused everywhere. So is `null`: a template that was meant to fill in
//! `hosts:` and did not must not mean "every host".

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::arguments::ArgumentKind;

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) audience: Vec<String>,
    pub(super) trust_anchors: Vec<TrustAnchor>,
    #[serde(default, deserialize_with = "present")]
    pub(super) holder_algorithms: Option<Vec<String>>,
    pub(super) control_plane: ControlPlane,
    #[serde(default)]
    pub(super) default: Unmatched,
    pub(super) rules: Vec<Rule>,
    #[serde(default)]
    pub(super) headers: Headers,
    #[serde(default)]
    pub(super) limits: Limits,
    #[serde(default, deserialize_with = "present")]
    pub(super) pop_window: Option<String>,
    #[serde(default, deserialize_with = "present")]
    pub(super) pop_clock_skew: Option<String>,
    #[serde(default, deserialize_with = "present")]
    pub(super) max_iat_skew: Option<String>,
    #[serde(default, deserialize_with = "present")]
    pub(super) max_token_lifetime: Option<String>,
    #[serde(default)]
    pub(super) audit: Audit,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TrustAnchor {
    pub(super) issuer: String,
    /// One public key, read by the protocol's own key parser.
    #[serde(default, deserialize_with = "present")]
    pub(super) jwk: Option<Box<RawValue>>,
    /// A JWK set, read by the protocol's own parser too.
    #[serde(default, deserialize_with = "present")]
    pub(super) jwks: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "present")]
    pub(super) algorithms: Option<Vec<String>>,
    #[serde(default)]
    pub(super) asserts_subjects: bool,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ControlPlane {
    pub(super) cluster: String,
    pub(super) log_id: String,
    #[serde(default, deserialize_with = "present")]
    pub(super) max_staleness: Option<String>,
    #[serde(default, deserialize_with = "present")]
    pub(super) ping_interval: Option<String>,
}

/// What happens to a request that no rule matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unmatched {
    /// It is denied.
    #[default]
    Deny,
    /// It goes on, as if the filter were not there; forged `x-delegation-*` headers are removed all the same.
    Allow,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    pub(super) name: String,
    #[serde(rename = "match")]
    pub(super) matches: Match,
    #[serde(default, deserialize_with = "present")]
    pub(super) tool: Option<String>,
    #[serde(default, deserialize_with = "present")]
    pub(super) args: Option<Members<Argument>>,
    #[serde(default, deserialize_with = "present")]
    pub(super) ignore_query: Option<Vec<String>>,
    #[serde(default, deserialize_with = "present")]
    pub(super) ignore_body: Option<bool>,
    #[serde(default, deserialize_with = "present")]
    pub(super) audience: Option<Vec<String>>,
    #[serde(default, deserialize_with = "present")]
    pub(super) proof: Option<ProofKind>,
    #[serde(default, deserialize_with = "present")]
    pub(super) forward: Option<bool>,
    #[serde(default)]
    pub(super) public: bool,
    #[serde(default)]
    pub(super) upgrade: bool,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Match {
    #[serde(default, deserialize_with = "present")]
    pub(super) hosts: Option<Vec<String>>,
    #[serde(default, deserialize_with = "present")]
    pub(super) methods: Option<Vec<String>>,
    pub(super) path: String,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Argument {
    #[serde(default, deserialize_with = "present")]
    pub(super) path: Option<String>,
    #[serde(default, deserialize_with = "present")]
    pub(super) query: Option<String>,
    #[serde(default, deserialize_with = "present")]
    pub(super) header: Option<String>,
    #[serde(default, rename = "type")]
    pub(super) kind: ArgumentKind,
    #[serde(default)]
    pub(super) optional: bool,
}

/// How an agent proves that it is the holder of the delegation it presents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProofKind {
    /// A signed proof with each request.
    #[default]
    Pop,
    /// The client certificate that the proxy verified.
    Mtls,
    /// Nothing: whoever has the delegation may use it. For hops that are authenticated otherwise.
    None,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Headers {
    #[serde(default, deserialize_with = "present")]
    pub(super) delegation: Option<String>,
    #[serde(default, deserialize_with = "present")]
    pub(super) proof: Option<String>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Limits {
    #[serde(default, deserialize_with = "present")]
    pub(super) delegation_bytes: Option<Count>,
    #[serde(default, deserialize_with = "present")]
    pub(super) proof_bytes: Option<Count>,
    #[serde(default, deserialize_with = "present")]
    pub(super) delegation_depth: Option<Count>,
    #[serde(default, deserialize_with = "present")]
    pub(super) cache_entries: Option<Count>,
    #[serde(default, deserialize_with = "present")]
    pub(super) cache_bytes: Option<Count>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Audit {
    #[serde(default, deserialize_with = "present")]
    pub(super) ring_entries: Option<Count>,
    #[serde(default, deserialize_with = "present")]
    pub(super) ring_bytes: Option<Count>,
    #[serde(default)]
    pub(super) on_overflow: Overflow,
    #[serde(default)]
    pub(super) arguments: RecordedArguments,
}

/// What happens when decisions are made faster than they can be recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overflow {
    /// Decisions go on; those not recorded are counted, and the gap is itself recorded.
    #[default]
    Shed,
    /// Requests are denied until there is room.
    Deny,
}

/// What is recorded of a request's arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecordedArguments {
    /// A salted SHA-256 of their canonical form.
    #[default]
    Hash,
    /// Nothing.
    None,
}

/// A whole number, not negative. The proxy keeps its configuration's numbers as doubles, so `5.0` is 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Count(pub(super) u64);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CountVisitor;
        impl Visitor<'_> for CountVisitor {
            type Value = Count;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a whole number, not negative")
            }
            fn visit_u64<E: Error>(self, value: u64) -> Result<Count, E> {
                Ok(Count(value))
            }
            fn visit_f64<E: Error>(self, value: f64) -> Result<Count, E> {
                // Up to 2^53 a double without fraction is exactly the number that was written.
                if value.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&value) {
                    Ok(Count(value as u64))
                } else {
                    Err(E::invalid_value(serde::de::Unexpected::Float(value), &self))
                }
            }
        }
        deserializer.deserialize_any(CountVisitor)
    }
}

/// The members of an object in the order they were written; a repeated name is refused.
#[derive(Debug)]
pub(super) struct Members<T>(pub(super) Vec<(String, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Members<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for MembersVisitor<T> {
            type Value = Members<T>;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<T>, A::Error> {
                let mut members: Vec<(String, T)> = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if members.iter().any(|(taken, _)| *taken == name) {
                        return Err(A::Error::custom(format!("duplicate field `{name}`")));
                    }
                    members.push((name, map.next_value()?));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(MembersVisitor(PhantomData))
    }
}

/// Reads a field that may be left out but, if it is there, has a value: serde's `Option` alone would take `null`.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}
