//! A real cluster: locks live in their slot, and whoever waits for one is told when the slot goes elsewhere. No grant is
//! made by a node that has lost it.

use std::time::Duration;

use support::cluster::{Cluster, Tag, insist, keys_in, moved_to};
use support::process::Process;
use support::replicas::{in_time, is_master};
use support::staggered::Staggered;
use support::{
    Client, LOST, OBSERVATION, Reply, Server, Waiter, Waiting, Way, bytes_of, eventually, field, info_lock,
    never_within, waiters_of,
};

use super::scene::Scene;

/// For clusters in which a node shall be thought dead, and soon.
pub(super) const HASTY_MS: u32 = 1000;
/// MIGRATE says how long the lease still runs, not when it ends, so the lease gains the time that the key is under way.
pub(super) const MIGRATE_MS: i64 = 2000;

/// A lock that alice holds for the length of the test, and for which bob, carol and dave wait, bob blocked and the
/// others for a message.
struct Contended {
    key: String,
    bob: Waiter,
    carol: Waiting,
    dave: Waiting,
    /// Unix time in milliseconds.
    lease_end: i64,
}

impl Contended {
    #[track_caller]
    fn start(server: &Server, tag: &Tag) -> Self {
        let key = tag.key("door");
        let mut alice = server.client();
        assert_eq!(alice.run(&format!("LOCK.ACQUIRE {key} alice PX 600000")), 1);
        let bob = Waiter::start(server, &wait_for(&key, "bob"));
        let carol = Way::Notified.start(server, &wait_for(&key, "carol"));
        let dave = Way::OnOneConnection.start(server, &wait_for(&key, "dave"));
        let lease_end = alice.expires_at(&key);
        Self { key, bob, carol, dave, lease_end }
    }

    /// The others are told within a second that their waits are lost here. Returns what bob is told.
    #[track_caller]
    fn are_lost(&mut self) -> Reply {
        for waiting in [&mut self.carol, &mut self.dave] {
            assert_eq!(waiting.reply_within(Duration::from_secs(1)).code(), LOST);
        }
        self.bob.reply()
    }

    /// On the server that has the lock now alice holds it as before, and those who ask again are served in their order.
    /// The lease may end so much later.
    #[track_caller]
    fn goes_on_at(self, server: &Server, late_ms: i64) {
        let key = self.key;
        let mut alice = server.client();
        assert_eq!(alice.run(&format!("LOCK.INFO {key}")).get("owner"), "alice");
        let late = alice.expires_at(&key) - self.lease_end;
        assert!((0..=late_ms).contains(&late), "the lease is what it was, and not {late} ms later");
        let mut bob = Waiter::start(server, &wait_for(&key, "bob"));
        let mut carol = Way::Notified.start(server, &wait_for(&key, "carol"));
        assert_eq!(alice.run(&format!("LOCK.RELEASE {key} alice")), 0);
        assert_eq!(bob.reply(), 1);
        assert_eq!(alice.run(&format!("LOCK.RELEASE {key} bob")), 0);
        assert_eq!(carol.reply(), 1);
        assert_eq!(waiters_of(&mut alice, &key), 0);
    }
}

fn wait_for(key: &str, name: &str) -> String {
    format!("LOCK.ACQUIRE {key} {name} BLOCK 0")
}

/// A lease that runs here ends in a grant to whoever waits.
#[track_caller]
fn a_lease_that_ends_is_handed_over(server: &Server, tag: &Tag) {
    let key = tag.key("gate");
    assert_eq!(server.client().run(&format!("LOCK.EXTEND {key} alice PX 200")), 200, "alice has held it all the time");
    let mut bob = Waiter::start(server, &format!("LOCK.ACQUIRE {key} bob PX 50 BLOCK 0"));
    let mut carol = Way::Notified.start(server, &wait_for(&key, "carol"));
    assert_eq!(bob.reply(), 1);
    assert_eq!(carol.reply(), 1);
}

/// A lock of alice's without anybody who waits.
#[track_caller]
fn quiet_lock(client: &mut Client, tag: &Tag) {
    assert_eq!(client.run(&format!("LOCK.ACQUIRE {} alice PX 600000", tag.key("gate"))), 1);
}

