//! Locks are in their slot. When the slot moves to another node, its waiters receive an error, and no node that has lost the slot grants
//! a lock.

use support::cluster::{keys_in, moved_to};
use support::{OBSERVATION, Reply, Waiter, eventually, info_lock, never_within};

use super::contended::{Contended, Form, MUTEX, SHARED};
use super::scene::Scene;

/// MIGRATE sends how long the lease lasts, not when it ends, so the lease gains the time that the key is on its way.
pub(super) const MIGRATE_MS: i64 = 2000;

#[test]
fn locks_are_used_in_their_slot_alone() {
    let scene = Scene::start();
    let (tag, right) = (&scene.tag, scene.home());
    let key = tag.key("door");
    let commands = [
        "ACQUIRE KEY alice",
        "ACQUIRE KEY alice BLOCK 0",
        "ACQUIRE KEY alice PX 1000 BLOCK 0 NOTIFY news",
        "REENTER KEY alice",
        "SHARE KEY alice",
        "SHARE KEY alice LIMIT 2 BLOCK 0",
        "SHARE KEY alice PX 1000 LIMIT 2 SESSION",
        "SHARE KEY alice PX 1000 BLOCK 0 NOTIFY news",
        "RELEASE KEY alice",
        "EXTEND KEY alice PX 1000",
        "INFO KEY",
        "WAITERS KEY",
    ];
    for line in commands.map(|command| format!("LOCK.{}", command.replace("KEY", &key))) {
        for wrong in [scene.away(), scene.third(), scene.replica()] {
            assert_eq!(moved_to(&wrong.client().run(&line)), right.port(), "{line}");
        }
        let keys = right.client().run(&format!("COMMAND GETKEYS {line}"));
        assert_eq!(keys, Reply::list([Reply::text(&key)]), "{line}");
    }
    let mut client = right.client();
    let [near, far] = [tag.key("counter"), scene.key_elsewhere("counter")];
    for take in ["REENTER", "SHARE"] {
        let other = tag.key(take);
        assert_eq!(client.run(&format!("LOCK.{take} {other} alice")), 1);
        assert!(client.run(&format!("LOCK.FENCE {other} alice {near}")).int() > 0);
        assert_eq!(client.run(&format!("LOCK.FENCE {other} alice {far}")).code(), "CROSSSLOT");
    }
    for lock in Contended::start_both(right, tag) {
        lock.check_order_of_grants(&mut client);
    }
    assert_eq!(keys_in(&mut client, tag.slot), 7, "two forms, each of them quiet, contended and fenced by one counter");
}

#[test]
fn external_commands_free_shares_in_their_slot() {
    let scene = Scene::start();
    let (key, mut client) = (scene.key("pool"), scene.home().client());
    SHARED.hold(&mut client, &key);
    let mut bob = Waiter::start(scene.home(), &SHARED.wait(&key, "bob"));
    let mut dave = Waiter::start(scene.home(), &MUTEX.wait(&key, "dave"));
    assert_eq!(client.run(&format!("ZREM {key} zoe")), 1);
    assert_eq!(bob.reply(), 1);
    assert_eq!(client.run(&format!("DEL {key}")), 1);
    assert_eq!(dave.reply(), 1);
}

#[test]
fn replica_shows_holders_and_no_waiters() {
    let scene = Scene::start();
    let mut reader = scene.replica().client();
    reader.ok("READONLY");
    for lock in Contended::start_both(scene.home(), &scene.tag) {
        eventually("the lock arrives", || lock.is_held_at(&mut reader));
        let info = reader.run(&format!("LOCK.INFO {}", lock.key));
        assert_eq!(info.get("waiters"), 0);
        assert_eq!(moved_to(&reader.run(&MUTEX.wait(&lock.key, "erin"))), scene.home().port());
    }
}

#[test]
fn waiters_end_when_keys_move_one_by_one() {
    let scene = Scene::start();
    let (tag, from, to) = (&scene.tag, scene.home(), scene.away());
    let mut old = from.client();
    let mut locks = Contended::start_both(from, tag);
    let migration = scene.leaves();
    migration.open();
    // The server reports the key that leaves as deleted, which it is not.
    migration.move_keys(&migration.keys_left());
    never_within(OBSERVATION, "there is a second holder", || keys_in(&mut old, tag.slot) > 0);
    for lock in &locks {
        assert!(lock.bob.is_blocked(), "the slot has not moved yet");
    }
    migration.close();
    for lock in &mut locks {
        assert_eq!(moved_to(&lock.are_lost()), to.port());
    }
    assert_eq!(info_lock(&mut old, "granted_after_waiting"), 0);
    assert_eq!(info_lock(&mut old, "waiters"), 0);
    for lock in locks {
        lock.continues_at(to, MIGRATE_MS);
    }
}

#[test]
fn waiters_end_when_slot_moves_as_a_whole() {
    for form in [&MUTEX, &SHARED] {
        let scene = Scene::start();
        let (tag, from, to) = (&scene.tag, scene.home(), scene.away());
        let mut old = from.client();
        let mut lock = Contended::start(form, from, tag);
        let staggered = form.staggered(from, tag, 40, 20);
        if !scene.leaves().run_atomically() {
            eprintln!("skipped: this server does not move slots as a whole");
            return;
        }
        assert_eq!(moved_to(&lock.are_lost()), to.port());
        let granted = info_lock(&mut old, "granted_after_waiting");
        let outcomes = staggered.outcomes();
        assert_eq!(i64::try_from(outcomes.granted.len()).unwrap(), granted, "none after the slot had moved");
        outcomes.all_told("MOVED");
        outcomes.hold_at(&mut to.client());
        assert_eq!(info_lock(&mut old, "waiters"), 0);
        lock.continues_at(to, 0);
    }
}

