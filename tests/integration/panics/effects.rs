//! The replies of clients after a panic, and what the module forgets.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use support::{LOST, Reply, Setup, Waiter, Way, eventually, field, happens_within, info_lock, remaining_ms};

use super::scene::Scene;

const INTERNAL: &str = "ERR internal error of the module, see the server's log";

#[test]
fn panic_in_command_is_an_error() {
    let mut scene = Scene::begin();
    for (entry, line) in [("lock.extend", "LOCK.EXTEND door alice PX 1000"), ("lock.info", "LOCK.INFO door")] {
        scene.arm(entry, 0);
        assert_eq!(scene.alice.run(line), Reply::Error(INTERNAL.to_owned()));
        assert!(!scene.alice.run(line).is_error(), "{line}");
    }
    scene.arm("lock.info", 0);
    scene.alice.send_together(&["MULTI", "LOCK.INFO door", "PING", "EXEC"]);
    let replies = [(); 4].map(|()| scene.alice.receive());
    assert_eq!(replies[3], Reply::list([Reply::Error(INTERNAL.to_owned()), Reply::Status("PONG".to_owned())]));
    scene.arm("lock.extend", 0);
    let script = "return redis.pcall('LOCK.EXTEND', KEYS[1], 'alice', 'PX', '1000')['err']";
    let reply = scene.alice.call(&["EVAL", script, "1", "door"]);
    assert!(reply.string().contains("internal error of the module"), "{reply:?}");
    scene.goes_on();
}

#[test]
fn panic_ends_waits_and_logs_them_once() {
    let mut scene = Scene::begin();
    scene.admin.ok("CONFIG SET lock.slowlog-ms 0");
    let mut hal = Waiter::start(&scene.server, "LOCK.ACQUIRE room hal PX 60000 BLOCK 0");
    let mut ida = Way::Notified.start(&scene.server, "LOCK.ACQUIRE room ida PX 60000 BLOCK 0");
    scene.arm("lock.info", 0);
    assert!(scene.alice.run("LOCK.INFO door").is_error());
    assert_eq!(hal.reply(), Reply::Error(INTERNAL.to_owned()));
    assert_eq!(ida.reply().code(), LOST);
    assert_eq!(field(&mut scene.admin, "room", "waiters"), 0);
    assert_eq!(info_lock(&mut scene.admin, "waiters"), 0);
    assert_eq!(field(&mut scene.admin, "room", "owner"), "alice", "the lock itself is not concerned");
    hal.has_heard_nothing_else();
    drop((hal, ida));
    // Three clients wait for the door.
    eventually("the waits are logged", || scene.admin.run("LOCK.SLOWLOG LEN") == 5);
    scene.goes_on();
}

#[test]
fn panic_ends_sessions_and_keeps_leases() {
    let mut scene = Scene::begin();
    assert_eq!(info_lock(&mut scene.admin, "sessions"), 1);
    scene.arm("lock.info", 0);
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
    let mut scene = Scene::begin();
    let before = scene.admin.run("CONFIG GET lock.max-waiters");
    scene.arm("setting", 0);
    let reply = scene.admin.run("CONFIG SET lock.max-waiters 7");
    assert!(reply.error().contains("internal error of the module"), "{reply:?}");
    assert_eq!(scene.admin.run("CONFIG GET lock.max-waiters"), before);
}

#[test]
fn panic_restarts_recovery_period() {
    let mut scene = Scene::begin();
    scene.admin.ok("CONFIG SET lock.recovery-ms 1");
    eventually("the period is over", || info_lock(&mut scene.admin, "recovery_ms") == 0);
    scene.admin.ok("CONFIG SET lock.recovery-ms 60000");
    scene.arm("role change", 0);
    scene.admin.ok("REPLICAOF 127.0.0.1 1");
    scene.admin.ok("REPLICAOF NO ONE");
    scene.arm("lock.info", 0);
    assert!(scene.admin.run("LOCK.INFO door").is_error());
    eventually("a period has begun", || info_lock(&mut scene.admin, "recovery_ms") > 50_000);
    assert_eq!(scene.admin.run("LOCK.ACQUIRE shed frank PX 1000"), Reply::Nil);
    scene.admin.ok("CONFIG SET lock.recovery-ms 0");
    scene.goes_on();
}

/// A failpoint is where the timer begins. It stays armed if the timer does not run.
fn timer_rests(scene: &mut Scene) -> bool {
    scene.arm("timer", 0);
    // Several times as long as the ticks by which the module watches the event loop while there is something to do.
    let has_run = happens_within(Duration::from_millis(500), || scene.admin.run("FAILPOINT") == 0);
    scene.arm("nothing", 0);
    !has_run
}

#[test]
fn timer_stops_after_interrupted_grant() {
    let mut scene = Scene::begin();
    scene.admin.ok("CONFIG SET lock.rejoin-grace-ms 0");
    scene.arm("free", 0);
    assert_eq!(scene.alice.run("LOCK.RELEASE door alice"), 0);
    scene.leave();
    // One more run may be due after all clients have left.
    let rests = (0..4).filter(|_| timer_rests(&mut scene)).count();
    assert!(rests >= 3, "the timer rested {rests} times of 4");
}

#[test]
fn panic_that_is_not_allowed_fails_test() {
    let server = Setup::new().with_failpoints().start();
    let mut client = server.client();
    assert_eq!(client.run("FAILPOINT lock.info 0"), 1);
    assert!(client.run("LOCK.INFO door").is_error());
    let panic = catch_unwind(AssertUnwindSafe(|| drop(server))).expect_err("the server's end fails the test");
    let complaint = panic.downcast_ref::<String>().expect("a message");
    assert!(complaint.starts_with("the log says"), "{complaint}");
}
