use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::core::Core;
use crate::hold::{Hold, State};
use crate::queues::{LocalQueues, Queue};
use crate::release::{release, release_later};
use crate::request::{Command, Form};
use crate::server::{Reply, patience};
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
    ownership: Arc<Ownership>,
}

impl Guard {
    pub(crate) fn new(ownership: Arc<Ownership>) -> Self {
        if ownership.hold.request.is_renewed || ownership.hold.request.has_session {
            ownership.core.keep(&ownership.hold);
        }
        Self { ownership }
    }

    /// Returns the token by which the server knows the holder.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.ownership.hold.token
    }

    /// Returns the name of the lock. What is no text in it is replaced.
    #[must_use]
    pub fn name(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.ownership.hold.request.key)
    }

    /// Returns the rest of the lease by the local clock, nothing if the lock is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let end = self.ownership.hold.term().0;
        if self.is_lost() { Duration::ZERO } else { end.saturating_duration_since(Instant::now()) }
    }

    /// Waits until the lock is lost; does not end while it is held.
    ///
    /// It ends when another client removes or replaces the lock, and at the end of the lease by the local clock. A lock with
    /// [`session`](Lock::session) is lost when the server cannot be reached for a second. The lock is watched from the
    /// first call on.
    pub async fn lost(&self) {
        self.ownership.core.keep(&self.ownership.hold);
        self.ownership.hold.lost().await;
    }

    /// Returns whether the lock is lost, as far as this is known without asking the server.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.ownership.hold.is_lost()
    }

    /// Sets the rest of the lease. [`Lock::renew`] and [`Lock::session`] renew it by this length from now on.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the lock is not held any more, [`Error::Argument`], or the error of the command.
    pub async fn extend(&self, lease: Duration) -> Result<(), Error> {
        self.ownership.extend(lease).await
    }

    /// Draws a fencing token: a number greater than all that earlier holders have drawn. Its counter is a key in the slot of
    /// the lock, `{door}:fence` for `door`.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the lock is not held any more, [`Error::ModuleNeeded`] without the module, [`Error::Argument`] if in a
    /// cluster no name of a counter is in the slot of the lock, or the error of the command.
    pub async fn fence(&self) -> Result<i64, Error> {
        let hold = &self.ownership.hold;
        match self.ownership.ask(hold.request.fence(&hold.token, self.ownership.core.server.is_cluster())?).await? {
            Reply::Number(number) => Ok(number),
            _ => Err(Error::Server(hold.request.name(), "no number".to_owned())),
        }
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
        match Arc::into_inner(self.ownership) {
            Some(ownership) if !ownership.is_detached.load(Ordering::SeqCst) => ownership.release().await,
            _ => Ok(()),
        }
    }

    /// Leaves the lock held and returns its token, by which [`Lock::attach`] takes it over, in this process or another.
    ///
    /// It is free when its lease or its session ends, unless it is taken over before. Other guards of its owner still keep it, but
    /// do not release it.
    #[must_use = "without its token the lock stays held until its lease ends"]
    pub fn detach(self) -> String {
        self.ownership.is_detached.store(true, Ordering::SeqCst);
        self.ownership.hold.token.clone()
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Guard").field("name", &self.ownership.hold.request.name()).finish_non_exhaustive()
    }
}

/// The ownership of a hold: when it is dropped, it releases the lock, or withdraws the request. The guards of an owner share it.
pub(crate) struct Ownership {
    pub(crate) hold: Arc<Hold>,
    pub(crate) core: Arc<Core>,
    pub(crate) queues: Arc<LocalQueues>,
    pub(crate) queue: Arc<Queue>,
    /// The last guard leaves the lock held.
    is_detached: AtomicBool,
    /// What a release that has begun has to undo.
    undone: Option<State>,
}

impl Ownership {
    pub(crate) fn new(lock: Lock, token: String) -> Self {
        let queues = lock.locks.core.queues.enter(lock.request.key.clone());
        let owner = if let Form::Reentrant(owner) = &lock.request.form { Some(owner.clone()) } else { None };
        let (queue, core) = (queues.by_owner.enter(owner), lock.locks.core.clone());
        let hold = Arc::new(Hold::new(lock.into_request(), token));
        Self { hold, core, queues, queue, is_detached: AtomicBool::new(false), undone: None }
    }

    pub(crate) async fn extend(&self, lease: Duration) -> Result<(), Error> {
        let hold = &self.hold;
        hold.request.check_lease(lease)?;
        let term = hold.change_lease(lease);
        self.core.hasten(hold);
        let reply = self.ask(hold.request.extend(&hold.token, lease)).await;
        if reply.is_ok() {
            hold.renewed(&term);
        } else {
            hold.not_renewed(&term);
        }
        self.core.recheck(hold);
        reply.map(|_| ())
    }

    /// Returns the reply to a command of the holder.
    #[expect(clippy::manual_async_fn, reason = "without `Send` in it, futures of callers reach the recursion limit")]
    fn ask(&self, command: Command) -> impl Future<Output = Result<Reply, Error>> + Send {
        async move {
            let Self { core, hold, .. } = self;
            let reply = core.inside(hold, core.ask(hold, &command, patience())).await.map_err(Error::for_holder);
            if let Err(Error::Lost(_)) = reply {
                hold.lose();
            }
            reply
        }
    }

    #[expect(clippy::manual_async_fn, reason = "as above")]
    fn release(self) -> impl Future<Output = Result<(), Error>> + Send {
        async move {
            // All of it, because the block alone would have a copy of the state.
            let mut this = self;
            let (_releasing, _tracked) = (this.queues.begin_release(), this.core.releases().token());
            // From now on nothing is sent for the hold that could follow the release.
            let state = this.hold.set_state(State::Idle);
            this.undone = Some(state);
            let (result, is_over) = this.core.inside(&this.hold, release(&this.core, &this.hold, state)).await?;
            if is_over {
                this.undone = Some(State::Idle);
            }
            // Otherwise this is dropped with a release to send.
            result
        }
    }
}

impl Drop for Ownership {
    fn drop(&mut self) {
        let state = self.undone.take().unwrap_or_else(|| self.hold.set_state(State::Idle));
        self.core.recheck(&self.hold);
        if state != State::Idle && !*self.is_detached.get_mut() {
            let release = release_later(self.core.clone(), self.hold.clone(), state, self.queues.begin_release());
            self.core.releases().spawn_on(release, &self.core.runtime);
        }
    }
}
