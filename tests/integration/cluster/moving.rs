//! Fencing tokens, sessions and the slow log when a slot moves to another node.

use support::cluster::moved_to;
use support::{Client, LOST, OBSERVATION, Waiter, Waiting, eventually, info_lock, never_within};

use super::scene::Scene;
use super::slots::MIGRATE_MS;

fn draw(client: &mut Client, lock: &str, owner: &str, counter: &str) -> i64 {
    client.run(&format!("LOCK.FENCE {lock} {owner} {counter}")).int()
}

#[test]
fn fencing_tokens_rise_when_slot_moves() {
    let scene = Scene::start();
    let [lock, counter] = [scene.key("door"), scene.key("fence")];
    let mut old = scene.home().client();
    assert_eq!(old.run(&format!("LOCK.ACQUIRE {lock} alice")), 1);
    // Ahead of every clock, so that only the counter can carry it on.
    let ahead = draw(&mut old, &lock, "alice", &counter) + 1_000_000_000_000;
    old.ok(&format!("SET {counter} {ahead}"));
    scene.leaves().go_key_by_key();
    assert_eq!(draw(&mut scene.away().client(), &lock, "alice", &counter), ahead + 1);
    assert_eq!(old.run(&format!("LOCK.FENCE {lock} alice {counter}")).code(), "MOVED");
}

#[test]
fn moved_slot_ends_sessions_and_keeps_leases() {
    let scene = Scene::start();
    let (door, pool) = (scene.key("door"), scene.key("pool"));
    let (mut old, mut new) = (scene.home().client(), scene.away().client());
    let sessions = [("ACQUIRE", &door, "alice"), ("SHARE", &pool, "alice"), ("SHARE", &pool, "zoe")];
    let mut clients = sessions.map(|(take, key, token)| {
        let mut client = scene.home().client();
        assert_eq!(client.run(&format!("LOCK.{take} {key} {token} PX 60000 SESSION")), 1);
        client
    });
    assert_eq!(info_lock(&mut old, "sessions"), 3);
    let shares = format!("ZRANGE {pool} 0 -1 WITHSCORES");
    let (lease_end, before) = (old.expires_at(&door), old.run(&shares));
    scene.leaves().go_key_by_key();
    eventually("the sessions have ended", || info_lock(&mut old, "sessions") == 0);
    // MIGRATE sends what remains of the lease, so it gains the milliseconds that the key is on its way.
    let moved_end = new.expires_at(&door);
    assert!((lease_end..lease_end + MIGRATE_MS).contains(&moved_end), "{moved_end} instead of {lease_end}");
    assert_eq!(new.run(&shares), before);
    assert_eq!(moved_to(&clients[2].run(&format!("LOCK.EXTEND {pool} zoe PX 9000"))), scene.away().port());
    drop(clients);
    let mut is_kept = || (new.expires_at(&door), new.run(&shares)) == (moved_end, before.clone());
    never_within(OBSERVATION, "a lock is released or renewed", || !is_kept());
    for (_, key, token) in sessions {
        assert_eq!(new.run(&format!("LOCK.RELEASE {key} {token}")), 0);
    }
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
