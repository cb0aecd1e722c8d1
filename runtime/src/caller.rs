//! The caller of a request.

/// The caller: a credential's name, and the issuers that it is bound to.
#[derive(Debug, PartialEq, Eq)]
pub struct Caller {
    /// The credential's configured name.
    pub name: String,
    /// The root issuers whose principals and delegations the caller may revoke and look up; all if absent.
    pub issuers: Option<Vec<String>>,
}

/// Identifies a peer across its connections.
#[derive(Debug, Clone)]
pub struct PeerName(pub String);

// === impl Caller ===

impl Caller {
    /// A caller bound to these issuers, or to none.
    #[must_use]
    pub fn new(name: String, issuers: Option<Vec<String>>) -> Self {
        Self { name, issuers }
    }

    /// Whether the caller may act on this issuer.
    #[must_use]
    pub fn covers(&self, issuer: &str) -> bool {
        self.issuers
            .as_ref()
            .is_none_or(|issuers| issuers.iter().any(|known| known == issuer))
    }

    /// Whether both are bound to the same issuers.
    #[must_use]
    pub fn covers_as_much_as(&self, other: &Self) -> bool {
        self.issuers == other.issuers
    }

    /// Whether the caller may report on a principal of this issuer; without an issuer, on an unknown principal.
    #[must_use]
    pub fn may_report(&self, issuer: Option<&str>) -> bool {
        issuer.map_or_else(|| self.covers_everything(), |issuer| self.covers(issuer))
    }

    /// Whether the caller may act on all issuers, or on what belongs to none.
    #[must_use]
    pub fn covers_everything(&self) -> bool {
        self.issuers.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_bound_to_issuers_covers_these_only() {
        let caller = Caller::new("t".to_owned(), Some(vec!["https://id.example.com".to_owned()]));
        assert!(caller.covers("https://id.example.com") && !caller.covers("https://id.example.com.evil"));
        assert!(!caller.covers_everything());
    }
}
