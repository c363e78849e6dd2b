//! Ten thousand clients that wait for one lock: a hand-over takes as long as among a hundred, each is granted the lock in its
//! turn, and the memory is given back. tests/simulated/growth counts the steps of everything else.

use std::time::{Duration, Instant};

use support::process::allow_open_files;
use support::raw::RawConnection;
use support::{Client, PATIENCE, Server, Setup, eventually, happens_within, info_lock};

use super::alone;

const MANY: usize = 10_000;
const FEW: usize = 100;

/// How many times as long a hand-over may take among many as among few. A cost that grows with the number of waiters
/// is a hundred times as high.
const FLAT: f64 = 3.0;

/// Hand-overs that are timed together.
const BATCH: usize = 100;
const BATCHES: usize = 10;

/// Attempts at a fair measurement on a busy machine.
const ATTEMPTS: usize = 4;

/// The waiters of a round that shows whether the memory is given back.
const WAITERS: usize = 2000;

/// How many bytes two equal rounds may differ by: less than two small allocations for each waiter.
const MARGIN: i64 = 96 * 1024;

fn server() -> Server {
    allow_open_files(MANY + 500);
    let limits = format!("maxclients {}\nlock.max-waiters {MANY}\nlock.rejoin-grace-ms 0", MANY + 100);
    Setup::new().config(&limits).start()
}

/// Clients that wait, and one more that releases.
struct Crowd {
    members: Vec<RawConnection>,
    control: RawConnection,
}

impl Crowd {
    fn connect(server: &Server, count: usize) -> Self {
        let connect = || RawConnection::open(server.port());
        Self { members: (0..count).map(|_| connect()).collect(), control: connect() }
    }

    /// The first `count` begin to wait, one after the other.
    #[track_caller]
    fn line_up(&mut self, count: usize) {
        assert_eq!(self.control.run("LOCK.ACQUIRE door holder"), ":1");
        for (number, member) in self.members.iter_mut().take(count).enumerate() {
            member.send(&format!("LOCK.ACQUIRE door t{number} BLOCK 0"));
            // When this has a reply, the server has read the request.
            assert_eq!(self.control.run("PING"), "+PONG");
        }
    }

    /// Grants the lock to the members in this range, one after the other. Returns how long a hand-over took.
    #[track_caller]
    fn grant(&mut self, range: std::ops::Range<usize>) -> Duration {
        let (started, count) = (Instant::now(), range.len());
        for number in range {
            let holder = number.checked_sub(1).map_or("holder".to_owned(), |before| format!("t{before}"));
            assert_eq!(self.control.run(&format!("LOCK.RELEASE door {holder}")), ":0");
            assert_eq!(self.members[number].line().as_deref(), Some(":1"), "t{number} is the next");
        }
        started.elapsed() / u32::try_from(count).expect("a small number")
    }

    /// The first `count` wait, and are granted the lock. Returns how long a hand-over took, in the best of these batches.
    #[track_caller]
    fn time(&mut self, count: usize, batches: usize) -> Duration {
        self.line_up(count);
        let best = (0..batches).map(|batch| self.grant(batch * BATCH..(batch + 1) * BATCH)).min().expect("a batch");
        if batches * BATCH < count {
            self.grant(batches * BATCH..count);
        }
        assert_eq!(self.control.run(&format!("LOCK.RELEASE door t{}", count - 1)), ":0");
        best
    }
}

#[test]
fn hand_over_among_ten_thousand_is_as_fast_as_among_hundred() {
    let _alone = alone();
    let server = server();
    let mut crowd = Crowd::connect(&server, MANY);
    let mut measured = Vec::new();
    for _ in 0..ATTEMPTS {
        let among_many = crowd.time(MANY, BATCHES);
        let among_few = (0..BATCHES).map(|_| crowd.time(FEW, 1)).min().expect("a batch");
        measured.push((among_many, among_few));
        if among_many.as_secs_f64() <= FLAT * among_few.as_secs_f64() {
            return;
        }
    }
    panic!("a hand-over among {MANY} and among {FEW}: {measured:?}");
}

fn used_memory(client: &mut Client) -> i64 {
    client.info("memory", "used_memory").expect("used_memory").parse().expect("a number")
}

/// Many clients wait, some are granted the lock, and all disconnect. In groups, because the server keeps what it made for each
/// blocked client, and frees only some five hundred of those in a second.
#[track_caller]
fn come_and_go(server: &Server, client: &mut Client) {
    const AT_ONCE: usize = 250;
    for _ in 0..WAITERS / AT_ONCE {
        let mut crowd = Crowd::connect(server, AT_ONCE);
        crowd.line_up(AT_ONCE);
        crowd.grant(0..BATCH);
        drop(crowd);
        eventually("all are gone", || client.info("clients", "connected_clients").as_deref() == Some("1"));
        assert_eq!(info_lock(client, "waiters"), 0);
        client.ok("FLUSHALL");
    }
}

#[test]
fn memory_of_thousands_of_waiters_is_given_back() {
    let _alone = alone();
    let server = server();
    let mut client = server.client();
    let before = used_memory(&mut client);
    // The first round also makes what stays: tables that grew, buffers that are kept.
    let mut limit = before + 8 * MARGIN;
    for round in ["the first", "the second"] {
        come_and_go(&server, &mut client);
        let mut used = i64::MAX;
        let given_back = happens_within(PATIENCE, || {
            client.run("MEMORY PURGE");
            used = used.min(used_memory(&mut client));
            used <= limit
        });
        assert!(given_back, "{before} bytes before, {used} after {round} round, allowed are {limit}");
        limit = used + MARGIN;
    }
}
