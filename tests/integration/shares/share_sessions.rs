//! Shares that belong to connections: each is renewed while its own is open, and released when it closes.

use support::sessions::is_connected;
use support::{Client, Reply, Server, Setup, Waiter, Way, eventually, field, info_lock, now_ms};

use super::{holders_of, shares_of};

const LEASE_MS: i64 = 150;

#[track_caller]
fn share(server: &Server, token: &str, lease_ms: i64) -> Client {
    let mut client = server.client();
    assert_eq!(client.run(&format!("LOCK.SHARE pool {token} PX {lease_ms} SESSION")), 1);
    client
}

fn end_of(control: &mut Client, token: &str) -> Option<i64> {
    shares_of(control, "pool").iter().find(|(other, _)| other == token).map(|(_, end)| end.parse().expect("an end"))
}

#[test]
fn each_share_is_renewed_and_released_with_its_own_connection() {
    let server = Server::start();
    let mut control = server.client();
    let [a, b] = ["a", "b"].map(|token| share(&server, token, LEASE_MS));
    assert_eq!(control.run("LOCK.SHARE pool c PX 600000"), 1);
    assert_eq!(info_lock(&mut control, "sessions"), 2);
    for token in ["a", "b"] {
        let end = end_of(&mut control, token).expect("a share");
        eventually("it is renewed", || end_of(&mut control, token).is_some_and(|now| now > end + LEASE_MS));
    }
    drop(a);
    eventually("a is gone", || holders_of(&mut control, "pool") == ["b", "c"]);
    assert_eq!(info_lock(&mut control, "sessions"), 1);
    drop(b);
    eventually("b is gone", || holders_of(&mut control, "pool") == ["c"]);
    assert_eq!(info_lock(&mut control, "sessions"), 0);
}

#[test]
fn the_end_of_a_connection_serves_the_next_and_those_who_wait_begin_sessions_of_their_own() {
    for way in [Way::Blocked, Way::OnOneConnection] {
        let server = Server::start();
        let mut control = server.client();
        let a = share(&server, "a", 600_000);
        let mut b = way.start(&server, "LOCK.SHARE pool b PX 600000 LIMIT 1 BLOCK 0 SESSION");
        let mut c = way.start(&server, "LOCK.SHARE pool c PX 600000 LIMIT 1 BLOCK 0 SESSION");
        drop(a);
        assert_eq!(b.reply(), 1, "{way:?}");
        assert_eq!(holders_of(&mut control, "pool"), ["b"]);
        assert!(c.waits());
        b.hang_up(&mut control);
        assert_eq!(c.reply(), 1, "{way:?}");
        assert_eq!(info_lock(&mut control, "sessions"), 1);
        assert_eq!(control.run("LOCK.RELEASE pool c"), 0);
        assert_eq!(info_lock(&mut control, "sessions"), 0);
    }
}

#[test]
fn a_stall_longer_than_the_leases_loses_no_share_to_those_who_wait() {
    for active_expiry in [0, 1] {
        let server = Server::start();
        let mut control = server.client();
        control.ok(&format!("DEBUG SET-ACTIVE-EXPIRE {active_expiry}"));
        let holders: Vec<Client> = (0..20).map(|number| share(&server, &format!("s{number:02}"), LEASE_MS)).collect();
        let writer = Waiter::start(&server, "LOCK.ACQUIRE pool w BLOCK 0");
        let before = holders_of(&mut control, "pool");
        control.ok("DEBUG SLEEP 0.5");
        eventually("all have it back", || holders_of(&mut control, "pool") == before);
        let end = control.expires_at("pool");
        eventually("and are renewed again", || control.expires_at("pool") > end + LEASE_MS);
        assert_eq!(holders_of(&mut control, "pool"), before);
        assert!(writer.is_blocked());
        assert_eq!(info_lock(&mut control, "sessions"), 20);
        drop(holders);
    }
}

