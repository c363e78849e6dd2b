//! Stalls, kills and foreign writes together: whoever was told 1 keeps the share, whoever lost it does not get it back, and
//! no permit is given out twice.

use support::{Client, Reply, Server, Setup, Waiter, eventually, field, info_lock, now_ms};

use super::holders_of;

fn share(server: &Server, token: &str, options: &str) -> Client {
    let mut client = server.client();
    assert_eq!(client.run(&format!("LOCK.SHARE pool {token} {options} SESSION")), 1);
    client
}

#[test]
fn who_was_told_one_by_another_request_keeps_the_share_when_the_waiter_is_killed() {
    for take in ["LOCK.SHARE", "LOCK.ACQUIRE"] {
        let server = Server::start();
        let mut control = server.client();
        assert_eq!(control.run("LOCK.ACQUIRE door writer PX 60000"), 1);
        let waiter = Waiter::start(&server, &format!("{take} door t PX 60000 BLOCK 0"));
        let kill = format!("CLIENT KILL ID {}", waiter.id());
        control.send_together(&[
            "LOCK.RELEASE door writer",
            "LOCK.RELEASE door t",
            &format!("{take} door t PX 60000"),
            &kill,
        ]);
        let replies: Vec<Reply> = (0..4).map(|_| control.receive()).collect();
        assert_eq!(replies[2], 1);
        eventually("the kill is over", || control.run(&format!("CLIENT LIST ID {}", waiter.id())).string().is_empty());
        assert_eq!(control.run("LOCK.EXTEND door t PX 50000"), 50_000, "{take}");
    }
}

#[test]
fn a_share_that_is_taken_back_after_a_stall_takes_no_lapsed_one_along() {
    let server = Server::start();
    let mut control = server.client();
    let a = share(&server, "a", "PX 60000");
    let mut b = share(&server, "b", "PX 150");
    assert_eq!(control.run("LOCK.SHARE pool c PX 60000"), 1);
    let waiters: Vec<Waiter> = (0..2)
        .map(|number| Waiter::start(&server, &format!("LOCK.SHARE pool w{number} PX 60000 LIMIT 3 BLOCK 0")))
        .collect();
    control.send(&["DEBUG", "SLEEP", "0.5"]);
    drop(a);
    assert_eq!(control.receive(), "OK");
    eventually("one permit is passed on", || holders_of(&mut control, "pool") == ["b", "c", "w0"]);
    assert!(b.run("LOCK.EXTEND pool b PX 5000").int() > 0);
    assert!(waiters[1].is_blocked());
}

#[test]
fn more_lapsed_sessions_than_are_removed_in_a_step_all_count() {
    let server = Server::start();
    let (mut control, mut holder) = (server.client(), server.client());
    assert_eq!(control.run("LOCK.SHARE pool c PX 600000"), 1);
    for number in 0..1500 {
        assert_eq!(holder.run(&format!("LOCK.SHARE pool s{number} PX 3000 SESSION LIMIT 1501")), 1);
    }
    for number in 0..1200 {
        assert_eq!(control.run(&format!("ZADD pool {} old{number}", now_ms() - 90_000)), 1);
    }
    control.send_together(&["DEBUG SLEEP 3.2", "LOCK.SHARE pool x LIMIT 1501", "LOCK.RELEASE pool s1450"]);
    assert_eq!(control.receive(), "OK");
    assert_eq!(control.receive(), Reply::Nil, "those that are given back come first");
    assert_eq!(control.receive(), 0);
    eventually("the rest is there", || field(&mut control, "pool", "holds") == 1500);
}

#[test]
fn a_share_that_others_removed_is_not_given_back_after_a_stall() {
    let server = Server::start();
    let mut control = server.client();
    let mut a = share(&server, "a", "PX 300 LIMIT 2");
    let _b = share(&server, "b", "PX 300 LIMIT 2");
    control.send_together(&["ZREM pool a", "LOCK.SHARE pool d PX 60000 LIMIT 2", "DEBUG SLEEP 0.5"]);
    assert_eq!([control.receive(), control.receive()], [Reply::Int(1), Reply::Int(1)]);
    assert_eq!(control.receive(), "OK");
    eventually("b has it back", || holders_of(&mut control, "pool") == ["b", "d"]);
    assert!(a.run("LOCK.EXTEND pool a PX 9000").is_error());
    eventually("one session is left", || info_lock(&mut control, "sessions") == 1);
}

#[test]
fn a_key_that_is_cut_short_behind_a_removal_lives_on_by_the_sessions_that_are_left() {
    let server = Server::start();
    let mut control = server.client();
    let [_a, _b] = ["a", "b"].map(|token| share(&server, token, "PX 60000"));
    control.send_together(&["ZREM pool a", "PEXPIRE pool 700"]);
    assert_eq!([control.receive(), control.receive()], [Reply::Int(1), Reply::Int(1)]);
    eventually("it lives on", || control.pttl("pool") > 50_000);
    assert_eq!(holders_of(&mut control, "pool"), ["b"]);
}

