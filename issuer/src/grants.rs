//! What people have granted, and what became of it.
//!
//! A grant begins with a person's consent. Its code is redeemed once, for the first token and a refresh token; each
//! refresh gives another token. Every change is on disk before its result leaves the process, together with the event
//! that the ledger gets.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use credence_delegation::json::Json;
use credence_runtime::metrics::Counters;
use redb::{Error, ReadableTable, ReadableTableMetadata as _, StorageError, TableDefinition, WriteTransaction};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::events::{self, Ending, Event, Kind};
use crate::plane::Epochs;
use crate::store::{Store, StoreError};
use crate::tools::{Tools, ToolsError};

/// A grant.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Grant {
    pub(crate) subject: String,
    pub(crate) client: String,
    /// What the person read as the client's name, with the host that vouches for it.
    pub(crate) client_name: String,
    /// The `tools` object.
    pub(crate) tools: Box<RawValue>,
    pub(crate) audience: BTreeSet<String>,
    pub(crate) depth: u32,
    pub(crate) bearer: bool,
    /// The longest life of a token, in seconds.
    pub(crate) token_seconds: u32,
    /// The rules that allowed it.
    pub(crate) rules: BTreeSet<String>,
    /// `scope`, as granted.
    pub(crate) scope: Option<String>,
    /// The person's epochs when they consented.
    pub(crate) epochs: Epochs,
    pub(crate) granted_at: u64,
    pub(crate) expires_at: u64,
    pub(crate) code: Code,
    /// The number of the last refresh token, 0 before the first; and when it was first given out.
    pub(crate) refresh: (u32, u64),
    /// The thumbprint of the key that refreshes must prove, if the client has no credential of its own.
    pub(crate) bound_to: Option<String>,
    /// How many tokens were given out.
    pub(crate) tokens: u32,
    /// Those that may still be used.
    pub(crate) live: Vec<LiveToken>,
    pub(crate) withdrawn: Option<Withdrawn>,
}

/// What a client must send to redeem a code.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Code {
    /// SHA-256 of the verifier (RFC 7636), in base64url.
    pub(crate) challenge: String,
    /// The `redirect_uri` that was sent, if one was.
    pub(crate) redirect_uri: Option<String>,
    /// `dpop_jkt` (RFC 9449, section 10).
    pub(crate) dpop_jkt: Option<String>,
    pub(crate) expires_at: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LiveToken {
    pub(crate) number: u32,
    pub(crate) expires_at: u64,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Withdrawn {
    pub(crate) at: u64,
    pub(crate) by: Ending,
    /// Whether the revocation log has all of its tokens.
    pub(crate) is_revoked: bool,
}

/// One token to give out.
#[derive(Debug, Clone)]
pub(crate) struct Issued {
    pub(crate) grant: Grant,
    /// `jti`.
    pub(crate) id: String,
    pub(crate) issued_at: u64,
    pub(crate) expires_at: u64,
    /// The number of the refresh token that comes with it.
    pub(crate) refresh: u32,
}

/// Why a code or a refresh token gives nothing: all of them are `invalid_grant`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("it is unknown or has expired")]
    Unknown,
    #[error("it belongs to another client")]
    OtherClient,
    #[error("the person has taken the grant back, or it was ended")]
    Withdrawn,
    #[error("it was used before, so the grant was ended: someone else may have it")]
    Reused,
    #[error("code_verifier, redirect_uri or the DPoP key is not the one that the code was asked for with")]
    Mismatch,
    #[error("it is bound to another key")]
    OtherKey,
    #[error("too many of the grant's tokens are still valid; try again when one has expired")]
    TooMany,
}

/// What the client presents for a token.
#[derive(Debug, Clone)]
pub(crate) struct Presented {
    pub(crate) grant: Uuid,
    pub(crate) client: String,
    pub(crate) by: Credential,
    /// The thumbprint of the key that the client has proved, if it did.
    pub(crate) proved: Option<String>,
    /// Whether the client has no credential, so that its refresh tokens are bound to its key.
    pub(crate) is_public: bool,
    /// The longest life of a token that policy allows now.
    pub(crate) token_seconds: u32,
    pub(crate) now: u64,
}

