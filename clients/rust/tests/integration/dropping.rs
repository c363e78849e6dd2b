use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::{LONG, is_free, locks_at, ms, started, until, waiters};

#[tokio::test]
async fn dropped_guard_releases() {
    let (server, locks) = started().await;
    drop(locks.lock("door").acquire().await.expect("a free lock"));
    locks.close().await;
    assert!(is_free(&server, "door"));
}

#[tokio::test]
async fn guard_dropped_outside_of_a_runtime_releases() {
    let (server, locks) = started().await;
    let guard = locks.lock("door").acquire().await.expect("a free lock");
    thread::spawn(move || drop(guard)).join().expect("no panic");
    until("it is released", || is_free(&server, "door")).await;
}

#[test]
fn guard_that_outlives_its_runtime_does_not_panic() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (_server, locks) = runtime.block_on(started());
    let guard = runtime.block_on(async { locks.lock("door").acquire().await }).expect("a free lock");
    drop(runtime);
    drop(guard);
}

#[tokio::test]
async fn acquisition_cancelled_by_select_withdraws() {
    let (server, locks) = started().await;
    let guard = locks.lock("door").acquire().await.expect("a free lock");
    tokio::select! {
        _ = locks.lock("door").acquire() => panic!("it is held"),
        () = async { until("it waits", || waiters(&server, "door") == 1).await } => {}
    }
    until("it has withdrawn", || waiters(&server, "door") == 0).await;
    assert_eq!(server.ask("GET door"), guard.token());
}

#[tokio::test]
async fn second_waiter_is_served_after_first_is_cancelled() {
    let (server, locks) = started().await;
    let guard = locks.lock("door").acquire().await.expect("a free lock");
    let first = tokio::spawn({
        let lock = locks.lock("door");
        async move { lock.acquire().await }
    });
    until("it waits", || waiters(&server, "door") == 1).await;
    let second = tokio::spawn({
        let lock = locks.lock("door");
        async move { lock.acquire().await }
    });
    first.abort();
    drop(guard);
    let second = timeout(ms(5000), second).await.expect("a turn").expect("no panic").expect("a grant");
    assert_eq!(server.ask("GET door"), second.token());
}

fn random() -> u64 {
    getrandom::u64().expect("random numbers")
}

/// 10,000 acquisitions, of which most are dropped: before they are sent, while they wait, in the moment of the grant, as a
/// result that is not taken, or as a guard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn futures_dropped_at_any_moment_leave_no_orphan() {
    const KEYS: usize = 10;
    let (server, locks) = started().await;
    let others = locks_at(server.port()).await;
    let (mut tasks, acquired) = (JoinSet::new(), Arc::new(AtomicU32::new(0)));
    for number in 0..10_000_usize {
        let lock = if number % 3 == 0 { &others } else { &locks }.lock(format!("door:{}", number % KEYS));
        let acquired = acquired.clone();
        // From microseconds to a quarter of a second: as many short ones as long ones.
        let span = Duration::from_micros(random() % (1 << (6 + random() % 13)));
        tasks.spawn(async move {
            if let Ok(guard) = timeout(span, lock.acquire()).await {
                let guard = guard.expect("a server that replies");
                acquired.fetch_add(1, Ordering::SeqCst);
                sleep(span / 100).await;
                if number % 2 == 0 {
                    guard.release().await.expect("a lock that is held");
                }
            }
        });
        if number % 100 == 0 {
            sleep(ms(5)).await;
        }
    }
    tasks.join_all().await;
    locks.close().await;
    others.close().await;
    for number in 0..KEYS {
        let name = format!("door:{number}");
        until("nothing is left", || is_free(&server, &name) && waiters(&server, &name) == 0).await;
    }
    let acquired = acquired.load(Ordering::SeqCst);
    println!("{acquired} of 10,000 were acquired");
    assert!(acquired > 10, "{acquired}");
}

/// Tasks of two processes whose connections are cut, and which are cancelled at any moment. Each checks that it is alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cuts_and_cancellations_leave_no_orphan() {
    let (server, first) = started().await;
    let second = locks_at(server.port()).await;
    let (mut tasks, acquired) = (JoinSet::new(), Arc::new(AtomicU32::new(0)));
    let inside: Arc<[AtomicU32; 5]> = Arc::default();
    for number in 0..2000_usize {
        let lock = if number % 2 == 0 { &first } else { &second }.lock(format!("door:{}", number % 5)).lease(LONG);
        let (inside, acquired) = (inside.clone(), acquired.clone());
        tasks.spawn(async move {
            let span = Duration::from_micros(random() % (1 << (8 + random() % 12)));
            if let Ok(Ok(guard)) = timeout(span, lock.acquire()).await {
                assert_eq!(inside[number % 5].fetch_add(1, Ordering::SeqCst), 0, "alone");
                sleep(ms(random() % 3)).await;
                inside[number % 5].fetch_sub(1, Ordering::SeqCst);
                acquired.fetch_add(1, Ordering::SeqCst);
                if number % 3 == 0 {
                    // The outcome may be unknown: then it is sent again.
                    let _ = guard.release().await;
                }
            }
        });
        if number % 20 == 0 {
            sleep(ms(10)).await;
            for kind in ["normal", "pubsub"] {
                server.ask(&format!("CLIENT KILL TYPE {kind} SKIPME yes"));
            }
        }
    }
    tasks.join_all().await;
    first.close().await;
    second.close().await;
    for number in 0..5 {
        let name = format!("door:{number}");
        until("nothing is left", || is_free(&server, &name) && waiters(&server, &name) == 0).await;
    }
    println!("{} of 2,000 were acquired", acquired.load(Ordering::SeqCst));
}
