//! The trust anchors of the configuration, with the keys that were fetched from issuers.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use credence_delegation::{IssuerKeys, Thumbprint, TrustAnchors, UnixTime};
use credence_revocation::RevocationLog;

/// The trust anchors of the configuration, with the keys that were fetched.
#[derive(Debug)]
pub(crate) struct FetchedAnchors {
    configured: TrustAnchors,
    log: RevocationLog,
    /// Every key of each issuer since the start: evidence is verified after the decision, when its key may be gone.
    ever: Mutex<BTreeMap<String, Vec<(String, String)>>>,
}

impl FetchedAnchors {
    pub(crate) fn new(configured: TrustAnchors, log: RevocationLog) -> Arc<Self> {
        Arc::new(Self {
            configured,
            log,
            ever: Mutex::default(),
        })
    }

    /// Those with keys in the configuration. Only they sign statements.
    pub(crate) fn configured(&self) -> &TrustAnchors {
        &self.configured
    }

    /// Those that filters trust now.
    pub(crate) fn now(&self) -> Cow<'_, TrustAnchors> {
        if self.configured.fetched().is_empty() {
            return Cow::Borrowed(&self.configured);
        }
        let known: BTreeMap<_, _> = self.present().collect();
        Cow::Owned(self.with(&known))
    }

    /// Whether one of these keys is a present one of the issuer. True for an issuer whose keys are not fetched.
    pub(crate) fn has_present_key(&self, issuer: &str, keys: &[Thumbprint], now: i64) -> bool {
        let is_fetched = self.configured.fetched().iter().any(|fetched| fetched.issuer == issuer);
        if !is_fetched || self.configured.of_issuer(issuer).next().is_some() {
            return true;
        }
        let Some(present) = self.log.issuer_keys(issuer) else {
            return false;
        };
        let jwks = present.keys.iter().map(|key| (key.jwk.as_str(), key.kid.as_str()));
        let present_keys = IssuerKeys::read(jwks, UnixTime(present.trusted_until));
        present.trusted_until > now && keys.iter().any(|key| present_keys.contain(key))
    }

    /// Those that filters may have trusted since this process started.
    pub(crate) fn ever(&self) -> TrustAnchors {
        let mut ever = self.ever.lock().unwrap_or_else(PoisonError::into_inner);
        for (issuer, keys) in self.present() {
            let known = ever.entry(issuer).or_default();
            for key in keys {
                if !known.contains(&key) {
                    known.push(key);
                }
            }
            // The oldest are those that no evidence in transit needs any more.
            let excess = known.len().saturating_sub(MAX_KEYS_EVER);
            known.drain(..excess);
        }
        self.with(&ever).trying_all()
    }

    /// The keys in the log, by issuer.
    fn present(&self) -> impl Iterator<Item = (String, Vec<(String, String)>)> {
        let issuers = self.configured.fetched().iter();
        issuers.filter_map(|fetched| {
            let keys = self.log.issuer_keys(&fetched.issuer)?.keys;
            let keys = keys.into_iter().map(|key| (key.jwk, key.kid));
            Some((fetched.issuer.clone(), keys.collect()))
        })
    }

    fn with(&self, keys: &BTreeMap<String, Vec<(String, String)>>) -> TrustAnchors {
        let read = |keys: &Vec<(String, String)>| {
            let keys = keys.iter().map(|(jwk, kid)| (jwk.as_str(), kid.as_str()));
            IssuerKeys::read(keys, UnixTime(i64::MAX))
        };
        let read: BTreeMap<_, _> = keys.iter().map(|(issuer, keys)| (issuer, read(keys))).collect();
        self.configured.with_keys(|issuer| read.get(&issuer.to_owned()))
    }
}

/// Keys of one issuer that evidence is verified with.
const MAX_KEYS_EVER: usize = 64;
