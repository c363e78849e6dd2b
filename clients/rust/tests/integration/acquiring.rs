use std::sync::{Arc, Mutex};

use redis_lock_client::{Error, several};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::{LONG, is_free, locks_at, ms, started, until, waiters};

#[tokio::test]
async fn wait_that_times_out_leaves_no_waiter() {
    let (server, locks) = started().await;
    let _guard = locks.lock("door").acquire().await.expect("a free lock");
    let began_at = Instant::now();
    let error = locks.lock("door").wait(ms(200)).acquire().await.expect_err("a held lock");
    assert!(matches!(error, Error::Timeout(_)), "{error}");
    assert!((200..900).contains(&began_at.elapsed().as_millis()), "{:?}", began_at.elapsed());
    locks.close().await;
    assert_eq!(waiters(&server, "door"), 0);
}

#[tokio::test]
async fn waiters_of_processes_are_served_in_order() {
    let (server, first) = started().await;
    let guard = first.lock("door").acquire().await.expect("a free lock");
    let (order, mut tasks) = (Arc::new(Mutex::new(Vec::new())), JoinSet::new());
    for number in 0..20 {
        // Each has a connection of its own, so it is a waiter of the server.
        let (lock, order) = (locks_at(server.port()).await.lock("door"), order.clone());
        tasks.spawn(async move {
            let guard = lock.acquire().await.expect("a turn");
            order.lock().expect("no panic").push(number);
            guard.release().await
        });
        until("it waits", || waiters(&server, "door") == number + 1).await;
    }
    guard.release().await.expect("a lock that is held");
    assert!(tasks.join_all().await.into_iter().all(|result| result.is_ok()));
    assert_eq!(*order.lock().expect("no panic"), (0..20).collect::<Vec<_>>());
}

#[tokio::test]
async fn tasks_of_one_process_are_served_in_order() {
    let (server, locks) = started().await;
    let guard = locks.lock("door").acquire().await.expect("a free lock");
    let (order, mut tasks) = (Arc::new(Mutex::new(Vec::new())), JoinSet::new());
    for number in 0..200 {
        let (lock, order) = (locks.lock("door"), order.clone());
        tasks.spawn(async move {
            let guard = lock.acquire().await.expect("a turn");
            order.lock().expect("no panic").push(number);
            guard.release().await
        });
        sleep(ms(1)).await;
    }
    // One waiter for the process, however many tasks wait.
    until("the first one waits", || waiters(&server, "door") == 1).await;
    let connections = format!("{:?}", server.ask("CLIENT LIST")).matches("name=redis-lock-client").count();
    assert_eq!(connections, 1);
    guard.release().await.expect("a lock that is held");
    assert!(tasks.join_all().await.into_iter().all(|result| result.is_ok()));
    assert_eq!(*order.lock().expect("no panic"), (0..200).collect::<Vec<_>>());
}

/// Polls a future in a thread that has no runtime.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    loop {
        if let std::task::Poll::Ready(result) = future.as_mut().poll(&mut context) {
            return result;
        }
        std::thread::sleep(ms(1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn futures_run_on_any_executor() {
    let (server, locks) = started().await;
    let task = tokio::task::spawn_blocking(move || {
        std::thread::spawn(move || {
            block_on(async {
                let guard = locks.lock("door").renew().wait(ms(1000)).acquire().await.expect("a free lock");
                guard.extend(LONG).await.expect("a lock that is held");
                assert!(guard.fence().await.expect("a number") > 0);
                server.ask("DEL door");
                guard.lost().await;
                assert!(guard.release().await.is_err());
                locks.close().await;
            });
        })
        .join()
    });
    assert!(task.await.expect("no panic").is_ok());
}

#[tokio::test]
async fn several_locks_of_which_one_is_lost_are_an_error() {
    let (server, locks) = started().await;
    let held = locks.lock("door").acquire().await.expect("a free lock");
    let acquire = tokio::spawn(several(["cellar", "door"].map(|name| locks.lock(name).lease(ms(200)))).acquire());
    sleep(ms(400)).await;
    held.release().await.expect("a lock that is held");
    let error = acquire.await.expect("no panic").expect_err("a lease that has ended");
    assert!(matches!(&error, Error::Lost(name) if name == "cellar"), "{error}");
    until("the other is released", || is_free(&server, "door")).await;
}

#[tokio::test]
async fn longest_wait_for_several_locks_has_no_limit() {
    let (_server, locks) = started().await;
    // Futures around it do not reach the recursion limit of the compiler.
    let inner = async move { several([locks.lock("door")]).wait(std::time::Duration::MAX).acquire().await };
    let guards = tokio::spawn(async move { inner.await.map(|guards| (guards, ())) }).await.expect("no panic");
    guards.expect("a free lock").0.release().await.expect("a lock that is held");
}
