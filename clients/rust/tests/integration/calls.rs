//! What a call costs, and in which order calls are served.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use redis_lock_client::{Error, Locks};
use support::Server;
use tokio::runtime::{Builder, Handle};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::{LONG, is_free, locks_at, ms, started, until, waiters};

/// Returns how many commands of a name the server has executed.
pub(crate) fn calls(server: &Server, command: &str) -> u32 {
    let figures = server.client().info("commandstats", &format!("cmdstat_{command}"));
    figures.map_or(0, |figures| {
        let number = figures.strip_prefix("calls=").and_then(|rest| rest.split(',').next());
        number.expect("a number").parse().expect("a number")
    })
}

/// Returns the result of one poll.
async fn poll_once<F: Future>(future: &mut Pin<Box<F>>) -> Option<F::Output> {
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_are_served_in_their_order() {
    let (_server, locks) = started().await;
    let mut in_time = 0;
    for round in 0..200 {
        let guard = locks.lock("door").lease(LONG).acquire().await.expect("a free lock");
        let (order, mut tasks) = (Arc::new(Mutex::new(Vec::new())), JoinSet::new());
        let (waiting, late) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        for number in 0..20 {
            let (called_at, mut acquired) = (Instant::now(), Box::pin(locks.lock("door").lease(LONG).acquire()));
            let (order, waiting, late) = (order.clone(), waiting.clone(), late.clone());
            tasks.spawn(async move {
                assert!(poll_once(&mut acquired).await.is_none());
                late.fetch_add(u32::from(called_at.elapsed() > ms(5)), Ordering::SeqCst);
                waiting.fetch_add(1, Ordering::SeqCst);
                let guard = acquired.await.expect("a turn");
                order.lock().expect("no panic").push(number);
                guard.release().await
            });
        }
        until("all tasks wait", || waiting.load(Ordering::SeqCst) == 20).await;
        sleep(ms(20)).await;
        guard.release().await.expect("a lock that is held");
        assert!(tasks.join_all().await.iter().all(Result::is_ok));
        // For a task that the machine begins later the others do not wait.
        if late.load(Ordering::SeqCst) == 0 {
            assert_eq!(*order.lock().expect("no panic"), (0..20).collect::<Vec<_>>(), "round {round}");
            in_time += 1;
        }
        if in_time == 20 {
            return;
        }
    }
    panic!("tasks that begin in time, in {in_time} of 200 rounds");
}

#[tokio::test]
async fn calls_start_no_task() {
    let (server, locks) = started().await;
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let guard = locks.lock("door").lease(LONG).acquire().await.expect("a free lock");
    let before = tasks();
    let mut waits: Vec<_> = (0..10).map(|_| Box::pin(locks.lock("door").acquire())).collect();
    for wait in &mut waits {
        assert!(poll_once(wait).await.is_none());
    }
    let mut acquired = Box::pin(locks.lock("window").acquire());
    assert!(poll_once(&mut acquired).await.is_none());
    let mut released = Box::pin(guard.release());
    assert!(poll_once(&mut released).await.is_none());
    assert_eq!(tasks(), before);
    released.await.expect("a lock that is held");
    drop((waits, acquired));
    locks.close().await;
    assert!(is_free(&server, "door") && is_free(&server, "window"));
}

#[tokio::test]
async fn futures_of_calls_are_small() {
    let (_server, locks) = started().await;
    let acquired = locks.lock("door").acquire();
    let size = size_of_val(&acquired);
    let guard = acquired.await.expect("a free lock");
    let sizes = [size, size_of_val(&locks.lock("door").try_acquire()), size_of_val(&guard.release())];
    assert!(sizes.iter().all(|size| *size < 4096), "{sizes:?}");
}

#[tokio::test]
async fn call_that_is_not_polled_holds_up_none() {
    let (_server, locks) = started().await;
    let first = locks.lock("door").acquire();
    drop(timeout(ms(2000), locks.lock("door").acquire()).await.expect("a turn").expect("a free lock"));
    drop(timeout(ms(2000), first).await.expect("a turn").expect("a free lock"));
}

#[test]
fn connection_outlives_the_runtime_of_a_call() {
    let server = support::Setup::new().start();
    let runtime = || Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("threads");
    let (own, other) = (runtime(), runtime());
    let locks = own.block_on(locks_at(server.port()));
    server.ask("CLIENT KILL TYPE normal SKIPME yes");
    let guard = other.block_on(locks.lock("door").lease(LONG).acquire()).expect("a free lock");
    let connections = || calls(&server, "hello");
    let before = connections();
    drop(other);
    own.block_on(async {
        guard.release().await.expect("a lock that is held");
        drop(locks.lock("door").acquire().await.expect("a free lock"));
    });
    assert_eq!(connections(), before);
}

async fn tries_follow_drops(server: &Server, locks: &Locks) {
    for name in ["door", "cellar"] {
        for _ in 0..100 {
            let lock = locks.lock(name).lease(LONG);
            let lock = if name == "cellar" { lock.reentrant("job") } else { lock };
            drop(lock.acquire().await.expect("a free lock"));
            drop(locks.lock(name).try_acquire().await.expect("a reply").expect("its own lock is released"));
        }
    }
    locks.close().await;
    assert!(is_free(server, "door") && is_free(server, "cellar"));
}

#[tokio::test]
async fn try_follows_a_drop_in_its_task() {
    let (server, locks) = started().await;
    tries_follow_drops(&server, &locks).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn try_follows_a_drop_with_many_threads() {
    let (server, locks) = started().await;
    tries_follow_drops(&server, &locks).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shares_wait_together() {
    let (server, locks) = started().await;
    let writer = locks_at(server.port()).await.lock("page").lease(LONG).acquire().await.expect("a free lock");
    let mut readers = JoinSet::new();
    for _ in 0..40 {
        readers.spawn(locks.lock("page").shared().lease(LONG).acquire());
    }
    until("all of them wait", || waiters(&server, "page") == 40).await;
    writer.release().await.expect("a lock that is held");
    assert!(readers.join_all().await.iter().all(Result::is_ok));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_work_leaves_the_lock_free() {
    let (server, locks) = started().await;
    for _ in 0..50 {
        let result = locks.lock("door").with(async |_| Err::<(), _>(Error::Timeout("work".to_owned()))).await;
        assert!(matches!(result, Err(Error::Timeout(name)) if name == "work"));
        assert!(is_free(&server, "door"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewal_is_two_commands() {
    let (server, locks) = started().await;
    let guard = locks.lock("door").lease(ms(600)).renew().acquire().await.expect("a free lock");
    sleep(ms(3100)).await;
    let [extended, read, tracking] = ["lock.extend", "get", "client|tracking"].map(|name| calls(&server, name));
    println!("{extended} extensions, {read} reads, {tracking} times tracking");
    assert!(!guard.is_lost() && (10..=20).contains(&extended));
    assert!(read <= extended + 3 && tracking == 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_is_renewed_by_the_server_alone() {
    let (server, locks) = started().await;
    let guard = locks.lock("door").lease(ms(1500)).session().acquire().await.expect("a free lock");
    sleep(ms(4100)).await;
    assert!(!guard.is_lost());
    assert_eq!((calls(&server, "lock.extend"), calls(&server, "lock.acquire")), (0, 1));
    // One for each report of a renewal, and one after the grant.
    assert!(calls(&server, "get") <= 10, "{}", calls(&server, "get"));
}

/// A write by the own connection ends the tracking of a key, so each is followed by a read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loss_after_an_own_write_is_reported() {
    let (server, locks) = started().await;
    for number in 0..6 {
        let guard = locks.lock("door").lease(LONG).acquire().await.expect("a free lock");
        assert!(timeout(ms(50), guard.lost()).await.is_err());
        guard.extend(LONG).await.expect("a lock that is held");
        sleep(ms(number * 10)).await;
        server.ask("DEL door");
        timeout(ms(900), guard.lost()).await.expect("a loss");
        let first = locks.lock("pool").permits(9).lease(LONG).acquire().await.expect("a permit");
        assert!(timeout(ms(50), first.lost()).await.is_err());
        let second = locks.lock("pool").permits(9).lease(LONG).acquire().await.expect("a permit");
        second.release().await.expect("a permit");
        sleep(ms(number * 10)).await;
        server.ask(&format!("ZREM pool {}", first.token()));
        timeout(ms(900), first.lost()).await.expect("a loss");
    }
}

/// Each is deleted at another moment of its renewals.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loss_at_any_moment_of_a_renewal_is_reported() {
    let (server, locks) = started().await;
    let mut guards = Vec::new();
    for number in 0..150 {
        guards.push(locks.lock(format!("door:{number}")).lease(ms(1800)).renew().acquire().await.expect("a free lock"));
    }
    let mut client = server.client();
    for (number, guard) in guards.iter().enumerate() {
        sleep(ms(13)).await;
        assert!(!guard.is_lost(), "{number}");
        client.run(&format!("DEL door:{number}"));
        // Its next renewal comes after 600 ms.
        timeout(ms(300), guard.lost()).await.expect("a loss");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watched_shares_are_read_together() {
    let (server, locks) = started().await;
    let mut shares = Vec::new();
    for _ in 0..50 {
        shares.push(locks.lock("page").shared().lease(LONG).renew().acquire().await.expect("a share"));
    }
    sleep(ms(200)).await;
    for share in shares.drain(..25) {
        share.release().await.expect("a share");
    }
    sleep(ms(200)).await;
    let reads = calls(&server, "zmscore");
    assert!((1..=200).contains(&reads) && calls(&server, "zscore") == 0, "{reads}");
    let lost = shares.pop().expect("a share");
    server.ask(&format!("ZREM page {}", lost.token()));
    timeout(ms(900), lost.lost()).await.expect("a loss");
    assert!(shares.iter().all(|share| !share.is_lost()));
}

/// Renews 1,000 leases for four seconds. Returns how many are lost, and the longest time that the machine took for 1,000 acquisitions or
/// for one.
async fn keep_thousand() -> (usize, Duration) {
    let (_server, locks) = started().await;
    let mut guards = Vec::new();
    let began_at = Instant::now();
    for number in 0..1000 {
        guards.push(locks.lock(format!("door:{number}")).lease(ms(1500)).renew().acquire().await.expect("a free lock"));
    }
    let mut stall = began_at.elapsed();
    for _ in 0..40 {
        let began_at = Instant::now();
        sleep(ms(100)).await;
        drop(locks.lock("other").acquire().await.expect("a free lock"));
        stall = stall.max(began_at.elapsed());
    }
    (guards.iter().filter(|guard| guard.is_lost()).count(), stall)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousand_short_leases_are_renewed_in_time() {
    for _ in 0..5 {
        let (lost, stall) = keep_thousand().await;
        println!("{lost} are lost, the longest stall is {stall:?}");
        if lost == 0 {
            return;
        }
        // A machine that has no time for the renewals says nothing about them.
        assert!(stall > ms(500), "{lost} are lost");
    }
}
