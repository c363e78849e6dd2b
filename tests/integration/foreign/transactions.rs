//! What replicas and the AOF get: one transaction for the release and what wakes others.

use support::{Aof, Client, Server, Setup};

use super::started;

fn server_with_aof() -> (Server, Client) {
    started(&Setup::new().config(Aof::CONFIG))
}

/// What the server writes when alice, who holds the lock, releases it.
#[track_caller]
fn release(server: &Server, alice: &mut Client, key: &str) -> Vec<String> {
    let before = server.aof().commands().len();
    assert_eq!(alice.run(&format!("LOCK.RELEASE {key} alice")), 0);
    server.aof().commands().split_off(before)
}

#[test]
fn a_signal_is_written_in_the_transaction_of_the_release() {
    let (server, mut alice) = server_with_aof();
    for replaced in [None, Some("DEL lock-signal:door")] {
        assert_eq!(alice.run("LOCK.ACQUIRE lock:door alice PX 600000"), 1);
        let written = release(&server, &mut alice, "lock:door");
        let end = alice.expires_at("lock-signal:door");
        let lease = format!("PEXPIREAT lock-signal:door {end}");
        let signal = ["LPUSH lock-signal:door 1", &lease, "EXEC"];
        let expected: Vec<&str> = ["MULTI", "DEL lock:door"].into_iter().chain(replaced).chain(signal).collect();
        assert_eq!(written, expected);
        assert_eq!(alice.run("PERSIST lock-signal:door"), 1);
    }
}

#[test]
fn a_message_is_written_to_no_file() {
    let (server, mut alice) = server_with_aof();
    assert_eq!(alice.run("LOCK.REENTER door alice PX 600000"), 1);
    let written = release(&server, &mut alice, "door");
    let changes: Vec<&String> = written.iter().filter(|line| !["MULTI", "EXEC"].contains(&line.as_str())).collect();
    assert_eq!(changes, ["DEL door"]);
}

#[test]
fn a_replica_has_the_signal() {
    let master = support::replicas::master("lock.wake-foreign yes");
    let replica = support::replicas::replica_of(&master);
    let mut alice = master.client();
    assert_eq!(alice.run("LOCK.ACQUIRE lock:door alice PX 600000"), 1);
    assert_eq!(alice.run("LOCK.RELEASE lock:door alice"), 0);
    assert_eq!(alice.run("PERSIST lock-signal:door"), 1);
    support::replicas::replicated(&mut alice, "mark");
    let mut reader = replica.client();
    assert_eq!(reader.run("EXISTS lock:door"), 0);
    assert_eq!(reader.run("LLEN lock-signal:door"), 1);
}
