//! The identity that the service receives: the `x-delegation-*` headers.
//!
//! They are set only on allowed requests, after all headers of that form from the client were removed.

use std::fmt::Write;

use credence_delegation::VerifiedChain;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::agent::Agent;
use crate::decision::{Denial, Reason};

/// A part of the identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema, serde::Serialize))]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// The principal's issuer.
    Issuer,
    /// The principal's name at that issuer, if it has one.
    Subject,
    /// The proven agent: its key's thumbprint, or its certificate's digest; empty for a bearer.
    Agent,
    /// The kind of proof: `pop`, `dpop`, `mtls` or `none`.
    Proof,
    /// The OAuth client of an access token (`client_id`).
    Client,
    /// The present actor of an access token (`act`; RFC 8693, section 4.1).
    Actor,
    /// The tool, if the request calls one.
    Tool,
    /// The id of the delegation's last token.
    Id,
}

impl Part {
    /// Its header.
    pub fn header(self) -> &'static str {
        self.names().1
    }

    /// Its name in Envoy's filter state, after the prefix `wasm.`.
    pub fn filter_state(self) -> &'static str {
        self.names().2
    }

    /// Its key in the dictionary, its header, and its name in the filter state.
    fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Issuer => ("issuer", "x-delegation-issuer", "credence_issuer"),
            Self::Subject => ("subject", "x-delegation-subject", "credence_subject"),
            Self::Agent => ("agent", "x-delegation-agent", "credence_agent"),
            Self::Proof => ("proof", "x-delegation-proof", "credence_proof"),
            Self::Client => ("client", "x-delegation-client", "credence_client"),
            Self::Actor => ("actor", "x-delegation-actor", "credence_actor"),
            Self::Tool => ("tool", "x-delegation-tool", "credence_tool"),
            Self::Id => ("id", "x-delegation-id", "credence_id"),
        }
    }
}

/// The form of the identity headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema, serde::Serialize))]
#[serde(rename_all = "lowercase")]
pub enum IdentityHeaders {
    /// A header for each part: `x-delegation-issuer`, `-subject`, `-agent`, `-proof`, `-client`, `-actor`, `-tool` and
    /// `-id`.
    #[default]
    Separate,
    /// One header, `x-delegation-identity`, an RFC 9651 Dictionary with a member for each part.
    Dictionary,
}

/// The identity of an allowed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Parts and values. Values are percent-encoded (RFC 3986): every character except unreserved ones and `:/@`
    /// becomes `%XX`.
    pub parts: Vec<(Part, String)>,
    /// All parts as one RFC 9651 Dictionary, if that is the configured form.
    pub dictionary: Option<String>,
}

impl Identity {
    /// The identity that a decision established, in this form.
    ///
    /// # Errors
    /// [`Reason::DelegationTooLarge`] if a value is longer than a header allows. A truncated value would name another
    /// identity.
    pub fn new(
        chain: &VerifiedChain,
        agent: Agent,
        tool: Option<&str>,
        headers: IdentityHeaders,
    ) -> Result<Self, Denial> {
        let principal = chain.principal();
        let mut parts = Vec::with_capacity(8);
        let mut set = |part, value: &str| {
            let value = percent_encode(value);
            if value.len() > MAX_VALUE_BYTES {
                return Err(Denial::from(Reason::DelegationTooLarge));
            }
            parts.push((part, value));
            Ok(())
        };
        set(Part::Issuer, &principal.issuer)?;
        if let Some(subject) = &principal.subject {
            set(Part::Subject, subject)?;
        }
        match agent {
            Agent::Key(thumbprint) => {
                set(Part::Agent, &thumbprint.to_string())?;
                set(Part::Proof, "pop")?;
            }
            Agent::DpopKey(thumbprint) => {
                set(Part::Agent, &thumbprint.to_string())?;
                set(Part::Proof, "dpop")?;
            }
            Agent::Certificate(digest) => {
                set(Part::Agent, &base16ct::lower::encode_string(&digest))?;
                set(Part::Proof, "mtls")?;
            }
            Agent::Bearer => set(Part::Proof, "none")?,
        }
        if let Some(client) = chain.client() {
            set(Part::Client, client)?;
        }
        if let Some(actor) = chain.actors().first() {
            set(Part::Actor, actor)?;
        }
        if let Some(tool) = tool {
            set(Part::Tool, tool)?;
        }
        set(Part::Id, chain.leaf().id())?;
        let dictionary = match headers {
            IdentityHeaders::Separate => None,
            IdentityHeaders::Dictionary => Some(dictionary(&parts)),
        };
        Ok(Self { parts, dictionary })
    }

