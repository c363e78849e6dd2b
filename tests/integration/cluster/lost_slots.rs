//! A session ends when the slot of its lock leaves, also where no key event reports that. When the slot has returned, the lock that the
//! same token takes does not belong to the old session.

use support::sessions::{is_connected, runs_out};
use support::{Client, Server, eventually, info_lock};

use super::channels::MOVES;
use super::scene::Scene;

/// Long enough that no renewal is due while a slot leaves and returns.
const UNTOUCHED_MS: i64 = 60_000;

/// How long alice holds the lock after the slot has returned.
const AFTERWARDS_MS: i64 = 900;

/// The commands that take a lock in a session.
const TAKE: [&str; 2] = ["LOCK.ACQUIRE", "LOCK.SHARE"];

/// Returns the connection whose session has the lock.
#[track_caller]
fn in_session(server: &Server, take: &str, key: &str) -> Client {
    let mut alice = server.client();
    let sessions = info_lock(&mut alice, "sessions");
    assert_eq!(alice.run(&format!("{take} {key} alice PX {UNTOUCHED_MS} SESSION")), 1);
    assert_eq!(info_lock(&mut alice, "sessions"), sessions + 1);
    alice
}

/// Takes the lock by another connection, without a session.
#[track_caller]
fn retake(server: &Server, take: &str, key: &str) {
    assert_eq!(server.client().run(&format!("{take} {key} alice PX {UNTOUCHED_MS}")), 1);
}

/// The lease of a retaken lock ends as if the old connection had never been there, whether that closes or stays open.
#[track_caller]
fn is_not_of_old_session(old: Client, stays_open: bool, server: &Server, key: &str) {
    let (mut alice, id) = (server.client(), old.id());
    assert_eq!(alice.run(&format!("LOCK.EXTEND {key} alice PX {AFTERWARDS_MS}")), AFTERWARDS_MS);
    eventually("the old session has ended", || info_lock(&mut alice, "sessions") == 0);
    let old = Some(old).filter(|_| stays_open);
    eventually("the old connection is closed or open", || is_connected(&mut alice, id) == stays_open);
    runs_out(&mut alice, key);
    assert_eq!(info_lock(&mut alice, "sessions"), 0);
    assert_eq!(is_connected(&mut alice, id), old.is_some());
}

#[test]
fn returned_slot_has_no_old_sessions() {
    let scene = Scene::start();
    let home = scene.home();
    for (number, moves) in MOVES.into_iter().enumerate() {
        for stays_open in [true, false] {
            let keys = TAKE.map(|take| scene.key(take));
            let old = [0, 1].map(|index| in_session(home, TAKE[index], &keys[index]));
            if !moves(&scene.leaves()) {
                eprintln!("skipped: this server does not move slots as a whole");
                return;
            }
            // A server drops the keys of a slot that another node has claimed.
            let is_claimed = number == 1;
            let value = scene.away().client().run(&format!("EXISTS {} {}", keys[0], keys[1]));
            assert_eq!(value, if is_claimed { 0 } else { 2 });
            assert!(moves(&scene.comes_back()));
            // Where no event reports the move, a session ends when its lock is used again.
            TAKE.iter().zip(&keys).for_each(|(take, key)| retake(home, take, key));
            for (old, key) in old.into_iter().zip(&keys) {
                is_not_of_old_session(old, stays_open, home, key);
            }
        }
    }
}

#[test]
fn lock_taken_at_other_node_has_no_old_session() {
    let scene = Scene::start();
    let key = scene.key("door");
    for stays_open in [true, false] {
        let old = in_session(scene.home(), TAKE[0], &key);
        scene.leaves().seize();
        let mut alice = scene.away().client();
        assert_eq!(alice.run(&format!("LOCK.ACQUIRE {key} alice PX {UNTOUCHED_MS}")), 1);
        scene.comes_back().go_key_by_key();
        retake(scene.home(), TAKE[0], &key);
        is_not_of_old_session(old, stays_open, scene.home(), &key);
    }
}

#[test]
fn session_of_cancelled_import_does_not_continue() {
    let scene = Scene::start();
    let (key, other) = (scene.key("door"), scene.tag.key("other"));
    for stays_open in [true, false] {
        let coming = scene.leaves();
        coming.open();
        let mut old = scene.away().client();
        old.ok("ASKING");
        assert_eq!(old.run(&format!("LOCK.ACQUIRE {key} alice PX 300 SESSION")), 1);
        coming.call_off();
        let mut control = scene.away().client();
        eventually("the session has ended", || info_lock(&mut control, "sessions") == 0);
        assert_eq!(scene.home().client().run(&format!("SET {other} x")), "OK");
        coming.go_key_by_key();
        eventually("its lease has ended", || control.run(&format!("EXISTS {key}")) == 0);
        retake(scene.away(), TAKE[0], &key);
        is_not_of_old_session(old, stays_open, scene.away(), &key);
        scene.comes_back().go_key_by_key();
    }
}
