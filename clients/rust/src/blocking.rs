//! The same locks for programs without async: each call blocks its thread.
//!
//! ```
//! # let server = support::Setup::new().start();
//! # let url = format!("redis://127.0.0.1:{}", server.port());
//! use redis_lock_client::{blocking::Locks, redis};
//!
//! let locks = Locks::new(redis::Client::open(url)?)?;
//! let guard = locks.lock("door").acquire()?;
//! assert!(locks.lock("door").try_acquire()?.is_none());
//! guard.release()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Dropping a guard waits for its release, for 5 seconds at most, but not in a thread of a tokio runtime, or at the end of a
//! thread whose thread-local variable has it.

use std::borrow::Cow;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::timeout;

use crate::{Error, Source};

/// The locks of one server, with a thread that keeps their connection.
#[derive(Clone, Debug)]
pub struct Locks(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    locks: crate::Locks,
    runtime: Option<Runtime>,
}

impl Locks {
    /// Connects to a server, or to a cluster, as [`crate::Locks::new`].
    ///
    /// # Errors
    ///
    /// [`Error::Connection`] if the server cannot be reached, [`Error::Server`] if it refuses the user.
    ///
    /// # Panics
    ///
    /// In an async task, as all functions that block, or if no thread can be started.
    pub fn new(source: impl Into<Source>) -> Result<Self, Error> {
        let runtime =
            Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a thread can be started");
        let locks = runtime.block_on(crate::Locks::new(source))?;
        Ok(Self(Arc::new(Inner { locks, runtime: Some(runtime) })))
    }

    /// Describes a lock; nothing is sent yet.
    pub fn lock(&self, name: impl AsRef<[u8]>) -> Lock {
        Lock { lock: self.0.locks.lock(name), locks: self.clone() }
    }

    /// Waits until the server has all releases, for a time at most.
    pub fn close(&self, limit: Duration) {
        let _ = self.block_on(async { timeout(limit, self.0.locks.close()).await });
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.0.runtime.as_ref().expect("only `drop` takes it").block_on(future)
    }
}

impl Drop for Inner {
    /// Waits for the releases of dropped guards, for a second at most.
    fn drop(&mut self) {
        let (done, is_done) = mpsc::channel();
        let (locks, runtime) = (self.locks.clone(), self.runtime.take().expect("this runs once"));
        runtime.spawn(async move {
            locks.close().await;
            done.send(())
        });
        let _ = is_done.recv_timeout(Duration::from_secs(1));
        runtime.shutdown_background();
    }
}

/// The description of a lock, from [`Locks::lock`].
#[derive(Clone, Debug)]
#[must_use = "nothing is sent before `acquire`"]
pub struct Lock {
    locks: Locks,
    lock: crate::Lock,
}

macro_rules! options {
    ($($name:ident($($argument:ident: $type:ty)?);)*) => {$(
        #[doc = concat!("See [`crate::Lock::", stringify!($name), "`].")]
        pub fn $name(mut self $(, $argument: $type)?) -> Self {
            self.lock = self.lock.$name($($argument)?);
            self
        }
    )*};
}

impl Lock {
    options! {
        lease(lease: Duration);
        wait(patience: Duration);
        shared();
        permits(n: u32);
        reentrant(owner: impl Into<String>);
        session();
        renew();
        max_waiters(n: u32);
        label(label: impl Into<String>);
    }

    /// Acquires the lock, and waits for it if it is held.
    ///
    /// # Errors
    ///
    /// Those of [`crate::Lock::acquire`].
    pub fn acquire(self) -> Result<Guard, Error> {
        let guard = self.locks.block_on(self.lock.acquire())?;
        Ok(Guard { guard: Some(guard), locks: self.locks })
    }

    /// Acquires the lock if it is free.
    ///
    /// # Errors
    ///
    /// Those of [`crate::Lock::try_acquire`].
    pub fn try_acquire(self) -> Result<Option<Guard>, Error> {
        let guard = self.locks.block_on(self.lock.try_acquire())?;
        Ok(guard.map(|guard| Guard { guard: Some(guard), locks: self.locks }))
    }

    /// Acquires the lock, does some work, and releases the lock. The work asks [`Guard::is_lost`], because nothing can end it.
    ///
    /// # Errors
    ///
    /// That of the work, otherwise those of [`acquire`](Self::acquire) and [`Guard::release`].
    pub fn with<T, E: From<Error>>(self, work: impl FnOnce(&Guard) -> Result<T, E>) -> Result<T, E> {
        let guard = self.acquire()?;
        let result = work(&guard);
        let released = guard.release();
        let value = result?;
        released?;
        Ok(value)
    }

    /// Takes over a lock that [`Guard::detach`] has left.
    ///
    /// # Errors
    ///
    /// Those of [`crate::Lock::attach`].
    pub fn attach(self, token: impl Into<String>) -> Result<Guard, Error> {
        let guard = self.locks.block_on(self.lock.attach(token))?;
        Ok(Guard { guard: Some(guard), locks: self.locks })
    }
}

/// A lock that is held. Dropping it releases the lock.
#[derive(Debug)]
#[must_use = "the lock is released when its guard is dropped"]
pub struct Guard {
    /// Only its end takes it.
    guard: Option<crate::Guard>,
    locks: Locks,
}

impl Guard {
    fn guard(&self) -> &crate::Guard {
        self.guard.as_ref().expect("only its end takes it")
    }

    fn taken(&mut self) -> crate::Guard {
        self.guard.take().expect("only its end takes it")
    }

    /// See [`crate::Guard::token`].
    #[must_use]
    pub fn token(&self) -> &str {
        self.guard().token()
    }

    /// See [`crate::Guard::name`].
    #[must_use]
    pub fn name(&self) -> Cow<'_, str> {
        self.guard().name()
    }

    /// See [`crate::Guard::remaining`].
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.guard().remaining()
    }

    /// Returns whether the lock is lost, as far as this is known without asking the server.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.guard().is_lost()
    }

    /// Waits until the lock is lost, for a time at most. Returns whether it is.
    #[must_use]
    pub fn lost(&self, limit: Duration) -> bool {
        self.locks.block_on(async { timeout(limit, self.guard().lost()).await.is_ok() })
    }

    /// Sets the rest of the lease.
    ///
    /// # Errors
    ///
    /// Those of [`crate::Guard::extend`].
    pub fn extend(&self, lease: Duration) -> Result<(), Error> {
        self.locks.block_on(self.guard().extend(lease))
    }

    /// Draws a fencing token.
    ///
    /// # Errors
    ///
    /// Those of [`crate::Guard::fence`].
    pub fn fence(&self) -> Result<i64, Error> {
        self.locks.block_on(self.guard().fence())
    }

    /// Releases the lock, and waits for the reply.
    ///
    /// # Errors
    ///
    /// Those of [`crate::Guard::release`].
    pub fn release(mut self) -> Result<(), Error> {
        let guard = self.taken();
        self.locks.block_on(guard.release())
    }

    /// Leaves the lock held and returns its token, by which [`Lock::attach`] takes it over.
    #[must_use = "without its token the lock stays held until its lease ends"]
    pub fn detach(mut self) -> String {
        self.taken().detach()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Locks in a static are never dropped, so nothing else would wait for the release when the process ends.
        let has_context = Handle::try_current().map_or_else(|error| error.is_thread_local_destroyed(), |_| true);
        if let (Some(guard), false) = (self.guard.take(), has_context) {
            let _ = self.locks.block_on(guard.release());
        }
    }
}
