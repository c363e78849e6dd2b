use redis_lock_client::{Error, Locks};
use support::{Server, Setup};
use tokio::time::sleep;

use crate::{LONG, is_free, locks_at, ms, until};

async fn plain() -> (Server, Locks) {
    let server = Setup::new().without_module().start();
    let locks = locks_at(server.port()).await;
    (server, locks)
}

#[tokio::test]
async fn scripts_keep_the_same_locks() {
    let (server, locks) = plain().await;
    for lock in [locks.lock("door"), locks.lock("door").reentrant("job")] {
        let guard = lock.lease(LONG).acquire().await.expect("a free lock");
        assert!(locks.lock("door").try_acquire().await.expect("a reply").is_none());
        guard.extend(ms(5000)).await.expect("a lock that is held");
        assert!((1..=5000).contains(&server.client().pttl("door")));
        guard.release().await.expect("a lock that is held");
        assert!(is_free(&server, "door"));
    }
}

#[tokio::test]
async fn waiter_polls_until_the_lock_is_free() {
    let (server, locks) = plain().await;
    let guard = locks.lock("door").acquire().await.expect("a free lock");
    let waiter = tokio::spawn(async move { locks.lock("door").acquire().await });
    sleep(ms(300)).await;
    guard.release().await.expect("a lock that is held");
    let guard = waiter.await.expect("no panic").expect("a turn");
    assert_eq!(server.ask("GET door"), guard.token());
}

#[tokio::test]
async fn loss_is_reported_and_renewal_works() {
    let (server, locks) = plain().await;
    let guard = locks.lock("door").lease(ms(300)).renew().acquire().await.expect("a free lock");
    sleep(ms(1000)).await;
    assert!(!guard.is_lost());
    server.ask("SET door other");
    until("the loss is reported", || guard.is_lost()).await;
    assert!(matches!(guard.release().await, Err(Error::Lost(_))));
    assert_eq!(server.ask("GET door"), "other");
}
