//! What follows a grant in the same round of the server's event loop: the client is killed, unblocked, or hangs up. Who
//! may have been told 1 keeps the lock until its lease ends; only where the answer was certainly never made does the next
//! in line have it at once.

use support::process::Process;
use support::raw::RawConnection;
use support::{Client, Server, Waiter, eventually, field, info_lock, now_ms, waiters_of};

/// The lease of who comes first. Whether the next comes before its end is what tells.
const LEASE_MS: i64 = 400;

/// A lease that is over long after what is not handed over at its end: where the machine stands still for a second, the
/// module waits for another one.
const LONG_MS: i64 = 10_000;

/// What follows the release, as far as the first client is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Kill,
    UnblockTimeout,
    UnblockError,
    Close,
}

/// Alice holds the door; a bare connection waits for it with a lease, and carol behind it. Returns the number of the
/// first as well.
fn two_wait(server: &Server, alice: &mut Client, lease_ms: i64, behind: &[&str]) -> (RawConnection, i64, Waiter) {
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    let mut first = RawConnection::open(server.port());
    let id = first.run("CLIENT ID").trim_start_matches(':').parse().expect("a number");
    let mut bytes = support::raw::encode(&format!("LOCK.ACQUIRE door first PX {lease_ms} BLOCK 0"));
    behind.iter().for_each(|line| bytes.extend(support::raw::encode(line)));
    first.send_bytes(&bytes);
    eventually("the first waits", || waiters_of(alice, "door") == 1);
    let carol = Waiter::start(server, "LOCK.ACQUIRE door carol BLOCK 0");
    (first, id, carol)
}

/// Grants the lock to the first and ends it in one round. Returns when that was, in Unix milliseconds, at the latest.
#[track_caller]
fn grant_and_end(
    server: &Server,
    alice: &mut Client,
    first: RawConnection,
    id: i64,
    end: End,
) -> Option<RawConnection> {
    let line = match end {
        End::Kill => format!("CLIENT KILL ID {id}"),
        End::UnblockTimeout => format!("CLIENT UNBLOCK {id} TIMEOUT"),
        End::UnblockError => format!("CLIENT UNBLOCK {id} ERROR"),
        End::Close => {
            // While the server stands still both arrive: it finds the release and the close in one round.
            let process = Process::of(server);
            process.stop();
            alice.send(&["LOCK.RELEASE", "door", "alice"]);
            drop(first);
            process.resume();
            assert_eq!(alice.receive(), 0);
            return None;
        }
    };
    alice.send_together(&["LOCK.RELEASE door alice", &line]);
    assert_eq!(alice.receive(), 0);
    assert!(!alice.receive().is_error(), "{line}");
    Some(first)
}

/// What the server has sent to a connection so far, line by line.
fn heard(mut connection: RawConnection, end: End) -> Vec<String> {
    if end != End::Kill {
        connection.send("PING");
    }
    std::iter::from_fn(|| connection.line()).take_while(|line| line != "+PONG").collect()
}

/// Whoever was told 1 holds the lock until its lease ends, and the next is told no sooner.
#[test]
fn nobody_is_told_1_while_another_one_may_have_been() {
    for end in [End::Kill, End::UnblockTimeout, End::UnblockError, End::Close] {
        let server = Server::start();
        let mut alice = server.client();
        for round in 0..5 {
            let (first, id, mut carol) = two_wait(&server, &mut alice, LEASE_MS, &[]);
            let before = now_ms();
            let first = grant_and_end(&server, &mut alice, first, id, end);
            let told = first.map(|first| heard(first, end)).unwrap_or_default();
            let first_has_it = told.iter().any(|line| line == ":1");
            if first_has_it {
                assert_eq!(field(&mut alice, "door", "owner"), "first", "round {round} of {end:?}");
            }
            assert_eq!(carol.reply(), 1, "round {round} of {end:?}");
            if first_has_it {
                assert!(now_ms() - before >= LEASE_MS, "robbed in round {round} of {end:?}");
            }
            assert_eq!(alice.run("LOCK.RELEASE door carol"), 0);
        }
    }
}

