//! One line for all kinds: shares at its head are granted together, as many as their limits allow, and nobody overtakes.

use support::{Client, Reply, Server, Setup, Waiter, Waiting, Way, eventually, field, info_lock, waiters_of};

use super::holders_of;

/// A server where `writer` holds `door`.
fn written() -> (Server, Client) {
    let server = Server::start();
    let mut control = server.client();
    assert_eq!(control.run("LOCK.ACQUIRE door writer PX 600000"), 1);
    (server, control)
}

fn wait(server: &Server, lines: &[&str]) -> Vec<Waiter> {
    lines.iter().map(|line| Waiter::start(server, line)).collect()
}

#[track_caller]
fn are_granted(waiters: &mut [Waiter]) {
    waiters.iter_mut().for_each(|waiter| assert_eq!(waiter.reply(), 1));
}

#[test]
fn readers_beside_each_other_are_let_in_together_and_a_writer_in_turn() {
    let (server, mut control) = written();
    let mut first = wait(&server, &["LOCK.SHARE door a PX 60000 BLOCK 0", "LOCK.SHARE door b PX 60000 BLOCK 0"]);
    let mut writer = Waiter::start(&server, "LOCK.REENTER door w PX 60000 BLOCK 0");
    let mut second = wait(&server, &["LOCK.SHARE door c PX 60000 BLOCK 0", "LOCK.SHARE door d PX 60000 BLOCK 0"]);
    assert_eq!(control.run("LOCK.RELEASE door writer"), 0);
    assert_eq!(holders_of(&mut control, "door"), ["a", "b"], "in the very step");
    are_granted(&mut first);
    assert!(writer.is_blocked() && second.iter().all(Waiter::is_blocked));
    assert_eq!(control.run("LOCK.SHARE door thief"), Reply::Nil, "a reader does not overtake the writer");
    assert_eq!(control.run("LOCK.SHARE door a"), 1, "who has a share is told so");
    assert_eq!(control.run("LOCK.RELEASE door a"), 0);
    assert!(writer.is_blocked());
    assert_eq!(control.run("LOCK.RELEASE door b"), 0);
    assert_eq!(field(&mut control, "door", "owner"), "w", "in the very step");
    assert_eq!(writer.reply(), 1);
    assert_eq!(control.run("LOCK.RELEASE door w"), 0);
    assert_eq!(holders_of(&mut control, "door"), ["c", "d"]);
    are_granted(&mut second);
}

#[test]
fn a_limit_at_the_head_holds_up_all_behind_it() {
    let (server, mut control) = written();
    let mut waiters = wait(
        &server,
        &[
            "LOCK.SHARE door a PX 60000 LIMIT 2 BLOCK 0",
            "LOCK.SHARE door b PX 60000 LIMIT 2 BLOCK 0",
            "LOCK.SHARE door c PX 60000 LIMIT 2 BLOCK 0",
            "LOCK.SHARE door d PX 60000 BLOCK 0",
        ],
    );
    assert_eq!(control.run("LOCK.RELEASE door writer"), 0);
    are_granted(&mut waiters[..2]);
    assert_eq!(holders_of(&mut control, "door"), ["a", "b"]);
    assert_eq!(control.run("LOCK.SHARE door thief LIMIT 9"), Reply::Nil);
    assert_eq!(control.run("LOCK.RELEASE door a"), 0);
    assert_eq!(holders_of(&mut control, "door"), ["b", "c", "d"], "and then those behind it in the same step");
    are_granted(&mut waiters[2..]);
}

#[test]
fn a_writer_among_readers_that_never_cease_is_served() {
    let server = Server::start();
    let mut control = server.client();
    assert_eq!(control.run("LOCK.SHARE door r0 PX 60000"), 1);
    let mut writer = Waiter::start(&server, "LOCK.ACQUIRE door w PX 60000 BLOCK 0");
    let mut readers: Vec<Waiter> =
        (1..=20).map(|number| Waiter::start(&server, &format!("LOCK.SHARE door r{number} PX 60000 BLOCK 0"))).collect();
    assert_eq!(control.run("LOCK.RELEASE door r0"), 0);
    assert_eq!(writer.reply(), 1);
    assert!(readers.iter().all(Waiter::is_blocked));
    assert_eq!(control.run("LOCK.RELEASE door w"), 0);
    are_granted(&mut readers);
}

