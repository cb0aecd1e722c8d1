//! Trust anchors: the issuers of root tokens, and their keys.

use std::sync::Arc;

use serde_json::json;
use sha2::{Digest, Sha256};

use crate::access_token::AccessTokens;
use crate::denial::{Cause, Denial, Step};
use crate::issuer_keys::IssuerKeys;
use crate::jws::TokenType;
use crate::key::{Algorithm, Algorithms, IdentifiedKey, KeyType, PublicKey};
use crate::sort::sort;
use crate::token;

/// A public key, bound to the issuer whose root tokens it signs (draft section 2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustAnchor {
    /// The issuer's URI, compared exactly with a root token's `iss`.
    pub issuer: String,
    /// The key that signs the issuer's root tokens.
    pub key: PublicKey,
    /// The name by which a token's header may select the key among the issuer's (`kid`; RFC 7515, section 4.1.4). A key
    /// without a name is tried unless the header selects another.
    pub key_id: Option<String>,
    /// The algorithms that these signatures may use.
    pub algorithms: Algorithms,
    /// Whether the issuer has several principals, so that a root token's `sub` names the principal. If not, the issuer
    /// is the principal and `sub` is ignored.
    pub asserts_subjects: bool,
    /// Whether root tokens of delegations count (`aat+jwt`).
    pub delegations: bool,
    /// What the issuer's access tokens grant; `None` if they do not count.
    pub access_tokens: Option<Arc<AccessTokens>>,
    /// Other issuers, such as a broker's identity provider: the same `sub` names the same principal there, and what
    /// revokes that principal revokes this one.
    pub same_principals: Vec<String>,
    /// Whether the key was fetched from the issuer: it counts only while the revocation log has it.
    pub is_fetched: bool,
}

/// A trust anchor whose keys the control plane fetches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedAnchor {
    /// The issuer's URI.
    pub issuer: String,
    /// See [`TrustAnchor::algorithms`].
    pub algorithms: Algorithms,
    /// See [`TrustAnchor::asserts_subjects`].
    pub asserts_subjects: bool,
    /// See [`TrustAnchor::delegations`].
    pub delegations: bool,
    /// See [`TrustAnchor::access_tokens`].
    pub access_tokens: Option<Arc<AccessTokens>>,
    /// See [`TrustAnchor::same_principals`].
    pub same_principals: Vec<String>,
}

/// The configured trust anchors. An issuer may have several keys.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TrustAnchors {
    anchors: Vec<TrustAnchor>,
    fetched: Vec<FetchedAnchor>,
    /// The issuers of access tokens, in the configured order.
    access_tokens: Vec<(String, Arc<AccessTokens>)>,
    /// Whether a token is checked against any number of keys.
    tries_all: bool,
}

impl TrustAnchor {
    fn fingerprint(&self) -> [u8; 32] {
        let thumbprint = self.key.thumbprint().to_string();
        let algorithms = Algorithm::ALL.map(|algorithm| self.algorithms.allow(algorithm));
        // JSON separates the parts: no two anchors have the same text.
        let anchor = json!([self.issuer, self.key_id, thumbprint, algorithms, self.asserts_subjects]);
        match &self.access_tokens {
            None if self.same_principals.is_empty() => Sha256::digest(anchor.to_string()),
            _ => Sha256::digest(format!("{anchor}{}", self.without_key().text())),
        }
        .into()
    }

    fn without_key(&self) -> FetchedAnchor {
        FetchedAnchor {
            issuer: self.issuer.clone(),
            algorithms: self.algorithms.clone(),
            asserts_subjects: self.asserts_subjects,
            delegations: self.delegations,
            access_tokens: self.access_tokens.clone(),
            same_principals: self.same_principals.clone(),
        }
    }

    /// Whether a token of this type counts.
    fn accepts(&self, token_type: TokenType) -> bool {
        match token_type {
            TokenType::Delegation => self.delegations,
            TokenType::AccessToken | TokenType::Untyped => self
                .access_tokens
                .as_ref()
                .is_some_and(|tokens| tokens.accept(token_type)),
        }
    }

    /// Whether this anchor may have made a signature by `algorithm`.
    pub(crate) fn allows(&self, algorithm: Algorithm) -> bool {
        self.algorithms.allow(algorithm) && self.key.fits(algorithm)
    }
}

