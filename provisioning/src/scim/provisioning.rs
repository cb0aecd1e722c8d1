//! Users are created, changed and deleted, and with them the authority granted in their names.
//!
//! | change of the user | change of the principal, made first |
//! |---|---|
//! | created active; becomes active | enabled: only what provisioning disabled is enabled |
//! | created not active; becomes or stays not active | disabled |
//! | deleted | disabled |
//! | the user's subject changes | the old one is disabled; the new one is enabled, or disabled with the user |
//!
//! The revocation precedes the stored change. If it is refused, the user stays unchanged, and the provider gets an
//! error. After a crash between the two, the provider has had no answer. When it repeats its request, the revocation is
//! repeated too, without effect, and the change is stored.

use std::sync::Arc;
use std::time::{Duration, Instant};

use credence_delegation::json::Object;
use http::StatusCode;
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::error::ScimError;
use super::filter::Filter;
use super::store::{Store, StoreError};
use super::user::{User, is_active, read_attributes};
use super::value::{Members, Value, text};
use super::{patch, schema};
use crate::metrics::Metrics;
use crate::settings::{ScimSettings, ScimSubject};
use credence_revocation::{Operation, Order, PrincipalName, Requester, RevocationLog, RevokeError, Source};
use credence_runtime::caller::Caller;
use credence_runtime::client_limits::Client;
use credence_runtime::metrics::{count, labels};
use credence_runtime::text::random_hex;
use credence_runtime::turns::Turns;

/// The state behind SCIM's routes.
#[derive(Debug)]
pub struct Provisioning {
    realms: Vec<Arc<Realm>>,
    store: Arc<Store>,
    log: RevocationLog,
    metrics: Arc<Metrics>,
    /// Limits concurrent searches through all users.
    searches: Turns,
    search_timeout: Duration,
}

/// The users of one identity provider.
#[derive(Debug)]
pub struct Realm {
    settings: ScimSettings,
    /// Held while a user is changed, because the state that a change depends on must not change meanwhile.
    changing: Arc<Mutex<()>>,
}

/// Why a request was refused.
#[derive(Debug)]
pub enum Refused {
    Scim(ScimError),
    /// The revocation before the change was refused.
    Revocation(RevokeError),
}

/// A query for a page of users.
#[derive(Debug, Default)]
pub struct Query {
    pub filter: Option<Filter>,
    /// The first user to show, from 1.
    pub start: usize,
    pub count: usize,
}

/// A page of users.
#[derive(Debug)]
pub struct Found {
    pub users: Vec<Members>,
    /// The number of users on all pages.
    pub total: u64,
}

/// The condition of `If-Match`.
#[derive(Debug, Clone, Default)]
pub struct IfMatch(pub Option<Vec<String>>);

// === impl Provisioning ===

impl Provisioning {
    pub(crate) fn new(
        settings: &[ScimSettings],
        store: Store,
        log: RevocationLog,
        metrics: Arc<Metrics>,
        search_timeout: Duration,
    ) -> Self {
        let realms = settings.iter().map(|settings| {
            Arc::new(Realm {
                settings: settings.clone(),
                changing: Arc::default(),
            })
        });
        let provisioning = Self {
            realms: realms.collect(),
            store: Arc::new(store),
            log,
            metrics,
            searches: Turns::new(MAX_SEARCHES, SEARCH_SHARE_PERCENT),
            search_timeout,
        };
        for realm in &provisioning.realms {
            provisioning.report(realm.name());
        }
        provisioning
    }

    /// The realm of the credential.
    pub fn realm_of(&self, caller: &Caller) -> Result<&Arc<Realm>, ScimError> {
        let realm = self
            .realms
            .iter()
            .find(|realm| realm.settings.credentials.contains(&caller.name));
        let forbidden =
            |why: &str| ScimError::new(StatusCode::FORBIDDEN, format!("the credential {:?} {why}", caller.name));
        match realm {
            None => Err(forbidden("belongs to no realm; name it in scim: credentials")),
            Some(realm) if !caller.covers(&realm.settings.issuer) => Err(forbidden(
                "is bound to other issuers than its realm's (access: issuers)",
            )),
            Some(realm) => Ok(realm),
        }
    }

