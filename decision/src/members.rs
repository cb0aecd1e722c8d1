//! Objects whose members are read one by one.

use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// The members of an object in the order they were written; a repeated name is refused.
#[derive(Debug)]
pub(crate) struct Members<T>(pub(crate) Vec<(String, T)>);

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
                let mut taken = BTreeSet::new();
                while let Some(name) = map.next_key::<String>()? {
                    if !taken.insert(name.clone()) {
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

/// What is written in place of a member.
#[derive(Debug)]
pub(crate) enum Written {
    /// The member as it is.
    Same,
    /// This value.
    As(String),
    /// Nothing.
    Gone,
}

/// The text of an object, with what `change` says in place of each member, by name and text. None if it is none, or if
/// `change` fails.
pub(crate) fn rewritten(text: &str, change: impl Fn(&str, &str) -> Option<Written>) -> Option<String> {
    let Members(members) = serde_json::from_str::<Members<&RawValue>>(text).ok()?;
    let mut written = Vec::with_capacity(members.len());
    for (name, value) in &members {
        let changed = change(name, value.get())?;
        let value = match &changed {
            Written::Same => value.get(),
            Written::As(value) => value,
            Written::Gone => continue,
        };
        written.push([&serde_json::to_string(name).ok()?, ":", value].concat());
    }
    Some(["{", &written.join(","), "}"].concat())
}
