//! The channel of Redisson's `RLock`, to which those who wait have subscribed.

use support::{Reply, Server, Setup, Waiter};

use super::{has_heard_nothing, hears_unlock, start, subscribe};

const CHANNEL: &str = "redisson_lock__channel:{door}";

#[test]
fn the_release_of_the_last_hold_is_told() {
    let (server, mut alice) = start();
    let mut theirs = subscribe(&server, "SUBSCRIBE", CHANNEL);
    assert_eq!(alice.run("LOCK.REENTER door alice PX 600000"), 1);
    assert_eq!(alice.run("LOCK.REENTER door alice"), 2);
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 1);
    has_heard_nothing(&mut theirs);
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    hears_unlock(&mut theirs);
    has_heard_nothing(&mut theirs);
    assert_eq!(alice.run("DBSIZE"), 0, "nothing is stored");
}

#[test]
fn in_transactions_and_scripts_and_at_the_end_of_a_session() {
    let (server, mut control) = start();
    let mut theirs = subscribe(&server, "SUBSCRIBE", CHANNEL);
    let take = "LOCK.REENTER door alice PX 600000";
    assert_eq!(control.run(take), 1);
    control.ok("MULTI");
    assert_eq!(control.run("LOCK.RELEASE door alice"), "QUEUED");
    assert_eq!(control.run("EXEC"), Reply::list([Reply::Int(0)]));
    hears_unlock(&mut theirs);
    assert_eq!(control.run(take), 1);
    assert_eq!(control.call(&["EVAL", "return redis.call('LOCK.RELEASE', KEYS[1], 'alice')", "1", "door"]), 0);
    hears_unlock(&mut theirs);
    let mut alice = server.client();
    assert_eq!(alice.run(&format!("{take} SESSION")), 1);
    drop(alice);
    hears_unlock(&mut theirs);
    has_heard_nothing(&mut theirs);
}

#[test]
fn a_lock_that_is_handed_over_and_other_forms_are_not_told() {
    let (server, mut alice) = start();
    let mut theirs = subscribe(&server, "PSUBSCRIBE", "*");
    assert_eq!(alice.run("LOCK.REENTER door alice PX 600000"), 1);
    let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob PX 600000 BLOCK 0");
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    assert_eq!(bob.reply(), 1);
    assert_eq!(alice.run("LOCK.RELEASE door bob"), 0);
    assert_eq!(alice.run("LOCK.SHARE door alice PX 600000"), 1);
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    has_heard_nothing(&mut theirs);
}

#[test]
fn without_the_setting_nothing_is_told() {
    let server = Server::start();
    let mut theirs = subscribe(&server, "PSUBSCRIBE", "*");
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.REENTER door alice PX 600000"), 1);
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    has_heard_nothing(&mut theirs);
}

#[test]
fn channels_are_named_as_redisson_names_them() {
    let (server, mut alice) = start();
    let names: [(&[u8], &[u8]); 7] = [
        (b"door", b"redisson_lock__channel:{door}"),
        (b"{house}:door", b"redisson_lock__channel:{house}:door"),
        (b"a{b", b"redisson_lock__channel:a{b"),
        (b"a}b", b"redisson_lock__channel:{a}b}"),
        (b"", b"redisson_lock__channel:{}"),
        (b"0", b"redisson_lock__channel:{0}"), // Its name is like the message.
        (b"\0\r\n\xff", b"redisson_lock__channel:{\0\r\n\xff}"),
    ];
    for (key, channel) in names {
        let mut theirs = server.client();
        assert_eq!(theirs.call(&[b"SUBSCRIBE", channel]).items()[0], "subscribe");
        assert_eq!(alice.call(&[b"LOCK.REENTER", key, b"alice"]), 1);
        assert_eq!(alice.call(&[b"LOCK.RELEASE", key, b"alice"]), 0);
        hears_unlock(&mut theirs);
    }
}

#[test]
fn subscribers_of_a_replica_are_told_too() {
    let master = support::replicas::master("lock.wake-foreign yes");
    let replica = support::replicas::replica_of(&master);
    let mut theirs = subscribe(&replica, "SUBSCRIBE", CHANNEL);
    let mut alice = master.client();
    assert_eq!(alice.run("LOCK.REENTER door alice PX 600000"), 1);
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    hears_unlock(&mut theirs);
}

#[test]
fn a_command_that_the_server_does_not_have_leaves_the_release_as_it_is() {
    let (_server, mut alice) = super::started(&Setup::new().config("rename-command PUBLISH \"\""));
    assert_eq!(alice.run("LOCK.REENTER door alice"), 1);
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    assert_eq!(alice.run("DBSIZE"), 0);
}
