//! When a slot moves to another node, its waiters receive an error, and no node that has lost the slot grants a lock.

use support::cluster::{keys_in, moved_to};
use support::parallel::for_each;
use support::staggered::Staggered;
use support::{OBSERVATION, Reply, Waiter, eventually, info_lock, never_within};

use super::contended::Contended;
use super::scene::Scene;

/// MIGRATE sends how long the lease lasts, not when it ends, so the lease gains the time that the key is on its way.
const MIGRATE_MS: i64 = 2000;

#[test]
fn waiters_end_when_keys_move_one_by_one() {
    let scene = Scene::start();
    let (from, to) = (scene.home(), scene.away());
    let mut old = from.client();
    let mut locks = Contended::start(from, &scene.tag);
    let migration = scene.leaves();
    migration.open();
    // The server reports the key that leaves as deleted, which it is not.
    migration.move_keys(&migration.keys_left());
    never_within(OBSERVATION, "there is a second holder", || keys_in(&mut old, scene.tag.slot) > 0);
    assert!(locks.is_blocked(), "the slot has not moved yet");
    migration.close();
    locks.are_lost().iter().for_each(|reply| assert_eq!(moved_to(reply), to.port()));
    assert_eq!([info_lock(&mut old, "granted_after_waiting"), info_lock(&mut old, "waiters")], [0, 0]);
    locks.continues_at(to, MIGRATE_MS);
}

#[test]
fn waiters_end_when_slot_moves_as_a_whole() {
    let scene = Scene::start();
    let (from, to) = (scene.home(), scene.away());
    let mut old = from.client();
    let mut locks = Contended::start(from, &scene.tag);
    let staggered = Staggered::start(from, &scene.tag.name, 40, 20);
    if !scene.leaves().run_atomically() {
        eprintln!("skipped: this server does not move slots as a whole");
        return;
    }
    locks.are_lost().iter().for_each(|reply| assert_eq!(moved_to(reply), to.port()));
    let granted = info_lock(&mut old, "granted_after_waiting");
    let outcomes = staggered.outcomes();
    assert_eq!(i64::try_from(outcomes.granted.len()).unwrap(), granted, "none after the slot had moved");
    outcomes.all_told("MOVED");
    outcomes.hold_at(&mut to.client());
    assert_eq!(info_lock(&mut old, "waiters"), 0);
    locks.continues_at(to, 0);
}

#[test]
fn leases_that_end_during_migration_are_not_granted() {
    let scene = Scene::start();
    let (from, to) = (scene.home(), scene.away());
    let migration = scene.leaves();
    let locks = Staggered::start(from, &scene.tag.name, 20, 60);
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

/// While the key of a shared lock is still here, shares are granted here. Until the migration is cancelled, a free lock is not:
/// the other node may have granted it.
#[test]
fn cancelled_migration_grants_free_locks() {
    let scene = Scene::start();
    let (from, mut client) = (scene.home(), scene.home().client());
    let [door, pool] = ["door", "pool"].map(|name| scene.key(name));
    assert_eq!(client.run(&format!("LOCK.ACQUIRE {door} alice PX 600000")), 1);
    for holder in ["alice", "zoe"] {
        assert_eq!(client.run(&format!("LOCK.SHARE {pool} {holder} PX 600000")), 1);
    }
    let wait = |line: String| Waiter::start(from, &format!("LOCK.{line} PX 600000 BLOCK 0"));
    let mut of_pool = [wait(format!("SHARE {pool} bob LIMIT 2")), wait(format!("ACQUIRE {pool} carol"))];
    let mut of_door = wait(format!("ACQUIRE {door} dave"));
    let migration = scene.leaves();
    migration.open();
    let mut end = |key: &str, holder: &str| {
        assert_eq!(client.run(&format!("LOCK.EXTEND {key} {holder} PX 20")), 20);
    };
    end(&pool, "alice");
    assert_eq!(of_pool[0].reply(), 1);
    end(&pool, "zoe");
    end(&pool, "bob");
    end(&door, "alice");
    never_within(OBSERVATION, "a lock is granted", || !of_door.is_blocked() || !of_pool[1].is_blocked());
    migration.call_off();
    assert_eq!([of_door.reply(), of_pool[1].reply()], [1, 1].map(Reply::Int));
}

/// Leases end while the server drops the keys of their slot.
#[test]
fn locks_of_dropped_slot_are_not_granted() {
    const COUNT: i64 = 80;
    for_each(&Staggered::FORMS, |start| {
        let scene = Scene::configured("hz 100");
        let from = scene.home();
        let locks = start(from, &scene.tag.name, COUNT, 40);
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
    });
}