impl FetchedAnchor {
    fn with(&self, key: &IdentifiedKey) -> TrustAnchor {
        TrustAnchor {
            issuer: self.issuer.clone(),
            key: key.key.clone(),
            key_id: key.id.clone(),
            algorithms: self.algorithms.clone(),
            asserts_subjects: self.asserts_subjects,
            delegations: self.delegations,
            access_tokens: self.access_tokens.clone(),
            same_principals: self.same_principals.clone(),
            is_fetched: true,
        }
    }

    /// All of it.
    fn text(&self) -> String {
        // Derived Debug names every field.
        format!("{self:?}")
    }
}

impl TrustAnchors {
    /// These anchors, tried in this order.
    pub fn new(anchors: impl IntoIterator<Item = TrustAnchor>) -> Self {
        let prepared = anchors.into_iter().map(|mut anchor| {
            anchor.key.prepare();
            anchor
        });
        Self {
            anchors: prepared.collect(),
            fetched: Vec::new(),
            access_tokens: Vec::new(),
            tries_all: false,
        }
    }

    /// The same anchors, for a caller whose tokens were verified before: a token is checked against all keys that may have
    /// signed it.
    #[must_use]
    pub fn trying_all(mut self) -> Self {
        self.tries_all = true;
        self
    }

    /// These, and anchors whose keys are fetched; with what the access tokens of each issuer grant, in the configured
    /// order.
    #[must_use]
    pub fn and_fetched(mut self, fetched: Vec<FetchedAnchor>, access_tokens: Vec<(String, Arc<AccessTokens>)>) -> Self {
        self.fetched = fetched;
        self.access_tokens = access_tokens;
        self
    }

    /// The issuers whose keys are fetched.
    pub fn fetched(&self) -> &[FetchedAnchor] {
        &self.fetched
    }

