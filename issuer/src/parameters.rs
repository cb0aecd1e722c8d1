//! The parameters of OAuth requests, in queries and bodies.

use url::form_urlencoded;

use crate::error::OauthError;

/// Names and values, as they were sent.
#[derive(Debug, Clone, Default)]
pub(crate) struct Parameters(Vec<(String, String)>);

// === impl Parameters ===

impl Parameters {
    /// Reads `application/x-www-form-urlencoded`. A parameter without a value counts as absent, and one that is sent twice
    /// is an error (RFC 6749, section 3.1).
    pub(crate) fn parse(encoded: &[u8]) -> Result<Self, OauthError> {
        let mut read = Vec::<(String, String)>::new();
        for (name, value) in form_urlencoded::parse(encoded) {
            if read.len() >= MOST {
                return Err(OauthError::invalid_request("too many parameters"));
            }
            let is_repeated = name != "resource" && read.iter().any(|(earlier, _)| *earlier == name);
            if is_repeated {
                return Err(OauthError::invalid_request("a parameter is sent twice"));
            }
            read.push((name.into_owned(), value.into_owned()));
        }
        read.retain(|(_, value)| !value.is_empty());
        Ok(Self(read))
    }

    pub(crate) fn one(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// `resource` may be sent more than once (RFC 8707).
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        let found = self.0.iter().filter(move |(found, _)| found == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// A consent with many values has as many.
const MOST: usize = 2_048;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_counts_once() {
        let read = Parameters::parse(b"scope=a%20b&state=&resource=x&resource=y").unwrap();
        assert_eq!(read.one("scope"), Some("a b"));
        assert_eq!(read.one("state"), None);
        assert_eq!(read.all("resource").collect::<Vec<_>>(), ["x", "y"]);
        let repeated = Parameters::parse(b"scope=a&scope=a").unwrap_err();
        assert_eq!(repeated.description, "a parameter is sent twice");
        let many = "a".repeat(MOST) + "&";
        let many: String = many
            .chars()
            .enumerate()
            .map(|(place, _)| format!("a{place}=1&"))
            .collect();
        let many = Parameters::parse(many.as_bytes()).unwrap_err();
        assert_eq!(many.description, "too many parameters");
    }
}
