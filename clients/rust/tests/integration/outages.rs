use redis_lock_client::{Error, Locks, redis};
use support::Setup;
use tokio::time::{Instant, sleep};

use crate::{LONG, is_free, locks_at, ms, started, until, waiters};

fn cut(server: &support::Server) {
    server.ask("CLIENT KILL TYPE normal SKIPME yes");
    server.ask("CLIENT KILL TYPE pubsub SKIPME yes");
}

#[tokio::test]
async fn address_without_a_server_is_an_error() {
    let port = support::free_port();
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}")).expect("an address");
    let error = Locks::new(client).await.expect_err("no server");
    assert!(matches!(error, Error::Connection(..)), "{error}");
}

#[tokio::test]
async fn user_without_access_is_an_error() {
    let server = Setup::new().config("user app on >secret ~* &* +@all").start();
    let client = redis::Client::open(format!("redis://app:wrong@127.0.0.1:{}", server.port())).expect("an address");
    let error = Locks::new(client).await.expect_err("a wrong password");
    assert!(matches!(error, Error::Server(..)), "{error}");
}

#[tokio::test]
async fn waiter_keeps_its_turn_over_cuts() {
    let (server, locks) = started().await;
    let guard = locks_at(server.port()).await.lock("door").lease(LONG).acquire().await.expect("a free lock");
    let token = guard.detach();
    let waiter = tokio::spawn(async move { locks.lock("door").lease(LONG).acquire().await });
    until("it waits", || waiters(&server, "door") == 1).await;
    for _ in 0..5 {
        cut(&server);
        sleep(ms(100)).await;
        until("it waits again", || waiters(&server, "door") == 1).await;
    }
    server.ask(&format!("LOCK.RELEASE door {token}"));
    let guard = waiter.await.expect("no panic").expect("a turn");
    assert_eq!(server.ask("GET door"), guard.token());
}

#[tokio::test]
async fn session_outlasts_a_cut() {
    let (server, locks) = started().await;
    let guard = locks.lock("door").session().acquire().await.expect("a free lock");
    for _ in 0..3 {
        cut(&server);
        sleep(ms(1200)).await;
        assert!(!guard.is_lost());
        assert_eq!(server.ask("GET door"), guard.token());
    }
    guard.release().await.expect("a lock that is held");
}

#[tokio::test]
async fn commands_go_on_after_a_cut() {
    let (server, locks) = started().await;
    let guard = locks.lock("door").acquire().await.expect("a free lock");
    cut(&server);
    guard.extend(LONG).await.expect("a new connection");
    cut(&server);
    guard.fence().await.expect("a new connection");
    cut(&server);
    guard.release().await.expect("a new connection");
    cut(&server);
    assert!(locks.lock("door").acquire().await.is_ok());
}

#[tokio::test]
async fn wait_goes_on_while_a_server_restarts() {
    let (mut server, locks) = started().await;
    let _guard = locks.lock("door").lease(LONG).acquire().await.expect("a free lock");
    let lock = locks.lock("door").lease(LONG).wait(LONG);
    let waiter = tokio::spawn(async move { lock.acquire().await });
    until("it waits", || waiters(&server, "door") == 1).await;
    server.shut_down("NOSAVE");
    sleep(ms(500)).await;
    let server = Setup::new().on_port(server.port()).start();
    let guard = waiter.await.expect("no panic").expect("a lock that nobody has now");
    assert_eq!(server.ask("GET door"), guard.token());
}

#[tokio::test]
async fn outage_is_not_a_time_out() {
    let (mut server, locks) = started().await;
    let guard = locks.lock("door").lease(LONG).acquire().await.expect("a free lock");
    server.shut_down("NOSAVE");
    let began_at = Instant::now();
    let error = locks.lock("cellar").wait(ms(500)).acquire().await.expect_err("no server");
    assert!(matches!(error, Error::Connection(..)), "{error}");
    assert!((400..1800).contains(&began_at.elapsed().as_millis()), "{:?}", began_at.elapsed());
    assert!(matches!(locks.lock("cellar").try_acquire().await, Err(Error::Connection(..))));
    assert!(matches!(guard.release().await, Err(Error::Connection(..))));
}

#[tokio::test]
async fn release_of_a_dropped_guard_outlasts_an_outage() {
    let (mut server, locks) = started().await;
    let guard = locks.lock("door").lease(LONG).acquire().await.expect("a free lock");
    let token = guard.token().to_owned();
    server.shut_down("SAVE");
    drop(guard);
    sleep(ms(300)).await;
    let server = Setup::new().in_directory_of(&server).on_port(server.port()).start();
    println!("{token} was loaded: {}", !is_free(&server, "door"));
    until("it is released", || is_free(&server, "door")).await;
}

#[tokio::test]
async fn calls_end_in_time_at_a_silent_server() {
    let (server, locks) = started().await;
    let [first, second] = ["door", "window"].map(|name| locks.lock(name).lease(LONG).acquire());
    let (first, second) = (first.await.expect("a free lock"), second.await.expect("a free lock"));
    server.ask("CLIENT PAUSE 30000 ALL");
    let began_at = Instant::now();
    let (released, extended, tried) =
        tokio::join!(first.release(), second.extend(LONG), locks.lock("door").try_acquire());
    assert!(began_at.elapsed() < ms(5800), "{:?}", began_at.elapsed());
    assert!(matches!(released, Err(Error::Connection(..))) && matches!(extended, Err(Error::Connection(..))));
    assert!(matches!(tried, Err(Error::Connection(..))));
}
