use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::claim::{Claim, Command, Form};
use crate::core::{Core, random_token};
use crate::lock::check_lease;
use crate::redis::{Value, from_redis_value};
use crate::release::{Answer, Release};
use crate::watch::watch;
use crate::{Error, Lock};

/// A lock that is held. Dropping it releases the lock.
///
/// It may be dropped anywhere, also outside of a runtime: the connection task of its [`Locks`](crate::Locks) sends the release, again if
/// it has to. A program that ends right after that calls [`Locks::close`](crate::Locks::close) first.
///
/// ```
/// # use redis_lock_client::{Error, Locks};
/// # use std::time::Duration;
/// # async fn work() {}
/// # async fn example(locks: Locks) -> Result<(), Error> {
/// let guard = locks.lock("door").renew().acquire().await?;
/// tokio::select! {
///     () = work() => guard.release().await,
///     () = guard.lost() => Err(Error::Lost("door".to_owned())),
/// }
/// # }
/// ```
#[must_use = "the lock is released when its guard is dropped"]
pub struct Guard {
    hold: Arc<Hold>,
}

impl Guard {
    pub(crate) fn new(hold: Hold) -> Self {
        let hold = Arc::new(hold);
        if hold.claim.request.is_renewed || hold.claim.request.has_session {
            hold.watch();
        }
        if let Some(owner) = hold.owner() {
            hold.core.owners().insert(owner, Arc::downgrade(&hold));
        }
        Self { hold }
    }

    /// Returns another guard of a re-entrant lock that its owner holds already, none if it does not.
    pub(crate) async fn of_owner(lock: &Lock) -> Result<Option<Self>, Error> {
        let Form::Reentrant { owner } = &lock.request.form else { return Ok(None) };
        let owner = (lock.request.key.clone(), owner.clone());
        let Some(hold) = lock.locks.core.owners().get(&owner).and_then(Weak::upgrade) else { return Ok(None) };
        // An inner section never cuts the outer one short.
        hold.extend(lock.request.lease.max(hold.claim.lease())).await?;
        Ok(Some(Self { hold }))
    }

    /// Returns the token by which the server knows the holder.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.hold.claim.token
    }

    /// Waits until the lock is lost; does not end while it is held.
    ///
    /// It ends when another client removes or replaces the lock, and at the end of the lease by the local clock. A lock with
    /// [`session`](Lock::session) is lost when the server cannot be reached for a second. The lock is watched from the
    /// first call on.
    pub async fn lost(&self) {
        self.hold.watch();
        // The sender is in the claim, so this does not fail.
        let _ = self.hold.claim.term.subscribe().wait_for(|term| term.is_lost).await;
    }

    /// Returns whether the lock is lost, as far as this is known without asking the server.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.hold.claim.is_lost()
    }

    /// Sets the rest of the lease. [`Lock::renew`] and [`Lock::session`] renew it by this length from now on.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the lock is not held any more, [`Error::Argument`], or the error of the command.
    pub async fn extend(&self, lease: Duration) -> Result<(), Error> {
        self.hold.extend(lease).await
    }

    /// Draws a fencing token: a number greater than all that earlier holders have drawn. Its counter is a key in the slot of
    /// the lock, `{door}:fence` for `door`.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the lock is not held any more, [`Error::ModuleNeeded`] without the module, or the error of the
    /// command.
    pub async fn fence(&self) -> Result<i64, Error> {
        let reply = self.hold.ask(self.hold.claim.fence()).await?;
        from_redis_value(reply).map_err(|error| Error::new(&self.hold.claim.name(), error.into()))
    }

    /// Releases the lock, and waits for the reply. A re-entrant lock is released with the last guard of its owner.
    ///
    /// The release is sent even if the returned future is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the lock was lost before. [`Error::Connection`] if the server cannot be reached: the lock is
    /// released later, or its lease ends.
    pub async fn release(self) -> Result<(), Error> {
        let name = self.hold.claim.name();
        match Arc::into_inner(self.hold) {
            Some(mut hold) => {
                let (reply, answer) = oneshot::channel();
                hold.release(Some(reply)).start();
                answer.await.unwrap_or_else(|_| Err(Error::ended(&name)))
            }
            None => Ok(()),
        }
    }

    /// Leaves the lock held and returns its token, by which [`Lock::with_token`] takes it over, in this process or another.
    ///
    /// It is free when its lease ends, unless it is taken over before.
    #[must_use = "without its token the lock stays held until its lease ends"]
    pub fn into_token(self) -> String {
        self.hold.disarm();
        self.hold.claim.token.clone()
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Guard").field("name", &self.hold.claim.name()).finish_non_exhaustive()
    }
}

/// A claim that is released, or withdrawn, when it is dropped.
pub(crate) struct Hold {
    pub(crate) claim: Arc<Claim>,
    core: Arc<Core>,
    watcher: OnceLock<JoinHandle<()>>,
    is_armed: AtomicBool,
}

impl Hold {
    pub(crate) fn new(lock: &Lock) -> Self {
        let random = random_token();
        let token = lock.label.as_ref().map_or(random.clone(), |label| format!("{label}:{random}"));
        Self::of_token(lock, token)
    }

    pub(crate) fn of_token(lock: &Lock, token: String) -> Self {
        let claim = Arc::new(Claim::new(lock.request.clone(), token));
        Self { claim, core: lock.locks.core.clone(), watcher: OnceLock::new(), is_armed: AtomicBool::new(true) }
    }

    fn owner(&self) -> Option<(Vec<u8>, String)> {
        match &self.claim.request.form {
            Form::Reentrant { owner } => Some((self.claim.request.key.clone(), owner.clone())),
            _ => None,
        }
    }

    /// Starts the task that renews and watches the lock, once.
    fn watch(&self) {
        let start = || self.core.runtime.spawn(watch(self.core.clone(), self.claim.clone()));
        self.watcher.get_or_init(start);
    }

    pub(crate) async fn extend(&self, lease: Duration) -> Result<(), Error> {
        let (at, claim) = (Instant::now(), &self.claim);
        check_lease(&claim.name(), lease)?;
        // Should the reply be lost, the lease may be the shorter one.
        claim.limit_lease(lease);
        self.ask(claim.extend(lease)).await?;
        claim.set_lease(at, lease);
        Ok(())
    }

    /// Returns the reply to a command of the holder.
    async fn ask(&self, command: Command) -> Result<Value, Error> {
        let (core, claim) = (self.core.clone(), self.claim.clone());
        // A task of the runtime of the locks, so that any executor can wait for it.
        let task = self.core.runtime.spawn(async move { core.ask_twice(&claim, command).await });
        let reply = task.await.unwrap_or_else(|_| Err(Error::ended(&self.claim.name()))).map_err(Error::for_holder);
        if let Err(Error::Lost(_)) = reply {
            self.claim.lose();
        }
        reply
    }

    fn release(&mut self, reply: Answer) -> Release {
        self.disarm();
        Release::new(&self.core, &self.claim, self.watcher.take(), reply)
    }

    /// Leaves the lock alone when this is dropped.
    pub(crate) fn disarm(&self) {
        self.is_armed.store(false, Ordering::SeqCst);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(owner) = self.owner() {
            // The owner may have acquired the lock again.
            let mut owners = self.core.owners();
            if owners.get(&owner).is_some_and(|hold| hold.strong_count() == 0) {
                owners.remove(&owner);
            }
        }
        if self.is_armed.load(Ordering::SeqCst) {
            self.release(None).order();
        } else if let Some(watcher) = self.watcher.take() {
            watcher.abort();
        }
    }
}
