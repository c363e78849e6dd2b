//! A sandbox or a library may keep the module's timer from waking the server. Then the server's cron finds the leases and waits that
//! have ended.

use std::time::{Duration, Instant};

use support::{Client, Library, Reply, Server, Setup, Waiter, patient};

/// How long the lease and the wait last without the timer.
const LENGTH: Duration = Duration::from_secs(1);

/// The server's cron runs ten times a second.
const SOON: Duration = Duration::from_millis(500);

/// Attempts at a fair measurement on a busy machine.
const ATTEMPTS: usize = 4;

/// Returns how late a lease and a wait end while no timer wakes the server, or `None` if the machine was too busy.
fn late_without_timer(server: &Server, alice: &mut Client) -> Option<[Duration; 2]> {
    let length = patient(LENGTH);
    let ms = length.as_millis();
    assert_eq!(alice.run("LOCK.ACQUIRE gate alice PX 60000"), 1);
    assert_eq!(alice.run(&format!("LOCK.ACQUIRE door alice PX {ms}")), 1);
    let held = Instant::now();
    let mut at_door = Waiter::send(server, "LOCK.ACQUIRE door bob PX 60000 BLOCK 0");
    let mut at_gate = Waiter::start(server, &format!("LOCK.ACQUIRE gate bob PX 60000 BLOCK {ms}"));
    let waits = Instant::now();
    let is_blocked = at_door.is_blocked();
    assert_eq!(alice.run("SILENCER.SILENCE"), 1);
    let is_fair = is_blocked && held.elapsed() < length;
    let late = |waiter: &mut Waiter, since: Instant, expected| {
        assert_eq!(waiter.reply(), expected);
        since.elapsed().saturating_sub(length)
    };
    let late = [late(&mut at_door, held, Reply::Int(1)), late(&mut at_gate, waits, Reply::Nil)];
    is_fair.then_some(late)
}

#[test]
fn lost_timer_delays_leases_and_waits_until_cron() {
    let silencer = Library::compile("tests/modules/silencer.c");
    let server = Setup::new().config(&format!("loadmodule {}", silencer.path().display())).start();
    let mut alice = server.client();
    // Only the module ends leases.
    alice.ok("DEBUG SET-ACTIVE-EXPIRE 0");
    let mut late = Vec::new();
    for _ in 0..ATTEMPTS {
        late.push(late_without_timer(&server, &mut alice));
        if late.last().is_some_and(|ends| ends.is_some_and(|ends| ends.iter().all(|late| *late < patient(SOON)))) {
            return;
        }
        alice.ok("FLUSHALL");
    }
    panic!("the lease and the wait end late: {late:?}");
}
