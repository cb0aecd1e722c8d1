//! Host patterns of rules, and the look-up of those that match a request's host.

use std::collections::HashMap;

use thiserror::Error;

use crate::request::target;

/// A host pattern of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPattern {
    /// Exactly this host, in lower case.
    Exact(String),
    /// Every host under this suffix, which starts with a dot. The suffix's own host is not included.
    Under(String),
}

impl HostPattern {
    /// Reads `payments.example` or `*.example`.
    ///
    /// # Errors
    /// [`HostPatternError`] for anything else, including an upper-case letter or a port.
    pub fn parse(text: &str) -> Result<Self, HostPatternError> {
        let (name, wild) = match text.strip_prefix("*.") {
            Some(name) => (name, true),
            None => (text, false),
        };
        // Requests are compared with the address in the form of RFC 5952.
        let address = name.parse::<std::net::Ipv6Addr>();
        let is_address = address.is_ok_and(|address| address.to_string() == name) && !wild;
        if text.len() > MAX_HOST_BYTES
            || text.bytes().any(|byte| byte.is_ascii_uppercase())
            || !(target::is_host_name(name) || is_address)
        {
            return Err(HostPatternError);
        }
        Ok(if wild {
            Self::Under(format!(".{name}"))
        } else {
            Self::Exact(name.to_owned())
        })
    }

    pub(super) fn covers(&self, other: &HostPattern) -> bool {
        match (self, other) {
            (Self::Exact(mine), Self::Exact(theirs)) => mine == theirs,
            (Self::Exact(_), Self::Under(_)) => false,
            (Self::Under(suffix), Self::Exact(name)) => name.len() > suffix.len() && name.ends_with(suffix),
            (Self::Under(wide), Self::Under(narrow)) => narrow.ends_with(wide),
        }
    }
}

/// A host pattern that is neither a host name nor `*.` and one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "a host is written in lower case without scheme, port or trailing dot, such as `payments.example` or `*.example`, and \
     an IPv6 address as RFC 5952 has it, \
     in at most {MAX_HOST_BYTES} bytes"
)]
pub struct HostPatternError;

/// One value for each host pattern, found by the labels of a host from its end.
///
/// A look-up takes one step for each label, and at most as many as the longest pattern has labels.
#[derive(Clone, Debug, Default)]
pub(super) struct HostMap<V> {
    of_every_host: Option<V>,
    root: Label<V>,
}

impl<V: Default> HostMap<V> {
    /// The slot of a pattern's value; without a pattern, of the value for every host.
    pub(super) fn entry(&mut self, pattern: Option<&HostPattern>) -> &mut Option<V> {
        match pattern {
            None => &mut self.of_every_host,
            Some(HostPattern::Exact(name)) => &mut self.root.descend(name).exact,
            Some(HostPattern::Under(suffix)) => &mut self.root.descend(without_dot(suffix)).under,
        }
    }

    /// The value of a pattern, if it has one.
    pub(super) fn of_pattern(&self, pattern: Option<&HostPattern>) -> Option<&V> {
        match pattern {
            None => self.of_every_host.as_ref(),
            Some(HostPattern::Exact(name)) => self.root.find(name)?.exact.as_ref(),
            Some(HostPattern::Under(suffix)) => self.root.find(without_dot(suffix))?.under.as_ref(),
        }
    }

    /// Visits the value of each pattern that matches the host, which is in lower case.
    pub(super) fn each_over(&self, host: &str, visit: impl FnMut(&V)) {
        self.each(host, false, visit);
    }

    /// Visits the value of each pattern that covers this one.
    pub(super) fn each_covering(&self, pattern: Option<&HostPattern>, mut visit: impl FnMut(&V)) {
        match pattern {
            None => self.of_every_host.iter().for_each(visit),
            Some(HostPattern::Exact(name)) => self.each(name, false, &mut visit),
            Some(HostPattern::Under(suffix)) => self.each(without_dot(suffix), true, &mut visit),
        }
    }

    fn each(&self, name: &str, is_suffix: bool, mut visit: impl FnMut(&V)) {
        self.of_every_host.iter().for_each(&mut visit);
        let mut label = &self.root;
        let mut names = name.rsplit('.').peekable();
        while let Some(name) = names.next() {
            let Some(next) = label.labels.get(name) else { return };
            label = next;
            let found = if is_suffix || names.peek().is_some() {
                &label.under
            } else {
                &label.exact
            };
            found.iter().for_each(&mut visit);
        }
    }
}

/// The values of the hosts that end with some labels.
#[derive(Clone, Debug, Default)]
struct Label<V> {
    /// The value of the host that is exactly these labels.
    exact: Option<V>,
    /// The value of the hosts with further labels in front.
    under: Option<V>,
    /// By the next label in front.
    labels: HashMap<Box<str>, Label<V>>,
}

impl<V: Default> Label<V> {
    fn descend(&mut self, name: &str) -> &mut Self {
        name.rsplit('.')
            .fold(self, |label, name| label.labels.entry(name.into()).or_default())
    }

    fn find(&self, name: &str) -> Option<&Self> {
        name.rsplit('.').try_fold(self, |label, name| label.labels.get(name))
    }
}

fn without_dot(suffix: &str) -> &str {
    suffix.strip_prefix('.').unwrap_or(suffix)
}

/// Bytes of a host pattern: no host name is longer (RFC 1035, section 2.3.4).
pub const MAX_HOST_BYTES: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_pattern_is_a_lower_case_name_or_a_wildcard_over_one() {
        assert_eq!(
            HostPattern::parse("a.example"),
            Ok(HostPattern::Exact("a.example".into()))
        );
        assert_eq!(
            HostPattern::parse("*.example"),
            Ok(HostPattern::Under(".example".into()))
        );
        assert_eq!(HostPattern::parse("::1"), Ok(HostPattern::Exact("::1".into())));
        let long = "a.".repeat(128) + "a";
        for wrong in [
            "",
            "*",
            "*.",
            "a.*",
            "A.example",
            "a.example:80",
            "a.example.",
            "http://a",
            "*.*.a",
            "0:0:0:0:0:0:0:1",
            &long,
        ] {
            assert_eq!(HostPattern::parse(wrong), Err(HostPatternError), "{wrong}");
        }
    }

    #[test]
    fn a_host_matches_its_name_and_the_suffixes_at_its_labels() {
        let mut hosts = HostMap::default();
        for pattern in ["a.example", "*.example", "*.a.example", "example", "::1", "127.0.0.1"] {
            *hosts.entry(Some(&HostPattern::parse(pattern).unwrap())) = Some(pattern);
        }
        *hosts.entry(None) = Some("any");
        let cases: [(&str, &[&str]); 8] = [
            ("a.example", &["any", "*.example", "a.example"]),
            ("b.a.example", &["any", "*.example", "*.a.example"]),
            ("c.b.a.example", &["any", "*.example", "*.a.example"]),
            ("example", &["any", "example"]),
            ("aexample", &["any"]),
            ("a.example.org", &["any"]),
            ("::1", &["any", "::1"]),
            ("127.0.0.1", &["any", "127.0.0.1"]),
        ];
        for (host, expected) in cases {
            let mut found = Vec::new();
            hosts.each_over(host, |pattern| found.push(*pattern));
            assert_eq!(found, expected, "{host}");
        }
    }
}