#[test]
fn a_session_that_closes_brings_forward_what_its_share_had_put_off() {
    let server = Server::start();
    let mut control = server.client();
    control.ok("DEBUG SET-ACTIVE-EXPIRE 0");
    let a = share(&server, "a", "PX 60000");
    assert_eq!(control.run("LOCK.SHARE pool b PX 800"), 1);
    let mut writer = Waiter::start(&server, "LOCK.ACQUIRE pool w PX 60000 BLOCK 0");
    drop(a);
    assert_eq!(writer.reply(), 1, "when the lease of b ends");
}

#[test]
fn a_transaction_that_runs_past_the_leases_keeps_what_it_extends() {
    let server = Setup::new().start();
    let mut control = server.client();
    for last in ["LOCK.EXTEND pool a PX 60000", "LOCK.SHARE pool a PX 60000"] {
        control.send_together(&[
            "MULTI",
            "LOCK.SHARE pool a PX 100",
            "LOCK.SHARE pool b PX 50",
            "DEBUG SLEEP 0.3",
            last,
            "EXISTS pool",
            "EXEC",
        ]);
        let replies: Vec<Reply> = (0..7).map(|_| control.receive()).collect();
        let exec = replies[6].items();
        assert!(exec[3].int() > 0, "{exec:?}");
        assert_eq!(exec[4], 1, "{last}");
        assert_eq!(control.run("ZSCORE pool a").bytes().len(), 13);
        assert!(control.pttl("pool") > 50_000);
        control.ok("FLUSHALL");
    }
}

#[test]
fn a_repeat_lengthens_a_lease_that_others_have_cut_short() {
    let server = Server::start();
    let mut control = server.client();
    assert_eq!(control.run("LOCK.SHARE door a PX 60000"), 1);
    assert_eq!(control.run("PEXPIRE door 800"), 1);
    assert_eq!(control.run("LOCK.SHARE door a PX 30000"), 1);
    let left = control.pttl("door");
    assert!((20_000..=30_000).contains(&left), "{left}");
}

#[test]
fn a_share_that_its_session_takes_back_counts_although_the_servers_time_stood_still() {
    let server = Setup::new().start();
    let mut control = server.client();
    for slow in SLOW {
        assert_eq!(control.run("LOCK.SHARE pool a PX 290"), 1);
        let b = share(&server, "b", "PX 250");
        let mut c = Waiter::start(&server, "LOCK.SHARE pool c PX 60000 LIMIT 2 BLOCK 0");
        let mut d = Waiter::start(&server, "LOCK.SHARE pool d PX 60000 LIMIT 2 BLOCK 0");
        slow(&mut control, "LOCK.RELEASE pool nobody");
        assert_eq!(c.reply(), 1);
        assert_eq!(holders_of(&mut control, "pool"), ["b", "c"]);
        drop(b);
        assert_eq!(d.reply(), 1);
        control.ok("FLUSHALL");
    }
}

#[test]
fn a_release_takes_no_lapsed_share_along_although_the_servers_time_stood_still() {
    let server = Setup::new().start();
    let mut control = server.client();
    for slow in SLOW {
        assert_eq!(control.run("LOCK.SHARE pool a PX 250"), 1);
        let mut b = share(&server, "b", "PX 200");
        slow(&mut control, "LOCK.RELEASE pool a");
        assert_eq!(b.run("LOCK.EXTEND pool b PX 5000"), 5000);
        assert_eq!(holders_of(&mut control, "pool"), ["b"]);
        control.ok("FLUSHALL");
    }
}

/// What runs a command while the server's time has stood still for 400 ms.
const SLOW: [fn(&mut Client, &str); 2] = [
    |client, line| {
        client.send_together(&["MULTI", "DEBUG SLEEP 0.4", line, "EXEC"]);
        (0..4).for_each(|_| _ = client.receive());
    },
    |client, line| {
        let words: Vec<String> = line.split(' ').map(|word| format!("'{word}'")).collect();
        // Scripts see the time at which they began. There is nothing to wait for in them.
        let begun = "local function work() for number = 1, 1000000 do local _ = number % 7 end end";
        let script = format!("{begun} for round = 1, 60 do work() end return redis.pcall({})", words.join(","));
        client.call(&["EVAL", &script, "1", "pool"]);
    },
];

#[test]
fn shares_that_have_passed_make_room_however_many_they_are() {
    const MANY: usize = 101_000;
    let server = Server::start();
    let mut control = server.client();
    assert_eq!(control.run("LOCK.SHARE pool keeper PX 600000"), 1);
    let passed = (now_ms() - 1).to_string();
    for first in (0..MANY).step_by(1000) {
        let members: Vec<String> =
            (first..first + 1000).flat_map(|number| [passed.clone(), format!("m{number}")]).collect();
        let words: Vec<&str> = ["ZADD", "pool"].into_iter().chain(members.iter().map(String::as_str)).collect();
        assert_eq!(control.call(&words), 1000);
    }
    eventually("there is room", || control.run("LOCK.SHARE pool one PX 600000 LIMIT 2") == 1);
    assert_eq!(control.run("LOCK.SHARE pool two PX 600000 LIMIT 2"), Reply::Nil);
}
