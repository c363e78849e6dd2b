//! The end of a share's lease makes room at once, and a share whose time has passed counts no more.

use support::replicas::{self, in_step, replica_of};
use support::{Aof, Reply, Server, Setup, Waiter, Way, eventually, field, info_lock, now_ms};

use super::{holders_of, shares_of};

#[test]
fn a_share_that_ends_makes_room_for_the_next_permit() {
    for way in Way::ALL {
        let server = Server::start();
        let mut control = server.client();
        assert_eq!(control.run("LOCK.SHARE pool a PX 60000 LIMIT 2"), 1);
        assert_eq!(control.run("LOCK.SHARE pool b PX 600 LIMIT 2"), 1);
        let end: i64 = shares_of(&mut control, "pool")[0].1.parse().expect("the end of b");
        let mut c = way.start(&server, "LOCK.SHARE pool c PX 60000 LIMIT 2 BLOCK 0");
        assert_eq!(c.reply(), 1, "{way:?}");
        assert!(now_ms() >= end, "not before the end");
        assert_eq!(holders_of(&mut control, "pool"), ["a", "c"]);
        assert_eq!(info_lock(&mut control, "handovers_expiry"), 1);
    }
}

#[test]
fn who_wants_the_lock_alone_waits_for_the_last_share() {
    let server = Server::start();
    let mut control = server.client();
    for (token, ms) in [("a", 100), ("b", 400), ("c", 250)] {
        assert_eq!(control.run(&format!("LOCK.SHARE door {token} PX {ms}")), 1);
    }
    let end = control.expires_at("door");
    let mut writer = Waiter::start(&server, "LOCK.ACQUIRE door w BLOCK 0");
    assert_eq!(writer.reply(), 1);
    assert!(now_ms() >= end); // Redis 8 may remove a key in its last millisecond.
    assert_eq!(control.run("GET door"), "w");
}

#[test]
fn a_last_share_that_is_extended_is_waited_for_and_one_that_is_cut_short_is_not() {
    let server = Server::start();
    let mut control = server.client();
    assert_eq!(control.run("LOCK.SHARE door a PX 300"), 1);
    assert_eq!(control.run("LOCK.SHARE door b PX 60000"), 1);
    let mut writer = Waiter::start(&server, "LOCK.ACQUIRE door w BLOCK 0");
    assert_eq!(control.run("LOCK.EXTEND door a PX 600"), 600);
    assert_eq!(control.run("LOCK.EXTEND door b PX 200"), 200);
    let end = control.expires_at("door");
    assert_eq!(writer.reply(), 1);
    assert!(now_ms() >= end); // Redis 8 may remove a key in its last millisecond.
}

#[test]
fn what_has_passed_does_not_count_and_goes_with_the_next_write() {
    let server = Server::start();
    let mut control = server.client();
    assert_eq!(control.run("LOCK.SHARE door a PX 60000"), 1);
    for number in 0..500 {
        assert_eq!(control.run(&format!("ZADD door {} old{number}", now_ms() - 10_000 + number)), 1);
    }
    assert_eq!(field(&mut control, "door", "holds"), 1);
    assert_eq!(control.run("LOCK.RELEASE door old0").code(), "NOTOWNER");
    assert_eq!(control.run("ZCARD door"), 501, "nothing is written by a refusal");
    assert_eq!(control.run("LOCK.SHARE door b LIMIT 2 PX 60000"), 1);
    assert_eq!(holders_of(&mut control, "door"), ["a", "b"]);
    assert_eq!(control.run("LOCK.SHARE door c LIMIT 2 PX 60000"), Reply::Nil);
}

#[test]
fn what_has_passed_does_not_count_on_a_replica_and_after_a_reload() {
    let master = Setup::new().config(Aof::CONFIG).start();
    let mut control = master.client();
    assert_eq!(control.run("LOCK.SHARE door a PX 600000"), 1);
    assert_eq!(control.run("LOCK.SHARE door b PX 150"), 1);
    let replica = replica_of(&master);
    in_step(&replica);
    eventually("b has ended", || field(&mut control, "door", "holds") == 1);
    let mut reader = replica.client();
    eventually("on the replica, too", || field(&mut reader, "door", "holds") == 1);
    assert_eq!(reader.run("ZCARD door"), 2, "it is still there");
    control.ok("DEBUG RELOAD");
    assert_eq!(field(&mut control, "door", "holds"), 1);
    control.ok("DEBUG LOADAOF");
    assert_eq!(field(&mut control, "door", "holds"), 1);
    assert_eq!(control.run("LOCK.SHARE door c LIMIT 2 PX 60000"), 1);
    replicas::in_time("the replica follows", || holders_of(&mut reader, "door") == ["a", "c"]);
}

#[test]
fn very_many_that_have_passed_are_worked_off() {
    const PASSED: usize = 5000;
    let server = Server::start();
    let mut control = server.client();
    assert_eq!(control.run("LOCK.SHARE door a PX 600000"), 1);
    let old: Vec<String> =
        (0..PASSED).flat_map(|number| [(now_ms() - 90_000).to_string(), format!("old{number}")]).collect();
    let words: Vec<&str> = ["ZADD", "door"].into_iter().chain(old.iter().map(String::as_str)).collect();
    assert_eq!(control.call(&words), 5000);
    eventually("each request removes a thousand", || control.run("LOCK.SHARE door b LIMIT 2 PX 600000") == 1);
    assert_eq!(control.run("LOCK.SHARE door c LIMIT 2 PX 600000"), Reply::Nil);
    let _waiter = Waiter::start(&server, "LOCK.SHARE door c LIMIT 2 PX 600000 BLOCK 0");
    eventually("all are removed while somebody waits", || holders_of(&mut control, "door") == ["a", "b"]);
}