#[test]
fn a_stall_longer_than_one_lease_among_longer_ones() {
    let server = Server::start();
    let mut control = server.client();
    let _a = share(&server, "a", LEASE_MS);
    assert_eq!(control.run("LOCK.SHARE pool b PX 600000"), 1);
    let c = Waiter::start(&server, "LOCK.SHARE pool c LIMIT 2 PX 60000 BLOCK 0");
    let end = end_of(&mut control, "a").expect("a share");
    control.send_together(&["DEBUG SLEEP 0.5", "LOCK.SHARE pool thief LIMIT 2"]);
    assert_eq!(control.receive(), "OK");
    assert_eq!(control.receive(), Reply::Nil, "the session has it back first");
    assert!(now_ms() > end);
    eventually("a has it back", || end_of(&mut control, "a").is_some_and(|now| now > end));
    assert!(c.is_blocked());
    assert_eq!(holders_of(&mut control, "pool"), ["a", "b"]);
}

#[test]
fn what_others_remove_ends_the_session() {
    for line in ["ZREM pool a", "DEL pool", "RENAME pool elsewhere", "FLUSHALL", "SET pool other"] {
        let server = Server::start();
        let mut control = server.client();
        let mut a = share(&server, "a", LEASE_MS);
        let reply = control.run(line);
        assert!(reply == 1 || reply == "OK", "{line}: {reply:?}");
        eventually("the session ends", || info_lock(&mut control, "sessions") == 0);
        assert_ne!(field(&mut control, "pool", "state"), "shared", "{line}");
        assert!(a.run("LOCK.EXTEND pool a PX 9000").is_error());
        drop(a);
    }
}

#[test]
fn a_share_that_others_remove_does_not_take_the_rest_along() {
    let server = Server::start();
    let mut control = server.client();
    let [_a, _b] = ["a", "b"].map(|token| share(&server, token, LEASE_MS));
    assert_eq!(control.run("ZREM pool a"), 1);
    eventually("one session ends", || info_lock(&mut control, "sessions") == 1);
    let end = end_of(&mut control, "b").expect("a share");
    eventually("the other is renewed", || end_of(&mut control, "b").is_some_and(|now| now > end));
    assert_eq!(holders_of(&mut control, "pool"), ["b"]);
}

#[test]
fn a_key_that_others_let_end_early_is_put_right_by_the_next_renewal() {
    let server = Server::start();
    let mut control = server.client();
    let _a = share(&server, "a", 600_000);
    assert_eq!(control.run("PEXPIRE pool 2000"), 1);
    eventually("the key lives on", || control.expires_at("pool") > now_ms() + 60_000);
    assert_eq!(holders_of(&mut control, "pool"), ["a"]);
}

#[test]
fn a_thousand_shares_of_one_lock_come_and_go() {
    const SHARES: usize = 1000;
    let server = Setup::new().config("maxclients 1200").start();
    let mut control = server.client();
    let lease_ms = 3000;
    let mut holders: Vec<Client> = (0..SHARES).map(|number| share(&server, &format!("s{number}"), lease_ms)).collect();
    assert_eq!(field(&mut control, "pool", "holds"), 1000);
    let end = control.expires_at("pool");
    eventually("they are renewed", || {
        let shares = shares_of(&mut control, "pool");
        shares.len() == SHARES && shares.iter().all(|(_, until)| until.parse::<i64>().expect("an end") > end)
    });
    // Every third closes, wherever it stands.
    let mut number = 0;
    holders.retain(|_| {
        number += 1;
        number % 3 != 0
    });
    let left = i64::try_from(holders.len()).expect("a small number");
    eventually("those that closed are gone", || field(&mut control, "pool", "holds") == left);
    assert_eq!(info_lock(&mut control, "sessions"), left);
    let ids: Vec<i64> = holders.iter().map(Client::id).collect();
    drop(holders);
    eventually("nothing is left", || control.run("EXISTS pool") == 0 && info_lock(&mut control, "sessions") == 0);
    assert!(!is_connected(&mut control, ids[0]));
}

#[test]
fn more_sessions_than_allowed_are_refused_and_a_repeat_adds_none() {
    let server = Setup::new().config("lock.max-sessions 2").start();
    let mut control = server.client();
    let mut a = share(&server, "a", 600_000);
    let _b = share(&server, "b", 600_000);
    assert_eq!(control.run("LOCK.SHARE pool c PX 60000 SESSION").code(), "SESSIONFULL");
    assert_eq!(a.run("LOCK.SHARE pool a PX 60000 SESSION"), 1);
    assert_eq!(holders_of(&mut control, "pool"), ["a", "b"]);
    assert_eq!(info_lock(&mut control, "sessions"), 2);
}