#[test]
fn locks_are_taken_waited_for_and_handed_over_in_their_slot_and_nowhere_else() {
    let scene = Scene::start();
    let (tag, right) = (&scene.tag, scene.home());
    let [key, other] = [tag.key("door"), tag.key("gate")];
    for line in [
        format!("LOCK.ACQUIRE {key} alice"),
        format!("LOCK.ACQUIRE {key} alice BLOCK 0"),
        format!("LOCK.ACQUIRE {key} alice PX 1000 BLOCK 0 NOTIFY news"),
        format!("LOCK.REENTER {key} alice"),
        format!("LOCK.RELEASE {key} alice"),
        format!("LOCK.EXTEND {key} alice PX 1000"),
        format!("LOCK.INFO {key}"),
        format!("LOCK.WAITERS {key}"),
    ] {
        for wrong in [scene.away(), scene.third(), scene.replica()] {
            assert_eq!(moved_to(&wrong.client().run(&line)), right.port(), "{line}");
        }
        let keys = right.client().run(&format!("COMMAND GETKEYS {line}"));
        assert_eq!(keys, Reply::list([Reply::text(&key)]), "{line}");
    }
    let mut alice = right.client();
    assert_eq!(alice.run(&format!("LOCK.REENTER {other} alice")), 1);
    let fence = format!("LOCK.FENCE {other} alice");
    let [near, far] = [tag.key("counter"), scene.key_elsewhere("counter")];
    assert!(alice.run(&format!("{fence} {near}")).int() > 0);
    assert_eq!(alice.run(&format!("{fence} {far}")).code(), "CROSSSLOT");
    let mut lock = Contended::start(right, tag);
    assert_eq!(alice.run(&format!("LOCK.RELEASE {key} alice")), 0);
    assert_eq!(lock.bob.reply(), 1);
    assert_eq!(alice.run(&format!("LOCK.RELEASE {key} bob")), 0);
    assert_eq!(lock.carol.reply(), 1);
    assert_eq!(alice.run(&format!("LOCK.RELEASE {key} carol")), 0);
    assert_eq!(lock.dave.reply(), 1);
    assert_eq!(keys_in(&mut alice, tag.slot), 3, "two locks and a counter are in the slot of their tag");
}

#[test]
fn a_replica_of_the_slot_tells_who_holds_the_lock_but_not_who_waits() {
    let scene = Scene::start();
    let lock = Contended::start(scene.home(), &scene.tag);
    let mut reader = scene.replica().client();
    reader.ok("READONLY");
    eventually("the lock arrives", || reader.run(&format!("LOCK.INFO {}", lock.key)).get("owner") == "alice");
    assert_eq!(reader.run(&format!("LOCK.INFO {}", lock.key)).get("waiters"), 0);
    assert_eq!(moved_to(&reader.run(&wait_for(&lock.key, "dave"))), scene.home().port());
}

#[test]
fn waiters_are_sent_on_when_their_slot_moves_and_the_old_node_grants_nothing() {
    let scene = Scene::start();
    let (tag, from, to) = (&scene.tag, scene.home(), scene.away());
    let mut old = from.client();
    quiet_lock(&mut old, tag);
    let mut lock = Contended::start(from, tag);
    let migration = scene.leaves();
    migration.open();
    // The server reports the key that leaves as deleted, which it is not.
    migration.move_keys(&[lock.key.clone(), tag.key("gate")]);
    never_within(OBSERVATION, "there is a second holder", || keys_in(&mut old, tag.slot) > 0);
    assert!(lock.bob.is_blocked(), "the slot is not gone yet");
    migration.close();
    assert_eq!(moved_to(&lock.are_lost()), to.port());
    assert_eq!(info_lock(&mut old, "granted_after_waiting"), 0);
    assert_eq!(info_lock(&mut old, "waiters"), 0);
    lock.goes_on_at(to, MIGRATE_MS);
    a_lease_that_ends_is_handed_over(to, tag);
}

#[test]
fn leases_that_end_while_a_slot_is_on_its_way_are_not_handed_over_by_the_old_node() {
    let scene = Scene::start();
    let (tag, from, to) = (&scene.tag, scene.home(), scene.away());
    let migration = scene.leaves();
    let locks = Staggered::start(from, &tag.name, 20, 15);
    let mut old = from.client();
    eventually("the first is handed over", || info_lock(&mut old, "handovers_expiry") > 0);
    migration.open();
    let handed_over = info_lock(&mut old, "granted_after_waiting");
    migration.move_keys(&locks.keys().split_off(10));
    locks.outlive();
    never_within(OBSERVATION, "a lock is handed over", || info_lock(&mut old, "granted_after_waiting") > handed_over);
    migration.move_keys(&migration.keys_left());
    migration.close();
    let outcomes = locks.outcomes();
    assert_eq!(i64::try_from(outcomes.granted.len()).unwrap(), handed_over);
    outcomes.all_told("MOVED");
    outcomes.hold_at(&mut to.client());
}

