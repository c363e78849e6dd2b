//! A timer descriptor that does not wake the server at its time, as where a sandbox or a library stands between the server and
//! the machine's clock: the server's cron finds what is overdue.

use support::{Library, Reply, Setup, Waiter};

#[test]
fn waits_and_leases_come_to_their_ends() {
    let silencer = Library::compile("tests/modules/silencer.c");
    let server = Setup::new().config(&format!("loadmodule {}", silencer.path().display())).start();
    let mut alice = server.client();
    // Only the module ends leases.
    alice.ok("DEBUG SET-ACTIVE-EXPIRE 0");
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 1000"), 1);
    assert_eq!(alice.run("LOCK.ACQUIRE gate alice PX 60000"), 1);
    let mut at_door = Waiter::start(&server, "LOCK.ACQUIRE door bob PX 60000 BLOCK 0");
    let mut at_gate = Waiter::start(&server, "LOCK.ACQUIRE gate bob PX 60000 BLOCK 1000");
    assert_eq!(alice.run("SILENCER.SILENCE"), 1);
    assert_eq!(at_door.reply(), 1);
    assert_eq!(at_gate.reply(), Reply::Nil);
}
