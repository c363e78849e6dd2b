//! What a review of the package found.

use std::future::poll_fn;
use std::task::Poll;

use redis_lock_client::Error;
use support::{Reply, Setup};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use crate::{LONG, is_free, locks_at, ms, started, until, waiters};

#[tokio::test]
async fn owner_enters_again_while_another_owner_waits() {
    let (server, locks) = started().await;
    let cellar = |owner: &str| locks.lock("cellar").reentrant(owner).acquire();
    let outer = cellar("job").await.expect("a free lock");
    let other = tokio::spawn(cellar("other"));
    until("the other owner waits", || waiters(&server, "cellar") == 1).await;
    let inner = timeout(ms(2000), cellar("job")).await.expect("no deadlock").expect("its own lock");
    drop((outer, inner));
    drop(other.await.expect("no panic").expect("a turn"));
}

#[tokio::test]
async fn tasks_of_one_owner_share_a_grant() {
    let (server, locks) = started().await;
    let guard = locks.lock("cellar").reentrant("other").acquire().await.expect("a free lock");
    let acquire = || tokio::spawn(locks.lock("cellar").reentrant("job").acquire());
    let (first, second) = (acquire(), acquire());
    until("one task of the owner waits", || waiters(&server, "cellar") == 1).await;
    drop(guard);
    let both = async { (first.await, second.await) };
    let (first, second) = timeout(ms(2000), both).await.expect("no deadlock");
    let (first, second) = (first.expect("no panic").expect("a turn"), second.expect("no panic").expect("a turn"));
    assert_eq!(first.token(), second.token());
}

#[test]
fn close_waits_for_cancelled_requests() {
    let server = Setup::new().start();
    for _ in 0..30 {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let locks = locks_at(server.port()).await;
            let mut requests: Vec<_> =
                (0..20).map(|number| Box::pin(locks.lock(format!("door:{number}")).lease(LONG).acquire())).collect();
            poll_fn(|context| {
                for request in &mut requests {
                    assert!(request.as_mut().poll(context).is_pending());
                }
                Poll::Ready(())
            })
            .await;
            sleep(std::time::Duration::from_micros(getrandom::u64().expect("random numbers") % 3000)).await;
            drop(requests);
            locks.close().await;
        });
    }
    assert_eq!(server.ask("DBSIZE"), Reply::Int(0));
}

#[test]
fn lock_whose_runtime_has_ended_is_lost() {
    let server = Setup::new().start();
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let guards = runtime.block_on(async {
        let locks = locks_at(server.port()).await;
        let plain = locks.lock("door").acquire().await.expect("a free lock");
        (plain, locks.lock("window").renew().acquire().await.expect("a free lock"))
    });
    drop(runtime);
    let other = Builder::new_current_thread().enable_all().build().expect("a runtime");
    other.block_on(async {
        timeout(ms(2000), guards.0.lost()).await.expect("a report");
        timeout(ms(2000), guards.1.lost()).await.expect("a report");
    });
}

#[tokio::test]
async fn failed_hand_over_leaves_the_lock_held() {
    let (mut server, locks) = started().await;
    let token = locks.lock("door").lease(LONG).acquire().await.expect("a free lock").detach();
    server.shut_down("SAVE");
    let error = locks.lock("door").attach(token.clone()).await.expect_err("no server");
    assert!(matches!(error, Error::Connection(..)), "{error}");
    let server = Setup::new().in_directory_of(&server).on_port(server.port()).start();
    sleep(ms(500)).await;
    assert_eq!(server.ask("GET door"), token.as_str());
    let guard = locks.lock("door").attach(token).await.expect("a lock that is held");
    guard.release().await.expect("a lock that is held");
    assert!(is_free(&server, "door"));
}

#[tokio::test]
async fn lease_that_was_made_shorter_is_renewed() {
    let (server, locks) = started().await;
    let guard = locks.lock("door").lease(LONG).renew().acquire().await.expect("a free lock");
    guard.extend(ms(900)).await.expect("a lock that is held");
    sleep(ms(2500)).await;
    assert!(!guard.is_lost());
    assert_eq!(server.ask("GET door"), guard.token());
    guard.release().await.expect("a lock that is held");
}

