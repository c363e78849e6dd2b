use redis_lock_client::{Locks, redis::cluster::ClusterClientBuilder};
use support::cluster::Cluster;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::{LONG, ms, until};

async fn started() -> (Cluster, Locks) {
    let cluster = Cluster::start(5000, "");
    let address = format!("redis://127.0.0.1:{}", cluster.master(0).port());
    let locks = Locks::cluster(ClusterClientBuilder::new([address])).await.expect("a cluster");
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
            client.run(&format!("EXISTS {name}")) == support::Reply::Int(0)
                && support::waiters_of(&mut client, name) == 0
        })
        .await;
    }
}
