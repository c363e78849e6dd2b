//! A great amount of background work: the module does a thousand tasks in a batch, and the server serves its clients in between.

use support::beat::{BEAT, Beat};
use support::process::allow_open_files;
use support::raw::RawConnection;
use support::{Client, Server, Setup, eventually, info_lock, now_ms};

use super::alone;

const WAITERS: usize = 5000;
const SESSIONS: usize = 20_000;
const BATCH: usize = 1000;

fn server() -> Server {
    allow_open_files(WAITERS + 500);
    let limits = format!("maxclients {}\nlock.max-waiters {WAITERS}", WAITERS + 100);
    Setup::new().config("appendonly yes\nappendfsync no\naof-use-rdb-preamble no").config(&limits).start()
}

/// Sends `count` commands in one write. Each replies 1.
#[track_caller]
fn each(client: &mut Client, count: usize, line: impl Fn(usize) -> String) {
    let lines: Vec<String> = (0..count).map(line).collect();
    client.send_together(&lines);
    assert!(lines.iter().all(|_| client.receive() == 1));
}

/// Runs `work`, and checks the commands that the server has written by then: `count` commands with this beginning, at most a
/// batch of them in one transaction, and commands of another client among them.
#[track_caller]
fn writes_in_batches(server: &Server, count: usize, begin: &str, work: impl FnOnce()) {
    let before = server.aof().commands().len();
    let beat = Beat::start(server);
    work();
    beat.end();
    let written = server.aof().commands().split_off(before);
    let most_between = |is_bound: fn(&String) -> bool| {
        let parts = written.split(is_bound).map(|part| part.iter().filter(|line| line.starts_with(begin)).count());
        parts.max().expect("a part")
    };
    assert_eq!(written.iter().filter(|line| line.starts_with(begin)).count(), count);
    let at_once = most_between(|line| ["MULTI", "EXEC"].contains(&line.as_str()));
    assert!(at_once <= BATCH, "{at_once} in one transaction");
    let without_a_turn = most_between(|line| line == BEAT);
    // On a busy machine the other client may miss some of its turns.
    assert!(without_a_turn < count, "the other client had to wait while {without_a_turn} of {count} were done");
}

#[test]
fn thousands_of_leases_that_end_are_granted_in_batches() {
    let _alone = alone();
    let server = server();
    let mut alice = server.client();
    each(&mut alice, WAITERS, |number| format!("LOCK.ACQUIRE lock{number} alice PX 600000"));
    let mut waiters: Vec<_> = (0..WAITERS).map(|_| RawConnection::open(server.port())).collect();
    for (number, waiter) in waiters.iter_mut().enumerate() {
        waiter.send(&format!("LOCK.ACQUIRE lock{number} bob PX 600000 BLOCK 0"));
    }
    eventually("all wait", || info_lock(&mut alice, "waiters") == i64::try_from(WAITERS).unwrap());
    let end = now_ms() + 500;
    let script = "for number = 0, ARGV[1] - 1 do redis.call('PEXPIREAT', 'lock' .. number, ARGV[2]) end return 1";
    assert_eq!(alice.call(&["EVAL", script, "0", &WAITERS.to_string(), &end.to_string()]), 1);
    assert!(now_ms() < end, "all have the same end before it comes");
    writes_in_batches(&server, WAITERS, "SET lock", || {
        waiters.iter_mut().for_each(|waiter| assert_eq!(waiter.line().as_deref(), Some(":1")));
    });
}

#[test]
fn thousands_of_sessions_that_close_are_released_in_batches() {
    let _alone = alone();
    let server = server();
    let (mut alice, mut control) = (server.client(), server.client());
    each(&mut alice, SESSIONS, |number| format!("LOCK.ACQUIRE lock{number} alice PX 600000 SESSION"));
    assert_eq!(info_lock(&mut control, "sessions"), i64::try_from(SESSIONS).unwrap());
    writes_in_batches(&server, SESSIONS, "DEL lock", || {
        drop(alice);
        eventually("all are released", || control.run("DBSIZE") == 1);
    });
    assert_eq!(info_lock(&mut control, "sessions"), 0);
}
