//! A second module on the layer `server`: tests/modules/gate, which has no locks and no unsafe code.

use std::time::{Duration, Instant};

use support::{Client, Reply, Server, Setup, Waiter, eventually, module_beside};

/// A server with the second module, and with redis-lock if `with_locks`.
fn server_with_gates(with_locks: bool) -> Server {
    let setup = Setup::new().config(&format!("loadmodule {}", module_beside("gate").display()));
    if with_locks { setup.start() } else { setup.without_module().start() }
}

#[track_caller]
fn info(client: &mut Client, field: &str) -> String {
    client.info("gate", field).expect("the section of the module")
}

#[test]
fn event_unblocks_clients() {
    for with_locks in [false, true] {
        let server = server_with_gates(with_locks);
        let mut client = server.client();
        assert_eq!(client.run("GATE.PASS north"), 1, "the gate is open");
        assert!(!client.run("GATE.CLOSE north").is_error());
        assert_eq!(client.run("GET north"), "closed");
        let mut waiters = [(); 2].map(|()| Waiter::start(&server, "GATE.PASS north"));
        assert_eq!(info(&mut client, "gate_waiting"), "2");
        assert_eq!(client.run("DEL south"), 0);
        assert_eq!(client.run("DEL north"), 1);
        let mut numbers = waiters.each_mut().map(|waiter| waiter.reply().int());
        numbers.sort_unstable();
        assert_eq!(numbers, [2, 3]);
        eventually("all have passed", || info(&mut client, "gate_passed") == "3");
        eventually("no client waits", || info(&mut client, "gate_waiting") == "0");
    }
}

#[test]
fn own_write_touches_watched_key() {
    let server = server_with_gates(false);
    let (mut client, mut other) = (server.client(), server.client());
    client.ok("WATCH north");
    assert!(!other.run("GATE.CLOSE north").is_error());
    client.ok("MULTI");
    assert_eq!(client.run("GET north"), "QUEUED");
    assert_eq!(client.run("EXEC"), Reply::Nil);
}

#[test]
fn timer_ends_wait_after_setting() {
    let server = server_with_gates(false);
    let mut client = server.client();
    assert!(!client.run("GATE.CLOSE north").is_error());
    client.ok("CONFIG SET gate.max-wait-ms 60000");
    let mut patient = Waiter::start(&server, "GATE.PASS north");
    client.ok("CONFIG SET gate.max-wait-ms 50");
    let begin = Instant::now();
    assert_eq!(Waiter::send(&server, "GATE.PASS north").reply(), Reply::Nil);
    // The module counts whole milliseconds.
    assert!(begin.elapsed() >= Duration::from_millis(49), "{:?}", begin.elapsed());
    assert!(patient.is_blocked());
    assert_eq!(client.run("DEL north"), 1);
    assert_eq!(patient.reply(), 1);
}

#[test]
fn setting_has_range_and_default() {
    let server = server_with_gates(false);
    let mut client = server.client();
    assert_eq!(client.run("CONFIG GET gate.max-wait-ms").get("gate.max-wait-ms"), "0");
    assert!(client.run("CONFIG SET gate.max-wait-ms -1").is_error());
    assert!(client.run("CONFIG SET gate.max-wait-ms 3600001").is_error());
    client.ok("CONFIG SET gate.max-wait-ms 3600000");
    assert_eq!(client.run("CONFIG GET gate.max-wait-ms").get("gate.max-wait-ms"), "3600000");
}

#[test]
fn command_is_described() {
    let server = server_with_gates(false);
    let mut client = server.client();
    assert_eq!(client.run("COMMAND GETKEYS GATE.PASS north").items()[0], "north");
    assert!(client.run("GATE.PASS").error().starts_with("ERR wrong number of arguments"));
}

#[test]
fn client_in_transaction_is_not_blocked() {
    let server = server_with_gates(false);
    let mut client = server.client();
    client.ok("MULTI");
    assert_eq!(client.run("GATE.CLOSE north"), "QUEUED");
    assert_eq!(client.run("GATE.PASS north"), "QUEUED");
    assert_eq!(client.run("EXEC"), Reply::list([Reply::Nil, Reply::Nil]));
    client.ok("MODULE UNLOAD gate");
}
