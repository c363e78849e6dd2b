//! A session ends when the slot of its lock leaves, also where no key event reports that. When the slot has returned, the lock
//! that the same token takes does not belong to the old session.

use support::{Client, OBSERVATION, eventually, info_lock, never_within};

use super::scene::{MOVES, Scene};

/// Long enough that no renewal is due while a slot leaves and returns.
const UNTOUCHED_MS: i64 = 60_000;

/// How long alice holds the lock after the slot has returned.
const AFTERWARDS_MS: i64 = 900;

#[test]
fn returned_slot_has_no_old_sessions() {
    const TAKE: [&str; 2] = ["LOCK.ACQUIRE", "LOCK.SHARE"];
    let scene = Scene::start();
    let (home, mut alice) = (scene.home(), scene.home().client());
    for (number, moves) in MOVES.into_iter().enumerate() {
        let keys = TAKE.map(|take| scene.key(take));
        let lines = [0, 1].map(|index| format!("{} {} alice PX {UNTOUCHED_MS}", TAKE[index], keys[index]));
        let mut old: Vec<Client> = lines.iter().map(|_| home.client()).collect();
        for (client, line) in old.iter_mut().zip(&lines) {
            assert_eq!(client.run(&format!("{line} SESSION")), 1);
        }
        assert_eq!(info_lock(&mut alice, "sessions"), 2);
        if !moves(&scene.leaves()) {
            eprintln!("skipped: this server does not move slots as a whole");
            return;
        }
        // A server drops the keys of a slot that another node has claimed.
        let is_claimed = number == 1;
        let arrived = scene.away().client().run(&format!("EXISTS {}", keys.join(" ")));
        assert_eq!(arrived, if is_claimed { 0 } else { 2 });
        assert!(moves(&scene.comes_back()));
        // Where no event reports the move, a session ends when its lock is used again, here by a connection without a session.
        lines.iter().for_each(|line| assert_eq!(alice.run(line), 1));
        eventually("the old sessions have ended", || info_lock(&mut alice, "sessions") == 0);
        // One of the old connections closes, and one stays open. The leases end as if neither had been there.
        old.pop();
        let ends = [0, 1].map(|index| {
            let extended = alice.run(&format!("LOCK.EXTEND {} alice PX {AFTERWARDS_MS}", keys[index]));
            assert_eq!(extended, AFTERWARDS_MS);
            alice.expires_at(&keys[index])
        });
        eventually("the leases end", || {
            let now = [0, 1].map(|index| alice.expires_at(&keys[index]));
            assert!(now.iter().zip(ends).all(|(now, end)| *now == end || *now == -2), "from {ends:?} to {now:?}");
            now == [-2, -2]
        });
        let exist = format!("EXISTS {}", keys.join(" "));
        never_within(OBSERVATION, "a lock is taken back", || alice.run(&exist) != 0);
        assert_eq!(info_lock(&mut alice, "sessions"), 0);
    }
}
