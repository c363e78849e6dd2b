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
fn two_wait(server: &Server, alice: &mut Client, lease_ms: i64) -> (RawConnection, i64, Waiter) {
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    let mut first = RawConnection::open(server.port());
    let id = first.run("CLIENT ID").trim_start_matches(':').parse().expect("a number");
    first.send(&format!("LOCK.ACQUIRE door first PX {lease_ms} BLOCK 0"));
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
            let (first, id, mut carol) = two_wait(&server, &mut alice, LEASE_MS);
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
        let (first, id, mut carol) = two_wait(&server, &mut alice, LONG_MS);
        alice.ok("CONFIG SET lock.rejoin-grace-ms 0");
        let first = grant_and_end(&server, &mut alice, first, id, end);
        assert_eq!(carol.reply(), 1);
        assert_eq!(info_lock(&mut alice, "handovers_expiry"), 0, "{end:?}: not by the end of the lease");
        drop(first);
    }
}
