//! A bounded scan of a payload with an unverified signature.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::json::JsonError;
use crate::time::UnixTime;

/// The result of the scan. It only denies and selects the anchors to try; no decision uses it.
#[derive(Debug, Default)]
pub(crate) struct UnverifiedClaims {
    pub(crate) id: Option<String>,
    pub(crate) issuer: Option<String>,
    expires_at: Option<i64>,
}

impl UnverifiedClaims {
    /// Scans the claims' text.
    pub(crate) fn of(payload: &[u8]) -> Result<Self, JsonError> {
        serde_json::from_slice(payload).map_err(|error| JsonError::Syntax(error.to_string()))
    }

    /// `exp`, if it is a whole number.
    pub(crate) fn expires_at(&self) -> Option<UnixTime> {
        self.expires_at.map(UnixTime)
    }

    pub(crate) fn expired(&self, now: UnixTime) -> bool {
        self.expires_at.is_some_and(|expires_at| expires_at <= now.0)
    }
}

impl<'de> Deserialize<'de> for UnverifiedClaims {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ClaimsVisitor;
        impl<'de> Visitor<'de> for ClaimsVisitor {
            type Value = UnverifiedClaims;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of claims")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<UnverifiedClaims, A::Error> {
                let mut unverified = UnverifiedClaims::default();
                while let Some(Text(name)) = map.next_key::<Text<'de>>()? {
                    match name.as_ref() {
                        "jti" => unverified.id = string(map.next_value()?),
                        "iss" => unverified.issuer = string(map.next_value()?),
                        "exp" => unverified.expires_at = map.next_value::<&RawValue>()?.get().parse().ok(),
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(unverified)
            }
        }
        fn string(raw: &RawValue) -> Option<String> {
            let text = raw.get();
            let inner = text.strip_prefix('"')?.strip_suffix('"')?;
            if inner.contains('\\') {
                serde_json::from_str(text).ok()
            } else {
                Some(inner.to_owned())
            }
        }
        deserializer.deserialize_map(ClaimsVisitor)
    }
}

/// A name, borrowed unless it has escapes.
#[derive(serde::Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
