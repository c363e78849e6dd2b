//! Tests of rslock 0.10, in our words, through an adapter with its interface. These do not hold here:
//!
//! - `test_smol_without_tokio_runtime`: any executor can wait for a future, but the connection needs tokio.
//! - `test_lock_valid_instance`, `test_lock_manager_from_clients_valid_instance`,
//!   `test_lock_manager_from_clients_partial_quorum`: there is one server, and no quorum.
//! - `test_lock_direct_unlock_succeeds`, `test_lock_unlock`: a key without a lease is no lock that can be taken over by its token.
//! - `test_lock_with_short_ttl_and_retries`: a lease of a millisecond is allowed.
//! - `test_dropping_guard_leaves_key_until_ttl`, `test_cancelling_using_leaves_key`: here the lock is released.
//!
//! `test_cluster_lock_lifecycle` is in `cluster.rs`, `test_is_freed_handles_redis_connection_failure` and
//! `test_redis_connection_failed` are in `outages.rs`. A key that is missing and one of another value are one error,
//! [`Error::Lost`].

use std::sync::Arc;
use std::time::Duration;

use redis_lock_client::{Error, Guard, Locks};
use support::{Client, Reply, Server};
use tokio::time::sleep;

use crate::{ms, started, until};

/// What rslock's manager does, with a wait instead of its three attempts.
#[derive(Clone)]
struct LockManager(Locks);

/// A lock that is held by its value, as rslock has it.
struct Lock {
    resource: Vec<u8>,
    val: String,
}

impl LockManager {
    fn lock_of(&self, resource: &[u8], ttl: Duration) -> redis_lock_client::Lock {
        self.0.lock(resource).lease(ttl).wait(ms(300))
    }

    async fn lock(&self, resource: &[u8], ttl: Duration) -> Result<Lock, Error> {
        let val = self.lock_of(resource, ttl).acquire().await?.detach();
        Ok(Lock { resource: resource.to_vec(), val })
    }

    async fn acquire(&self, resource: &[u8], ttl: Duration) -> Result<Guard, Error> {
        self.lock_of(resource, ttl).acquire().await
    }

    async fn unlock(&self, lock: &Lock) {
        if let Ok(guard) = self.lock_of(&lock.resource, ms(10_000)).attach(lock.val.as_str()).await {
            let _ = guard.release().await;
        }
    }

    async fn extend(&self, lock: &Lock, ttl: Duration) -> Result<(), Error> {
        let guard = self.lock_of(&lock.resource, ttl).attach(lock.val.as_str()).await?;
        let _val = guard.detach();
        Ok(())
    }

    /// rslock reads the key; this takes the lock over for a moment, with the lease that it has at least.
    async fn is_freed(&self, lock: &Lock) -> Result<bool, Error> {
        self.extend(lock, ms(10_000)).await.map(|()| false)
    }

    async fn using<R>(&self, resource: &[u8], ttl: Duration, routine: impl AsyncFnOnce() -> R) -> Result<R, Error> {
        self.lock_of(resource, ttl).renew().with(async |_guard| Ok(routine().await)).await
    }
}

async fn managers() -> (Server, LockManager, LockManager) {
    let (server, locks) = started().await;
    let other = crate::locks_at(server.port()).await;
    (server, LockManager(locks), LockManager(other))
}

fn value(client: &mut Client, resource: &[u8]) -> Reply {
    client.call(&[b"GET".as_slice(), resource])
}

/// rslock's own names for resources: 20 bytes, which are not text.
fn unique() -> Vec<u8> {
    let mut bytes = vec![0xff; 20];
    getrandom::fill(&mut bytes[1..]).expect("random numbers");
    bytes
}

#[test]
fn types_are_send_and_sync() {
    fn is_normal<T: Sized + Send + Sync + Unpin>() {}
    is_normal::<Locks>();
    is_normal::<Error>();
    is_normal::<redis_lock_client::Lock>();
    is_normal::<Guard>();
}

#[tokio::test]
async fn lock_has_resource_and_value() {
    let (server, manager, _) = managers().await;
    let key = unique();
    let lock = manager.lock(&key, ms(10_000)).await.expect("a free lock");
    assert_eq!(value(&mut server.client(), &key), Reply::Text(lock.val.clone().into_bytes()));
}

#[tokio::test]
async fn unlock_lets_another_manager_lock() {
    let (_server, manager, other) = managers().await;
    let key = unique();
    let lock = manager.lock(&key, ms(10_000)).await.expect("a free lock");
    assert!(other.lock(&key, ms(10_000)).await.is_err());
    manager.unlock(&lock).await;
    assert!(other.lock(&key, ms(10_000)).await.is_ok());
}

#[tokio::test]
async fn values_are_unique_and_unlock_their_own_lock_alone() {
    let (server, manager, other) = managers().await;
    let lock = manager.lock(b"resource", ms(10_000)).await.expect("a free lock");
    let stranger = other.lock(b"other", ms(10_000)).await.expect("a free lock");
    assert_eq!((lock.val.len(), stranger.val.len()), (32, 32));
    assert_ne!(lock.val, stranger.val);
    other.unlock(&Lock { resource: lock.resource.clone(), val: stranger.val }).await;
    assert_eq!(value(&mut server.client(), b"resource"), lock.val.as_str());
    assert_eq!(server.ask("DEL resource"), Reply::Int(1));
    assert!(manager.lock(b"resource", ms(10_000)).await.is_ok());
}

