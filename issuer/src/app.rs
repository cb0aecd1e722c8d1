//! What every request needs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use credence_runtime::client_limits::Network;
use credence_runtime::outbound;
use credence_runtime::rates::RateTable;
use credence_runtime::time::unix_seconds;
use credence_server::Peer;
use uuid::Uuid;

use crate::clients::ClientDirectory;
use crate::grants::{Grant, Grants};
use crate::key_ring::KeyRing;
use crate::memory::Memory;
use crate::metrics::Metrics;
use crate::plane::{Epochs, Facts, Plane, PlaneError};
use crate::policy::{Offer, Policy};
use crate::request::AuthorizationRequest;
use crate::sign_in::{IdentityProvider, Pending, Person};
use crate::store::Store;
use crate::tools::Tools;
use crate::words::Descriptions;

#[derive(Debug)]
pub(crate) struct App {
    /// When the process started.
    pub(crate) started_at: u64,
    /// Whether its port asks for client certificates.
    pub(crate) has_certificates: bool,
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
    /// As of the sign-in. `None`: the person was disabled, or the control plane did not answer.
    pub(crate) epochs: Option<Epochs>,
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

    /// The epochs of a person who may delegate. `None` if they may not: they are disabled.
    pub(crate) async fn epochs(&self, subject: &str) -> Result<Option<Epochs>, PlaneError> {
        let (own, provider) = tokio::try_join!(
            self.plane.principal(&self.url, subject),
            self.plane.principal(&self.provider_url, subject),
        )?;
        let epochs = Epochs {
            own: own.epoch,
            provider: provider.epoch,
        };
        Ok((!own.disabled && !provider.disabled).then_some(epochs))
    }

    /// Whether nothing has revoked a grant, one of its tokens, or one of these keys since the person gave it.
    pub(crate) async fn still_counts(&self, id: Uuid, grant: &Grant, keys: Vec<String>) -> Result<bool, PlaneError> {
        let tokens = grant.live.iter().map(|token| Grant::token_id(id, token.number));
        let facts = Facts {
            issuer: self.url.clone(),
            subject: grant.subject.clone(),
            epoch: grant.epochs.own,
            // In the future: what is revoked up to a time are tokens, not grants.
            issued_at: now().saturating_add(86_400),
            ids: tokens.chain([id.to_string()]).collect(),
            keys,
        };
        let (epochs, is_revoked) = tokio::try_join!(self.epochs(&grant.subject), self.plane.is_revoked(facts))?;
        Ok(epochs == Some(grant.epochs) && !is_revoked)
    }
}

// === impl Person ===

impl Person {
    /// How the pages call them.
    pub(crate) fn shown(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.subject)
    }
}

pub(crate) fn network(peer: &Peer) -> Network {
    Network::of(peer.address.ip())
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
