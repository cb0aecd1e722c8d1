//! Work that waits its turn: so much at a time, and so much of one client.
//!
//! A client waits for its own share first, and only then for what belongs to all. So however much one client has waiting, at
//! most its share of it stands between another client and its turn.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::client_limits::{Client, share_of};

/// Cheap to clone; all clones are one.
#[derive(Debug, Clone)]
pub struct Turns(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    all: Arc<Semaphore>,
    share: u32,
    by_client: Mutex<HashMap<Client, Line>>,
}

/// What one client has under way or waiting.
#[derive(Debug)]
struct Line {
    share: Arc<Semaphore>,
    /// Turns taken and waited for.
    members: usize,
}

/// Some of what there is, until it is dropped.
#[derive(Debug)]
pub struct Turn {
    // Given back before the client's line is looked at.
    _all: OwnedSemaphorePermit,
    _share: OwnedSemaphorePermit,
    _member: Member,
}

/// Keeps a client's line.
#[derive(Debug)]
struct Member {
    turns: Turns,
    client: Client,
}

// === impl Turns ===

impl Turns {
    /// So many units at a time, this percentage of them, and at least one, of one client.
    pub fn new(units: u32, share_percent: u8) -> Self {
        Self(Arc::new(Inner {
            all: Arc::new(Semaphore::new(units as usize)),
            share: u32::try_from(share_of(units as usize, share_percent)).unwrap_or(u32::MAX),
            by_client: Mutex::default(),
        }))
    }

    /// Waits for so many units; what is more than the client's share takes all of the share.
    pub async fn take(&self, client: &Client, units: u32) -> Turn {
        let units = units.min(self.0.share);
        let (member, share) = self.enter(client);
        let share = acquire(share, units).await;
        let all = acquire(Arc::clone(&self.0.all), units).await;
        Turn {
            _all: all,
            _share: share,
            _member: member,
        }
    }

    /// By credential, and by address where none is shown.
    fn enter(&self, client: &Client) -> (Member, Arc<Semaphore>) {
        let client = Client {
            credential: client.credential.clone(),
            network: client.network.filter(|_| client.credential.is_none()),
        };
        let mut lines = self.lock();
        let line = lines.entry(client.clone()).or_insert_with(|| Line {
            share: Arc::new(Semaphore::new(self.0.share as usize)),
            members: 0,
        });
        line.members += 1;
        let turns = self.clone();
        (Member { turns, client }, Arc::clone(&line.share))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Client, Line>> {
        self.0.by_client.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// None of the semaphores is ever closed.
async fn acquire(semaphore: Arc<Semaphore>, units: u32) -> OwnedSemaphorePermit {
    match semaphore.acquire_many_owned(units).await {
        Ok(permit) => permit,
        Err(_) => std::future::pending().await,
    }
}

// === impl Member ===

impl Drop for Member {
    fn drop(&mut self) {
        let mut lines = self.turns.lock();
        if let Some(line) = lines.get_mut(&self.client) {
            line.members -= 1;
            if line.members == 0 {
                lines.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_or_poll::poll_once;

    use super::*;

    mod futures_or_poll {
        use std::pin::Pin;
        use std::task::{Context, Poll, Waker};

        /// What the future has come to after one look.
        pub(super) fn poll_once<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
            match future.poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(output) => Some(output),
                Poll::Pending => None,
            }
        }
    }

    fn client(credential: &str) -> Client {
        Client::new(Some(credential), None)
    }

    #[test]
    fn however_much_one_client_has_waiting_another_has_its_turn_at_once() {
        let turns = Turns::new(4, 50);
        let greedy = client("greedy");
        let mut waiting: Vec<_> = (0..100).map(|_| Box::pin(turns.take(&greedy, 1))).collect();
        let held: Vec<_> = waiting.iter_mut().filter_map(|turn| poll_once(turn.as_mut())).collect();
        assert_eq!(held.len(), 2);
        let other = client("other");
        let mut first = Box::pin(turns.take(&other, 1));
        let mut second = Box::pin(turns.take(&other, 1));
        let _served = (poll_once(first.as_mut()).unwrap(), poll_once(second.as_mut()).unwrap());
        let mut third = Box::pin(turns.take(&other, 1));
        assert!(poll_once(third.as_mut()).is_none());
    }

    #[test]
    fn what_is_larger_than_a_share_takes_all_of_the_share() {
        let turns = Turns::new(10, 50);
        let client = client("a");
        let large = poll_once(Box::pin(turns.take(&client, 100)).as_mut()).unwrap();
        assert!(poll_once(Box::pin(turns.take(&client, 1)).as_mut()).is_none());
        drop(large);
        assert!(poll_once(Box::pin(turns.take(&client, 5)).as_mut()).is_some());
    }

    #[test]
    fn who_neither_has_nor_waits_for_anything_takes_no_memory() {
        let turns = Turns::new(4, 50);
        let client = client("a");
        let held = poll_once(Box::pin(turns.take(&client, 2)).as_mut()).unwrap();
        // One that was given up while it waited.
        drop(Box::pin(turns.take(&client, 1)));
        drop(held);
        assert!(turns.lock().is_empty());
    }
}
