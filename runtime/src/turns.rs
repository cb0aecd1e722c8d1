//! Work that waits for its turn. The amount in progress is limited in total and for each client.
//!
//! A client waits for its own share first, and only then for the shared total. So at most one share of a client's
//! waiting work stands before another client.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::client_limits::{Client, share_of};

/// Clones share the same units.
#[derive(Debug, Clone)]
pub struct Turns(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    all: Arc<Semaphore>,
    share: u32,
    /// The share of each client that has turns or waits for one.
    by_client: Mutex<HashMap<Client, Weak<Semaphore>>>,
}

/// Some units, held until dropped.
#[derive(Debug)]
pub struct Turn {
    _all: OwnedSemaphorePermit,
    _share: OwnedSemaphorePermit,
}

// === impl Turns ===

impl Turns {
    /// Allows this many units at a time in total. One client gets this percentage of them, and at least one.
    pub fn new(units: u32, share_percent: u8) -> Self {
        Self(Arc::new(Inner {
            all: Arc::new(Semaphore::new(units as usize)),
            share: u32::try_from(share_of(units as usize, share_percent)).unwrap_or(u32::MAX),
            by_client: Mutex::default(),
        }))
    }

    /// Waits for this many units. A request for more than the client's share takes the whole share.
    pub async fn take(&self, client: &Client, units: u32) -> Turn {
        let units = units.min(self.0.share);
        let share = acquire(self.share_of(client), units).await;
        let all = acquire(Arc::clone(&self.0.all), units).await;
        Turn {
            _all: all,
            _share: share,
        }
    }

    /// By credential, or by address if there is none.
    fn share_of(&self, client: &Client) -> Arc<Semaphore> {
        let client = Client {
            credential: client.credential.clone(),
            network: client.network.filter(|_| client.credential.is_none()),
        };
        let mut shares = self.lock();
        if let Some(share) = shares.get(&client).and_then(Weak::upgrade) {
            return share;
        }
        // Removes clients that neither hold nor wait for anything.
        shares.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Semaphore::new(self.0.share as usize));
        shares.insert(client, Arc::downgrade(&share));
        share
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Client, Weak<Semaphore>>> {
        self.0.by_client.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The semaphores are never closed.
async fn acquire(semaphore: Arc<Semaphore>, units: u32) -> OwnedSemaphorePermit {
    match semaphore.acquire_many_owned(units).await {
        Ok(permit) => permit,
        Err(_) => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use futures_or_poll::poll_once;

    use super::*;

    mod futures_or_poll {
        use std::pin::Pin;
        use std::task::{Context, Poll, Waker};

        /// Polls the future once.
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
    fn a_client_that_neither_has_nor_waits_for_anything_takes_no_memory() {
        let turns = Turns::new(4, 50);
        let client = client("a");
        let held = poll_once(Box::pin(turns.take(&client, 2)).as_mut()).unwrap();
        // A turn that was abandoned while it waited.
        drop(Box::pin(turns.take(&client, 1)));
        drop(held);
        let other = self::client("b");
        let _held = poll_once(Box::pin(turns.take(&other, 2)).as_mut()).unwrap();
        assert!(turns.lock().keys().eq([&other]));
    }
}
