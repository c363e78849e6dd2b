//! Shared locks in a cluster: shares live in their slot and go with it, to the millisecond; whoever waits for one is told
//! when the slot goes elsewhere, and no permit is passed on by a node that has lost it.

use std::time::Duration;

use support::cluster::{Cluster, Tag, insist, keys_in, moved_to};
use support::process::Process;
use support::replicas::{in_time, is_master};
use support::sessions::is_connected;
use support::staggered::Staggered;
use support::{
    Client, LOST, OBSERVATION, Reply, Server, Waiter, Waiting, Way, eventually, field, info_lock, never_within,
    waiters_of,
};

use super::channels::MOVES;
use super::scene::Scene;
use super::slots::{HASTY_MS, MIGRATE_MS, are_served_no_more_while_their_slot_is_dropped, is_told_off};
use crate::shares::{holders_of, shares_of};

/// Two permits that alice and zoe hold for the length of the test. Bob, blocked, and carol, for a message, wait for one,
/// and dave for the lock alone, for a message on his own connection.
struct Pool {
    key: String,
    bob: Waiter,
    carol: Waiting,
    dave: Waiting,
    /// The tokens and the ends of their leases.
    shares: Vec<(String, String)>,
}

impl Pool {
    #[track_caller]
    fn start(server: &Server, tag: &Tag) -> Self {
        let key = tag.key("pool");
        let mut control = server.client();
        take_both(&mut control, &key);
        let bob = Waiter::start(server, &wait_for(&key, "bob"));
        let carol = Way::Notified.start(server, &wait_for(&key, "carol"));
        let dave = Way::OnOneConnection.start(server, &wait_alone(&key));
        let shares = shares_of(&mut control, &key);
        Self { key, bob, carol, dave, shares }
    }

    /// The others are told within a second that their waits are lost here. Returns what bob is told.
    #[track_caller]
    fn are_lost(&mut self) -> Reply {
        for waiting in [&mut self.carol, &mut self.dave] {
            assert_eq!(waiting.reply_within(Duration::from_secs(1)).code(), LOST);
        }
        self.bob.reply()
    }

    /// On the server that has the lock now the shares are what they were, and those who ask again are served in their
    /// order. The key may live so much longer than the last share, until it is written.
    #[track_caller]
    fn goes_on_at(self, server: &Server, late_ms: i64) {
        let key = self.key;
        let mut control = server.client();
        assert_eq!(shares_of(&mut control, &key), self.shares, "an ordinary Sorted Set");
        let late = control.expires_at(&key) - end_of_last(&mut control, &key);
        assert!((0..=late_ms).contains(&late), "the key lives {late} ms longer than its last share");
        assert_eq!(field(&mut control, &key, "holds"), 2);
        let mut bob = Waiter::start(server, &wait_for(&key, "bob"));
        let mut carol = Way::Notified.start(server, &wait_for(&key, "carol"));
        let mut dave = Way::OnOneConnection.start(server, &wait_alone(&key));
        assert_eq!(control.run(&format!("LOCK.RELEASE {key} alice")), 0);
        assert_eq!(bob.reply(), 1);
        assert_eq!(control.run(&format!("LOCK.RELEASE {key} zoe")), 0);
        assert_eq!(carol.reply(), 1);
        assert_eq!(control.expires_at(&key), end_of_last(&mut control, &key), "as long as the last share");
        assert!(dave.waits());
        for holder in ["bob", "carol"] {
            assert_eq!(control.run(&format!("LOCK.RELEASE {key} {holder}")), 0);
        }
        assert_eq!(dave.reply(), 1);
        assert_eq!(waiters_of(&mut control, &key), 0);
    }
}

fn wait_for(key: &str, name: &str) -> String {
    format!("LOCK.SHARE {key} {name} LIMIT 2 PX 600000 BLOCK 0")
}

fn wait_alone(key: &str) -> String {
    format!("LOCK.ACQUIRE {key} dave PX 600000 BLOCK 0")
}

#[track_caller]
fn take_both(client: &mut Client, key: &str) {
    for (holder, ms) in [("alice", 600_000), ("zoe", 500_000)] {
        assert_eq!(client.run(&format!("LOCK.SHARE {key} {holder} LIMIT 2 PX {ms}")), 1);
    }
}

#[track_caller]
fn end_of_last(client: &mut Client, key: &str) -> i64 {
    shares_of(client, key).last().expect("a share").1.parse().expect("a time")
}

