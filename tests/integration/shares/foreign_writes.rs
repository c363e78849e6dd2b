//! What others do to the key of a shared lock: those whom it makes room for are served at once, and nobody overtakes.

use std::thread;

use support::{
    Client, OBSERVATION, Reply, Server, Setup, Waiter, Waiting, Way, bytes_of, eventually, info_lock, never_within,
    waiters_of,
};

use super::holders_of;

/// `a` and `b` hold two permits of two, for long.
#[track_caller]
fn taken(control: &mut Client) {
    for token in ["a", "b"] {
        assert_eq!(control.run(&format!("LOCK.SHARE pool {token} PX 600000 LIMIT 2")), 1);
    }
}

/// After `lines`, which take the share of `a` away or all of them, the next permit is granted; a request that comes with
/// them gets none.
#[track_caller]
fn serve_the_next(lines: &[&str]) {
    let server = Server::start();
    for way in Way::ALL {
        let mut control = server.client();
        taken(&mut control);
        let mut c = way.start(&server, "LOCK.SHARE pool c PX 60000 LIMIT 2 BLOCK 0");
        let together: Vec<&str> = lines.iter().copied().chain(["LOCK.SHARE pool thief LIMIT 2"]).collect();
        control.send_together(&together);
        for line in lines {
            let reply = control.receive();
            assert!(!reply.is_error() && reply != 0, "{line}: {reply:?}");
        }
        let all_are_gone = |control: &mut Client| control.run("ZSCORE pool b") == Reply::Nil;
        let thief = control.receive();
        assert_eq!(c.reply(), 1, "{lines:?} {way:?}");
        if !all_are_gone(&mut control) {
            assert_eq!(thief, Reply::Nil, "{lines:?} {way:?}: nobody overtakes");
        }
        assert_eq!(control.run("ZSCORE pool c").bytes().len(), 13);
        c.has_heard_nothing_else();
        control.ok("FLUSHALL");
    }
}

#[test]
fn zrem() {
    serve_the_next(&["ZREM pool a"]);
}

#[test]
fn zpopmin() {
    serve_the_next(&["ZPOPMIN pool"]);
}

#[test]
fn zremrangebyrank() {
    serve_the_next(&["ZREMRANGEBYRANK pool 0 0"]);
}

#[test]
fn zremrangebyscore() {
    serve_the_next(&["ZREMRANGEBYSCORE pool -inf +inf"]);
}

#[test]
fn zpopmax() {
    serve_the_next(&["ZPOPMAX pool"]);
}

#[test]
fn zremrangebylex() {
    serve_the_next(&["ZREMRANGEBYLEX pool [a [a"]);
}

#[test]
fn zmpop() {
    serve_the_next(&["ZMPOP 1 pool MIN"]);
}

/// The server gives it what the module has just written.
#[test]
fn a_bzpopmin_that_waits_for_the_key() {
    let server = Server::start();
    let mut control = server.client();
    let mut thief = Waiter::start(&server, "BZPOPMIN pool 0");
    assert_eq!(control.run("LOCK.ACQUIRE pool writer PX 600000"), 1);
    let mut a = Way::Blocked.start(&server, "LOCK.SHARE pool a PX 60000 LIMIT 1 BLOCK 0");
    let mut b = Way::Blocked.start(&server, "LOCK.SHARE pool b PX 60000 LIMIT 1 BLOCK 0");
    assert_eq!(control.run("LOCK.RELEASE pool writer"), 0);
    assert_eq!(a.reply(), 1);
    assert_eq!(thief.reply().items()[1], "a");
    assert_eq!(b.reply(), 1, "the permit that was taken from a");
    assert_eq!(holders_of(&mut control, "pool"), ["b"]);
}

#[test]
fn del() {
    serve_the_next(&["DEL pool"]);
}

#[test]
fn unlink() {
    serve_the_next(&["UNLINK pool"]);
}

#[test]
fn rename_away() {
    serve_the_next(&["RENAME pool elsewhere"]);
}

#[test]
fn flushall() {
    serve_the_next(&["FLUSHALL"]);
}

#[test]
fn a_script_that_removes_a_share() {
    let server = Server::start();
    let mut control = server.client();
    taken(&mut control);
    let mut c = Way::Blocked.start(&server, "LOCK.SHARE pool c PX 60000 LIMIT 2 BLOCK 0");
    assert_eq!(control.call(&["EVAL", "return redis.call('ZREM', KEYS[1], 'a')", "1", "pool"]), 1);
    assert_eq!(c.reply(), 1);
    assert_eq!(holders_of(&mut control, "pool"), ["b", "c"]);
}