    pub async fn user(&self, realm: &Realm, id: &str) -> Result<User, ScimError> {
        let name = realm.name().to_owned();
        let wanted = id.to_owned();
        self.reading(move |store| store.user(&name, &wanted))
            .await?
            .ok_or_else(|| {
                let detail = format!("this realm has no user with the id {id:?}; users must be created here first");
                ScimError::new(StatusCode::NOT_FOUND, detail)
            })
    }

    pub async fn search(&self, realm: &Realm, query: Query) -> Result<Found, ScimError> {
        // Searches of the same realm wait for each other.
        let _turn = self.searches.take(&Client::new(Some(realm.name()), None), 1).await;
        let name = realm.name().to_owned();
        let until = Instant::now() + self.search_timeout;
        self.reading(move |store| search(store, &name, &query, until))
            .await?
            .ok_or_else(|| {
                ScimError::bad(
                    "tooMany",
                    "searching all users takes too long; filter by userName, externalId or id with eq",
                )
            })
    }

    pub async fn create(self: &Arc<Self>, realm: &Arc<Realm>, body: &Object<'_>) -> Result<User, Refused> {
        let mut attributes = read_attributes(body)?;
        if !attributes.contains_key("active") {
            attributes.insert("active".to_owned(), Value::Bool(true));
        }
        require_user_name(&attributes)?;
        let id = new_id().map_err(|error| unavailable(format!("no randomness for the user's id: {error}")))?;
        let subject = realm.subject(&id, &attributes)?;
        let user = User::new(id, attributes, subject);
        let changing = Arc::clone(&realm.changing).lock_owned().await;
        self.carry_out(realm, changing, None, Some(user), "created").await
    }

    /// PUT (RFC 7644 section 3.5.1). Attributes that are left out lose their value, except `active`: no omission
    /// activates or deactivates a user.
    pub async fn replace(
        self: &Arc<Self>,
        realm: &Arc<Realm>,
        id: &str,
        if_match: &IfMatch,
        body: &Object<'_>,
    ) -> Result<User, Refused> {
        let mut attributes = read_attributes(body)?;
        self.change(realm, id, if_match, |before| {
            if !attributes.contains_key("active")
                && let Some(active) = before.get("active")
            {
                attributes.insert("active".to_owned(), active.clone());
            }
            Ok(attributes)
        })
        .await
    }

    pub async fn patch(
        self: &Arc<Self>,
        realm: &Arc<Realm>,
        id: &str,
        if_match: &IfMatch,
        body: &Object<'_>,
    ) -> Result<User, Refused> {
        self.change(realm, id, if_match, |before| {
            let mut attributes = before.clone();
            patch::apply(&mut attributes, body)?;
            Ok(attributes)
        })
        .await
    }

    pub async fn delete(self: &Arc<Self>, realm: &Arc<Realm>, id: &str, if_match: &IfMatch) -> Result<(), Refused> {
        let changing = Arc::clone(&realm.changing).lock_owned().await;
        let before = self.user(realm, id).await?;
        if_match.check(&before)?;
        self.carry_out(realm, changing, Some(before), None, "deleted").await?;
        Ok(())
    }

    async fn change(
        self: &Arc<Self>,
        realm: &Arc<Realm>,
        id: &str,
        if_match: &IfMatch,
        changed: impl FnOnce(&Members) -> Result<Members, ScimError>,
    ) -> Result<User, Refused> {
        let changing = Arc::clone(&realm.changing).lock_owned().await;
        let before = self.user(realm, id).await?;
        if_match.check(&before)?;
        let attributes = changed(&before.attributes)?;
        require_user_name(&attributes)?;
        let subject = realm.subject(id, &attributes)?;
        let after = before.changed(attributes, subject);
        self.carry_out(realm, changing, Some(before), Some(after), "updated")
            .await
    }