#[test]
fn an_answer_that_was_certainly_never_made_does_not_hold_up_the_next() {
    for end in [End::Kill, End::UnblockError, End::Close] {
        let server = Server::start();
        if server.flavour().answers_at_once() {
            return; // There the answer is in the client's buffer, and may be sent.
        }
        if end == End::Close && server.has_io_threads() {
            continue; // The close may be seen after the answer was made.
        }
        let mut alice = server.client();
        let (first, id, mut carol) = two_wait(&server, &mut alice, LONG_MS, &[]);
        alice.ok("CONFIG SET lock.rejoin-grace-ms 0");
        let first = grant_and_end(&server, &mut alice, first, id, end);
        assert_eq!(carol.reply(), 1);
        assert_eq!(info_lock(&mut alice, "handovers_expiry"), 0, "{end:?}: not by the end of the lease");
        drop(first);
    }
}

#[test]
fn client_unblock_behind_a_grant_adds_no_second_answer() {
    let server = Server::start();
    let mut alice = server.client();
    for line in ["LOCK.RELEASE door alice", "LOCK.RELEASE door first"] {
        let (first, id, carol) = two_wait(&server, &mut alice, LEASE_MS, &[]);
        // The first is granted, or its wait is given up; either way it has its answer.
        alice.send_together(&[line, &format!("CLIENT UNBLOCK {id} TIMEOUT")]);
        assert!(!alice.receive().is_error() && !alice.receive().is_error());
        let answer = if line.ends_with("alice") { ":1" } else { "$-1" };
        assert_eq!(heard(first, End::UnblockTimeout), [answer], "{line}");
        drop(carol);
        eventually("nobody waits", || waiters_of(&mut alice, "door") == 0);
        alice.run("DEL door");
    }
}

#[test]
fn a_client_that_sent_quit_behind_its_wait_keeps_what_it_was_granted() {
    let server = Server::start();
    let mut alice = server.client();
    let (mut first, _, mut carol) = two_wait(&server, &mut alice, LEASE_MS, &["QUIT"]);
    let before = now_ms();
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    assert_eq!(first.line().as_deref(), Some(":1"));
    assert_eq!(first.line().as_deref(), Some("+OK"));
    assert_eq!(first.line(), None);
    assert_eq!(alice.run("GET door"), "first");
    assert_eq!(carol.reply(), 1);
    assert!(now_ms() - before >= LEASE_MS, "it had been told 1");
}

/// Another connection asks with the token of the first one between the grant and its end.
#[test]
fn who_was_told_through_another_connection_is_not_robbed() {
    for (request, answer) in [
        ("LOCK.ACQUIRE door first", 1),
        ("LOCK.EXTEND door first PX 400", LEASE_MS),
        ("LOCK.FENCE door first fence", 0),
    ] {
        for end in ["CLIENT KILL ID", "CLIENT UNBLOCK"] {
            let server = Server::start();
            let mut alice = server.client();
            let (first, id, mut carol) = two_wait(&server, &mut alice, LEASE_MS, &[]);
            let end = if end == "CLIENT UNBLOCK" { format!("{end} {id} ERROR") } else { format!("{end} {id}") };
            let before = now_ms();
            alice.send_together(&["LOCK.RELEASE door alice", request, &end]);
            assert_eq!(alice.receive(), 0);
            let told = alice.receive().int();
            assert!(told == answer || answer == 0 && told > 0, "{request}: {told}");
            assert!(!alice.receive().is_error());
            assert_eq!(carol.reply(), 1, "{request}, {end}");
            let held_ms = now_ms() - before;
            assert!(held_ms >= LEASE_MS, "robbed after {request} and {end}: {held_ms} ms");
            drop(first);
        }
    }
}

#[test]
fn a_session_that_ends_in_the_round_of_its_grant_frees_the_lock_at_once() {
    let server = Server::start();
    let mut alice = server.client();
    for _ in 0..5 {
        assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
        let first = Waiter::start(&server, "LOCK.ACQUIRE door first PX 600000 BLOCK 0 SESSION");
        let mut carol = Waiter::start(&server, "LOCK.ACQUIRE door carol BLOCK 0");
        alice.send_together(&["LOCK.RELEASE door alice", &format!("CLIENT KILL ID {}", first.id())]);
        assert_eq!([alice.receive().int(), alice.receive().int()], [0, 1]);
        assert_eq!(carol.reply(), 1);
        assert_eq!(alice.run("LOCK.RELEASE door carol"), 0);
    }
}
