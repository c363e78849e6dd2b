//! Shares of many locks, and many shares of one, as scenarios cannot say it.

use std::thread;

use support::{Reply, Server, Setup, Waiter, bytes_of, eventually, info_lock, now_ms};

use super::holders_of;

/// One waiter for one of two permits for each of many pools, while other clients write to Sorted Sets as fast as they can.
#[test]
fn removal_among_many_other_writes_is_noticed() {
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

#[test]
fn any_number_of_expired_members_makes_capacity() {
    const MANY: usize = 101_000;
    let server = Server::start();
    let mut control = server.client();
    assert_eq!(control.run("LOCK.SHARE pool keeper PX 600000"), 1);
    let expired = (now_ms() - 1).to_string();
    for first in (0..MANY).step_by(1000) {
        let members: Vec<String> =
            (first..first + 1000).flat_map(|number| [expired.clone(), format!("m{number}")]).collect();
        let words: Vec<&str> = ["ZADD", "pool"].into_iter().chain(members.iter().map(String::as_str)).collect();
        assert_eq!(control.call(&words), 1000);
    }
    eventually("there is capacity", || control.run("LOCK.SHARE pool one PX 600000 LIMIT 2") == 1);
    assert_eq!(control.run("LOCK.SHARE pool two PX 600000 LIMIT 2"), Reply::Nil);
}
