//! A server that is replaced: its replica takes over.

use redis_lock_client::Error;
use support::Server;
use support::cluster::Cluster;
use support::network::{Address, Network, Traffic};
use support::replicas::{in_step, is_master, master, replica_of, replicated};
use tokio::time::timeout;

use crate::{LONG, is_free, locks_at, ms, until, waiters};

/// A master and its replica, and an address that leads to the master.
fn pair() -> (Server, Server, Address) {
    let first = master("");
    let second = replica_of(&first);
    let address = Network::default().open(0, Traffic::Data);
    address.leads_to(first.port());
    (first, second, address)
}

/// The replica takes over, and the master becomes its replica. No connection is closed by that.
fn swap(first: &Server, second: &Server) {
    replicated(&mut first.client(), "mark");
    second.client().ok("REPLICAOF NO ONE");
    first.client().ok(&format!("REPLICAOF 127.0.0.1 {}", second.port()));
    in_step(first);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_and_waits_go_on_at_the_new_master() {
    let (first, second, address) = pair();
    let locks = locks_at(address.port).await;
    let door = locks.lock("door").lease(LONG).acquire().await.expect("a free lock");
    let renewed = locks.lock("window").lease(ms(3000)).renew().acquire().await.expect("a free lock");
    let waiter = tokio::spawn(locks.lock("door").lease(LONG).acquire());
    until("it waits", || waiters(&first, "door") == 1).await;
    address.leads_to(second.port());
    swap(&first, &second);
    door.release().await.expect("a lock that is held");
    let door = timeout(LONG, waiter).await.expect("a turn").expect("no panic").expect("a turn");
    assert_eq!(second.ask("GET door"), door.token());
    assert!(timeout(ms(4000), renewed.lost()).await.is_err(), "it is renewed at the new master");
    renewed.release().await.expect("a lock that is held");
    door.release().await.expect("a lock that is held");
    assert!(is_free(&second, "door") && is_free(&second, "window"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn master_that_was_demoted_is_not_a_time_out() {
    let (first, second, address) = pair();
    let locks = locks_at(address.port).await;
    let guard = locks.lock("door").lease(LONG).acquire().await.expect("a free lock");
    swap(&first, &second);
    let is_read_only = |error| matches!(error, Error::Server(_, text) if text.starts_with("READONLY"));
    assert!(is_read_only(locks.lock("cellar").try_acquire().await.expect_err("a replica")));
    assert!(is_read_only(locks.lock("cellar").wait(ms(500)).acquire().await.expect_err("a replica")));
    assert!(is_read_only(guard.extend(LONG).await.expect_err("a replica")));
    assert!(!guard.is_lost(), "its lease has not ended");
    let waiter = tokio::spawn(locks.lock("cellar").lease(LONG).wait(LONG).acquire());
    drop(guard);
    address.leads_to(second.port());
    let waiter = waiter.await.expect("no panic").expect("a lock that is free");
    assert_eq!(second.ask("GET cellar"), waiter.token());
    until("the dropped guard is released", || is_free(&second, "door")).await;
}

#[cfg(feature = "cluster")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waits_go_on_when_a_replica_of_a_cluster_takes_over() {
    let mut cluster = Cluster::start(1000, "");
    let urls = [0, 1, 2].map(|number| format!("redis://127.0.0.1:{}", cluster.master(number).port()));
    let builder = redis_lock_client::redis::cluster::ClusterClientBuilder::new(urls);
    let locks = redis_lock_client::Locks::new(builder).await.expect("a cluster");
    let name = cluster.tag_of(0).key("door");
    let guard = locks.lock(name.as_str()).lease(LONG).acquire().await.expect("a free lock");
    let waiter = tokio::spawn(locks.lock(name.as_str()).lease(LONG).wait(LONG).acquire());
    until("it waits", || waiters(cluster.master(0), &name) == 1).await;
    replicated(&mut cluster.master(0).client(), &cluster.tag_of(0).key("mark"));
    cluster.let_replicas_take_over();
    cluster.master_mut(0).shut_down("NOSAVE");
    until("the replica is a master", || is_master(cluster.replica(0))).await;
    while guard.extend(LONG).await.is_err() {}
    guard.release().await.expect("a lock that is held");
    let guard = waiter.await.expect("no panic").expect("a turn");
    assert_eq!(cluster.replica(0).ask(&format!("GET {name}")), guard.token());
}
