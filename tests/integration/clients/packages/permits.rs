//! The semaphores of today keep their permits in layouts of their own: no share of LOCK.SHARE counts with them.

use support::{Reply, Server};

use super::fleet::Fleet;
use crate::documents::programs::is_installed;

/// redis-semaphore's Semaphore, of two permits.
const PERMIT: &str = "redis-semaphore-permit";

/// A permit of `door` by redis-semaphore, if that is installed.
fn npm_permit(server: &Server) -> Option<(Fleet, &'static str)> {
    is_installed("javascript").then(|| (Fleet::new(server), "semaphore:door"))
}

#[track_caller]
fn takes_a_permit(fleet: &mut Fleet) {
    fleet.tell("javascript", &format!("{PERMIT} acquire door 600 1"));
    assert!(fleet.holds(PERMIT));
}

#[test]
fn a_semaphore_of_redis_semaphore_is_no_lock() {
    let server = Server::start();
    let mut raw = server.client();
    let Some((mut fleet, key)) = npm_permit(&server) else { return };
    takes_a_permit(&mut fleet);
    assert_eq!(raw.run(&format!("TYPE {key}")), "zset");
    for take in ["LOCK.SHARE", "LOCK.ACQUIRE", "LOCK.REENTER"] {
        assert_eq!(raw.run(&format!("{take} {key} raw PX 9000")).code(), "WRONGTYPE", "{take}");
    }
    fleet.tell("javascript", &format!("{PERMIT} release"));
    assert_eq!(fleet.answer(PERMIT), "released");
}

/// Why the key must be another one: its scores are the beginnings of its permits, those of shares the ends.
#[test]
fn a_share_and_a_permit_of_redis_semaphore_in_one_key_do_not_respect_each_other() {
    let server = Server::start();
    let mut raw = server.client();
    let Some((mut fleet, key)) = npm_permit(&server) else { return };
    let share = |token| format!("LOCK.SHARE {key} {token} PX 600000 LIMIT 2");
    assert_eq!(raw.run(&share("first")), 1);
    takes_a_permit(&mut fleet);
    assert_eq!(raw.run(&format!("ZCARD {key}")), 2);
    assert_eq!(raw.run(&share("second")), 1, "a third holder of two permits");
    let members = raw.run(&format!("ZRANGE {key} 0 -1"));
    assert_eq!(members, Reply::list(["first", "second"].map(Reply::text)), "the permit of the package is gone");
}

#[test]
fn a_semaphore_of_lists_lies_in_other_keys() {
    let server = Server::start();
    let (mut raw, mut fleet) = (server.client(), Fleet::new(&server));
    fleet.tell("python", "Redis-Semaphore acquire door 600 1");
    assert!(fleet.holds("Redis-Semaphore"));
    for (key, kind) in [("door:EXISTS", "string"), ("door:AVAILABLE", "list"), ("door:GRABBED", "hash")] {
        assert_eq!(raw.run(&format!("TYPE {key}")), kind, "{key}");
        assert_eq!(raw.pttl(key), -1, "{key}: no lease");
    }
    assert_eq!(raw.run("LOCK.SHARE door:AVAILABLE raw PX 9000").code(), "WRONGTYPE");
    assert_eq!(raw.run("LOCK.SHARE door raw PX 9000 LIMIT 2"), 1);
}
