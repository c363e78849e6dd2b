//! Very much that the module has to do of its own accord at once: it does a thousand things at a stretch, and in between
//! the server attends to its clients.

use std::thread;
use std::time::{Duration, Instant};

use support::beat::{BEAT, Beat};
use support::process::allow_open_files;
use support::raw::RawConnection;
use support::{Client, Server, Setup, eventually, info_lock, now_ms};

use super::alone;

const WAITERS: usize = 5000;
const SESSIONS: usize = 20_000;

/// What the module does before anybody else has a turn.
const STRETCH: usize = 1000;

fn server() -> Server {
    allow_open_files(WAITERS + 500);
    let limits = format!("maxclients {}\nlock.max-waiters {WAITERS}", WAITERS + 100);
    Setup::new().config("appendonly yes\nappendfsync no\naof-use-rdb-preamble no").config(&limits).start()
}

/// Sends so many commands in one write. All answer 1.
#[track_caller]
fn each(client: &mut Client, count: usize, line: impl Fn(usize) -> String) {
    let lines: Vec<String> = (0..count).map(line).collect();
    client.send_together(&lines);
    assert!(lines.iter().all(|_| client.receive() == 1));
}

/// Clients that each wait for a lock of its own, which alice holds.
#[track_caller]
fn line_up(server: &Server, alice: &mut Client) -> Vec<RawConnection> {
    each(alice, WAITERS, |number| format!("LOCK.ACQUIRE lock{number} alice PX 600000"));
    let mut waiters: Vec<_> = (0..WAITERS).map(|_| RawConnection::open(server.port())).collect();
    for (number, waiter) in waiters.iter_mut().enumerate() {
        waiter.send(&format!("LOCK.ACQUIRE lock{number} bob PX 600000 BLOCK 0"));
    }
    eventually("all wait", || info_lock(alice, "waiters") == i64::try_from(WAITERS).unwrap());
    waiters
}

#[track_caller]
fn all_are_served(waiters: &mut [RawConnection]) {
    waiters.iter_mut().for_each(|waiter| assert_eq!(waiter.line().as_deref(), Some(":1")));
}

/// What the server has written from one moment on.
struct Written(Vec<String>);

impl Written {
    #[track_caller]
    fn since(server: &Server, from: usize) -> Self {
        Self(server.aof().commands().split_off(from))
    }

    /// So many commands with this beginning were written in all, no more than a stretch of them in one transaction, and
    /// the other client had its turns among them.
    #[track_caller]
    fn came_in_stretches(&self, count: usize, begin: &str) {
        let wanted = |line: &String| line.starts_with(begin);
        let most_between = |is_bound: fn(&String) -> bool| {
            let parts = self.0.split(is_bound).map(|part| part.iter().filter(|line| wanted(line)).count());
            parts.max().expect("a part")
        };
        assert_eq!(self.0.iter().filter(|line| wanted(line)).count(), count);
        let at_once = most_between(|line| ["MULTI", "EXEC"].contains(&line.as_str()));
        assert!(at_once <= STRETCH, "{at_once} in one transaction");
        let without_a_turn = most_between(|line| line == BEAT);
        // On a busy machine the other client may miss some of its turns.
        assert!(without_a_turn < count, "the other client had to wait while {without_a_turn} of {count} were done");
    }
}

#[test]
fn five_thousand_leases_that_end_together_are_handed_over_in_stretches() {
    let _alone = alone();
    let server = server();
    let mut alice = server.client();
    let mut waiters = line_up(&server, &mut alice);
    let end = now_ms() + 500;
    let script = "for number = 0, ARGV[1] - 1 do redis.call('PEXPIREAT', 'lock' .. number, ARGV[2]) end return 1";
    assert_eq!(alice.call(&["EVAL", script, "0", &WAITERS.to_string(), &end.to_string()]), 1);
    assert!(now_ms() < end, "all have the same end before it comes");
    let before = server.aof().commands().len();
    let beat = Beat::start(&server);
    all_are_served(&mut waiters);
    beat.end();
    Written::since(&server, before).came_in_stretches(WAITERS, "SET lock");
}