#[derive(Debug, Clone)]
pub(crate) enum Credential {
    Code {
        /// SHA-256 of `code_verifier`, in base64url.
        challenge: String,
        redirect_uri: Option<String>,
    },
    /// The refresh token with this number.
    Refresh(u32),
}

/// All grants.
#[derive(Debug, Clone)]
pub(crate) struct Grants {
    store: Store,
    origin: Arc<Origin>,
}

/// What all events have in common.
#[derive(Debug)]
struct Origin {
    /// The issuer of their principals.
    issuer: String,
    counted: Counters<1>,
}

const GRANTS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("grants");
/// The grants of a person, each with its end: 0 if it was taken back.
const BY_SUBJECT: TableDefinition<'_, (&str, &[u8]), u64> = TableDefinition::new("grants_by_subject");
/// When each can be forgotten.
const BY_END: TableDefinition<'_, (u64, &[u8]), ()> = TableDefinition::new("grants_by_end");

// === impl Grant ===

impl Grant {
    pub(crate) fn tools(&self) -> Result<Tools, ToolsError> {
        Tools::parse(&Json::parse(self.tools.get().as_bytes()).map_err(|_| ToolsError::Shape)?)
    }

    /// When it ended, or will.
    fn end(&self) -> u64 {
        self.withdrawn.map_or(self.expires_at, |withdrawn| withdrawn.at)
    }

    /// The `jti` of one of its tokens.
    pub(crate) fn token_id(id: Uuid, number: u32) -> String {
        format!("{id}.{number}")
    }

    /// The grant of a `jti`.
    pub(crate) fn of_token(token_id: &str) -> Option<Uuid> {
        let (grant, number) = token_id.split_once('.')?;
        number.parse::<u32>().ok()?;
        Uuid::parse_str(grant).ok()
    }

    fn event(&self, kind: Kind, issuer: &str, id: Uuid) -> Event {
        let live = self.live.iter().map(|token| Self::token_id(id, token.number));
        let event = Event::about(kind, (issuer, &self.subject), &self.client, Some(&self.tools));
        let mut event = event.of_grant(id, self.expires_at);
        event.delegation_ids = live.collect();
        let rules: Vec<&str> = self.rules.iter().map(String::as_str).collect();
        event.rule = rules.join(" ");
        // Evidence has room for as much. Names are ASCII.
        event.rule.truncate(MAX_NAMES_BYTES);
        event
    }

    /// Checks what is presented, and notes one more token. [`Refusal::Reused`] also ends the grant.
    fn redeem(&mut self, id: Uuid, presented: &Presented) -> Result<Issued, Refusal> {
        let Presented { now, proved, .. } = presented;
        if self.client != presented.client {
            return Err(Refusal::OtherClient);
        }
        if self.withdrawn.is_some() {
            return Err(Refusal::Withdrawn);
        }
        if self.expires_at <= *now {
            return Err(Refusal::Unknown);
        }
        let mut is_repeated = false;
        match &presented.by {
            Credential::Code {
                challenge,
                redirect_uri,
            } => {
                let code = &self.code;
                let has_key = code.dpop_jkt.is_none() || code.dpop_jkt == *proved;
                // First: a thief without the verifier cannot end the grant either.
                if code.challenge != *challenge || code.redirect_uri != *redirect_uri || !has_key {
                    return Err(Refusal::Mismatch);
                }
                if self.tokens > 0 {
                    return Err(Refusal::Reused);
                }
                if code.expires_at <= *now {
                    return Err(Refusal::Unknown);
                }
                if presented.is_public {
                    self.bound_to.clone_from(proved);
                }
            }
            Credential::Refresh(number) => {
                let (last, since) = self.refresh;
                if *number == 0 || *number > last {
                    return Err(Refusal::Unknown);
                }
                // If the answer with the last one was lost, or two were asked for at once, the client sends the one before
                // it again, and gets the last one again.
                is_repeated = number.checked_add(1) == Some(last) && *now <= since.saturating_add(REPEAT_SECONDS);
                if *number != last && !is_repeated {
                    return Err(Refusal::Reused);
                }
                if self.bound_to.is_some() && self.bound_to != *proved {
                    return Err(Refusal::OtherKey);
                }
            }
        }
        self.live.retain(|token| token.expires_at > *now);
        if self.live.len() >= MAX_LIVE {
            return Err(Refusal::TooMany);
        }
        let seconds = self.token_seconds.min(presented.token_seconds);
        let expires_at = self.expires_at.min(now.saturating_add(seconds.into()));
        if !is_repeated {
            self.refresh = (self.refresh.0.saturating_add(1), *now);
        }
        self.tokens = self.tokens.saturating_add(1);
        let number = self.tokens;
        self.live.push(LiveToken { number, expires_at });
        Ok(Issued {
            grant: self.clone(),
            id: Self::token_id(id, number),
            issued_at: *now,
            expires_at,
            refresh: self.refresh.0,
        })
    }
}