    /// The same anchors, with the keys of each issuer that the control plane has fetched and that count now.
    #[must_use]
    pub fn with_keys<'k>(&self, keys_of: impl Fn(&str) -> Option<&'k IssuerKeys>) -> Self {
        let mut now = self.clone();
        now.anchors.retain(|anchor| !anchor.is_fetched);
        for fetched in &self.fetched {
            let keys = keys_of(&fetched.issuer).map(IssuerKeys::keys).unwrap_or_default();
            for key in keys {
                if fetched.algorithms.iter().any(|algorithm| key.key.fits(algorithm)) {
                    let mut anchor = fetched.with(key);
                    anchor.key.prepare();
                    now.anchors.push(anchor);
                }
            }
        }
        now
    }

    /// Whether the subjects of a known issuer are principals, and at which other issuers they are the same ones.
    pub fn principals_of(&self, issuer: &str) -> Option<(bool, &[String])> {
        let configured = self.of_issuer(issuer).next();
        let configured = configured.map(|anchor| (anchor.asserts_subjects, anchor.same_principals.as_slice()));
        configured.or_else(|| {
            let fetched = self.fetched.iter().find(|fetched| fetched.issuer == issuer)?;
            Some((fetched.asserts_subjects, fetched.same_principals.as_slice()))
        })
    }

    /// What the access tokens of each issuer grant, in the configured order.
    pub fn access_tokens(&self) -> Vec<(&str, &AccessTokens)> {
        let listed = self.access_tokens.iter();
        listed.map(|(issuer, tokens)| (issuer.as_str(), &**tokens)).collect()
    }

    /// The anchors of one issuer.
    pub fn of_issuer(&self, issuer: &str) -> impl Iterator<Item = &TrustAnchor> {
        self.anchors.iter().filter(move |anchor| anchor.issuer == issuer)
    }

    /// The anchors of this issuer whose key may have signed a token with this algorithm and `kid` in its header. They
    /// are few: each costs a signature check, which an unknown caller can cause.
    ///
    /// A `kid` only selects among the configured keys. If no key has this `kid`, the keys without one remain.
    ///
    /// # Errors
    /// The step at which a root token without a candidate fails: 3k for an issuer without anchors, otherwise 3a or 3b.
    pub(crate) fn candidates(
        &self,
        issuer: Option<&str>,
        token_type: TokenType,
        algorithm: Algorithm,
        key_id: Option<&str>,
    ) -> Result<Vec<&TrustAnchor>, Denial> {
        let mut candidates: Vec<_> = issuer
            .map(|issuer| self.of_issuer(issuer).collect())
            .unwrap_or_default();
        let is_known = !candidates.is_empty();
        if !is_known && self.fetched.iter().any(|fetched| Some(&*fetched.issuer) == issuer) {
            return Err(Step::S3b.deny(Cause::KeysUnavailable));
        }
        candidates.retain(|anchor| anchor.accepts(token_type));
        if candidates.is_empty() {
            let counts_nowhere = token_type != TokenType::Delegation && self.access_tokens.is_empty();
            return Err(if is_known || counts_nowhere {
                Step::S3a.deny(Cause::WrongType {
                    expected: self.expected_type(issuer),
                })
            } else {
                Step::S3k.deny(Cause::IssuerUnknown)
            });
        }
        let is_for_access_tokens = algorithm.key_type() == KeyType::Rsa;
        let fits = token_type != TokenType::Delegation || !is_for_access_tokens;
        candidates.retain(|anchor| fits && anchor.allows(algorithm));
        if candidates.is_empty() {
            return Err(Step::S3a.deny(Cause::AlgorithmNotAllowed));
        }
        if key_id.is_some() {
            let is_named = candidates.iter().any(|anchor| anchor.key_id.as_deref() == key_id);
            let wanted = key_id.filter(|_| is_named);
            candidates.retain(|anchor| anchor.key_id.as_deref() == wanted);
        }
        let (keys, limit) = (candidates.len(), algorithm.key_type().most_tried());
        match keys {
            0 => Err(Step::S3b.deny(Cause::KeyUnknown)),
            _ if keys > limit && !self.tries_all => Err(Step::S3b.deny(Cause::KeyNotNamed { keys, limit })),
            _ => Ok(candidates),
        }
    }

    /// The media types of an issuer's tokens, for an error.
    fn expected_type(&self, issuer: Option<&str>) -> &'static str {
        let mut listed = self.access_tokens.iter();
        match listed.find(|(name, _)| Some(&**name) == issuer) {
            Some((_, tokens)) if tokens.untyped => "at+jwt or JWT",
            Some(_) => "at+jwt (or set access_tokens.typ: JWT)",
            None => token::TYP,
        }
    }

    /// A digest of the configured anchors, independent of their order: SHA-256 over all that is configured of each. Keys
    /// that were fetched are not part of it.
    pub fn digest(&self) -> [u8; 32] {
        let configured = self.anchors.iter().filter(|anchor| !anchor.is_fetched);
        let fetched = self.fetched.iter().map(|fetched| Sha256::digest(fetched.text()).into());
        let mut anchors: Vec<[u8; 32]> = configured.map(TrustAnchor::fingerprint).chain(fetched).collect();
        sort(&mut anchors);
        anchors.dedup();
        Sha256::digest(anchors.as_flattened()).into()
    }

    /// All anchors that have a key.
    pub fn iter(&self) -> impl Iterator<Item = &TrustAnchor> {
        self.anchors.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::{Chain, VerificationContext};
    use crate::denial::Cause;
    use crate::jws::{self, checks};
    use crate::key::{KeyType, SigningKey, Thumbprint};
    use crate::limits::Limits;
    use crate::mint::{self, Grant, RootGrant};
    use crate::time::UnixTime;
    use crate::value::Value;

    const ISSUER: &str = "https://id.example.com";
    const NOW: UnixTime = UnixTime(1_800_000_000);
    /// The most keys of an issuer.
    const KEYS: u8 = 16;

    fn key(kind: KeyType, number: u8) -> SigningKey {
        SigningKey::from_secret(kind, &[number; 32]).unwrap()
    }

    /// `keys` keys of one kind. Those in the range `unnamed` have no `kid`; the others have their number.
    fn anchors(kind: KeyType, keys: u8, unnamed: std::ops::Range<u8>) -> TrustAnchors {
        TrustAnchors::new((0..keys).map(|number| TrustAnchor {
            issuer: ISSUER.to_owned(),
            key: key(kind, number + 1).public(),
            key_id: (!unnamed.contains(&number)).then(|| number.to_string()),
            algorithms: Algorithms::all(),
            asserts_subjects: false,
            delegations: true,
            access_tokens: None,
            same_principals: Vec::new(),
            is_fetched: false,
        }))
    }

    /// A root that this key has signed.
    fn root(signer: &SigningKey, key_id: Option<u8>) -> String {
        let grant = RootGrant {
            issuer: ISSUER.to_owned(),
            subject: None,
            epoch: None,
            agent_name: None,
            grant: Grant {
                id: "root".to_owned(),
                issued_at: NOW,
                expires_at: NOW.plus(60),
                holder: key(KeyType::Ed25519, 99).public(),
                holder_certificate: None,
                holder_spiffe_id: None,
                max_depth: 0,
                tools: Value::object([("read".to_owned(), Value::object([]))]),
                audience: Vec::new(),
            },
        };
        let token = mint::root(&grant, signer, &Limits::default()).unwrap();
        let claims = token.split('.').nth(1).unwrap();
        let key_id = key_id.map_or_else(String::new, |id| format!(r#","kid":"{id}""#));
        let header = format!(r#"{{"alg":"{}","typ":"aat+jwt"{key_id}}}"#, signer.algorithm());
        jws::tests::signed(signer, &header, claims)
    }

    /// The key that signed the token, or why the token is refused, and the number of checked signatures.
    fn verdict(token: &str, anchors: &TrustAnchors) -> (Result<Thumbprint, Cause>, usize) {
        let limits = Limits::default();
        let context = VerificationContext {
            anchors,
            holder_algorithms: &Algorithms::default(),
            limits: &limits,
            now: NOW,
            hot_keys: None,
        };
        checks::take();
        let verified = Chain::parse_joined(token, &limits).unwrap().verify(&context);
        let signer = verified.map(|chain| chain.anchor()).map_err(|denial| denial.cause);
        (signer, checks::take())
    }

    #[test]
    fn a_root_that_names_no_key_is_checked_against_few_keys() {
        for kind in KeyType::ALL {
            let most = kind.most_tried();
            let limit = u8::try_from(most).unwrap();
            let forged = root(&key(kind, 77), None);
            for named_from in [0, KEYS] {
                // The limit of tried keys: the last one's signature is found.
                let few = anchors(kind, limit, 0..named_from);
                let last = key(kind, limit);
                assert_eq!(
                    verdict(&root(&last, None), &few),
                    (Ok(last.public().thumbprint()), most),
                    "{kind}"
                );
                assert_eq!(verdict(&forged, &few), (Err(Cause::SignatureInvalid), most), "{kind}");
                // One more, and none is tried.
                for keys in [limit + 1, KEYS] {
                    let many = anchors(kind, keys, 0..named_from);
                    let not_named = Err(Cause::KeyNotNamed {
                        keys: usize::from(keys),
                        limit: most,
                    });
                    assert_eq!(verdict(&forged, &many), (not_named.clone(), 0), "{kind}");
                    assert_eq!(verdict(&root(&key(kind, 1), None), &many), (not_named, 0), "{kind}");
                }
            }
        }
    }

    #[test]
    fn a_root_that_names_its_key_is_checked_against_only_that_key() {
        for kind in KeyType::ALL {
            // One of them has no `kid`.
            let set = anchors(kind, KEYS, 3..4);
            for number in (0..KEYS).filter(|number| *number != 3) {
                let signer = key(kind, number + 1);
                let named = root(&signer, Some(number));
                assert_eq!(verdict(&named, &set), (Ok(signer.public().thumbprint()), 1), "{kind}");
                let forged = root(&key(kind, 77), Some(number));
                assert_eq!(verdict(&forged, &set), (Err(Cause::SignatureInvalid), 1), "{kind}");
            }
            // If no key has the `kid`, the one without a `kid` remains.
            let other = root(&key(kind, 4), Some(200));
            assert_eq!(
                verdict(&other, &set),
                (Ok(key(kind, 4).public().thumbprint()), 1),
                "{kind}"
            );
        }
    }

    #[test]
    fn keys_of_other_kinds_do_not_count() {
        let of_every_kind = KeyType::ALL
            .into_iter()
            .flat_map(|kind| anchors(kind, 1, 0..1).anchors)
            .collect::<Vec<_>>();
        let anchors = TrustAnchors::new(of_every_kind);
        for kind in KeyType::ALL {
            let signer = key(kind, 1);
            assert_eq!(
                verdict(&root(&signer, None), &anchors),
                (Ok(signer.public().thumbprint()), 1),
                "{kind}"
            );
        }
    }
}