#[test]
fn leases_that_end_during_migration_are_not_granted() {
    let scene = Scene::start();
    let (tag, from, to) = (&scene.tag, scene.home(), scene.away());
    let migration = scene.leaves();
    let locks = MUTEX.staggered(from, tag, 20, 60);
    let mut old = from.client();
    eventually("the first is granted", || info_lock(&mut old, "handovers_expiry") > 0);
    migration.open();
    let granted = info_lock(&mut old, "granted_after_waiting");
    migration.move_keys(&locks.keys().split_off(10));
    locks.outlive();
    never_within(OBSERVATION, "a lock is granted", || info_lock(&mut old, "granted_after_waiting") > granted);
    migration.move_keys(&migration.keys_left());
    migration.close();
    let outcomes = locks.outcomes();
    assert_eq!(i64::try_from(outcomes.granted.len()).unwrap(), granted);
    outcomes.all_told("MOVED");
    outcomes.hold_at(&mut to.client());
}

/// A shared lock whose key is still here is granted here. When the key has moved, it is not.
#[test]
fn shares_are_granted_where_key_is_during_migration() {
    let scene = Scene::start();
    let (tag, from, to) = (&scene.tag, scene.home(), scene.away());
    let mut old = from.client();
    let locks = SHARED.staggered(from, tag, 20, 60);
    let stays = tag.key("stays");
    SHARED.hold(&mut old, &stays);
    let mut bob = Waiter::start(from, &SHARED.wait(&stays, "bob"));
    eventually("the first is granted", || info_lock(&mut old, "handovers_expiry") > 0);
    let migration = scene.leaves();
    migration.open();
    migration.move_keys(&locks.keys());
    let granted = info_lock(&mut old, "granted_after_waiting");
    assert!(granted < 20, "shares are left to end");
    locks.outlive();
    never_within(OBSERVATION, "a share is granted", || info_lock(&mut old, "granted_after_waiting") > granted);
    assert_eq!(old.run(&format!("LOCK.EXTEND {stays} alice PX 20")), 20);
    assert_eq!(bob.reply(), 1, "its key is still here");
    migration.move_keys(&[stays]);
    migration.close();
    let outcomes = locks.outcomes();
    assert_eq!(i64::try_from(outcomes.granted.len()).unwrap(), granted);
    outcomes.all_told("MOVED");
    outcomes.hold_at(&mut to.client());
}

/// The key is no longer here, so that the other node may have it, until the migration is cancelled.
#[test]
fn cancelled_migration_grants_free_locks() {
    let scene = Scene::start();
    let (from, mut client) = (scene.home(), scene.home().client());
    let migration = scene.leaves();
    let [door, pool] = [MUTEX.key("lock", &scene.tag), SHARED.key("lock", &scene.tag)];
    MUTEX.hold(&mut client, &door);
    SHARED.hold(&mut client, &pool);
    let [mut dave, mut erin] = [&door, &pool].map(|key| Waiter::start(from, &MUTEX.wait(key, "dave")));
    let mut bob = Waiter::start(from, &SHARED.wait(&pool, "bob"));
    migration.open();
    for (key, holder) in [(&door, "alice"), (&pool, "alice"), (&pool, "zoe")] {
        assert_eq!(client.run(&format!("LOCK.EXTEND {key} {holder} PX 20")), 20);
    }
    never_within(OBSERVATION, "a lock is granted", || !dave.is_blocked() || !erin.is_blocked());
    migration.call_off();
    assert_eq!([dave.reply(), erin.reply()], [Reply::Int(1), Reply::Int(1)]);
    assert_eq!(client.run(&format!("LOCK.RELEASE {pool} dave")), 0);
    assert_eq!(bob.reply(), 1);
}

#[test]
fn mutexes_of_dropped_slot_are_not_granted() {
    are_not_granted_while_their_slot_is_dropped(&MUTEX);
}

#[test]
fn shares_of_dropped_slot_are_not_granted() {
    are_not_granted_while_their_slot_is_dropped(&SHARED);
}

/// Leases end while the server drops the keys of their slot.
#[track_caller]
fn are_not_granted_while_their_slot_is_dropped(form: &Form) {
    const COUNT: i64 = 80;
    let scene = Scene::configured("hz 100");
    let from = scene.home();
    let locks = form.staggered(from, &scene.tag, COUNT, 40);
    let mut old = from.client();
    eventually("the first is granted", || info_lock(&mut old, "handovers_expiry") > 0);
    scene.leaves().seize();
    let granted = info_lock(&mut old, "granted_after_waiting");
    assert!(granted < COUNT, "leases are left to end");
    locks.outlive();
    let outcomes = locks.outcomes();
    assert_eq!(i64::try_from(outcomes.granted.len()).unwrap(), granted);
    outcomes.all_told("MOVED");
    assert_eq!(info_lock(&mut old, "waiters"), 0);
}