#[test]
fn a_connection_with_twenty_thousand_sessions_that_closes_is_released_in_stretches() {
    let _alone = alone();
    let server = server();
    let (mut alice, mut control) = (server.client(), server.client());
    each(&mut alice, SESSIONS, |number| format!("LOCK.ACQUIRE lock{number} alice PX 600000 SESSION"));
    assert_eq!(info_lock(&mut control, "sessions"), i64::try_from(SESSIONS).unwrap());
    let before = server.aof().commands().len();
    let beat = Beat::start(&server);
    drop(alice);
    eventually("all are released", || control.run("DBSIZE") == 1);
    beat.end();
    assert_eq!(info_lock(&mut control, "sessions"), 0);
    Written::since(&server, before).came_in_stretches(SESSIONS, "DEL lock");
}

/// While very many readers of one lock are served, hand-overs of other locks go on. With the readers first they would be as late as
/// serving all of them takes.
#[test]
fn long_queue_does_not_delay_other_locks() {
    const READERS: usize = 60_000;
    let _alone = alone();
    let server = Setup::new().config(&format!("lock.max-waiters {}", READERS + 10)).start();
    let [mut alice, mut asker, mut listener, mut bob, mut control] = [(); 5].map(|()| server.client());
    listener.send(&["SSUBSCRIBE", "news"]);
    listener.receive();
    assert_eq!(alice.run("LOCK.ACQUIRE row alice PX 600000"), 1);
    let lines: Vec<String> =
        (0..READERS).map(|number| format!("LOCK.SHARE row r{number} PX 600000 BLOCK 0 NOTIFY news")).collect();
    for some in lines.chunks(1000) {
        asker.send_together(some);
        some.iter().for_each(|_| assert_eq!(asker.receive(), "WAITING"));
    }
    assert_eq!(info_lock(&mut control, "waiters"), i64::try_from(READERS).unwrap());

    let begin = Instant::now();
    alice.send(&["LOCK.RELEASE", "row", "alice"]);
    let mut latest = Duration::ZERO;
    let mut handovers = 0;
    while info_lock(&mut control, "waiters") > 0 {
        assert_eq!(control.run(&format!("LOCK.ACQUIRE other{handovers} control")), 1);
        bob.send_together(&[format!("LOCK.ACQUIRE other{handovers} bob PX 600000 BLOCK 0")]);
        // A request that is sent first is executed first, in this iteration or the one before.
        thread::sleep(Duration::from_millis(2));
        let deleted = Instant::now();
        assert_eq!(control.run(&format!("DEL other{handovers}")), 1);
        assert_eq!(bob.receive(), 1);
        latest = latest.max(deleted.elapsed());
        handovers += 1;
    }
    let all = begin.elapsed();
    println!("{READERS} readers in {all:?}, {handovers} hand-overs of other locks, the latest after {latest:?}");
    assert!(latest < all / 3, "a hand-over of another lock took {latest:?} of {all:?}");
}

#[test]
fn five_thousand_locks_that_are_flushed_are_handed_over_in_stretches() {
    let _alone = alone();
    let server = server();
    let mut alice = server.client();
    let mut waiters = line_up(&server, &mut alice);
    let before = server.aof().commands().len();
    let beat = Beat::start(&server);
    alice.ok("FLUSHALL");
    all_are_served(&mut waiters);
    beat.end();
    let written = Written::since(&server, before);
    assert!(written.0.iter().find(|line| *line != BEAT).is_some_and(|line| line == "FLUSHALL"));
    written.came_in_stretches(WAITERS, "SET lock");
    assert_eq!(info_lock(&mut alice, "waiters"), 0);
}
