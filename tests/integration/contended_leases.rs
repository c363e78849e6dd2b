//! Many leases that end together while clients wait: while the server expires keys itself, in a stall, and among evictions and
//! flushes. Each waiter receives a reply, each lock has one holder at a time, and the server does not crash.

use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

use support::parallel::for_each;
use support::process::{Process, allow_open_files};
use support::raw::{RawConnection, encode};
use support::staggered::Staggered;
use support::{Aof, Server, Setup, info_lock};

/// Written as it comes, so that many hand-overs need not wait for the disk.
const AOF: &str = "appendonly yes\nappendfsync no\naof-use-rdb-preamble no";

/// How many times a second the server checks for keys that expire, as seldom and as often as is common.
const RATES: [u32; 2] = [10, 100];

/// Checks in the append-only file that each lock was deleted between two grants. Returns the number of grants.
#[track_caller]
fn one_holder_after_the_other(aof: &Aof) -> usize {
    let mut holders: HashMap<String, String> = HashMap::new();
    let mut grants = 0;
    for line in aof.commands() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["SET", key, holder, ..] => {
                let before = holders.insert(key.to_owned(), holder.to_owned());
                assert_eq!(before, None, "{line}, while another client held it");
                grants += 1;
            }
            ["DEL" | "UNLINK", ref keys @ ..] => keys.iter().for_each(|&key| _ = holders.remove(key)),
            _ => {}
        }
    }
    grants
}

/// Each client sends all its requests in one write. The server reads the next request of a client after it has granted the
/// earlier one. No client releases a lock. While a slow command runs many leases end, and the server's own expiry comes to them
/// first.
#[test]
fn thousands_of_short_leases_end_on_busy_server() {
    const LOCKS: usize = 200;
    const CLIENTS: usize = 3 * LOCKS;
    const ROUNDS: usize = 16;
    let server = Setup::new().config(AOF).config("hz 100").start();
    allow_open_files(CLIENTS + 500);
    let mut connections: Vec<_> = (0..CLIENTS).map(|_| RawConnection::open(server.port())).collect();
    for (number, connection) in connections.iter_mut().enumerate() {
        let lines = (0..ROUNDS).map(|round| {
            let (lock, lease) = (number % LOCKS, 5 + (number * 7 + round * 3) % 21);
            encode(&format!("LOCK.ACQUIRE lock{lock} {number}-{round} PX {lease} BLOCK 0"))
        });
        connection.send_bytes(&lines.flatten().collect::<Vec<u8>>());
    }
    let mut control = server.client();
    let replies = thread::scope(|scope| {
        let reader = scope.spawn(|| -> Vec<Option<String>> {
            connections.iter_mut().flat_map(|client| [(); ROUNDS].map(|()| client.line())).collect()
        });
        while !reader.is_finished() {
            control.ok("DEBUG SLEEP 0.012");
        }
        reader.join().expect("a reply to each request")
    });
    assert!(replies.iter().all(|reply| reply.as_deref() == Some(":1")), "a request was not granted");
    assert_eq!(info_lock(&mut control, "waiters"), 0);
    assert_eq!(one_holder_after_the_other(&server.aof()), CLIENTS * ROUNDS);
}

/// Shorter than a stall that suspends the module.
const STALL: Duration = Duration::from_millis(600);

fn stop_process(server: &Server) {
    let process = Process::of(server);
    process.stop();
    thread::sleep(STALL);
    process.resume();
}

fn run_slow_command(server: &Server) {
    server.client().ok(&format!("DEBUG SLEEP {}", STALL.as_secs_f64()));
}

#[test]
fn leases_end_during_stall() {
    let stalls: [fn(&Server); 2] = [stop_process, run_slow_command];
    let cases: Vec<_> = stalls.into_iter().flat_map(|stall| RATES.map(|rate| (stall, rate))).collect();
    for_each(&cases, |(stall, rate)| {
        let server = Setup::new().config(AOF).config(&format!("hz {rate}")).start();
        let locks = Staggered::start(&server, "", 40, 3);
        stall(&server);
        let outcomes = locks.outcomes();
        assert_eq!(outcomes.granted.len(), 40, "{:?}", outcomes.told);
        outcomes.hold_at(&mut server.client());
        assert_eq!(one_holder_after_the_other(&server.aof()), 80);
    });
}

/// Changes of the keys while leases end, again and again until they have.
const MEANWHILE: [&[&str]; 4] = [
    &["FLUSHDB"],
    &["SWAPDB 0 1", "SWAPDB 1 2"],
    &["CONFIG SET maxmemory-policy allkeys-random", "CONFIG SET maxmemory 1", "SET fill x", "CONFIG SET maxmemory 0"],
    &["CONFIG SET maxmemory-policy volatile-ttl", "CONFIG SET maxmemory 1", "SET fill x", "CONFIG SET maxmemory 0"],
];

#[test]
fn leases_end_among_flushes_swaps_and_evictions() {
    let cases: Vec<_> = MEANWHILE.iter().flat_map(|lines| RATES.map(|rate| (lines, rate))).collect();
    for_each(&cases, |(lines, rate)| {
        let server = Setup::new().config(&format!("hz {rate}")).start();
        let locks = Staggered::start(&server, "", 60, 3);
        let (mut control, over) = (server.client(), Instant::now() + Duration::from_millis(180));
        while Instant::now() < over {
            control.send_together(lines);
            // Redis refuses SET while there is no memory.
            lines.iter().for_each(|_| _ = control.receive());
        }
        assert_eq!(locks.outcomes().granted.len(), 60, "{lines:?} at {rate}");
        assert_eq!(info_lock(&mut control, "waiters"), 0);
    });
}