#[tokio::test]
async fn owner_with_a_token_enters_again() {
    let (server, locks) = started().await;
    let cellar = locks.lock("cellar").reentrant("job");
    let token = cellar.clone().acquire().await.expect("a free lock").detach();
    let outer = cellar.clone().attach(token).await.expect("a lock that is held");
    let inner = timeout(ms(2000), cellar.acquire()).await.expect("no deadlock").expect("its own lock");
    assert_eq!(inner.token(), outer.token());
    drop((inner, outer));
    locks.close().await;
    assert!(is_free(&server, "cellar"));
}

#[tokio::test]
async fn owner_with_a_token_enters_again_while_its_other_task_waits() {
    let (server, locks) = started().await;
    let cellar = locks.lock("cellar").reentrant("job").lease(LONG);
    let token = cellar.clone().acquire().await.expect("a free lock").detach();
    let waiter = tokio::spawn(cellar.clone().acquire());
    until("it waits", || waiters(&server, "cellar") == 1).await;
    let outer = cellar.clone().attach(token).await.expect("a lock that is held");
    let inner = timeout(ms(2000), cellar.acquire()).await.expect("no deadlock").expect("its own lock");
    assert_eq!(inner.token(), outer.token());
    drop((inner, outer));
    drop(timeout(ms(2000), waiter).await.expect("a turn").expect("no panic").expect("a turn"));
    locks.close().await;
    assert!(is_free(&server, "cellar"));
}

#[tokio::test]
async fn owner_that_overtakes_its_other_task_enters_again() {
    let server = Setup::new().without_module().start();
    let locks = locks_at(server.port()).await;
    let cellar = locks.lock("cellar").reentrant("job").lease(LONG);
    server.ask("HSET cellar other 1");
    let waiter = tokio::spawn(cellar.clone().acquire());
    // It polls, and may be the first one to see that the lock is free.
    sleep(ms(300)).await;
    server.ask("DEL cellar");
    let outer = match cellar.clone().try_acquire().await.expect("a reply") {
        Some(guard) => guard,
        None => cellar.clone().acquire().await.expect("its own lock"),
    };
    let inner = timeout(ms(2000), cellar.acquire()).await.expect("no deadlock").expect("its own lock");
    assert_eq!(inner.token(), outer.token());
    drop((inner, outer));
    drop(timeout(ms(2000), waiter).await.expect("a turn").expect("no panic").expect("a turn"));
}

#[tokio::test]
async fn session_is_not_extended_to_a_lease_that_is_too_short() {
    let (_server, locks) = started().await;
    let guard = locks.lock("door").session().acquire().await.expect("a free lock");
    assert!(matches!(guard.extend(ms(50)).await, Err(Error::Argument(..))));
    assert!(!guard.is_lost());
}

/// Passes on connections to a server. At the signal it keeps what the first client sends next, closes that client's side, and
/// sends what it kept a while later, as a network may do.
async fn late_network(port: u16, mut signal: oneshot::Receiver<()>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        let (mut first, _) = listener.accept().await.expect("a client");
        let mut server = TcpStream::connect(("127.0.0.1", port)).await.expect("a server");
        tokio::select! {
            _ = copy_bidirectional(&mut first, &mut server) => {}
            _ = &mut signal => {}
        }
        tokio::spawn(async move {
            let mut kept = vec![0; 4096];
            let length = first.read(&mut kept).await.expect("a request");
            drop(first);
            sleep(ms(600)).await;
            server.write_all(&kept[..length]).await.expect("a server");
            sleep(ms(600)).await;
        });
        loop {
            let (mut client, _) = listener.accept().await.expect("a client");
            let mut server = TcpStream::connect(("127.0.0.1", port)).await.expect("a server");
            tokio::spawn(async move { copy_bidirectional(&mut client, &mut server).await });
        }
    });
    address.port()
}

#[tokio::test]
async fn late_copy_of_a_request_leaves_no_orphan() {
    let (server, others) = started().await;
    let (hold_up, signal) = oneshot::channel();
    let locks = locks_at(late_network(server.port(), signal).await).await;
    let guard = others.lock("door").acquire().await.expect("a free lock");
    hold_up.send(()).expect("a network");
    assert!(locks.lock("door").try_acquire().await.expect("a reply on the next connection").is_none());
    guard.release().await.expect("a lock that is held");
    until("the first copy is late", || !is_free(&server, "door")).await;
    until("it is withdrawn", || is_free(&server, "door")).await;
    locks.close().await;
    assert!(is_free(&server, "door"));
}
