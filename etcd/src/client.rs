//! Requests to whichever member answers.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::time::timeout;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Response, Status};

use crate::address::{Address, AddressError, Security};
use crate::api;
use crate::api::auth_client::AuthClient;
use crate::api::kv_client::KvClient;
use crate::api::lease_client::LeaseClient;
use crate::api::maintenance_client::MaintenanceClient;
use crate::error::{EtcdError, is_final, needs_new_token};

/// Asks one member at a time, and another one if it does not answer. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    members: Vec<Member>,
    /// The member to ask.
    present: AtomicUsize,
    security: Security,
    token: Mutex<Option<MetadataValue<Ascii>>>,
}

struct Member {
    address: String,
    channel: Mutex<Channel>,
}

// === impl Client ===

impl Client {
    /// A client that asks the member `first` first, counted from 0, so that clients share the members. Connects when
    /// needed.
    pub fn new(address: &Address, security: Security, first: usize) -> Result<Self, AddressError> {
        let members = address.members.iter().map(|address| {
            Ok(Member {
                address: address.clone(),
                channel: Mutex::new(channel(address, &security)?),
            })
        });
        let members = members.collect::<Result<Vec<_>, AddressError>>()?;
        Ok(Self(Arc::new(Inner {
            present: AtomicUsize::new(first % members.len().max(1)),
            members,
            security,
            token: Mutex::default(),
        })))
    }

    /// Carries out a transaction, at most once if what it writes makes its comparisons fail. Tries other members within
    /// this time, so a transaction that failed may have been carried out by an earlier attempt.
    pub async fn transact(&self, request: api::TxnRequest, within: Duration) -> Result<api::TxnResponse, EtcdError> {
        let send = |channel, request| async move { client_of(channel).txn(request).await };
        self.ask(request, within, send).await
    }

    /// Reads what a quorum has.
    pub async fn range(&self, request: api::RangeRequest, within: Duration) -> Result<api::RangeResponse, EtcdError> {
        let send = |channel, request| async move { client_of(channel).range(request).await };
        self.ask(request, within, send).await
    }

    /// Grants a lease of at least this many seconds, and returns its id.
    pub async fn grant(&self, seconds: i64, within: Duration) -> Result<i64, EtcdError> {
        let request = api::LeaseGrantRequest { ttl: seconds, id: 0 };
        let send = |channel, request| async move { LeaseClient::new(channel).lease_grant(request).await };
        Ok(self.ask(request, within, send).await?.id)
    }

    /// Renews a lease once. Returns whether it was still there.
    pub async fn renew(&self, lease: i64, within: Duration) -> Result<bool, EtcdError> {
        let send = |channel, request: Request<i64>| async move {
            let (metadata, extensions, id) = request.into_parts();
            let once = tokio_stream::once(api::LeaseKeepAliveRequest { id });
            let request = Request::from_parts(metadata, extensions, once);
            let mut answers = LeaseClient::new(channel).lease_keep_alive(request).await?;
            let answer = answers.get_mut().message().await?;
            Ok(Response::new(
                answer.ok_or_else(|| Status::unavailable("the stream ended"))?,
            ))
        };
        Ok(self.ask(lease, within, send).await?.ttl > 0)
    }

    /// Ends a lease, and deletes its keys.
    pub async fn revoke(&self, lease: i64, within: Duration) -> Result<(), EtcdError> {
        let request = api::LeaseRevokeRequest { id: lease };
        let send = |channel, request| async move { LeaseClient::new(channel).lease_revoke(request).await };
        self.ask(request, within, send).await.map(drop)
    }

    /// The state of the member that is asked now.
    pub async fn status(&self, within: Duration) -> Result<api::StatusResponse, EtcdError> {
        let send = |channel, request| async move { MaintenanceClient::new(channel).status(request).await };
        self.ask(api::StatusRequest {}, within, send).await
    }

