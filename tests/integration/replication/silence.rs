//! Clients that want no answer, and wait when their server becomes a replica.

use std::time::Duration;

use support::{Server, eventually, info_lock, never_within};

/// The server would close such a client behind an error, which it does not send to who wants no answer: so it leaves the
/// connection open, and reads nothing from it any more. It does the same to who waits by BLPOP.
#[test]
fn the_server_forgets_them_and_the_module_does_not() {
    for wait in ["BLPOP list 0", "LOCK.ACQUIRE door bob BLOCK 0"] {
        for silence in ["CLIENT REPLY OFF", "CLIENT REPLY SKIP"] {
            let server = Server::start();
            let (mut alice, mut bob) = (server.client(), server.client());
            assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
            bob.send_together(&[silence, wait, "CLIENT REPLY ON", "PING"]);
            eventually("bob waits", || alice.info("clients", "blocked_clients").as_deref() == Some("1"));
            alice.ok("REPLICAOF 127.0.0.1 1");
            eventually("nobody waits", || {
                info_lock(&mut alice, "waiters") == 0
                    && alice.info("clients", "blocked_clients").as_deref() == Some("0")
            });
            let id = format!("id={} ", bob.id());
            never_within(Duration::from_millis(200), "closed", || !alice.run("CLIENT LIST").string().contains(&id));
        }
    }
}
