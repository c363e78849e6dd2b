//! Locks in Redis and Valkey, for tasks of [tokio](https://tokio.rs), over the [redis](https://docs.rs/redis) crate.
//!
//! With the server module redis-lock, waiters are in a fair queue, and get the lock the moment it is free. Without the module,
//! as on a managed server, the same locks work by scripts and polling.
//!
//! ```
//! # use std::time::Duration;
//! # use redis_lock_client::{Locks, redis};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = support::Setup::new().start();
//! # let url = format!("redis://127.0.0.1:{}", server.port());
//! let locks = Locks::new(redis::Client::open(url)?).await?;
//! let guard = locks.lock("door").lease(Duration::from_secs(30)).wait(Duration::from_secs(20)).acquire().await?;
//! assert!(locks.lock("door").try_acquire().await?.is_none());
//! println!("write with fencing token {}", guard.fence().await?);
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! # Nothing is left behind
//!
//! Any future of this crate can be dropped at any moment, in a `select!`, by a time-out, with an aborted task: a request is
//! withdrawn, and a lock that has been granted in the same moment is released. A dropped [`Guard`] releases its lock, in any
//! thread, also outside of a runtime. A task of the runtime in which [`Locks::new`] was called sends these commands, again if a
//! connection is lost. All else runs in the task of the caller, of any executor.
//!
//! - Before a runtime ends, call [`Locks::close`]: a task that does not run any more sends nothing, and the lock is free when
//!   its lease ends. With [`Lock::session`] it is free a second after the process has ended.
//! - [`Guard::release`] waits for the reply, and reports a lock that was lost.
//!
//! # A lock that is lost
//!
//! A lease can end too early, and an operator can delete a key. [`Guard::lost`] is a future that ends within milliseconds:
//!
//! ```
//! # use std::time::Duration;
//! # use redis_lock_client::{Error, Locks, redis};
//! # async fn work() {}
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = support::Setup::new().start();
//! # let locks = Locks::new(redis::Client::open(format!("redis://127.0.0.1:{}", server.port()))?).await?;
//! let guard = locks.lock("door").renew().acquire().await?;
//! tokio::select! {
//!     () = work() => guard.release().await?,
//!     () = guard.lost() => return Err(Error::Lost("door".into()).into()),
//! }
//! // The same in one call.
//! locks.lock("door").renew().with(async |_guard| Ok::<_, Error>(work().await)).await?;
//! # Ok(()) }
//! ```
//!
//! A resource that several holders could write to compares [fencing tokens](Guard::fence).
//!
//! # Kinds of locks
//!
//! ```
//! # use redis_lock_client::{Locks, redis};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = support::Setup::new().start();
//! # let locks = Locks::new(redis::Client::open(format!("redis://127.0.0.1:{}", server.port()))?).await?;
//! let readers = (locks.lock("page").shared().acquire().await?, locks.lock("page").shared().acquire().await?);
//! let permit = locks.lock("printers").permits(2).acquire().await?;
//! let outer = locks.lock("cellar").reentrant("job 17").acquire().await?;
//! let inner = locks.lock("cellar").reentrant("job 17").acquire().await?;
//! let session = locks.lock("leader").session().label("web-1").acquire().await?;
//! # drop((readers, permit, inner, outer, session));
//! # locks.close().await;
//! # Ok(()) }
//! ```
//!
//! # Features
//!
//! | feature | |
//! |---|---|
//! | `redis-1` (default) | clients of redis 1 |
//! | `redis-2` | clients of redis 2, also together with `redis-1` |
//! | `cluster` | clients of clusters |
//! | `sentinel` | clients of Sentinel |
//! | `blocking` | [`blocking`], for programs without async |
//!
//! TLS is a feature of the redis crate, such as `tokio-rustls-comp`, which your package turns on for its own dependency. Spans
//! and events of [tracing](https://docs.rs/tracing) at level DEBUG say which lock is waited for, granted or released.
//!
//! The user of the server needs `+hello +get +hget +zmscore +ssubscribe +client|tracking +client|setname`, the `LOCK.*`
//! commands and the channels `redis-lock:*`, with a database other than 0 `+select`; on a server without the module `+eval` and the commands in the scripts. Without
//! the right to the channel waits poll, and without `client|tracking` a loss is seen after a third of the lease.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod acquire;
#[cfg(feature = "blocking")]
pub mod blocking;
mod core;
mod error;
mod events;
mod guard;
mod hold;
mod keeper;
mod lock;
mod locks;
mod observe;
mod queues;
#[cfg(feature = "redis-1")]
mod redis_one;
#[cfg(feature = "redis-2")]
mod redis_two;
mod registry;
mod release;
mod request;
mod scripts;
mod server;
mod several;
#[cfg(test)]
mod vectors;

#[cfg(not(any(feature = "redis-1", feature = "redis-2")))]
compile_error!("choose the version of the redis crate: feature redis-1 or redis-2");

#[cfg(feature = "redis-1")]
pub use ::redis_1;
#[cfg(feature = "redis-2")]
pub use ::redis_2;
/// For the examples and tests of this crate, which run with each version.
#[cfg(feature = "redis-1")]
#[doc(hidden)]
pub use redis_1 as redis;
#[cfg(not(feature = "redis-1"))]
#[doc(hidden)]
pub use redis_2 as redis;

pub use error::Error;
pub use guard::Guard;
pub use lock::Lock;
pub use locks::Locks;
pub use observe::Observer;
pub use server::Source;
pub use several::{Guards, Several, several};