/// Evidence and the state of a chain have room for nine ids: these, and the grant's.
const MAX_LIVE: usize = 8;
/// How long a refresh token may be sent again after its use.
const REPEAT_SECONDS: u64 = 60;

// === impl Grants ===

impl Grants {
    /// `counted` counts the events.
    pub(crate) fn new(store: Store, issuer: &str, counted: Counters<1>) -> Self {
        let issuer = issuer.to_owned();
        let origin = Arc::new(Origin { issuer, counted });
        Self { store, origin }
    }

    pub(crate) fn prepare(transaction: &WriteTransaction) -> Result<(), Error> {
        transaction.open_table(GRANTS)?;
        transaction.open_table(BY_SUBJECT)?;
        transaction.open_table(BY_END)?;
        transaction.open_table(UNREVOKED)?;
        Ok(())
    }

    /// Stores a grant. `false`: the person has too many already, and must take some back first.
    pub(crate) async fn begin(&self, id: Uuid, grant: Grant, most: usize) -> Result<bool, StoreError> {
        let origin = Arc::clone(&self.origin);
        self.store
            .change(move |transaction| {
                let (live, ended) = of_person(&transaction.open_table(BY_SUBJECT)?, &grant.subject, grant.granted_at)?;
                if live.len() >= most {
                    return Ok(false);
                }
                // Not one with tokens that still have to be revoked.
                let is_done = |id: &Uuid| match find(transaction, *id) {
                    Ok(Some(grant)) => grant.withdrawn.is_none_or(|withdrawn| withdrawn.is_revoked),
                    _ => true,
                };
                if ended.len() >= MAX_ENDED
                    && let Some(oldest) = ended.into_iter().find(is_done)
                {
                    remove(transaction, oldest)?;
                }
                put(transaction, id, &grant)?;
                transaction
                    .open_table(BY_SUBJECT)?
                    .insert((grant.subject.as_str(), id.as_bytes().as_slice()), grant.expires_at)?;
                transaction
                    .open_table(BY_END)?
                    .insert((grant.expires_at, id.as_bytes().as_slice()), ())?;
                let event = grant.event(Kind::Granted, &origin.issuer, id);
                events::note(transaction, &event, &origin.counted)?;
                Ok(true)
            })
            .await
    }

    /// Gives out one more token. A code or refresh token that was used before ends its grant.
    pub(crate) async fn redeem(&self, presented: Presented) -> Result<Result<Issued, Refusal>, StoreError> {
        let origin = Arc::clone(&self.origin);
        self.store
            .change(move |transaction| {
                let id = presented.grant;
                let Some(mut grant) = find(transaction, id)? else {
                    return Ok(Err(Refusal::Unknown));
                };
                let redeemed = grant.redeem(id, &presented);
                match redeemed {
                    Ok(_) => put(transaction, id, &grant)?,
                    Err(Refusal::Reused) => {
                        // What was noted on the way does not count.
                        end(transaction, &origin, id, Ending::Reuse, presented.now)?;
                    }
                    Err(_) => {}
                }
                Ok(redeemed)
            })
            .await
    }