/// Shares of alice and zoe, for which nobody waits.
#[track_caller]
fn quiet_shares(client: &mut Client, tag: &Tag) {
    take_both(client, &tag.key("gate"));
}

/// A share that ends here makes room for whoever waits.
#[track_caller]
fn a_share_that_ends_is_passed_on(server: &Server, tag: &Tag) {
    let key = tag.key("gate");
    let mut control = server.client();
    assert_eq!(control.run(&format!("LOCK.EXTEND {key} alice PX 200")), 200, "alice has held it all the time");
    let mut bob = Waiter::start(server, &format!("LOCK.SHARE {key} bob LIMIT 2 PX 50 BLOCK 0"));
    let mut carol = Way::Notified.start(server, &wait_for(&key, "carol"));
    assert_eq!(bob.reply(), 1);
    assert_eq!(carol.reply(), 1);
    assert_eq!(holders_of(&mut control, &key), ["carol", "zoe"]);
}

#[test]
fn shares_are_taken_waited_for_and_handed_over_in_their_slot_and_nowhere_else() {
    let scene = Scene::start();
    let (tag, right) = (&scene.tag, scene.home());
    let key = tag.key("pool");
    for line in [
        format!("LOCK.SHARE {key} alice"),
        format!("LOCK.SHARE {key} alice LIMIT 2 BLOCK 0"),
        format!("LOCK.SHARE {key} alice PX 1000 LIMIT 2 SESSION"),
        format!("LOCK.SHARE {key} alice PX 1000 BLOCK 0 NOTIFY news"),
    ] {
        for wrong in [scene.away(), scene.third(), scene.replica()] {
            assert_eq!(moved_to(&wrong.client().run(&line)), right.port(), "{line}");
        }
        let keys = right.client().run(&format!("COMMAND GETKEYS {line}"));
        assert_eq!(keys, Reply::list([Reply::text(&key)]), "{line}");
    }
    let mut pool = Pool::start(right, tag);
    let mut control = right.client();
    let fence = format!("LOCK.FENCE {key} alice");
    assert!(control.run(&format!("{fence} {}", tag.key("counter"))).int() > 0);
    assert_eq!(control.run(&format!("{fence} {}", scene.key_elsewhere("counter"))).code(), "CROSSSLOT");
    assert_eq!(control.run(&format!("LOCK.RELEASE {key} alice")), 0);
    assert_eq!(pool.bob.reply(), 1);
    assert_eq!(control.run(&format!("ZREM {key} zoe")), 1);
    assert_eq!(pool.carol.reply(), 1);
    assert!(pool.dave.waits());
    assert_eq!(control.run(&format!("DEL {key}")), 1);
    assert_eq!(pool.dave.reply(), 1);
    assert_eq!(keys_in(&mut control, tag.slot), 2, "a lock and a counter");
}

#[test]
fn a_replica_of_the_slot_shows_the_shares_but_not_who_waits() {
    let scene = Scene::start();
    let pool = Pool::start(scene.home(), &scene.tag);
    let mut reader = scene.replica().client();
    reader.ok("READONLY");
    in_time("the shares arrive", || shares_of(&mut reader, &pool.key) == pool.shares);
    let info = reader.run(&format!("LOCK.INFO {}", pool.key));
    assert_eq!((info.get("state"), info.get("holds")), (Reply::text("shared"), Reply::Int(2)));
    assert_eq!(info.get("waiters"), 0);
    assert_eq!(moved_to(&reader.run(&wait_for(&pool.key, "erin"))), scene.home().port());
}

#[test]
fn shares_go_with_their_slot_key_by_key_and_who_waits_is_sent_on() {
    let scene = Scene::start();
    let (tag, from, to) = (&scene.tag, scene.home(), scene.away());
    let mut old = from.client();
    quiet_shares(&mut old, tag);
    let mut pool = Pool::start(from, tag);
    let migration = scene.leaves();
    migration.open();
    // The server reports the key that leaves as deleted, which it is not.
    migration.move_keys(&[pool.key.clone(), tag.key("gate")]);
    never_within(OBSERVATION, "there is a third holder", || keys_in(&mut old, tag.slot) > 0);
    assert!(pool.bob.is_blocked(), "the slot is not gone yet");
    migration.close();
    assert_eq!(moved_to(&pool.are_lost()), to.port());
    assert_eq!(info_lock(&mut old, "granted_after_waiting"), 0);
    assert_eq!(info_lock(&mut old, "waiters"), 0);
    pool.goes_on_at(to, MIGRATE_MS);
    a_share_that_ends_is_passed_on(to, tag);
}

