//! Failovers in a cluster: no grant is lost, no lock has two holders, and every wait ends.

use support::cluster::{Cluster, insist, moved_to};
use support::process::Process;
use support::replicas::{in_time, is_master};
use support::staggered::Staggered;
use support::{Client, LOST, Reply, Waiter, Way, bytes_of, field};

use super::contended::{Contended, MUTEX, SHARED};
use super::scene::Scene;

/// For clusters in which a node shall soon be considered dead.
const HASTY_MS: u32 = 1000;

/// Returns whether it is one of the server's own ways to end a wait when it is no longer the master of the lock.
fn ends_wait(reply: &Reply) -> bool {
    *reply == Reply::Closed || ["UNBLOCKED", "MOVED", LOST].contains(&reply.code())
}

#[test]
fn manual_failover_loses_no_grant() {
    for form in [&MUTEX, &SHARED] {
        let scene = Scene::start();
        let (tag, old, new) = (&scene.tag, scene.home(), scene.replica());
        let mut lock = Contended::start(form, old, tag);
        let staggered = form.staggered(old, tag, 40, 20);
        new.client().ok("CLUSTER FAILOVER");
        in_time("the replica is promoted", || is_master(new));
        let reply = lock.are_lost();
        assert!(ends_wait(&reply), "{reply:?}");
        let outcomes = staggered.outcomes();
        for (key, told) in &outcomes.told {
            assert!(ends_wait(told), "{key}: {told:?}");
        }
        outcomes.hold_at(&mut insist(new, &format!("LOCK.INFO {}", lock.key)));
        in_time("the old master follows", || !is_master(old));
        assert_eq!(moved_to(&old.client().run(&MUTEX.wait(&lock.key, "bob"))), new.port());
        lock.continues_at(new, 0);
    }
}

/// In the period the new master grants no lock that the old master may have granted.
#[test]
fn manual_failover_begins_recovery_period() {
    let scene = Scene::start();
    let (old, new, key) = (scene.home(), scene.replica(), scene.key("door"));
    let mut control = new.client();
    control.ok("CONFIG SET lock.recovery-ms 600000");
    assert_eq!(old.client().run(&format!("LOCK.ACQUIRE {} alice", scene.key("gate"))), 1);
    control.ok("CLUSTER FAILOVER");
    in_time("the replica is promoted", || is_master(new));
    let mut client = insist(new, &format!("LOCK.INFO {key}"));
    assert_eq!(client.run(&format!("LOCK.ACQUIRE {key} alice PX 1000")), Reply::Nil);
    let mut bob = Waiter::start(new, &MUTEX.wait(&key, "bob"));
    assert!(field(&mut client, &key, "recovery-ms").int() > 0);
    control.ok("CONFIG SET lock.recovery-ms 0");
    assert_eq!(bob.reply(), 1);
}

#[test]
fn killed_master_leaves_locks_to_replica() {
    let mut cluster = Cluster::start(HASTY_MS, "");
    cluster.let_replicas_take_over();
    let tag = cluster.tag_of(0);
    let mut client = cluster.master(0).client();
    let mut locks = Contended::start_both(cluster.master(0), &tag);
    let [short, shared] = [tag.key("short"), tag.key("short-shared")];
    assert_eq!(client.run(&format!("LOCK.ACQUIRE {short} alice PX 100")), 1);
    SHARED.hold(&mut client, &shared);
    assert_eq!(client.run(&format!("LOCK.EXTEND {shared} alice PX 100")), 100);
    assert_eq!(client.run("WAIT 1 5000"), 1, "the replica has the locks");
    Process::kill(cluster.master_mut(0));
    locks.iter_mut().for_each(Contended::are_closed);
    let new = cluster.replica(0);
    in_time("the replica is promoted", || is_master(new));
    let mut client = insist(new, &format!("LOCK.INFO {short}"));
    in_time("the others know of it", || {
        let reply = cluster.master(1).client().run(&format!("GET {short}"));
        reply.is_error() && moved_to(&reply) == new.port()
    });
    assert_eq!(field(&mut client, &shared, "holds"), 1, "the share of alice has ended");
    for (form, key) in [(&MUTEX, &short), (&SHARED, &shared)] {
        assert_eq!(client.run(&form.wait(key, "bob")), 1, "a lease of {key} has ended");
    }
    assert_eq!(client.run(&format!("ZRANGE {shared} 0 -1")), Reply::list(["zoe", "bob"].map(Reply::text)));
    for lock in locks {
        lock.continues_at(new, 0);
    }
}

#[test]
fn master_without_majority_grants_nothing() {
    // Reads are executed, so that the test can see the keys. A lock that is read as free is not one to be granted.
    let cluster = Cluster::start(HASTY_MS, "cluster-allow-reads-when-down yes");
    let tag = cluster.tag_of(0);
    let server = cluster.master(0);
    let locks = Staggered::start_in_ways(&[Way::Blocked], server, &tag.name, 100, 40);
    let held = tag.key("held");
    MUTEX.hold(&mut server.client(), &held);
    let mut dave = Way::Notified.start(server, &MUTEX.wait(&held, "dave"));
    let others = [1, 2].map(|number| Process::of(cluster.master(number)));
    others.iter().for_each(Process::stop);

    let mut client = server.client();
    let mut granted_before = 0;
    in_time("the cluster is down", || {
        granted_before = grants_if_down(&mut client).unwrap_or(-1);
        granted_before >= 0
    });
    assert!(granted_before < 100, "leases are left to end while it is down");
    assert_eq!(client.run(&MUTEX.wait(&tag.key("new"), "carol")).code(), "CLUSTERDOWN");
    let outcomes = locks.outcomes();
    assert_eq!(grants_if_down(&mut client), Some(granted_before), "nothing was granted while the cluster was down");
    assert_eq!(i64::try_from(outcomes.granted.len()).unwrap(), granted_before);
    outcomes.all_told("CLUSTERDOWN");
    outcomes.hold_at(&mut client);
    dave.has_heard_nothing_else();

    others.iter().for_each(Process::resume);
    let mut client = insist(server, &format!("SET {} x", tag.key("other")));
    let (free, _) = outcomes.told.last().expect("a lock that was not granted");
    in_time("its lease ends", || client.run(&format!("GET {free}")) == Reply::Nil);
    assert_eq!(client.run(&MUTEX.wait(free, "carol")), 1);
    let taken = outcomes.granted.first().expect("a lock that was granted before");
    assert_eq!(client.run(&format!("LOCK.ACQUIRE {taken} carol")), Reply::Nil);
    assert_eq!(client.run(&format!("LOCK.RELEASE {held} alice")), 0);
    assert_eq!(dave.reply(), 1, "the wait for a message continued");
}

/// Returns how many waiters were granted a lock, if the cluster is down, both read in one iteration of the event loop.
#[track_caller]
fn grants_if_down(client: &mut Client) -> Option<i64> {
    let [_, _, _, replies] = ["MULTI", "CLUSTER INFO", "INFO lock", "EXEC"].map(|line| client.call(&bytes_of(line)));
    let [cluster, lock] = replies.items() else { panic!("two replies: {replies:?}") };
    let granted = lock.string();
    let granted =
        granted.lines().find_map(|line| line.strip_prefix("lock_granted_after_waiting:")).expect("the counter");
    let is_down = cluster.string().contains("cluster_state:fail");
    is_down.then(|| granted.trim_end().parse().expect("a number"))
}
