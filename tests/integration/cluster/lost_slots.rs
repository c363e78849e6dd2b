//! A session ends when the slot of its lock leaves, also where nothing tells of the key that goes with it. When the slot
//! has come back, what the same token then holds is not the old session's.

use support::sessions::{is_connected, runs_out, session_of};
use support::{Client, Server, eventually, info_lock};

use super::scene::Scene;

/// Long enough that no renewal falls due while a slot goes and comes.
const UNTOUCHED_MS: i64 = 60_000;

/// How long alice holds the lock when the slot has come back.
const AFTERWARDS_MS: i64 = 900;

/// Alice holds the lock by another connection, without a session, for a while to come. Neither the end of the old
/// connection nor the old session has a say in that.
#[track_caller]
fn is_no_business_of(old: Client, server: &Server, key: &str) {
    let mut alice = server.client();
    assert_eq!(alice.run(&format!("LOCK.ACQUIRE {key} alice PX {AFTERWARDS_MS}")), 1);
    assert_eq!(alice.run(&format!("LOCK.EXTEND {key} alice PX {AFTERWARDS_MS}")), AFTERWARDS_MS);
    assert_eq!(session_of(&mut alice, key), [] as [i64; 0], "the old session is over");
    let id = old.id();
    drop(old);
    eventually("the old connection is closed", || !is_connected(&mut alice, id));
    runs_out(&mut alice, key);
    assert_eq!(info_lock(&mut alice, "sessions"), 0);
}

/// The same while the old connection stays open.
#[track_caller]
fn is_not_renewed_by(old: &Client, server: &Server, key: &str) {
    let mut alice = server.client();
    assert_eq!(alice.run(&format!("LOCK.ACQUIRE {key} alice PX {AFTERWARDS_MS}")), 1);
    assert_eq!(alice.run(&format!("LOCK.EXTEND {key} alice PX {AFTERWARDS_MS}")), AFTERWARDS_MS);
    runs_out(&mut alice, key);
    assert!(is_connected(&mut alice, old.id()));
}

/// What the old connection, which closes or stays open, means for a lock that was taken since: nothing.
#[track_caller]
fn is_left_alone(old: Client, stays_open: bool, server: &Server, key: &str) {
    if stays_open {
        is_not_renewed_by(&old, server, key);
    } else {
        is_no_business_of(old, server, key);
    }
}

/// A lock of alice's in a session.
#[track_caller]
fn in_session(server: &Server, key: &str, lease_ms: i64) -> Client {
    let mut alice = server.client();
    assert_eq!(alice.run(&format!("LOCK.ACQUIRE {key} alice PX {lease_ms} SESSION")), 1);
    assert_eq!(session_of(&mut alice, key), [alice.id()]);
    alice
}

#[test]
fn a_slot_that_goes_as_a_whole_and_comes_back() {
    let scene = Scene::start();
    let key = scene.key("door");
    for stays_open in [true, false] {
        let old = in_session(scene.home(), &key, UNTOUCHED_MS);
        if !scene.leaves().run_atomically() {
            eprintln!("skipped: this server does not move slots as a whole");
            return;
        }
        assert_eq!(scene.away().client().run(&format!("GET {key}")), "alice");
        assert!(scene.comes_back().run_atomically());
        is_left_alone(old, stays_open, scene.home(), &key);
    }
}

#[test]
fn a_slot_that_goes_key_by_key_and_comes_back() {
    let scene = Scene::start();
    let key = scene.key("door");
    for stays_open in [true, false] {
        let old = in_session(scene.home(), &key, UNTOUCHED_MS);
        scene.leaves().go_key_by_key();
        scene.comes_back().go_key_by_key();
        is_left_alone(old, stays_open, scene.home(), &key);
    }
}

#[test]
fn a_slot_that_is_dropped_with_its_keys_and_comes_back() {
    let scene = Scene::start();
    let key = scene.key("door");
    for stays_open in [true, false] {
        let old = in_session(scene.home(), &key, UNTOUCHED_MS);
        scene.leaves().seize();
        scene.comes_back().seize();
        assert_eq!(scene.home().client().run(&format!("EXISTS {key}")), 0, "the server has dropped it");
        is_left_alone(old, stays_open, scene.home(), &key);
    }
}

#[test]
fn a_slot_that_is_dropped_with_its_keys_and_comes_back_with_a_lock_that_was_taken_elsewhere() {
    let scene = Scene::start();
    let key = scene.key("door");
    for stays_open in [true, false] {
        let old = in_session(scene.home(), &key, UNTOUCHED_MS);
        scene.leaves().seize();
        let mut alice = scene.away().client();
        assert_eq!(alice.run(&format!("LOCK.ACQUIRE {key} alice PX {UNTOUCHED_MS}")), 1);
        scene.comes_back().go_key_by_key();
        is_left_alone(old, stays_open, scene.home(), &key);
    }
}

#[test]
fn a_slot_that_was_to_come_did_not_and_comes_later() {
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
        eventually("the session is over", || info_lock(&mut control, "sessions") == 0);
        assert_eq!(scene.home().client().run(&format!("SET {other} x")), "OK");
        coming.go_key_by_key();
        eventually("its lease has ended", || control.run(&format!("EXISTS {key}")) == 0);
        is_left_alone(old, stays_open, scene.away(), &key);
        scene.comes_back().go_key_by_key();
    }
}