    /// Ends a grant, unless it has ended or is not one of this person or client. Returns whether it was theirs.
    pub(crate) async fn withdraw(&self, id: Uuid, owner: Owner, now: u64) -> Result<bool, StoreError> {
        let origin = Arc::clone(&self.origin);
        self.store
            .change(move |transaction| {
                let Some(grant) = find(transaction, id)? else {
                    return Ok(false);
                };
                let (is_theirs, by) = match &owner {
                    Owner::Person(subject) => (grant.subject == *subject, Ending::Person),
                    Owner::Client(client) => (grant.client == *client, Ending::Client),
                    Owner::Log => (true, Ending::Revocation),
                };
                if is_theirs {
                    end(transaction, &origin, id, by, now)?;
                }
                Ok(is_theirs)
            })
            .await
    }

    pub(crate) fn find(&self, id: Uuid) -> Result<Option<Grant>, StoreError> {
        self.store.read(|transaction| {
            let table = transaction.open_table(GRANTS)?;
            let found = table.get(id.as_bytes().as_slice())?;
            found.map(|found| decode(found.value())).transpose()
        })
    }

    /// The grants of a person, newest first.
    pub(crate) fn of(&self, subject: &str, now: u64) -> Result<Vec<(Uuid, Grant)>, StoreError> {
        self.store.read(|transaction| {
            let grants = transaction.open_table(GRANTS)?;
            let (live, ended) = of_person(&transaction.open_table(BY_SUBJECT)?, subject, now)?;
            let mut ids: Vec<Uuid> = live
                .into_iter()
                .chain(ended.into_iter().rev().take(MAX_LISTED))
                .collect();
            ids.sort_unstable_by(|one, other| other.cmp(one));
            let mut found = Vec::with_capacity(ids.len());
            for id in ids {
                if let Some(grant) = grants.get(id.as_bytes().as_slice())? {
                    found.push((id, decode(grant.value())?));
                }
            }
            Ok(found)
        })
    }

    /// Grants that have ended, while the revocation log may not have all of their tokens: those after this one, and how
    /// many there are.
    pub(crate) fn unrevoked(&self, after: Uuid) -> Result<(Vec<Uuid>, u64), StoreError> {
        self.store.read(|transaction| {
            let table = transaction.open_table(UNREVOKED)?;
            let rest = (Bound::Excluded(after.as_bytes().as_slice()), Bound::Unbounded);
            let page = table.range::<&[u8]>(rest)?.take(MAX_AT_ONCE);
            let ids = page.map(|entry| Ok(Uuid::from_slice(entry?.0.value()).unwrap_or_default()));
            Ok((ids.collect::<Result<_, StorageError>>()?, table.len()?))
        })
    }

    /// The revocation log has all of its tokens.
    pub(crate) async fn mark_revoked(&self, id: Uuid) -> Result<(), StoreError> {
        self.store
            .change(move |transaction| {
                transaction.open_table(UNREVOKED)?.remove(id.as_bytes().as_slice())?;
                let Some(mut grant) = find(transaction, id)? else {
                    return Ok(());
                };
                if let Some(withdrawn) = &mut grant.withdrawn {
                    withdrawn.is_revoked = true;
                }
                put(transaction, id, &grant)
            })
            .await
    }

    /// Forgets grants that ended this long ago. Returns how many; fewer than [`MAX_AT_ONCE`] if that was all.
    pub(crate) async fn forget(&self, ended_before: u64) -> Result<usize, StoreError> {
        self.store
            .change(move |transaction| {
                let ended: Vec<_> = {
                    let table = transaction.open_table(BY_END)?;
                    let none: &[u8] = &[];
                    let old = table.range((0, none)..(ended_before, none))?.take(MAX_AT_ONCE);
                    old.map(|entry| {
                        let key = entry?.0;
                        let (at, id) = key.value();
                        Ok((at, id.to_vec()))
                    })
                    .collect::<Result<_, StorageError>>()?
                };
                for (at, id) in &ended {
                    transaction.open_table(BY_END)?.remove((*at, id.as_slice()))?;
                    remove(transaction, Uuid::from_slice(id).unwrap_or_default())?;
                }
                Ok(ended.len())
            })
            .await
    }
}

