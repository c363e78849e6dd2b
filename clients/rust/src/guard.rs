use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::claim::{Claim, Command, Form};
use crate::core::{Core, Queue};
use crate::redis::{Value, from_redis_value};
use crate::release::{Answer, release};
use crate::watch::watch;
use crate::{Error, Lock};

/// A lock that is held. Dropping it releases the lock.
///
/// It may be dropped anywhere, also outside of a runtime: a task of its [`Locks`](crate::Locks) sends the release, again if it has
/// to. A program that ends right after that calls [`Locks::close`](crate::Locks::close) first.
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
    pub(crate) fn new(hold: Arc<Hold>) -> Self {
        if hold.claim.request.is_renewed || hold.claim.request.has_session {
            hold.watch();
        }
        Self { hold }
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
        self.hold.claim.loss.cancelled().await;
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
    /// [`Error::Lost`] if the lock is not held any more, [`Error::ModuleNeeded`] without the module, [`Error::Argument`] if in a
    /// cluster no name of a counter is in the slot of the lock, or the error of the command.
    pub async fn fence(&self) -> Result<i64, Error> {
        let reply = self.hold.ask(self.hold.claim.fence(self.hold.core.server.in_cluster())?).await?;
        from_redis_value(reply).map_err(|error| Error::new(&self.hold.claim.request.name(), error.into()))
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
        let name = self.hold.claim.request.name();
        let Some(mut hold) = Arc::into_inner(self.hold) else { return Ok(()) };
        let (reply, answer) = oneshot::channel();
        hold.answer = Some(reply);
        drop(hold);
        answer.await.unwrap_or_else(|_| Err(Error::ended(&name)))
    }

    /// Leaves the lock held and returns its token, by which [`Lock::from_token`] takes it over, in this process or another.
    ///
    /// It is free when its lease or its session ends, unless it is taken over before.
    #[must_use = "without its token the lock stays held until its lease ends"]
    pub fn into_token(self) -> String {
        self.hold.claim.is_armed.store(false, Ordering::SeqCst);
        self.hold.claim.token.clone()
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Guard").field("name", &self.hold.claim.request.name()).finish_non_exhaustive()
    }
}

/// A claim that is released, or withdrawn, when it is dropped.
pub(crate) struct Hold {
    pub(crate) claim: Arc<Claim>,
    core: Arc<Core>,
    /// The task that acquires the lock, and the one that watches it.
    tasks: Mutex<JoinSet<()>>,
    is_watched: Once,
    /// Where the result of the release goes.
    answer: Option<Answer>,
    /// Keeps what its owner holds.
    pub(crate) queue: Arc<Queue>,
}

impl Hold {
    pub(crate) fn new(lock: &Lock, token: String) -> Arc<Self> {
        let (core, request) = (lock.locks.core.clone(), lock.request.clone());
        let owner = if let Form::Reentrant(owner) = &request.form { Some(owner.clone()) } else { None };
        let queue = core.queues.enter((request.key.clone(), owner));
        Arc::new(Self {
            claim: Arc::new(Claim::new(request, token)),
            tasks: Mutex::default(),
            is_watched: Once::new(),
            answer: None,
            queue,
            core,
        })
    }

    /// Starts a task that ends before the release.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).spawn_on(task, &self.core.runtime);
    }

    /// Starts the task that renews and watches the lock, once.
    fn watch(&self) {
        self.is_watched.call_once(|| {
            let loss = self.claim.loss.clone().drop_guard();
            self.spawn(watch(self.core.clone(), self.claim.clone(), loss));
        });
    }

    pub(crate) async fn extend(&self, lease: Duration) -> Result<(), Error> {
        let (at, claim) = (Instant::now(), &self.claim);
        claim.request.check_lease(lease)?;
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
        let task = self.core.runtime.spawn(async move { core.ask(&claim, &command).await });
        let ended = |_| Err(Error::ended(&self.claim.request.name()));
        let reply = task.await.unwrap_or_else(ended).map_err(Error::for_holder);
        if let Err(Error::Lost(_)) = reply {
            self.claim.loss.cancel();
        }
        reply
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let tasks = std::mem::take(self.tasks.get_mut().unwrap_or_else(PoisonError::into_inner));
        let release = release(self.core.clone(), self.claim.clone(), tasks, self.answer.take());
        self.core.releases.spawn_on(release, &self.core.runtime);
    }
}
