//! The channels of NOTIFY: who may forge a message, and who may listen.

use support::listener::Listener;
use support::{Client, Reply, Server, eventually};

use super::{are_refused, user};

/// A server where alice holds the door, and the channel of a task that waits for it.
#[track_caller]
fn scene() -> (Server, Client, Listener) {
    scene_with(60_000)
}

/// The same with a lease for the task.
#[track_caller]
fn scene_with(lease_ms: i64) -> (Server, Client, Listener) {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 60000"), 1);
    let listener = Listener::start(&server, "tasks:7");
    let ask = format!("LOCK.ACQUIRE door task PX {lease_ms} BLOCK 0 NOTIFY tasks:7");
    assert_eq!(alice.run(&ask), Reply::waiting());
    (server, alice, listener)
}

#[test]
fn who_may_publish_to_the_channel_can_forge_a_grant_and_extend_tells() {
    let (server, mut alice, mut listener) = scene();
    let mut mallory = user(&server, "mallory", "&tasks:* +spublish");
    assert_eq!(mallory.call(&["SPUBLISH", "tasks:7", "granted 9999999999999 0 task door"]), 1);
    listener.hears("granted", "task", "door");
    assert_eq!(alice.run("LOCK.EXTEND door task PX 60000").code(), "NOTOWNER");
    assert_eq!(alice.run("GET door"), "alice");
}

#[test]
fn an_ordinary_channel_of_that_name_is_another() {
    let (server, mut alice, mut listener) = scene();
    let mut mallory = user(&server, "mallory", "&tasks:* +publish");
    assert_eq!(mallory.call(&["PUBLISH", "tasks:7", "granted 9999999999999 0 task door"]), 0);
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    listener.hears("granted", "task", "door");
}

#[test]
fn without_the_right_to_a_channel_nobody_publishes_listens_or_asks_there() {
    let (server, mut alice, mut listener) = scene();
    let mut mallory = user(&server, "mallory", "~* &tasks:8 +@all");
    let lines = [
        "SPUBLISH tasks:7 granted",
        "SSUBSCRIBE tasks:7",
        "LOCK.ACQUIRE door m PX 1000 BLOCK 0 NOTIFY tasks:7",
        "LOCK.ACQUIRE free m PX 1000 BLOCK 0 NOTIFY tasks:7",
    ];
    are_refused(&mut mallory, &lines);
    // A pattern is a word like others here, and not the right to what it would match.
    are_refused(&mut mallory, &["LOCK.ACQUIRE door m PX 1000 BLOCK 0 NOTIFY tasks:*"]);
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    listener.hears("granted", "task", "door");
}

#[test]
fn the_module_publishes_whatever_the_releaser_may() {
    let (server, _alice, mut listener) = scene();
    let mut releaser = user(&server, "releaser", "~door +lock.release");
    assert_eq!(releaser.run("LOCK.RELEASE door alice"), 0);
    listener.hears("granted", "task", "door");
}

#[test]
fn who_may_subscribe_counts_as_the_listener_that_is_gone() {
    for overheard in [false, true] {
        let (server, mut alice, listener) = scene_with(600);
        let eavesdropper = user(&server, "eve", "&tasks:* +ssubscribe");
        let _eavesdropper = overheard.then(|| Listener::on(eavesdropper, "tasks:7"));
        drop(listener);
        let listeners = i64::from(overheard);
        eventually("the listener is gone", || alice.run("PUBSUB SHARDNUMSUB tasks:7").items()[1] == listeners);
        assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
        let holder = alice.run("GET door");
        if overheard {
            assert_eq!(holder, "task", "it is granted to a task that does not hear of it");
            eventually("the lease ends", || alice.run("EXISTS door") == 0);
        } else {
            assert_eq!(holder, Reply::Nil);
        }
    }
}