    async fn ask<Q: Clone, A, F>(
        &self,
        request: Q,
        within: Duration,
        send: impl Fn(Channel, Request<Q>) -> F,
    ) -> Result<A, EtcdError>
    where
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let begun = Instant::now();
        let mut authenticated = false;
        loop {
            let member = self.present();
            let left = within.saturating_sub(begun.elapsed());
            let asked = timeout(left.min(ATTEMPT), async {
                let request = self.authorized(request.clone(), member).await?;
                send(self.channel(member), request).await
            });
            let found = match asked.await {
                Ok(Ok(answer)) => return Ok(answer.into_inner()),
                Ok(Err(status)) if needs_new_token(&status) && self.0.security.user.is_some() && !authenticated => {
                    authenticated = true;
                    *self.token() = None;
                    continue;
                }
                Ok(Err(status)) if is_final(&status) => {
                    return Err(EtcdError::Refused {
                        member: self.name(member),
                        found: status.message().to_owned(),
                    });
                }
                Ok(Err(status)) => status.message().to_owned(),
                Err(_) => format!("no answer within {} ms", left.min(ATTEMPT).as_millis()),
            };
            self.leave(member)?;
            if begun.elapsed() + PAUSE >= within {
                return Err(EtcdError::Unreachable {
                    within_ms: within.as_millis().try_into().unwrap_or(u64::MAX),
                    member: self.name(member),
                    found,
                });
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Adds what the member requires of every request.
    pub(crate) async fn authorized<Q>(&self, request: Q, member: usize) -> Result<Request<Q>, Status> {
        let mut request = Request::new(request);
        if let Some((name, file)) = &self.0.security.user {
            let known = self.token().clone();
            let token = match known {
                Some(token) => token,
                None => self.log_in(name, file, member).await?,
            };
            request.metadata_mut().insert("token", token);
        }
        // A member that has lost its leader then says so at once.
        request
            .metadata_mut()
            .insert("hasleader", MetadataValue::from_static("true"));
        Ok(request)
    }

    async fn log_in(&self, name: &str, file: &std::path::Path, member: usize) -> Result<MetadataValue<Ascii>, Status> {
        let password = std::fs::read_to_string(file)
            .map_err(|error| Status::invalid_argument(format!("{} cannot be read: {error}", file.display())))?;
        let request = api::AuthenticateRequest {
            name: name.to_owned(),
            password: password.trim_end_matches(['\r', '\n']).to_owned(),
        };
        let answer = AuthClient::new(self.channel(member)).authenticate(request).await?;
        let token = answer.into_inner().token;
        let token: MetadataValue<Ascii> = token
            .parse()
            .map_err(|_| Status::internal("etcd's token is not visible ASCII"))?;
        *self.token() = Some(token.clone());
        Ok(token)
    }

    /// The member to ask.
    pub(crate) fn present(&self) -> usize {
        self.0.present.load(Ordering::Relaxed)
    }

    pub(crate) fn name(&self, member: usize) -> String {
        self.0.members[member].address.clone()
    }

    pub(crate) fn channel(&self, member: usize) -> Channel {
        self.0.members[member]
            .channel
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// From now on asks the next member, unless another request has left this one already. The connection may be dead
    /// without a sign, so the next request to this member makes another.
    pub(crate) fn leave(&self, member: usize) -> Result<(), AddressError> {
        let next = (member + 1) % self.0.members.len();
        let left = self
            .0
            .present
            .compare_exchange(member, next, Ordering::Relaxed, Ordering::Relaxed);
        if left.is_ok() {
            let left = &self.0.members[member];
            let fresh = channel(&left.address, &self.0.security)?;
            *left.channel.lock().unwrap_or_else(PoisonError::into_inner) = fresh;
        }
        Ok(())
    }

    fn token(&self) -> std::sync::MutexGuard<'_, Option<MetadataValue<Ascii>>> {
        self.0.token.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Prints no token.
impl fmt::Debug for Inner {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let members: Vec<_> = self.members.iter().map(|member| &member.address).collect();
        out.debug_struct("Client")
            .field("members", &members)
            .finish_non_exhaustive()
    }
}

fn client_of(channel: Channel) -> KvClient<Channel> {
    KvClient::new(channel).max_decoding_message_size(MAX_ANSWER_BYTES)
}

/// A connection to a member, which is made when it is needed.
fn channel(address: &str, security: &Security) -> Result<Channel, AddressError> {
    let is_wrong = |error: tonic::transport::Error| AddressError::Tls {
        path: address.to_owned(),
        error: error.to_string(),
    };
    let scheme = if security.ca.is_some() { "https" } else { "http" };
    let endpoint = Endpoint::from_shared(format!("{scheme}://{address}")).map_err(is_wrong)?;
    let mut endpoint = endpoint.connect_timeout(CONNECT_TIMEOUT).tcp_nodelay(true);
    if let Some(ca) = &security.ca {
        let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(ca)?));
        if let Some((certificate, key)) = &security.certificate {
            tls = tls.identity(Identity::from_pem(read(certificate)?, read(key)?));
        }
        endpoint = endpoint.tls_config(tls).map_err(is_wrong)?;
    }
    Ok(endpoint.connect_lazy())
}

fn read(path: &std::path::Path) -> Result<Vec<u8>, AddressError> {
    std::fs::read(path).map_err(|error| AddressError::File {
        path: path.display().to_string(),
        error: error.to_string(),
    })
}

/// How long one member may take for an answer.
pub const ATTEMPT: Duration = Duration::from_millis(500);
const CONNECT_TIMEOUT: Duration = Duration::from_millis(250);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(20);
/// Larger than an answer with the groups or chunks of one read.
const MAX_ANSWER_BYTES: usize = 64 << 20;
