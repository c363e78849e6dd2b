//! Rights that change, and users that go, while their clients wait or hold locks.

use support::sessions::is_renewed;
use support::{Reply, Server, Waiter, eventually, waiters_of};

use super::{USE, are_refused, user};

/// A server where alice holds the door.
#[track_caller]
fn held() -> (Server, support::Client) {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 600000"), 1);
    (server, alice)
}

#[test]
fn a_waiter_that_has_lost_its_rights_gets_the_lock_all_the_same_and_cannot_use_it() {
    for change in ["resetkeys", "-@all", "off"] {
        let (server, mut alice) = held();
        let worker = user(&server, "worker", &format!("~door {USE} +client|id"));
        let mut waiter = Waiter::start_on(&server, worker, &support::bytes_of("LOCK.ACQUIRE door w PX 600 BLOCK 0"));
        alice.ok(&format!("ACL SETUSER worker {change}"));
        assert_eq!(waiters_of(&mut alice, "door"), 1, "{change}");
        assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
        assert_eq!(waiter.reply(), 1, "{change}");
        let mut worker = waiter.into_ready();
        if change == "off" {
            // It keeps the connections that it has, and all rights there.
            assert_eq!(worker.run("LOCK.RELEASE door w"), 0);
        } else {
            are_refused(&mut worker, &["LOCK.RELEASE door w", "LOCK.EXTEND door w PX 600"]);
            eventually("the lease ends", || alice.run("EXISTS door") == 0);
        }
    }
}

#[test]
fn a_user_that_is_deleted_waits_no_longer_and_its_sessions_end() {
    let (server, mut alice) = held();
    let mut worker = user(&server, "worker", &format!("~* {USE}"));
    assert_eq!(worker.run("LOCK.ACQUIRE cellar w PX 600000 SESSION"), 1);
    assert_eq!(worker.run("LOCK.ACQUIRE attic w PX 600000"), 1);
    let waiting = user(&server, "worker", &format!("~* {USE}"));
    let mut waiter = Waiter::send_on(&server, waiting, &support::bytes_of("LOCK.ACQUIRE door w PX 600000 BLOCK 0"));
    eventually("it waits", || waiters_of(&mut alice, "door") == 1);
    assert_eq!(alice.run("ACL DELUSER worker"), 1);
    assert_eq!(waiter.reply(), Reply::Closed);
    eventually("nobody waits, and the session's lock is free", || {
        waiters_of(&mut alice, "door") == 0 && alice.run("EXISTS cellar") == 0
    });
    assert_eq!(worker.run("PING"), Reply::Closed);
    assert_eq!(alice.run("EXISTS attic"), 1, "a lock without a session stays until its lease ends");
}

#[test]
fn a_connection_that_becomes_another_user_keeps_its_sessions() {
    let (server, mut alice) = held();
    let mut worker = user(&server, "worker", &format!("~* {USE}"));
    user(&server, "other", "");
    assert_eq!(worker.run("LOCK.ACQUIRE cellar w PX 600 SESSION"), 1);
    worker.ok("AUTH other any");
    is_renewed(&mut alice, "cellar");
    are_refused(&mut worker, &["LOCK.RELEASE cellar w"]);
    drop(worker);
    eventually("its session ends with the connection", || alice.run("EXISTS cellar") == 0);
}

#[test]
fn who_may_kill_or_unblock_clients_ends_their_sessions_and_waits_without_a_token() {
    let (server, mut alice) = held();
    let mut waiter = Waiter::start(&server, "LOCK.ACQUIRE door w PX 600000 BLOCK 0");
    let mut worker = server.client();
    assert_eq!(worker.run("LOCK.ACQUIRE cellar w PX 600000 SESSION"), 1);
    let mut mallory = user(&server, "mallory", "+client|kill +client|unblock");
    assert_eq!(mallory.run(&format!("CLIENT UNBLOCK {}", waiter.id())), 1);
    assert_eq!(waiter.reply(), Reply::Nil);
    assert_eq!(mallory.run(&format!("CLIENT KILL ID {}", worker.id())), 1);
    eventually("the session's lock is free", || alice.run("EXISTS cellar") == 0);
    let mut guest = user(&server, "guest", "~* +@all -@dangerous");
    are_refused(&mut guest, &["CLIENT KILL ID 1", "CLIENT UNBLOCK 1"]);
}
