//! Messages and replies that come late, over a network between the client and the server.

use std::sync::{Arc, Mutex};

use redis_lock_client::{Error, Guard, Lock, Locks};
use support::network::{Address, Network, Traffic};
use support::{Server, Setup};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::calls::calls;
use crate::{LONG, is_free, locks_at, ms, started, until, waiters};

/// The client of a [`Network`], which has no address of a host.
const CLIENT: usize = usize::MAX;
/// The server.
const SERVER: usize = 0;

/// Locks behind a network of their own.
async fn behind_a_network(server: &Server) -> (Network, Address, Locks) {
    let network = Network::default();
    let address = network.open(SERVER, Traffic::Data);
    address.leads_to(server.port());
    let locks = locks_at(address.port).await;
    (network, address, locks)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_grant_is_not_taken_for_that_of_a_later_request() {
    let (server, others) = started().await;
    let (network, _address, locks) = behind_a_network(&server).await;
    let guard = others.lock("door").lease(LONG).acquire().await.expect("a free lock");
    let mut waiter = tokio::spawn(locks.lock("door").lease(ms(3000)).acquire());
    until("it waits", || waiters(&server, "door") == 1).await;
    let next = tokio::spawn(others.lock("door").lease(LONG).acquire());
    until("another one waits", || waiters(&server, "door") == 2).await;
    network.cut(SERVER, CLIENT);
    guard.release().await.expect("a lock that is held");
    // The lease of the grant ends before its message comes, and before the request is sent again.
    let next = next.await.expect("no panic").expect("a lock whose lease has expired");
    until("it asks again", || waiters(&server, "door") == 1).await;
    network.heal();
    assert!(timeout(ms(500), &mut waiter).await.is_err(), "another one holds the lock");
    next.release().await.expect("a lock that is held");
    let guard = waiter.await.expect("no panic").expect("a turn");
    assert_eq!(server.ask("GET door"), guard.token());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lease_that_ends_before_the_reply_is_no_grant() {
    let server = Setup::new().start();
    let (network, _address, locks) = behind_a_network(&server).await;
    network.slow(SERVER, CLIENT, ms(300));
    let error = locks.lock("door").lease(ms(100)).try_acquire().await.expect_err("a reply that is late");
    assert!(matches!(error, Error::Connection(..)), "{error}");
    network.heal();
    locks.close().await;
    assert!(is_free(&server, "door"));
}

/// Passes on connections to a server. From the signal on the first one is silent, but open at the server.
async fn silent_network(port: u16, signal: oneshot::Receiver<()>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        let (mut signal, mut silent) = (Some(signal), Vec::new());
        loop {
            let (mut client, _) = listener.accept().await.expect("a client");
            let mut server = TcpStream::connect(("127.0.0.1", port)).await.expect("a server");
            if let Some(signal) = signal.take() {
                tokio::select! {
                    _ = copy_bidirectional(&mut client, &mut server) => {}
                    _ = signal => silent.push((client, server)),
                }
            } else {
                tokio::spawn(async move { copy_bidirectional(&mut client, &mut server).await });
            }
        }
    });
    address.port()
}

#[tokio::test]
async fn grant_is_not_sent_to_a_silent_connection() {
    let (server, others) = started().await;
    let (silence, signal) = oneshot::channel();
    let locks = locks_at(silent_network(server.port(), signal).await).await;
    let guard = others.lock("door").lease(LONG).acquire().await.expect("a free lock");
    let waiter = tokio::spawn(locks.lock("door").lease(LONG).acquire());
    until("it waits", || waiters(&server, "door") == 1).await;
    silence.send(()).expect("a network");
    let connections = || format!("{:?}", server.ask("CLIENT LIST")).matches("name=redis-lock-client").count();
    until("it has another connection", || connections() == 3).await;
    sleep(ms(300)).await;
    guard.release().await.expect("a lock that is held");
    drop(timeout(ms(2000), waiter).await.expect("a message").expect("no panic").expect("a turn"));
}

