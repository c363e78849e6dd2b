//! How a waiter leaves the line: its time is up, it hangs up, it is killed or unblocked, the server ends. Whoever stands
//! behind it moves up.

use std::time::Instant;

use support::{Client, PATIENCE, Reply, Server, Setup, Waiting, Way, bytes_of, eventually, waiters_of};

/// How the mutex and the re-entrant lock are taken.
const TAKE: [&str; 2] = ["LOCK.ACQUIRE", "LOCK.REENTER"];

#[test]
fn a_time_out_answers_nil_and_leaves_the_queue() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 30000"), 1);
    let end = alice.expires_at("door");
    for (take, ways) in TAKE.into_iter().flat_map(|take| Way::IN_LINE.map(|ways| (take, ways))) {
        let mut short = ways[0].send(&server, &format!("{take} door short BLOCK 60"));
        let mut long = ways[1].start(&server, &format!("{take} door long BLOCK 0"));
        assert_eq!(short.reply(), Reply::Nil, "{take} {ways:?}");
        assert_eq!(waiters_of(&mut alice, "door"), 1);
        assert_eq!(alice.expires_at("door"), end, "waiting changes nothing");
        assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
        assert_eq!(long.reply(), 1, "{take} {ways:?}: the next in line");
        short.has_heard_nothing_else();
        assert_eq!(alice.run("LOCK.RELEASE door long"), 0);
        assert_eq!(alice.run("LOCK.RELEASE door short"), Reply::Nil, "its place is forgotten");
        assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 30000"), 1);
        alice.run(&format!("PEXPIREAT door {end}"));
    }
}

/// The first of two waiters leaves in some way; the second moves up and is served.
#[track_caller]
fn first_leaves(ways: &[[Way; 2]], leave: impl Fn(&Server, Waiting) -> Option<Reply>, expected: Option<&Reply>) {
    for (take, ways) in TAKE.into_iter().flat_map(|take| ways.iter().map(move |ways| (take, ways))) {
        let server = Server::start();
        let mut alice = server.client();
        assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
        let first = ways[0].start(&server, &format!("{take} door first BLOCK 0"));
        let mut second = ways[1].start(&server, &format!("{take} door second BLOCK 0"));
        assert_eq!(leave(&server, first).as_ref(), expected, "{take} {ways:?}");
        eventually("the first has left", || waiters_of(&mut alice, "door") == 1);
        assert!(second.waits());
        assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
        assert_eq!(second.reply(), 1, "{take} {ways:?}");
        assert_eq!(alice.run("LOCK.RELEASE door second"), 0);
    }
}

/// Only who is blocked can be unblocked.
const BLOCKED: &[[Way; 2]] = &[[Way::Blocked, Way::Blocked], [Way::Blocked, Way::Notified]];

#[test]
fn a_waiter_that_hangs_up_leaves_the_queue() {
    first_leaves(
        &Way::IN_LINE,
        |server, first| {
            // Who listened on another connection hears nothing of it.
            if let Some(mut listener) = first.hang_up(&mut server.client()) {
                assert_eq!(listener.run("PING").items()[0], "pong");
            }
            None
        },
        None,
    );
}

#[test]
fn a_killed_waiter_leaves_the_queue() {
    let kill = |server: &Server, first: &Waiting| {
        assert_eq!(server.client().run(&format!("CLIENT KILL ID {}", first.id())), 1);
    };
    let hears = [[Way::Blocked, Way::Blocked], [Way::OnOneConnection, Way::Blocked]];
    first_leaves(
        &hears,
        |server, mut first| {
            kill(server, &first);
            Some(first.reply())
        },
        Some(&Reply::Closed),
    );
    first_leaves(
        &[[Way::Notified, Way::Blocked], [Way::Notified, Way::OnOneConnection]],
        |server, mut first| {
            kill(server, &first);
            first.has_heard_nothing_else();
            None
        },
        None,
    );
}

/// Where nobody listens any more it is in line all the same, and passed over.
#[test]
fn a_killed_listener_lets_the_request_stand_and_the_next_is_served() {
    for take in TAKE {
        let server = Server::start();
        let mut alice = server.client();
        assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
        let first = Way::Notified.start(&server, &format!("{take} door first BLOCK 0"));
        let mut second = Way::OnOneConnection.start(&server, &format!("{take} door second BLOCK 0"));
        assert_eq!(alice.run(&format!("CLIENT KILL ID {}", first.id_of_listener())), 1);
        assert_eq!(waiters_of(&mut alice, "door"), 2);
        assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
        assert_eq!(second.reply(), 1);
        assert_eq!(waiters_of(&mut alice, "door"), 0);
        drop(first);
    }
}

#[test]
fn client_unblock_has_no_say_in_who_waits_for_a_message() {
    for way in [Way::Notified, Way::OnOneConnection] {
        let server = Server::start();
        let mut alice = server.client();
        assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
        let mut bob = way.start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
        assert_eq!(alice.run(&format!("CLIENT UNBLOCK {}", bob.id())), 0);
        assert_eq!(alice.run(&format!("CLIENT UNBLOCK {} ERROR", bob.id())), 0);
        assert!(bob.waits());
        assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
        assert_eq!(bob.reply(), 1);
    }
}

#[test]
fn client_unblock_answers_nil_and_the_waiter_leaves_the_queue() {
    first_leaves(
        BLOCKED,
        |server, mut first| {
            assert_eq!(server.client().run(&format!("CLIENT UNBLOCK {}", first.id())), 1);
            Some(first.reply())
        },
        Some(&Reply::Nil),
    );
}

#[test]
fn client_unblock_error_answers_unblocked_and_the_waiter_leaves_the_queue() {
    first_leaves(
        BLOCKED,
        |server, mut first| {
            assert_eq!(server.client().run(&format!("CLIENT UNBLOCK {} ERROR", first.id())), 1);
            Some(Reply::text(first.reply().code()))
        },
        Some(&Reply::text("UNBLOCKED")),
    );
}

#[test]
fn the_last_waiter_may_leave_and_come_back() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 30000"), 1);
    for way in Way::ALL {
        drop(way.start(&server, "LOCK.ACQUIRE door bob BLOCK 0"));
        eventually("bob has left", || waiters_of(&mut alice, "door") == 0);
    }
    for way in Way::ALL {
        let mut bob = way.start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
        assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
        assert_eq!(bob.reply(), 1, "{way:?}");
        assert_eq!(alice.run("LOCK.RELEASE door bob"), 0);
        assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 30000"), 1);
    }
}

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
