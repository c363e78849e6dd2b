use redis_lock_client::Error;
use support::Reply;
use tokio::time::{sleep, timeout};

use crate::{is_free, ms, started, until, waiters};

#[tokio::test]
async fn shares_exclude_exclusive_holders() {
    let (_server, locks) = started().await;
    let reader = locks.lock("page").shared().acquire().await.expect("a free lock");
    let other = locks.lock("page").shared().acquire().await.expect("a shared lock");
    assert!(locks.lock("page").try_acquire().await.expect("a reply").is_none());
    reader.release().await.expect("a share");
    other.release().await.expect("a share");
    assert!(locks.lock("page").try_acquire().await.expect("a reply").is_some());
}

#[tokio::test]
async fn permits_are_limited_and_passed_on() {
    let (_server, locks) = started().await;
    let pool = locks.lock("pool").permits(2);
    let first = pool.clone().acquire().await.expect("a permit");
    let second = pool.clone().acquire().await.expect("a permit");
    assert!(pool.clone().try_acquire().await.expect("a reply").is_none());
    let third = tokio::spawn(async move { pool.acquire().await });
    drop(first);
    let third = third.await.expect("no panic").expect("a permit");
    third.release().await.expect("a permit");
    second.release().await.expect("a permit");
}

#[tokio::test]
async fn owner_enters_again_and_last_guard_releases() {
    let (server, locks) = started().await;
    let outer = locks.lock("cellar").reentrant("job").acquire().await.expect("a free lock");
    let inner = locks.lock("cellar").reentrant("job").acquire().await.expect("its own lock");
    assert!(locks.lock("cellar").reentrant("other").try_acquire().await.expect("a reply").is_none());
    inner.release().await.expect("a guard");
    assert!(!is_free(&server, "cellar"));
    outer.release().await.expect("the last guard");
    assert!(is_free(&server, "cellar"));
    drop(locks.lock("cellar").reentrant("job").acquire().await.expect("a free lock"));
    locks.close().await;
    assert!(is_free(&server, "cellar"));
}

#[tokio::test]
async fn owner_that_lost_the_lock_does_not_enter_again() {
    let (server, locks) = started().await;
    let _outer = locks.lock("cellar").reentrant("job").acquire().await.expect("a free lock");
    server.ask("DEL cellar");
    let again = locks.lock("cellar").reentrant("job").acquire().await;
    assert!(matches!(again, Err(Error::Lost(_))));
}

#[tokio::test]
async fn fencing_tokens_rise() {
    let (server, locks) = started().await;
    let mut last = 0;
    for _ in 0..5 {
        let guard = locks.lock("door").acquire().await.expect("a free lock");
        let fence = guard.fence().await.expect("a number");
        assert!(fence > last);
        last = fence;
        guard.release().await.expect("a lock that is held");
    }
    assert_eq!(server.ask("EXISTS {door}:fence"), Reply::Int(1));
}

#[tokio::test]
async fn extend_sets_the_lease() {
    let (server, locks) = started().await;
    let guard = locks.lock("door").lease(ms(60_000)).acquire().await.expect("a free lock");
    guard.extend(ms(5000)).await.expect("a lock that is held");
    assert!((1..=5000).contains(&server.client().pttl("door")));
    guard.extend(ms(50_000)).await.expect("a lock that is held");
    assert!(server.client().pttl("door") > 40_000);
    for wrong in [ms(0), std::time::Duration::MAX] {
        assert!(matches!(guard.extend(wrong).await, Err(Error::Argument(..))));
    }
    server.ask("DEL door");
    assert!(matches!(guard.extend(ms(5000)).await, Err(Error::Lost(_))));
    assert!(guard.is_lost());
    assert!(matches!(guard.release().await, Err(Error::Lost(_))));
}

#[tokio::test]
async fn late_release_keeps_next_holder() {
    let (server, locks) = started().await;
    let late = locks.lock("door").lease(ms(50)).acquire().await.expect("a free lock");
    let next = locks.lock("door").acquire().await.expect("a lock whose lease has expired");
    assert!(matches!(late.release().await, Err(Error::Lost(_))));
    assert_eq!(server.ask("GET door"), next.token());
}

#[tokio::test]
async fn session_ends_with_its_connection() {
    let (server, locks) = started().await;
    let guard = locks.lock("door").session().acquire().await.expect("a free lock");
    let _token = guard.detach();
    drop(locks);
    until("the connection is closed and the grace period over", || is_free(&server, "door")).await;
    assert_eq!(waiters(&server, "door"), 0);
}

#[tokio::test]
async fn detached_guard_leaves_the_others_watched() {
    let (server, locks) = started().await;
    let acquire = || locks.lock("cellar").reentrant("job").lease(ms(600)).renew().acquire();
    for is_removed in [false, true] {
        let (outer, inner) = (acquire().await.expect("a free lock"), acquire().await.expect("its own lock"));
        let token = inner.detach();
        sleep(ms(1200)).await;
        assert!(!outer.is_lost() && !is_free(&server, "cellar"));
        if is_removed {
            server.ask("DEL cellar");
            timeout(ms(500), outer.lost()).await.expect("a loss");
        } else {
            drop(outer);
            locks.close().await;
            let guard = locks.lock("cellar").reentrant("job").attach(token).await.expect("a lock that is held");
            guard.release().await.expect("a lock that is held");
        }
    }
}