    /// Bytes of a text in one of the values.
    pub fn value_bytes(text: &str) -> usize {
        utf8_percent_encode(text, ESCAPED)
            .map(str::len)
            .fold(0, usize::saturating_add)
    }

    /// The headers, names in lower case.
    pub fn headers(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let separate = match self.dictionary {
            Some(_) => &[],
            None => self.parts.as_slice(),
        };
        let one = self
            .dictionary
            .iter()
            .map(|dictionary| (DICTIONARY_HEADER, dictionary.as_str()));
        one.chain(separate.iter().map(|(part, value)| (part.header(), value.as_str())))
    }
}

/// RFC 9651, section 4.1.2. Percent-encoded values have no character that a String (section 3.3.3) would have to escape;
/// the kind of proof is a Token (section 3.3.4).
fn dictionary(parts: &[(Part, String)]) -> String {
    let mut text = String::new();
    for (part, value) in parts {
        if !text.is_empty() {
            text.push_str(", ");
        }
        let (key, ..) = part.names();
        // Writing to a String cannot fail.
        let _ = match part {
            Part::Proof => write!(text, "{key}={value}"),
            Part::Issuer | Part::Subject | Part::Agent | Part::Client | Part::Actor | Part::Tool | Part::Id => {
                write!(text, "{key}=\"{value}\"")
            }
        };
    }
    text
}

fn percent_encode(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

/// The characters to escape in a value.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b':')
    .remove(b'/')
    .remove(b'@');

/// The header of the dictionary.
const DICTIONARY_HEADER: &str = "x-delegation-identity";

/// Bytes of one header value.
pub const MAX_VALUE_BYTES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    fn value(identity: &Identity, name: &str) -> Option<String> {
        identity
            .parts
            .iter()
            .find(|(part, _)| part.header() == name)
            .map(|(_, value)| value.clone())
    }

    #[test]
    fn contains_only_what_was_proven() {
        let chain = samples::verified_chain();
        let bearer = Identity::new(&chain, Agent::Bearer, Some("pay"), IdentityHeaders::Separate).unwrap();
        assert_eq!(value(&bearer, "x-delegation-issuer").as_deref(), Some(samples::ISSUER));
        assert_eq!(value(&bearer, "x-delegation-subject").as_deref(), Some("ada"));
        assert_eq!(value(&bearer, "x-delegation-agent"), None);
        assert_eq!(value(&bearer, "x-delegation-proof").as_deref(), Some("none"));
        let thumbprint = samples::key(2).public().thumbprint();
        let holder = Identity::new(&chain, Agent::Key(thumbprint), Some("pay"), IdentityHeaders::Separate).unwrap();
        assert_eq!(value(&holder, "x-delegation-agent"), Some(thumbprint.to_string()));
        let certificate = Identity::new(
            &chain,
            Agent::Certificate([0xab; 32]),
            Some("pay"),
            IdentityHeaders::Separate,
        )
        .unwrap();
        assert_eq!(value(&certificate, "x-delegation-agent"), Some("ab".repeat(32)));
    }

    #[test]
    fn a_dictionary_has_the_same_parts_in_one_header() {
        let chain = samples::verified_chain();
        let separate = Identity::new(&chain, Agent::Bearer, Some("pay \"now\""), IdentityHeaders::Separate).unwrap();
        let names: Vec<&str> = separate.headers().map(|(name, _)| name).collect();
        let expected = [
            "x-delegation-issuer",
            "x-delegation-subject",
            "x-delegation-proof",
            "x-delegation-tool",
            "x-delegation-id",
        ];
        assert_eq!(names, expected);
        let joint = Identity::new(&chain, Agent::Bearer, Some("pay \"now\""), IdentityHeaders::Dictionary).unwrap();
        let id = chain.leaf().id();
        let value = format!(
            r#"issuer="{}", subject="ada", proof=none, tool="pay%20%22now%22", id="{id}""#,
            samples::ISSUER
        );
        assert_eq!(
            joint.headers().collect::<Vec<_>>(),
            [("x-delegation-identity", value.as_str())]
        );
        assert_eq!(joint.parts, separate.parts);
    }

    #[test]
    fn a_value_cannot_break_out_of_its_header() {
        assert_eq!(percent_encode("a\r\nx-admin: 1,é%"), "a%0D%0Ax-admin:%201%2C%C3%A9%25");
    }

    #[test]
    fn a_value_that_does_not_fit_denies() {
        let denial = Identity::new(
            &samples::verified_chain(),
            Agent::Bearer,
            Some(&"t".repeat(1025)),
            IdentityHeaders::Separate,
        )
        .unwrap_err();
        assert_eq!(denial.reason, Reason::DelegationTooLarge);
    }
}