#[test]
fn a_score_that_is_set_into_the_past_is_the_end_of_a_share() {
    let server = Server::start();
    let mut control = server.client();
    taken(&mut control);
    let mut c = Way::Blocked.start(&server, "LOCK.SHARE pool c PX 60000 LIMIT 2 BLOCK 0");
    assert_eq!(control.run("ZADD pool 1 a"), 0);
    assert_eq!(c.reply(), 1);
    assert_eq!(holders_of(&mut control, "pool"), ["b", "c"]);
}

#[test]
fn the_last_share_that_is_removed_frees_the_lock_for_a_writer() {
    for lines in [["ZREM pool a", "ZREM pool b"], ["ZPOPMAX pool", "ZPOPMIN pool"]] {
        let server = Server::start();
        let mut control = server.client();
        taken(&mut control);
        let mut writer = Way::Blocked.start(&server, "LOCK.ACQUIRE pool w BLOCK 0");
        control.run(lines[0]);
        assert!(writer.waits());
        control.run(lines[1]);
        assert_eq!(writer.reply(), 1);
    }
}

#[test]
fn a_writer_waits_no_longer_than_for_the_last_share_that_is_left() {
    let server = Server::start();
    let mut control = server.client();
    assert_eq!(control.run("LOCK.SHARE door a PX 600000"), 1);
    assert_eq!(control.run("LOCK.SHARE door b PX 400"), 1);
    let mut writer = Way::Blocked.start(&server, "LOCK.ACQUIRE door w BLOCK 0");
    assert_eq!(control.run("ZREM door a"), 1);
    assert_eq!(writer.reply(), 1);
}

#[test]
fn the_end_of_the_key_is_the_end_of_all_its_shares() {
    let server = Server::start();
    let mut control = server.client();
    taken(&mut control);
    let mut writer = Way::Blocked.start(&server, "LOCK.ACQUIRE pool w BLOCK 0");
    assert_eq!(control.run("PEXPIRE pool 150"), 1);
    assert_eq!(writer.reply(), 1);
    assert_eq!(control.run("GET pool"), "w");
}

#[test]
fn a_key_that_is_overwritten_is_waited_for_as_it_is_then() {
    let server = Server::start();
    let mut control = server.client();
    taken(&mut control);
    let mut c = Way::Blocked.start(&server, "LOCK.SHARE pool c PX 60000 LIMIT 2 BLOCK 0");
    control.ok("SET pool other PX 300");
    assert_eq!(control.run("LOCK.RELEASE pool a").code(), "NOTOWNER");
    assert!(c.waits());
    assert_eq!(c.reply(), 1);
    assert_eq!(holders_of(&mut control, "pool"), ["c"]);
}

#[test]
fn an_eviction_serves_the_next() {
    let server = Setup::new().config("maxmemory-policy allkeys-random").start();
    let mut control = server.client();
    taken(&mut control);
    let mut c = Way::Blocked.start(&server, "LOCK.SHARE pool c PX 60000 LIMIT 2 BLOCK 0");
    control.ok("CONFIG SET maxmemory 1");
    eventually("the key is evicted", || control.run("EXISTS pool") == 0 || control.run("ZSCORE pool a") == Reply::Nil);
    control.ok("CONFIG SET maxmemory 0");
    assert_eq!(c.reply(), 1);
}

#[test]
fn a_transaction_and_a_script_take_and_release_shares() {
    let server = Server::start();
    let mut control = server.client();
    taken(&mut control);
    let mut c = Way::Blocked.start(&server, "LOCK.SHARE pool c PX 60000 LIMIT 2 BLOCK 0");
    control.send_together(&[
        "MULTI",
        "LOCK.SHARE pool d LIMIT 2 BLOCK 0",
        "LOCK.RELEASE pool a",
        "LOCK.RELEASE pool b",
        "EXEC",
    ]);
    let replies: Vec<Reply> = (0..5).map(|_| control.receive()).collect();
    assert_eq!(replies[4].items(), [Reply::Nil, Reply::Int(0), Reply::Int(0)]);
    assert_eq!(c.reply(), 1);
    let script = "return {redis.call('LOCK.SHARE', KEYS[1], 'e', 'PX', '60000', 'LIMIT', '2'), \
                  redis.call('LOCK.SHARE', KEYS[1], 'f', 'PX', '60000', 'LIMIT', '2', 'BLOCK', '0'), \
                  redis.call('LOCK.RELEASE', KEYS[1], 'c')}";
    let reply = control.call(&["EVAL", script, "1", "pool"]);
    assert_eq!(reply.items(), [Reply::Int(1), Reply::Nil, Reply::Int(0)]);
    assert_eq!(holders_of(&mut control, "pool"), ["e"]);
}