#[test]
fn shares_go_with_their_slot_as_a_whole_and_who_waits_is_sent_on() {
    let scene = Scene::start();
    let (tag, from, to) = (&scene.tag, scene.home(), scene.away());
    let mut old = from.client();
    quiet_shares(&mut old, tag);
    let mut pool = Pool::start(from, tag);
    let locks = Staggered::start_shared(from, &tag.name, 40, 20);
    if !scene.leaves().run_atomically() {
        eprintln!("skipped: this server does not move slots as a whole");
        return;
    }
    assert_eq!(moved_to(&pool.are_lost()), to.port());
    let granted = info_lock(&mut old, "granted_after_waiting");
    let outcomes = locks.outcomes();
    assert_eq!(i64::try_from(outcomes.granted.len()).unwrap(), granted, "nothing after the slot had gone");
    outcomes.all_told("MOVED");
    outcomes.hold_at(&mut to.client());
    assert_eq!(info_lock(&mut old, "waiters"), 0);
    pool.goes_on_at(to, 0);
    a_share_that_ends_is_passed_on(to, tag);
}

/// A key that is still here is whole, and so is its line. With the key the line goes.
#[test]
fn while_a_slot_is_on_its_way_permits_are_passed_on_where_the_key_is() {
    let scene = Scene::start();
    let (tag, from, to) = (&scene.tag, scene.home(), scene.away());
    let mut old = from.client();
    let locks = Staggered::start_shared(from, &tag.name, 20, 15);
    let stays = tag.key("stays");
    take_both(&mut old, &stays);
    let mut bob = Waiter::start(from, &wait_for(&stays, "bob"));
    eventually("the first is passed on", || info_lock(&mut old, "handovers_expiry") > 0);
    let migration = scene.leaves();
    migration.open();
    migration.move_keys(&locks.keys());
    let granted = info_lock(&mut old, "granted_after_waiting");
    assert!(granted < 20, "shares are left to end");
    locks.outlive();
    never_within(OBSERVATION, "one is passed on", || info_lock(&mut old, "granted_after_waiting") > granted);
    assert_eq!(old.run(&format!("LOCK.EXTEND {stays} alice PX 20")), 20);
    assert_eq!(bob.reply(), 1, "its key is still here");
    migration.move_keys(&[stays]);
    migration.close();
    let outcomes = locks.outcomes();
    assert_eq!(i64::try_from(outcomes.granted.len()).unwrap(), granted);
    outcomes.all_told("MOVED");
    outcomes.hold_at(&mut to.client());
}

#[test]
fn the_last_share_that_ends_while_a_slot_is_on_its_way_is_handed_over_when_the_slot_stays() {
    let scene = Scene::start();
    let from = scene.home();
    let migration = scene.leaves();
    let key = scene.key("pool");
    take_both(&mut from.client(), &key);
    let mut dave = Waiter::start(from, &wait_alone(&key));
    let mut bob = Waiter::start(from, &wait_for(&key, "bob"));
    migration.open();
    for holder in ["alice", "zoe"] {
        assert_eq!(from.client().run(&format!("LOCK.EXTEND {key} {holder} PX 20")), 20);
    }
    // The key is gone here, so that the other node may have it.
    never_within(OBSERVATION, "dave is served", || !dave.is_blocked());
    migration.call_off();
    assert_eq!(dave.reply(), 1);
    assert_eq!(from.client().run(&format!("LOCK.RELEASE {key} dave")), 0);
    assert_eq!(bob.reply(), 1);
}

#[test]
fn permits_are_passed_on_no_more_while_the_server_drops_the_keys_of_their_slot() {
    are_served_no_more_while_their_slot_is_dropped(Staggered::start_shared);
}

#[test]
fn sessions_of_shares_end_when_their_slot_moves_and_the_leases_run_on() {
    let scene = Scene::start();
    let key = scene.key("pool");
    let (mut old, mut new) = (scene.home().client(), scene.away().client());
    let mut holders = ["alice", "zoe"].map(|name| (name, scene.home().client()));
    for (name, client) in &mut holders {
        assert_eq!(client.run(&format!("LOCK.SHARE {key} {name} PX 60000 LIMIT 2 SESSION")), 1);
    }
    assert_eq!(info_lock(&mut old, "sessions"), 2);
    let before = shares_of(&mut old, &key);
    scene.leaves().go_key_by_key();
    eventually("the sessions are over", || info_lock(&mut old, "sessions") == 0);
    assert_eq!(shares_of(&mut new, &key), before);
    let [(_, alice), (_, mut zoe)] = holders;
    drop(alice);
    never_within(OBSERVATION, "a share is released", || shares_of(&mut new, &key) != before);
    assert_eq!(moved_to(&zoe.run(&format!("LOCK.EXTEND {key} zoe PX 9000"))), scene.away().port());
    assert_eq!(new.run(&format!("LOCK.RELEASE {key} alice")), 0);
    assert_eq!(holders_of(&mut new, &key), ["zoe"]);
}

