//! A failover by real sentinels. Locks that a replica has confirmed survive it, all waiters receive a reply, and clients that ask
//! the sentinels for the new master are granted their locks there.

use support::process::Process;
use support::replicas::{in_time, master, replica_of};
use support::sentinel::{Sentinel, new_master};
use support::{Client, Reply, Server, Waiter, eventually, now_ms};

/// Bob and carol wait, in this order.
fn line_up(server: &Server) -> [Waiter; 2] {
    ["bob", "carol"].map(|name| Waiter::start(server, &format!("LOCK.ACQUIRE door {name} BLOCK 0")))
}

/// Takes two locks, one for long, one for a moment, and has a replica confirm them; returns when the long lease ends.
fn take_locks(alice: &mut Client) -> i64 {
    assert_eq!(alice.run("LOCK.ACQUIRE gate alice PX 800"), 1);
    assert_eq!(alice.run("LOCK.REENTER room alice PX 600000"), 1);
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 600000"), 1);
    assert!(alice.run("WAIT 1 5000").int() >= 1);
    alice.expires_at("door")
}

#[test]
fn failover_by_sentinels_keeps_confirmed_locks() {
    let mut old = master("");
    let replicas = [replica_of(&old), replica_of(&old)];
    let sentinels = Sentinel::start_three(&old, replicas.len());
    let mut alice = old.client();
    let lease_end = take_locks(&mut alice);
    let mut waiting = line_up(&old);
    let old_port = old.port();
    let killed_at = now_ms();
    Process::kill(&mut old);
    for waiter in &mut waiting {
        assert_eq!(waiter.reply(), Reply::Closed);
    }

    let new = new_master(&sentinels, old_port, &replicas);
    eprintln!("failover took {} ms", now_ms() - killed_at);
    let mut alice = new.client();
    assert_eq!(alice.run("LOCK.INFO door").get("owner"), "alice");
    assert_eq!(alice.expires_at("door"), lease_end, "the lease is what it was");
    assert_eq!(alice.run("LOCK.REENTER room alice HOLD 2"), 2, "the first hold is not lost");
    assert_eq!(alice.run("LOCK.ACQUIRE gate bob BLOCK 0"), 1, "a lease that has ended meanwhile is over");

    let [mut bob, mut carol] = line_up(new);
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    assert_eq!(bob.reply(), 1);
    assert_eq!(alice.run("LOCK.EXTEND door bob PX 50").code(), "NOLEASE");
    assert_eq!(alice.run("LOCK.RELEASE door bob"), 0);
    assert_eq!(carol.reply(), 1);

    let other = replicas.iter().find(|replica| replica.port() != new.port()).expect("the other replica");
    in_time("the other replica follows", || {
        let port = new.port().to_string();
        other.client().info("replication", "master_port").as_deref() == Some(&port)
    });
    let mut reader = other.client();
    eventually("the hand-over arrives", || reader.run("GET door") == "carol");
}
