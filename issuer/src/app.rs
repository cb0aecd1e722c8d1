//! What every request needs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use credence_runtime::client_limits::Network;
use credence_runtime::outbound;
use credence_runtime::rates::RateTable;
use credence_runtime::time::unix_seconds;
use credence_server::Peer;

use crate::clients::ClientDirectory;
use crate::grants::{Grant, Grants};
use crate::key_ring::KeyRing;
use crate::memory::Memory;
use crate::metrics::Metrics;
use crate::plane::{Plane, PlaneError, PrincipalState};
use crate::policy::{Offer, Policy};
use crate::request::AuthorizationRequest;
use crate::sign_in::{IdentityProvider, Pending, Person};
use crate::store::Store;
use crate::tools::Tools;
use crate::words::Descriptions;

#[derive(Debug)]
pub(crate) struct App {
    /// The issuer's URL, and its identity provider's.
    pub(crate) url: String,
    pub(crate) provider_url: String,
    pub(crate) policy: Policy,
    pub(crate) scopes: BTreeMap<String, Tools>,
    pub(crate) descriptions: Descriptions,
    pub(crate) grants_per_person: usize,
    pub(crate) clients: ClientDirectory,
    pub(crate) provider: IdentityProvider,
    pub(crate) plane: Plane,
    pub(crate) store: Store,
    pub(crate) grants: Grants,
    pub(crate) keys: Arc<KeyRing>,
    /// Pushed requests, by `request_uri`.
    pub(crate) pushed: Memory<Arc<AuthorizationRequest>>,
    /// People who are at their provider, by `state`.
    pub(crate) sign_ins: Memory<Arc<SignIn>>,
    /// Signed-in browsers, by cookie.
    pub(crate) sessions: Memory<Arc<Session>>,
    /// Requests that wait for a person's decision, by a field of the form.
    pub(crate) consents: Memory<Arc<Consent>>,
    /// Ids of clients' assertions and DPoP proofs that were used.
    pub(crate) used_ids: Memory<()>,
    pub(crate) trusted_proxies: Vec<outbound::Network>,
    pub(crate) rates: RateTable<Network>,
    pub(crate) metrics: Metrics,
}

/// A person who is at the provider.
#[derive(Debug)]
pub(crate) struct SignIn {
    pub(crate) pending: Pending,
    /// The cookie of the browser that left.
    pub(crate) browser: String,
    pub(crate) next: Next,
}

/// Where a person wanted to go.
#[derive(Debug, Clone)]
pub(crate) enum Next {
    Grants,
    Consent {
        request: Arc<AuthorizationRequest>,
        /// Whether this sign-in is the one that the policy demands.
        is_demanded: bool,
    },
}

/// A signed-in browser.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) person: Person,
    /// In every form of this session.
    pub(crate) form: String,
}

/// A request that waits for a person's decision.
#[derive(Debug)]
pub(crate) struct Consent {
    pub(crate) request: Arc<AuthorizationRequest>,
    pub(crate) offer: Offer,
    /// The cookie of the session that may decide.
    pub(crate) session: String,
}

// === impl App ===

impl App {
    pub(crate) fn endpoint(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    /// The epoch of a person who may delegate. `None` if they may not: they are disabled.
    pub(crate) async fn epoch(&self, subject: &str) -> Result<Option<u64>, PlaneError> {
        let (own, provider) = self.states(subject).await?;
        Ok((!own.disabled && !provider.disabled).then_some(own.epoch))
    }

    /// Whether nothing has revoked a grant since the person gave it.
    pub(crate) async fn still_counts(&self, grant: &Grant) -> Result<bool, PlaneError> {
        let (own, provider) = self.states(&grant.subject).await?;
        let is_after = |state: &PrincipalState| state.raised_at.is_none_or(|raised| raised < grant.granted_at);
        Ok(!own.disabled && !provider.disabled && own.epoch == grant.epoch && is_after(&provider))
    }

    /// The state of a person as this issuer's principal, and as the provider's.
    async fn states(&self, subject: &str) -> Result<(PrincipalState, PrincipalState), PlaneError> {
        tokio::try_join!(
            self.plane.principal(&self.url, subject),
            self.plane.principal(&self.provider_url, subject),
        )
    }
}

// === impl Person ===

impl Person {
    /// How the pages call them.
    pub(crate) fn shown(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.subject)
    }
}

pub(crate) fn network(peer: &Peer) -> Option<Network> {
    Some(Network::of(peer.address.ip()))
}

pub(crate) fn now() -> u64 {
    u64::try_from(unix_seconds()).unwrap_or_default()
}

pub(crate) const PUSHED_LIFE: Duration = Duration::from_secs(90);
pub(crate) const SIGN_IN_LIFE: Duration = Duration::from_secs(600);
pub(crate) const SESSION_LIFE: Duration = Duration::from_secs(3_600);
pub(crate) const CONSENT_LIFE: Duration = Duration::from_secs(1_800);
/// Assertions and proofs count for at most this long.
pub(crate) const USED_LIFE: Duration = Duration::from_secs(660);
pub(crate) const MAX_PUSHED: usize = 16_384;
pub(crate) const MAX_SIGN_INS: usize = 16_384;
pub(crate) const MAX_SESSIONS: usize = 65_536;
pub(crate) const MAX_CONSENTS: usize = 16_384;
pub(crate) const MAX_USED: usize = 1 << 20;
/// What the name of a pushed request begins with (RFC 9126, section 2.2).
pub(crate) const REQUEST_URI: &str = "urn:ietf:params:oauth:request_uri:";
/// How long a code may be redeemed, in seconds.
pub(crate) const CODE_SECONDS: u64 = 60;
