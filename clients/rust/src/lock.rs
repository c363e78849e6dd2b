use std::sync::Arc;
use std::time::Duration;

use crate::acquire::acquire;
use crate::guard::{Guard, Ownership};
use crate::hold::{NO_CONNECTION, State};
use crate::request::{Form, Request};
use crate::{Error, Locks};

/// The lease of a lock that does not name one.
pub(crate) const DEFAULT_LEASE: Duration = Duration::from_secs(30);
/// The largest number of permits, and of waiters.
pub(crate) const MAX_PERMITS: u32 = i32::MAX.unsigned_abs();

/// The description of a lock, from [`Locks::lock`](crate::Locks::lock). Nothing is sent before [`acquire`](Self::acquire).
///
/// A lock is exclusive, [`shared`](Self::shared), a semaphore ([`permits`](Self::permits)) or
/// [`reentrant`](Self::reentrant); the last of these calls counts.
#[derive(Clone, Debug)]
#[must_use = "nothing is sent before `acquire`"]
pub struct Lock {
    pub(crate) locks: Locks,
    pub(crate) request: Request,
    pub(crate) patience: Option<Duration>,
    /// Without a lease of its own the lock is renewed.
    has_lease: bool,
    pub(crate) label: Option<String>,
}

impl Lock {
    pub(crate) fn new(locks: &Locks, key: Vec<u8>) -> Self {
        Self {
            locks: locks.clone(),
            request: Request { key, lease: DEFAULT_LEASE, ..Request::default() },
            patience: None,
            has_lease: false,
            label: None,
        }
    }

    /// Sets the lease, after which the lock is free by itself, unless it is renewed. Without this it is 30 seconds, and renewed.
    pub fn lease(mut self, lease: Duration) -> Self {
        (self.request.lease, self.has_lease) = (lease, true);
        self
    }