#[test]
fn a_lease_that_ended_while_a_slot_was_on_its_way_is_handed_over_when_the_slot_stays() {
    let scene = Scene::start();
    let from = scene.home();
    let migration = scene.leaves();
    let key = scene.key("door");
    assert_eq!(from.client().run(&format!("LOCK.ACQUIRE {key} alice PX 600000")), 1);
    let mut bob = Waiter::start(from, &wait_for(&key, "bob"));
    migration.open();
    assert_eq!(from.client().run(&format!("LOCK.EXTEND {key} alice PX 20")), 20);
    never_within(OBSERVATION, "bob is served", || !bob.is_blocked());
    migration.call_off();
    assert_eq!(bob.reply(), 1);
}

#[test]
fn leases_that_end_while_the_server_drops_the_keys_of_their_slot_are_handed_over_no_more() {
    are_served_no_more_while_their_slot_is_dropped(Staggered::start);
}

/// Locks that end while the server drops the keys of their slot go to nobody here.
#[track_caller]
pub(super) fn are_served_no_more_while_their_slot_is_dropped(start: fn(&Server, &str, i64, i64) -> Staggered) {
    const COUNT: i64 = 80;
    let scene = Scene::configured("hz 100");
    let (tag, from) = (&scene.tag, scene.home());
    let locks = start(from, &tag.name, COUNT, 10);
    let mut old = from.client();
    eventually("the first is handed over", || info_lock(&mut old, "handovers_expiry") > 0);
    scene.leaves().seize();
    let granted = info_lock(&mut old, "granted_after_waiting");
    assert!(granted < COUNT, "leases are left to end");
    locks.outlive();
    let outcomes = locks.outcomes();
    assert_eq!(i64::try_from(outcomes.granted.len()).unwrap(), granted);
    outcomes.all_told("MOVED");
    assert_eq!(info_lock(&mut old, "waiters"), 0);
}

#[test]
fn waiters_are_sent_on_when_the_server_moves_their_slot_as_a_whole() {
    let scene = Scene::start();
    let (tag, from, to) = (&scene.tag, scene.home(), scene.away());
    let mut old = from.client();
    quiet_lock(&mut old, tag);
    let mut lock = Contended::start(from, tag);
    let locks = Staggered::start(from, &tag.name, 40, 20);
    if !scene.leaves().run_atomically() {
        eprintln!("skipped: this server does not move slots as a whole");
        return;
    }
    assert_eq!(moved_to(&lock.are_lost()), to.port());
    let granted = info_lock(&mut old, "granted_after_waiting");
    let outcomes = locks.outcomes();
    assert_eq!(i64::try_from(outcomes.granted.len()).unwrap(), granted, "nothing after the slot had gone");
    outcomes.all_told("MOVED");
    outcomes.hold_at(&mut to.client());
    assert_eq!(info_lock(&mut old, "waiters"), 0);
    lock.goes_on_at(to, 0);
    a_lease_that_ends_is_handed_over(to, tag);
}

#[test]
fn a_manual_failover_loses_no_grant_and_leaves_nobody_hanging() {
    let scene = Scene::start();
    let (tag, old, new) = (&scene.tag, scene.home(), scene.replica());
    quiet_lock(&mut old.client(), tag);
    let mut lock = Contended::start(old, tag);
    let locks = Staggered::start(old, &tag.name, 40, 20);
    new.client().ok("CLUSTER FAILOVER");
    in_time("the replica is promoted", || is_master(new));
    let answer = lock.are_lost();
    assert!(is_told_off(&answer), "{answer:?}");
    let outcomes = locks.outcomes();
    for (key, told) in &outcomes.told {
        assert!(is_told_off(told), "{key}: {told:?}");
    }
    outcomes.hold_at(&mut insist(new, &format!("LOCK.INFO {}", lock.key)));
    in_time("the old master follows", || !is_master(old));
    assert_eq!(moved_to(&old.client().run(&wait_for(&lock.key, "bob"))), new.port());
    lock.goes_on_at(new, 0);
    a_lease_that_ends_is_handed_over(new, tag);
}

/// Nobody is granted what the old master may have granted, until that has ended.
#[test]
fn a_manual_failover_begins_a_recovery_period() {
    let scene = Scene::start();
    let (old, new, key) = (scene.home(), scene.replica(), scene.key("door"));
    let mut control = new.client();
    control.ok("CONFIG SET lock.recovery-ms 600000");
    quiet_lock(&mut old.client(), &scene.tag);
    control.ok("CLUSTER FAILOVER");
    in_time("the replica is promoted", || is_master(new));
    let mut client = insist(new, &format!("LOCK.INFO {key}"));
    assert_eq!(client.run(&format!("LOCK.ACQUIRE {key} alice PX 1000")), Reply::Nil);
    let mut bob = Waiter::start(new, &format!("LOCK.ACQUIRE {key} bob PX 60000 BLOCK 0"));
    assert!(field(&mut client, &key, "recovery-ms").int() > 0);
    control.ok("CONFIG SET lock.recovery-ms 0");
    assert_eq!(bob.reply(), 1);
}

