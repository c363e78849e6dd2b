//! Failovers in a cluster: no grant is lost, no lock has two holders, and every wait ends.

use support::cluster::{Cluster, insist, moved_to};
use support::process::Process;
use support::replicas::{in_time, is_master};
use support::staggered::Staggered;
use support::{LOST, Reply};

use super::contended::Contended;
use super::scene::Scene;

/// For clusters in which a node shall soon be considered dead.
const HASTY_MS: u32 = 1000;

/// Returns whether it is one of the ways to end a wait when the server is no longer the master of the lock.
fn ends_wait(reply: &Reply) -> bool {
    *reply == Reply::Closed || ["UNBLOCKED", "MOVED", LOST].contains(&reply.code())
}

#[test]
fn manual_failover_loses_no_grant() {
    let scene = Scene::start();
    let (tag, old, new) = (&scene.tag, scene.home(), scene.replica());
    let mut locks = Contended::start(old, tag);
    let staggered = Staggered::start(old, &tag.name, 40, 20);
    new.client().ok("CLUSTER FAILOVER");
    in_time("the replica is promoted", || is_master(new));
    let replies = locks.are_lost();
    assert!(replies.iter().all(ends_wait), "{replies:?}");
    let outcomes = staggered.outcomes();
    assert!(outcomes.told.iter().all(|(_, reply)| ends_wait(reply)), "{:?}", outcomes.told);
    let key = tag.key("lock");
    outcomes.hold_at(&mut insist(new, &format!("LOCK.INFO {key}")));
    in_time("the old master follows", || !is_master(old));
    assert_eq!(moved_to(&old.client().run(&format!("LOCK.ACQUIRE {key} bob BLOCK 0"))), new.port());
    locks.continues_at(new, 0);
}

#[test]
fn killed_master_leaves_locks_to_replica() {
    let mut cluster = Cluster::start(HASTY_MS, "");
    cluster.let_replicas_take_over();
    let tag = cluster.tag_of(0);
    let mut client = cluster.master(0).client();
    let mut locks = Contended::start(cluster.master(0), &tag);
    let short = tag.key("short");
    assert_eq!(client.run(&format!("LOCK.ACQUIRE {short} alice PX 100")), 1);
    assert_eq!(client.run("WAIT 1 5000"), 1, "the replica has the locks");
    Process::kill(cluster.master_mut(0));
    locks.are_closed();
    let new = cluster.replica(0);
    in_time("the replica is promoted", || is_master(new));
    let mut client = insist(new, &format!("LOCK.INFO {short}"));
    in_time("the others know of it", || {
        let reply = cluster.master(1).client().run(&format!("GET {short}"));
        reply.is_error() && moved_to(&reply) == new.port()
    });
    assert_eq!(client.run(&format!("LOCK.ACQUIRE {short} bob BLOCK 0")), 1, "its lease has ended");
    locks.continues_at(new, 0);
}
