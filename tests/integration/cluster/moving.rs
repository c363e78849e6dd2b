//! What becomes of fencing tokens, sessions and the slow log when a slot moves to another node.

use support::cluster::moved_to;
use support::migration::Migration;
use support::{Client, LOST, OBSERVATION, Waiter, Waiting, eventually, info_lock, never_within};

use super::scene::Scene;

fn move_the_slot(migration: &Migration<'_>, keys: &[&str]) {
    migration.open();
    migration.move_keys(&keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>());
    migration.close();
}

fn draw(client: &mut Client, lock: &str, owner: &str, counter: &str) -> i64 {
    client.run(&format!("LOCK.FENCE {lock} {owner} {counter}")).int()
}

#[test]
fn fencing_tokens_rise_over_the_move_of_their_slot() {
    let scene = Scene::start();
    let [lock, counter] = [scene.key("door"), scene.key("fence")];
    let mut old = scene.home().client();
    assert_eq!(old.run(&format!("LOCK.ACQUIRE {lock} alice")), 1);
    // Ahead of every clock, so that only the counter can carry it on.
    let ahead = draw(&mut old, &lock, "alice", &counter) + 1_000_000_000_000;
    old.ok(&format!("SET {counter} {ahead}"));
    move_the_slot(&scene.leaves(), &[&lock, &counter]);
    assert_eq!(draw(&mut scene.away().client(), &lock, "alice", &counter), ahead + 1);
    assert_eq!(old.run(&format!("LOCK.FENCE {lock} alice {counter}")).code(), "MOVED");
}

#[test]
fn a_session_ends_when_its_slot_moves_and_its_lease_runs_on() {
    let scene = Scene::start();
    let lock = scene.key("door");
    let (mut alice, mut old, mut new) = (scene.home().client(), scene.home().client(), scene.away().client());
    assert_eq!(alice.run(&format!("LOCK.ACQUIRE {lock} alice PX 20000 SESSION")), 1);
    let lease_end = old.expires_at(&lock);
    move_the_slot(&scene.leaves(), &[&lock]);
    eventually("the session is over", || info_lock(&mut old, "sessions") == 0);
    // MIGRATE sends what remains of the lease, so it gains the milliseconds that the key is under way.
    let moved_end = new.expires_at(&lock);
    assert!((lease_end..lease_end + 2000).contains(&moved_end), "{moved_end} instead of {lease_end}");
    drop(alice);
    never_within(OBSERVATION, "the lock is released", || new.run(&format!("EXISTS {lock}")) == 0);
    assert_eq!(new.expires_at(&lock), moved_end, "nothing is renewed any more");
    assert_eq!(new.run(&format!("LOCK.RELEASE {lock} alice")), 0);
}

#[test]
fn moved_slot_ends_waits_in_slowlog() {
    let scene = Scene::configured("lock.slowlog-ms 0");
    let (key, channel) = (scene.key("door"), scene.neighbour("news"));
    let mut home = scene.home().client();
    assert_eq!(home.run(&format!("LOCK.ACQUIRE {key} alice PX 600000")), 1);
    let mut bob = Waiting::start_on(scene.home(), &channel, &format!("LOCK.ACQUIRE {key} bob BLOCK 0"));
    let mut carol = Waiter::start(scene.home(), &format!("LOCK.ACQUIRE {key} carol BLOCK 0"));
    scene.leaves().go_key_by_key();
    assert_eq!(bob.reply().code(), LOST);
    assert_eq!(moved_to(&carol.reply()), scene.away().port());
    eventually("both waits are logged", || home.run("LOCK.SLOWLOG LEN") == 2);
    let log = home.run("LOCK.SLOWLOG GET");
    let mut ends: Vec<_> = log.items().iter().map(|entry| [5, 7].map(|at| entry.items()[at].string())).collect();
    ends.sort();
    assert_eq!(ends, [["bob", "lost"], ["carol", "disconnected"]]);
}
