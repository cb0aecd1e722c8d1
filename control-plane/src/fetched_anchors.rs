//! The trust anchors of the configuration, with the keys that were fetched from issuers.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use credence_delegation::{IssuerKeys, TrustAnchors, UnixTime};
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

    /// Those that filters may have trusted since this process started.
    pub(crate) fn ever(&self) -> TrustAnchors {
        let mut ever = self.ever.lock().unwrap_or_else(PoisonError::into_inner);
        for (issuer, keys) in self.present() {
            let known = ever.entry(issuer).or_default();
            for key in keys.into_iter().filter(|key| !known.contains(key)).collect::<Vec<_>>() {
                known.push(key);
            }
        }
        self.with(&ever)
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