    /// Revokes or enables, then stores. Continues even if the caller no longer waits for the answer.
    async fn carry_out(
        self: &Arc<Self>,
        realm: &Arc<Realm>,
        changing: OwnedMutexGuard<()>,
        before: Option<User>,
        after: Option<User>,
        change: &'static str,
    ) -> Result<User, Refused> {
        let (this, realm) = (Arc::clone(self), Arc::clone(realm));
        let work = async move {
            let _changing = changing;
            if let Some(after) = &after {
                let (realm, after) = (realm.name().to_owned(), after.clone());
                this.reading(move |store| store.check(&realm, &after)).await?;
            }
            for operation in realm.operations(before.as_ref(), after.as_ref())? {
                this.perform(&realm, operation).await?;
            }
            let (name, shown) = (realm.name().to_owned(), after.clone().or_else(|| before.clone()));
            this.reading(move |store| match (before, after) {
                (_, Some(after)) => store.put(&name, &after),
                (Some(before), None) => store.remove(&name, &before.id),
                (None, None) => Ok(()),
            })
            .await?;
            let pairs = [("realm", realm.name()), ("change", change)];
            count(&this.metrics.scim_changes, pairs);
            this.report(realm.name());
            shown.ok_or_else(|| Refused::Scim(unavailable("nothing was to be done")))
        };
        tokio::spawn(work).await.unwrap_or_else(|_| {
            Err(Refused::Scim(unavailable(
                "the request failed unexpectedly; send it again",
            )))
        })
    }

    async fn perform(&self, realm: &Realm, operation: Operation) -> Result<(), Refused> {
        let order = Order {
            operation,
            by: Requester {
                source: Source::Provisioning,
                name: realm.name().to_owned(),
            },
            reason: None,
        };
        self.log.perform(order).await.map(drop).map_err(Refused::Revocation)
    }

    /// Runs on a thread that may wait for the disk.
    async fn reading<T: Send + 'static, E: Into<StoreError> + Send + 'static>(
        &self,
        work: impl FnOnce(&Store) -> Result<T, E> + Send + 'static,
    ) -> Result<T, ScimError> {
        let store = Arc::clone(&self.store);
        tokio::task::spawn_blocking(move || work(&store))
            .await
            .map_err(|_| unavailable("the request failed unexpectedly; send it again"))?
            .map_err(|error| ScimError::from(error.into()))
    }

