//! Who the service behind us is told is asking, and on whose behalf: the `x-delegation-*` headers.
//!
//! They are set on allowed requests only, after every header of that form that the client sent was removed.

use std::fmt::Write;

use credence_delegation::VerifiedChain;

use crate::decision::{Denial, Reason};
use crate::engine::Agent;

/// The headers that an allowed request is given, names in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Names and values. Values are percent-encoded (RFC 3986): what is neither unreserved nor one of `:/@` is `%XX`.
    pub headers: Vec<(&'static str, String)>,
}

impl Identity {
    /// The identity that a decision has established.
    ///
    /// # Errors
    /// [`Reason::DelegationTooLarge`] if a value is longer than a header may be. Cut off, it would name somebody else.
    pub fn new(chain: &VerifiedChain, agent: Agent, tool: &str) -> Result<Self, Denial> {
        let principal = chain.principal();
        let mut headers = Vec::with_capacity(6);
        let mut set = |name, value: &str| {
            let value = percent_encode(value);
            if value.len() > MAX_VALUE_BYTES {
                return Err(Denial::from(Reason::DelegationTooLarge));
            }
            headers.push((name, value));
            Ok(())
        };
        set("x-delegation-issuer", &principal.issuer)?;
        if let Some(subject) = &principal.subject {
            set("x-delegation-subject", subject)?;
        }
        match agent {
            Agent::Key(thumbprint) => {
                set("x-delegation-agent", &thumbprint.to_string())?;
                set("x-delegation-proof", "pop")?;
            }
            Agent::Certificate(digest) => {
                set("x-delegation-agent", &hex(&digest))?;
                set("x-delegation-proof", "mtls")?;
            }
            Agent::Bearer => set("x-delegation-proof", "none")?,
        }
        set("x-delegation-tool", tool)?;
        set("x-delegation-id", chain.leaf().id())?;
        Ok(Self { headers })
    }
}

/// Lower-case hexadecimal, as Envoy writes certificate digests.
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().saturating_mul(2));
    for byte in bytes {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn percent_encode(text: &str) -> String {
    use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
    const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
        .remove(b'-')
        .remove(b'.')
        .remove(b'_')
        .remove(b'~')
        .remove(b':')
        .remove(b'/')
        .remove(b'@');
    utf8_percent_encode(text, ESCAPED).to_string()
}

/// Bytes of one header value.
pub const MAX_VALUE_BYTES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    fn value(identity: &Identity, name: &str) -> Option<String> {
        identity
            .headers
            .iter()
            .find(|(candidate, _)| *candidate == name)
            .map(|(_, value)| value.clone())
    }

    #[test]
    fn says_what_was_proven_and_no_more() {
        let chain = samples::verified_chain();
        let bearer = Identity::new(&chain, Agent::Bearer, "pay").unwrap();
        assert_eq!(value(&bearer, "x-delegation-issuer").as_deref(), Some(samples::ISSUER));
        assert_eq!(value(&bearer, "x-delegation-subject").as_deref(), Some("ada"));
        assert_eq!(value(&bearer, "x-delegation-agent"), None);
        assert_eq!(value(&bearer, "x-delegation-proof").as_deref(), Some("none"));
        let thumbprint = samples::key(2).public().thumbprint();
        let holder = Identity::new(&chain, Agent::Key(thumbprint), "pay").unwrap();
        assert_eq!(value(&holder, "x-delegation-agent"), Some(thumbprint.to_string()));
        let certificate = Identity::new(&chain, Agent::Certificate([0xab; 32]), "pay").unwrap();
        assert_eq!(value(&certificate, "x-delegation-agent"), Some("ab".repeat(32)));
    }

    #[test]
    fn a_value_can_not_break_out_of_its_header() {
        assert_eq!(percent_encode("a\r\nx-admin: 1,é%"), "a%0D%0Ax-admin:%201%2C%C3%A9%25");
    }

    #[test]
    fn a_value_that_does_not_fit_denies() {
        let denial = Identity::new(&samples::verified_chain(), Agent::Bearer, &"t".repeat(1025)).unwrap_err();
        assert_eq!(denial.reason, Reason::DelegationTooLarge);
    }
}
