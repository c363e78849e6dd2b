use redis_lock_client::{Error, Locks, redis::cluster::ClusterClientBuilder};
use support::Reply;
use support::cluster::Cluster;
use support::migration::Migration;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::{LONG, ms, until, waiters};

async fn started() -> (Cluster, Locks) {
    let cluster = Cluster::start(5000, "");
    let address = format!("redis://127.0.0.1:{}", cluster.master(0).port());
    let locks = Locks::new(ClusterClientBuilder::new([address])).await.expect("a cluster");
    (cluster, locks)
}

#[tokio::test]
async fn cluster_grants_waits_watches_and_fences() {
    let (cluster, locks) = started().await;
    for number in 0..3 {
        let name = cluster.tag_of(number).key("door");
        let server = cluster.master(number);
        let guard = locks.lock(name.as_str()).session().acquire().await.expect("a free lock");
        assert_eq!(server.ask(&format!("GET {name}")), guard.token());
        assert!(guard.fence().await.expect("a number") > 0);
        let lock = locks.lock(name.as_str());
        let next = tokio::spawn(async move { lock.acquire().await });
        until("it waits", || support::waiters_of(&mut server.client(), &name) == 1).await;
        guard.release().await.expect("a lock that is held");
        let next = timeout(ms(2000), next).await.expect("a message").expect("no panic").expect("a turn");
        assert!(timeout(ms(100), next.lost()).await.is_err());
        server.ask(&format!("DEL {name}"));
        timeout(ms(500), next.lost()).await.expect("a loss");
    }
}

#[tokio::test]
async fn cancelled_tasks_leave_no_orphan_in_a_cluster() {
    let (cluster, locks) = started().await;
    let names: Vec<String> = (0..3).map(|number| cluster.tag_of(number).key("door")).collect();
    let mut tasks = JoinSet::new();
    for number in 0..600_u64 {
        let lock = locks.lock(names[usize::try_from(number).expect("no panic") % 3].as_str()).lease(LONG);
        tasks.spawn(async move {
            if let Ok(guard) = timeout(ms(number % 40), lock.acquire()).await {
                drop(guard.expect("a cluster that replies"));
            }
        });
        if number % 20 == 0 {
            sleep(ms(5)).await;
        }
    }
    tasks.join_all().await;
    locks.close().await;
    for (number, name) in names.iter().enumerate() {
        let mut client = cluster.master(number).client();
        until("nothing is left", || {
            client.run(&format!("EXISTS {name}")) == Reply::Int(0) && support::waiters_of(&mut client, name) == 0
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_and_waits_move_with_their_slot() {
    let (cluster, locks) = started().await;
    let (tag, from, to) = (cluster.tag_of(0), cluster.master(0), cluster.master(1));
    let migration = Migration { cluster: &cluster, slot: tag.slot, from, to };
    let name = tag.key("door");
    let lock = locks.lock(name.as_str()).lease(ms(9000)).renew();
    let guard = lock.clone().acquire().await.expect("a free lock");
    let waiter = tokio::spawn(lock.clone().acquire());
    until("it waits", || waiters(from, &name) == 1).await;
    migration.go_key_by_key();
    until("it waits at the other node", || waiters(to, &name) == 1).await;
    guard.release().await.expect("a lock that has moved");
    let guard = timeout(ms(2000), waiter).await.expect("a message").expect("no panic").expect("a turn");
    assert_eq!(to.ask(&format!("GET {name}")), guard.token());
    Migration { from: to, to: from, ..migration }.go_key_by_key();
    assert!(timeout(ms(10_000), guard.lost()).await.is_err(), "it is renewed at the other node");
    from.ask(&format!("DEL {name}"));
    timeout(ms(1000), guard.lost()).await.expect("a loss");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_of_a_slot_that_is_moving_are_granted_and_released() {
    let (cluster, locks) = started().await;
    let (tag, from, to) = (cluster.tag_of(0), cluster.master(0), cluster.master(1));
    let migration = Migration { cluster: &cluster, slot: tag.slot, from, to };
    let (old, new) = (tag.key("old"), tag.key("new"));
    let guard = locks.lock(old.as_str()).lease(LONG).acquire().await.expect("a free lock");
    migration.open();
    // The old node has this key, and the new one has those that come.
    guard.extend(LONG).await.expect("a lock that is held");
    let next = locks.lock(new.as_str()).lease(LONG).acquire().await.expect("a free lock");
    let waiter = tokio::spawn(locks.lock(new.as_str()).lease(LONG).acquire());
    migration.move_keys(&migration.keys_left());
    guard.release().await.expect("a lock that has moved");
    sleep(ms(300)).await;
    next.release().await.expect("a lock that is held");
    let next = timeout(ms(2000), waiter).await.expect("a turn").expect("no panic").expect("a turn");
    migration.close();
    next.release().await.expect("a lock that is held");
    locks.close().await;
    let mut client = to.client();
    for name in [old, new] {
        assert_eq!(client.run(&format!("EXISTS {name}")), Reply::Int(0));
        assert_eq!(support::waiters_of(&mut client, &name), 0);
    }
}

/// A node whose slot moves may not know a lock that its successor has.
#[tokio::test]
async fn lock_that_its_node_did_not_know_is_released_later() {
    let (cluster, locks) = started().await;
    let (tag, server) = (cluster.tag_of(0), cluster.master(0));
    let (name, hidden) = (tag.key("door"), tag.key("hidden"));
    for is_dropped in [false, true] {
        let guard = locks.lock(name.as_str()).lease(LONG).acquire().await.expect("a free lock");
        server.ask(&format!("RENAME {name} {hidden}"));
        if is_dropped {
            drop(guard);
            sleep(ms(300)).await;
        } else {
            assert!(matches!(guard.release().await, Err(Error::Lost(_))));
        }
        assert_eq!(server.ask(&format!("RENAME {hidden} {name}")), "OK");
        until("it is released", || server.ask(&format!("EXISTS {name}")) == Reply::Int(0)).await;
    }
}