/// By then another program may have set another lease by the token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewal_is_not_sent_after_detach() {
    let server = Setup::new().start();
    let (network, _address, locks) = behind_a_network(&server).await;
    let guard = locks.lock("door").lease(ms(3000)).renew().acquire().await.expect("a free lock");
    network.slow(SERVER, CLIENT, ms(1000));
    until("it is renewed", || calls(&server, "lock.extend") == 1).await;
    network.sever(SERVER);
    // The renewal is to be repeated, and waits for a connection.
    sleep(ms(300)).await;
    let _token = guard.detach();
    sleep(ms(5000)).await;
    assert_eq!(calls(&server, "lock.extend"), 1);
}

fn random(limit: u64) -> u64 {
    getrandom::u64().expect("random numbers") % limit
}

/// How many tokens may hold a lock, and the guards that hold it.
struct Holders(usize, Mutex<Vec<Arc<Guard>>>);

impl Holders {
    fn add(&self, guard: &Arc<Guard>) {
        let mut guards = self.1.lock().expect("no panic");
        guards.push(guard.clone());
        let mut tokens: Vec<_> = guards.iter().filter(|one| !one.is_lost()).map(|one| one.token()).collect();
        tokens.sort_unstable();
        tokens.dedup();
        assert!(tokens.len() <= self.0, "{tokens:?}");
    }

    fn remove(&self, guard: &Arc<Guard>) {
        self.1.lock().expect("no panic").retain(|one| !Arc::ptr_eq(one, guard));
    }
}

/// Acquires a lock again and again, with random leases, and drops futures and guards at random moments.
async fn hold_at_random(lock: Lock, holders: Arc<Holders>, end: Instant) -> u32 {
    let mut granted = 0;
    while Instant::now() < end {
        let lock = lock.clone().lease(ms(20 + random(600)));
        let lock = if random(2) == 0 { lock.renew() } else { lock };
        let lock = if random(3) == 0 { lock.wait(ms(random(4000))) } else { lock };
        let Ok(Ok(guard)) = timeout(ms(random(8000)), lock.acquire()).await else { continue };
        granted += 1;
        let guard = Arc::new(guard);
        holders.add(&guard);
        sleep(ms(random(100))).await;
        if random(3) == 0 {
            let _ = timeout(ms(random(50)), guard.extend(ms(50 + random(500)))).await;
        }
        holders.remove(&guard);
        if let (0, Some(guard)) = (random(2), Arc::into_inner(guard)) {
            let _ = guard.release().await;
        }
    }
    granted
}

/// A guard whose loss is not reported excludes all others, whatever the network does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_networks_leave_one_holder() {
    let (server, plain) = (Setup::new().start(), Setup::new().without_module().start());
    let [doors, pools, cellars, windows] = [1, 2, 1, 1].map(|limit| Arc::new(Holders(limit, Mutex::default())));
    let (mut tasks, mut networks, end) = (JoinSet::new(), Vec::new(), Instant::now() + ms(8000));
    for _ in 0..3 {
        let (with, without) = (behind_a_network(&server).await, behind_a_network(&plain).await);
        for owner in ["job 1", "job 1", "job 2"] {
            tasks.spawn(hold_at_random(with.2.lock("door"), doors.clone(), end));
            tasks.spawn(hold_at_random(with.2.lock("pool").permits(2), pools.clone(), end));
            tasks.spawn(hold_at_random(with.2.lock("cellar").reentrant(owner), cellars.clone(), end));
            tasks.spawn(hold_at_random(without.2.lock("window"), windows.clone(), end));
        }
        networks.extend([with, without]);
    }
    while Instant::now() < end {
        sleep(ms(random(100))).await;
        let (network, ..) = &networks[usize::try_from(random(6)).expect("a number")];
        match random(8) {
            0 => network.cut(SERVER, CLIENT),
            1 => network.cut(CLIENT, SERVER),
            2 => network.slow(SERVER, CLIENT, ms(random(800))),
            3 => network.slow(CLIENT, SERVER, ms(random(800))),
            4 => network.sever(SERVER),
            5 if random(3) == 0 => drop(server.ask("CLIENT KILL TYPE normal SKIPME yes")),
            _ => network.heal(),
        }
    }
    for (network, ..) in &networks {
        network.heal();
    }
    println!("{} were granted", tasks.join_all().await.into_iter().sum::<u32>());
    for (.., locks) in networks {
        timeout(LONG, locks.close()).await.expect("an end");
    }
    assert!(is_free(&server, "door") && is_free(&server, "pool") && is_free(&server, "cellar"));
    assert!(is_free(&plain, "window"));
}