/// Who may end a grant.
#[derive(Debug, Clone)]
pub(crate) enum Owner {
    Person(String),
    Client(String),
    /// The revocation log.
    Log,
}

/// The keys of one person's grants.
fn subjects(subject: &str) -> std::ops::RangeInclusive<(&str, &'static [u8])> {
    (subject, &[])..=(subject, &[0xff; 16])
}

/// A person's grants that have not ended, and those that have, oldest first.
fn of_person(
    table: &impl ReadableTable<(&'static str, &'static [u8]), u64>,
    subject: &str,
    now: u64,
) -> Result<(Vec<Uuid>, Vec<Uuid>), StorageError> {
    let (mut live, mut ended) = (Vec::new(), Vec::new());
    for entry in table.range(subjects(subject))? {
        let (key, end) = entry?;
        let list = if end.value() > now { &mut live } else { &mut ended };
        list.push(Uuid::from_slice(key.value().1).unwrap_or_default());
    }
    Ok((live, ended))
}

/// Forgets a grant.
fn remove(transaction: &WriteTransaction, id: Uuid) -> Result<(), Error> {
    let Some(grant) = find(transaction, id)? else {
        return Ok(());
    };
    let bytes = id.as_bytes().as_slice();
    transaction.open_table(GRANTS)?.remove(bytes)?;
    transaction.open_table(BY_END)?.remove((grant.end(), bytes))?;
    transaction
        .open_table(BY_SUBJECT)?
        .remove((grant.subject.as_str(), bytes))?;
    transaction.open_table(UNREVOKED)?.remove(bytes)?;
    Ok(())
}

fn find(transaction: &WriteTransaction, id: Uuid) -> Result<Option<Grant>, Error> {
    let table = transaction.open_table(GRANTS)?;
    let found = table.get(id.as_bytes().as_slice())?;
    found.map(|found| decode(found.value())).transpose()
}

fn put(transaction: &WriteTransaction, id: Uuid, grant: &Grant) -> Result<(), Error> {
    let encoded = serde_json::to_vec(grant).map_err(|error| Error::Corrupted(error.to_string()))?;
    transaction
        .open_table(GRANTS)?
        .insert(id.as_bytes().as_slice(), encoded.as_slice())?;
    Ok(())
}

fn decode(encoded: &[u8]) -> Result<Grant, Error> {
    serde_json::from_slice(encoded).map_err(|error| Error::Corrupted(format!("a grant: {error}")))
}

fn end(transaction: &WriteTransaction, origin: &Origin, id: Uuid, by: Ending, now: u64) -> Result<(), Error> {
    let Some(mut grant) = find(transaction, id)?.filter(|grant| grant.withdrawn.is_none()) else {
        return Ok(());
    };
    let mut by_end = transaction.open_table(BY_END)?;
    by_end.remove((grant.end(), id.as_bytes().as_slice()))?;
    grant.withdrawn = Some(Withdrawn {
        at: now,
        by,
        is_revoked: false,
    });
    by_end.insert((grant.end(), id.as_bytes().as_slice()), ())?;
    drop(by_end);
    put(transaction, id, &grant)?;
    let bytes = id.as_bytes().as_slice();
    transaction
        .open_table(BY_SUBJECT)?
        .insert((grant.subject.as_str(), bytes), 0)?;
    transaction.open_table(UNREVOKED)?.insert(bytes, ())?;
    let event = grant.event(Kind::Withdrawn(by), &origin.issuer, id);
    events::note(transaction, &event, &origin.counted)
}

/// Grants that have ended, while the log may not have all of their tokens.
const UNREVOKED: TableDefinition<'_, &[u8], ()> = TableDefinition::new("grants_to_revoke");
const MAX_NAMES_BYTES: usize = 1_024;
/// Grants in one transaction.
const MAX_AT_ONCE: usize = 256;
/// Grants of a person that have ended: more are forgotten before their time.
const MAX_ENDED: usize = 1_000;
/// Those of them on the person's page.
const MAX_LISTED: usize = 100;

#[cfg(test)]
#[path = "grants_tests.rs"]
mod tests;
