//! What an attack on the package tried.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use redis_lock_client::{Error, Lock};
use support::{Reply, Setup};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::{LONG, is_free, locks_at, ms, started, until, waiters};

fn random() -> u64 {
    getrandom::u64().expect("random numbers")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_tasks_leave_no_permit() {
    let (server, first) = started().await;
    let second = locks_at(server.port()).await;
    let (mut tasks, inside) = (JoinSet::new(), Arc::new(AtomicI32::new(0)));
    for number in 0..600_u64 {
        let lock = if number % 2 == 0 { &first } else { &second }.lock("pool").permits(3).lease(LONG);
        let inside = inside.clone();
        tasks.spawn(async move {
            if let Ok(permit) = timeout(ms(random() % 60), lock.acquire()).await {
                let permit = permit.expect("a server that replies");
                assert!(inside.fetch_add(1, Ordering::SeqCst) < 3, "three at most");
                sleep(ms(random() % 3)).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                drop(permit);
            }
        });
        sleep(ms(1)).await;
    }
    let results = tasks.join_all().await;
    assert_eq!(results.len(), 600);
    first.close().await;
    second.close().await;
    until("nothing is left", || is_free(&server, "pool") && waiters(&server, "pool") == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_of_one_owner_leave_nothing() {
    let (server, locks) = started().await;
    let mut tasks = JoinSet::new();
    for number in 0..400_u64 {
        let lock = locks.lock("cellar").reentrant(format!("owner {}", number % 4)).lease(LONG);
        tasks.spawn(async move {
            if let Ok(guard) = timeout(ms(random() % 100), lock.acquire()).await {
                let guard = guard.expect("no loss");
                sleep(Duration::from_micros(random() % 500)).await;
                if number % 2 == 0 {
                    guard.release().await.expect("no loss");
                }
            }
        });
    }
    assert_eq!(tasks.join_all().await.len(), 400);
    locks.close().await;
    until("nothing is left", || is_free(&server, "cellar") && waiters(&server, "cellar") == 0).await;
}

#[tokio::test]
async fn user_without_rights_polls_and_sees_losses_later() {
    let server = Setup::new().start();
    server.client().ok("ACL SETUSER app on >secret ~* resetchannels +@all -client|tracking -client|setname");
    let url = format!("redis://app:secret@127.0.0.1:{}", server.port());
    let locks = redis_lock_client::Locks::new(redis_lock_client::redis::Client::open(url).expect("an address"));
    let locks = locks.await.expect("a server that replies");
    let guard = locks.lock("door").lease(ms(900)).renew().acquire().await.expect("a free lock");
    let lock = locks.lock("door");
    let next = tokio::spawn(async move { lock.acquire().await });
    sleep(ms(200)).await;
    server.ask("DEL door");
    let next = next.await.expect("no panic").expect("a lock that is free");
    timeout(ms(900), guard.lost()).await.expect("a loss");
    next.release().await.expect("a lock that is held");
}

/// Returns the rights that README.md lists.
fn listed_rights() -> String {
    let readme = include_str!("../../README.md");
    let section = readme.split("\n## ").find(|section| section.starts_with("Rights")).expect("a section");
    let commands = section.split('`').skip(1).step_by(2).filter(|word| word.starts_with("lock.") || *word == "+select");
    let commands = commands.map(|word| format!("+{}", word.trim_start_matches('+')));
    let line = section.lines().find_map(|line| line.strip_prefix("    &")).expect("a list");
    format!("&{line} {}", commands.collect::<Vec<_>>().join(" "))
}

#[tokio::test]
async fn user_with_the_listed_rights_lacks_none() {
    let server = Setup::new().start();
    server.client().ok(&format!("ACL SETUSER app on >secret ~* resetchannels {}", listed_rights()));
    let url = format!("redis://app:secret@127.0.0.1:{}/3", server.port());
    let locks = redis_lock_client::Locks::new(redis_lock_client::redis::Client::open(url).expect("an address"));
    let (locks, mut client) = (locks.await.expect("a server that replies"), server.client());
    client.ok("SELECT 3");
    let kinds: [fn(Lock, &str) -> Lock; 3] =
        [|lock, _| lock, |lock, owner| lock.reentrant(owner), |lock, _| lock.permits(1)];
    for kind in kinds {
        let acquire = |owner| kind(locks.lock("door").lease(LONG), owner).acquire();
        let guard = acquire("job").await.expect("a free lock");
        guard.extend(LONG).await.expect("a lock that is held");
        guard.fence().await.expect("a number");
        let next = tokio::spawn(acquire("other"));
        until("it waits", || support::waiters_of(&mut client, "door") == 1).await;
        guard.release().await.expect("a lock that is held");
        let next = timeout(ms(2000), next).await.expect("a message").expect("no panic").expect("a turn");
        assert!(timeout(ms(50), next.lost()).await.is_err());
        client.run("DEL door");
        timeout(ms(900), next.lost()).await.expect("a loss");
    }
    let refused = client.run("ACL LOG");
    let refused: Vec<_> = refused.items().iter().map(|entry| entry.get("object").string()).collect();
    // The package asks whether the server replies, and the redis crate says its name: both do without the right.
    assert!(refused.iter().all(|command| ["ping", "client|setinfo"].contains(&command.as_str())), "{refused:?}");
}

#[tokio::test]
async fn user_without_the_command_gets_its_error() {
    let server = Setup::new().start();
    server.client().ok("ACL SETUSER app on >secret ~* &* +@all -lock.acquire");
    let url = format!("redis://app:secret@127.0.0.1:{}", server.port());
    let locks = redis_lock_client::Locks::new(redis_lock_client::redis::Client::open(url).expect("an address"));
    let error = locks.await.expect("a server that replies").lock("door").acquire().await.expect_err("no right");
    assert!(matches!(error, Error::Server(..)), "{error}");
}

#[tokio::test]
async fn key_of_another_type_is_not_taken_for_a_lock() {
    let (server, locks) = started().await;
    server.ask("RPUSH door x");
    assert!(matches!(locks.lock("door").acquire().await, Err(Error::Server(..))));
    assert_eq!(server.ask("LLEN door"), Reply::Int(1));
    let guard = locks.lock("window").acquire().await.expect("a free lock");
    assert!(timeout(ms(50), guard.lost()).await.is_err());
    let mut client = server.client();
    client.run("DEL window");
    client.run("RPUSH window x");
    timeout(ms(900), guard.lost()).await.expect("a loss");
}

#[tokio::test]
async fn future_that_was_not_polled_does_no_harm() {
    let (server, locks) = started().await;
    let guard = locks.lock("door").acquire().await.expect("a free lock");
    drop(locks.lock("cellar").acquire());
    drop(guard.release());
    locks.close().await;
    assert!(is_free(&server, "door") && is_free(&server, "cellar"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn close_under_load_ends_and_waits_for_earlier_releases() {
    let (server, locks) = started().await;
    let mut tasks = JoinSet::new();
    for number in 0..20 {
        let lock = locks.lock(format!("door:{number}")).lease(LONG);
        tasks.spawn(async move {
            loop {
                drop(lock.clone().acquire().await);
            }
        });
    }
    sleep(ms(50)).await;
    for name in (0..100).map(|number| format!("window:{number}")) {
        drop(locks.lock(&name).lease(LONG).acquire().await.expect("a free lock"));
        // A call that is cancelled does not hide releases from the next one.
        let _ = timeout(Duration::from_micros(1), locks.close()).await;
        timeout(ms(5000), locks.close()).await.expect("an end");
        assert!(is_free(&server, &name));
    }
}

#[tokio::test]
async fn connection_opened_while_a_script_runs_reports_losses() {
    let server = Setup::new().config("busy-reply-threshold 10").start();
    let (mut busy, mut client) = (server.client(), server.client());
    busy.send_all([["EVAL", "while true do end", "0"].as_slice()].into_iter());
    until("the server is busy", || client.run("PING").is_error()).await;
    let locks = locks_at(server.port()).await;
    client.ok("SCRIPT KILL");
    let guard = locks.lock("door").lease(LONG).renew().acquire().await.expect("a free lock");
    assert!(timeout(ms(50), guard.lost()).await.is_err());
    assert_eq!(server.ask("DEL door"), Reply::Int(1));
    timeout(ms(2000), guard.lost()).await.expect("a report");
}

#[tokio::test]
async fn only_calls_that_wait_count_for_max_waiters() {
    let (server, locks) = started().await;
    for _ in 0..50 {
        let lock = locks.lock("door").lease(LONG).max_waiters(1);
        let (first, second) = (tokio::spawn(lock.clone().acquire()), tokio::spawn(lock.clone().acquire()));
        let first = first.await.expect("no panic").expect("a free lock");
        until("the second one waits", || waiters(&server, "door") == 1).await;
        assert!(matches!(lock.acquire().await, Err(Error::QueueFull(_))), "one waits");
        drop(first);
        drop(second.await.expect("no panic").expect("a turn"));
    }
}

#[test]
fn runtime_that_ends_under_load_does_not_hang() {
    let server = Setup::new().start();
    for _ in 0..20 {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads");
        let locks = runtime.block_on(locks_at(server.port()));
        for number in 0..100 {
            let lock = locks.lock(format!("door:{}", number % 5)).lease(ms(100)).renew();
            runtime.spawn(async move {
                loop {
                    drop(lock.clone().acquire().await);
                }
            });
        }
        std::thread::sleep(ms(random() % 30));
        drop(runtime);
        // Without its runtime it has nothing to wait for.
        let other = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        other.block_on(async { timeout(ms(5000), locks.close()).await }).expect("an end");
    }
}