/// Whoever leaves the head of the line, and however, those for whom that makes room are served at once.
#[track_caller]
fn who_is_behind_is_served(leave: impl Fn(&mut Client, Waiting)) {
    for way in Way::ALL {
        for head in ["LOCK.ACQUIRE door head PX 60000 BLOCK 0", "LOCK.SHARE door head LIMIT 1 PX 60000 BLOCK 0"] {
            let server = Server::start();
            let mut control = server.client();
            assert_eq!(control.run("LOCK.SHARE door a PX 600000"), 1);
            let head = way.start(&server, head);
            let mut reader = way.start(&server, "LOCK.SHARE door b PX 60000 BLOCK 0");
            let mut writer = Waiter::start(&server, "LOCK.ACQUIRE door w BLOCK 0");
            leave(&mut control, head);
            assert_eq!(reader.reply(), 1, "{way:?}");
            assert_eq!(holders_of(&mut control, "door"), ["a", "b"]);
            assert!(writer.is_blocked());
            assert_eq!(control.run("LOCK.RELEASE door a"), 0);
            assert_eq!(control.run("LOCK.RELEASE door b"), 0);
            assert_eq!(writer.reply(), 1);
        }
    }
}

#[test]
fn a_head_that_hangs_up() {
    who_is_behind_is_served(|control, head| _ = head.hang_up(control));
}

#[test]
fn a_head_that_gives_up() {
    who_is_behind_is_served(|control, mut head| {
        assert_eq!(control.run("LOCK.RELEASE door head"), Reply::Nil);
        assert_eq!(head.reply(), Reply::Nil);
    });
}

#[test]
fn a_head_that_is_let_go() {
    who_is_behind_is_served(|control, head| match head {
        Waiting::Blocked(mut waiter) => {
            assert_eq!(control.run(&format!("CLIENT UNBLOCK {}", waiter.id())), 1);
            assert_eq!(waiter.reply(), Reply::Nil);
        }
        head @ Waiting::Notified(_) => _ = head.hang_up(control),
    });
}

#[test]
fn a_head_whose_time_is_up() {
    for way in Way::ALL {
        let server = Server::start();
        let mut control = server.client();
        assert_eq!(control.run("LOCK.SHARE door a PX 600000"), 1);
        let mut head = way.start(&server, "LOCK.ACQUIRE door head PX 60000 BLOCK 300");
        let mut reader = way.start(&server, "LOCK.SHARE door b PX 60000 BLOCK 0");
        assert_eq!(head.reply(), Reply::Nil);
        assert_eq!(reader.reply(), 1);
    }
}

#[test]
fn very_many_readers_are_let_in_one_after_the_other_with_nobody_between() {
    const READERS: usize = 250;
    let server = Setup::new().config("maxclients 600").start();
    let mut control = server.client();
    assert_eq!(control.run("LOCK.ACQUIRE door writer PX 600000"), 1);
    let mut readers: Vec<Waiter> = (0..READERS)
        .map(|number| {
            let line = format!("LOCK.SHARE door r{number} PX 600000 BLOCK 0");
            Waiter::send_on(&server, server.client(), &support::bytes_of(&line))
        })
        .collect();
    eventually("all wait", || waiters_of(&mut control, "door") == 250);
    // The thief asks in the very round in which the first are let in.
    control.send_together(&[
        "LOCK.RELEASE door writer",
        "LOCK.INFO door",
        "LOCK.SHARE door thief",
        "LOCK.ACQUIRE door thief",
    ]);
    assert_eq!(control.receive(), 0);
    assert_eq!(control.receive().get("holds"), 100, "a hundred in the step");
    assert_eq!([control.receive(), control.receive()], [Reply::Nil, Reply::Nil]);
    are_granted(&mut readers);
    assert_eq!(field(&mut control, "door", "holds"), 250);
    assert_eq!(info_lock(&mut control, "handovers_release"), 250);
}

#[test]
fn of_copies_the_smallest_limit_and_the_longest_lease_count() {
    let server = Server::start();
    let mut control = server.client();
    for number in 0..3 {
        assert_eq!(control.run(&format!("LOCK.SHARE door h{number} PX 600000")), 1);
    }
    let mut copies = wait(
        &server,
        &[
            "LOCK.SHARE door a PX 10000 LIMIT 3 BLOCK 0",
            "LOCK.SHARE door a PX 60000 LIMIT 1 BLOCK 0",
            "LOCK.SHARE door a PX 10000 LIMIT 2 BLOCK 0",
        ],
    );
    assert_eq!(control.run("LOCK.WAITERS door").items()[0].get("limit"), 1);
    for number in 0..2 {
        assert_eq!(control.run(&format!("LOCK.RELEASE door h{number}")), 0);
        assert!(copies.iter().all(Waiter::is_blocked));
    }
    assert_eq!(control.run("LOCK.RELEASE door h2"), 0);
    are_granted(&mut copies);
    assert!(support::remaining_ms(&mut control, "door") > 50_000);
}
