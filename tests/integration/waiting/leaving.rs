//! A time-out in the moment of a grant, many waiters that are killed together, and the end of the server.

use std::time::Instant;

use support::{Client, PATIENCE, Reply, Server, Setup, Way, bytes_of, eventually, waiters_of};

/// How the mutex and the re-entrant lock are taken.
const TAKE: [&str; 2] = ["LOCK.ACQUIRE", "LOCK.REENTER"];

/// A waiter whose time is up in the moment in which the lock comes free, by a command or by the end of its lease: one
/// answer, and the lock is where it says.
#[track_caller]
fn a_time_out_meets(free: Option<&str>) {
    for (way, rounds) in [(Way::Blocked, 60), (Way::OnOneConnection, 30)] {
        a_time_out_in_this_way_meets(way, rounds, free);
    }
}

#[track_caller]
fn a_time_out_in_this_way_meets(way: Way, rounds: usize, free: Option<&str>) {
    let server = Server::start();
    let mut alice = server.client();
    let mut answers = [0, 0];
    // They approach each other: after a time-out bob waits longer, after a grant not so long, or the lock is held longer.
    let (mut held_ms, mut block_ms) = (10, 10);
    for _ in 0..rounds {
        let lease_ms = if free.is_some() { 30_000 } else { held_ms };
        assert_eq!(alice.run(&format!("LOCK.ACQUIRE door alice PX {lease_ms}")), 1);
        let asked = Instant::now();
        let mut bob = way.send(&server, &format!("LOCK.ACQUIRE door bob BLOCK {block_ms}"));
        if let Some(free) = free {
            while asked.elapsed().as_millis() < held_ms {
                std::hint::spin_loop();
            }
            alice.run(free);
        }
        let granted = match bob.reply() {
            Reply::Nil => false,
            reply => reply == 1,
        };
        answers[usize::from(granted)] += 1;
        match (granted, block_ms) {
            (false, _) => block_ms += 1,
            (true, 1) => held_ms += 15,
            (true, _) => block_ms -= 1,
        }
        bob.has_heard_nothing_else();
        if granted {
            assert_eq!(alice.run("GET door"), "bob");
            assert_eq!(alice.run("LOCK.RELEASE door bob"), 0);
        } else {
            eventually("the lock is free", || alice.run("EXISTS door") == 0);
        }
        assert_eq!(waiters_of(&mut alice, "door"), 0);
    }
    assert!(answers.iter().all(|&count| count > 0), "{way:?}: the two never met: {answers:?} time-outs and grants");
}

#[test]
fn a_time_out_that_meets_a_release_or_a_delete_is_answered_once() {
    a_time_out_meets(Some("LOCK.RELEASE door alice"));
    a_time_out_meets(Some("DEL door"));
}

#[test]
fn a_time_out_that_meets_the_end_of_the_lease_is_answered_once() {
    a_time_out_meets(None);
}

#[test]
fn two_hundred_blocked_clients_survive_client_kill_type_normal() {
    const CLIENTS: usize = 200;
    let server = Server::start();
    let mut control = server.client();
    for door in 0..4 {
        assert_eq!(control.run(&format!("LOCK.ACQUIRE door-{door} holder")), 1);
    }
    let mut blocked: Vec<Client> = (0..CLIENTS)
        .map(|number| {
            let mut client = server.client();
            let take = TAKE[number % 2];
            client.send(&bytes_of(&format!("{take} door-{} token-{number} BLOCK 0", number % 4)));
            client
        })
        .collect();
    eventually("all of them wait", || control.info("clients", "blocked_clients").as_deref() == Some("200"));
    control.send(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    assert_eq!(control.receive(), i64::try_from(CLIENTS).unwrap());
    for client in &mut blocked {
        assert_eq!(client.receive(), Reply::Closed);
    }
    for door in 0..4 {
        eventually("nobody waits", || waiters_of(&mut control, &format!("door-{door}")) == 0);
        assert_eq!(control.run(&format!("LOCK.RELEASE door-{door} holder")), 0);
        assert_eq!(control.run(&format!("LOCK.ACQUIRE door-{door} next")), 1);
    }
}

#[test]
fn shutdown_does_not_hang_on_waiters() {
    for config in ["", "appendonly yes"] {
        let mut server = Setup::new().config(config).start();
        let mut alice = server.client();
        assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 60000"), 1);
        let mut waiters = Way::ALL.map(|way| way.start(&server, &format!("LOCK.ACQUIRE door {way:?} BLOCK 0")));
        let asked = Instant::now();
        server.shut_down("NOSAVE");
        assert!(asked.elapsed() < PATIENCE);
        for waiter in &mut waiters {
            assert_eq!(waiter.reply(), Reply::Closed);
        }
    }
}
