//! Ten thousand places in line that are kept for clients who are away cost the others nothing.

use std::time::{Duration, Instant};

use support::{Client, OBSERVATION, Reply, Server, Waiter, bytes_of, eventually, field, never_within, waiters_of};

use super::alone;

/// The quickest of several hand-overs from one present waiter to the next.
#[track_caller]
fn quickest_hand_over(server: &Server, control: &mut Client) -> Duration {
    let mut best = Duration::MAX;
    let mut holder = "holder".to_owned();
    for round in 0..15 {
        let next = format!("next-{round}");
        let mut waiter = Waiter::start(server, &format!("LOCK.ACQUIRE door {next} BLOCK 0"));
        let asked = Instant::now();
        assert_eq!(control.run(&format!("LOCK.RELEASE door {holder}")), 0);
        assert_eq!(waiter.reply(), 1);
        best = best.min(asked.elapsed());
        holder = next;
    }
    best
}

#[test]
fn ten_thousand_places_that_are_away_cost_no_time_at_a_hand_over() {
    const AWAY: usize = 10_000;
    const AT_ONCE: usize = 500;
    let _alone = alone();
    let server = Server::start();
    let mut control = server.client();
    control.ok("CONFIG SET lock.rejoin-grace-ms 600000");
    assert_eq!(control.run("LOCK.ACQUIRE door holder"), 1);
    let mut connections: Vec<Client> = (0..AT_ONCE).map(|_| server.client()).collect();
    let none_away = quickest_hand_over(&server, &mut control);
    let holder = field(&mut control, "door", "owner").string();
    for round in 0..AWAY / AT_ONCE {
        for (number, connection) in connections.iter_mut().enumerate() {
            connection.send(&bytes_of(&format!("LOCK.ACQUIRE door away-{round}-{number} BLOCK 1")));
        }
        for (number, connection) in connections.iter_mut().enumerate() {
            assert_eq!(connection.receive(), Reply::Nil, "away-{round}-{number}");
        }
    }
    assert_eq!(waiters_of(&mut control, "door"), 0);
    // They are really there: the very first one would stand in front of everybody.
    let waiters = ["bob", "away-0-0"].map(|name| Waiter::start(&server, &format!("LOCK.ACQUIRE door {name} BLOCK 0")));
    let line = control.run("LOCK.WAITERS door");
    let tokens: Vec<String> = line.items().iter().map(|waiter| waiter.get("token").string()).collect();
    assert_eq!(tokens, ["away-0-0", "bob"]);
    drop(waiters);
    eventually("both have left", || waiters_of(&mut control, "door") == 0);
    assert_eq!(control.run(&format!("LOCK.RELEASE door {holder}")), 0);
    assert_eq!(control.run("LOCK.ACQUIRE door holder"), 1);
    let many_away = quickest_hand_over(&server, &mut control);
    assert!(many_away < 5 * none_away, "{many_away:?} with {AWAY} away, {none_away:?} with none");
    never_within(OBSERVATION, "somebody is counted who is away", || waiters_of(&mut control, "door") > 0);
}
