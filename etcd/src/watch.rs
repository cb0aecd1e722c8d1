//! Changes as they are made.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::api::event::EventType;
use crate::api::watch_client::WatchClient;
use crate::api::watch_request::RequestUnion;
use crate::api::{WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse};
use crate::client::{ATTEMPT, Client};
use crate::error::EtcdError;
use crate::operation::prefix_end;

/// A watch of all keys with a prefix, at one member.
#[derive(Debug)]
pub struct Watching {
    client: Client,
    member: usize,
    from: i64,
    requests: mpsc::Sender<WatchRequest>,
    answers: Streaming<WatchResponse>,
}

/// What happened to a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub key: Bytes,
    /// None if it was deleted.
    pub value: Option<Bytes>,
    pub revision: i64,
}

impl Client {
    /// Watches keys with this prefix, from a revision on.
    pub async fn watch(&self, prefix: impl Into<Bytes>, from: i64) -> Result<Watching, EtcdError> {
        let member = self.present();
        let key = prefix.into();
        let create = WatchRequest {
            request_union: Some(RequestUnion::CreateRequest(WatchCreateRequest {
                range_end: prefix_end(&key),
                key,
                start_revision: from,
            })),
        };
        let (requests, sent) = mpsc::channel(4);
        // There is room.
        let _ = requests.try_send(create);
        let opened = timeout(ATTEMPT, async {
            let request = self.authorized(ReceiverStream::new(sent), member).await?;
            let mut client = WatchClient::new(self.channel(member)).max_decoding_message_size(MAX_CHANGES_BYTES);
            client.watch(request).await
        });
        let answers = match opened.await {
            Ok(Ok(answers)) => answers.into_inner(),
            Ok(Err(status)) => return Err(self.left(member, status.message())?),
            Err(_) => return Err(self.left(member, "no answer to a watch")?),
        };
        Ok(Watching {
            client: self.clone(),
            member,
            from,
            requests,
            answers,
        })
    }

    /// Leaves a member, and says why.
    fn left(&self, member: usize, found: &str) -> Result<EtcdError, EtcdError> {
        self.leave(member)?;
        Ok(EtcdError::Unreachable {
            within_ms: ATTEMPT.as_millis().try_into().unwrap_or(u64::MAX),
            member: self.name(member),
            found: found.to_owned(),
        })
    }
}

// === impl Watching ===

impl Watching {
    /// The next changes. A member that is silent is asked for a sign of life; without one, this is an error, and the
    /// caller watches again from what it has.
    pub async fn changes(&mut self) -> Result<Vec<Change>, EtcdError> {
        loop {
            let answer = match timeout(SILENCE, self.answers.message()).await {
                Ok(answer) => answer,
                Err(_) => {
                    let progress = RequestUnion::ProgressRequest(WatchProgressRequest {});
                    let _ = self.requests.try_send(WatchRequest {
                        request_union: Some(progress),
                    });
                    match timeout(ATTEMPT, self.answers.message()).await {
                        Ok(answer) => answer,
                        Err(_) => return Err(self.client.left(self.member, "the watch is silent")?),
                    }
                }
            };
            let answer = match answer {
                Ok(Some(answer)) => answer,
                Ok(None) => return Err(self.client.left(self.member, "the watch ended")?),
                Err(status) => return Err(self.client.left(self.member, status.message())?),
            };
            if answer.compact_revision > 0 {
                return Err(EtcdError::Compacted { from: self.from });
            }
            if answer.canceled {
                return Err(self.client.left(self.member, &answer.cancel_reason)?);
            }
            let changes: Vec<_> = answer.events.into_iter().filter_map(Change::of).collect();
            if !changes.is_empty() {
                return Ok(changes);
            }
        }
    }
}

impl Change {
    fn of(event: crate::api::Event) -> Option<Self> {
        let is_put = event.r#type() == EventType::Put;
        let pair = event.kv?;
        Some(Self {
            key: pair.key,
            value: is_put.then_some(pair.value),
            revision: pair.mod_revision,
        })
    }
}

/// After this long without a message the member is asked for one.
const SILENCE: Duration = Duration::from_secs(1);
/// Larger than the changes of one message.
const MAX_CHANGES_BYTES: usize = 64 << 20;
