//! A module that is not about locks, on the same layer to the server: tests/modules/gate, 100 lines without unsafe code.

use support::{Client, Reply, Server, Setup, Waiter, eventually, module_beside};

/// A server with the second module, and with the first beside it if that is asked for.
fn server_with_gates(beside: bool) -> Server {
    let setup = Setup::new().config(&format!("loadmodule {}", module_beside("gate").display()));
    if beside { setup.start() } else { setup.without_module().start() }
}

fn passed(client: &mut Client) -> String {
    client.info("gate", "gate_passed").expect("the section of the module")
}

#[test]
fn waits_for_keys_and_is_told_of_their_end() {
    for beside in [false, true] {
        let server = server_with_gates(beside);
        let mut client = server.client();
        assert_eq!(client.run("GATE.PASS north"), 1, "it is open");
        assert!(!client.run("GATE.CLOSE north").is_error());
        assert_eq!(client.run("GET north"), "closed");
        let mut waiters = [(); 2].map(|()| Waiter::start(&server, "GATE.PASS north"));
        assert_eq!(client.run("DEL north"), 1);
        let mut numbers = waiters.each_mut().map(|waiter| waiter.reply().int());
        numbers.sort_unstable();
        assert_eq!(numbers, [2, 3]);
        eventually("all have passed", || passed(&mut client) == "3");
    }
}

#[test]
fn is_described() {
    let server = server_with_gates(false);
    let mut client = server.client();
    assert_eq!(client.run("COMMAND GETKEYS GATE.PASS north").items()[0], "north");
    assert!(client.run("GATE.PASS").error().starts_with("ERR wrong number of arguments"));
}

#[test]
fn nobody_is_blocked_in_a_transaction() {
    let server = server_with_gates(false);
    let mut client = server.client();
    client.ok("MULTI");
    assert_eq!(client.run("GATE.CLOSE north"), "QUEUED");
    assert_eq!(client.run("GATE.PASS north"), "QUEUED");
    assert_eq!(client.run("EXEC"), Reply::list([Reply::Nil, Reply::Nil]));
    client.ok("MODULE UNLOAD gate");
}