    fn report(&self, realm: &str) {
        if let Ok(count) = self.store.count(realm) {
            self.metrics
                .scim_users
                .get_or_create(&labels([("realm", realm)]))
                .set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}

/// None if the time is up.
fn search(store: &Store, realm: &str, query: &Query, until: Instant) -> Result<Option<Found>, redb::Error> {
    let skip = query.start.saturating_sub(1);
    let Some(filter) = &query.filter else {
        let users = store.page(realm, skip, query.count)?;
        return Ok(Some(Found {
            users: users.iter().map(User::resource).collect(),
            total: store.count(realm)?,
        }));
    };
    let mut found = Found {
        users: Vec::new(),
        total: 0,
    };
    let mut consider = |user: User| {
        let resource = user.resource();
        if filter.matches(&resource) {
            found.total += 1;
            if found.total > skip as u64 && found.users.len() < query.count {
                found.users.push(resource);
            }
        }
    };
    match filter.indexed() {
        Some(key) => {
            for id in store.find(realm, key)? {
                if let Some(user) = store.user(realm, &id)? {
                    consider(user);
                }
            }
        }
        None => {
            let were_all = store.each(realm, |user| {
                consider(user);
                Instant::now() < until
            })?;
            if !were_all {
                return Ok(None);
            }
        }
    }
    Ok(Some(found))
}

// === impl Realm ===

impl Realm {
    pub(crate) fn name(&self) -> &str {
        &self.settings.name
    }

    /// The operations that must precede the change of the user's record.
    fn operations(&self, before: Option<&User>, after: Option<&User>) -> Result<Vec<Operation>, ScimError> {
        let mut operations = Vec::new();
        let old = before.and_then(|user| user.subject.as_deref());
        // Tokens carry the subject that is configured now, which may differ from that of the last change.
        if let (Some(before), None) = (before, after)
            && let Ok(Some(present)) = self.subject(&before.id, &before.attributes)
            && Some(present.as_str()) != old
        {
            operations.push(Operation::Disable(self.principal(&present)?));
        }
        let new = after.and_then(|user| user.subject.as_deref());
        if let Some(old) = old
            && Some(old) != new
        {
            operations.push(Operation::Disable(self.principal(old)?));
        }
        if let (Some(after), Some(new)) = (after, new) {
            let was_in_force = before.is_some_and(|before| is_active(&before.attributes)) && old == Some(new);
            if !is_active(&after.attributes) {
                // Repeated even if it was done before: the answer may have been lost with the change that it
                // acknowledged.
                operations.push(Operation::Disable(self.principal(new)?));
            } else if !was_in_force {
                operations.push(Operation::Enable(self.principal(new)?));
            }
        }
        Ok(operations)
    }

    fn principal(&self, subject: &str) -> Result<PrincipalName, ScimError> {
        PrincipalName::parse(self.settings.issuer.clone(), Some(subject.to_owned())).map_err(|error| {
            ScimError::invalid_value(format!(
                "{}, which this realm names principals by: {error}",
                self.settings.subject.name()
            ))
        })
    }

    /// The principal's subject of the user. An active user without one could never be disabled.
    fn subject(&self, id: &str, attributes: &Members) -> Result<Option<String>, ScimError> {
        let subject = match self.settings.subject {
            ScimSubject::Id => Some(id),
            ScimSubject::UserName => text(attributes, "userName"),
            ScimSubject::ExternalId => text(attributes, "externalId"),
            ScimSubject::PrimaryEmail => primary_email(attributes),
        };
        match subject {
            Some(subject) => {
                self.principal(subject)?;
                Ok(Some(subject.to_owned()))
            }
            None if is_active(attributes) => Err(ScimError::invalid_value(format!(
                "an active user needs {}: this realm names principals by it",
                self.settings.subject.name()
            ))),
            None => Ok(None),
        }
    }
}

/// The primary e-mail address, or the only one.
fn primary_email(attributes: &Members) -> Option<&str> {
    let emails = attributes.get("emails")?.each();
    let primary = emails.iter().find(|email| schema::is_primary(email));
    let only = match emails {
        [only] => Some(only),
        _ => None,
    };
    text(primary.or(only)?.as_complex()?, "value")
}

fn require_user_name(attributes: &Members) -> Result<(), ScimError> {
    match text(attributes, "userName") {
        Some(name) if !name.trim().is_empty() => Ok(()),
        _ => Err(ScimError::invalid_value("a user needs a userName")),
    }
}

/// Twelve digits of the time, so that users are listed in the order of their creation, then random digits.
fn new_id() -> std::io::Result<String> {
    let millis = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_millis());
    let random = random_hex()?;
    Ok(format!(
        "{:012x}{}",
        millis & 0xffff_ffff_ffff,
        random.get(..20).unwrap_or(&random)
    ))
}

fn unavailable(detail: impl Into<String>) -> ScimError {
    ScimError::new(StatusCode::SERVICE_UNAVAILABLE, detail)
}

// === impl IfMatch ===

impl IfMatch {
    fn check(&self, user: &User) -> Result<(), ScimError> {
        match &self.0 {
            Some(tags) if !tags.iter().any(|tag| tag == "*" || *tag == user.etag()) => {
                let detail = "the user has another version than If-Match names; read it again";
                Err(ScimError::new(StatusCode::PRECONDITION_FAILED, detail))
            }
            _ => Ok(()),
        }
    }
}

// === impl Refused ===

impl From<ScimError> for Refused {
    fn from(error: ScimError) -> Self {
        Self::Scim(error)
    }
}

// === impl ScimError: from the store ===

impl From<StoreError> for ScimError {
    fn from(error: StoreError) -> Self {
        let detail = error.to_string();
        match error {
            StoreError::Taken { .. } => Self {
                status: StatusCode::CONFLICT,
                ..Self::bad("uniqueness", detail)
            },
            StoreError::TooLarge { .. } => Self::new(StatusCode::PAYLOAD_TOO_LARGE, detail),
            StoreError::Full { .. } => Self::new(StatusCode::INSUFFICIENT_STORAGE, detail),
            StoreError::Database(_) => {
                tracing::error!(%error, "a SCIM request failed");
                Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
            }
        }
    }
}

const MAX_SEARCHES: u32 = 4;
/// The share of one realm.
const SEARCH_SHARE_PERCENT: u8 = 50;