    /// Sets how long [`acquire`](Self::acquire) waits. Without this it waits for as long as it takes.
    pub fn wait(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// Shares the lock with other shared holders; it excludes exclusive ones. Needs the module.
    pub fn shared(mut self) -> Self {
        self.request.form = Form::Share(None);
        self
    }

    /// Makes the lock one of `n` permits, a semaphore. Needs the module.
    pub fn permits(mut self, n: u32) -> Self {
        self.request.form = Form::Share(Some(n));
        self
    }

    /// Lets an owner acquire the lock again while it holds it. Each acquisition has its guard, and the lock is free after the
    /// last one. Owners are names within this [`Locks`]: a task, a request, a job. The first acquisition decides about
    /// [`session`](Self::session), [`renew`](Self::renew) and [`label`](Self::label). An owner that has lost the lock gets
    /// [`Error::Lost`] until its last guard is dropped.
    pub fn reentrant(mut self, owner: impl Into<String>) -> Self {
        self.request.form = Form::Reentrant(owner.into());
        self
    }

    /// Has the server renew the lease while the connection is open, and free the lock a second after this process has ended,
    /// however it ends. A connection that is lost for less than a second does not cost the lock. Needs the module, and a lease of
    /// 100 milliseconds or more.
    ///
    /// If a network loses a connection without a sign, the server may notice it first, and free the lock a second later. The
    /// loss is reported after up to half of the lease and 6 seconds: compare [fencing tokens](Guard::fence).
    pub fn session(mut self) -> Self {
        self.request.has_session = true;
        self
    }

    /// Renews the lease from this process, each time a third of it has passed, by two commands: LOCK.EXTEND, and a read, after
    /// which the server reports the next change. The lock outlasts a lost connection and a failover that are shorter than the
    /// rest of the lease.
    pub fn renew(mut self) -> Self {
        self.request.is_renewed = true;
        self
    }

    /// Waits only if fewer requests than `n` wait for the lock already; otherwise it is [`Error::QueueFull`].
    pub fn max_waiters(mut self, n: u32) -> Self {
        self.request.max_waiters = Some(n);
        self
    }

    /// Sets a name for the holder, which LOCK.INFO shows before the random token: 1 to 64 printable characters without a
    /// space.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Acquires the lock, and waits for it in the queue of the server if it is held.
    ///
    /// The future may be dropped at any moment: the request is withdrawn then, or the lock released. Tasks of one process are
    /// served in the order in which they called this, so a future that has begun and is not polled any more, as in a `select!`
    /// whose other branch works on, holds up the later ones.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] if the lock was not free in time, [`Error::ModuleNeeded`], or the error of the server or of the
    /// connection. While a server restarts or is replaced, the wait goes on, without [`wait`](Self::wait) for a minute.
    pub fn acquire(self) -> impl Future<Output = Result<Guard, Error>> + Send + use<> {
        let patience = self.patience;
        acquire(self, patience, |result| result)
    }

    /// Acquires the lock if it is free. Returns none if it is not.
    ///
    /// It is asked for after the releases of this process that are under way.
    ///
    /// # Errors
    ///
    /// Those of [`acquire`](Self::acquire) without [`Error::Timeout`].
    pub fn try_acquire(self) -> impl Future<Output = Result<Option<Guard>, Error>> + Send + use<> {
        acquire(self, Some(Duration::ZERO), |result| match result {
            Err(Error::Timeout(_)) => Ok(None),
            result => result.map(Some),
        })
    }

    /// Acquires the lock, does some work, and releases the lock. The work is dropped if the lock is lost.
    ///
    /// ```
    /// # use redis_lock_client::{Error, Locks};
    /// # async fn example(locks: Locks) -> Result<(), Error> {
    /// let number = locks.lock("door").session().with(async |guard| guard.fence().await).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// That of the work, otherwise [`Error::Lost`] if the lock was lost before the work was done, otherwise those of
    /// [`acquire`](Self::acquire) and [`Guard::release`]. The lock is released then, too.
    pub async fn with<T, E: From<Error>>(self, work: impl AsyncFnOnce(&Guard) -> Result<T, E>) -> Result<T, E> {
        let name = self.request.name();
        let guard = self.acquire().await?;
        let result = tokio::select! {
            result = work(&guard) => result,
            () = guard.lost() => return Err(Error::Lost(name).into()),
        };
        let released = guard.release().await;
        let value = result?;
        released?;
        Ok(value)
    }

    /// Takes over a lock that [`Guard::detach`] has left, with the kind and the lease that this describes.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the token does not hold the lock, or the error of the command.
    pub async fn attach(self, token: impl Into<String>) -> Result<Guard, Error> {
        self.check()?;
        let (is_reentrant, lease) = (self.request.is_reentrant(), self.request.lease);
        let ownership = Arc::new(Ownership::new(self, token.into()));
        ownership.extend(lease).await?;
        ownership.hold.set_state(State::Settled(NO_CONNECTION));
        if is_reentrant {
            ownership.queue.set_held(&ownership);
        }
        Ok(Guard::new(ownership))
    }

    /// Returns what is asked for.
    pub(crate) fn into_request(self) -> Request {
        let is_renewed = self.request.is_renewed || !(self.has_lease || self.request.has_session);
        Request { is_renewed, ..self.request }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let is_label = |label: &String| (1..=64).contains(&label.len()) && label.bytes().all(|c| c.is_ascii_graphic());
        let Request { has_session, is_renewed, max_waiters, .. } = self.request;
        let reason = match self.request.form {
            _ if self.request.key.is_empty() => "the name is empty",
            _ if has_session && is_renewed => "the server renews a session: choose session or renew",
            _ if max_waiters.is_some_and(|n| n == 0 || n > MAX_PERMITS) => "max_waiters is 1 to 2147483647",
            Form::Share(Some(n)) if n == 0 || n > MAX_PERMITS => "a semaphore has 1 to 2147483647 permits",
            _ if !self.label.as_ref().is_none_or(is_label) => "a label has 1 to 64 printable characters, no space",
            _ => return self.request.check_lease(self.request.lease),
        };
        Err(Error::Argument(self.request.name(), reason))
    }
}
