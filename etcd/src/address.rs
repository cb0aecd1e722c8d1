//! The address of a store: `etcd://HOST:PORT[,HOST:PORT...][/PREFIX]`, and how its members are reached.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The members of an etcd cluster, and the prefix of a store's keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// `HOST:PORT` of each.
    pub members: Vec<String>,
    /// Begins and ends with `/`.
    pub prefix: String,
}

/// How the members are reached. The files are read for each connection, so that renewed ones count.
#[derive(Debug, Clone, Default)]
pub struct Security {
    /// Certificate authorities of the members, PEM. TLS is used if this is present.
    pub ca: Option<PathBuf>,
    /// Our certificate and key, PEM.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// A user of etcd, and the file of the password.
    pub user: Option<(String, PathBuf)>,
}

/// Why a store cannot be addressed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    #[error("write the store as etcd://HOST:PORT,HOST:PORT,HOST:PORT/PREFIX; the prefix may be left out: {found}")]
    Form { found: &'static str },
    #[error("{path} cannot be read: {error}")]
    File { path: String, error: String },
    #[error("{path} is not what TLS needs: {error}")]
    Tls { path: String, error: String },
}

// === impl Address ===

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = |found| AddressError::Form { found };
        let rest = text.strip_prefix("etcd://").ok_or(wrong("it begins with etcd://"))?;
        let (members, prefix) = rest.split_once('/').unwrap_or((rest, DEFAULT_PREFIX));
        let prefix = prefix.trim_matches('/');
        if prefix.is_empty() || prefix.len() > MAX_PREFIX_BYTES || !prefix.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(wrong("a prefix has 1 to 128 visible ASCII characters"));
        }
        let members: Vec<_> = members.split(',').map(str::to_owned).collect();
        if members.len() > MAX_MEMBERS {
            return Err(wrong("there are at most 9 members"));
        }
        let is_member = |member: &String| {
            let authority = member.parse::<http::uri::Authority>();
            authority.is_ok_and(|authority| authority.port_u16().is_some() && !authority.as_str().contains('@'))
        };
        if !members.iter().all(is_member) {
            return Err(wrong("each member is a host and a port, such as etcd-0.etcd:2379"));
        }
        Ok(Self {
            members,
            prefix: format!("/{prefix}/"),
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "etcd://{}{}",
            self.members.join(","),
            self.prefix.trim_end_matches('/')
        )
    }
}

const DEFAULT_PREFIX: &str = "credence";
const MAX_PREFIX_BYTES: usize = 128;
const MAX_MEMBERS: usize = 9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_members_and_a_prefix() {
        for (text, members, prefix) in [
            ("etcd://a:2379", &["a:2379"][..], "/credence/"),
            ("etcd://a:2379,[::1]:2", &["a:2379", "[::1]:2"], "/credence/"),
            ("etcd://a:1/mesh/east/", &["a:1"], "/mesh/east/"),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(
                (&address.members[..], address.prefix.as_str()),
                (&members.map_to()[..], prefix)
            );
            assert_eq!(address.to_string().parse(), Ok(address));
        }
    }

    #[test]
    fn another_form_is_refused_with_the_right_one() {
        for text in [
            "",
            "etcd://",
            "a:1",
            "http://a:1",
            "etcd://a",
            "etcd://a:1,",
            "etcd://u@a:1",
            "etcd://a:1/",
            "etcd://a:1/a b",
        ] {
            let refused = text.parse::<Address>().unwrap_err().to_string();
            assert!(refused.contains("etcd://HOST:PORT"), "{text}: {refused}");
        }
    }

    trait Owned {
        fn map_to(&self) -> Vec<String>;
    }

    impl Owned for &[&str] {
        fn map_to(&self) -> Vec<String> {
            self.iter().map(|text| (*text).to_owned()).collect()
        }
    }
}