#[test]
fn a_pause_grants_nothing_until_it_is_over() {
    let server = Server::start();
    let mut control = server.client();
    assert_eq!(control.run("LOCK.SHARE pool a PX 600000 LIMIT 2"), 1);
    assert_eq!(control.run("LOCK.SHARE pool b PX 200 LIMIT 2"), 1);
    let mut c: Waiting = Way::Blocked.start(&server, "LOCK.SHARE pool c PX 60000 LIMIT 2 BLOCK 0");
    control.ok("CLIENT PAUSE 60000 WRITE");
    eventually("b has ended", || control.run("LOCK.INFO pool").get("holds") == 1);
    never_within(OBSERVATION, "a permit is granted in the pause", || !c.waits());
    assert_eq!(control.run("ZCARD pool"), 2, "nothing is written in the pause");
    control.ok("CLIENT UNPAUSE");
    assert_eq!(c.reply(), 1);
    assert_eq!(holders_of(&mut control, "pool"), ["a", "c"]);
    assert_eq!(waiters_of(&mut control, "pool"), 0);
}

#[test]
fn who_comes_after_a_later_share_was_removed_waits_for_the_last_that_is_left() {
    for ask in ["LOCK.ACQUIRE door w PX 5000 BLOCK 0", "LOCK.SHARE door w PX 5000 LIMIT 1 BLOCK 0"] {
        let server = Server::start();
        let mut control = server.client();
        assert_eq!(control.run("LOCK.SHARE door a PX 600"), 1);
        assert_eq!(control.run("LOCK.SHARE door z PX 600000"), 1);
        assert_eq!(control.run("ZREM door z"), 1);
        let mut w = Way::Blocked.start(&server, ask);
        assert_eq!(w.reply(), 1, "{ask}");
    }
}

#[test]
fn a_shared_lock_that_is_put_under_those_who_wait_is_heard_of() {
    let server = Server::start();
    let mut control = server.client();
    assert_eq!(control.run("LOCK.SHARE other a PX 600000"), 1);
    assert_eq!(control.run("LOCK.SHARE other z PX 600000"), 1);
    assert_eq!(control.run("LOCK.ACQUIRE door m"), 1);
    let mut w = Way::Blocked.start(&server, "LOCK.ACQUIRE door w PX 5000 BLOCK 0");
    control.ok("RENAME other door");
    for token in ["a", "z"] {
        assert!(w.waits());
        assert_eq!(control.run(&format!("ZREM door {token}")), 1);
    }
    assert_eq!(w.reply(), 1);
}

/// One in line for one of two permits for each of many pools, while others write to Sorted Sets as fast as they can.
#[test]
fn removals_in_the_midst_of_very_many_other_writes_are_all_heard() {
    const POOLS: usize = 100;
    let server = Setup::new().config("lazyfree-lazy-server-del yes\nlazyfree-lazy-user-del yes").start();
    let mut control = server.client();
    let mut waiters: Vec<Waiter> = (0..POOLS)
        .map(|number| {
            for (token, ms) in [("a", 500_000), ("z", 600_000)] {
                assert_eq!(control.run(&format!("LOCK.SHARE pool{number} {token} PX {ms}")), 1);
            }
            let line = format!("LOCK.SHARE pool{number} b LIMIT 2 PX 550000 BLOCK 0");
            Waiter::send_on(&server, server.client(), &bytes_of(&line))
        })
        .collect();
    eventually("all wait", || info_lock(&mut control, "waiters") == 100);
    thread::scope(|scope| {
        for name in ["x", "y"] {
            let mut client = server.client();
            scope.spawn(move || {
                let lines = [format!("ZADD {name} 1 m 2 n"), format!("ZREM {name} m"), format!("ZPOPMIN {name}")];
                let lines: Vec<&str> = lines.iter().map(String::as_str).cycle().take(60).collect();
                for _ in 0..200 {
                    client.send_together(&lines);
                    lines.iter().for_each(|line| assert!(!client.receive().is_error(), "{line}"));
                }
            });
        }
        for (number, waiter) in waiters.iter_mut().enumerate() {
            let key = format!("pool{number}");
            let remove = format!("ZREM {key} a");
            match number % 3 {
                0 => assert_eq!(control.run(&remove), 1),
                1 => {
                    control.send_together(&["MULTI", &remove, "EXEC"]);
                    assert_eq!((0..3).map(|_| control.receive()).last(), Some(Reply::list([Reply::Int(1)])));
                }
                _ => {
                    let script = "return redis.call('ZREMRANGEBYRANK', KEYS[1], 0, 0)";
                    assert_eq!(control.call(&["EVAL", script, "1", &key]), 1);
                }
            }
            assert_eq!(waiter.reply(), 1, "{key}");
        }
    });
    assert_eq!(holders_of(&mut control, "pool0"), ["b", "z"]);
}