/// What the same token holds when the slot has come back is not the old session's.
#[test]
fn a_slot_that_goes_and_comes_back_revives_no_session_of_a_share() {
    let scene = Scene::start();
    let key = scene.key("pool");
    let mut control = scene.home().client();
    for moves in MOVES {
        let mut old = scene.home().client();
        assert_eq!(old.run(&format!("LOCK.SHARE {key} alice PX 60000 SESSION")), 1);
        if !moves(&scene.leaves()) {
            eprintln!("skipped: this server does not move slots as a whole");
            return;
        }
        assert!(moves(&scene.comes_back()));
        assert_eq!(control.run(&format!("LOCK.SHARE {key} zoe PX 60000")), 1);
        assert_eq!(control.run(&format!("LOCK.SHARE {key} alice PX 60000")), 1);
        eventually("the session is over", || info_lock(&mut control, "sessions") == 0);
        let id = old.id();
        drop(old);
        eventually("its connection is closed", || !is_connected(&mut control, id));
        never_within(OBSERVATION, "a share is released", || holders_of(&mut control, &key) != ["alice", "zoe"]);
        assert_eq!(control.run(&format!("DEL {key}")), 1);
    }
}

#[test]
fn a_manual_failover_loses_no_share_and_leaves_nobody_hanging() {
    let scene = Scene::start();
    let (tag, old, new) = (&scene.tag, scene.home(), scene.replica());
    quiet_shares(&mut old.client(), tag);
    let mut pool = Pool::start(old, tag);
    let locks = Staggered::start_shared(old, &tag.name, 40, 20);
    new.client().ok("CLUSTER FAILOVER");
    in_time("the replica is promoted", || is_master(new));
    let answer = pool.are_lost();
    assert!(is_told_off(&answer), "{answer:?}");
    let outcomes = locks.outcomes();
    for (key, told) in &outcomes.told {
        assert!(is_told_off(told), "{key}: {told:?}");
    }
    outcomes.hold_at(&mut insist(new, &format!("LOCK.INFO {}", pool.key)));
    in_time("the old master follows", || !is_master(old));
    assert_eq!(moved_to(&old.client().run(&wait_for(&pool.key, "bob"))), new.port());
    pool.goes_on_at(new, 0);
    a_share_that_ends_is_passed_on(new, tag);
}

#[test]
fn a_killed_master_leaves_its_shares_to_the_replica_and_nobody_hanging() {
    let mut cluster = Cluster::start(HASTY_MS, "");
    cluster.let_replicas_take_over();
    let tag = cluster.tag_of(0);
    let mut client = cluster.master(0).client();
    quiet_shares(&mut client, &tag);
    let mut pool = Pool::start(cluster.master(0), &tag);
    let short = tag.key("short");
    for (name, ms) in [("alice", 100), ("zoe", 600_000)] {
        assert_eq!(client.run(&format!("LOCK.SHARE {short} {name} PX {ms}")), 1);
    }
    assert_eq!(client.run("WAIT 1 5000"), 1, "the replica has the shares");
    Process::kill(cluster.master_mut(0));
    assert_eq!([pool.bob.reply(), pool.carol.reply(), pool.dave.reply()], [(); 3].map(|()| Reply::Closed));
    let new = cluster.replica(0);
    in_time("the replica is promoted", || is_master(new));
    let mut control = insist(new, &format!("LOCK.INFO {}", pool.key));
    in_time("the others know of it", || {
        let answer = cluster.master(1).client().run(&format!("GET {}", pool.key));
        answer.is_error() && moved_to(&answer) == new.port()
    });
    assert_eq!(field(&mut control, &short, "holds"), 1, "the share of alice has ended");
    assert_eq!(control.run(&wait_for(&short, "bob")), 1);
    assert_eq!(holders_of(&mut control, &short), ["bob", "zoe"]);
    pool.goes_on_at(new, 0);
    a_share_that_ends_is_passed_on(new, &tag);
}
