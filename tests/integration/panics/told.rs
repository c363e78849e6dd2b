//! What clients are told of a panic, and what the module forgets.

use support::{Client, Reply, Waiter, Way, eventually, field, info_lock, remaining_ms};

use super::bystanders::Scene;

const INTERNAL: &str = "ERR internal error of the module, see the server's log";

#[track_caller]
fn arm(client: &mut Client, entry: &str) {
    assert_eq!(client.call(&["FAILPOINT", entry, "0"]), 1);
}

fn scene() -> Scene {
    Scene::begin("")
}

#[test]
fn panic_in_command_is_an_error() {
    let mut scene = scene();
    for (entry, line) in [("lock.extend", "LOCK.EXTEND door alice PX 1000"), ("lock.info", "LOCK.INFO door")] {
        arm(&mut scene.admin, entry);
        assert_eq!(scene.alice.run(line), Reply::Error(INTERNAL.to_owned()));
        assert!(!scene.alice.run(line).is_error(), "{line}");
    }
    assert_eq!(scene.alice.run("LOCK.RELEASE door alice"), 0);
    scene.goes_on();
}

#[test]
fn panic_in_transaction_or_script_is_an_error() {
    let mut scene = scene();
    arm(&mut scene.admin, "lock.extend");
    scene.alice.ok("MULTI");
    for line in ["LOCK.EXTEND door alice PX 1000", "PING"] {
        assert_eq!(scene.alice.run(line), "QUEUED");
    }
    let replies = scene.alice.run("EXEC");
    assert_eq!(replies.items()[0], Reply::Error(INTERNAL.to_owned()));
    assert_eq!(replies.items()[1], "PONG");
    arm(&mut scene.admin, "lock.extend");
    let script = "return redis.pcall('LOCK.EXTEND', KEYS[1], 'alice', 'PX', '1000')['err']";
    let reply = scene.alice.call(&["EVAL", script, "1", "door"]);
    assert!(reply.string().contains("internal error of the module"), "{reply:?}");
    scene.goes_on();
}

#[test]
fn panic_ends_waits_and_queue_entries() {
    let mut scene = scene();
    let (mut hal, mut ida) = (
        Waiter::start(&scene.server, "LOCK.ACQUIRE room hal PX 60000 BLOCK 0"),
        Way::Notified.start(&scene.server, "LOCK.ACQUIRE room ida PX 60000 BLOCK 0"),
    );
    arm(&mut scene.admin, "lock.info");
    assert!(scene.alice.run("LOCK.INFO door").is_error());
    assert_eq!(hal.reply(), Reply::Error(INTERNAL.to_owned()));
    assert_eq!(ida.reply().code(), support::LOST);
    assert_eq!(field(&mut scene.admin, "room", "waiters"), 0);
    assert_eq!(info_lock(&mut scene.admin, "waiters"), 0);
    assert_eq!(field(&mut scene.admin, "room", "owner"), "alice", "the lock itself is not concerned");
    hal.has_heard_nothing_else();
    scene.goes_on();
}

#[test]
fn panic_ends_sessions_and_keeps_leases() {
    let mut scene = scene();
    assert_eq!(info_lock(&mut scene.admin, "sessions"), 1);
    arm(&mut scene.admin, "lock.info");
    assert!(scene.alice.run("LOCK.INFO door").is_error());
    let admin = &mut scene.admin;
    eventually("the session is over", || info_lock(admin, "sessions") == 0);
    assert!(remaining_ms(admin, "yard") <= 3000);
    assert_eq!(field(admin, "yard", "owner"), "dave");
    eventually("the lease has ended", || field(admin, "yard", "state") == "free");
    assert_eq!(scene.dave.run("LOCK.EXTEND yard dave PX 1000").code(), "NOTHELD");
}

#[test]
fn panic_in_setting_keeps_old_value() {
    let mut scene = scene();
    let before = scene.admin.run("CONFIG GET lock.max-waiters");
    arm(&mut scene.admin, "setting");
    let reply = scene.admin.run("CONFIG SET lock.max-waiters 7");
    assert!(reply.error().contains("internal error of the module"), "{reply:?}");
    assert_eq!(scene.admin.run("CONFIG GET lock.max-waiters"), before);
    scene.goes_on();
}

#[test]
fn panic_restarts_recovery_period() {
    let mut scene = scene();
    scene.admin.ok("CONFIG SET lock.recovery-ms 1");
    let admin = &mut scene.admin;
    eventually("the period is over", || info_lock(admin, "recovery_ms") == 0);
    admin.ok("CONFIG SET lock.recovery-ms 60000");
    arm(admin, "role change");
    admin.ok("REPLICAOF 127.0.0.1 1");
    admin.ok("REPLICAOF NO ONE");
    arm(admin, "lock.info");
    assert!(admin.run("LOCK.INFO door").is_error());
    eventually("a period has begun", || info_lock(admin, "recovery_ms") > 50_000);
    assert_eq!(admin.run("LOCK.ACQUIRE shed frank PX 1000"), Reply::Nil);
    admin.ok("CONFIG SET lock.recovery-ms 0");
    scene.goes_on();
}