#[tokio::test]
async fn lock_is_freed_when_another_task_unlocks_it() {
    let (_server, manager, _) = managers().await;
    let lock = Arc::new(manager.lock(b"resource", ms(10_000)).await.expect("a free lock"));
    assert!(!manager.is_freed(&lock).await.expect("a lock that is held"));
    let task = tokio::spawn({
        let (manager, lock) = (manager.clone(), lock.clone());
        async move { manager.unlock(&lock).await }
    });
    task.await.expect("no panic");
    assert!(matches!(manager.is_freed(&lock).await, Err(Error::Lost(_))));
}

#[tokio::test]
async fn removed_or_replaced_key_is_a_lost_lock() {
    let (server, manager, _) = managers().await;
    for change in ["DEL resource", "SET resource another-value"] {
        server.ask("DEL resource");
        let lock = manager.lock(b"resource", ms(10_000)).await.expect("a free lock");
        server.ask(change);
        assert!(matches!(manager.is_freed(&lock).await, Err(Error::Lost(_))), "{change}");
    }
}

#[cfg(feature = "cluster")]
#[tokio::test]
async fn address_of_a_cluster_is_checked() {
    let builder = redis_lock_client::redis::cluster::ClusterClientBuilder::new(["not-a-redis-uri"]);
    assert!(Locks::new(builder).await.is_err());
}

#[tokio::test]
async fn release_of_a_guard_unlocks() {
    let (server, manager, _) = managers().await;
    let guard = manager.acquire(b"guard-release", ms(10_000)).await.expect("a free lock");
    assert_ne!(value(&mut server.client(), b"guard-release"), Reply::Nil);
    guard.release().await.expect("a lock that is held");
    assert_eq!(value(&mut server.client(), b"guard-release"), Reply::Nil);
    manager
        .acquire(b"guard-release", ms(10_000))
        .await
        .expect("a free lock")
        .release()
        .await
        .expect("a lock that is held");
}

#[tokio::test]
async fn release_preserves_a_different_owner() {
    let (server, manager, _) = managers().await;
    let guard = manager.acquire(b"release-owner", ms(10_000)).await.expect("a free lock");
    server.ask("SET release-owner new-owner PX 10000");
    assert!(guard.release().await.is_err());
    assert_eq!(value(&mut server.client(), b"release-owner"), "new-owner");
}

#[tokio::test]
async fn cancelled_using_releases() {
    let (server, manager, _) = managers().await;
    let using = tokio::spawn(async move {
        manager.using(b"using-cancel", ms(10_000), async || std::future::pending::<()>().await).await
    });
    until("it is held", || value(&mut server.client(), b"using-cancel") != Reply::Nil).await;
    using.abort();
    until("it is released", || value(&mut server.client(), b"using-cancel") == Reply::Nil).await;
}

#[tokio::test]
async fn dropped_guard_does_not_wait_for_its_ttl() {
    let (server, manager, _) = managers().await;
    drop(manager.acquire(b"guard-drop", ms(60_000)).await.expect("a free lock"));
    until("it is released", || value(&mut server.client(), b"guard-drop") == Reply::Nil).await;
}

#[tokio::test]
async fn using_renews_and_releases() {
    let (server, manager, _) = managers().await;
    let result = manager
        .using(b"using-renewal", ms(800), async || {
            sleep(ms(1100)).await;
            assert_ne!(value(&mut server.client(), b"using-renewal"), Reply::Nil);
            42
        })
        .await;
    assert_eq!(result.expect("a lock that was held"), 42);
    assert_eq!(value(&mut server.client(), b"using-renewal"), Reply::Nil);
    assert_eq!(manager.using(b"using-short", ms(100), async || 7).await.expect("a short lease"), 7);
}

#[tokio::test]
async fn extended_lock_excludes_others() {
    let (_server, manager, other) = managers().await;
    let key = unique();
    let lock = manager.lock(&key, ms(1000)).await.expect("a free lock");
    sleep(ms(500)).await;
    manager.extend(&lock, ms(10_000)).await.expect("a lock that is held");
    sleep(ms(700)).await;
    assert!(other.lock(&key, ms(1000)).await.is_err());
}

#[tokio::test]
async fn extended_lock_ends_and_is_not_extended_again() {
    let (_server, manager, other) = managers().await;
    let key = unique();
    let lock = manager.lock(&key, ms(500)).await.expect("a free lock");
    manager.extend(&lock, ms(500)).await.expect("a lock that is held");
    sleep(ms(1000)).await;
    let _other = other.lock(&key, ms(10_000)).await.expect("a free lock");
    assert!(manager.extend(&lock, ms(10_000)).await.is_err());
}

#[tokio::test]
async fn too_long_ttl_is_an_error() {
    let (_server, manager, _) = managers().await;
    assert!(matches!(manager.lock(b"resource", Duration::from_secs(u64::MAX)).await, Err(Error::Argument(..))));
}

#[tokio::test]
async fn lock_and_manager_are_sent_to_another_task() {
    let (_server, manager, other) = managers().await;
    let lock = manager.lock(b"resource", ms(10_000)).await.expect("a free lock");
    let (sender, mut receiver) = tokio::sync::mpsc::channel(32);
    assert!(sender.send((lock, manager)).await.is_ok());
    let task = tokio::spawn(async move {
        if let Some((lock, manager)) = receiver.recv().await {
            manager.unlock(&lock).await;
        }
    });
    task.await.expect("no panic");
    assert!(other.lock(b"resource", ms(10_000)).await.is_ok());
}