/// The server's own ways to end a wait when it is not, or is not any more, the master of the lock.
pub(super) fn is_told_off(answer: &Reply) -> bool {
    *answer == Reply::Closed || ["UNBLOCKED", "MOVED", LOST].contains(&answer.code())
}

#[test]
fn a_killed_master_leaves_its_locks_to_the_replica_and_nobody_hanging() {
    let mut cluster = Cluster::start(HASTY_MS, "");
    cluster.let_replicas_take_over();
    let tag = cluster.tag_of(0);
    let mut client = cluster.master(0).client();
    quiet_lock(&mut client, &tag);
    let mut lock = Contended::start(cluster.master(0), &tag);
    assert_eq!(client.run(&format!("LOCK.ACQUIRE {} alice PX 100", tag.key("short"))), 1);
    assert_eq!(client.run("WAIT 1 5000"), 1, "the replica has the locks");
    Process::kill(cluster.master_mut(0));
    assert_eq!([lock.bob.reply(), lock.carol.reply(), lock.dave.reply()], [(); 3].map(|()| Reply::Closed));
    let new = cluster.replica(0);
    in_time("the replica is promoted", || is_master(new));
    let mut alice = insist(new, &format!("LOCK.INFO {}", lock.key));
    in_time("the others know of it", || {
        let answer = cluster.master(1).client().run(&format!("GET {}", lock.key));
        answer.is_error() && moved_to(&answer) == new.port()
    });
    assert_eq!(alice.run(&wait_for(&tag.key("short"), "bob")), 1, "its lease has ended");
    lock.goes_on_at(new, 0);
    a_lease_that_ends_is_handed_over(new, &tag);
}

#[test]
fn a_master_without_the_majority_grants_nothing() {
    // Reads go on, so that one can look; a lock that is read as free is not one to be granted.
    let cluster = Cluster::start(HASTY_MS, "cluster-allow-reads-when-down yes");
    let tag = cluster.tag_of(0);
    let server = cluster.master(0);
    let locks = Staggered::start_in_ways(&[Way::Blocked], server, &tag.name, 100, 40);
    let held = tag.key("held");
    assert_eq!(server.client().run(&format!("LOCK.ACQUIRE {held} alice PX 600000")), 1);
    let mut dave = Way::Notified.start(server, &wait_for(&held, "dave"));
    let others = [1, 2].map(|number| Process::of(cluster.master(number)));
    others.iter().for_each(Process::stop);

    let mut client = server.client();
    let mut granted_before = 0;
    in_time("the cluster is down", || {
        granted_before = grants_if_down(&mut client).unwrap_or(-1);
        granted_before >= 0
    });
    assert!(granted_before < 100, "leases are left to end while it is down");
    assert_eq!(client.run(&wait_for(&tag.key("new"), "carol")).code(), "CLUSTERDOWN");
    let outcomes = locks.outcomes();
    assert_eq!(grants_if_down(&mut client), Some(granted_before), "nothing was granted while the cluster was down");
    assert_eq!(i64::try_from(outcomes.granted.len()).unwrap(), granted_before);
    outcomes.all_told("CLUSTERDOWN");
    outcomes.hold_at(&mut client);
    dave.has_heard_nothing_else();

    others.iter().for_each(Process::resume);
    let mut client = insist(server, &format!("SET {} x", tag.key("other")));
    let (free, _) = outcomes.told.last().expect("a lock that nobody got");
    in_time("its lease ends", || client.run(&format!("GET {free}")) == Reply::Nil);
    assert_eq!(client.run(&wait_for(free, "carol")), 1);
    let taken = outcomes.granted.first().expect("a lock that was granted before");
    assert_eq!(client.run(&format!("LOCK.ACQUIRE {taken} carol")), Reply::Nil);
    assert_eq!(client.run(&format!("LOCK.RELEASE {held} alice")), 0);
    assert_eq!(dave.reply(), 1, "who waits for a message has waited on");
}

/// How many waiters have been served so far, if the cluster is down; both are asked in one loop round.
#[track_caller]
fn grants_if_down(client: &mut Client) -> Option<i64> {
    let together = [&bytes_of("MULTI")[..], &bytes_of("CLUSTER INFO"), &bytes_of("INFO lock"), &bytes_of("EXEC")];
    let replies: Vec<Reply> = together.into_iter().map(|line| client.call(line)).collect();
    let [cluster, lock] = replies.last().expect("the answer to EXEC").items() else { panic!("two answers") };
    let served = lock.string();
    let served = served.lines().find_map(|line| line.strip_prefix("lock_granted_after_waiting:")).expect("the counter");
    let down = cluster.string().contains("cluster_state:fail");
    down.then(|| served.trim_end().parse().expect("a number"))
}
