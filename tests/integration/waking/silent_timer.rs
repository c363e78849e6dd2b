//! A timer descriptor that does not wake the server at its time, as where a sandbox or a library stands between the server and
//! the machine's clock: the server's cron finds what is overdue.

use std::time::{Duration, Instant};

use support::{Client, Library, Reply, Server, Setup, Waiter, patient};

/// How long the lease and the wait last.
const LENGTH: Duration = Duration::from_secs(1);
/// How soon both are over then: the cron runs ten times a second.
const SOON: Duration = Duration::from_millis(500);
/// Attempts at a fair measurement on a busy machine.
const ATTEMPTS: usize = 4;

/// Has a lease and a wait end while the kernel does not wake the server. Returns how late each came to its end; None where the
/// machine was too busy to begin in time.
fn ends_in_silence(server: &Server, alice: &mut Client) -> Option<[Duration; 2]> {
    let length = patient(LENGTH);
    let ms = length.as_millis();
    assert_eq!(alice.run("LOCK.ACQUIRE gate alice PX 60000"), 1);
    assert_eq!(alice.run(&format!("LOCK.ACQUIRE door alice PX {ms}")), 1);
    let held = Instant::now();
    let mut at_door = Waiter::send(server, "LOCK.ACQUIRE door bob PX 60000 BLOCK 0");
    let mut at_gate = Waiter::start(server, &format!("LOCK.ACQUIRE gate bob PX 60000 BLOCK {ms}"));
    let waits = Instant::now();
    let is_in_line = at_door.is_blocked();
    assert_eq!(alice.run("SILENCER.SILENCE"), 1);
    let is_fair = is_in_line && held.elapsed() < length;
    let late = |waiter: &mut Waiter, since: Instant, expected| {
        assert_eq!(waiter.reply(), expected);
        since.elapsed().saturating_sub(length)
    };
    let late = [late(&mut at_door, held, Reply::Int(1)), late(&mut at_gate, waits, Reply::Nil)];
    is_fair.then_some(late)
}

#[test]
fn waits_and_leases_come_to_their_ends() {
    let silencer = Library::compile("tests/modules/silencer.c");
    let server = Setup::new().config(&format!("loadmodule {}", silencer.path().display())).start();
    let mut alice = server.client();
    // Only the module ends leases.
    alice.ok("DEBUG SET-ACTIVE-EXPIRE 0");
    let mut late = Vec::new();
    for _ in 0..ATTEMPTS {
        late.push(ends_in_silence(&server, &mut alice));
        if late.last().is_some_and(|ends| ends.is_some_and(|ends| ends.iter().all(|late| *late < patient(SOON)))) {
            return;
        }
        alice.ok("FLUSHALL");
    }
    panic!("so late came the ends of the lease and of the wait: {late:?}");
}
