//! Several locks that are acquired in one order, so that no two tasks wait for each other.

use std::fmt;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

use crate::request::FOREVER;
use crate::{Error, Guard, Lock};

/// Describes several locks that are acquired, held and released together.
///
/// ```
/// # use redis_lock_client::{Error, Locks, several};
/// # use std::time::Duration;
/// # async fn example(locks: Locks) -> Result<(), Error> {
/// let guards = several(["door", "cellar"].map(|name| locks.lock(name))).wait(Duration::from_secs(20)).acquire().await?;
/// guards.release().await?;
/// # Ok(())
/// # }
/// ```
pub fn several(locks: impl IntoIterator<Item = Lock>) -> Several {
    Several { locks: locks.into_iter().collect(), patience: None }
}

/// The description of several locks, from [`several`].
#[derive(Clone, Debug)]
#[must_use = "nothing is sent before `acquire`"]
pub struct Several {
    locks: Vec<Lock>,
    patience: Option<Duration>,
}

impl Several {
    /// Sets how long [`acquire`](Self::acquire) waits for all locks. Without this it waits for as long as it takes.
    pub fn wait(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// Acquires the locks in the order of the bytes of their names. If one is not free in time, none is held.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if there are no locks or two have the same name, [`Error::Lost`] if the lease of one ended while others
    /// were acquired, or the error of the lock that was not acquired. The others are released before.
    pub async fn acquire(mut self) -> Result<Guards, Error> {
        self.locks.sort_by(|one, other| one.request.key.cmp(&other.request.key));
        let is_twice = self.locks.windows(2).any(|pair| pair[0].request.key == pair[1].request.key);
        if is_twice || self.locks.is_empty() {
            let name = self.locks.first().map(|lock| lock.request.name()).unwrap_or_default();
            return Err(Error::Argument(name, "several locks have a name each"));
        }
        let deadline = self.patience.map(|patience| Instant::now() + patience.min(FOREVER));
        let mut guards = Guards { guards: Vec::new() };
        for mut lock in self.locks {
            lock.patience = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            match lock.acquire().await {
                Ok(guard) => guards.guards.push(guard),
                Err(error) => {
                    // That of the lock that was not free tells more.
                    let _ = guards.release().await;
                    return Err(error);
                }
            }
        }
        if let Some(lost) = guards.guards.iter().find(|guard| guard.is_lost()) {
            let name = lost.name().into_owned();
            let _ = guards.release().await;
            return Err(Error::Lost(name));
        }
        Ok(guards)
    }
}

/// Several locks that are held. Dropping them releases them.
#[must_use = "the locks are released when their guards are dropped"]
pub struct Guards {
    guards: Vec<Guard>,
}

impl Guards {
    /// Waits until one of the locks is lost, as [`Guard::lost`].
    pub async fn lost(&self) {
        let mut losses: Vec<_> = self.guards.iter().map(|guard| Box::pin(guard.lost())).collect();
        poll_fn(|context| {
            let is_lost = losses.iter_mut().any(|loss| loss.as_mut().poll(context).is_ready());
            if is_lost { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Releases the locks in turn, and waits for the replies.
    ///
    /// # Errors
    ///
    /// The first one of [`Guard::release`], after all are released.
    pub async fn release(self) -> Result<(), Error> {
        let mut result = Ok(());
        for guard in self.guards.into_iter().rev() {
            result = result.and(guard.release().await);
        }
        result
    }
}

impl fmt::Debug for Guards {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(&self.guards).finish()
    }
}
