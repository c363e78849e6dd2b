//! What becomes of fencing tokens and sessions when their slot moves to another node.

use support::migration::Migration;
use support::{Client, OBSERVATION, eventually, info_lock, never_within};

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
