//! The narrower delegations that the proxy derives for its clients.

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use credence_delegation::mint::Grant;
use credence_delegation::{HeldChain, Limits, UnixTime, Value};
use uuid::Uuid;

use crate::clock::now;
use crate::credential::{Authority, Held};
use crate::signer::{Signer, SignerError};

/// What is derived for one client.
#[derive(Debug)]
pub(crate) struct Derived {
    tools: Value,
    signer: Signer,
    latest: Mutex<Option<Latest>>,
}

#[derive(Debug, Clone)]
struct Latest {
    /// What it was derived from.
    parent: String,
    renew_at: UnixTime,
    held: Arc<Held>,
}

// === impl Derived ===

impl Derived {
    /// Narrower delegations with these tools, held by a key of their own.
    pub(crate) fn new(tools: Value) -> Result<Self, SignerError> {
        Ok(Self {
            tools,
            signer: Signer::generate()?,
            latest: Mutex::default(),
        })
    }

    /// A delegation below this one, or this one if nothing can be derived from it. The proxy checks the tools itself, too.
    pub(crate) async fn from(&self, parent: &Arc<Held>) -> Arc<Held> {
        let Authority::Delegation(chain) = &parent.authority else {
            return Arc::clone(parent);
        };
        let now = now();
        let known = self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(known) = known
            && known.parent == chain.joined()
            && now < known.renew_at
        {
            return known.held;
        }
        if chain.depth_left() == 0 || chain.expires_at() <= now {
            return Arc::clone(parent);
        }
        let held = match self.derive(chain, &parent.signer, now).await {
            Ok(held) => Arc::new(held),
            Err(error) => {
                tracing::warn!(%error, "nothing can be derived for a client, which gets less than its `tools`");
                Arc::clone(parent)
            }
        };
        let left = now.distance(held.expires_at());
        let latest = Latest {
            parent: chain.joined().to_owned(),
            renew_at: now.plus((left / 3 * 2).max(1)),
            held: Arc::clone(&held),
        };
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(latest);
        held
    }

    async fn derive(
        &self,
        parent: &HeldChain,
        signer: &Signer,
        now: UnixTime,
    ) -> Result<Held, Box<dyn Error + Send + Sync>> {
        let grant = Grant {
            id: Uuid::now_v7().to_string(),
            issued_at: now.max(parent.issued_at()),
            expires_at: now.plus(LIFE.as_secs()).min(parent.expires_at()),
            holder: self.signer.public(),
            holder_certificate: None,
            holder_spiffe_id: None,
            audience: Vec::new(),
            max_depth: parent.depth().saturating_add(1),
            tools: self.tools.clone(),
        };
        let unsigned = parent.derivation(&grant, &Limits::WIDEST)?;
        let token = signer.sign(&unsigned).await?;
        Ok(Held {
            authority: Authority::Delegation(Box::new(parent.with(&token, now, &Limits::WIDEST)?)),
            signer: self.signer.clone(),
        })
    }
}

/// At most.
const LIFE: Duration = Duration::from_secs(600);
